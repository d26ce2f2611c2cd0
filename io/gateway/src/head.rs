//! The head of an HTTP response, as it travels in the metadata of its body.
//!
//! | type | element | value |
//! |---|---|---|
//! | 129 | `Status` | NNI, the status code |
//! | 131 | `Received` | NNI, when an origin received or validated it, ms since the Unix epoch |
//! | 133 | `Lifetime` | NNI, ms of freshness left at that time (RFC 9111, section 4.2) |
//! | 135 | `Age` | NNI, its age in seconds at that time (RFC 9111, section 4.2.3) |
//! | 137 | `Field` | a header field: name, a colon, value; repeated |
//! | 139 | `Method` | of a request |
//! | 141 | `Body` | the body of the answer to an upload, if it is short |
//! | 143 | `BodyName` | Name of the version with that body, if it is long |
//!
//! The metadata of an upload have a [`RequestHead`]: `Method` and fields. The answer to an upload
//! is an [`UploadAnswer`]: the elements of a response head, and `Body` or `BodyName`.

use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use weir_wire::tlv::{self, Reader, Writer};
use weir_wire::{Name, NameView};

const STATUS: u32 = 129;
const RECEIVED: u32 = 131;
const LIFETIME: u32 = 133;
const AGE: u32 = 135;
const FIELD: u32 = 137;
const METHOD: u32 = 139;
const BODY: u32 = 141;
const BODY_NAME: u32 = 143;

/// Upper bound of bytes of an encoded head. With a name and a certificate it must fit into a
/// packet.
pub(crate) const HEAD_BYTES_MAX: usize = 5000;

/// How long an origin may take for an upload, with the fetch of its body. Fronts must wait for
/// longer: they would else report a failure for a request that still has its effect. Tests
/// do not wait so long.
pub(crate) const UPLOAD_TIME: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 25 });

/// Directives with which a stale response must not be used (RFC 9111, section 4.2.4).
const NEVER_STALE: [&str; 6] =
    ["must-revalidate", "proxy-revalidate", "s-maxage", "no-cache", "no-store", "private"];

/// Fields that describe one connection, or that the gateway makes itself. `Set-Cookie` is for one
/// client, but the response is for all.
const DROPPED: [HeaderName; 13] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::CONTENT_LENGTH,
    header::ACCEPT_RANGES,
    header::AGE,
    header::SET_COOKIE,
    header::ALT_SVC,
    HeaderName::from_static("keep-alive"),
];

/// The head of a response whose body is an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    /// When an origin gateway received or validated it, in milliseconds since the Unix epoch.
    pub(crate) received_ms: u64,
    /// Milliseconds of freshness left at that time.
    pub(crate) lifetime_ms: u64,
    /// Its age in seconds at that time.
    pub(crate) age_s: u64,
}

/// The head is malformed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the head of the response is malformed")]
pub(crate) struct HeadError;

impl ResponseHead {
    /// A head without fields that is never fresh.
    pub(crate) fn new(status: StatusCode, received_ms: u64) -> Self {
        Self { status, fields: HeaderMap::new(), received_ms, lifetime_ms: 0, age_s: 0 }
    }

    /// Removes the fields that describe a connection (RFC 9110, section 7.6.1), including those
    /// that `Connection` lists.
    pub(crate) fn remove_hop_fields(fields: &mut HeaderMap) {
        let listed = fields.get_all(header::CONNECTION).iter();
        let listed: Vec<HeaderName> = listed
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| name.trim().parse().ok())
            .collect();
        for name in DROPPED.iter().chain(&listed) {
            fields.remove(name);
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.nni(STATUS, u64::from(self.status.as_u16()));
        writer.nni(RECEIVED, self.received_ms);
        writer.nni(LIFETIME, self.lifetime_ms);
        writer.nni(AGE, self.age_s);
        write_fields(&mut writer, &self.fields);
        writer.into_vec()
    }

    /// # Errors
    /// An element is malformed, or the status is missing.
    pub(crate) fn decode(octets: &[u8]) -> Result<Self, HeadError> {
        let (mut reader, mut status) = (Reader::new(octets), None);
        let mut head = Self::new(StatusCode::OK, 0);
        while let Some(element) = reader.next_element().map_err(|_| HeadError)? {
            let number = || tlv::nni(element.value).ok_or(HeadError);
            match element.typ {
                STATUS => status = u16::try_from(number()?).ok(),
                RECEIVED => head.received_ms = number()?,
                LIFETIME => head.lifetime_ms = number()?,
                AGE => head.age_s = number()?,
                FIELD => append_field(&mut head.fields, element.value)?,
                _ => {}
            }
        }
        head.status = status.and_then(|it| StatusCode::from_u16(it).ok()).ok_or(HeadError)?;
        // A producer must not frame the messages of a front.
        Self::remove_hop_fields(&mut head.fields);
        Ok(head)
    }

