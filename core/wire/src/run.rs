//! Runs: Interests that differ only in their segment number and nonce, as one LpPacket
//! (`docs/run-interests.md`, decision 0017).
//!
//! A run consists of the first Interest, a bitmap, and optionally the PIT tokens of the others. Bit
//! `i` stands for the Interest whose segment number and nonce are both `i` higher. Example: the
//! Interest has segment 100 and nonce 7, and the bitmap is `0b1011`. They stand for the segments
//! 100, 101 and 103 with the nonces 7, 8 and 10. So up to 64 Interests take little more space than
//! one.

use alloc::vec::Vec;

use crate::error::DecodeError;
use crate::interest::InterestView;
use crate::tlv::{self, Element, Writer};

/// Most consecutive segment numbers that a run covers: the bits of its bitmap.
pub const RUN_SPAN_MAX: u8 = 64;

/// Most octets that precede the Interest in a run's LpPacket: 64 tokens of 32 octets, and all other
/// fields.
pub const RUN_PREFIX_MAX: usize = 32 * RUN_SPAN_MAX as usize + 32;

/// The fields that make an LpPacket a run. Its fragment is the Interest with the lowest segment
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunFields<'a> {
    /// Run: bit i, from the least significant, requests the segment i above that of the fragment.
    pub bitmap: u64,
    /// RunTokens: the PIT tokens of all Interests but the first, one after another. Each is as long
    /// as the first token. If absent, all Interests have the token of the first.
    pub tokens: Option<&'a [u8]>,
}

impl RunFields<'_> {
    /// Writes everything that precedes the Interest of `interest_len` octets, whose PIT token is
    /// `token`. Returns the number of octets.
    ///
    /// # Panics
    /// If `out` is too short. [`RUN_PREFIX_MAX`] octets suffice; without tokens, 32.
    pub fn encode_prefix(&self, token: &[u8], interest_len: usize, out: &mut [u8]) -> usize {
        let bitmap = tlv::encode_nni(self.bitmap);
        let field_len = |typ: u32, len: usize| {
            tlv::var_number_size(typ.into()) + tlv::var_number_size(len as u64) + len
        };
        // The length comes first, so compute the sizes of all fields before writing any.
        let token_len =
            if token.is_empty() { 0 } else { field_len(tlv::LP_PIT_TOKEN, token.len()) };
        let tokens_len = self.tokens.map_or(0, |all| field_len(tlv::LP_RUN_TOKENS, all.len()));
        let length = token_len
            + field_len(tlv::LP_RUN, bitmap.len())
            + tokens_len
            + field_len(tlv::LP_FRAGMENT, interest_len);
        let mut at = 0;
        let mut header = |out: &mut [u8], typ: u32, len: usize, value: &[u8]| {
            at += tlv::write_var_number(typ.into(), &mut out[at..]);
            at += tlv::write_var_number(len as u64, &mut out[at..]);
            out[at..at + value.len()].copy_from_slice(value);
            at += value.len();
            at
        };
        header(out, tlv::LP_PACKET, length, &[]);
        if !token.is_empty() {
            header(out, tlv::LP_PIT_TOKEN, token.len(), token);
        }
        header(out, tlv::LP_RUN, bitmap.len(), &bitmap);
        if let Some(tokens) = self.tokens {
            header(out, tlv::LP_RUN_TOKENS, tokens.len(), tokens);
        }
        header(out, tlv::LP_FRAGMENT, interest_len, &[])
    }

    /// Whether the fields are valid for a first Interest with this pattern and token length:
    ///
    /// - The bitmap includes the first Interest and at least one other.
    /// - No segment number needs more octets than the first one.
    /// - If there are tokens, there is one for each of the others.
    pub fn is_valid(&self, pattern: &RunPattern, token_len: usize) -> bool {
        let &Self { bitmap, tokens } = self;
        let last_offset = u64::from(63 - (bitmap | 1).leading_zeros());
        let others = (bitmap | 1).count_ones() as usize - 1;
        bitmap & 1 == 1
            && others > 0
            && last_offset <= pattern.segment_max() - pattern.segment
            && tokens.is_none_or(|all| !all.is_empty() && all.len() == others * token_len)
    }
}

/// Where the Interests of a run differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPattern {
    segment: u64,
    nonce: u32,
    segment_at: usize,
    segment_len: usize,
    nonce_at: usize,
}

