//! Seams for experiments: drivers that hold Interests up before the store, the parts of a turn that
//! they call, and another index of names.

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

/// Handles the inputs of a router in place of [`Router::handle`], to decide when Interests reach
/// its store.
pub trait Driver: Send {
    /// Takes a batch of inputs at one moment, as [`Router::handle`] does.
    fn handle(&mut self, router: &mut Router, now: Instant, inputs: &mut [Input], out: &mut Outbox);
}

/// Replaces parts of each shard when it starts.
pub trait Extension: Debug + Send + Sync {
    /// Extends a new shard. Returns what handles its inputs in place of [`Router::handle`], if the
    /// shard itself does not.
    fn extend(&self, router: &mut Router) -> Option<Box<dyn Driver>>;
}

/// An Interest that a driver holds up before the store.
pub struct QueuedInterest {
    face: FaceId,
    header: LpHeader,
    packet: Packet,
    queue_state: QueueState,
}

/// A turn of a router, one input at a time. It takes the same stages as [`Router::handle`].
pub struct Turn<'a> {
    router: &'a mut Router,
    out: &'a mut Outbox,
}

impl<'a> Turn<'a> {
    /// Begins a turn with the timeouts that are due. [`Turn::end`] ends it.
    pub fn begin(router: &'a mut Router, now: Instant, out: &'a mut Outbox) -> Self {
        router.begin_turn(now, out);
        router.handle_pit_timers();
        router.handle_disk_timeout();
        Self { router, out }
    }

    /// Ends the turn: what it sends and wants done is in the outbox then.
    pub fn end(self) {
        self.router.finish_turn(self.out);
    }

    /// Whether the store reads for an Interest.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        !self.router.content.disk.reads.is_empty()
    }

    /// Answers the Interests whose reads have ended.
    pub fn finish_reads(&mut self) {
        self.router.take_finished_reads();
    }

    /// Takes an input through all its stages.
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

    /// An Interest arrives that finds `queued` others before the store. Returns it if it must wait
    /// behind them.
    ///
    /// It does not wait if the filter in front of the queue rules its Data out (the first bypass of
    /// paper nb-cache). Over the threshold it bypasses the store, whether the store has its Data or
    /// not, if there is an available next hop.
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

    /// The queue before the store is full: answers an Interest with a Nack for congestion.
    pub fn refuse(&mut self, interest: &QueuedInterest) {
        let QueuedInterest { face, header, packet, .. } = interest;
        let router = &mut *self.router;
        router.egress.stats.busy.interests_refused += 1;
        let Some(&sender) = router.tables.faces.find(*face) else { return };
        let received = ReceivedPacket::new(*face, header, packet);
        let (nack, reason) = (NackReason::Congestion, DropReason::StoreBusy);
        router.egress.refuse(&received, &sender, nack, reason);
    }

    /// One more Interest waits before the store: now `queued` do.
    pub fn count_queued(&mut self, queued: usize) {
        self.router.egress.stats.busy.interests_queued += 1;
        self.router.set_driver_queue(queued);
    }

    /// Takes an Interest through all its stages. It was the first before the store, where `queued`
    /// still wait.
    pub fn resume(&mut self, interest: &QueuedInterest, queued: usize) {
        let &QueuedInterest { face, ref header, ref packet, queue_state } = interest;
        let router = &mut *self.router;
        router.set_driver_queue(queued);
        let view = PacketView::decode(packet).expect("it was decoded before it queued");
        let hashes = &router.hash_name(&view);
        // Only Interests queue.
        let PacketView::Interest(interest) = &view else { return };
        let received = ReceivedPacket { queue_state, ..ReceivedPacket::new(face, header, packet) };
        router.on_queued_interest(&received, interest, hashes);
    }
}

impl Router {
    /// A driver holds up `queued` Interests before the store. The number stands for the queue of
    /// every disk from now on.
    pub fn set_driver_queue(&mut self, queued: usize) {
        self.content.disk.set_driver_queue(queued);
    }

    /// Compares and orders the names in memory by `index`.
    pub fn set_name_index(&mut self, index: Box<dyn NameIndex>) {
        self.content.store.set_name_index(index);
    }

    /// Whether an Interest waits in the queue before the store, and whether its Data will be
    /// marked. `None` if it has been dropped or forwarded.
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

    /// Whether an Interest need not ask the store: its filter says no, and memory has nothing.
    fn is_ruled_out(&self, interest: &InterestView<'_>, hashes: &NameHashes) -> bool {
        let store = &self.content.store;
        !interest.can_be_prefix
            && store.is_ruled_out(interest.name, hashes)
            && !store.has_answer(self.now, &query_of(interest, hashes))
    }

    /// Forwards an Interest that does not queue. The store has not been asked, so that only the
    /// stages after it are left.
    fn bypass_queue(
        &mut self,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        hashes: &NameHashes,
        bypass: &DiskBypass,
    ) {
        bypass.reason.count(&mut self.egress.stats.busy);
        let Some(pass) = self.check_interest(received, interest, hashes) else { return };
        let pit = &self.tables.pit;
        let is_pending = pass.pit_index.is_some_and(|entry| pit.entry(entry).has_downstreams());
        let Some(entry) = self.enter_pit(&pass) else { return };
        let origin = received.origin();
        if is_pending {
            self.forward(entry, origin, None, interest);
        } else {
            self.bypass_disk(entry, origin, bypass, interest);
        }
    }
}
