//! Asks the server for slices of a known version.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::sync::watch;

use super::context::Context;
use super::response::{Body, Problem, content_range};
use super::upstream::Target;
use super::version::Version;

/// How many slices a stream publishes beyond the wanted ones.
const SLICES_AHEAD: u64 = 2;
/// How long a stream waits for the next wanted slice.
const DEMAND_WAIT: Duration = Duration::from_secs(10);

/// What a request for a slice brings.
pub(super) enum SliceReply {
    Published,
    /// The server ignores ranges. This is the whole content.
    Whole(Body),
}

/// Why a slice is not published.
#[derive(Debug)]
pub(super) enum SliceError {
    /// The server has another version now.
    Changed,
    Problem(Problem),
}

impl From<Problem> for SliceError {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// Requests one slice, and publishes it.
pub(super) async fn fetch_slice(
    context: &Context,
    target: &Target,
    version: &Arc<Version>,
    slice: u64,
) -> Result<SliceReply, SliceError> {
    let (object, validator) = (&version.object, &version.validator);
    let range = object.slice_range(slice);
    let asked = (version.has_ranges() && !range.is_empty()).then(|| range.clone());
    let mut response = context.upstream.get(target, asked, validator.if_same()).await?;
    match response.status {
        StatusCode::PARTIAL_CONTENT => {
            let expected = Some((range, object.size_bytes()));
            if content_range(&response.fields) != expected
                || validator.contradicts(&response.fields)
            {
                return Err(SliceError::Changed);
            }
            let content = take_slice(&mut response.body, version, slice).await?;
            context.publish_slice(version, slice, content).await?;
            Ok(SliceReply::Published)
        }
        StatusCode::OK => {
            let has_other_length = response.length.is_some_and(|it| it != object.size_bytes());
            if has_other_length || validator.contradicts(&response.fields) {
                return Err(SliceError::Changed);
            }
            version.set_no_ranges();
            Ok(SliceReply::Whole(response.body))
        }
        status if status.is_server_error() => {
            let reason = format!("The server answers {status} to a request for a slice.");
            Err(Problem::bad_gateway(reason).into())
        }
        _ => Err(SliceError::Changed),
    }
}

async fn take_slice(
    body: &mut Body,
    version: &Version,
    slice: u64,
) -> Result<bytes::Bytes, Problem> {
    let slice_bytes = version.slice_bytes(slice);
    let content = body.take(slice_bytes).await?;
    if content.len() != slice_bytes {
        return Err(Problem::bad_gateway("The server sent less content than it announced."));
    }
    Ok(content)
}

/// Publishes the slices of a body as they arrive, from its `next` one. Those before `first` are
/// only compared with what they were before. Ends after the last slice, or when no slice was wanted
/// for a while.
pub(super) async fn stream_slices(
    context: &Context,
    version: &Arc<Version>,
    mut body: Body,
    (next, first): (u64, u64),
    mut wanted: watch::Receiver<u64>,
    mut on_slice: impl FnMut(u64),
) -> Result<(), SliceError> {
    for slice in next..version.object.slices() {
        let is_wanted = wanted.wait_for(|wanted| slice <= wanted.saturating_add(SLICES_AHEAD));
        if !matches!(tokio::time::timeout(DEMAND_WAIT, is_wanted).await, Ok(Ok(_))) {
            return Ok(());
        }
        let content = take_slice(&mut body, version, slice).await?;
        if slice >= first {
            context.publish_slice(version, slice, content).await?;
            on_slice(slice);
        } else if !version.is_same_slice(slice, &content) {
            return Err(Problem::changed().into());
        }
    }
    Ok(())
}
