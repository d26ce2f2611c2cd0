//! Conditional requests and ranges (RFC 9110, sections 13 and 14).

use std::ops::Range;

use headers::{
    ETag, HeaderMapExt as _, IfMatch, IfModifiedSince, IfNoneMatch, IfUnmodifiedSince, LastModified,
};
use http::Method;
use http::header::{self, HeaderMap, HeaderName};
use http_range_header::{SyntacticallyCorrectRange, parse_range_header};

/// Upper bound of ranges in a request. More would cost more than the whole.
const RANGES_MAX: usize = 32;

/// What a conditional request gets.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The response.
    Full,
    NotModified,
    PreconditionFailed,
}

/// Evaluates the conditions of a request for an object that exists (RFC 9110, section 13.2.2).
/// `head` are the fields of the response.
pub(super) fn evaluate(method: &Method, request: &HeaderMap, head: &HeaderMap) -> Outcome {
    let etag = head.typed_get::<ETag>();
    let modified = head.typed_get::<LastModified>();
    if let Some(condition) = request.typed_get::<IfMatch>() {
        let matches = etag.as_ref().is_some_and(|etag| condition.precondition_passes(etag));
        if !matches && !condition.is_any() {
            return Outcome::PreconditionFailed;
        }
    } else if let (Some(condition), Some(modified)) =
        (request.typed_get::<IfUnmodifiedSince>(), modified)
        && !condition.precondition_passes(modified.into())
    {
        return Outcome::PreconditionFailed;
    }
    let is_read = method == Method::GET || method == Method::HEAD;
    if let Some(condition) = request.typed_get::<IfNoneMatch>() {
        let passes = match &etag {
            Some(etag) => condition.precondition_passes(etag),
            None => condition != IfNoneMatch::any(),
        };
        return match (passes, is_read) {
            (true, _) => Outcome::Full,
            (false, true) => Outcome::NotModified,
            (false, false) => Outcome::PreconditionFailed,
        };
    }
    match (request.typed_get::<IfModifiedSince>(), modified) {
        (Some(condition), Some(modified)) if is_read && !condition.is_modified(modified.into()) => {
            Outcome::NotModified
        }
        _ => Outcome::Full,
    }
}

/// The bytes that a request selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ByteSelection {
    All,
    Ranges(Vec<Range<u64>>),
    /// No range lies within the content.
    NotSatisfiable,
}

/// The ranges of a request for content of `size` bytes. A malformed field is ignored, as RFC 9110,
/// section 14.2, requires.
pub(super) fn select_bytes(request: &HeaderMap, head: &HeaderMap, size: u64) -> ByteSelection {
    let Some(text) = request.get(header::RANGE).and_then(|value| value.to_str().ok()) else {
        return ByteSelection::All;
    };
    if !if_range_passes(request, head) {
        return ByteSelection::All;
    }
    let Ok(parsed) = parse_range_header(text) else { return ByteSelection::All };
    let parsed = parsed.into_ranges();
    let ranges: Vec<Range<u64>> = parsed.iter().filter_map(|range| resolve(range, size)).collect();
    // More bytes than the whole are an attack or an error.
    let total = ranges.iter().fold(0_u64, |sum, range| sum.saturating_add(range.end - range.start));
    match ranges.len() {
        0 => ByteSelection::NotSatisfiable,
        1..=RANGES_MAX if total <= size => ByteSelection::Ranges(ranges),
        _ => ByteSelection::All,
    }
}

/// Whether `If-Range` permits a partial response: the same strong entity tag, or exactly the same
/// date (RFC 9110, section 13.1.5).
fn if_range_passes(request: &HeaderMap, head: &HeaderMap) -> bool {
    let Some(condition) = request.get(header::IF_RANGE) else { return true };
    let is_weak = condition.as_bytes().starts_with(b"W/");
    let matches = |name: HeaderName| head.get(name) == Some(condition);
    !is_weak && matches(header::ETAG) || matches(header::LAST_MODIFIED)
}

