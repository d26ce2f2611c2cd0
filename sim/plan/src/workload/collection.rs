//! Numbered objects: their names, sizes and content.

use weir_wire::{DataView, PACKET_SIZE_MAX};

use super::content::ContentKey;
use super::sizes::SizeLaw;
use super::{LiveChannels, Names, Naming, Popularity, WorkloadError};

/// Upper bound on the bytes of a Data packet other than content and name.
pub(crate) const DATA_OVERHEAD_MAX: usize = 64;

/// The objects of a [`Names`]. Consumers and producers with the same prefix, components, sizes and
/// `segment_bytes` agree on every byte.
#[derive(Clone, Debug)]
pub struct Collection {
    naming: Naming,
    sizes: SizeLaw,
    objects: u64,
    segment_bytes: u32,
    live: Option<LiveChannels>,
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
                "is {}; with such names a packet holds 1 to {room} bytes of content",
                plan.segment_bytes
            );
            return Err(WorkloadError::value("segment_bytes", problem));
        }
        let sizes = SizeLaw::new(&plan.sizes, naming.prefix_key())?;
        let objects = plan.popularity.object_count();
        let live = LiveChannels::new(plan)?;
        Ok(Self { naming, sizes, objects, segment_bytes: plan.segment_bytes, live })
    }

    /// Checks that a trace requests only segments that exist. Other popularities do so by
    /// construction.
    pub(crate) fn check_trace(&self, popularity: &Popularity) -> Result<(), WorkloadError> {
        let Popularity::Trace { requests } = popularity else { return Ok(()) };
        for (place, &(object, segment)) in requests.iter().enumerate() {
            let segments = self.shape(object).segments;
            if segment >= segments {
                let problem = format!(
                    "has segment {segment} of object {object} as request {place}, but that object \
                     has only {segments}; make objects larger or segment_bytes smaller"
                );
                return Err(WorkloadError::value("trace", problem));
            }
        }
        Ok(())
    }

    pub fn naming(&self) -> &Naming {
        &self.naming
    }

    /// Number of objects; of live channels, their number.
    pub fn object_count(&self) -> u64 {
        self.objects
    }

    pub(crate) fn live(&self) -> Option<&LiveChannels> {
        self.live.as_ref()
    }

    /// How an object is divided into segments.
    #[inline]
    pub fn shape(&self, object: u64) -> ObjectShape {
        let bytes = self.sizes.bytes(object);
        let segments = bytes.div_ceil(u64::from(self.segment_bytes)).max(1);
        ObjectShape { bytes, segments, segment_bytes: self.segment_bytes }
    }

    /// Writes the content of a segment into `out`, up to the length of `out`.
    ///
    /// # Panics
    /// `out` is longer than any content.
    #[inline]
    pub(crate) fn fill(&self, object: u64, segment: u64, out: &mut [u8]) {
        self.key(object, segment).fill(out);
    }

    /// Checks that a Data of this name equals what the producer generates.
    ///
    /// # Errors
    /// The first difference.
    #[inline]
    pub(crate) fn check(
        &self,
        object: u64,
        segment: u64,
        data: &DataView<'_>,
    ) -> Result<(), ContentError> {
        let shape = self.shape(object);
        let expected = shape.content_bytes(segment);
        if data.content.len() != expected {
            return Err(ContentError::Length { found: data.content.len(), expected });
        }
        if let Some(at) = self.key(object, segment).first_difference(data.content) {
            return Err(ContentError::Octet { at, len: expected });
        }
        let last = data.final_block_id().and_then(|component| component.as_segment());
        let expected = shape.last_segment();
        if last != Some(expected) || data.content_type != 0 {
            return Err(ContentError::Meta { found: last, expected });
        }
        Ok(())
    }

    #[inline]
    fn key(&self, object: u64, segment: u64) -> ContentKey {
        ContentKey::new(self.naming.stem_key(), object, segment)
    }
}

/// How an object is divided into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectShape {
    pub bytes: u64,
    /// Number of segments, at least 1.
    pub segments: u64,
    segment_bytes: u32,
}

impl ObjectShape {
    #[inline]
    pub fn last_segment(self) -> u64 {
        self.segments - 1
    }

    /// Content bytes of a segment; 0 after the last.
    #[inline]
    pub(crate) fn content_bytes(self, segment: u64) -> usize {
        let start = segment.saturating_mul(u64::from(self.segment_bytes));
        self.bytes.saturating_sub(start).min(u64::from(self.segment_bytes)) as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ContentError {
    /// The content has a wrong length.
    #[error("{found} bytes of content instead of {expected}")]
    Length {
        /// Bytes received.
        found: usize,
        /// Bytes produced.
        expected: usize,
    },
    /// The content differs.
    #[error("byte {at} of {len} bytes of content is wrong")]
    Octet {
        at: usize,
        /// Bytes of content.
        len: usize,
    },
    /// FinalBlockId or ContentType differs.
    #[error("its content type is not blob, or its last segment is {found:?} instead of {expected}")]
    Meta {
        /// FinalBlockId received.
        found: Option<u64>,
        /// FinalBlockId produced.
        expected: u64,
    },
}