impl RunPattern {
    /// The pattern of an Interest that may be the first of a run: its name ends with a segment
    /// number, and it has a nonce.
    pub fn from_interest(interest: &[u8]) -> Option<Self> {
        let view = InterestView::decode(interest).ok()?;
        let last = view.name.last()?;
        let segment = last.as_segment()?;
        let segment_len = last.value.len();
        let name_end = view.name.value().as_ptr_range().end as usize - interest.as_ptr() as usize;
        let segment_at = name_end - segment_len;
        Some(Self {
            segment,
            nonce: view.nonce?,
            segment_at,
            segment_len,
            nonce_at: view.nonce_at()?,
        })
    }

    /// The greatest segment number with the same number of octets.
    const fn segment_max(&self) -> u64 {
        u64::MAX >> (64 - 8 * self.segment_len as u32)
    }

    /// How far the segment number of `other` is above that of `first`, whose pattern this is.
    /// `None` if the two cannot be in one run: something else differs, segment number and nonce
    /// differ by different amounts, or the distance is [`RUN_SPAN_MAX`] or more.
    #[inline]
    pub fn offset_of(&self, first: &[u8], other: &[u8]) -> Option<u64> {
        let &Self { segment_at, segment_len, nonce_at, .. } = self;
        let segment_end = segment_at + segment_len;
        if other.len() != first.len()
            || other[..segment_at] != first[..segment_at]
            || other[segment_end..nonce_at] != first[segment_end..nonce_at]
            || other[nonce_at + 4..] != first[nonce_at + 4..]
        {
            return None;
        }
        // Everything but segment number and nonce is equal.
        let segment = tlv::nni(&other[segment_at..segment_end])?;
        let offset = segment.checked_sub(self.segment)?;
        let nonce = u32::from_be_bytes(other[nonce_at..nonce_at + 4].try_into().ok()?);
        (nonce.wrapping_sub(self.nonce) == offset as u32 && offset < u64::from(RUN_SPAN_MAX))
            .then_some(offset)
    }

    /// Turns a copy of the first Interest into the one `offset` above it.
    ///
    /// # Panics
    /// If `copy` is shorter than the first Interest.
    #[inline]
    pub fn write(&self, offset: u64, copy: &mut [u8]) {
        let &Self { segment_at, segment_len, nonce_at, .. } = self;
        let segment = (self.segment.wrapping_add(offset)).to_be_bytes();
        copy[segment_at..segment_at + segment_len].copy_from_slice(&segment[8 - segment_len..]);
        let nonce = self.nonce.wrapping_add(offset as u32).to_be_bytes();
        copy[nonce_at..nonce_at + 4].copy_from_slice(&nonce);
    }
}

/// Announces to the other end of a link which runs this end accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunOffer {
    /// Most segment numbers that an accepted run covers, up to [`RUN_SPAN_MAX`].
    pub span_max: u8,
    /// A number that the answer must repeat; 0 requests no answer. The answer is an offer as well.
    pub question: u32,
    /// The number in the offer that this one answers; 0 if it answers none.
    pub answer: u32,
}

const OFFER_LEN: usize = 9;

impl RunOffer {
    /// Encodes an LpPacket without fragment (IDLE) that holds the offer. Receivers that do not know
    /// the field ignore it.
    pub fn encode(self) -> Vec<u8> {
        let mut value = [self.span_max; OFFER_LEN];
        value[1..5].copy_from_slice(&self.question.to_be_bytes());
        value[5..].copy_from_slice(&self.answer.to_be_bytes());
        let mut body = Writer::with_capacity(16);
        body.tlv(tlv::LP_RUN_OFFER, &value);
        let mut out = Writer::with_capacity(body.len() + 8);
        out.tlv(tlv::LP_PACKET, body.as_slice());
        out.into_vec()
    }

    /// Parses a RunOffer field. NDNLPv2 does not assign its type, so a value in another form is
    /// ignored instead of being an error. Future versions may append octets.
    pub(crate) fn parse(field: &Element<'_>) -> Option<Self> {
        let (value, _) = field.value.split_first_chunk::<OFFER_LEN>()?;
        let &[span, q0, q1, q2, q3, a0, a1, a2, a3] = value;
        Some(Self {
            span_max: span.min(RUN_SPAN_MAX),
            question: u32::from_be_bytes([q0, q1, q2, q3]),
            answer: u32::from_be_bytes([a0, a1, a2, a3]),
        })
    }
}

/// RunTokens without Run.
pub(crate) const RUN_MISSING: DecodeError =
    DecodeError::Missing { within: tlv::LP_PACKET, element: tlv::LP_RUN };
