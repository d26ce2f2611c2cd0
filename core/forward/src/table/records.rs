//! The records of a PIT entry: its downstreams and its upstreams.

use alloc::boxed::Box;
use alloc::vec::Vec;

use weir_base::{FaceId, Instant};
use weir_wire::{NackReason, PitToken, ShortToken};

use crate::endpoints::Downstream;
use crate::table::measurements::Flight;

/// A downstream that waits (NFD, PIT in-record).
#[derive(Clone, Copy)]
pub(crate) struct InRecord {
    pub(crate) face: FaceId,
    /// The slot of the face in the face table, while the face exists.
    pub(crate) face_slot: u32,
    pub(crate) nonce: u32,
    pub(crate) expiry: Instant,
    pub(crate) pit_token: PitToken,
}

impl InRecord {
    /// Whether this record belongs to a downstream. Each host behind a face to several hosts has a
    /// record of its own, with its PIT token. A point-to-point face has one, with the latest token.
    #[inline]
    pub(crate) fn is_of(&self, downstream: &Downstream, is_point_to_point: bool) -> bool {
        self.face == downstream.face
            && (is_point_to_point || self.pit_token == downstream.pit_token)
    }

    pub(crate) fn downstream(&self) -> Downstream {
        Downstream { face: self.face, pit_token: self.pit_token }
    }
}

/// An upstream that the Interest was sent to (NFD, PIT out-record).
#[derive(Clone, Copy)]
pub(crate) struct OutRecord {
    pub(crate) face: FaceId,
    pub(crate) nonce: u32,
    pub(crate) sent_at: Instant,
    pub(crate) expiry: Instant,
    pub(crate) nacked: Option<NackReason>,
    /// Identifies this flight in the measurements of the upstream, until it ends.
    pub(crate) flight: Flight,
    /// State of the strategy for this upstream; 0 at first.
    pub(crate) strategy_state: u64,
}

impl OutRecord {
    /// Whether the Interest was sent to this upstream only once.
    pub(crate) fn is_sent_once(&self) -> bool {
        self.flight.is_since(self.sent_at)
    }
}

/// Lists for records that do not fit into the entry itself: several, or in another state.
#[derive(Default)]
pub(crate) struct RecordLists {
    pub(crate) downstreams: Vec<InRecord>,
    pub(crate) upstreams: Vec<OutRecord>,
    /// State of the strategy for the entry; 0 at first.
    pub(crate) strategy_state: u64,
}

/// Maximum capacity of a list that is kept for reuse.
const SPARE_RECORDS_MAX: usize = 4;

impl RecordLists {
    /// Clears the lists for reuse. Large lists are freed, since most entries need few records.
    pub(crate) fn cleared_for_reuse(mut self: Box<Self>) -> Option<Box<Self>> {
        self.downstreams.clear();
        self.upstreams.clear();
        self.strategy_state = 0;
        let most = self.downstreams.capacity().max(self.upstreams.capacity());
        (most <= SPARE_RECORDS_MAX).then_some(self)
    }
}

/// The records of an entry. Nearly every entry has one downstream and one upstream with the same
/// nonce and expiry and no other state. These records are stored inline, in less than a cache line
/// and a half. All others are stored in lists.
pub(crate) struct Records {
    lists: Option<Box<RecordLists>>,
    downstream: FaceId,
    upstream: FaceId,
    expiry: Instant,
    sent_at: Instant,
    /// The nonce of the entry's Interest and of the inline records.
    nonce: u32,
    face_slot: u32,
    flight: (u32, u32),
    token: ShortToken,
    has_downstream: bool,
    has_upstream: bool,
}

impl Records {
    /// Creates the records of an entry with one downstream. Without a short `token` the caller must
    /// add the downstream to the lists.
    #[inline(always)]
    pub(crate) fn new(record: &InRecord, token: Option<ShortToken>) -> Self {
        Self {
            lists: None,
            downstream: record.face,
            upstream: record.face,
            expiry: record.expiry,
            sent_at: Instant::ZERO,
            nonce: record.nonce,
            face_slot: record.face_slot,
            flight: Flight::NONE.packed(),
            token: token.unwrap_or_default(),
            has_downstream: token.is_some(),
            has_upstream: false,
        }
    }

    /// The nonce of the entry's Interest.
    #[inline]
    pub(crate) fn nonce(&self) -> u32 {
        self.nonce
    }

    /// Sets the nonce of a new Interest. The records must be in lists.
    pub(crate) fn set_nonce(&mut self, nonce: u32) {
        debug_assert!(!self.has_downstream && !self.has_upstream, "records here share the nonce");
        self.nonce = nonce;
    }

    /// The inline downstream, if there is one.
    #[inline(always)]
    pub(crate) fn inline_downstream(&self) -> InRecord {
        InRecord {
            face: self.downstream,
            face_slot: self.face_slot,
            nonce: self.nonce,
            expiry: self.expiry,
            pit_token: self.token.into(),
        }
    }

