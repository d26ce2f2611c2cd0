//! What a region holds, so that a start need not read the region itself.
//!
//! The body of a checkpoint is a run of items in the order in which they were appended: numbers in
//! LEB128, hashes in 8 octets. A node is a name prefix; it is written once a region, and known by
//! its number among the nodes from then on.

use super::address::Key;
use super::record::HEADER_BYTES;
use alloc::vec;
use alloc::vec::Vec;
use weir_base::Table;

/// Octets that one record, with nodes for the longest path, adds at most.
pub(super) const RECORD_BYTES_MAX: usize = 14 * crate::store::COMPONENTS_MAX + 32;
/// Octets that one erasure adds at most.
pub(super) const ERASURE_BYTES_MAX: usize = 32;
/// The parent of a node that has none but the empty name.
const ROOT: u32 = 0;

const NODE: u8 = 1;
const RECORD: u8 = 2;
const ERASED_KEY: u8 = 3;
const ERASED_BELOW: u8 = 4;

/// What was erased.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Erasure {
    /// One Data.
    Key(Key),
    /// All Data at or below a prefix; none is the empty prefix.
    Below(Option<u64>),
}

/// A position in the log of a disk: the sequence number of the region, and units in it.
pub(super) type LogPosition = (u32, u32);

/// What was erased, of what lies before a position on the same disk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct LoggedErasure {
    pub(super) erasure: Erasure,
    pub(super) before: LogPosition,
}

/// An item of a region, with its place in it in units of 512 octets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RegionItem {
    Record {
        /// What it is known by.
        key: Key,
        /// The number of its object's node.
        node: u32,
        /// Where it begins in the region.
        at_sectors: u32,
        sectors: u8,
    },
    /// Something was erased that had been appended before.
    Erased(LoggedErasure),
}

/// A checkpoint that grows with its region.
#[derive(Debug)]
pub(super) struct CheckpointBuilder {
    /// Room for the header, then the items.
    octets: Vec<u8>,
    nodes: Table,
    hashes: Vec<u64>,
}

impl CheckpointBuilder {
    pub(super) fn new() -> Self {
        Self { octets: vec![0; HEADER_BYTES], nodes: Table::with_capacity(0), hashes: Vec::new() }
    }

    /// Octets of the record, header included.
    pub(super) fn len(&self) -> usize {
        self.octets.len()
    }

    /// The record, without a valid header.
    pub(super) fn into_octets(self) -> Vec<u8> {
        self.octets
    }

    /// What it says.
    pub(super) fn contents(&self) -> RegionContents {
        RegionContents::decode(&self.octets[HEADER_BYTES..])
            .unwrap_or_else(|| unreachable!("what was encoded can be decoded"))
    }

    fn node(&self, hash: u64) -> Option<u32> {
        self.nodes.find(hash, |index| self.hashes[index as usize] == hash)
    }

    /// Whether [`Builder::record`] needs no path for this object.
    #[inline]
    pub(super) fn knows(&self, object: u64) -> bool {
        self.node(object).is_some()
    }

    /// Adds a record. `path` are the hashes of all proper prefixes of the object's name, shortest
    /// first, if the object is not known.
    pub(super) fn record(&mut self, key: Key, path: &[u64], at_units: u32, units: u8) {
        let node = match self.node(key.object) {
            Some(node) => node + 1,
            None => {
                let parent = path.iter().fold(ROOT, |parent, &hash| self.extend(parent, hash));
                self.extend(parent, key.object)
            }
        };
        self.octets.push(RECORD);
        self.push_varint(node.into());
        self.push_varint(key.segment.wrapping_add(1));
        self.push_varint(at_units.into());
        self.octets.push(units);
    }

    fn extend(&mut self, parent: u32, hash: u64) -> u32 {
        if let Some(node) = self.node(hash) {
            return node + 1;
        }
        self.octets.push(NODE);
        self.push_varint(parent.into());
        self.octets.extend_from_slice(&hash.to_le_bytes());
        let index = self.hashes.len() as u32;
        self.hashes.push(hash);
        self.nodes.insert(hash, index);
        index + 1
    }

    pub(super) fn erased(&mut self, erased: LoggedErasure) {
        encode_erased(erased, &mut self.octets);
    }

    fn push_varint(&mut self, number: u64) {
        push_varint_to(number, &mut self.octets);
    }
}

fn push_varint_to(mut number: u64, octets: &mut Vec<u8>) {
    while number >= 0x80 {
        octets.push(number as u8 | 0x80);
        number >>= 7;
    }
    octets.push(number as u8);
}

/// Appends an erasure as it stands in checkpoints and in records of erasures.
pub(super) fn encode_erased(erased: LoggedErasure, octets: &mut Vec<u8>) {
    match erased.erasure {
        Erasure::Key(key) => {
            octets.push(ERASED_KEY);
            octets.extend_from_slice(&key.object.to_le_bytes());
            push_varint_to(key.segment.wrapping_add(1), octets);
        }
        Erasure::Below(prefix) => {
            octets.push(ERASED_BELOW);
            octets.push(u8::from(prefix.is_some()));
            octets.extend_from_slice(&prefix.unwrap_or(0).to_le_bytes());
        }
    }
    push_varint_to(erased.before.0.into(), octets);
    push_varint_to(erased.before.1.into(), octets);
}

