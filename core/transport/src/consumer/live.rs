//! Objects that grow: new segments are fetched as they are made, until the last one is known.
//!
//! [`Metadata::next_segment`] marks a growing object and its present size. Segments that do not
//! exist yet are requested ahead (`scoreboard/ahead.rs`). An Interest that waits at the producer
//! looks the same as one that was lost. So when nothing has arrived for a while, fresh metadata are
//! requested. They show how far the object has grown, that it has ended, or that the producer has
//! begun a newer version, which ends this one. If nothing answers this request, the producer is
//! gone.

use core::cmp::Ordering;

use weir_base::{Instant, NS_PER_MS};
use weir_wire::{DataView, Name, NameView};

use super::ConsumerError;
use super::end_claim::is_refusal;
use super::target::Target;
use crate::interest::Selectors;
use crate::mapping::NameMapping;
use crate::metadata::Metadata;
use crate::request::{Request, RetryLimits};

/// Metadata are requested again when nothing has arrived for this many Interest lifetimes.
const RENEW_AFTER_LIFETIMES: u64 = 2;
/// Retry limits of that request: more than for the first metadata, because a producer is known to
/// exist.
const RENEWAL_TRIES: RetryLimits = RetryLimits { sends_max: 6, nacks_max: 6, needs_route: false };

#[derive(Debug)]
pub(super) struct Live {
    target: Name,
    /// The object whose metadata name its versions, if the target has one.
    object: Option<Name>,
    lifetime_ms: u64,
    /// When the metadata are requested again.
    renew_at: Instant,
    /// The new metadata, and whether they are verified.
    renewal: Option<Metadata>,
    is_verified: bool,
    /// A segment claims to be the last, and no signature covers that.
    is_end_claimed: bool,
    /// The reader's buffer was full, so there may be segments to skip.
    is_reader_behind: bool,
}

/// The state of the transfer that a growing object depends on.
#[derive(Copy, Clone, Debug)]
pub(super) struct LiveState {
    pub(super) is_end_known: bool,
    /// Metadata have been requested again.
    pub(super) is_renewing: bool,
    /// Open segments, and how many of them were requested ahead.
    pub(super) unanswered: u32,
    pub(super) ahead: u32,
    /// Packets that were not delivered yet, and whether all segments have been delivered.
    pub(super) unread: u32,
    pub(super) is_drained: bool,
}

impl Live {
    pub(super) fn new(target: &Target, lifetime_ms: u64, now: Instant) -> Self {
        let mut live = Self {
            target: target.name(),
            object: target.object(),
            lifetime_ms,
            renew_at: now,
            renewal: None,
            is_verified: false,
            is_end_claimed: false,
            is_reader_behind: false,
        };
        live.postpone_renewal(now);
        live
    }

    pub(super) fn target(&self) -> Name {
        self.target.clone()
    }

    /// Data arrived: delays the next metadata request.
    fn postpone_renewal(&mut self, now: Instant) {
        self.renew_at =
            now.plus_ns(self.lifetime_ms.saturating_mul(RENEW_AFTER_LIFETIMES * NS_PER_MS));
    }

    pub(super) fn has_recent_data(&self, now: Instant) -> bool {
        now < self.renew_at
    }

    /// A segment claims to be the last: the metadata must confirm it.
    pub(super) fn claim_end(&mut self) {
        self.is_end_claimed = true;
    }

    /// Whether requests wait until new metadata are known.
    pub(super) fn is_reader_behind(&self) -> bool {
        self.is_reader_behind
    }

    /// The reader's buffer is full, so it may have to skip segments.
    pub(super) fn set_reader_behind(&mut self) {
        self.is_reader_behind = true;
    }

    /// Returns and clears whether the reader may have to skip segments.
    pub(super) fn take_reader_behind(&mut self) -> bool {
        core::mem::take(&mut self.is_reader_behind)
    }

    /// Whether metadata can be requested and are not being requested.
    fn may_renew(&self, state: &LiveState) -> bool {
        !state.is_end_known && self.renewal.is_none() && !state.is_renewing && self.object.is_some()
    }

    pub(super) fn next_wakeup(&self, state: &LiveState) -> Option<Instant> {
        self.may_renew(state).then_some(self.renew_at)
    }

