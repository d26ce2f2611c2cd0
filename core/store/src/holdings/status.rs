//! The encoding of holdings in the management protocol (docs/holdings.md).

use alloc::vec::Vec;

use weir_wire::{DecodeError, Name, NameView, tlv};

use super::ranges::SegmentRange;

const NAME: u32 = 7;
/// An empty element: the router may hold more than the ranges say.
const PARTIAL: u32 = 0xf5b2;
const MEMORY: u32 = 0xf5b4;
const DISK: u32 = 0xf5b6;

/// Most ranges of one answer. Ranges beyond the limit are left out, and the answer says so.
const RANGES_MAX: usize = 4096;

/// The segments of one object that a router holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldingsStatus {
    /// The name of the segments without the segment number.
    pub object: Name,
    /// Segments in memory, in order, with gaps between the ranges.
    pub memory: Vec<SegmentRange>,
    pub disk: Vec<SegmentRange>,
    /// Whether the router may hold more than is listed here.
    pub is_partial: bool,
}

/// Why bytes are not a valid holdings status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoldingsError {
    /// Not TLV, or an invalid name.
    #[error(transparent)]
    Wire(#[from] DecodeError),
    /// The outermost element has another type.
    #[error("an element of type {0} is there in place of Holdings")]
    Type(u32),
    /// The object's name is missing.
    #[error("the Name of the object is missing")]
    NoName,
    /// The ranges are not in order, end within a number, or are too many.
    #[error("the ranges of segments are not in order, broken off, or too many")]
    Ranges,
    /// An unknown element that may not be skipped.
    #[error("unknown critical element of type {0}")]
    Critical(u32),
}

impl HoldingsStatus {
    pub(crate) const TYPE: u32 = 0xf5b0;

    /// The name of the dataset about an object. `prefix` is `/localhost/nfd` for a router on this
    /// machine, `/localhop/nfd` for a neighbour.
    pub fn dataset_name(mut prefix: Name, object: &Name) -> Name {
        let mut writer = tlv::Writer::new();
        writer.tlv(NAME, object.as_view().value());
        prefix.append_str("cs").append_str("holdings").append_generic(writer.as_slice());
        prefix
    }

    /// Decodes the object from the last component of a dataset name, given by its TLV-VALUE.
    pub fn object_of(component: &[u8]) -> Option<Name> {
        NameView::decode(component).ok().map(|name| name.to_name())
    }

    /// Removes the ranges beyond the limit of an answer.
    pub fn truncate(&mut self) {
        let disk_max = RANGES_MAX.saturating_sub(self.memory.len());
        self.is_partial |= self.memory.len() > RANGES_MAX || self.disk.len() > disk_max;
        self.memory.truncate(RANGES_MAX);
        self.disk.truncate(disk_max);
    }

    /// Decodes exactly one TLV.
    pub fn decode(wire: &[u8]) -> Result<Self, HoldingsError> {
        match tlv::read_single(wire)? {
            (Self::TYPE, value) => Self::decode_value(value),
            (other, _) => Err(HoldingsError::Type(other)),
        }
    }

    /// Decodes the TLV-VALUE.
    pub(crate) fn decode_value(value: &[u8]) -> Result<Self, HoldingsError> {
        let mut status = Self::default();
        let mut object = None;
        for element in tlv::Reader::new(value) {
            let element = element?;
            match element.typ {
                NAME => object = Some(NameView::decode(element.wire)?.to_name()),
                PARTIAL => status.is_partial = true,
                MEMORY => status.memory = read_ranges(element.value)?,
                DISK => status.disk = read_ranges(element.value)?,
                other if tlv::is_critical(other) => return Err(HoldingsError::Critical(other)),
                _ => {}
            }
        }
        status.object = object.ok_or(HoldingsError::NoName)?;
        Ok(status)
    }

    /// Encodes one TLV.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = tlv::Writer::new();
        writer.nested(Self::TYPE, |inner| self.encode_value(inner));
        writer.into_vec()
    }

    pub(crate) fn encode_value(&self, writer: &mut tlv::Writer) {
        writer.tlv(NAME, self.object.as_view().value());
        if self.is_partial {
            writer.tlv(PARTIAL, &[]);
        }
        for (typ, ranges) in [(MEMORY, &self.memory), (DISK, &self.disk)] {
            if !ranges.is_empty() {
                writer.tlv(typ, &write_ranges(ranges));
            }
        }
    }
}

/// For each range, the number of segments between it and the one before, and its length less one,
/// as TLV-VAR-NUMBERs.
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

fn read_ranges(mut octets: &[u8]) -> Result<Vec<SegmentRange>, HoldingsError> {
    let bad = || HoldingsError::Ranges;
    let mut number = || -> Result<Option<u64>, HoldingsError> {
        if octets.is_empty() {
            return Ok(None);
        }
        let (number, size) = tlv::read_var_number(octets).map_err(|_| bad())?;
        octets = &octets[size..];
        Ok(Some(number))
    };
    let mut ranges = Vec::new();
    // `None` after the largest number.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, last: u64) -> SegmentRange {
        SegmentRange { first, last }
    }

    #[test]
    fn encodes_documented_bytes() {
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
        // 5 + 4 + 8 + 10 bytes.
        let mut expected = expected.concat();
        expected[3] = 27;
        assert_eq!(status.encode(), expected);
        assert_eq!(HoldingsStatus::decode(&expected).unwrap(), status);
    }

    #[test]
    fn rejects_malformed_ranges() {
        let with = |ranges: &[u8]| {
            let mut writer = tlv::Writer::new();
            writer.nested(HoldingsStatus::TYPE, |inner| {
                inner.raw(&[7, 3, 8, 1, b'a']);
                inner.tlv(MEMORY, ranges);
            });
            HoldingsStatus::decode(writer.as_slice())
        };
        assert_eq!(with(&[5, 0, 0, 1]).unwrap().memory, [range(5, 5), range(6, 7)]);
        let top = [0xff, 255, 255, 255, 255, 255, 255, 255, 255];
        assert!(with(&[&top[..], &[0]].concat()).is_ok());
        // Half a range, an overflow, a range behind the largest number, and too many ranges.
        assert!(with(&[5]).is_err());
        assert!(with(&[&top[..], &[1]].concat()).is_err());
        assert!(with(&[&top[..], &[0, 0, 0]].concat()).is_err());
        assert!(with(&[1, 0].repeat(RANGES_MAX + 1)).is_err());
        assert!(with(&[0xfd, 1]).is_err());
    }

    #[test]
    fn truncates_long_answers() {
        let ranges = |count: u64| (0..count).map(|at| range(2 * at, 2 * at)).collect::<Vec<_>>();
        let mut status = HoldingsStatus { memory: ranges(4000), ..Default::default() };
        status.truncate();
        assert!(!status.is_partial);
        status.disk = ranges(97);
        status.truncate();
        assert!(status.is_partial);
        assert_eq!((status.memory.len(), status.disk.len()), (4000, 96));
        let decoded = HoldingsStatus::decode(&status.encode()).unwrap();
        assert_eq!(decoded, status);
    }
}
