//! Joins several frames with single Interests into one.

use weir_wire::{
    PACKET_SIZE_MAX, PitToken, RUN_PREFIX_MAX, RUN_SPAN_MAX, RunFields, RunPattern, tlv,
};

use crate::frame::Frame;

/// Space for the bytes before the Interest of a run, without tokens.
const OVERHEAD_BYTES: usize = 64;

/// Maximum number of bytes before the Interest of a run without tokens.
const BARE_PREFIX_MAX: usize = 32;

/// A run that was found among consecutive frames.
#[derive(Copy, Clone, Debug)]
pub(crate) struct RunMatch {
    /// The number of frames, at least 2.
    pub(crate) interests: usize,
    bitmap: u64,
}

/// Finds the run at the beginning of `frames`, over at most `span` segment numbers and in a frame
/// of at most `mtu` bytes.
pub(crate) fn find_run<'a>(
    mut frames: impl Iterator<Item = &'a Frame> + Clone,
    span: u8,
    mtu: usize,
) -> Option<RunMatch> {
    let first = frames.next()?;
    let has_same_lengths = |other: &Frame| {
        other.payload().len() == first.payload().len()
            && other.prefix().len() == first.prefix().len()
    };
    // This cheap check excludes most packets before anything is decoded.
    if !is_interest(first) || !frames.clone().next().is_some_and(has_same_lengths) {
        return None;
    }
    let token_len = token_of(first)?.len();
    let pattern = RunPattern::from_interest(first.payload())?;
    let mut bytes = OVERHEAD_BYTES + first.payload().len();
    let mut found = RunMatch { interests: 1, bitmap: 1 };
    for frame in frames {
        // Each further Interest adds only its token to the frame.
        bytes += token_len;
        if !has_same_lengths(frame) || bytes > mtu.min(PACKET_SIZE_MAX) {
            break;
        }
        // Offsets must rise, because the bitmap keeps no other order.
        let offset = pattern.offset_of(first.payload(), frame.payload());
        let last_offset = u64::from(63 - found.bitmap.leading_zeros());
        let next = offset.filter(|&offset| offset > last_offset && offset < u64::from(span));
        let (Some(offset), Some(_)) = (next, token_of(frame).filter(|t| t.len() == token_len))
        else {
            break;
        };
        found.bitmap |= 1 << offset;
        found.interests += 1;
    }
    (found.interests > 1).then_some(found)
}

/// Encodes the run that was found at the beginning of `frames`.
pub(crate) fn join_run<'a>(
    found: RunMatch,
    frames: impl Iterator<Item = &'a Frame> + Clone,
) -> Frame {
    let mut frames = frames.take(found.interests);
    let first = frames.next().expect("a run has a first frame");
    let token = token_of(first).unwrap_or_default();
    if token.is_empty() {
        return frame_of(found, first, &[], None, &mut [0; BARE_PREFIX_MAX]);
    }
    let mut tokens = [0; RUN_SPAN_MAX as usize * 32];
    let (mut len, mut differ) = (0, false);
    for other in frames.filter_map(token_of) {
        differ |= other != token;
        tokens[len..len + other.len()].copy_from_slice(other);
        len += other.len();
    }
    // If all tokens are the same, the frame carries only the first.
    let tokens = differ.then_some(&tokens[..len]);
    frame_of(found, first, token, tokens, &mut [0; RUN_PREFIX_MAX])
}

fn frame_of(
    RunMatch { bitmap, .. }: RunMatch,
    first: &Frame,
    token: &[u8],
    tokens: Option<&[u8]>,
    prefix: &mut [u8],
) -> Frame {
    let fields = RunFields { bitmap, tokens };
    let prefix_len = fields.encode_prefix(token, first.payload().len(), prefix);
    Frame::new(&prefix[..prefix_len], first.payload().clone())
}

fn is_interest(frame: &Frame) -> bool {
    frame.payload().first().is_some_and(|&first| u32::from(first) == tlv::INTEREST)
}

/// The PIT token of a whole packet without other header fields; empty for a bare one.
fn token_of(frame: &Frame) -> Option<&[u8]> {
    let prefix = frame.prefix();
    if prefix.is_empty() {
        return Some(&[]);
    }
    let (_, size) = tlv::read_var_number(prefix.get(1..)?).ok()?;
    let [typ, len, rest @ ..] = prefix.get(1 + size..)? else { return None };
    if u32::from(prefix[0]) != tlv::LP_PACKET || u32::from(*typ) != tlv::LP_PIT_TOKEN {
        return None;
    }
    let (token, rest) = rest.split_at_checked(usize::from(*len))?;
    let (fragment, rest) = rest.split_first()?;
    let (_, size) = tlv::read_var_number(rest).ok()?;
    let is_all = u32::from(*fragment) == tlv::LP_FRAGMENT && rest.len() == size;
    is_all.then_some(token).filter(|token| PitToken::new(token).is_some())
}
