//! The response for an object: status, header fields, and which bytes follow.

use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{HeaderName, Method, Response, StatusCode};
use weir_face::unix_time_ms;

use super::Shared;
use super::body::{self, Body, Part};
use super::conditions::{self, ByteSelection, Outcome};
use super::errors::Failure;
use super::fields::{set, words};
use super::heads::{ForwardReason, FoundVersion, HeadSource};
use super::log::Access;

/// Fields of a full response that a 304 has, too (RFC 9110, section 15.4.5).
const IN_NOT_MODIFIED: [HeaderName; 9] = [
    header::CACHE_CONTROL,
    header::CONTENT_LOCATION,
    header::DATE,
    header::ETAG,
    header::EXPIRES,
    header::VARY,
    header::AGE,
    header::LAST_MODIFIED,
    HeaderName::from_static("cache-status"),
];

/// An object that was found.
pub(super) struct ResolvedObject {
    pub(super) found: Arc<FoundVersion>,
    pub(super) source: HeadSource,
    /// The URL has the version, so the response never changes.
    pub(super) is_versioned: bool,
}

pub(super) fn source_word(source: HeadSource) -> &'static str {
    match source {
        HeadSource::Memory => "memory",
        HeadSource::Store => "store",
        HeadSource::Network(_) => "network",
        HeadSource::Origin(_) => "origin",
    }
}

/// The value of `Cache-Status` (RFC 9211). The front and its router are the cache.
fn cache_status(source: HeadSource) -> String {
    let forwarded = |reason| match reason {
        ForwardReason::Miss => "miss",
        ForwardReason::Stale => "stale",
        ForwardReason::Request => "request",
    };
    let detail = source_word(source);
    match source {
        HeadSource::Memory | HeadSource::Store => format!("weir; hit; detail={detail}"),
        HeadSource::Network(reason) | HeadSource::Origin(reason) => {
            format!("weir; fwd={}; detail={detail}", forwarded(reason))
        }
    }
}

/// The response for an object that was found.
pub(super) fn of_object(
    shared: &Arc<Shared>,
    request: &Parts,
    object: &ResolvedObject,
    mut access: Access,
) -> Response<Body> {
    let found = &*object.found;
    let mut fields = head_fields(object, access.begun);
    let status = found.head.status;
    let outcome = match status {
        StatusCode::OK => conditions::evaluate(&request.method, &request.headers, &fields),
        _ => Outcome::Full,
    };
    if outcome == Outcome::NotModified {
        access.status = StatusCode::NOT_MODIFIED;
        let names: Vec<HeaderName> = fields.keys().cloned().collect();
        for name in names.iter().filter(|name| !IN_NOT_MODIFIED.contains(name)) {
            fields.remove(name);
        }
        return with(access.status, fields, body::empty());
    }
    if outcome == Outcome::PreconditionFailed {
        access.status = StatusCode::PRECONDITION_FAILED;
        let failure = Failure::new(access.status, "the object has changed");
        return failure.response();
    }
    let size = found.metadata.size_bytes;
    let selection = match size {
        Some(size) if status == StatusCode::OK && request.method == Method::GET => {
            conditions::select_bytes(&request.headers, &fields, size)
        }
        _ => ByteSelection::All,
    };
    if size.is_some() && status == StatusCode::OK {
        fields.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    }
    let size = size.unwrap_or(u64::MAX);
    match selection {
        ByteSelection::All => {
            access.status = status;
            if size < u64::MAX && has_body(status) {
                set(&mut fields, header::CONTENT_LENGTH, size.to_string());
            }
            let body = content(shared, request, found, 0..size, access);
            with(status, fields, body)
        }
        ByteSelection::NotSatisfiable => {
            access.status = StatusCode::RANGE_NOT_SATISFIABLE;
            let reason = format!("the object has {size} bytes");
            let mut response = Failure::new(access.status, reason).response();
            set(response.headers_mut(), header::CONTENT_RANGE, format!("bytes */{size}"));
            response
        }
        ByteSelection::Ranges(ranges) => {
            access.status = StatusCode::PARTIAL_CONTENT;
            partial(shared, request, found, fields, &ranges, access)
        }
    }
}

fn has_body(status: StatusCode) -> bool {
    !status.is_informational()
        && status != StatusCode::NO_CONTENT
        && status != StatusCode::NOT_MODIFIED
}

fn with(status: StatusCode, fields: HeaderMap, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = fields;
    response
}

/// The producer's fields, and those that say where the response came from.
fn head_fields(object: &ResolvedObject, begun: Instant) -> HeaderMap {
    let ResolvedObject { found, source, is_versioned } = object;
    let mut fields = found.head.fields.clone();
    let now_ms = unix_time_ms();
    if found.is_http {
        set(&mut fields, header::AGE, found.head.age_s(now_ms).to_string());
    }
    if *is_versioned && found.head.status == StatusCode::OK && may_be_immutable(&fields) {
        // Not `public`, which would permit caches to share what needs a token.
        set(&mut fields, header::CACHE_CONTROL, "max-age=31536000, immutable");
    }
    set(&mut fields, HeaderName::from_static("cache-status"), cache_status(*source));
    let elapsed_ms = begun.elapsed().as_secs_f64() * 1e3;
    let timing = format!("head;dur={elapsed_ms:.1};desc=\"{}\"", source_word(*source));
    set(&mut fields, HeaderName::from_static("server-timing"), timing);
    fields.append(header::VIA, HeaderValue::from_static("1.1 weir"));
    fields
}

