//! Numbered objects: their names, sizes and octets.

use weir_wire::{DataView, PACKET_SIZE_MAX};

use super::content::ContentKey;
use super::sizes::SizeLaw;
use super::{Names, Naming, WorkloadError};

/// Octets of a Data packet around the content, beside the name: at most this much, whatever the
/// numbers are.
pub(crate) const DATA_OVERHEAD_MAX: usize = 64;

/// The objects that a [`Names`] tells of. Consumers and producers with the same prefix, components,
/// sizes and `segment_bytes` agree on every octet.
#[derive(Clone, Debug)]
pub struct Collection {
    naming: Naming,
    sizes: SizeLaw,
    objects: u64,
    segment_bytes: u32,
}

impl Collection {
    /// The objects of `plan`.
    ///
    /// # Errors
    /// A value is out of range, or a segment does not fit into a packet.
    pub fn new(plan: &Names) -> Result<Self, WorkloadError> {
        let naming = Naming::new(&plan.prefix, plan.components)?;
        let overhead = naming.value_len(u64::MAX, u64::MAX) + DATA_OVERHEAD_MAX;
        let room = PACKET_SIZE_MAX.saturating_sub(overhead).min(ContentKey::BYTES_MAX);
        if plan.segment_bytes == 0 || plan.segment_bytes as usize > room {
            let problem = format!(
                "is {}; with such names a packet has room for 1 to {room} octets of content",
                plan.segment_bytes
            );
            return Err(WorkloadError::value("segment_bytes", problem));
        }
        let sizes = SizeLaw::new(&plan.sizes, naming.prefix_key())?;
        let objects = plan.popularity.object_count();
        Ok(Self { naming, sizes, objects, segment_bytes: plan.segment_bytes })
    }

    /// Their names.
    pub fn naming(&self) -> &Naming {
        &self.naming
    }

    /// How many objects there are.
    pub fn object_count(&self) -> u64 {
        self.objects
    }

    /// Octets of an object.
    #[inline]
    pub fn object_bytes(&self, object: u64) -> u64 {
        self.sizes.bytes(object)
    }

    /// Segments of an object, at least 1.
    #[inline]
    pub fn segment_count(&self, object: u64) -> u64 {
        segments_of(self.object_bytes(object), self.segment_bytes)
    }

    /// Octets of content of a segment; 0 beyond the last.
    #[inline]
    pub fn content_bytes(&self, object: u64, segment: u64) -> usize {
        let object_bytes = self.object_bytes(object);
        let start = segment.saturating_mul(u64::from(self.segment_bytes));
        object_bytes.saturating_sub(start).min(u64::from(self.segment_bytes)) as usize
    }

    /// Writes the content of a segment, as much of it as `out` has room for.
    ///
    /// # Panics
    /// When `out` is longer than any content.
    #[inline]
    pub fn fill(&self, object: u64, segment: u64, out: &mut [u8]) {
        self.key(object, segment).fill(out);
    }

    /// Checks that a Data of this name is the one that the producer makes.
    ///
    /// # Errors
    /// What is wrong with it.
    #[inline]
    pub fn check(&self, object: u64, segment: u64, data: &DataView<'_>) -> Result<(), WrongData> {
        let expected = self.content_bytes(object, segment);
        if data.content.len() != expected {
            return Err(WrongData::Length { found: data.content.len(), expected });
        }
        if let Some(at) = self.key(object, segment).first_difference(data.content) {
            return Err(WrongData::Octet { at, len: expected });
        }
        let last = data.final_block_id.and_then(|component| component.as_segment());
        let expected = self.segment_count(object) - 1;
        if last != Some(expected) || data.content_type != 0 {
            return Err(WrongData::Meta { found: last, expected });
        }
        Ok(())
    }

    #[inline]
    fn key(&self, object: u64, segment: u64) -> ContentKey {
        ContentKey::new(self.naming.stem_key(), object, segment)
    }
}

fn segments_of(object_bytes: u64, segment_bytes: u32) -> u64 {
    object_bytes.div_ceil(u64::from(segment_bytes)).max(1)
}

/// What is wrong with a Data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongData {
    /// There are more or fewer octets of content than were produced.
    #[error("{found} octets of content instead of {expected}")]
    Length {
        /// Octets that came.
        found: usize,
        /// Octets that were produced.
        expected: usize,
    },
    /// The content differs.
    #[error("octet {at} of {len} octets of content is wrong")]
    Octet {
        /// The first that does.
        at: usize,
        /// Octets of content.
        len: usize,
    },
    /// FinalBlockId or ContentType differs.
    #[error("it is no blob, or its last segment is {found:?} instead of {expected}")]
    Meta {
        /// FinalBlockId that came.
        found: Option<u64>,
        /// FinalBlockId that was produced.
        expected: u64,
    },
}
