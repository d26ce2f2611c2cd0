//! Identities of video segments, for viewers to check what they receive.
//!
//! A stamp is a null packet (PID 0x1FFF) of the MPEG transport stream, which players skip. It is
//! the first packet of a segment:
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 3 | header of a null packet |
//! | 4 to 7 | `WEIR` |
//! | 8 to 11 | channel |
//! | 12 to 15 | quality |
//! | 16 to 23 | number of the segment |
//! | 24 to 31 | length of the rest of the segment |
//! | 32 to 35 | CRC-32C of the rest |
//! | 36 to 187 | 0xFF |
//!
//! All numbers are big-endian.

use crc_fast::{CrcAlgorithm, Digest};

/// Length of a packet of a transport stream.
pub(super) const PACKET_BYTES: usize = 188;
const SYNC_BYTE: u8 = 0x47;
/// PID 0x1FFF, payload only, continuity counter 0.
const NULL_HEADER: [u8; 4] = [SYNC_BYTE, 0x1F, 0xFF, 0x10];
const MAGIC: [u8; 4] = *b"WEIR";
const CHECKSUM: CrcAlgorithm = CrcAlgorithm::Crc32Iscsi;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// From 0, the most popular one.
    pub(super) channel: u32,
    /// From 0, the lowest one.
    pub(super) quality: u32,
    pub(super) number: u64,
}

/// Length and checksum of a segment without its stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    len: u64,
    checksum: u32,
}

impl Content {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let checksum = crc_fast::checksum(CHECKSUM, bytes) as u32;
        Self { len: bytes.len() as u64, checksum }
    }
}

impl Stamp {
    /// The packet that goes before `content`.
    pub(super) fn packet(self, content: Content) -> [u8; PACKET_BYTES] {
        let mut packet = [0xFF; PACKET_BYTES];
        packet[..4].copy_from_slice(&NULL_HEADER);
        packet[4..8].copy_from_slice(&MAGIC);
        packet[8..12].copy_from_slice(&self.channel.to_be_bytes());
        packet[12..16].copy_from_slice(&self.quality.to_be_bytes());
        packet[16..24].copy_from_slice(&self.number.to_be_bytes());
        packet[24..32].copy_from_slice(&content.len.to_be_bytes());
        packet[32..36].copy_from_slice(&content.checksum.to_be_bytes());
        packet
    }

    /// Reads a packet; `None` if it is no stamp.
    fn read(packet: &[u8; PACKET_BYTES]) -> Option<(Self, Content)> {
        let word = |at: usize| u32::from_be_bytes(*packet[at..].first_chunk().expect("4 bytes"));
        let long = |at: usize| u64::from_be_bytes(*packet[at..].first_chunk().expect("8 bytes"));
        if packet[..4] != NULL_HEADER || packet[4..8] != MAGIC {
            return None;
        }
        let stamp = Self { channel: word(8), quality: word(12), number: long(16) };
        Some((stamp, Content { len: long(24), checksum: word(32) }))
    }
}

/// Checks a segment while it arrives.
pub(super) struct SegmentCheck {
    first: [u8; PACKET_BYTES],
    len: usize,
    rest: Digest,
    has_lost_sync: bool,
}

impl SegmentCheck {
    pub(super) fn new() -> Self {
        Self { first: [0; PACKET_BYTES], len: 0, rest: Digest::new(CHECKSUM), has_lost_sync: false }
    }

    /// Adds the next bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        let to_next_packet = self.len.next_multiple_of(PACKET_BYTES) - self.len;
        let mut starts = bytes.iter().skip(to_next_packet).step_by(PACKET_BYTES);
        self.has_lost_sync |= starts.any(|&byte| byte != SYNC_BYTE);
        let missing = PACKET_BYTES.saturating_sub(self.len).min(bytes.len());
        let (head, rest) = bytes.split_at(missing);
        if missing > 0 {
            self.first[self.len..self.len + missing].copy_from_slice(head);
        }
        self.rest.update(rest);
        self.len += bytes.len();
    }

    /// The stamp of the whole segment; `None` if it has no stamp.
    ///
    /// # Errors
    /// It is no transport stream, or not the content that was stamped.
    pub(super) fn finish(self) -> Result<Option<Stamp>, &'static str> {
        if self.len == 0 || !self.len.is_multiple_of(PACKET_BYTES) {
            return Err("it has another length than a transport stream");
        }
        if self.has_lost_sync {
            return Err("a packet of the transport stream does not begin with 0x47");
        }
        let Some((stamp, content)) = Stamp::read(&self.first) else { return Ok(None) };
        let came = Content {
            len: (self.len - PACKET_BYTES) as u64,
            checksum: self.rest.finalize() as u32,
        };
        if came == content { Ok(Some(stamp)) } else { Err("it has other bytes than were stamped") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { channel: 47, quality: 3, number: 1 << 40 };

    /// A stamped segment with three packets after the stamp.
    fn segment() -> Vec<u8> {
        let mut rest = vec![7; 3 * PACKET_BYTES];
        rest.iter_mut().step_by(PACKET_BYTES).for_each(|byte| *byte = SYNC_BYTE);
        [&STAMP.packet(Content::of(&rest))[..], &rest].concat()
    }

    fn check(pieces: &[&[u8]]) -> Result<Option<Stamp>, &'static str> {
        let mut check = SegmentCheck::new();
        pieces.iter().for_each(|piece| check.update(piece));
        check.finish()
    }

    #[test]
    fn reads_stamps_from_pieces_of_any_size() {
        let segment = segment();
        for size in [1, 2, 187, 188, 189, 500, segment.len()] {
            let pieces: Vec<&[u8]> = segment.chunks(size).collect();
            assert_eq!(check(&pieces), Ok(Some(STAMP)), "pieces of {size}");
        }
    }

    #[test]
    fn each_wrong_byte_is_found() {
        for at in 0..segment().len() {
            let mut segment = segment();
            segment[at] ^= 1;
            // A byte of the identity or of the filling changes no content.
            let is_identity = (8..24).contains(&at);
            let is_filling = (36..PACKET_BYTES).contains(&at);
            // Without its header, a stamp is an ordinary packet.
            let is_header = (1..8).contains(&at);
            match check(&[&segment]) {
                Ok(Some(stamp)) if is_identity => assert_ne!(stamp, STAMP, "byte {at}"),
                Ok(Some(stamp)) => assert!(is_filling && stamp == STAMP, "byte {at}"),
                Ok(None) => assert!(is_header, "byte {at}"),
                Err(_) => assert!(!is_identity && !is_filling && !is_header, "byte {at}"),
            }
        }
    }

    #[test]
    fn missing_and_additional_packets_are_found() {
        let segment = segment();
        for len in [0, 1, PACKET_BYTES, 3 * PACKET_BYTES, segment.len() - 1] {
            assert!(check(&[&segment[..len]]).is_err(), "{len} bytes");
        }
        assert!(check(&[&segment, &segment[PACKET_BYTES..]]).is_err());
    }

    #[test]
    fn stream_without_stamp_has_none() {
        assert_eq!(check(&[&segment()[PACKET_BYTES..]]), Ok(None));
    }
}
