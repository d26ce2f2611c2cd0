use crate::limits::PACKET_SIZE_MAX;
use crate::lp::LP_PREFIX_MAX;
use crate::tlv;

/// Why a stream of TLVs cannot be followed any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The octet where a packet should start is not the type of Interest, Data or LpPacket.
    #[error("a packet cannot start with octet {0:#04x}")]
    UnexpectedType(u8),
    /// The packet would be longer than a packet may be.
    #[error("a packet of {0} octets exceeds the limit")]
    TooLong(u64),
}

/// Largest LpPacket on a stream: the largest packet and its link headers.
const LP_FRAME_SIZE_MAX: u64 = (PACKET_SIZE_MAX + LP_PREFIX_MAX) as u64;

/// The total length of the packet that starts at the first of `octets`, a stretch of a stream.
///
/// `None` asks for more octets. An Interest or Data may have [`PACKET_SIZE_MAX`] octets; an
/// LpPacket [`LP_PREFIX_MAX`] more, because a largest Data still gets its PIT token. Whether the
/// length is in its shortest form is left to the decoder: framing survives that.
///
/// # Errors
/// [`FrameError`] when framing is lost: the stream is of no more use.
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
