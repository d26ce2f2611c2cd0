//! An object that grows: what is new is fetched as it is made, until the last segment says that it
//! is the last.
//!
//! [`Metadata::next_segment`] tells that an object grows and how far it has. Segments that are not
//! made yet are asked for all the same, see the scoreboard's part for them. An Interest that waits
//! at the producer is without an answer as one is that nobody hears: when nothing has come for a
//! while, the metadata are asked for once more, fresh. They tell how far the object has grown, that
//! it has ended, or that the producer has begun another version, which is the end of this one. No
//! answer to them means that there is no producer any more.

use weir_base::{Instant, NS_PER_MS};
use weir_wire::{DataView, Name};

use super::config::Behind;
use super::naming::METADATA_INDEX;
use super::requests::Purpose;
use super::scoreboard::HoleRules;
use super::verify::Incoming;
use super::{Consumer, ConsumerError, ConsumerOutbox, Stage};
use crate::interest::Selectors;
use crate::metadata::Metadata;
use crate::request::{Request, Tries};

/// Metadata are asked for again when nothing has come for so many lifetimes of an Interest.
const QUIET_LIFETIMES: u64 = 2;
/// How often they are: more often than before anything has come, as there was a producer.
const RENEWAL_TRIES: Tries = Tries { sends_max: 6, nacks_max: 6, needs_route: false };

/// The state of what grows.
#[derive(Debug)]
pub(super) struct Live {
    /// When the metadata are asked for again.
    renew_at: Instant,
    /// Those that came, while they are being verified, and whether they have been.
    renewal: Option<Metadata>,
    is_believed: bool,
    /// The reader had no room, so that there may be segments that are to be passed over.
    is_behind: bool,
}

impl Consumer {
    /// The first segment may be asked for: if the object grows, so may those that are not made yet.
    pub(super) fn begin_live(&mut self, now: Instant) {
        let grows = self.metadata.as_ref().filter(|metadata| metadata.grows());
        let Some(next) = grows.and_then(|metadata| metadata.next_segment) else { return };
        if self.config.chunk_units > 1 || !matches!(self.stage, Stage::Fetching) {
            return;
        }
        self.scoreboard.set_horizon(next, self.config.ahead_max);
        self.scoreboard.set_hole_rules(HoleRules::Off);
        let renew_at = now.plus_ns(self.quiet_ns());
        self.live = Some(Live { renew_at, renewal: None, is_believed: false, is_behind: false });
    }

    /// How long nothing may come before the metadata are asked for again.
    fn quiet_ns(&self) -> u64 {
        self.config.lifetime_ms.saturating_mul(QUIET_LIFETIMES * NS_PER_MS)
    }

    pub(super) fn live_wakeup(&self) -> Option<Instant> {
        let live = self.live.as_ref().filter(|live| self.may_renew(live));
        live.map(|live| live.renew_at)
    }

    /// Whether what grows has been heard of lately.
    pub(super) fn is_heard_of(&self, now: Instant) -> bool {
        self.live.as_ref().is_some_and(|live| now < live.renew_at)
    }

    /// Whether there are metadata to be asked for, and they are not on their way.
    fn may_renew(&self, live: &Live) -> bool {
        self.last_segment.is_none()
            && live.renewal.is_none()
            && !self.requests.contains(Purpose::Renewal)
            && self.target.object().is_some()
    }

    /// Data came while units are fetched. Gives it back unless it is metadata that were asked for
    /// again.
    pub(super) fn take_renewal(
        &mut self,
        now: Instant,
        data: &DataView<'_>,
        incoming: Incoming,
        out: &mut ConsumerOutbox,
    ) -> Option<Incoming> {
        let renew_at = now.plus_ns(self.quiet_ns());
        let Some(live) = &mut self.live else { return Some(incoming) };
        // What others of the same connection asked for says nothing of this producer.
        if self.metadata.as_ref().is_some_and(|it| it.versioned.as_view().is_prefix_of(data.name)) {
            live.renew_at = renew_at;
        }
        if !self.requests.take_if_answered(Purpose::Renewal, data) {
            return Some(incoming);
        }
        let object = self.target.object().expect("only then metadata are asked for again");
        match Metadata::decode(data.content) {
            Ok(metadata)
                if !data.is_nack()
                    && object.as_view().is_prefix_of(metadata.versioned.as_view()) =>
            {
                live.renewal = Some(metadata);
                self.accept(now, METADATA_INDEX, incoming, out);
            }
            Ok(Metadata { versioned, .. }) => {
                let error = ConsumerError::Elsewhere { object, versioned };
                self.refuse_metadata(now, error, out);
            }
            Err(error) => {
                let error = ConsumerError::Metadata { name: object, error };
                self.refuse_metadata(now, error, out);
            }
        }
        None
    }

