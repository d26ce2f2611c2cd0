//! Asks the server for a resource, and publishes what it sends, or why it fails.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use weir_base::NS_PER_MS;
use weir_face::unix_time_ms;
use weir_security::sha256;

use super::context::Context;
use super::find::{Found, Known, Question, find};
use super::live::find_live;
use super::policy::{Validator, version_number};
use super::response::{Body, Problem, without_user};
use super::version::Version;
use crate::head::ResponseHead;

/// What the server says about a resource.
pub(super) enum Answer {
    Current(Known),
    /// It fails, and the known version is used although it is stale.
    Stale,
    /// It fails. The body of this version says why.
    Failed(Known),
}

/// Slices of a version that are still being received.
pub(super) struct Rest {
    pub(super) version: Arc<Version>,
    pub(super) slices: Range<u64>,
    pub(super) body: Body,
}

/// Asks the server. Publishes what it sends, and returns what could not be received yet.
pub(super) async fn ask(context: &Context, question: &mut Question) -> (Answer, Option<Rest>) {
    let mut result = ask_and_publish(context, question).await;
    if result.as_ref().is_err_and(|problem| problem.is_false_validator) {
        question.has_false_validators = true;
        result = ask_and_publish(context, question).await;
    }
    if let Err(problem) = &result {
        problem.log(&question.target.url);
    }
    let stale = question.known.as_ref().filter(|known| permits_stale(context, &known.head));
    match result {
        Ok((known, _)) if known.head.status.is_server_error() && stale.is_some() => {
            let (url, status) = (without_user(&question.target.url), known.head.status);
            tracing::warn!(%url, %status, "the server fails, so a stale response is served");
            (Answer::Stale, None)
        }
        Ok((known, rest)) => (Answer::Current(known), rest),
        Err(_) if stale.is_some() => (Answer::Stale, None),
        Err(problem) => (Answer::Failed(explain(context, question, &problem).await), None),
    }
}

fn permits_stale(context: &Context, head: &ResponseHead) -> bool {
    let until = head.received_ms.saturating_add(head.lifetime_ms);
    let until = until.saturating_add(context.config.stale.ns / NS_PER_MS);
    unix_time_ms() < until && !head.status.is_server_error() && !head.forbids_stale()
}

async fn ask_and_publish(
    context: &Context,
    question: &Question,
) -> Result<(Known, Option<Rest>), Problem> {
    let found = match context.config.live {
        true => find_live(context, question).await?,
        false => find(context, question).await?,
    };
    let Found { known, first, rest } = found;
    let version = &known.version;
    let is_whole = rest.is_none() && first.len() as u64 == version.object.size_bytes();
    if !first.is_empty() || is_whole {
        context.publish_slices(version, first).await?;
    }
    let rest = rest.map(|(slices, body)| Rest { version: version.clone(), slices, body });
    Ok((known, rest))
}

/// A response that explains a problem.
async fn explain(context: &Context, question: &Question, problem: &Problem) -> Known {
    let content = Bytes::from(format!("{}\n{}\n", problem.status, problem.reason));
    let mut head = ResponseHead::new(problem.status, unix_time_ms());
    for (name, value) in
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CACHE_CONTROL, "no-store")]
    {
        head.fields.insert(name, HeaderValue::from_static(value));
    }
    let (size, digest) = (content.len() as u64, sha256(&[&content]));
    let validator = Validator::default();
    let number = version_number(&validator, (head.status, None), size, Some(&digest));
    let object = context.object(&question.object, number, size);
    let object = object.expect("no target is too deep, and one segment needs no manifest");
    let version = Arc::new(Version::new(number, object, (validator, true), None));
    // Without the text, the status still says enough.
    let _ = context.publish_slices(&version, content).await;
    Known::new(version, head)
}
