//! Interests in sending order, encoded one after another into one buffer.

use alloc::vec::Vec;

use weir_wire::DEFAULT_INTEREST_LIFETIME_MS;
use weir_wire::tlv::{self, encode_nni, var_number_size, write_var_number};

use crate::PathId;

/// Upper bound of bytes in one Interest besides its name.
const FIELDS_BYTES_MAX: usize = 32;

/// Interests to send, in order. Keeps its memory when cleared.
#[derive(Clone, Debug, Default)]
pub struct InterestBatch {
    octets: Vec<u8>,
    /// Where each Interest ends, and its path.
    ends: Vec<(usize, PathId)>,
}

/// The elements of an Interest besides its name.
#[derive(Copy, Clone, Debug, Default)]
pub struct Selectors {
    /// Data below the name is acceptable.
    pub can_be_prefix: bool,
    /// Stale Data from a store is not acceptable.
    pub must_be_fresh: bool,
    /// InterestLifetime, in milliseconds.
    pub lifetime_ms: u64,
    /// Nonce. A request draws its own.
    pub nonce: u32,
}

impl InterestBatch {
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The Interests, each a complete TLV, with their paths.
    pub fn iter(&self) -> impl Iterator<Item = (PathId, &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(end, path)| {
            let interest = &self.octets[start..end];
            start = end;
            (path, interest)
        })
    }

    pub fn clear(&mut self) {
        self.octets.clear();
        self.ends.clear();
    }

    /// Appends the Interest for the name with value `prefix`, plus a Segment component if given.
    pub(crate) fn push(
        &mut self,
        path: PathId,
        prefix: &[u8],
        segment: Option<u64>,
        selectors: Selectors,
    ) {
        self.push_with(path, prefix, segment, selectors, &[]);
    }

    /// As [`InterestBatch::push`], with an element at the end of the Interest.
    pub(crate) fn push_with(
        &mut self,
        path: PathId,
        prefix: &[u8],
        segment: Option<u64>,
        selectors: Selectors,
        element: &[u8],
    ) {
        let number = encode_nni(segment.unwrap_or(0));
        let name_len = prefix.len() + if segment.is_some() { 2 + number.len() } else { 0 };
        let lifetime = encode_nni(selectors.lifetime_ms);
        let has_lifetime = selectors.lifetime_ms != DEFAULT_INTEREST_LIFETIME_MS;
        // A TLV states its length before its value, so all lengths are computed first. The two
        // flags are empty and take two bytes each. The Nonce takes six.
        let value_len = 1
            + var_number_size(name_len as u64)
            + name_len
            + 2 * (usize::from(selectors.can_be_prefix) + usize::from(selectors.must_be_fresh))
            + 6
            + if has_lifetime { 2 + lifetime.len() } else { 0 }
            + element.len();
        let start = self.octets.len();
        self.octets.reserve(name_len + FIELDS_BYTES_MAX + element.len());
        self.header(tlv::INTEREST, value_len);
        self.header(tlv::NAME, name_len);
        self.octets.extend_from_slice(prefix);
        if segment.is_some() {
            self.header(tlv::SEGMENT_NAME_COMPONENT, number.len());
            self.octets.extend_from_slice(&number);
        }
        if selectors.can_be_prefix {
            self.header(tlv::CAN_BE_PREFIX, 0);
        }
        if selectors.must_be_fresh {
            self.header(tlv::MUST_BE_FRESH, 0);
        }
        self.header(tlv::NONCE, 4);
        self.octets.extend_from_slice(&selectors.nonce.to_be_bytes());
        if has_lifetime {
            self.header(tlv::INTEREST_LIFETIME, lifetime.len());
            self.octets.extend_from_slice(&lifetime);
        }
        self.octets.extend_from_slice(element);
        // The rest is the Interest's own header: one byte of type, and one or three of length.
        debug_assert!(self.octets.len() - start - value_len <= 4);
        self.ends.push((self.octets.len(), path));
    }

    fn header(&mut self, typ: u32, len: usize) {
        let mut header = [0; 6];
        let at = write_var_number(u64::from(typ), &mut header);
        let end = at + write_var_number(len as u64, &mut header[at..]);
        self.octets.extend_from_slice(&header[..end]);
    }
}

#[cfg(test)]
mod tests {
    use weir_wire::{InterestView, Name};

    use super::*;

    #[test]
    fn decodes_written_interests() {
        let name: Name = "/a/long/name/54=%07".parse().unwrap();
        let mut batch = InterestBatch::default();
        for (i, segment) in [None, Some(0), Some(300), Some(70_000)].into_iter().enumerate() {
            for lifetime_ms in [4000, 1000, 70_000] {
                let selectors = Selectors {
                    can_be_prefix: i == 0,
                    must_be_fresh: i < 2,
                    lifetime_ms,
                    nonce: 0x0102_0304 + i as u32,
                };
                batch.push(PathId(7), name.value(), segment, selectors);
                let (path, wire) = batch.iter().last().unwrap();
                assert_eq!(path, PathId(7));
                let interest = InterestView::decode(wire).unwrap();
                let mut expected = name.clone();
                if let Some(segment) = segment {
                    expected.append_segment(segment);
                }
                assert_eq!(interest.name, expected.as_view());
                assert_eq!(interest.can_be_prefix, i == 0);
                assert_eq!(interest.must_be_fresh, i < 2);
                assert_eq!(interest.nonce, Some(0x0102_0304 + i as u32));
                assert_eq!(interest.lifetime_ms_or_default(), lifetime_ms);
            }
        }
        assert_eq!(batch.len(), 12);
        batch.clear();
        assert!(batch.is_empty() && batch.iter().next().is_none());
    }

    #[test]
    fn long_names_fit() {
        let mut name = Name::new();
        name.append_generic(&[b'x'; 1000]);
        let mut batch = InterestBatch::default();
        let selectors = Selectors { lifetime_ms: 4000, ..Selectors::default() };
        batch.push(PathId(0), name.value(), Some(5), selectors);
        let interest = InterestView::decode(batch.iter().next().unwrap().1).unwrap();
        assert_eq!(interest.name, name.append_segment(5).as_view());
    }
}