    /// The inline upstream, if there is one.
    #[inline(always)]
    pub(crate) fn inline_upstream(&self) -> OutRecord {
        OutRecord {
            face: self.upstream,
            nonce: self.nonce,
            sent_at: self.sent_at,
            expiry: self.expiry,
            nacked: None,
            flight: Flight::from_packed(self.flight, self.sent_at),
            strategy_state: 0,
        }
    }

    #[inline]
    pub(crate) fn has_downstreams(&self) -> bool {
        self.has_downstream
            || self.lists.as_ref().is_some_and(|lists| !lists.downstreams.is_empty())
    }

    #[inline]
    pub(crate) fn has_upstreams(&self) -> bool {
        self.has_upstream || self.lists.as_ref().is_some_and(|lists| !lists.upstreams.is_empty())
    }

    /// Whether the Interest was sent to `face` first.
    #[inline]
    pub(crate) fn is_first_upstream(&self, face: FaceId) -> bool {
        match &self.lists {
            None => self.has_upstream && self.upstream == face,
            Some(lists) => lists.upstreams.first().is_some_and(|record| record.face == face),
        }
    }

    #[inline]
    pub(crate) fn downstreams(&self) -> impl Iterator<Item = InRecord> {
        let here = self.has_downstream.then(|| self.inline_downstream());
        let listed = self.lists.iter().flat_map(|lists| &lists.downstreams).copied();
        here.into_iter().chain(listed)
    }

    #[inline]
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = OutRecord> {
        let here = self.has_upstream.then(|| self.inline_upstream());
        let listed = self.lists.iter().flat_map(|lists| &lists.upstreams).copied();
        here.into_iter().chain(listed)
    }

    /// The in-records as a slice, which is faster. `here` is the result of
    /// [`Records::inline_downstream`].
    #[inline(always)]
    pub(crate) fn all_downstreams<'a>(&'a self, here: &'a [InRecord; 1]) -> &'a [InRecord] {
        match &self.lists {
            None => &here[..usize::from(self.has_downstream)],
            Some(lists) => &lists.downstreams,
        }
    }

    /// The out-records as a slice, which is faster. `here` is the result of
    /// [`Records::inline_upstream`].
    #[inline(always)]
    pub(crate) fn all_upstreams<'a>(&'a self, here: &'a [OutRecord; 1]) -> &'a [OutRecord] {
        match &self.lists {
            None => &here[..usize::from(self.has_upstream)],
            Some(lists) => &lists.upstreams,
        }
    }

    #[inline]
    pub(crate) fn lists(&self) -> Option<&RecordLists> {
        self.lists.as_deref()
    }

    /// Moves all records to lists, where they can change.
    pub(crate) fn move_to_lists(
        &mut self,
        spare: impl FnOnce() -> Box<RecordLists>,
    ) -> &mut RecordLists {
        let here = (
            self.has_downstream.then(|| self.inline_downstream()),
            self.has_upstream.then(|| self.inline_upstream()),
        );
        (self.has_downstream, self.has_upstream) = (false, false);
        let lists = self.lists.get_or_insert_with(spare);
        lists.downstreams.extend(here.0);
        lists.upstreams.extend(here.1);
        lists
    }

    /// Stores the first upstream inline if it can be stored there. Returns whether it was.
    #[inline(always)]
    pub(crate) fn add_first_upstream(&mut self, record: &OutRecord) -> bool {
        // The inline form has one nonce and one expiry for both records.
        let is_plain = self.has_downstream
            && !self.has_upstream
            && (record.nonce, record.expiry) == (self.nonce, self.expiry)
            && record.nacked.is_none()
            && record.strategy_state == 0
            && record.flight.is_over() | record.is_sent_once();
        if is_plain {
            self.has_upstream = true;
            (self.upstream, self.sent_at) = (record.face, record.sent_at);
            self.flight = record.flight.packed();
        }
        is_plain
    }

    /// Removes the downstream that matches.
    pub(crate) fn remove_downstream(
        &mut self,
        is_match: impl Fn(&InRecord) -> bool,
    ) -> Option<InRecord> {
        let here = self.has_downstream.then(|| self.inline_downstream());
        if let Some(here) = here.filter(&is_match) {
            self.has_downstream = false;
            return Some(here);
        }
        let listed = &mut self.lists.as_mut()?.downstreams;
        let at = listed.iter().position(is_match)?;
        Some(listed.swap_remove(at))
    }

    /// Takes out the lists for reuse.
    #[inline]
    pub(crate) fn take_lists(&mut self) -> Option<Box<RecordLists>> {
        self.lists.take()
    }
}

#[cfg(test)]
mod tests;
