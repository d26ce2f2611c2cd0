//! Digest lists of segmented objects: one signature for hundreds of segments.
//!
//! Every segment of an object carries its own signature, so that anyone can check one alone. A
//! consumer that wants them all asks for the object's manifest first: Data named
//! `<versioned>/32=manifest/50=<part>` that list the implicit SHA-256 digest of each segment. It
//! then verifies one signature for each part and one SHA-256 for each segment.
//!
//! Part `i` covers the segments from `i * K` on, at most `K` of them; `K` is the same in all parts
//! of an object and stated in each. All parts but the last are full. The Content of a part is a
//! sequence of TLVs, in this order:
//!
//! | type | element | value |
//! |---|---|---|
//! | 129 | `DigestsPerPart` | NNI, `K`, 1 to [`DIGESTS_PER_PART_MAX`] |
//! | 131 | `FirstSegment` | NNI, `i * K` |
//! | 133 | `Digests` | 1 to `K` digests of 32 octets each |
//!
//! The numbers are from the range that NDN packet 0.3 leaves to applications (128 to 252). All are
//! odd, hence critical; a reader skips unrecognised even ones.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_wire::tlv::{Reader, Writer, is_critical};
use weir_wire::{Name, NameView};

/// Digests in a part unless said otherwise: 248 of them, name and signature fit into a packet.
pub const DIGESTS_PER_PART: usize = 248;

/// Most digests a part may hold: a packet of 8800 octets has room for no more.
pub const DIGESTS_PER_PART_MAX: usize = 270;

/// Value of the keyword component between the object's versioned name and the part number.
pub const MANIFEST_KEYWORD: &[u8] = b"manifest";

const TYPE_DIGESTS_PER_PART: u32 = 129;
const TYPE_FIRST_SEGMENT: u32 = 131;
const TYPE_DIGESTS: u32 = 133;

/// A SHA-256 digest.
pub type Digest = [u8; 32];

/// Why a manifest part is not accepted.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum ManifestError {
    /// The Content is not the three elements in order, or their values are out of range.
    #[error("the manifest part is malformed")]
    Malformed,
    /// The part number and the first segment it states do not belong together, or `K` differs from
    /// that of other parts.
    #[error("the manifest part does not fit its number or the other parts")]
    Inconsistent,
    /// The manifest would cover more segments than the caller allows.
    #[error("the manifest lists more segments than allowed")]
    TooLarge,
}

/// Name of a manifest part: `<versioned>/32=manifest/50=<part>`.
pub fn part_name(versioned: NameView<'_>, part: u64) -> Name {
    let mut name = versioned.to_name();
    name.append_keyword(MANIFEST_KEYWORD);
    name.append_segment(part);
    name
}

/// Content of the manifest parts of an object whose segments have these digests, part 0 first; the
/// segment number is the index.
///
/// # Panics
/// Unless `digests_per_part` is 1 to [`DIGESTS_PER_PART_MAX`].
pub fn encode_parts(
    digests: &[Digest],
    digests_per_part: usize,
) -> impl Iterator<Item = Vec<u8>> + '_ {
    assert!((1..=DIGESTS_PER_PART_MAX).contains(&digests_per_part), "{digests_per_part}");
    digests.chunks(digests_per_part).enumerate().map(move |(part, digests)| {
        let first_segment = (part * digests_per_part) as u64;
        ManifestPart { digests_per_part, first_segment, digests }.encode()
    })
}

/// One part of a manifest: the Content of one Data, decoded.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct ManifestPart<'a> {
    /// `K`: digests in every part but the last.
    pub digests_per_part: usize,
    /// Segment number of the first digest.
    pub first_segment: u64,
    /// Implicit digests of consecutive segments, at least one.
    pub digests: &'a [Digest],
}

impl<'a> ManifestPart<'a> {
    /// Reads the Content of a manifest Data.
    pub fn decode(content: &'a [u8]) -> Result<Self, ManifestError> {
        let mut reader = Reader::new(content);
        let per_part = expect_nni(&mut reader, TYPE_DIGESTS_PER_PART)?;
        let first_segment = expect_nni(&mut reader, TYPE_FIRST_SEGMENT)?;
        let (digests, rest) = expect(&mut reader, TYPE_DIGESTS)?.as_chunks::<32>();
        for element in reader {
            if is_critical(element.map_err(|_| ManifestError::Malformed)?.typ) {
                return Err(ManifestError::Malformed);
            }
        }
        if per_part == 0 || per_part > DIGESTS_PER_PART_MAX as u64 {
            return Err(ManifestError::Malformed);
        }
        let digests_per_part = per_part as usize;
        if digests.is_empty() || digests.len() > digests_per_part || !rest.is_empty() {
            return Err(ManifestError::Malformed);
        }
        Ok(Self { digests_per_part, first_segment, digests })
    }

