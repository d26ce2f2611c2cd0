//! Claims about the end of an object that no signature covers.
//!
//! hICN's signature covers neither FinalBlockId nor ContentType (decision 0047). So the last flag
//! of such a Data is only a claim, and a router on the way may have set or removed it. Signed
//! content states the end of most objects: metadata, or the last manifest of a stream. For the
//! others, the transfer tests the claim:
//!
//! 1. A verified segment claims to be the last. The transfer requests the next one, outside the
//!    window.
//! 2. If a good segment after it arrives, the claim was false.
//! 3. If nothing answers, or no router has a route to a producer, the object ends with the claim,
//!    and the end counts as unsigned.
//!
//! Meanwhile, the transfer requests the metadata of an object that it fetches by the name of a
//! version. If they are those of the version, they state its end, and the test is over.
//!
//! A producer may answer that a segment does not exist. Without a claim of the segment before it,
//! the transfer requests nothing from there on. With one, the claim is confirmed, and only the
//! metadata can still change the end. The transfer waits for them, if it has requested them:
//! nothing verifies the answer, so a router may have forged it as well as the flag. Without
//! metadata, that takes 3 s.
//!
//! Without a claim, an object without signed end fails when its next segment gets no answer.
//!
//! While a claim is tested, no other segments are requested, because the claim is usually true.
//! After [`FALSE_CLAIMS_MAX`] false ones the window no longer stops for claims. So flags that a
//! router set in all packets cost a few round trips.

use weir_hicn::NativeData;
use weir_wire::{DataView, signature_type};

/// How many false claims stop the window.
const FALSE_CLAIMS_MAX: u32 = 3;

/// What a Data says about the last segment of its object.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StatedEnd {
    /// The number of the last segment, if the signature of the Data covers it.
    pub(super) signed: Option<u64>,
    /// The Data claims to be the last one, and no signature covers that.
    pub(super) is_claimed: bool,
}

impl StatedEnd {
    pub(super) fn of(data: &DataView<'_>) -> Self {
        if data.signature_info().signature_type == signature_type::HICN {
            let is_claimed = NativeData::of(data).is_some_and(|native| native.is_last());
            return Self { signed: None, is_claimed };
        }
        Self { signed: data.signed_last_segment(), is_claimed: false }
    }
}

/// Whether the producer answers that it has no Data of this name. hICN has no such answer: a router
/// has changed the ContentType of a Data with hICN's signature, so the packet is a bad copy.
pub(super) fn is_refusal(data: &DataView<'_>) -> bool {
    data.is_nack() && data.signature_info().signature_type != signature_type::HICN
}

/// What follows from a verified segment.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum ClaimStep {
    None,
    /// A claim must be tested by requesting the next segment. `stops_window`: nothing else is
    /// requested meanwhile.
    Test {
        last: u64,
        stops_window: bool,
    },
    /// The claim that was tested is false.
    Refuted,
}

#[derive(Debug, Default)]
pub(super) struct EndClaims {
    /// The highest verified segment.
    newest: Option<u64>,
    /// The claim that is being tested, or was confirmed.
    claimed_last: Option<u64>,
    false_claims: u32,
    is_confirmed: bool,
    metadata: EndMetadata,
}

/// Metadata that may state the end.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum EndMetadata {
    #[default]
    NotRequested,
    Requested {
        /// Bypassing caches: they may have those of another version.
        is_fresh: bool,
    },
    /// They are being verified. The last segment that they state.
    Verifying(u64),
    /// They do not state the end, or have stated it.
    Done,
}

impl EndClaims {
    /// A segment is verified. `is_claimed`: it claims to be the last.
    pub(super) fn on_segment(&mut self, segment: u64, is_claimed: bool) -> ClaimStep {
        let newest = self.newest.map_or(segment, |newest| newest.max(segment));
        self.newest = Some(newest);
        let is_refuted = self.claimed_last.is_some_and(|last| last < newest);
        if is_refuted {
            self.claimed_last = None;
            self.false_claims = self.false_claims.saturating_add(1);
        }
        if is_claimed && segment == newest {
            self.claimed_last = Some(segment);
            let stops_window = self.false_claims < FALSE_CLAIMS_MAX;
            return ClaimStep::Test { last: segment, stops_window };
        }
        if is_refuted { ClaimStep::Refuted } else { ClaimStep::None }
    }

    /// The next segment got no answer, or does not exist: the claim counts. Returns the last
    /// segment.
    pub(super) fn confirm(&mut self) -> Option<u64> {
        self.is_confirmed = self.claimed_last.is_some();
        self.claimed_last
    }

    pub(super) fn claimed_last(&self) -> Option<u64> {
        self.claimed_last
    }

    /// Signed content states the end, so it no longer depends on a claim.
    pub(super) fn on_end_signed(&mut self) {
        self.is_confirmed = false;
    }

    /// The highest verified segment.
    pub(super) fn newest(&self) -> Option<u64> {
        self.newest
    }

    pub(super) fn metadata(&self) -> EndMetadata {
        self.metadata
    }

    pub(super) fn set_metadata(&mut self, metadata: EndMetadata) {
        self.metadata = metadata;
    }

    /// Whether the object ended by a claim.
    pub(super) fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_segment_refutes_a_claim() {
        let mut claims = EndClaims::default();
        assert_eq!(claims.on_segment(3, false), ClaimStep::None);
        let test = |last, stops_window| ClaimStep::Test { last, stops_window };
        assert_eq!(claims.on_segment(2, true), ClaimStep::None, "3 is there already");
        assert_eq!(claims.on_segment(5, true), test(5, true));
        assert_eq!(claims.on_segment(4, false), ClaimStep::None);
        assert_eq!(claims.on_segment(6, false), ClaimStep::Refuted);
        assert_eq!(claims.confirm(), None);
        for segment in 7..9 {
            assert_eq!(claims.on_segment(segment, true), test(segment, true));
        }
        // The third false claim.
        claims.on_segment(9, false);
        assert_eq!(claims.on_segment(10, true), test(10, false));
        assert_eq!((claims.confirm(), claims.is_confirmed()), (Some(10), true));
    }
}
