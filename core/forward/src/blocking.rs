//! A store that blocks (paper nb-cache, cases A and C), for comparison: Interests queue before it
//! while one of them is read for, as before a thread that does nothing else.

use alloc::collections::VecDeque;

use weir_base::{FaceId, Instant, Packet};
use weir_store::NameHashes;
use weir_wire::{InterestView, LpHeader, NackReason, PacketView};

use crate::content::adaptive::DiskQueue;
use crate::content::busy::StoreIo;
use crate::content::decision::{DiskBypass, QueueDecision};
use crate::input::Input;
use crate::io::Outbox;
use crate::packet::{Origin, QueueState, ReceivedPacket, query_of};
use crate::router::{Arrival, Router};
use crate::stats::DropReason;

/// An Interest that waits before the store.
struct QueuedInterest {
    face: FaceId,
    header: LpHeader,
    packet: Packet,
    queue_state: QueueState,
}

/// The queue before the store of a router. A driver whose router has
/// [`StoreIo::Blocking`](crate::StoreIo) gives the router's inputs to [`BlockingStore::handle`]
/// instead of [`Router::handle`].
pub struct BlockingStore {
    queue: VecDeque<QueuedInterest>,
    interests_max: usize,
}

impl BlockingStore {
    /// The empty queue before the store of `router`, if that is one that blocks.
    #[must_use]
    pub fn of(router: &mut Router) -> Option<Self> {
        if router.config.busy.io == StoreIo::Async {
            return None;
        }
        router.disk.hold_up(0);
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
        router.expire(now, out);
        router.handle_disk_timeout(now, out);
        self.settle(router, now, out);
        for input in inputs {
            match core::mem::replace(input, Input::Wakeup) {
                Input::Packet { face, header, packet } => match &PacketView::decode(&packet) {
                    Ok(parsed) => {
                        let received = ReceivedPacket::new(face, &header, &packet);
                        self.take(router, now, &router.arrival(received, parsed), out);
                    }
                    Err(error) => router.note_malformed(error),
                },
                input => {
                    router.handle_other(now, input, out);
                    self.settle(router, now, out);
                }
            }
        }
        self.settle(router, now, out);
        router.finish_batch(now, out);
    }

    fn take(&mut self, router: &mut Router, now: Instant, arrival: &Arrival<'_>, out: &mut Outbox) {
        let received = &arrival.received;
        match &arrival.parsed {
            PacketView::Interest(interest)
                if received.header.nack.is_none() && !router.disk.reads.is_empty() =>
            {
                router.stats.in_interests += 1;
                self.wait(router, now, received, interest, &arrival.hashes, out);
            }
            _ => router.process_apart(now, arrival, out),
        }
    }

    /// An Interest comes while the store reads. What the filter of the store, which is before the
    /// queue, rules out does not wait (the first bypass). Anything else queues, or passes by over
    /// the threshold, whether the store has its Data or not. Past the bound, a Nack.
    fn wait(
        &mut self,
        router: &mut Router,
        now: Instant,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        hashes: &NameHashes,
        out: &mut Outbox,
    ) {
        let Some(&face) = router.faces.find(received.face) else {
            return router.stats.drop_packet(DropReason::UnknownFace);
        };
        if is_ruled_out(router, now, interest, hashes) {
            return router.resume_interest(now, received, interest, hashes, out);
        }
        router.disk.neighbours.note_asked(now, &face);
        let queue = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        let queue = DiskQueue { disk: 0, queue };
        let origin = Origin::of(received);
        let queue_state = match router.decide_before_queue(now, origin, interest, queue) {
            QueueDecision::Bypass(bypass) => {
                return pass_by(router, now, received, interest, hashes, &bypass, out);
            }
            QueueDecision::Wait { is_over_threshold, is_marked } => {
                router.stats.busy.waited_over_threshold += u64::from(is_over_threshold);
                match is_marked {
                    true => QueueState::QueuedToBeMarked,
                    false => QueueState::Queued,
                }
            }
        };
        if self.queue.len() >= self.interests_max {
            router.stats.busy.interests_refused += 1;
            let reason = NackReason::Congestion;
            return router.refuse(received, face, reason, DropReason::StoreBusy, out);
        }
        router.stats.busy.interests_queued += 1;
        let (header, packet) = (received.header.clone(), received.packet.clone());
        self.queue.push_back(QueuedInterest { face: received.face, header, packet, queue_state });
        router.disk.hold_up(self.queue.len());
    }

    /// What becomes of reads that have ended: the Interests that queue are looked at, until one of
    /// them has the store read again.
    fn settle(&mut self, router: &mut Router, now: Instant, out: &mut Outbox) {
        router.take_finished_reads(now, out);
        while router.disk.reads.is_empty()
            && let Some(QueuedInterest { face, header, packet, queue_state }) =
                self.queue.pop_front()
        {
            router.disk.hold_up(self.queue.len());
            let view = PacketView::decode(&packet).expect("what queues has been decoded");
            let hashes = &router.hash_name(&view);
            let PacketView::Interest(interest) = &view else { unreachable!("no Data queues") };
            let received =
                ReceivedPacket { queue_state, ..ReceivedPacket::new(face, &header, &packet) };
            router.resume_interest(now, &received, interest, hashes, out);
            router.take_finished_reads(now, out);
        }
    }
}

/// Whether an Interest need not ask the store: only its filter was asked, and memory has nothing.
fn is_ruled_out(
    router: &Router,
    now: Instant,
    interest: &InterestView<'_>,
    hashes: &NameHashes,
) -> bool {
    !interest.can_be_prefix
        && router.store.is_ruled_out(interest.name, hashes)
        && !router.store.has_answer(now, &query_of(interest, hashes))
}

/// Sends an Interest on that does not queue.
fn pass_by(
    router: &mut Router,
    now: Instant,
    received: &ReceivedPacket<'_>,
    interest: &InterestView<'_>,
    hashes: &NameHashes,
    bypass: &DiskBypass,
    out: &mut Outbox,
) {
    router.count_bypass(bypass.reason);
    let Some(asked) = router.check(received, interest, hashes, out) else { return };
    let is_pending = asked.pending.is_some_and(|index| !router.pit.entry(index).is_abandoned());
    let Some(index) = router.enter_pit(now, received, interest, &asked, out) else { return };
    let origin = Origin::of(received);
    match is_pending {
        true => router.forward(now, index, origin, None, interest, out),
        false => router.pass_by_disk(now, index, origin, bypass, interest, out),
    }
}
