//! Finds the current version of a resource: one request brings the head and the first bytes.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use weir_base::NS_PER_MS;
use weir_face::unix_time_ms;
use weir_security::sha256;
use weir_wire::Name;

use super::context::Context;
use super::playlist::Playlist;
use super::policy::{Freshness, Validator, is_silent, version_number};
use super::response::{Body, Problem, Response, content_range};
use super::upstream::Target;
use super::version::Version;
use crate::head::{HEAD_BYTES_MAX, ResponseHead};

/// Above this size, the head is published before the content, if an entity tag gives the version.
const HELD_BYTES_MAX: u64 = 64 << 10;
/// Upper bound of a length that a server may state. Larger ones are errors.
const LENGTH_MAX: u64 = 1 << 50;
/// A head of up to this size fits into metadata with any name and certificate of usual length.
const HEAD_BYTES_SAFE: usize = 2000;
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
/// Fields of a stored response that a 304 does not replace: they describe its body.
const KEPT_BY_NOT_MODIFIED: [HeaderName; 4] =
    [header::CONTENT_ENCODING, header::CONTENT_TYPE, header::ETAG, REPR_DIGEST];

/// A version, and the head with which it was last received or confirmed.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) version: Arc<Version>,
    pub(super) head: ResponseHead,
    /// When the head was received.
    pub(super) received: Instant,
}

impl Known {
    /// A version whose head was just received.
    pub(super) fn new(version: Arc<Version>, head: ResponseHead) -> Self {
        Self { version, head, received: Instant::now() }
    }

    /// Milliseconds of freshness left.
    pub(super) fn fresh_ms(&self) -> u64 {
        self.head.fresh_ms_after(unix_time_ms(), self.received.elapsed())
    }
}

/// A question about a resource.
#[derive(Clone)]
pub(super) struct Question {
    pub(super) object: Name,
    pub(super) target: Arc<Target>,
    pub(super) known: Option<Known>,
    /// The server has changed content without changing its validator.
    pub(super) has_false_validators: bool,
}

/// The first bytes of a version.
pub(super) struct Found {
    pub(super) known: Known,
    pub(super) first: Bytes,
    /// The slices that are still to be received, and their content.
    pub(super) rest: Option<(Range<u64>, Body)>,
}

/// Asks the server until it has a usable response.
pub(super) async fn find(context: &Context, question: &Question) -> Result<Found, Problem> {
    let known = question.known.as_ref().filter(|_| !question.has_false_validators);
    let mut range = Some(0..context.first_bytes());
    loop {
        let conditions = known.map(|known| known.version.validator.unless_same());
        let conditions = conditions.unwrap_or_default();
        let response = context.upstream.get(&question.target, range.clone(), conditions).await?;
        match (response.status, known) {
            (StatusCode::NOT_MODIFIED, Some(known)) => {
                context.count(|counters| &counters.not_modified);
                let mut fields = response.fields;
                context.upstream.localize(&question.target, &mut fields);
                let head = confirmed(context, known, &fields);
                let known = Known::new(known.version.clone(), head);
                return Ok(Found { known, first: Bytes::new(), rest: None });
            }
            (StatusCode::NOT_MODIFIED, None) => {
                return Err(Problem::bad_gateway(
                    "The server answers 304 to a request without conditions.",
                ));
            }
            (StatusCode::PARTIAL_CONTENT, _) if range.is_some() => {
                match partial(context, question, response).await? {
                    Some(found) => return Ok(found),
                    None => range = None,
                }
            }
            (StatusCode::PARTIAL_CONTENT, _) => {
                return Err(Problem::bad_gateway(
                    "The server answers 206 to a request without a range.",
                ));
            }
            (StatusCode::RANGE_NOT_SATISFIABLE, _) if range.is_some() => range = None,
            (StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::SWITCHING_PROTOCOLS, _) => {
                let status = response.status;
                let reason =
                    format!("The server answers {status} to a request that it does not fit.");
                return Err(Problem::bad_gateway(reason));
            }
            _ => return whole(context, question, response).await,
        }
    }
}

/// The head of a known version after a 304 (RFC 9111, section 4.3.4).
fn confirmed(context: &Context, known: &Known, fields: &HeaderMap) -> ResponseHead {
    let mut head = known.head.clone();
    let mut newer = fields.clone();
    let age = newer.get(header::AGE).cloned();
    ResponseHead::remove_hop_fields(&mut newer);
    for name in newer.keys().filter(|name| !KEPT_BY_NOT_MODIFIED.contains(name)) {
        head.fields.remove(name);
        for value in newer.get_all(name) {
            head.fields.append(name, value.clone());
        }
    }
    let mut with_age = head.fields.clone();
    if let Some(age) = age {
        with_age.insert(header::AGE, age);
    }
    set_freshness(context, &mut head, &with_age, &known.version);
    head
}

/// A live playlist is fresh until its next segment is due, or less long if its server says so.
fn set_freshness(
    context: &Context,
    head: &mut ResponseHead,
    fields: &HeaderMap,
    version: &Version,
) {
    let default_ms = context.config.freshness.ns / NS_PER_MS;
    let freshness = Freshness::of(head.status, fields, default_ms);
    (head.lifetime_ms, head.age_s) = (freshness.lifetime_ms, freshness.age_s);
    head.received_ms = unix_time_ms();
    if let Some(playlist) = &version.playlist {
        let rest_ms = playlist.freshness(fields, version.age()).as_millis() as u64;
        head.lifetime_ms = match is_silent(fields) {
            true => rest_ms,
            false => head.lifetime_ms.min(rest_ms),
        };
    }
}

