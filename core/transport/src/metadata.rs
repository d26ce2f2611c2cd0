//! What a producer states about an object before its segments are requested (RDR, with the
//! extensions of ndn6-file-server).
//!
//! The Content of `/<object>/32=metadata/54=<version>/50=0` is the versioned Name, followed by
//! elements. Readers skip elements that they do not know:
//!
//! | type | element | value |
//! |---|---|---|
//! | 7 | `Name` | of the version, ending in a Version component |
//! | 26 | `FinalBlockId` | Segment component of the last segment |
//! | 0xF500 | `SegmentSize` | NNI, bytes of Content in each segment but the last |
//! | 0xF502 | `Size` | NNI, bytes |
//! | 0xF504 | `Mode` | NNI, as `stat` has it; of a directory, the name denotes a listing |
//! | 0xF50C | `Mtime` | NNI, nanoseconds since the Unix epoch |
//! | 0xF520 | `DigestsPerPart` | NNI; there is a digest manifest: digests in one of its parts |
//! | 0xF526 | `ManifestLevels` | NNI, levels of the manifest; 1 where it is not stated |
//! | 0xF524 | `ContentDigest` | 32 bytes, the [`ContentDigest`] of the object |
//! | 0xF528 | `NextSegment` | NNI; the object grows: number of the segment that is made next |
//! | 0xF522 | `SignerCertificate` | a whole Data; its own name may lead nowhere from here |
//! | 0xF52A | `HttpHead` | the head of the HTTP response with this body (gateway) |

use alloc::vec::Vec;

use weir_security::manifest::ManifestShape;
use weir_security::{sha256, sha256_each};
use weir_wire::tlv::{self, Reader, Writer};
use weir_wire::{Name, NameView};

/// Keyword component of metadata.
pub const METADATA_KEYWORD: &[u8] = b"metadata";
/// Keyword component of a directory listing (ndn6-file-server).
pub const LISTING_KEYWORD: &[u8] = b"ls";

const SEGMENT_SIZE: u32 = 0xF500;
const SIZE: u32 = 0xF502;
const MODE: u32 = 0xF504;
const MTIME: u32 = 0xF50C;
const DIGESTS_PER_MANIFEST_PART: u32 = 0xF520;
const SIGNER_CERTIFICATE: u32 = 0xF522;
const CONTENT_DIGEST: u32 = 0xF524;
const MANIFEST_LEVELS: u32 = 0xF526;
const NEXT_SEGMENT: u32 = 0xF528;
const HTTP_HEAD: u32 = 0xF52A;

const MODE_TYPE_MASK: u64 = 0o170_000;
const MODE_DIRECTORY: u64 = 0o040_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Name of the version, right above its segments.
    pub versioned: Name,
    pub last_segment: Option<u64>,
    /// For an object that grows or has grown: the number of the segment after the newest one. All
    /// earlier segments exist. Once `last_segment` is set, no segment follows.
    pub next_segment: Option<u64>,
    /// Bytes of Content in each segment but the last.
    pub segment_size: Option<u64>,
    /// Bytes of the whole object.
    pub size_bytes: Option<u64>,
    /// File type and permissions as `stat` has them.
    pub mode: Option<u64>,
    /// Time of the last modification, in nanoseconds since the Unix epoch.
    pub mtime_ns: Option<u64>,
    /// The shape of the digest manifest, if there is one.
    pub manifest: Option<ManifestShape>,
    /// The [`ContentDigest`] of the object.
    pub content_digest: Option<[u8; 32]>,
    /// The signer's certificate, a complete Data TLV according to the producer. It is not checked
    /// here.
    pub certificate: Option<Vec<u8>>,
    /// The head of the HTTP response whose body the object is, as the gateway encodes it. It is not
    /// decoded here.
    pub http_head: Option<Vec<u8>>,
}

/// SHA-256 over the SHA-256 digests of the Contents of all segments, in order. It identifies an
/// object's bytes independently of signatures, and several threads can compute it.
#[derive(Clone, Debug, Default)]
pub struct ContentDigest(Vec<u8>);

impl ContentDigest {
    /// Adds the Content of the next segment.
    pub fn add(&mut self, content: &[u8]) {
        self.add_all(&[content]);
    }

    /// Adds the Contents of the next segments.
    pub fn add_all(&mut self, contents: &[&[u8]]) {
        self.0.extend_from_slice(sha256_each(contents).as_flattened());
    }

    /// Adds the digests of another value, which covers the next segments.
    pub fn append(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    pub fn finish(&self) -> [u8; 32] {
        sha256(&[&self.0])
    }
}

/// Why the Content of a Data is not metadata.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum MetadataError {
    /// It does not start with a Name, or an element is malformed.
    #[error("the metadata is malformed")]
    Malformed,
    /// The Name does not end in a Version component.
    #[error("the name in the metadata has no version")]
    Unversioned,
}

impl Metadata {
    /// Metadata with only a name.
    pub fn new(versioned: Name) -> Self {
        Self {
            versioned,
            last_segment: None,
            next_segment: None,
            segment_size: None,
            size_bytes: None,
            mode: None,
            mtime_ns: None,
            manifest: None,
            content_digest: None,
            certificate: None,
            http_head: None,
        }
    }

    /// The newest segment, if any: the last one of a finished object, or the one before the next. A
    /// reader that wants only new data begins with it.
    pub fn newest_segment(&self) -> Option<u64> {
        self.last_segment.or_else(|| self.next_segment?.checked_sub(1))
    }

    /// Whether more segments may follow.
    pub(crate) fn grows(&self) -> bool {
        self.next_segment.is_some() && self.last_segment.is_none()
    }

