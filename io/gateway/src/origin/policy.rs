//! Freshness, validators, and the numbers of versions.

use std::time::{Duration, SystemTime};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_cache_semantics::{CacheOptions, CachePolicy};
use weir_security::sha256;

/// Bits of a version number below the seconds of `Last-Modified`.
const HASH_BITS: u32 = 24;
/// Set in numbers of versions without `Last-Modified`, so that all have the same length.
const HASHED: u64 = 1 << 61;
/// A modification so short before the response may be followed by another one within the same
/// second, which `Last-Modified` does not show (RFC 9110, section 8.8.2.2).
const MODIFIED_AGE_MIN: Duration = Duration::from_secs(2);

/// What RFC 9111 says about the freshness of a response.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Freshness {
    /// Milliseconds of freshness left.
    pub(super) lifetime_ms: u64,
    /// Its age in seconds.
    pub(super) age_s: u64,
}

impl Freshness {
    /// The freshness of a response that was just received. `default_ms` is for one that says
    /// nothing and may be stored.
    pub(super) fn of(status: StatusCode, fields: &HeaderMap, default_ms: u64) -> Self {
        let now = SystemTime::now();
        let options = CacheOptions { cache_heuristic: 0.0, ..CacheOptions::default() };
        let policy = CachePolicy::new_options(&request(), &response(status, fields), now, options);
        let age = policy.age(now);
        let default = Duration::from_millis(default_ms).saturating_sub(age);
        let left = match is_silent(fields) && policy.is_storable() {
            _ if varies_with_anything(fields) => Duration::ZERO,
            true => default,
            false => policy.time_to_live(now),
        };
        let lifetime_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        Self { lifetime_ms, age_s: age.as_secs() }
    }
}

/// Whether a response says nothing about its freshness.
pub(super) fn is_silent(fields: &HeaderMap) -> bool {
    let names = [header::CACHE_CONTROL, header::EXPIRES, header::PRAGMA];
    names.iter().all(|name| !fields.contains_key(name))
}

/// Whether no other request can get the same response (RFC 9110, section 12.5.5).
fn varies_with_anything(fields: &HeaderMap) -> bool {
    let values = fields.get_all(header::VARY).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|word| word.trim() == "*")
}

fn request() -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = Method::GET;
    request
}

/// The response as the crate needs it: with directives in lower case, an Age without a unit, and no
/// malformed Expires, which it would accept.
fn response(status: StatusCode, fields: &HeaderMap) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = fields.clone();
    if let header::Entry::Occupied(mut entry) = response.headers_mut().entry(header::CACHE_CONTROL)
    {
        for value in entry.iter_mut() {
            let lower = HeaderValue::from_bytes(&value.as_bytes().to_ascii_lowercase());
            *value = lower.expect("lower case stays valid");
        }
    }
    let fields = response.headers_mut();
    let text = |fields: &HeaderMap, name| {
        fields.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).map(str::to_owned)
    };
    if let Some(age) = text(fields, header::AGE) {
        let digits = age.trim_end_matches(|last: char| last.is_ascii_alphabetic());
        let digits = HeaderValue::from_str(digits).expect("a part of a valid value");
        fields.insert(header::AGE, digits);
    }
    // A date of RFC 1123 has single spaces.
    let is_malformed = |date: &String| date.contains(',') && date.contains("  ");
    if text(fields, header::EXPIRES).as_ref().is_some_and(is_malformed) {
        fields.insert(header::EXPIRES, HeaderValue::from_static("0"));
    }
    response
}

/// What distinguishes the versions of a resource at its server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Validator {
    etag: Option<HeaderValue>,
    modified: Option<HeaderValue>,
    /// Seconds of `modified` since the Unix epoch.
    modified_s: u64,
    /// Whether the resource may change again within the second of `modified`.
    is_recent: bool,
}

