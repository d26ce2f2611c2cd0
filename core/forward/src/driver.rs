//! Hooks for experiments: drivers that queue Interests in front of the store, and a replacement for
//! the index of names.

use alloc::boxed::Box;
use core::fmt::Debug;

use weir_base::{FaceId, Instant, Packet};
use weir_store::{NameHashes, NameIndex};
use weir_wire::{InterestView, LpHeader, NackReason, PacketView};

use crate::content::adaptive::DiskQueue;
use crate::content::decision::{DiskBypass, QueueDecision};
use crate::incoming::{QueueState, ReceivedPacket, query_of};
use crate::input::Input;
use crate::io::Outbox;
use crate::router::Router;
use crate::stats::DropReason;

/// Handles the inputs of a router in place of [`Router::handle`], so that it can decide when
/// Interests reach the store.
pub trait Driver: Send {
    /// Handles a batch of inputs that arrived at `now`, as [`Router::handle`] does.
    fn handle(&mut self, router: &mut Router, now: Instant, inputs: &mut [Input], out: &mut Outbox);
}

/// Replaces parts of each shard when the shard starts.
pub trait Extension: Debug + Send + Sync {
    /// Extends a new shard. Returns the driver that replaces [`Router::handle`], if there is one.
    fn extend(&self, router: &mut Router) -> Option<Box<dyn Driver>>;
}

/// An Interest that a driver has queued in front of the store.
pub struct QueuedInterest {
    face: FaceId,
    header: LpHeader,
    packet: Packet,
    queue_state: QueueState,
}

/// A turn of a router, one input at a time. The inputs pass the same stages as in
/// [`Router::handle`].
pub struct Turn<'a> {
    router: &'a mut Router,
    out: &'a mut Outbox,
}

impl<'a> Turn<'a> {
    /// Begins a turn and runs the timers that are due. [`Turn::end`] ends it.
    pub fn begin(router: &'a mut Router, now: Instant, out: &'a mut Outbox) -> Self {
        router.begin_turn(now, out);
        router.handle_pit_timers();
        router.handle_disk_timeout();
        Self { router, out }
    }

    /// Ends the turn. Its output is then in the outbox.
    pub fn end(self) {
        self.router.finish_turn(self.out);
    }

    /// Whether the store is reading from a disk for some Interest.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        !self.router.content.disk.reads.is_empty()
    }

    /// Answers the Interests whose reads have finished.
    pub fn finish_reads(&mut self) {
        self.router.take_finished_reads();
    }

    /// Runs all stages of one input.
    pub fn handle(&mut self, input: Input) {
        let router = &mut *self.router;
        let Input::Packet { face, header, packet } = input else {
            return router.handle_other(input);
        };
        match &PacketView::decode(&packet) {
            Ok(parsed) => {
                let received = ReceivedPacket::new(face, &header, &packet);
                router.process_cold(&router.arrival(received, parsed));
            }
            Err(error) => router.count_malformed(error),
        }
    }

    /// An Interest arrives while `queued` others wait in front of the store. Returns it if it must
    /// join the queue.
    ///
    /// It does not join if the filter in front of the queue rules out its Data (the first bypass of
    /// paper nb-cache). If the queue is over the threshold and a next hop is available, the
    /// Interest bypasses the store. It does so even if the store has its Data.
    pub fn offer_to_queue(
        &mut self,
        face: FaceId,
        header: LpHeader,
        packet: Packet,
        queued: usize,
    ) -> Option<QueuedInterest> {
        let router = &mut *self.router;
        let view = match PacketView::decode(&packet) {
            Ok(view) => view,
            Err(error) => {
                router.count_malformed(&error);
                return None;
            }
        };
        let PacketView::Interest(interest) = &view else { return None };
        router.egress.stats.in_interests += 1;
        let hashes = router.hash_name(&view);
        let received = ReceivedPacket::new(face, &header, &packet);
        let queue_state = router.enter_queue(&received, interest, &hashes, queued)?;
        Some(QueuedInterest { face, header, packet, queue_state })
    }

    /// Answers an Interest with a Congestion Nack because the queue in front of the store is full.
    pub fn refuse(&mut self, interest: &QueuedInterest) {
        let QueuedInterest { face, header, packet, .. } = interest;
        let router = &mut *self.router;
        router.egress.stats.busy.interests_refused += 1;
        let Some(&sender) = router.tables.faces.find(*face) else { return };
        let received = ReceivedPacket::new(*face, header, packet);
        let (nack, reason) = (NackReason::Congestion, DropReason::StoreBusy);
        router.egress.refuse(&received, &sender, nack, reason);
    }

    /// Counts an Interest that joins the queue in front of the store. The queue then holds `queued`
    /// Interests.
    pub fn count_queued(&mut self, queued: usize) {
        self.router.egress.stats.busy.interests_queued += 1;
        self.router.set_driver_queue(queued);
    }

    /// Runs all stages of an Interest that has left the queue in front of the store. `queued`
    /// Interests still wait there.
    pub fn resume(&mut self, interest: &QueuedInterest, queued: usize) {
        let &QueuedInterest { face, ref header, ref packet, queue_state } = interest;
        let router = &mut *self.router;
        router.set_driver_queue(queued);
        let view = PacketView::decode(packet).expect("it was decoded before it queued");
        let hashes = &router.hash_name(&view);
        // Only Interests join the queue.
        let PacketView::Interest(interest) = &view else { return };
        let received = ReceivedPacket { queue_state, ..ReceivedPacket::new(face, header, packet) };
        router.on_queued_interest(&received, interest, hashes);
    }
}

