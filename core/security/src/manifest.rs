//! Manifests: signed lists of the digests of an object's packets. One signature then covers
//! hundreds of segments, or all of them.
//!
//! A manifest consists of parts. A part is a Data packet that lists the implicit SHA-256 digests of
//! other packets. A consumer verifies the signature of some parts, and one SHA-256 for each listed
//! packet, in any order.
//!
//! A part of level 1 lists segments. With two [levels](ManifestShape::levels), a part of level 2
//! lists parts of level 1, so one signature covers K^2 segments. Parts of the highest level are
//! signed; the others need only a digest. Part `i` of a level lists the packets from number `i * K`
//! on, at most `K` of them. `K` is the same in all parts of an object. All parts of a level are
//! full, except the last.
//!
//! Part `i` has the name `<versioned>/32=manifest/50=<i>` on level 1, and
//! `<versioned>/32=manifest/58=<level>/50=<i>` above it. Its Content is a sequence of TLVs, in this
//! order:
//!
//! | type | element | value |
//! |---|---|---|
//! | 135 | `DigestAlgorithm` | NNI; 1: SHA-256 of a whole packet, its implicit digest |
//! | 129 | `DigestsPerPart` | NNI, `K`, 1 to 270 |
//! | 137 | `Levels` | NNI, 1 to [`LEVELS_MAX`] |
//! | 139 | `Level` | NNI, 1 to `Levels`: that of this part |
//! | 131 | `First` | NNI, `i * K`: number of the first segment, or part of the level below |
//! | 133 | `Digests` | 1 to `K` digests of 32 octets each |
//!
//! A part of 248 digests has 7,955 to 7,962 octets of Content: 32 for each digest, and 19 to 26
//! more. The type numbers are from the range that NDN packet 0.3 reserves for applications (128 to
//! 252). All are odd and therefore critical. A reader skips unknown even ones.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_wire::tlv::{Reader, Writer, is_critical};
use weir_wire::{Name, NameView};

/// Default number of digests in a part. With 248 digests, the name and the signature still fit into
/// a packet.
pub const DIGESTS_PER_PART: usize = 248;

/// Maximum number of digests in a part; a packet of 8800 octets has no room for more.
const DIGESTS_PER_PART_MAX: usize = 270;

/// Maximum number of levels. With two, one signature covers 61,504 segments.
pub const LEVELS_MAX: u8 = 2;

/// The keyword component between the object's versioned name and the part number.
pub const MANIFEST_KEYWORD: &[u8] = b"manifest";

const TYPE_DIGESTS_PER_PART: u32 = 129;
const TYPE_FIRST: u32 = 131;
const TYPE_DIGESTS: u32 = 133;
const TYPE_DIGEST_ALGORITHM: u32 = 135;
const TYPE_LEVELS: u32 = 137;
const TYPE_LEVEL: u32 = 139;

const ALGORITHM_SHA256: u64 = 1;

/// A SHA-256 digest.
pub type Digest = [u8; 32];

/// Why a manifest part is refused.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum ManifestError {
    /// The Content does not have the elements in order, or a value is out of range.
    #[error("the manifest part is malformed")]
    Malformed,
    /// The digests are not SHA-256.
    #[error("the manifest uses digest algorithm {0}, which is not supported")]
    Algorithm(u64),
    /// The part does not match its name, or belongs to a manifest of another shape.
    #[error("the manifest part does not match its name or the metadata")]
    Inconsistent,
    /// The manifest would list more segments than the caller allows.
    #[error("the manifest lists more segments than allowed")]
    TooLarge,
}

/// How a manifest is divided into parts.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct ManifestShape {
    /// `K`: digests in every part of a level except the last, 1 to 270.
    pub digests_per_part: u16,
    /// 1: all parts list segments; 2: there are also parts that list parts.
    pub levels: u8,
}

