//! Joins Interests of a face with hICN packets into Interest manifests.

use alloc::vec::Vec;

use weir_base::Packet;
use weir_hicn::{
    Flags, HEADER_SIZE, HicnView, INTEREST_MANIFEST_HEADER_SIZE, InterestManifest, SUFFIXES_MAX,
};

use crate::frame::Frame;

/// The fields of a packet that differ between the Interests of a manifest: suffix and checksum.
const VARYING: [core::ops::Range<usize>; 2] = [44..48, 56..58];

/// Joins the Interests at the beginning of `frames` that request packets of one address and are
/// otherwise equal. Returns their number, at least 2, and a frame of at most `mtu` bytes.
pub(crate) fn join_manifest<'a>(
    mut frames: impl Iterator<Item = &'a Frame>,
    mtu: usize,
) -> Option<(usize, Frame)> {
    let first = frames.next().filter(|frame| is_bare(frame))?;
    let view = HicnView::decode(first.prefix()).ok().filter(|view| !view.header.is_data())?;
    let room = mtu.saturating_sub(HEADER_SIZE + INTEREST_MANIFEST_HEADER_SIZE) / 4;
    let more = frames
        .take(room.min(SUFFIXES_MAX).saturating_sub(1))
        .take_while(|frame| is_bare(frame) && is_same(first.prefix(), frame.prefix()))
        .map_while(|frame| Some(HicnView::decode(frame.prefix()).ok()?.header.name.suffix));
    let mut suffixes = Vec::from([view.header.name.suffix]);
    suffixes.extend(more);
    if suffixes.len() < 2 {
        return None;
    }
    let mut payload = Vec::new();
    InterestManifest::encode(suffixes.iter().copied(), &mut payload);
    let mut header = view.header;
    header.flags = header.flags.with(Flags::MANIFEST);
    let mut octets = header.encode(&[&[], &payload]).ok()?.to_vec();
    octets.extend(payload);
    Some((suffixes.len(), Frame::bare(Packet::from(octets))))
}

/// Whether a frame is a packet without payload and authentication header.
fn is_bare(frame: &Frame) -> bool {
    frame.prefix().len() == HEADER_SIZE && frame.payload().is_empty()
}

fn is_same(first: &[u8], other: &[u8]) -> bool {
    let varies = |at: usize| VARYING.iter().any(|range| range.contains(&at));
    (0..HEADER_SIZE).all(|at| varies(at) || first[at] == other[at])
}