    /// Milliseconds of freshness left. It was requested `elapsed` ago by the local clock: if the
    /// producer's clock is ahead, it must not stay fresh for longer than the producer said.
    pub(crate) fn fresh_ms_after(&self, now_ms: u64, elapsed: Duration) -> u64 {
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let until = self.received_ms.saturating_add(self.lifetime_ms);
        until.saturating_sub(now_ms).min(self.lifetime_ms.saturating_sub(elapsed_ms))
    }

    /// Whether the server forbids to use it when it is stale.
    pub(crate) fn forbids_stale(&self) -> bool {
        let values = self.fields.get_all(header::CACHE_CONTROL).iter();
        let mut directives = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(|part| part.split('=').next().unwrap_or_default().trim().to_ascii_lowercase());
        directives.any(|name| NEVER_STALE.contains(&&name[..]))
    }

    /// Its age in seconds (RFC 9111, section 4.2.3).
    pub(crate) fn age_s(&self, now_ms: u64) -> u64 {
        self.age_s.saturating_add(now_ms.saturating_sub(self.received_ms) / 1000)
    }
}

fn write_fields(writer: &mut Writer, fields: &HeaderMap) {
    for (name, value) in fields {
        writer.tlv(FIELD, &[name.as_str().as_bytes(), b":", value.as_bytes()].concat());
    }
}

fn append_field(fields: &mut HeaderMap, octets: &[u8]) -> Result<(), HeadError> {
    let colon = octets.iter().position(|octet| *octet == b':');
    let (name, value) = octets.split_at(colon.ok_or(HeadError)?);
    let name = HeaderName::from_bytes(name).map_err(|_| HeadError)?;
    let value = HeaderValue::from_bytes(&value[1..]).map_err(|_| HeadError)?;
    fields.append(name, value);
    Ok(())
}

/// The head of a request whose body is an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    pub(crate) fields: HeaderMap,
}

impl RequestHead {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.tlv(METHOD, self.method.as_str().as_bytes());
        write_fields(&mut writer, &self.fields);
        writer.into_vec()
    }

    /// Drops fields that frame messages or identify a client.
    ///
    /// # Errors
    /// An element is malformed, or the method is missing.
    pub(crate) fn decode(octets: &[u8]) -> Result<Self, HeadError> {
        let (mut reader, mut method, mut fields) = (Reader::new(octets), None, HeaderMap::new());
        while let Some(element) = reader.next_element().map_err(|_| HeadError)? {
            match element.typ {
                METHOD => method = Method::from_bytes(element.value).ok(),
                FIELD => append_field(&mut fields, element.value)?,
                _ => {}
            }
        }
        ResponseHead::remove_hop_fields(&mut fields);
        for name in [header::COOKIE, header::AUTHORIZATION, header::HOST, header::EXPECT] {
            fields.remove(name);
        }
        Ok(Self { method: method.ok_or(HeadError)?, fields })
    }
}

/// The body of the answer to an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AnswerBody {
    Inline(Vec<u8>),
    /// The name of the version to fetch.
    Version(Name),
}

/// The answer to an upload: the Content of one Data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UploadAnswer {
    pub(crate) head: ResponseHead,
    pub(crate) body: AnswerBody,
}