impl ManifestShape {
    /// A shape with these numbers; `None` if they are out of range.
    pub fn new(digests_per_part: u64, levels: u64) -> Option<Self> {
        let is_valid = (1..=DIGESTS_PER_PART_MAX as u64).contains(&digests_per_part)
            && (1..=u64::from(LEVELS_MAX)).contains(&levels);
        is_valid.then_some(Self { digests_per_part: digests_per_part as u16, levels: levels as u8 })
    }

    /// `K`.
    pub const fn digests_per_part(self) -> u64 {
        self.digests_per_part as u64
    }

    /// Number of segments below a full part of this level; 1 for level 0, which is a segment.
    pub const fn segments_below(self, level: u8) -> u64 {
        self.digests_per_part().pow(level as u32)
    }
}

#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct PartId {
    /// 1 for a part that lists segments.
    pub level: u8,
    /// The number of the part on this level, from 0.
    pub number: u64,
}

impl PartId {
    /// A part that lists segments.
    pub const fn leaf(number: u64) -> Self {
        Self { level: 1, number }
    }
}

/// The prefix of the names of a level's parts: `<versioned>/32=manifest`, followed by `/58=<level>`
/// above level 1.
pub fn level_name(versioned: NameView<'_>, level: u8) -> Name {
    let mut name = versioned.to_name();
    name.append_keyword(MANIFEST_KEYWORD);
    if level > 1 {
        name.append_sequence(u64::from(level));
    }
    name
}

pub fn part_name(versioned: NameView<'_>, part: PartId) -> Name {
    let mut name = level_name(versioned, part.level);
    name.append_segment(part.number);
    name
}

/// The Contents of the parts of a level that list packets with these digests, part 0 first. The
/// index of a digest is the number of its packet.
pub fn encode_parts(
    digests: &[Digest],
    shape: ManifestShape,
    level: u8,
) -> impl Iterator<Item = Vec<u8>> + '_ {
    let per_part = usize::from(shape.digests_per_part);
    digests.chunks(per_part).enumerate().map(move |(part, digests)| {
        let first = (part * per_part) as u64;
        ManifestPart { shape, level, first, digests }.encode()
    })
}

/// One part of a manifest: the decoded Content of one Data packet.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct ManifestPart<'a> {
    pub shape: ManifestShape,
    /// The level of the part, from 1 to that of the shape.
    pub level: u8,
    /// The number of the packet of the first digest: a segment, or a part of the level below.
    pub first: u64,
    /// Implicit digests of consecutive packets, at least one.
    pub digests: &'a [Digest],
}

impl<'a> ManifestPart<'a> {
    /// Decodes the Content of a manifest packet.
    pub fn decode(content: &'a [u8]) -> Result<Self, ManifestError> {
        let mut reader = Reader::new(content);
        match read_nni(&mut reader, TYPE_DIGEST_ALGORITHM)? {
            ALGORITHM_SHA256 => {}
            other => return Err(ManifestError::Algorithm(other)),
        }
        let per_part = read_nni(&mut reader, TYPE_DIGESTS_PER_PART)?;
        let levels = read_nni(&mut reader, TYPE_LEVELS)?;
        let level = read_nni(&mut reader, TYPE_LEVEL)?;
        let first = read_nni(&mut reader, TYPE_FIRST)?;
        let (digests, rest) = read_value(&mut reader, TYPE_DIGESTS)?.as_chunks::<32>();
        for element in reader {
            if is_critical(element.map_err(|_| ManifestError::Malformed)?.typ) {
                return Err(ManifestError::Malformed);
            }
        }
        let shape = ManifestShape::new(per_part, levels).ok_or(ManifestError::Malformed)?;
        let has_valid_length =
            digests.len() as u64 <= per_part && !digests.is_empty() && rest.is_empty();
        match has_valid_length && (1..=levels).contains(&level) {
            true => Ok(Self { shape, level: level as u8, first, digests }),
            false => Err(ManifestError::Malformed),
        }
    }