impl Validator {
    pub(super) fn of(fields: &HeaderMap) -> Self {
        let is_etag = |value: &&HeaderValue| {
            let value = value.as_bytes();
            let value = value.strip_prefix(b"W/").unwrap_or(value);
            value.len() >= 2 && value.starts_with(b"\"") && value.ends_with(b"\"")
        };
        let time = |name| {
            let value = fields.get(name)?;
            Some((value, httpdate::parse_http_date(value.to_str().ok()?).ok()?))
        };
        let modified = time(header::LAST_MODIFIED);
        let date = time(header::DATE).map_or_else(SystemTime::now, |(_, date)| date);
        let since_epoch = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).ok();
        Self {
            etag: fields.get(header::ETAG).filter(is_etag).cloned(),
            modified: modified.map(|(value, _)| value.clone()),
            modified_s: modified.and_then(|(_, at)| since_epoch(at)).map_or(0, |at| at.as_secs()),
            is_recent: modified.is_some_and(|(_, at)| {
                date.duration_since(at).is_ok_and(|age| age < MODIFIED_AGE_MIN)
            }),
        }
    }

    pub(super) fn exists(&self) -> bool {
        self.etag.is_some() || self.modified.is_some()
    }

    /// Whether equal validators mean equal bytes.
    pub(super) fn is_strong(&self) -> bool {
        self.strong_etag().is_some()
    }

    fn strong_etag(&self) -> Option<&HeaderValue> {
        self.etag.as_ref().filter(|value| !value.as_bytes().starts_with(b"W/"))
    }

    /// The conditions of a request for another version than this one.
    pub(super) fn unless_same(&self) -> HeaderMap {
        let modified = self.modified.as_ref().filter(|_| self.etag.is_none() && !self.is_recent);
        conditions([
            (header::IF_NONE_MATCH, self.etag.as_ref()),
            (header::IF_MODIFIED_SINCE, modified),
        ])
    }

    /// The conditions of a request for this version.
    pub(super) fn if_same(&self) -> HeaderMap {
        let etag = self.strong_etag();
        let modified = self.modified.as_ref().filter(|_| etag.is_none());
        conditions([(header::IF_MATCH, etag), (header::IF_UNMODIFIED_SINCE, modified)])
    }

    /// Whether the fields of a response are those of another version, or have no validator.
    pub(super) fn contradicts(&self, fields: &HeaderMap) -> bool {
        let pairs = [(header::ETAG, &self.etag), (header::LAST_MODIFIED, &self.modified)];
        let (mut same, mut other) = (0, 0);
        for (name, own) in pairs {
            match (own, fields.get(name)) {
                (Some(own), Some(found)) if is_same_tag(own, found) => same += 1,
                (Some(_), Some(_)) => other += 1,
                _ => {}
            }
        }
        same == 0 || other > 0
    }
}

/// The weak comparison of RFC 9110, section 8.8.3.2. Times compare in the same way.
fn is_same_tag(one: &HeaderValue, other: &HeaderValue) -> bool {
    let strip = |value| <[u8]>::strip_prefix(value, b"W/").unwrap_or(value);
    strip(one.as_bytes()) == strip(other.as_bytes())
}

fn conditions<const N: usize>(pairs: [(HeaderName, Option<&HeaderValue>); N]) -> HeaderMap {
    pairs.into_iter().filter_map(|(name, value)| Some((name, value?.clone()))).collect()
}