impl Router {
    /// Sets how many Interests a driver has queued in front of the store. From the first call on,
    /// this number counts as the queue of every disk.
    pub fn set_driver_queue(&mut self, queued: usize) {
        self.content.disk.set_driver_queue(queued);
    }

    /// Uses `index` to compare and order the names in memory.
    pub fn set_name_index(&mut self, index: Box<dyn NameIndex>) {
        self.content.store.set_name_index(index);
    }

    /// Decides whether an Interest joins the queue in front of the store, and whether its Data will
    /// be marked. Returns `None` if the Interest has been dropped or forwarded.
    fn enter_queue(
        &mut self,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        hashes: &NameHashes,
        queued: usize,
    ) -> Option<QueueState> {
        let Some(&face) = self.tables.faces.find(received.face) else {
            self.egress.drop_packet(DropReason::UnknownFace);
            return None;
        };
        // The store cannot have the Data, so the Interest skips the queue.
        if self.is_ruled_out(interest, hashes) {
            self.on_queued_interest(received, interest, hashes);
            return None;
        }
        self.content.disk.neighbours.note_interest_from(self.now, &face);
        let queue = DiskQueue { disk: 0, length: u32::try_from(queued).unwrap_or(u32::MAX) };
        match self.decide_for_queue(received.origin(), interest, queue) {
            QueueDecision::Bypass(bypass) => {
                self.bypass_queue(received, interest, hashes, &bypass);
                None
            }
            QueueDecision::Wait { is_over_threshold, is_marked } => {
                let stats = &mut self.egress.stats.busy;
                stats.waited_over_threshold += u64::from(is_over_threshold);
                Some(if is_marked { QueueState::QueuedAndMarked } else { QueueState::Queued })
            }
        }
    }

    /// Whether an Interest can skip the store: the filter rules out its Data, and memory has no
    /// answer.
    fn is_ruled_out(&self, interest: &InterestView<'_>, hashes: &NameHashes) -> bool {
        let store = &self.content.store;
        !interest.can_be_prefix
            && store.is_ruled_out(interest.name, hashes)
            && !store.has_answer(self.now, &query_of(interest, hashes))
    }

    /// Forwards an Interest that bypasses the queue. The store was not queried, so only the PIT and
    /// FIB stages remain.
    fn bypass_queue(
        &mut self,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        hashes: &NameHashes,
        bypass: &DiskBypass,
    ) {
        bypass.reason.count(&mut self.egress.stats.busy);
        let Some(incoming) = self.check_interest(received, interest, hashes) else { return };
        let pit = &self.tables.pit;
        let is_pending = incoming.pit_index.is_some_and(|entry| pit.entry(entry).has_downstreams());
        let Some(entry) = self.enter_pit(&incoming) else { return };
        let origin = received.origin();
        if is_pending {
            self.forward(entry, origin, None, interest);
        } else {
            self.bypass_disk(entry, origin, bypass, interest);
        }
    }
}
