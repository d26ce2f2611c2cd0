use alloc::vec::Vec;

use weir_base::{Packet, PacketMut, Pool};
use weir_wire::Name;

use super::{Frame, SegmentTemplate};

/// The signature values of an object's segments, without gaps.
#[derive(Clone, Debug, Default)]
pub struct Signatures {
    octets: Vec<u8>,
    lens: Vec<u16>,
    stride: usize,
}

impl Signatures {
    /// The signature values of the segments from 0 on.
    ///
    /// # Panics
    /// One has 64 KiB or more.
    pub fn new<'a>(all: impl Iterator<Item = &'a [u8]> + Clone) -> Self {
        let stride = all.clone().map(<[u8]>::len).max().unwrap_or(0);
        let count = all.clone().count();
        let mut signatures = Self {
            octets: Vec::with_capacity(count * stride),
            lens: Vec::with_capacity(count),
            stride,
        };
        for signature in all {
            signatures.lens.push(u16::try_from(signature.len()).expect("a signature is short"));
            signatures.octets.extend_from_slice(signature);
            signatures.octets.resize(signatures.lens.len() * stride, 0);
        }
        signatures
    }

    fn of(&self, segment: u64) -> &[u8] {
        let index = segment as usize;
        &self.octets[index * self.stride..][..usize::from(self.lens[index])]
    }
}

/// An object without its Content: the bytes around the Content of each segment, and the packets
/// that lead to the segments.
#[derive(Clone, Debug)]
pub struct SealedObject {
    /// Name of the version, right above its segments.
    pub versioned: Name,
    /// The bytes around the Content of a segment.
    pub template: SegmentTemplate,
    /// One per segment.
    pub signatures: Signatures,
    /// Bytes of Content in each segment but the last.
    pub segment_size: u64,
    pub size_bytes: u64,
    pub packets: Vec<Packet>,
}

impl SealedObject {
    pub fn segments(&self) -> u64 {
        self.signatures.lens.len() as u64
    }

    /// Bytes of a segment's Content, and their offset in the object.
    fn content(&self, segment: u64) -> (usize, u64) {
        let offset = segment * self.segment_size;
        ((self.size_bytes - offset).min(self.segment_size) as usize, offset)
    }

    /// A block with a segment except its Content, and the Content's offset in the object. The
    /// driver fills in [`Frame::content`] and freezes [`Frame::len`] bytes.
    ///
    /// # Panics
    /// The segment does not exist.
    pub fn frame(&self, segment: u64, pool: &mut Pool) -> (PacketMut, Frame, u64) {
        let (content_len, offset) = self.content(segment);
        let signature = self.signatures.of(segment);
        let mut block = pool.alloc(self.template.frame(segment, content_len, signature.len()).len);
        let frame = self.template.write(segment, content_len, signature, &mut block);
        (block, frame, offset)
    }

    /// As [`SealedObject::frame`], written to the start of `out`.
    ///
    /// # Panics
    /// The segment does not exist, or `out` is too short.
    pub fn write(&self, segment: u64, out: &mut [u8]) -> (Frame, u64) {
        let (content_len, offset) = self.content(segment);
        (self.template.write(segment, content_len, self.signatures.of(segment), out), offset)
    }

    /// Upper bound of the bytes of a segment's packet.
    pub fn packet_bytes_max(&self) -> u64 {
        let (content_len, _) = self.content(0);
        let last = self.segments().saturating_sub(1);
        self.template.frame(last, content_len, self.signatures.stride).len as u64
    }
}