    /// The Content of a manifest Data.
    pub fn encode(&self) -> Vec<u8> {
        let digests = self.digests.as_flattened();
        let mut writer = Writer::with_capacity(digests.len() + 32);
        writer.nni(TYPE_DIGESTS_PER_PART, self.digests_per_part as u64);
        writer.nni(TYPE_FIRST_SEGMENT, self.first_segment);
        writer.tlv(TYPE_DIGESTS, digests);
        writer.into_vec()
    }
}

fn expect<'a>(reader: &mut Reader<'a>, typ: u32) -> Result<&'a [u8], ManifestError> {
    loop {
        match reader.next_element() {
            Ok(Some(element)) if element.typ == typ => return Ok(element.value),
            Ok(Some(element)) if !is_critical(element.typ) => {}
            _ => return Err(ManifestError::Malformed),
        }
    }
}

fn expect_nni(reader: &mut Reader<'_>, typ: u32) -> Result<u64, ManifestError> {
    weir_wire::tlv::nni(expect(reader, typ)?).ok_or(ManifestError::Malformed)
}

/// What a manifest says about a segment.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum DigestCheck {
    /// The segment has the digest listed.
    Match,
    /// The segment is another than the one listed.
    Mismatch,
    /// The part that lists the segment has not been added.
    Unknown,
}

/// The parts of one object's manifest that a consumer has verified so far.
#[derive(Clone, Debug)]
pub struct DigestManifest {
    /// 0 until the first part tells.
    digests_per_part: usize,
    segments_max: u64,
    parts: BTreeMap<u64, Vec<Digest>>,
}

impl DigestManifest {
    /// An empty manifest that takes no part beyond `segments_max` segments (32 octets of memory
    /// each).
    pub const fn new(segments_max: u64) -> Self {
        Self { digests_per_part: 0, segments_max, parts: BTreeMap::new() }
    }

    /// Adds the Content of the Data of part `part`, whose signature the caller has verified.
    pub fn add_part(&mut self, part: u64, content: &[u8]) -> Result<(), ManifestError> {
        let decoded = ManifestPart::decode(content)?;
        let per_part = decoded.digests_per_part;
        let fits = self.digests_per_part == 0 || self.digests_per_part == per_part;
        let first_segment = part.checked_mul(per_part as u64).ok_or(ManifestError::TooLarge)?;
        if !fits || decoded.first_segment != first_segment {
            return Err(ManifestError::Inconsistent);
        }
        let end = first_segment.saturating_add(decoded.digests.len() as u64);
        if end > self.segments_max {
            return Err(ManifestError::TooLarge);
        }
        self.digests_per_part = per_part;
        self.parts.insert(part, decoded.digests.to_vec());
        Ok(())
    }

    /// The part that lists `segment`; `None` before the first part was added.
    pub fn part_of(&self, segment: u64) -> Option<u64> {
        segment.checked_div(self.digests_per_part as u64)
    }

    /// The digest listed for `segment`, if its part was added and reaches that far.
    pub fn digest(&self, segment: u64) -> Option<&Digest> {
        let part = self.part_of(segment)?;
        let index = segment % self.digests_per_part as u64;
        self.parts.get(&part)?.get(index as usize)
    }

    /// Compares the implicit digest of a segment with the one listed. A segment past the end of a
    /// part that was added is a mismatch: the producer says that there is none.
    pub fn check(&self, segment: u64, implicit_digest: &Digest) -> DigestCheck {
        match self.digest(segment) {
            Some(listed) if listed == implicit_digest => DigestCheck::Match,
            Some(_) => DigestCheck::Mismatch,
            None if self.has_part_of(segment) => DigestCheck::Mismatch,
            None => DigestCheck::Unknown,
        }
    }

    fn has_part_of(&self, segment: u64) -> bool {
        self.part_of(segment).is_some_and(|part| self.parts.contains_key(&part))
    }
}

#[cfg(test)]
mod tests;
