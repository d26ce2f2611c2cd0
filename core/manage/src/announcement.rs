//! Prefix announcements, which rib/announce carries.

use weir_wire::{DataView, Name, tlv};

use crate::element::Elements;
use crate::numbers::types;

pub(crate) const CONTENT_TYPE_PREFIX_ANNOUNCEMENT: u64 = 5;

/// The announcement in the parameters of an Interest.
pub(crate) fn find(parameters: &[u8]) -> Option<DataView<'_>> {
    let data = Elements::new(parameters).flatten().find(|inner| inner.typ == tlv::DATA)?;
    DataView::decode(data.wire()).ok()
}

/// The content of a prefix announcement (NDN-FACTS 2.7).
pub(crate) struct Announcement {
    pub(crate) prefix: Name,
    pub(crate) expiration_ms: u64,
}

impl Announcement {
    pub(crate) fn of(data: &DataView<'_>, now_unix_ms: u64) -> Option<Self> {
        // The name is `<prefix>/32=PA/<version>/<segment>`.
        let prefix_components = data.name.component_count().checked_sub(3)?;
        let suffix = |at: usize| data.name.component(prefix_components + at);
        let is_announcement = data.content_type == CONTENT_TYPE_PREFIX_ANNOUNCEMENT
            && suffix(0)?.is_keyword(b"PA")
            && suffix(1)?.as_version().is_some()
            && suffix(2)?.as_segment().is_some();
        if !is_announcement {
            return None;
        }
        let mut expiration_ms = None;
        let mut valid_for_ms = u64::MAX;
        for element in Elements::new(data.content) {
            let element = element.ok()?;
            match element.typ {
                types::EXPIRATION_PERIOD => expiration_ms = Some(element.number().ok()?),
                tlv::VALIDITY_PERIOD => {
                    valid_for_ms = valid_for_ms.min(valid_for(element.value, now_unix_ms)?);
                }
                _ => element.skip().ok()?,
            }
        }
        // The route must not outlive the announcement.
        let expiration_ms = expiration_ms?.min(valid_for_ms);
        Some(Self { prefix: data.name.prefix(prefix_components).to_name(), expiration_ms })
    }
}

/// The remaining time of a ValidityPeriod in milliseconds; 0 outside it.
fn valid_for(value: &[u8], now_unix_ms: u64) -> Option<u64> {
    let mut bounds = [None; 2];
    for element in Elements::new(value) {
        let element = element.ok()?;
        let at = match element.typ {
            tlv::NOT_BEFORE => 0,
            tlv::NOT_AFTER => 1,
            _ => continue,
        };
        bounds[at] = Some(weir_wire::parse_timestamp(element.value)?);
    }
    let (not_before, not_after) = (bounds[0]?, bounds[1]?);
    let now_ms = i64::try_from(now_unix_ms).ok()?;
    if now_ms < not_before.saturating_mul(1000) {
        return Some(0);
    }
    Some(u64::try_from(not_after.saturating_mul(1000).saturating_sub(now_ms)).unwrap_or(0))
}
