use crate::limits::PACKET_SIZE_MAX;
use crate::lp::LP_PREFIX_MAX;
use crate::tlv;

/// Why the rest of a stream of packets cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A packet would start with an octet that is not the type of Interest, Data or LpPacket.
    #[error("a packet cannot start with octet {0:#04x}")]
    UnexpectedType(u8),
    /// The packet would exceed the limit.
    #[error("a packet of {0} octets exceeds the limit")]
    TooLong(u64),
}

/// Largest LpPacket on a stream: the largest packet and its link headers.
const LP_FRAME_SIZE_MAX: u64 = (PACKET_SIZE_MAX + LP_PREFIX_MAX) as u64;

/// The total length of the packet at the start of `octets`, a part of a stream. `None` if more
/// octets are needed.
///
/// An Interest or Data may have [`PACKET_SIZE_MAX`] octets. An LpPacket may have [`LP_PREFIX_MAX`]
/// more, because even the largest Data gets a PIT token. Framing also accepts a length that is not
/// in its shortest form; the decoder then rejects the packet.
///
/// # Errors
/// [`FrameError`] if framing is lost. The stream cannot be used any more.
#[inline]
pub fn peek_frame(octets: &[u8]) -> Result<Option<usize>, FrameError> {
    let Some(&typ) = octets.first() else { return Ok(None) };
    let limit = match u32::from(typ) {
        tlv::INTEREST | tlv::DATA => PACKET_SIZE_MAX as u64,
        tlv::LP_PACKET => LP_FRAME_SIZE_MAX,
        _ => return Err(FrameError::UnexpectedType(typ)),
    };
    let (length, size) = match octets[1..] {
        [a, ..] if a < 253 => (u64::from(a), 1),
        [253, a, b, ..] => (u64::from(u16::from_be_bytes([a, b])), 3),
        [254, a, b, c, d, ..] => (u64::from(u32::from_be_bytes([a, b, c, d])), 5),
        [255, a, b, c, d, e, f, g, h, ..] => (u64::from_be_bytes([a, b, c, d, e, f, g, h]), 9),
        _ => return Ok(None),
    };
    let total = length.saturating_add(1 + size);
    if total > limit { Err(FrameError::TooLong(total)) } else { Ok(Some(total as usize)) }
}