impl UploadAnswer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.raw(&self.head.encode());
        match &self.body {
            AnswerBody::Inline(octets) => writer.tlv(BODY, octets),
            AnswerBody::Version(name) => writer.tlv(BODY_NAME, name.value()),
        }
        writer.into_vec()
    }

    /// # Errors
    /// An element is malformed or missing.
    pub(crate) fn decode(octets: &[u8]) -> Result<Self, HeadError> {
        let (mut reader, mut body) = (Reader::new(octets), None);
        while let Some(element) = reader.next_element().map_err(|_| HeadError)? {
            match element.typ {
                BODY => body = Some(AnswerBody::Inline(element.value.to_vec())),
                BODY_NAME => {
                    let name = NameView::from_value(element.value).map_err(|_| HeadError)?;
                    body = Some(AnswerBody::Version(name.to_name()));
                }
                _ => {}
            }
        }
        Ok(Self { head: ResponseHead::decode(octets)?, body: body.ok_or(HeadError)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> ResponseHead {
        let mut head = ResponseHead::new(StatusCode::NOT_FOUND, 1_700_000_000_123);
        (head.lifetime_ms, head.age_s) = (5000, 7);
        for (name, value) in [("etag", "\"a:b\""), ("vary", "accept"), ("vary", "te")] {
            head.fields.append(name, HeaderValue::from_static(value));
        }
        head
    }

    #[test]
    fn encodes_and_decodes() {
        assert_eq!(ResponseHead::decode(&head().encode()), Ok(head()));
    }

    #[test]
    fn uploads_encode_and_decode() {
        let request = RequestHead { method: Method::PUT, fields: head().fields };
        assert_eq!(RequestHead::decode(&request.encode()), Ok(request.clone()));
        let mut private = request.clone();
        for name in ["cookie", "authorization", "host", "content-length", "connection"] {
            private.fields.append(name, HeaderValue::from_static("x"));
        }
        assert_eq!(RequestHead::decode(&private.encode()), Ok(request));
        assert_eq!(RequestHead::decode(&head().encode()), Err(HeadError));
        let name = "/a/54=%01".parse().unwrap();
        for body in [AnswerBody::Inline(vec![1, 2]), AnswerBody::Version(name)] {
            let answer = UploadAnswer { head: head(), body };
            assert_eq!(UploadAnswer::decode(&answer.encode()), Ok(answer));
        }
        assert_eq!(UploadAnswer::decode(&head().encode()), Err(HeadError));
    }

    #[test]
    fn decoded_head_cannot_frame_messages() {
        let mut evil = head();
        for (name, value) in [
            ("content-length", "5"),
            ("transfer-encoding", "chunked"),
            ("connection", "x-private"),
            ("x-private", "1"),
            ("set-cookie", "id=1"),
        ] {
            evil.fields.append(name, HeaderValue::from_static(value));
        }
        assert_eq!(ResponseHead::decode(&evil.encode()), Ok(head()));
    }

    #[test]
    fn rejects_malformed_heads() {
        let mut cut = head().encode();
        cut.pop();
        let mut no_colon = Writer::new();
        no_colon.nni(STATUS, 200);
        no_colon.tlv(FIELD, b"etag");
        let mut line_break = Writer::new();
        line_break.nni(STATUS, 200);
        line_break.tlv(FIELD, b"etag:a\r\nb: c");
        let mut status = Writer::new();
        status.nni(STATUS, 99);
        for octets in [vec![], cut, no_colon.into_vec(), line_break.into_vec(), status.into_vec()] {
            assert_eq!(ResponseHead::decode(&octets), Err(HeadError), "{octets:?}");
        }
    }

    #[test]
    fn freshness_and_age_follow_clock() {
        let head = head();
        for (after_ms, fresh_ms, age_s) in [(0, 5000, 7), (4000, 1000, 11), (6000, 0, 13)] {
            let now_ms = head.received_ms + after_ms;
            let fresh = head.fresh_ms_after(now_ms, Duration::ZERO);
            assert_eq!((fresh, head.age_s(now_ms)), (fresh_ms, age_s));
        }
    }

    #[test]
    fn clock_ahead_does_not_prolong_freshness() {
        let head = head();
        let now_ms = head.received_ms - 3_600_000;
        for (elapsed_s, fresh_ms) in [(0, 5000), (4, 1000), (6, 0)] {
            let elapsed = Duration::from_secs(elapsed_s);
            let fresh = head.fresh_ms_after(now_ms + elapsed_s * 1000, elapsed);
            assert_eq!(fresh, fresh_ms, "{elapsed_s}");
        }
    }

    #[test]
    fn strict_responses_are_never_stale() {
        let forbids_stale = |value: &'static str| {
            let mut head = ResponseHead::new(StatusCode::OK, 0);
            head.fields.append("cache-control", HeaderValue::from_static("public"));
            head.fields.append("cache-control", HeaderValue::from_static(value));
            head.forbids_stale()
        };
        assert!(!forbids_stale("max-age=1, x-private"));
        for value in
            ["Must-Revalidate", "max-age=5, no-cache", "s-maxage=1", "private", "no-cache=\"a\""]
        {
            assert!(forbids_stale(value), "{value}");
        }
    }
}
