//! Asks the server for slices of a known version.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
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
            // Content that waits for a processor counts as a request, which bounds its bytes.
            let processor = context.processors.acquire().await;
            drop(response);
            context.publish_slice(processor, version, slice, content).await?;
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

async fn take_slice(body: &mut Body, version: &Version, slice: u64) -> Result<Bytes, Problem> {
    let slice_bytes = version.slice_bytes(slice);
    let content = body.take(slice_bytes).await?;
    if content.len() != slice_bytes {
        return Err(Problem::bad_gateway("The server sent less content than it announced."));
    }
    Ok(content)
}

/// Publishes the slices of a body as they arrive. Those before `first` are only compared with what
/// they were before. While one is signed, the next one is received. Ends after the last slice, or
/// when no slice was wanted for a while.
pub(super) async fn stream_slices(
    context: &Context,
    version: &Arc<Version>,
    mut body: Body,
    (slices, first): (Range<u64>, u64),
    mut wanted: watch::Receiver<u64>,
    mut on_slice: impl FnMut(u64),
) -> Result<(), SliceError> {
    let mut received: Option<(u64, Bytes)> = None;
    for slice in slices {
        let is_wanted = |wanted: &u64| slice <= wanted.saturating_add(SLICES_AHEAD);
        let is_wanted_now = is_wanted(&wanted.borrow());
        if !is_wanted_now {
            // The reader of the last slice must not wait for the next one.
            publish_received(context, version, received.take(), &mut on_slice).await?;
            let waited = tokio::time::timeout(DEMAND_WAIT, wanted.wait_for(is_wanted)).await;
            if !matches!(waited, Ok(Ok(_))) {
                return Ok(());
            }
        }
        let publishing = publish_received(context, version, received.take(), &mut on_slice);
        let (published, content) = tokio::join!(publishing, take_slice(&mut body, version, slice));
        published?;
        let content = content?;
        if slice >= first {
            received = Some((slice, content));
        } else {
            compare_slice(context, version, slice, content).await?;
        }
    }
    Ok(publish_received(context, version, received, &mut on_slice).await?)
}

/// Fails if a slice that is not published again has changed.
async fn compare_slice(
    context: &Context,
    version: &Arc<Version>,
    slice: u64,
    content: Bytes,
) -> Result<(), Problem> {
    let (hashed, processor) = (version.clone(), context.processors.acquire().await);
    match processor.run(move || hashed.object.digest(slice, &content)).await {
        Ok(Ok(digest)) if version.is_same_slice(slice, digest) => Ok(()),
        _ => Err(Problem::changed()),
    }
}

async fn publish_received(
    context: &Context,
    version: &Arc<Version>,
    received: Option<(u64, Bytes)>,
    on_slice: &mut impl FnMut(u64),
) -> Result<(), Problem> {
    let Some((slice, content)) = received else { return Ok(()) };
    let processor = context.processors.acquire().await;
    context.publish_slice(processor, version, slice, content).await?;
    on_slice(slice);
    Ok(())
}