/// A response to a request for a range; `None` if the whole content must be requested.
async fn partial(
    context: &Context,
    question: &Question,
    mut response: Response,
) -> Result<Option<Found>, Problem> {
    let Some((range, total)) = content_range(&response.fields) else { return Ok(None) };
    response.fields.remove(header::CONTENT_RANGE);
    let validator = validator_of(question, &response);
    let expected = total.min(context.first_bytes());
    let is_whole = total == expected;
    if range != (0..expected) || !is_whole && !validator.exists() {
        return Ok(None);
    }
    if expected > HELD_BYTES_MAX && validator.is_strong() && !is_playlist(question) {
        response.status = StatusCode::OK;
        let known = known(context, question, &response, (validator, true), (total, None))?;
        // A name of unusual length has smaller slices, which are requested one by one.
        let is_slice = known.version.slice_bytes(0) as u64 == expected;
        let rest = is_slice.then_some((0..1, response.body));
        return Ok(Some(Found { known, first: Bytes::new(), rest }));
    }
    let first = response.body.take(expected as usize).await?;
    if first.len() as u64 != expected {
        return Err(Problem::bad_gateway("The server sent less content than it announced."));
    }
    response.status = StatusCode::OK;
    let content = is_whole.then_some(&first);
    let known = known(context, question, &response, (validator, true), (total, content))?;
    Ok(Some(Found { known, first, rest: None }))
}

/// A response with the whole content.
async fn whole(
    context: &Context,
    question: &Question,
    mut response: Response,
) -> Result<Found, Problem> {
    let validator = validator_of(question, &response);
    let bytes_max = context.config.unsized_max.bytes.max(context.first_bytes());
    if let Some(length) = response.length
        && length > context.first_bytes()
        && validator.exists()
    {
        let known = known(context, question, &response, (validator, false), (length, None))?;
        let first_bytes = known.version.slice_bytes(0);
        let first = response.body.take(first_bytes).await?;
        if first.len() != first_bytes {
            return Err(Problem::bad_gateway("The server sent less than it announced."));
        }
        let rest = Some((1..known.version.object.slices(), response.body));
        return Ok(Found { known, first, rest });
    }
    if response.length.is_some_and(|length| length > bytes_max) {
        return Err(too_long());
    }
    let content = response.body.take((bytes_max as usize).saturating_add(1)).await?;
    if content.len() as u64 > bytes_max {
        return Err(too_long());
    }
    let is_short = content.len() as u64 <= context.first_bytes();
    let whole = (is_short || !validator.exists()).then_some(&content);
    let size = (content.len() as u64, whole);
    let known = known(context, question, &response, (validator, false), size)?;
    Ok(Found { known, first: content, rest: None })
}

/// The version that a response has, and its head.
fn known(
    context: &Context,
    question: &Question,
    response: &Response,
    (validator, has_ranges): (Validator, bool),
    (size_bytes, content): (u64, Option<&Bytes>),
) -> Result<Known, Problem> {
    if size_bytes > LENGTH_MAX {
        return Err(Problem::bad_gateway("The server states an impossible length."));
    }
    let mut head = ResponseHead::new(response.status, unix_time_ms());
    head.fields = response.fields.clone();
    ResponseHead::remove_hop_fields(&mut head.fields);
    context.upstream.localize(&question.target, &mut head.fields);
    let location = head.fields.get(header::LOCATION);
    let body = content.map(|content| sha256(&[content]));
    let number = version_number(&validator, (head.status, location), size_bytes, body.as_ref());
    if let Some(digest) = body.filter(|_| head.status == StatusCode::OK) {
        if !validator.exists() {
            let etag = format!("\"{}\"", hex::encode(&digest[..16]));
            head.fields.insert(header::ETAG, text(&etag));
        }
        let stated = text(&format!("sha-256=:{}:", STANDARD.encode(digest)));
        head.fields.entry(REPR_DIGEST).or_insert(stated);
    }
    let earlier = question.known.as_ref().map(|known| &known.version);
    let version = match earlier.filter(|version| version.number == number) {
        // It knows the digests of its slices.
        Some(version) => version.clone(),
        None => {
            let object = context.object(&question.object, number, size_bytes)?;
            let content = content.filter(|_| is_playlist(question));
            let playlist = content.and_then(|it| Playlist::parse(it));
            Arc::new(Version::new(number, object, (validator, has_ranges), playlist))
        }
    };
    set_freshness(context, &mut head, &response.fields, &version);
    check_head(&version, &head)?;
    Ok(Known::new(version, head))
}

fn is_playlist(question: &Question) -> bool {
    Playlist::has_extension(&question.target.url)
}

fn validator_of(question: &Question, response: &Response) -> Validator {
    let has_content = matches!(response.status, StatusCode::OK | StatusCode::PARTIAL_CONTENT);
    match has_content && !question.has_false_validators {
        true => Validator::of(&response.fields),
        false => Validator::default(),
    }
}

fn text(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("hexadecimal digits and Base64 are valid in fields")
}

fn too_long() -> Problem {
    Problem::bad_gateway(
        "The server states no length or no validator, and the content is longer than the \
         gateway holds. Raise `unsized_max`, or let the server send ETag and Content-Length.",
    )
}

/// Rejects heads that do not fit into metadata.
fn check_head(version: &Version, head: &ResponseHead) -> Result<(), Problem> {
    let octets = head.encode();
    let len = octets.len();
    let fits = len <= HEAD_BYTES_SAFE
        || len <= HEAD_BYTES_MAX
            && version.object.sign_metadata(u64::MAX, u64::MAX, Some(octets)).is_ok();
    if fits {
        return Ok(());
    }
    let reason = "The response has more header fields than a packet has room for.";
    Err(Problem::bad_gateway(reason))
}
