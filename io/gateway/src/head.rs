//! The head of an HTTP response, as it travels in the metadata of its body.
//!
//! | type | element | value |
//! |---|---|---|
//! | 129 | `Status` | NNI, the status code |
//! | 131 | `Received` | NNI, when an origin gateway received or validated it, ms since the Unix epoch |
//! | 133 | `Lifetime` | NNI, ms of freshness left at that time (RFC 9111, section 4.2) |
//! | 135 | `Age` | NNI, its age in seconds at that time (RFC 9111, section 4.2.3) |
//! | 137 | `Field` | a header field: name, a colon, value; repeated |

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use weir_wire::tlv::{self, Reader, Writer};

const STATUS: u32 = 129;
const RECEIVED: u32 = 131;
const LIFETIME: u32 = 133;
const AGE: u32 = 135;
const FIELD: u32 = 137;

/// Upper bound of bytes of an encoded head. With a name and a certificate it must fit into a
/// packet.
pub const HEAD_BYTES_MAX: usize = 5000;

/// Fields that describe one connection, or that the gateway makes itself. `Set-Cookie` is for one
/// client, but the response is for all.
const DROPPED: [HeaderName; 14] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::ACCEPT_RANGES,
    header::AGE,
    header::SET_COOKIE,
    header::ALT_SVC,
    HeaderName::from_static("keep-alive"),
];

/// The head of a response whose body is an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    pub status: StatusCode,
    pub fields: HeaderMap,
    /// When an origin gateway received or validated it, in milliseconds since the Unix epoch.
    pub received_ms: u64,
    /// Milliseconds of freshness left at that time.
    pub lifetime_ms: u64,
    /// Its age in seconds at that time.
    pub age_s: u64,
}

/// The head is malformed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the head of the response is malformed")]
pub struct HeadError;

impl ResponseHead {
    /// A head without fields that is never fresh.
    pub fn new(status: StatusCode, received_ms: u64) -> Self {
        Self { status, fields: HeaderMap::new(), received_ms, lifetime_ms: 0, age_s: 0 }
    }

    /// Removes the fields that describe a connection (RFC 9110, section 7.6.1), including those that
    /// `Connection` lists.
    pub fn remove_hop_fields(fields: &mut HeaderMap) {
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

    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.nni(STATUS, u64::from(self.status.as_u16()));
        writer.nni(RECEIVED, self.received_ms);
        writer.nni(LIFETIME, self.lifetime_ms);
        writer.nni(AGE, self.age_s);
        for (name, value) in &self.fields {
            writer.tlv(FIELD, &[name.as_str().as_bytes(), b":", value.as_bytes()].concat());
        }
        writer.into_vec()
    }

    /// # Errors
    /// An element is malformed, or the status is missing.
    pub fn decode(octets: &[u8]) -> Result<Self, HeadError> {
        let (mut reader, mut status) = (Reader::new(octets), None);
        let mut head = Self::new(StatusCode::OK, 0);
        while let Some(element) = reader.next_element().map_err(|_| HeadError)? {
            let number = || tlv::nni(element.value).ok_or(HeadError);
            match element.typ {
                STATUS => status = u16::try_from(number()?).ok(),
                RECEIVED => head.received_ms = number()?,
                LIFETIME => head.lifetime_ms = number()?,
                AGE => head.age_s = number()?,
                FIELD => {
                    let colon = element.value.iter().position(|octet| *octet == b':');
                    let (name, value) = element.value.split_at(colon.ok_or(HeadError)?);
                    let name = HeaderName::from_bytes(name).map_err(|_| HeadError)?;
                    let value = HeaderValue::from_bytes(&value[1..]).map_err(|_| HeadError)?;
                    head.fields.append(name, value);
                }
                _ => {}
            }
        }
        head.status = status.and_then(|it| StatusCode::from_u16(it).ok()).ok_or(HeadError)?;
        // A producer must not frame the messages of a front.
        Self::remove_hop_fields(&mut head.fields);
        Ok(head)
    }

    /// Milliseconds of freshness left.
    pub fn fresh_ms(&self, now_ms: u64) -> u64 {
        let until = self.received_ms.saturating_add(self.lifetime_ms);
        // A clock that is ahead must not keep it fresh for longer than the producer said.
        until.saturating_sub(now_ms).min(self.lifetime_ms)
    }

    /// Its age in seconds (RFC 9111, section 4.2.3).
    pub fn age_s(&self, now_ms: u64) -> u64 {
        self.age_s.saturating_add(now_ms.saturating_sub(self.received_ms) / 1000)
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
            assert_eq!((head.fresh_ms(now_ms), head.age_s(now_ms)), (fresh_ms, age_s));
        }
        assert_eq!(head.fresh_ms(head.received_ms - 60_000), 5000);
    }
}
