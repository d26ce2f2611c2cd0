use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use weir_base::{Packet, Pool};

/// Longest header a [`Frame`] keeps apart from its packet, in octets. Fragment fields with a PIT
/// token of 32 octets and a congestion mark fit; anything longer is joined with the packet by
/// copying.
pub const FRAME_PREFIX_MAX: usize = 71;

/// What a queued frame is charged beside its own octets, so that a queue of tiny packets is bounded
/// too.
const FRAME_CHARGE_BYTES: u64 = 96;

/// A payload up to this size is worth copying to set free the receive block it lies in.
const DETACH_BYTES_MAX: usize = 512;

/// One frame ready to be sent: header octets, then payload octets.
#[derive(Clone)]
pub struct Frame {
    prefix: [u8; FRAME_PREFIX_MAX],
    prefix_len: u8,
    payload: Packet,
}

impl Frame {
    /// A frame of `prefix` followed by `payload`.
    pub fn new(prefix: &[u8], payload: Packet) -> Self {
        if prefix.len() > FRAME_PREFIX_MAX {
            let mut joined = Vec::with_capacity(prefix.len() + payload.len());
            joined.extend_from_slice(prefix);
            joined.extend_from_slice(&payload);
            return Self::bare(Packet::from(joined));
        }
        let mut frame = Self::bare(payload);
        frame.prefix[..prefix.len()].copy_from_slice(prefix);
        frame.prefix_len = prefix.len() as u8;
        frame
    }

    /// A frame without LpPacket header.
    pub fn bare(payload: Packet) -> Self {
        Self { prefix: [0; FRAME_PREFIX_MAX], prefix_len: 0, payload }
    }

    /// The octets to send first; empty for a bare packet.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix[..usize::from(self.prefix_len)]
    }

    /// The octets to send after the prefix.
    pub fn payload(&self) -> &Packet {
        &self.payload
    }

    /// The payload, when there is no prefix: all octets of the frame, without a copy.
    ///
    /// # Errors
    /// The frame, when it has a prefix.
    pub fn into_bare(self) -> Result<Packet, Self> {
        if self.prefix_len == 0 { Ok(self.payload) } else { Err(self) }
    }

    /// Octets on the wire.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        usize::from(self.prefix_len) + self.payload.len()
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("prefix", &self.prefix())
            .field("payload_len", &self.payload.len())
            .finish()
    }
}

/// The egress queue. Its octets on the wire and its charge in memory are counted apart: marking
/// goes by the former as NFD does, the bound by the latter.
#[derive(Debug, Default)]
pub(crate) struct Egress {
    frames: VecDeque<Frame>,
    wire_bytes: u64,
    charged_bytes: u64,
    /// So many frames at the front hold no receive block for the sake of a small packet.
    detached: usize,
}

impl Egress {
    pub(crate) fn charge_of(wire_len: usize) -> u64 {
        wire_len as u64 + FRAME_CHARGE_BYTES
    }

    pub(crate) fn push(&mut self, frame: Frame) {
        self.wire_bytes += frame.len() as u64;
        self.charged_bytes += Self::charge_of(frame.len());
        self.frames.push_back(frame);
    }

    pub(crate) fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_front()?;
        self.wire_bytes -= frame.len() as u64;
        self.charged_bytes -= Self::charge_of(frame.len());
        self.detached = self.detached.saturating_sub(1);
        Some(frame)
    }

    pub(crate) fn frames(&self) -> &VecDeque<Frame> {
        &self.frames
    }

    pub(crate) fn wire_bytes(&self) -> u64 {
        self.wire_bytes
    }

    pub(crate) fn charged_bytes(&self) -> u64 {
        self.charged_bytes
    }

    pub(crate) fn detach_small(&mut self, pool: &mut Pool) {
        for frame in self.frames.iter_mut().skip(self.detached) {
            if frame.payload.len() <= DETACH_BYTES_MAX {
                frame.payload = pool.copy(&frame.payload);
            }
        }
        self.detached = self.frames.len();
    }
}
