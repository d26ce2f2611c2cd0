//! Which segments of an object a router holds: Weir's own dataset (`docs/messages.md`).

use alloc::vec::Vec;

use weir_store::SegmentRange;
use weir_wire::{ComponentView, Name, NameView, tlv};

use crate::commands::Scope;
use crate::element::{Element, Elements, Writer};
use crate::error::DecodeError;
use crate::numbers::types;

/// Ranges that an answer has at most, in all. What comes beyond is left out, and it says so.
const RANGES_MAX: usize = 4096;

/// What a router holds of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldingsStatus {
    /// The name of the segments without the segment number.
    pub object: Name,
    /// Segments in memory, in order, with gaps between the ranges.
    pub memory: Vec<SegmentRange>,
    /// Segments on disks, likewise.
    pub disk: Vec<SegmentRange>,
    /// Whether more may be held than is said here.
    pub is_partial: bool,
}

impl HoldingsStatus {
    /// The name of the dataset about an object.
    #[must_use]
    pub fn dataset_name(scope: Scope, object: &Name) -> Name {
        let mut name = scope.prefix();
        name.append_str("cs").append_str("holdings");
        let mut writer = Writer::default();
        writer.name(object);
        name.append_generic(&writer.into_octets());
        name
    }

    /// The object that the component of such a name speaks of.
    pub(crate) fn object_of(component: ComponentView<'_>) -> Option<Name> {
        NameView::decode(component.value).ok().map(|name| name.to_name())
    }

    /// Leaves out what an answer has no room for.
    pub(crate) fn limit(&mut self) {
        let disk_max = RANGES_MAX.saturating_sub(self.memory.len());
        self.is_partial |= self.memory.len() > RANGES_MAX || self.disk.len() > disk_max;
        self.memory.truncate(RANGES_MAX);
        self.disk.truncate(disk_max);
    }
}

/// For each range the segments between it and the one before, and its segments less one, as
/// TLV-VAR-NUMBERs.
fn write_ranges(ranges: &[SegmentRange]) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut next = 0;
    for range in ranges {
        for number in [range.first - next, range.last - range.first] {
            let mut written = [0; 9];
            let len = tlv::write_var_number(number, &mut written);
            octets.extend_from_slice(&written[..len]);
        }
        next = range.last.saturating_add(1);
    }
    octets
}

fn read_ranges(mut octets: &[u8]) -> Result<Vec<SegmentRange>, DecodeError> {
    let bad = || DecodeError::Value { element: "ranges of segments" };
    let mut number = || -> Result<Option<u64>, DecodeError> {
        if octets.is_empty() {
            return Ok(None);
        }
        let (number, size) = tlv::read_var_number(octets).map_err(|_| bad())?;
        octets = &octets[size..];
        Ok(Some(number))
    };
    let mut ranges = Vec::new();
    // None behind the last number that there is.
    let mut next = Some(0_u64);
    while let Some(gap) = number()? {
        let len = number()?.ok_or_else(bad)?;
        let first = next.and_then(|next| next.checked_add(gap)).ok_or_else(bad)?;
        let last = first.checked_add(len).ok_or_else(bad)?;
        if ranges.len() >= RANGES_MAX {
            return Err(bad());
        }
        ranges.push(SegmentRange { first, last });
        next = last.checked_add(1);
    }
    Ok(ranges)
}

impl Element for HoldingsStatus {
    const TYPE: u32 = types::HOLDINGS;

    fn decode_value(value: &[u8]) -> Result<Self, DecodeError> {
        let mut status = Self::default();
        let mut object = None;
        for element in Elements::new(value) {
            let element = element?;
            match element.typ {
                types::NAME => object = Some(element.name()?),
                types::HOLDINGS_PARTIAL => status.is_partial = true,
                types::HOLDINGS_MEMORY => status.memory = read_ranges(element.value)?,
                types::HOLDINGS_DISK => status.disk = read_ranges(element.value)?,
                _ => element.skip()?,
            }
        }
        status.object = object.ok_or(DecodeError::Missing { element: "Name in Holdings" })?;
        Ok(status)
    }

    fn encode_value(&self, writer: &mut Writer) {
        writer.name(&self.object);
        if self.is_partial {
            writer.octets(types::HOLDINGS_PARTIAL, &[]);
        }
        for (typ, ranges) in
            [(types::HOLDINGS_MEMORY, &self.memory), (types::HOLDINGS_DISK, &self.disk)]
        {
            if !ranges.is_empty() {
                writer.octets(typ, &write_ranges(ranges));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, last: u64) -> SegmentRange {
        SegmentRange { first, last }
    }

    #[test]
    fn octets_are_as_documented() {
        let status = HoldingsStatus {
            object: "/a".parse().unwrap(),
            memory: alloc::vec![range(0, 63), range(70, 70)],
            disk: alloc::vec![range(300, 1000)],
            is_partial: true,
        };
        let expected = [
            &[0xfd, 0xf5, 0xb0, 30][..],
            &[7, 3, 8, 1, b'a'],
            &[0xfd, 0xf5, 0xb2, 0],
            &[0xfd, 0xf5, 0xb4, 4, 0, 63, 6, 0],
            &[0xfd, 0xf5, 0xb6, 6, 0xfd, 1, 44, 0xfd, 2, 188],
        ];
        // 5 + 4 + 8 + 10 octets.
        let mut expected = expected.concat();
        expected[3] = 27;
        assert_eq!(status.encode(), expected);
        assert_eq!(HoldingsStatus::decode(&expected).unwrap(), status);
    }

    #[test]
    fn bad_ranges_are_refused() {
        let with = |ranges: &[u8]| {
            let mut writer = Writer::default();
            writer.nested(types::HOLDINGS, |inner| {
                inner.name(&"/a".parse().unwrap()).octets(types::HOLDINGS_MEMORY, ranges);
            });
            HoldingsStatus::decode(&writer.into_octets())
        };
        assert_eq!(with(&[5, 0, 0, 1]).unwrap().memory, [range(5, 5), range(6, 7)]);
        let top = [0xff, 255, 255, 255, 255, 255, 255, 255, 255];
        assert!(with(&[&top[..], &[0]].concat()).is_ok());
        // Half a range, an overflow, something behind the last number, and too many.
        assert!(with(&[5]).is_err());
        assert!(with(&[&top[..], &[1]].concat()).is_err());
        assert!(with(&[&top[..], &[0, 0, 0]].concat()).is_err());
        assert!(with(&[1, 0].repeat(RANGES_MAX + 1)).is_err());
        assert!(with(&[0xfd, 1]).is_err());
    }

    #[test]
    fn long_answers_are_cut() {
        let ranges = |count: u64| (0..count).map(|at| range(2 * at, 2 * at)).collect::<Vec<_>>();
        let mut status = HoldingsStatus { memory: ranges(4000), ..Default::default() };
        status.limit();
        assert!(!status.is_partial);
        status.disk = ranges(97);
        status.limit();
        assert!(status.is_partial);
        assert_eq!((status.memory.len(), status.disk.len()), (4000, 96));
        let decoded = HoldingsStatus::decode(&status.encode()).unwrap();
        assert_eq!(decoded, status);
    }
}