    /// Whether the name denotes the listing of a directory.
    pub fn is_directory(&self) -> bool {
        self.mode.is_some_and(|mode| mode & MODE_TYPE_MASK == MODE_DIRECTORY)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.tlv(tlv::NAME, self.versioned.as_view().value());
        if let Some(last) = self.last_segment {
            writer.nested(tlv::FINAL_BLOCK_ID, |writer| {
                writer.nni(tlv::SEGMENT_NAME_COMPONENT, last);
            });
        }
        for (typ, value) in [
            (NEXT_SEGMENT, self.next_segment),
            (SEGMENT_SIZE, self.segment_size),
            (SIZE, self.size_bytes),
            (MODE, self.mode),
            (MTIME, self.mtime_ns),
            (DIGESTS_PER_MANIFEST_PART, self.manifest.map(ManifestShape::digests_per_part)),
            (MANIFEST_LEVELS, self.manifest.map(|shape| u64::from(shape.levels))),
        ] {
            if let Some(value) = value {
                writer.nni(typ, value);
            }
        }
        if let Some(digest) = &self.content_digest {
            writer.tlv(CONTENT_DIGEST, digest);
        }
        if let Some(certificate) = &self.certificate {
            writer.tlv(SIGNER_CERTIFICATE, certificate);
        }
        if let Some(head) = &self.http_head {
            writer.tlv(HTTP_HEAD, head);
        }
        writer.into_vec()
    }

    /// Decodes the Content of a metadata Data. Skips unknown elements after the Name, also
    /// those with critical numbers, because the extensions of different producers overlap.
    pub fn decode(content: &[u8]) -> Result<Self, MetadataError> {
        let mut reader = Reader::new(content);
        let malformed = |_| MetadataError::Malformed;
        let first = reader.next_element().map_err(malformed)?.ok_or(MetadataError::Malformed)?;
        if first.typ != tlv::NAME {
            return Err(MetadataError::Malformed);
        }
        let name = NameView::from_value(first.value).map_err(malformed)?;
        if name.last().and_then(|component| component.as_version()).is_none() {
            return Err(MetadataError::Unversioned);
        }
        let mut metadata = Self::new(name.to_name());
        // Two elements give one manifest shape, in any order. 0 digests per part means no manifest.
        let (mut digests_per_part, mut levels) = (0, 1);
        while let Some(element) = reader.next_element().map_err(malformed)? {
            match element.typ {
                tlv::FINAL_BLOCK_ID => metadata.last_segment = tlv::segment(element.value),
                NEXT_SEGMENT => metadata.next_segment = tlv::nni(element.value),
                SEGMENT_SIZE => metadata.segment_size = tlv::nni(element.value),
                SIZE => metadata.size_bytes = tlv::nni(element.value),
                MODE => metadata.mode = tlv::nni(element.value),
                MTIME => metadata.mtime_ns = tlv::nni(element.value),
                CONTENT_DIGEST => metadata.content_digest = element.value.try_into().ok(),
                SIGNER_CERTIFICATE => metadata.certificate = Some(element.value.to_vec()),
                HTTP_HEAD => metadata.http_head = Some(element.value.to_vec()),
                DIGESTS_PER_MANIFEST_PART => {
                    digests_per_part = tlv::nni(element.value).unwrap_or(0)
                }
                MANIFEST_LEVELS => levels = tlv::nni(element.value).unwrap_or(0),
                _ => {}
            }
        }
        metadata.manifest = ManifestShape::new(digests_per_part, levels);
        Ok(metadata)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn full() -> Metadata {
        Metadata {
            last_segment: Some(7),
            next_segment: Some(8),
            segment_size: Some(8000),
            size_bytes: Some(60_001),
            mode: Some(0o100_644),
            mtime_ns: Some(1_700_000_000_123_456_789),
            manifest: ManifestShape::new(248, 2),
            content_digest: Some([9; 32]),
            certificate: Some(vec![6, 0]),
            http_head: Some(vec![1, 2, 3]),
            ..Metadata::new("/a/b/54=%05".parse().unwrap())
        }
    }

    #[test]
    fn encodes_and_decodes() {
        for metadata in [full(), Metadata::new("/a/54=%00".parse().unwrap())] {
            assert_eq!(Metadata::decode(&metadata.encode()), Ok(metadata));
        }
        assert!(!full().is_directory());
        assert!(Metadata { mode: Some(0o040_755), ..full() }.is_directory());
    }

    #[test]
    fn newest_segment_follows_end_or_growth() {
        for (last_segment, next_segment, newest) in [
            (Some(7), None, Some(7)),
            (Some(7), Some(8), Some(7)),
            (None, Some(8), Some(7)),
            (None, Some(0), None),
            (None, None, None),
        ] {
            let metadata = Metadata { last_segment, next_segment, ..full() };
            assert_eq!(metadata.newest_segment(), newest, "{last_segment:?} {next_segment:?}");
        }
    }

    #[test]
    fn skips_unknown_elements() {
        let mut content = full().encode();
        content.extend_from_slice(&[0xFD, 0xF5, 0x0F, 1, 1, 0xFD, 0xF5, 0x0E, 1, 0]);
        assert_eq!(Metadata::decode(&content), Ok(full()));
    }

    #[test]
    fn rejects_malformed_metadata() {
        let unversioned = Metadata::new("/a/b".parse().unwrap()).encode();
        assert_eq!(Metadata::decode(&unversioned), Err(MetadataError::Unversioned));
        let mut cut = full().encode();
        cut.pop();
        for content in [vec![], vec![8, 1, 65], vec![7, 5, 8], cut] {
            assert_eq!(Metadata::decode(&content), Err(MetadataError::Malformed), "{content:?}");
        }
    }
}
