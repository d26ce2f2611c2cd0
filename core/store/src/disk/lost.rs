//! Segments that memory and disks have lost.

use alloc::vec::Vec;
use weir_wire::{DataView, Name};

/// Segments that are listed until they are taken.
const SEGMENTS_MAX: usize = 1 << 11;
/// Octets of the name of a segment that is listed.
const NAME_BYTES_MAX: usize = 256;

/// A segment of which neither memory nor a disk has a copy any more, through no decision of a
/// policy.
#[derive(Clone, Debug)]
pub struct LostSegment {
    pub object: Name,
    pub segment: u64,
    /// That of the last segment of the object, if the Data says.
    pub last_segment: Option<u64>,
}

/// The segments that were lost since they were last taken, as far as they are few.
#[derive(Default)]
pub(crate) struct LostSegments(Vec<LostSegment>);

impl LostSegments {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self) -> Vec<LostSegment> {
        core::mem::take(&mut self.0)
    }

    /// Lists the segment that a Data is, if it is one.
    #[cold]
    pub(crate) fn add(&mut self, packet: &[u8]) {
        if self.0.len() >= SEGMENTS_MAX {
            return;
        }
        let Ok(data) = DataView::decode(packet) else { return };
        let Some(segment) = data.name.last().and_then(|last| last.as_segment()) else { return };
        if data.name.value().len() > NAME_BYTES_MAX {
            return;
        }
        let last_segment = data.final_block_id().and_then(|last| last.as_segment());
        let object = data.name.parent().to_name();
        self.0.push(LostSegment { object, segment, last_segment });
    }
}
