//! Pads datagrams of similar length to the same length. With GSO, the kernel cuts one message into
//! datagrams of equal length only. ECDSA signatures vary in length, so Data of one object differ by
//! a byte or two.

use weir_link::Frame;
use weir_wire::{PADDING_MAX, PADDING_MIN, pad_prefix, tlv};

use crate::mmsg::IO_SLICES_MAX;

/// Frames considered per call. Each has two slices: header and packet.
const FRAMES_MAX: usize = IO_SLICES_MAX / 2;
/// Shorter packets are not padded: padding would be a large fraction of them.
const PACKET_BYTES_MIN: usize = 512;
/// Frames whose lengths differ by more than this are not padded.
const LENGTHS_DIFFER_MAX: usize = 8;

const _: () = assert!(PADDING_MIN + LENGTHS_DIFFER_MAX <= PADDING_MAX);

/// Replacement link headers, with padding, for some frames.
#[derive(Debug, Default)]
pub(crate) struct Padding {
    octets: Vec<u8>,
    /// End of each frame's header; it starts where the previous one ends. Empty: the frame keeps
    /// its header.
    ends: Vec<usize>,
}

/// The length of a Data frame that can be padded. Bare packets stay bare: their receiver may not
/// support link headers.
fn len_of(frame: &Frame, frame_max: usize) -> Option<usize> {
    let payload = frame.payload();
    let can_grow = !frame.prefix().is_empty()
        && payload.len() >= PACKET_BYTES_MIN
        && u32::from(payload[0]) == tlv::DATA
        && frame.len() + PADDING_MIN <= frame_max;
    can_grow.then(|| frame.len())
}

impl Padding {
    /// Decides which of the first frames are padded. A padded frame has at most `frame_max` bytes.
    pub(crate) fn plan<'a>(
        &mut self,
        frames: impl Iterator<Item = &'a Frame> + Clone,
        frame_max: usize,
    ) {
        self.octets.clear();
        self.ends.clear();
        let mut left = frames.take(if frame_max > 0 { FRAMES_MAX } else { 0 });
        loop {
            let first = left.clone();
            let Some(frame) = left.next() else { return };
            let Some(len) = len_of(frame, frame_max) else {
                self.ends.push(self.octets.len());
                continue;
            };
            let (mut count, mut least, mut most) = (1, len, len);
            // A group is a run already if its frames have equal length. The last may be shorter.
            let mut is_run = true;
            let next = |left: &std::iter::Take<_>| {
                let mut left: std::iter::Take<_> = left.clone();
                left.next().and_then(|frame| len_of(frame, frame_max))
            };
            // Extend the group while all lengths are similar.
            while let Some(len) = next(&left)
                && len.max(most) - len.min(least) <= LENGTHS_DIFFER_MAX
            {
                is_run &= least == most && len <= most;
                (count, least, most) = (count + 1, least.min(len), most.max(len));
                left.next();
            }
            for frame in first.take(count) {
                if !is_run {
                    let by = most + PADDING_MIN - frame.len();
                    pad_prefix(frame.prefix(), frame.payload().len(), by, &mut self.octets);
                }
                self.ends.push(self.octets.len());
            }
        }
    }

    /// The header of a frame: padded, or `prefix`.
    pub(crate) fn prefix_of<'a>(&'a self, index: usize, prefix: &'a [u8]) -> &'a [u8] {
        let Some(&end) = self.ends.get(index) else { return prefix };
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        if start == end { prefix } else { &self.octets[start..end] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::Packet;
    use weir_wire::lp::{LP_PREFIX_MAX, LpFraming, LpHeader, PitToken};

    const HEADER_BYTES: usize = 4 + 2 + 4 + 4;

    fn frame(len: usize, typ: u8, has_header: bool) -> Frame {
        let packet = Packet::from(vec![typ; len]);
        if !has_header {
            return Frame::bare(packet);
        }
        let header = LpHeader { pit_token: PitToken::new(b"1234").unwrap(), ..LpHeader::default() };
        let mut prefix = [0; LP_PREFIX_MAX];
        let prefix_len = header.encode_prefix(&LpFraming::BARE, len, &mut prefix);
        Frame::new(&prefix[..prefix_len], packet)
    }

    /// How many bytes of padding each frame gets.
    fn padding_added(frames: &[Frame], frame_max: usize) -> Vec<usize> {
        let mut padding = Padding::default();
        padding.plan(frames.iter(), frame_max);
        let prefix_len = |(index, frame): (usize, &Frame)| {
            padding.prefix_of(index, frame.prefix()).len() - frame.prefix().len()
        };
        frames.iter().enumerate().map(prefix_len).collect()
    }

    fn data(lens: &[usize]) -> Vec<Frame> {
        lens.iter().map(|&len| frame(len, 6, true)).collect()
    }

    #[test]
    fn pads_data_to_equal_length() {
        assert_eq!(padding_added(&data(&[4000, 4002, 4001]), 8800), [6, 4, 5]);
        assert_eq!(padding_added(&data(&[4000, 4008]), 8800), [12, 4]);
        assert_eq!(padding_added(&data(&[512, 513]), 8800), [5, 4]);
        // Up to the largest possible length.
        let most = 8800 - HEADER_BYTES - PADDING_MIN;
        assert_eq!(padding_added(&data(&[most - 2, most]), 8800), [6, 4]);
    }

    #[test]
    fn leaves_other_frames_unpadded() {
        assert_eq!(padding_added(&data(&[4000, 4000, 4000]), 8800), [0; 3]);
        // The last frame of a message may be shorter.
        assert_eq!(padding_added(&data(&[4002, 4002, 4000]), 8800), [0; 3]);
        assert_eq!(padding_added(&data(&[4000, 4009]), 8800), [0; 2]);
        assert_eq!(padding_added(&data(&[510, 511]), 8800), [0; 2]);
        assert_eq!(padding_added(&data(&[4000, 4002]), 0), [0; 2]);
        let interests = [frame(600, 5, true), frame(602, 5, true)];
        assert_eq!(padding_added(&interests, 8800), [0; 2]);
        // A frame that is too long for padding does not affect others. A bare one stays bare.
        let most = 1420 - HEADER_BYTES - PADDING_MIN;
        assert_eq!(padding_added(&data(&[most - 2, most, most + 1]), 1420), [6, 4, 0]);
        let mut mixed = data(&[4000, 4002, 4000, 4002]);
        mixed.insert(2, frame(4001, 6, false));
        assert_eq!(padding_added(&mixed, 8800), [6, 4, 0, 6, 4]);
    }

    #[test]
    fn pads_only_first_frames() {
        let lens: Vec<usize> = (0..FRAMES_MAX + 3).map(|index| 600 + index % 2).collect();
        let grown = padding_added(&data(&lens), 8800);
        assert!(grown[..FRAMES_MAX].iter().all(|&by| by > 0));
        assert_eq!(grown[FRAMES_MAX..], [0; 3]);
    }
}