    /// The metadata that came are what their producer signed.
    pub(super) fn renewal_believed(&mut self) {
        if let Some(live) = &mut self.live {
            live.is_believed = live.renewal.is_some();
        }
        self.verification.forget_refusals(METADATA_INDEX);
    }

    /// They are not: they are asked for once more, later.
    pub(super) fn renew_again(&mut self, now: Instant) {
        let renew_at = now.plus_ns(self.config.lifetime_ms.saturating_mul(NS_PER_MS));
        if let Some(live) = &mut self.live {
            (live.renewal, live.renew_at) = (None, renew_at);
        }
    }

    /// Goes on as far as that is possible without anything new.
    pub(super) fn advance_live(&mut self, now: Instant, out: &mut ConsumerOutbox) {
        let Some(live) = &mut self.live else { return };
        if core::mem::take(&mut live.is_believed)
            && let Some(metadata) = live.renewal.take()
        {
            self.renewed(now, &metadata, out);
        }
        if self.last_segment.is_some() {
            self.requests.take(Purpose::Renewal);
        }
        let Some(live) = &mut self.live else { return };
        let (mut is_due, unanswered) = (now >= live.renew_at, self.scoreboard.unanswered());
        if live.is_behind && self.unread == 0 {
            // What is asked for ahead is not made yet: nothing has been missed.
            live.is_behind = unanswered == 0 || unanswered > self.scoreboard.ahead_count();
            is_due |= unanswered == 0 && self.reader.is_drained();
        }
        let is_over = self.last_segment.is_some();
        live.is_behind &= !is_over;
        if is_due
            && self.live.as_ref().is_some_and(|live| self.may_renew(live))
            && let Some(object) = self.target.object()
        {
            let (name, can_be_prefix) = self.config.mapping.metadata_interest(object.as_view());
            let selectors = Selectors {
                can_be_prefix,
                must_be_fresh: true,
                lifetime_ms: self.config.lifetime_ms,
                nonce: 0,
            };
            let request = Request::new(&name, selectors, RENEWAL_TRIES, now);
            self.requests.add(Purpose::Renewal, request);
        }
    }

    /// Believed metadata say how far it has grown.
    fn renewed(&mut self, now: Instant, metadata: &Metadata, out: &mut ConsumerOutbox) {
        let renew_at = now.plus_ns(self.quiet_ns());
        let (Some(live), Some(known)) = (&mut self.live, &self.metadata) else { return };
        live.renew_at = renew_at;
        let version = |versioned: &Name| versioned.as_view().last()?.as_version();
        if version(&metadata.versioned) < version(&known.versioned) {
            // From a store, or of a replica that lags.
            return self.renew_again(now);
        }
        if metadata.versioned != known.versioned {
            let (versioned, newer) = (known.versioned.clone(), metadata.versioned.clone());
            return self.fail(ConsumerError::Superseded { versioned, newer }, out);
        }
        // Nothing is under way, and nothing waits for the reader.
        let is_idle = self.scoreboard.unanswered() == 0
            && self.reader.is_drained()
            && self.verification.is_idle()
            && !self.requests.has_again();
        let may_skip = is_idle && core::mem::take(&mut live.is_behind);
        if let Some(newest) = metadata.newest_segment() {
            self.scoreboard.made(newest, now);
            if may_skip && newest > self.scoreboard.next_index() {
                self.scoreboard.start_at(newest);
                self.reader.start_at(newest);
            }
        }
        if let Some(last) = metadata.last_segment {
            self.set_last(last, false, out);
        }
    }

    /// Whether nothing is asked for until it is known what is new.
    pub(super) fn is_behind(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.is_behind)
    }

    /// What comes next has no room.
    pub(super) fn reader_is_full(&mut self) {
        let skips = self.config.behind == Behind::Skip && self.reader.is_there();
        if let Some(live) = self.live.as_mut().filter(|_| skips && self.last_segment.is_none()) {
            live.is_behind = true;
        }
    }
}
