//! A store that blocks (paper nb-cache, cases A and C), for comparison: Interests queue in front of
//! it while it reads for one of them, as in front of a thread that does nothing else.

use alloc::collections::VecDeque;
use core::mem;

use weir_base::{FaceId, Instant, Packet};
use weir_store::NameHashes;
use weir_wire::{InterestView, LpHeader, NackReason, PacketView};

use crate::content::adaptive::DiskQueue;
use crate::content::busy::StoreIo;
use crate::content::decision::{DiskBypass, QueueDecision};
use crate::input::Input;
use crate::io::Outbox;
use crate::pass::{Arrival, QueueState, ReceivedPacket, query_of};
use crate::router::Router;
use crate::stats::DropReason;

/// An Interest that waits in front of the store.
struct QueuedInterest {
    face: FaceId,
    header: LpHeader,
    packet: Packet,
    queue_state: QueueState,
}

/// The queue in front of the store of a router. A driver whose router has
/// [`StoreIo::Blocking`](crate::StoreIo) gives the router's inputs to [`BlockingStore::handle`]
/// instead of [`Router::handle`].
pub struct BlockingStore {
    queue: VecDeque<QueuedInterest>,
    interests_max: usize,
}

impl BlockingStore {
    /// The empty queue in front of the store of `router`, if its store blocks.
    #[must_use]
    pub fn of(router: &mut Router) -> Option<Self> {
        if router.config.busy.io == StoreIo::Async {
            return None;
        }
        router.content.disk.hold_up(0);
        let interests_max = router.config.busy.interests_waiting_max;
        Some(Self { queue: VecDeque::new(), interests_max })
    }

    /// Takes a batch of inputs at one moment, as [`Router::handle`] does.
    pub fn handle(
        &mut self,
        router: &mut Router,
        now: Instant,
        inputs: &mut [Input],
        out: &mut Outbox,
    ) {
        router.begin_turn(now, out);
        router.handle_pit_timers();
        router.handle_disk_timeout();
        self.settle(router);
        for input in inputs {
            match mem::replace(input, Input::Wakeup) {
                Input::Packet { face, header, packet } => match &PacketView::decode(&packet) {
                    Ok(parsed) => {
                        let received = ReceivedPacket::new(face, &header, &packet);
                        self.take(router, &router.arrival(received, parsed));
                    }
                    Err(error) => router.count_malformed(error),
                },
                input => {
                    router.handle_other(input);
                    self.settle(router);
                }
            }
        }
        self.settle(router);
        router.finish_turn(out);
    }

    fn take(&mut self, router: &mut Router, arrival: &Arrival<'_>) {
        let received = &arrival.received;
        match &arrival.parsed {
            PacketView::Interest(interest)
                if received.header.nack.is_none() && !router.content.disk.reads.is_empty() =>
            {
                router.egress.stats.in_interests += 1;
                self.wait(router, received, interest, &arrival.hashes);
            }
            _ => router.process_cold(arrival),
        }
    }

    /// An Interest arrives while the store reads. It does not wait if the filter in front of the
    /// queue rules its Data out (the first bypass of the paper). Otherwise it queues, or bypasses
    /// the store over the threshold, whether the store has its Data or not. When the queue is full
    /// its sender gets a Nack.
    fn wait(
        &mut self,
        router: &mut Router,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        hashes: &NameHashes,
    ) {
        let Some(&face) = router.tables.faces.find(received.face) else {
            return router.egress.drop_packet(DropReason::UnknownFace);
        };
        if is_ruled_out(router, interest, hashes) {
            return router.on_queued_interest(received, interest, hashes);
        }
        router.content.disk.neighbours.note_interest_from(router.now, &face);
        let queue = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        let queue = DiskQueue { disk: 0, queue };
        let origin = received.origin();
        let queue_state = match router.decide_before_queue(origin, interest, queue) {
            QueueDecision::Bypass(bypass) => {
                return bypass_queue(router, received, interest, hashes, &bypass);
            }
            QueueDecision::Wait { is_over_threshold, is_marked } => {
                let stats = &mut router.egress.stats.busy;
                stats.waited_over_threshold += u64::from(is_over_threshold);
                if is_marked { QueueState::QueuedAndMarked } else { QueueState::Queued }
            }
        };
        if self.queue.len() >= self.interests_max {
            router.egress.stats.busy.interests_refused += 1;
            let (nack, reason) = (NackReason::Congestion, DropReason::StoreBusy);
            return router.egress.refuse(received, &face, nack, reason);
        }
        router.egress.stats.busy.interests_queued += 1;
        let (header, packet) = (received.header.clone(), received.packet.clone());
        self.queue.push_back(QueuedInterest { face: received.face, header, packet, queue_state });
        router.content.disk.hold_up(self.queue.len());
    }

    /// Continues after reads that have ended: looks at the queued Interests, until the store reads
    /// for one of them.
    fn settle(&mut self, router: &mut Router) {
        router.take_finished_reads();
        while router.content.disk.reads.is_empty()
            && let Some(QueuedInterest { face, header, packet, queue_state }) =
                self.queue.pop_front()
        {
            router.content.disk.hold_up(self.queue.len());
            let view = PacketView::decode(&packet).expect("it was decoded before it queued");
            let hashes = &router.hash_name(&view);
            // Only Interests queue.
            let PacketView::Interest(interest) = &view else { continue };
            let received =
                ReceivedPacket { queue_state, ..ReceivedPacket::new(face, &header, &packet) };
            router.on_queued_interest(&received, interest, hashes);
            router.take_finished_reads();
        }
    }
}

/// Whether an Interest need not ask the store: its filter says no, and memory has nothing.
fn is_ruled_out(router: &Router, interest: &InterestView<'_>, hashes: &NameHashes) -> bool {
    let store = &router.content.store;
    !interest.can_be_prefix
        && store.is_ruled_out(interest.name, hashes)
        && !store.has_answer(router.now, &query_of(interest, hashes))
}

/// Forwards an Interest that does not queue. The store has not been asked, so that only the stages
/// after it are left.
fn bypass_queue(
    router: &mut Router,
    received: &ReceivedPacket<'_>,
    interest: &InterestView<'_>,
    hashes: &NameHashes,
    bypass: &DiskBypass,
) {
    bypass.reason.count(&mut router.egress.stats.busy);
    let Some(pass) = router.admit(received, interest, hashes) else { return };
    let pit = &router.tables.pit;
    let is_pending = pass.pit_index.is_some_and(|entry| pit.entry(entry).has_downstreams());
    let Some(entry) = router.enter_pit(&pass) else { return };
    let origin = received.origin();
    if is_pending {
        router.forward(entry, origin, None, interest);
    } else {
        router.bypass_disk(entry, origin, bypass, interest);
    }
}
