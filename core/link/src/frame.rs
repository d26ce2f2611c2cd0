use alloc::vec::Vec;
use core::fmt;

use weir_base::{Packet, Pool};

/// Longest header that a [`Frame`] stores apart from its packet, in bytes. It fits fragment fields
/// with a PIT token of 32 bytes and a congestion mark. A longer header is copied together with the
/// packet.
pub(crate) const FRAME_PREFIX_MAX: usize = 71;

/// One frame ready to be sent: header bytes, then payload bytes.
#[derive(Clone)]
pub struct Frame {
    prefix: [u8; FRAME_PREFIX_MAX],
    prefix_len: u8,
    payload: Packet,
    /// The TxSequence of the frame, or [`UNNUMBERED`].
    tx_sequence: u64,
}

/// No frame ever has this number.
const UNNUMBERED: u64 = u64::MAX;

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

    /// A frame without an LpPacket header.
    pub fn bare(payload: Packet) -> Self {
        Self { prefix: [0; FRAME_PREFIX_MAX], prefix_len: 0, payload, tx_sequence: UNNUMBERED }
    }

    /// The same frame with a TxSequence.
    pub(crate) fn numbered(self, tx_sequence: u64) -> Self {
        Self { tx_sequence, ..self }
    }

    /// The TxSequence of the frame, if it has one.
    pub(crate) fn tx_sequence(&self) -> Option<u64> {
        Some(self.tx_sequence).filter(|&number| number != UNNUMBERED)
    }

    /// The bytes to send first; empty for a bare packet.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix[..usize::from(self.prefix_len)]
    }

    /// The bytes to send after the prefix.
    pub fn payload(&self) -> &Packet {
        &self.payload
    }

    /// The payload if there is no prefix: all bytes of the frame, without a copy.
    ///
    /// # Errors
    /// Returns the frame if it has a prefix.
    pub fn into_bare(self) -> Result<Packet, Self> {
        if self.prefix_len == 0 { Ok(self.payload) } else { Err(self) }
    }

    /// Size on the wire in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        usize::from(self.prefix_len) + self.payload.len()
    }

    pub(crate) fn detach(&mut self, pool: &mut Pool) {
        detach(&mut self.payload, pool);
    }
}

/// Copies a payload out of its block if the block is more than twice as large. This frees the
/// block.
pub(crate) fn detach(payload: &mut Packet, pool: &mut Pool) {
    if payload.block_bytes() > 2 * Pool::footprint(payload.len()) {
        *payload = pool.copy(payload);
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
