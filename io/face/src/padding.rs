//! Which datagrams are made as long as their neighbours. The system cuts datagrams of one length
//! alone out of one message, and signatures of ECDSA make Data of one object differ by an octet or
//! two.

use weir_link::Frame;
use weir_wire::padding::{PADDED_PAYLOAD_MIN, PADDING_MAX, PADDING_MIN, pad_prefix};

/// Frames looked at for one call.
pub(crate) const FRAMES_MAX: usize = 256;
/// Frames whose lengths differ by more than this are left alone.
const LENGTHS_DIFFER_MAX: usize = 8;

const _: () = assert!(PADDING_MIN + LENGTHS_DIFFER_MAX <= PADDING_MAX);

/// Link headers in the place of those that frames have.
#[derive(Debug, Default)]
pub(crate) struct Padding {
    octets: Vec<u8>,
    /// Where the header of each frame ends; it begins where the one before ends. Empty: as it was.
    ends: Vec<usize>,
}

/// The length of a frame that can be made longer. Bare packets stay bare: who has never shown that
/// it knows link headers should not have to.
fn len_of(frame: &Frame) -> Option<usize> {
    let can_grow = !frame.prefix().is_empty() && frame.payload().len() >= PADDED_PAYLOAD_MIN;
    can_grow.then(|| frame.len())
}

impl Padding {
    /// Looks at the first of `frames`. None is made longer than `frame_max`.
    pub(crate) fn plan<'a>(
        &mut self,
        frames: impl Iterator<Item = &'a Frame> + Clone,
        frame_max: usize,
    ) {
        self.octets.clear();
        self.ends.clear();
        let mut left = frames.take(FRAMES_MAX);
        loop {
            let first = left.clone();
            let Some(frame) = left.next() else { return };
            let Some(len) = len_of(frame) else {
                self.ends.push(self.octets.len());
                continue;
            };
            let (mut count, mut least, mut most) = (1, len, len);
            while let Some(len) = left.clone().next().and_then(len_of)
                && len.max(most) - len.min(least) <= LENGTHS_DIFFER_MAX
            {
                (count, least, most) = (count + 1, least.min(len), most.max(len));
                left.next();
            }
            let padded = most + PADDING_MIN;
            for frame in first.take(count) {
                if least < most && padded <= frame_max {
                    let by = padded - frame.len();
                    pad_prefix(frame.prefix(), frame.payload().len(), by, &mut self.octets);
                }
                self.ends.push(self.octets.len());
            }
        }
    }

    /// The header that the frame has in the place of `prefix`.
    pub(crate) fn prefix_of<'a>(&'a self, index: usize, prefix: &'a [u8]) -> &'a [u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        match &self.octets[start..self.ends[index]] {
            [] => prefix,
            padded => padded,
        }
    }
}