/// Whether the producer permits to keep the response.
fn may_be_immutable(fields: &HeaderMap) -> bool {
    let directives = words(fields, &header::CACHE_CONTROL);
    !directives.iter().any(|word| word.starts_with("no-store") || word.starts_with("private"))
}

fn content(
    shared: &Arc<Shared>,
    request: &Parts,
    found: &FoundVersion,
    range: Range<u64>,
    access: Access,
) -> Body {
    if request.method == Method::HEAD || !has_body(found.head.status) {
        return body::empty();
    }
    let cursor = shared.pieces.cursor(found.metadata.clone(), range.start, range.end);
    body::parts(vec![Part::Content(cursor)], Arc::new(access))
}

/// Separates the parts of a response with several ranges. It is random, so that no file can contain
/// it on purpose.
fn boundary() -> String {
    // The standard library gives each hasher a random key.
    let random = || RandomState::new().hash_one(0);
    format!("weir-{:016x}{:016x}", random(), random())
}

fn partial(
    shared: &Arc<Shared>,
    request: &Parts,
    found: &FoundVersion,
    mut fields: HeaderMap,
    ranges: &[Range<u64>],
    access: Access,
) -> Response<Body> {
    let size = found.metadata.size_bytes.unwrap_or(u64::MAX);
    let place = |range: &Range<u64>| format!("bytes {}-{}/{size}", range.start, range.end - 1);
    fields.remove(header::CONTENT_RANGE);
    if let [range] = ranges {
        set(&mut fields, header::CONTENT_RANGE, place(range));
        set(&mut fields, header::CONTENT_LENGTH, (range.end - range.start).to_string());
        let body = content(shared, request, found, range.clone(), access);
        return with(StatusCode::PARTIAL_CONTENT, fields, body);
    }
    let kind = fields.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.map(|kind| format!("Content-Type: {kind}\r\n")).unwrap_or_default();
    let boundary = boundary();
    let (mut parts, mut length) = (Vec::new(), 0);
    let mut text = |parts: &mut Vec<Part>, text: String| {
        length += text.len() as u64;
        parts.push(Part::Text(Bytes::from(text)));
    };
    for range in ranges {
        let place = place(range);
        let head = format!("\r\n--{boundary}\r\n{kind}Content-Range: {place}\r\n\r\n");
        text(&mut parts, head);
        let metadata = found.metadata.clone();
        parts.push(Part::Content(shared.pieces.cursor(metadata, range.start, range.end)));
    }
    text(&mut parts, format!("\r\n--{boundary}--\r\n"));
    length += ranges.iter().map(|range| range.end - range.start).sum::<u64>();
    let kind = format!("multipart/byteranges; boundary={boundary}");
    set(&mut fields, header::CONTENT_TYPE, kind);
    set(&mut fields, header::CONTENT_LENGTH, length.to_string());
    with(StatusCode::PARTIAL_CONTENT, fields, body::parts(parts, Arc::new(access)))
}

#[cfg(test)]
mod tests {
    use weir_transport::Metadata;
    use weir_wire::Name;

    use super::*;
    use crate::head::ResponseHead;

    fn cache_control(status: StatusCode, stated: &'static str, is_versioned: bool) -> String {
        let mut head = ResponseHead::new(status, unix_time_ms());
        head.fields.insert(header::CACHE_CONTROL, HeaderValue::from_static(stated));
        let versioned: Name = "/a/54=%01".parse().unwrap();
        let mut metadata = Metadata::new(versioned);
        metadata.http_head = Some(head.encode());
        let found = Arc::new(FoundVersion::new(metadata, Instant::now()).unwrap());
        let object = ResolvedObject { found, source: HeadSource::Memory, is_versioned };
        let fields = head_fields(&object, Instant::now());
        fields[header::CACHE_CONTROL].to_str().unwrap().to_owned()
    }

    #[test]
    fn only_public_success_is_immutable() {
        let immutable = "max-age=31536000, immutable";
        for (status, stated, is_versioned, expected) in [
            (StatusCode::OK, "max-age=1", true, immutable),
            (StatusCode::OK, "no-cache", true, immutable),
            (StatusCode::OK, "max-age=1", false, "max-age=1"),
            (StatusCode::OK, "No-Store", true, "No-Store"),
            (StatusCode::OK, "max-age=1, private", true, "max-age=1, private"),
            (StatusCode::NOT_FOUND, "max-age=1", true, "max-age=1"),
        ] {
            assert_eq!(cache_control(status, stated, is_versioned), expected, "{stated}");
        }
    }

    #[test]
    fn cache_status_tells_hits_from_misses() {
        for (source, expected) in [
            (HeadSource::Memory, "weir; hit; detail=memory"),
            (HeadSource::Store, "weir; hit; detail=store"),
            (HeadSource::Network(ForwardReason::Miss), "weir; fwd=miss; detail=network"),
            (HeadSource::Origin(ForwardReason::Stale), "weir; fwd=stale; detail=origin"),
            (HeadSource::Origin(ForwardReason::Request), "weir; fwd=request; detail=origin"),
        ] {
            assert_eq!(cache_status(source), expected);
        }
    }

    #[test]
    fn boundaries_differ() {
        assert_ne!(boundary(), boundary());
        // A boundary has at most 70 characters (RFC 2046, section 5.1.1).
        assert_eq!(boundary().len(), 37);
    }
}
