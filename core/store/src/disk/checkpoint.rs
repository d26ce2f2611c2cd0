//! Checkpoints list a region's contents, so that recovery need not read the region itself.
//!
//! The body of a checkpoint is a sequence of items in the order in which they were appended.
//! Numbers are in LEB128, hashes in 8 bytes. A *node* is a name prefix. It is written once for each
//! region; later items refer to it by its number.
//!
//! Example, on a disk with blocks of 512 bytes: segments 0 and 1 of `/a/v=1`, then an erasure of
//! segment 0, take five items. Sector 0 is the region's header.
//!
//! ```text
//! NODE        parent 0 (none), hash of /a
//! NODE        parent 1 (/a), hash of /a/v=1
//! RECORD      node 2, segment 0 + 1, sector 1, 17 sectors
//! RECORD      node 2, segment 1 + 1, sector 18, 17 sectors
//! ERASED_KEY  hash of /a/v=1, segment 0 + 1, before position (sequence, sector 35)
//! ```
//!
//! Segment numbers are stored plus one, so that 0 stands for Data without a segment number.

use super::address::Key;
use super::record::HEADER_BYTES;
use alloc::vec;
use alloc::vec::Vec;
use weir_base::Table;

/// Most bytes that one record adds, including the nodes of the longest path.
pub(super) const RECORD_BYTES_MAX: usize = 14 * crate::store::COMPONENTS_MAX + 32;
/// Most bytes that one erasure adds.
pub(super) const ERASURE_BYTES_MAX: usize = 32;
/// The parent of a node whose only proper prefix is the empty name.
const ROOT: u32 = 0;

const NODE: u8 = 1;
const RECORD: u8 = 2;
const ERASED_KEY: u8 = 3;
const ERASED_BELOW: u8 = 4;

/// The Data that an erasure covers.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Erasure {
    /// One Data packet.
    Key(Key),
    /// All Data at or below a prefix, given by its hash; `None` is the empty prefix.
    Below(Option<u64>),
}

/// A position in the log of a disk: the region's sequence number, and the sector in the region.
pub(super) type LogPosition = (u32, u32);

/// An erasure, and the position before which it applies. Records appended after it are not
/// affected.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct LoggedErasure {
    pub(super) erasure: Erasure,
    pub(super) before: LogPosition,
}

/// An item of a region's contents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RegionItem {
    Record {
        key: Key,
        /// The number of the object's node.
        node: u32,
        /// Where the record begins in the region.
        at_sectors: u32,
        sectors: u8,
    },
    /// An erasure of older records, in this region or others of the disk.
    Erased(LoggedErasure),
}

/// A checkpoint that grows with its region.
#[derive(Debug)]
pub(super) struct CheckpointBuilder {
    /// Space for the header, then the items.
    octets: Vec<u8>,
    /// From the hash of a prefix to its index in `hashes`. The item format counts nodes from 1.
    nodes: Table,
    /// The prefixes written so far, in order.
    hashes: Vec<u64>,
}

impl CheckpointBuilder {
    pub(super) fn new() -> Self {
        Self { octets: vec![0; HEADER_BYTES], nodes: Table::with_capacity(0), hashes: Vec::new() }
    }

    /// Bytes of the record, including its header.
    pub(super) fn len(&self) -> usize {
        self.octets.len()
    }

    /// The record, whose header has not been written yet.
    pub(super) fn into_octets(self) -> Vec<u8> {
        self.octets
    }

    pub(super) fn contents(&self) -> RegionContents {
        RegionContents::decode(&self.octets[HEADER_BYTES..])
            .unwrap_or_else(|| unreachable!("encoded items can be decoded"))
    }

    fn node(&self, hash: u64) -> Option<u32> {
        self.nodes.find(hash, |index| self.hashes[index as usize] == hash)
    }

    /// Whether the object's node is written already. Then [`CheckpointBuilder::record`] needs no
    /// path.
    #[inline]
    pub(super) fn knows(&self, object: u64) -> bool {
        self.node(object).is_some()
    }

    /// Adds a record. `path` holds the hashes of all proper prefixes of the object's name, shortest
    /// first, if the object is not known.
    pub(super) fn record(&mut self, key: Key, path: &[u64], at_sectors: u32, sectors: u8) {
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
        self.push_varint(at_sectors.into());
        self.octets.push(sectors);
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

/// Appends an erasure in the form that checkpoints and records of erasures share.
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
    /// The parent's number plus 1, or [`ROOT`], and the hash.
    nodes: Vec<(u32, u64)>,
    /// In the order in which they were appended.
    pub(super) items: Vec<RegionItem>,
}

impl RegionContents {
    /// Decodes the body of a checkpoint; `None` if it is malformed.
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
                    let at_sectors = u32::try_from(reader.number()?).ok()?;
                    let sectors = reader.octet()?;
                    contents.items.push(RegionItem::Record { key, node, at_sectors, sectors });
                }
                _ => {
                    contents.items.push(RegionItem::Erased(reader.erased(tag)?));
                }
            }
        }
        Some(contents)
    }

    /// Appends the hashes of all proper prefixes of the name of `node`, shortest first.
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

/// Decodes the body of a record of erasures; `None` if it is malformed.
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
        let mut number = || u32::try_from(self.number()?).ok();
        Some(LoggedErasure { erasure, before: (number()?, number()?) })
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
        let record =
            |key, node, at_sectors, sectors| RegionItem::Record { key, node, at_sectors, sectors };
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
            // A truncated body is either malformed or a prefix of the items.
            if let Some(cut) = RegionContents::decode(&octets[HEADER_BYTES..end]) {
                assert_eq!(cut.items[..], expected[..cut.items.len()]);
            }
        }
    }
}