    /// Encodes the Content of a manifest packet.
    pub fn encode(&self) -> Vec<u8> {
        let digests = self.digests.as_flattened();
        let mut writer = Writer::with_capacity(digests.len() + 33);
        writer.nni(TYPE_DIGEST_ALGORITHM, ALGORITHM_SHA256);
        writer.nni(TYPE_DIGESTS_PER_PART, self.shape.digests_per_part());
        writer.nni(TYPE_LEVELS, u64::from(self.shape.levels));
        writer.nni(TYPE_LEVEL, u64::from(self.level));
        writer.nni(TYPE_FIRST, self.first);
        writer.tlv(TYPE_DIGESTS, digests);
        writer.into_vec()
    }
}

fn read_value<'a>(reader: &mut Reader<'a>, typ: u32) -> Result<&'a [u8], ManifestError> {
    loop {
        match reader.next_element() {
            Ok(Some(element)) if element.typ == typ => return Ok(element.value),
            Ok(Some(element)) if !is_critical(element.typ) => {}
            _ => return Err(ManifestError::Malformed),
        }
    }
}

fn read_nni(reader: &mut Reader<'_>, typ: u32) -> Result<u64, ManifestError> {
    weir_wire::tlv::nni(read_value(reader, typ)?).ok_or(ManifestError::Malformed)
}

/// The digest that a manifest lists for a packet, if known.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum DigestLookup {
    Found(Digest),
    /// There is no such packet: the part that would list it ends before it.
    Absent,
    /// The part that would list it has not been added.
    Unknown,
}

/// The verified parts of one object's manifest.
#[derive(Clone, Debug)]
pub struct DigestManifest {
    shape: ManifestShape,
    segments_max: u64,
    parts: BTreeMap<PartId, Vec<Digest>>,
}

impl DigestManifest {
    /// An empty manifest of this shape. It accepts no part beyond `segments_max` segments, which
    /// bounds its memory (32 bytes for each).
    pub const fn new(shape: ManifestShape, segments_max: u64) -> Self {
        Self { shape, segments_max, parts: BTreeMap::new() }
    }

    /// Adds the Content of the Data packet named `part`. The caller has verified it.
    pub fn add_part(&mut self, part: PartId, content: &[u8]) -> Result<(), ManifestError> {
        let ManifestPart { shape, level, first, digests } = ManifestPart::decode(content)?;
        // The name gives the number of the part, and the Content must agree with it.
        let expected = part.number.checked_mul(shape.digests_per_part());
        if (shape, level) != (self.shape, part.level) || expected.is_some_and(|it| it != first) {
            return Err(ManifestError::Inconsistent);
        }
        self.add_digests(part, digests.to_vec())
    }

    /// Adds the digests that a part of another format lists. The caller has verified it.
    ///
    /// # Errors
    /// [`ManifestError::TooLarge`].
    pub fn add_digests(&mut self, part: PartId, digests: Vec<Digest>) -> Result<(), ManifestError> {
        let first = part.number.checked_mul(self.shape.digests_per_part());
        // The last listed packet may have fewer segments below it than a full part.
        let last = first.map(|first| first.saturating_add(digests.len() as u64 - 1));
        let before_last =
            last.map(|last| last.saturating_mul(self.shape.segments_below(part.level - 1)));
        if before_last.is_none_or(|before| before >= self.segments_max) {
            return Err(ManifestError::TooLarge);
        }
        self.parts.insert(part, digests);
        Ok(())
    }

    /// The digest of the packet with this number: a segment on level 0, or a part of a level below
    /// the highest.
    pub fn digest_of(&self, level: u8, number: u64) -> DigestLookup {
        let per_part = self.shape.digests_per_part();
        let listing_part = PartId { level: level + 1, number: number / per_part };
        match self.parts.get(&listing_part) {
            Some(digests) => match digests.get((number % per_part) as usize) {
                Some(digest) => DigestLookup::Found(*digest),
                None => DigestLookup::Absent,
            },
            None => DigestLookup::Unknown,
        }
    }
}

#[cfg(test)]
mod tests;
