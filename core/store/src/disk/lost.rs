//! Segments that are neither in memory nor on a disk any more.

use alloc::vec::Vec;
use weir_wire::{DataView, Name};

/// Most segments listed until they are taken.
const SEGMENTS_MAX: usize = 1 << 11;
/// Most bytes of a listed segment's name.
const NAME_BYTES_MAX: usize = 256;

/// A segment that the store lost although no policy evicted it.
#[derive(Clone, Debug)]
pub struct LostSegment {
    pub object: Name,
    pub segment: u64,
    /// The number of the object's last segment, if the Data states it.
    pub last_segment: Option<u64>,
}

/// The segments lost since the list was last taken, up to a limit.
#[derive(Default)]
pub(crate) struct LostSegments(Vec<LostSegment>);

impl LostSegments {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self) -> Vec<LostSegment> {
        core::mem::take(&mut self.0)
    }

    /// Lists a lost Data packet, if it is a segment.
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
        let (object, last_segment) = (data.name.parent().to_name(), data.signed_last_segment());
        self.0.push(LostSegment { object, segment, last_segment });
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use weir_wire::{Component, Data, SignatureInfo, signature_type};

    use super::*;

    /// hICN's signature does not cover FinalBlockId: a router could make an object look longer.
    #[test]
    fn lists_last_segment_unless_hicn_signed() {
        let data = Data::new("/a/50=%07".parse().unwrap()).final_block_id(Component::segment(99));
        let mut lost = LostSegments::default();
        for typ in [0, signature_type::HICN] {
            lost.add(&data.encode_signed(&SignatureInfo::new(typ), |_| vec![0; 32]));
        }
        let found: Vec<_> = lost.take().iter().map(|it| (it.segment, it.last_segment)).collect();
        assert_eq!(found, [(7, Some(99)), (7, None)]);
    }
}