fn resolve(range: &SyntacticallyCorrectRange, size: u64) -> Option<Range<u64>> {
    let (start, end) = match *range {
        SyntacticallyCorrectRange::FromStart(start) => (start, size),
        SyntacticallyCorrectRange::FromLast(count) => (size.saturating_sub(count), size),
        SyntacticallyCorrectRange::Indexed(start, end) => (start, end.saturating_add(1).min(size)),
    };
    (start < end).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect::<Vec<(http::HeaderName, http::HeaderValue)>>()
            .into_iter()
            .collect()
    }

    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const NOW: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";

    #[test]
    fn conditions_follow_precedence() {
        let head = fields(&[("etag", "\"a\""), ("last-modified", NOW)]);
        for (request, outcome) in [
            (&[][..], Outcome::Full),
            (&[("if-none-match", "\"a\"")], Outcome::NotModified),
            (&[("if-none-match", "W/\"a\"")], Outcome::NotModified),
            (&[("if-none-match", "\"b\", \"a\"")], Outcome::NotModified),
            (&[("if-none-match", "*")], Outcome::NotModified),
            (&[("if-none-match", "\"b\"")], Outcome::Full),
            (&[("if-modified-since", NOW)], Outcome::NotModified),
            (&[("if-modified-since", EARLIER)], Outcome::Full),
            // An entity tag overrules the date.
            (&[("if-none-match", "\"b\""), ("if-modified-since", LATER)], Outcome::Full),
            (&[("if-match", "\"b\"")], Outcome::PreconditionFailed),
            (&[("if-match", "\"a\"")], Outcome::Full),
            (&[("if-match", "W/\"a\"")], Outcome::PreconditionFailed),
            (&[("if-unmodified-since", EARLIER)], Outcome::PreconditionFailed),
            (&[("if-unmodified-since", NOW)], Outcome::Full),
        ] {
            assert_eq!(evaluate(&Method::GET, &fields(request), &head), outcome, "{request:?}");
        }
    }

    #[test]
    fn any_matches_without_entity_tag() {
        for head in [fields(&[]), fields(&[("last-modified", NOW)])] {
            for (request, outcome) in [
                (("if-match", "*"), Outcome::Full),
                (("if-match", "\"a\""), Outcome::PreconditionFailed),
                (("if-none-match", "*"), Outcome::NotModified),
                (("if-none-match", "\"a\""), Outcome::Full),
            ] {
                let request = fields(&[request]);
                assert_eq!(evaluate(&Method::GET, &request, &head), outcome, "{request:?}");
            }
        }
    }

    #[test]
    fn if_range_wants_exact_match() {
        for (tag, condition, is_partial) in [
            ("\"a\"", NOW, true),
            ("\"a\"", LATER, false),
            ("\"a\"", EARLIER, false),
            ("\"a\"", "\"a\"", true),
            ("\"a\"", "\"b\"", false),
            ("W/\"a\"", "W/\"a\"", false),
            ("W/\"a\"", "\"a\"", false),
        ] {
            let head = fields(&[("etag", tag), ("last-modified", NOW)]);
            let request = fields(&[("range", "bytes=0-0"), ("if-range", condition)]);
            let selection = select_bytes(&request, &head, 100);
            assert_eq!(selection != ByteSelection::All, is_partial, "{tag} {condition}");
        }
    }

    #[test]
    fn ranges_are_resolved() {
        let head = fields(&[("etag", "\"a\"")]);
        let ranges = |ranges: &[(u64, u64)]| {
            ByteSelection::Ranges(ranges.iter().map(|&(start, end)| start..end).collect())
        };
        for (text, expected) in [
            ("bytes=0-0", ranges(&[(0, 1)])),
            ("bytes=90-", ranges(&[(90, 100)])),
            ("bytes=-10", ranges(&[(90, 100)])),
            ("bytes=-1000", ranges(&[(0, 100)])),
            ("bytes=50-1000", ranges(&[(50, 100)])),
            ("bytes=0-0, 200-, 99-", ranges(&[(0, 1), (99, 100)])),
            ("bytes=100-", ByteSelection::NotSatisfiable),
            ("bytes=-0", ByteSelection::NotSatisfiable),
            ("bytes=9223372036854775808-", ByteSelection::NotSatisfiable),
            ("bytes=0-18446744073709551615", ranges(&[(0, 100)])),
            ("bytes=5-1", ByteSelection::All),
            ("bytes=0-99999999999999999999", ranges(&[(0, 100)])),
            ("lines=0-1", ByteSelection::All),
            ("bytes=a-b", ByteSelection::All),
        ] {
            assert_eq!(select_bytes(&fields(&[("range", text)]), &head, 100), expected, "{text}");
        }
        let changed = fields(&[("range", "bytes=0-0"), ("if-range", "\"b\"")]);
        assert_eq!(select_bytes(&changed, &head, 100), ByteSelection::All);
        let same = fields(&[("range", "bytes=0-0"), ("if-range", "\"a\"")]);
        assert_eq!(select_bytes(&same, &head, 100), ranges(&[(0, 1)]));
    }
}