    /// Data arrived. Only Data of this version counts: other Data on the connection says nothing
    /// about this producer.
    pub(super) fn on_data(&mut self, now: Instant, name: NameView<'_>, versioned: &Name) {
        if versioned.as_view().is_prefix_of(name) {
            self.postpone_renewal(now);
        }
    }

    /// Takes the new metadata, to be verified.
    pub(super) fn take_renewal(&mut self, data: &DataView<'_>) -> Result<(), ConsumerError> {
        let object = self.object.clone().expect("metadata are renewed only for an object");
        match Metadata::decode(data.content) {
            Ok(metadata)
                if !is_refusal(data)
                    && object.as_view().is_prefix_of(metadata.versioned.as_view()) =>
            {
                self.renewal = Some(metadata);
                Ok(())
            }
            Ok(Metadata { versioned, .. }) => {
                Err(ConsumerError::ForeignMetadata { object, versioned })
            }
            Err(error) => Err(ConsumerError::Metadata { name: object, error }),
        }
    }

    /// The new metadata are verified.
    pub(super) fn renewal_verified(&mut self) {
        self.is_verified = self.renewal.is_some();
    }

    /// The new metadata are not usable. Requests them again after a lifetime.
    pub(super) fn renew_later(&mut self, now: Instant) {
        self.renewal = None;
        self.renew_at = now.plus_ns(self.lifetime_ms.saturating_mul(NS_PER_MS));
    }

    /// Takes verified metadata of this version. Metadata of an older version come from a store or a
    /// stale replica, so they are requested again later.
    ///
    /// # Errors
    /// They name a newer version.
    pub(super) fn take_verified(
        &mut self,
        now: Instant,
        known: &Name,
    ) -> Result<Option<Metadata>, ConsumerError> {
        if !core::mem::take(&mut self.is_verified) {
            return Ok(None);
        }
        let Some(metadata) = self.renewal.take() else { return Ok(None) };
        self.postpone_renewal(now);
        let version = |versioned: &Name| versioned.as_view().last()?.as_version();
        if version(&metadata.versioned).cmp(&version(known)) == Ordering::Less {
            self.renew_later(now);
            return Ok(None);
        }
        if metadata.versioned != *known {
            let (versioned, newer) = (known.clone(), metadata.versioned);
            return Err(ConsumerError::Superseded { versioned, newer });
        }
        Ok(Some(metadata))
    }

    /// The request for metadata that is due.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        state: &LiveState,
        mapping: NameMapping,
    ) -> Option<Request> {
        let mut is_due = now >= self.renew_at || core::mem::take(&mut self.is_end_claimed);
        if self.is_reader_behind && state.unread == 0 {
            // If only segments requested ahead are open, none was skipped: they do not exist yet.
            self.is_reader_behind = state.unanswered == 0 || state.unanswered > state.ahead;
            is_due |= state.unanswered == 0 && state.is_drained;
        }
        self.is_reader_behind &= !state.is_end_known;
        let object = self.object.as_ref().filter(|_| is_due && self.may_renew(state))?;
        let (name, can_be_prefix) = mapping.metadata_interest(object.as_view());
        let lifetime_ms = self.lifetime_ms;
        let selectors = Selectors { can_be_prefix, must_be_fresh: true, lifetime_ms, nonce: 0 };
        let element = mapping.metadata_payload(object.as_view());
        Some(Request::new(&name, selectors, RENEWAL_TRIES, now).with_element(element))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use weir_wire::{Data, SignatureInfo, signature_type};

    use super::*;

    /// hICN's signature does not cover the ContentType, so a router may have changed it.
    #[test]
    fn changed_content_type_keeps_metadata() {
        let (object, versioned): (Name, Name) =
            ("/a".parse().unwrap(), "/a/54=%01".parse().unwrap());
        let target = Target::Latest { object: object.clone(), allow_stored: true };
        let take = |signature_type| {
            let mut live = Live::new(&target, 1000, Instant::ZERO);
            let metadata = Metadata::new(versioned.clone()).encode();
            let data = Data::new(object.clone()).content_type(3).content(metadata);
            let info = SignatureInfo::new(signature_type);
            let wire = data.encode_signed(&info, |_| vec![0; 32]);
            live.take_renewal(&DataView::decode(&wire).unwrap())
        };
        assert_eq!(take(signature_type::HICN), Ok(()));
        assert!(matches!(take(signature_type::NULL), Err(ConsumerError::ForeignMetadata { .. })));
    }
}