/// The number of a version: the same for each gateway that receives the same response. `body` is
/// the digest of the body, where each gateway has all of it. Later versions have greater numbers if
/// the server says when the resource was modified.
pub(super) fn version_number(
    validator: &Validator,
    head: (StatusCode, Option<&HeaderValue>),
    size_bytes: u64,
    body: Option<&[u8; 32]>,
) -> u64 {
    let (status, location) = head;
    let mut octets = Vec::new();
    for value in [validator.etag.as_ref(), validator.modified.as_ref(), location] {
        let value = value.map(HeaderValue::as_bytes).unwrap_or_default();
        octets.extend((value.len() as u64).to_be_bytes());
        octets.extend_from_slice(value);
    }
    octets.extend(status.as_u16().to_be_bytes());
    octets.extend(size_bytes.to_be_bytes());
    octets.extend_from_slice(body.map(<[u8; 32]>::as_slice).unwrap_or_default());
    let digest = sha256(&[&octets]);
    let hash = u64::from_be_bytes(digest[..8].try_into().expect("a digest has 32 bytes"));
    match validator.modified {
        Some(_) => (validator.modified_s << HASH_BITS) | (hash >> (64 - HASH_BITS)),
        None => HASHED | (hash >> 3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    fn lifetime_ms(status: u16, pairs: &[(&'static str, &'static str)]) -> u64 {
        let status = StatusCode::from_u16(status).unwrap();
        Freshness::of(status, &fields(pairs), 7000).lifetime_ms
    }

    #[test]
    fn freshness_follows_rfc_9111() {
        for (status, pairs, seconds) in [
            (200, &[("cache-control", "max-age=60")][..], 60),
            (200, &[("cache-control", "Max-Age=60")], 60),
            (200, &[("cache-control", "max-age=60"), ("age", "20")], 40),
            (200, &[("cache-control", "max-age=60, s-maxage=5")], 5),
            (200, &[("cache-control", "max-age=60, no-store")], 0),
            (200, &[("cache-control", "max-age=60, private")], 0),
            (200, &[("cache-control", "no-cache")], 0),
            (200, &[("expires", "0")], 0),
            (404, &[("cache-control", "max-age=60")], 60),
            (200, &[("cache-control", "max-age=60"), ("age", "61s")], 0),
            (200, &[("cache-control", "max-age=60"), ("vary", "accept, *")], 0),
            (200, &[("expires", "Thu,  18 Aug 2050  02:01:18 GMT")], 0),
            // Without a statement, the configuration decides.
            (200, &[], 7),
            (404, &[], 7),
            (302, &[], 0),
            (500, &[], 0),
        ] {
            assert_eq!(lifetime_ms(status, pairs), seconds * 1000, "{status} {pairs:?}");
        }
        let age_s = Freshness::of(StatusCode::OK, &fields(&[("age", "20")]), 0).age_s;
        assert_eq!(age_s, 20);
    }

    const MONDAY: (&str, &str) = ("last-modified", "Mon, 01 Jan 2024 00:00:00 GMT");

    #[test]
    fn number_follows_validators() {
        let number = |pairs: &[_], size| {
            version_number(&Validator::of(&fields(pairs)), (StatusCode::OK, None), size, None)
        };
        let monday = number(&[MONDAY], 5);
        assert_eq!(monday >> HASH_BITS, 1_704_067_200);
        assert_eq!(monday, number(&[MONDAY], 5));
        assert_ne!(monday, number(&[MONDAY], 6));
        assert_ne!(monday, number(&[MONDAY, ("etag", "\"a\"")], 5));
        let tuesday = ("last-modified", "Tue, 02 Jan 2024 00:00:00 GMT");
        assert!(number(&[tuesday], 5) > monday);
        let (one, two) = (number(&[("etag", "\"a\"")], 5), number(&[("etag", "\"b\"")], 5));
        assert_ne!(one, two);
        // Both have 8 bytes, as names need it.
        assert!(one >> 61 == 1 && two >> 61 == 1);
    }

    #[test]
    fn conditions_use_strong_validators() {
        let unless = |pairs: &[_]| Validator::of(&fields(pairs)).unless_same();
        let same = |pairs: &[_]| Validator::of(&fields(pairs)).if_same();
        let (strong, weak) = (("etag", "\"a\""), ("etag", "W/\"a\""));
        assert_eq!(unless(&[strong, MONDAY]), fields(&[("if-none-match", "\"a\"")]));
        assert_eq!(unless(&[weak]), fields(&[("if-none-match", "W/\"a\"")]));
        assert_eq!(same(&[strong, MONDAY]), fields(&[("if-match", "\"a\"")]));
        assert_eq!(same(&[weak, MONDAY]), fields(&[("if-unmodified-since", MONDAY.1)]));
        assert_eq!(same(&[weak]), fields(&[]));
        // It may change again within this second.
        assert_eq!(unless(&[MONDAY, ("date", MONDAY.1)]), fields(&[]));
        assert!(!Validator::of(&fields(&[("etag", "a"), ("last-modified", "now")])).exists());
    }

    #[test]
    fn finds_responses_of_other_versions() {
        let own = Validator::of(&fields(&[("etag", "\"a\""), MONDAY]));
        assert!(!own.contradicts(&fields(&[("etag", "\"a\"")])));
        assert!(!own.contradicts(&fields(&[("etag", "W/\"a\""), MONDAY])));
        for other in [&[("etag", "\"b\""), MONDAY][..], &[]] {
            assert!(own.contradicts(&fields(other)), "{other:?}");
        }
    }
}