#[derive(Debug, Default)]
pub(super) struct RegionContents {
    /// Parent's number plus 1, or [`ROOT`], and hash.
    nodes: Vec<(u32, u64)>,
    /// In the order in which they were appended.
    pub(super) items: Vec<RegionItem>,
}

impl RegionContents {
    /// Reads the body of a checkpoint; nothing when it is malformed.
    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        let mut reader = Reader(body);
        let mut contents = Self::default();
        while let Some(tag) = reader.octet() {
            match tag {
                NODE => {
                    let parent = u32::try_from(reader.number()?).ok()?;
                    if parent as usize > contents.nodes.len() {
                        return None;
                    }
                    contents.nodes.push((parent, reader.hash()?));
                }
                RECORD => {
                    let node = u32::try_from(reader.number()?).ok()?.checked_sub(1)?;
                    let object = contents.nodes.get(node as usize)?.1;
                    let key = Key { object, segment: reader.number()?.wrapping_sub(1) };
                    let at_units = u32::try_from(reader.number()?).ok()?;
                    let units = reader.octet()?;
                    contents.items.push(RegionItem::Record {
                        key,
                        node,
                        at_sectors: at_units,
                        sectors: units,
                    });
                }
                _ => {
                    contents.items.push(RegionItem::Erased(reader.erased(tag)?));
                }
            }
        }
        Some(contents)
    }

    /// Adds the hashes of all proper prefixes of the object's name that `node` stands for, shortest
    /// first.
    pub(super) fn path(&self, node: u32, path: &mut Vec<u64>) {
        let begin = path.len();
        let mut parent = self.nodes[node as usize].0;
        while parent != ROOT {
            let (above, hash) = self.nodes[parent as usize - 1];
            path.push(hash);
            parent = above;
        }
        path[begin..].reverse();
    }
}

/// Reads the body of a record of erasures; nothing when it is malformed.
pub(super) fn decode_erasures(body: &[u8]) -> Option<Vec<LoggedErasure>> {
    let mut reader = Reader(body);
    let mut erasures = Vec::new();
    while let Some(tag) = reader.octet() {
        erasures.push(reader.erased(tag)?);
    }
    Some(erasures)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn octet(&mut self) -> Option<u8> {
        let (&octet, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(octet)
    }

    fn hash(&mut self) -> Option<u64> {
        let (octets, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*octets))
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let octet = self.octet()?;
            number |= u64::from(octet & 0x7F) << shift;
            if octet < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn erased(&mut self, tag: u8) -> Option<LoggedErasure> {
        let erasure = self.erasure(tag)?;
        let mut half = || u32::try_from(self.number()?).ok();
        Some(LoggedErasure { erasure, before: (half()?, half()?) })
    }

    fn erasure(&mut self, tag: u8) -> Option<Erasure> {
        match tag {
            ERASED_KEY => {
                let object = self.hash()?;
                let segment = self.number()?.wrapping_sub(1);
                Some(Erasure::Key(Key { object, segment }))
            }
            ERASED_BELOW => {
                let is_some = self.octet()? != 0;
                let hash = self.hash()?;
                Some(Erasure::Below(is_some.then_some(hash)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::address::WHOLE;
    use super::*;

    #[test]
    fn items_round_trip() {
        let mut builder = CheckpointBuilder::new();
        let object = |object, segment| Key { object, segment };
        builder.record(object(30, 0), &[10, 20], 8, 17);
        builder.record(object(30, u64::MAX - 1), &[], 25, 1);
        builder.record(object(31, WHOLE), &[10], u32::MAX, 255);
        let of = |erasure, before| LoggedErasure { erasure, before };
        builder.erased(of(Erasure::Key(object(30, 0)), (3, 300)));
        builder.erased(of(Erasure::Below(None), (u32::MAX, 0)));
        builder.erased(of(Erasure::Below(Some(10)), (0, u32::MAX)));
        assert!(builder.knows(20) && !builder.knows(40));
        let octets = builder.into_octets();
        let contents = RegionContents::decode(&octets[HEADER_BYTES..]).unwrap();
        let record = |key, node, at_units, units| RegionItem::Record {
            key,
            node,
            at_sectors: at_units,
            sectors: units,
        };
        let erased = |erasure, before| RegionItem::Erased(of(erasure, before));
        let expected = [
            record(object(30, 0), 2, 8, 17),
            record(object(30, u64::MAX - 1), 2, 25, 1),
            record(object(31, WHOLE), 3, u32::MAX, 255),
            erased(Erasure::Key(object(30, 0)), (3, 300)),
            erased(Erasure::Below(None), (u32::MAX, 0)),
            erased(Erasure::Below(Some(10)), (0, u32::MAX)),
        ];
        assert_eq!(contents.items, expected);
        let mut path = vec![];
        contents.path(2, &mut path);
        assert_eq!(path, [10, 20]);
        path.clear();
        contents.path(3, &mut path);
        assert_eq!(path, [10]);
        for end in HEADER_BYTES..octets.len() {
            // Cut anywhere, it is either malformed or the items before.
            if let Some(cut) = RegionContents::decode(&octets[HEADER_BYTES..end]) {
                assert_eq!(cut.items[..], expected[..cut.items.len()]);
            }
        }
    }
}
