//! Frames of WebSocket (RFC 6455, section 5), from bytes to messages and back, without a socket.

use std::io::{self, Cursor};
use std::ops::Range;

use tungstenite::protocol::Role;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};
use weir_base::{Packet, Pool};
use weir_wire::PACKET_SIZE_MAX;
use weir_wire::lp::LP_PREFIX_MAX;

use crate::status::WebSocketError;

/// Longest message: an LpPacket with the largest Data, as on a stream.
const MESSAGE_BYTES_MAX: usize = PACKET_SIZE_MAX + LP_PREFIX_MAX;
/// Longest payload of a control frame (RFC 6455, section 5.5).
const CONTROL_BYTES_MAX: usize = 125;
/// Longest header: two octets, a length of 8 octets, a mask.
const HEADER_BYTES_MAX: usize = 14;

/// A message, which should be one packet.
#[derive(Debug)]
pub(super) enum Message {
    /// One frame, with its payload at this position.
    Whole(Range<usize>),
    /// Several frames.
    Joined(Packet),
}

/// Why no later frame counts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The peer closes the WebSocket, with this code.
    Closed(Option<CloseCode>),
    Broken(WebSocketError),
}

/// What the frames at the start of a block were.
#[derive(Debug)]
pub(super) struct Decoded {
    /// The bytes of complete frames.
    pub(super) consumed: usize,
    pub(super) end: Option<End>,
}

/// Decodes the frames that one peer sends.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The role of this end.
    role: Role,
    /// The message whose last fragment has not arrived.
    fragments: Option<Vec<u8>>,
    /// Payload of the newest Ping. A Pong may answer all pings before it (RFC 6455, section 5.5.3).
    ping: Option<Vec<u8>>,
}

impl Decoder {
    pub(super) fn new(role: Role) -> Self {
        Self { role, fragments: None, ping: None }
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.fragments.as_ref().map_or(0, Vec::capacity)
    }

    pub(super) fn has_ping(&self) -> bool {
        self.ping.is_some()
    }

    /// Takes the payload of a Ping that must be answered.
    pub(super) fn take_ping(&mut self) -> Option<Vec<u8>> {
        self.ping.take()
    }

    /// Decodes the complete frames at the start of `octets`, and unmasks them in place. An
    /// incomplete frame stays as it is.
    pub(super) fn decode(
        &mut self,
        octets: &mut [u8],
        pool: &mut Pool,
        messages: &mut Vec<Message>,
    ) -> Decoded {
        let mut consumed = 0;
        let end = loop {
            let (header, payload) = match self.next_frame(&mut octets[consumed..]) {
                Ok(Some(frame)) => frame,
                Ok(None) => break None,
                Err(error) => break Some(End::Broken(error)),
            };
            let payload = consumed + payload.start..consumed + payload.end;
            consumed = payload.end;
            match header.opcode {
                OpCode::Data(_) if header.is_final && self.fragments.is_none() => {
                    messages.push(Message::Whole(payload));
                }
                OpCode::Data(_) => {
                    let joined = self.fragments.get_or_insert_default();
                    joined.extend_from_slice(&octets[payload]);
                    if header.is_final {
                        messages.push(Message::Joined(pool.copy(joined)));
                        self.fragments = None;
                    }
                }
                OpCode::Control(Control::Ping) => self.ping = Some(octets[payload].to_vec()),
                OpCode::Control(Control::Close) => {
                    let code = octets[payload].first_chunk().copied().map(u16::from_be_bytes);
                    break Some(End::Closed(code.map(CloseCode::from)));
                }
                OpCode::Control(_) => {}
            }
        };
        Decoded { consumed, end }
    }

    /// The first frame with the position of its unmasked payload; `None` if it is incomplete.
    #[inline]
    fn next_frame(
        &self,
        octets: &mut [u8],
    ) -> Result<Option<(FrameHeader, Range<usize>)>, WebSocketError> {
        let mut cursor = Cursor::new(&octets[..octets.len().min(HEADER_BYTES_MAX)]);
        let parsed = FrameHeader::parse(&mut cursor).map_err(|_| WebSocketError::Reserved)?;
        let Some((header, len)) = parsed else { return Ok(None) };
        let start = cursor.position() as usize;
        let end = start + self.check(&header, len)?;
        if end > octets.len() {
            return Ok(None);
        }
        if let Some(mask) = header.mask {
            apply_mask(&mut octets[start..end], mask);
        }
        Ok(Some((header, start..end)))
    }

    /// Checks a header before its payload arrives. Returns the length of the payload.
    fn check(&self, header: &FrameHeader, len: u64) -> Result<usize, WebSocketError> {
        if header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(WebSocketError::Reserved);
        }
        match (self.role, header.mask) {
            (Role::Server, None) => return Err(WebSocketError::Unmasked),
            (Role::Client, Some(_)) => return Err(WebSocketError::Masked),
            _ => {}
        }
        let begun = self.fragments.as_ref();
        let (bytes_max, error) = match header.opcode {
            OpCode::Control(_) if !header.is_final => return Err(WebSocketError::Control),
            OpCode::Control(_) => (CONTROL_BYTES_MAX, WebSocketError::Control),
            OpCode::Data(Data::Text) => return Err(WebSocketError::Text),
            // A message inside another one, or a fragment without a first one.
            OpCode::Data(data) if (data == Data::Continue) != begun.is_some() => {
                return Err(WebSocketError::Fragment);
            }
            OpCode::Data(_) => {
                (MESSAGE_BYTES_MAX - begun.map_or(0, Vec::len), WebSocketError::TooLong)
            }
        };
        usize::try_from(len).ok().filter(|&len| len <= bytes_max).ok_or(error)
    }
}

/// Appends a frame with a payload in two parts. The frames of a client have a random mask.
pub(super) fn encode(
    output: &mut Vec<u8>,
    role: Role,
    opcode: OpCode,
    parts: [&[u8]; 2],
) -> io::Result<()> {
    let mask = match role {
        Role::Server => None,
        // Unpredictable, so that no sender of packets can choose what a proxy on the way sees.
        Role::Client => Some(getrandom::u32().map_err(io::Error::other)?.to_ne_bytes()),
    };
    let header = FrameHeader { opcode, mask, ..FrameHeader::default() };
    let len = parts[0].len() + parts[1].len();
    header.format(len as u64, output).map_err(io::Error::other)?;
    let start = output.len();
    parts.iter().for_each(|part| output.extend_from_slice(part));
    if let Some(mask) = mask {
        apply_mask(&mut output[start..], mask);
    }
    Ok(())
}

/// Length of a data frame with this payload.
pub(super) fn encoded_len(role: Role, payload_bytes: usize) -> usize {
    let mask = (role == Role::Client).then_some([0; 4]);
    let header = FrameHeader { mask, ..FrameHeader::default() };
    header.len(payload_bytes as u64) + payload_bytes
}

/// Masks or unmasks a payload (RFC 6455, section 5.3).
fn apply_mask(octets: &mut [u8], mask: [u8; 4]) {
    let word = u32::from_ne_bytes(mask);
    let (words, rest) = octets.as_chunks_mut::<4>();
    for octets in words {
        *octets = (u32::from_ne_bytes(*octets) ^ word).to_ne_bytes();
    }
    for (octet, mask) in rest.iter_mut().zip(mask) {
        *octet ^= mask;
    }
}

#[cfg(test)]
mod tests;
