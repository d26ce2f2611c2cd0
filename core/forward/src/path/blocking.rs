//! A store that blocks (paper nb-cache, cases A and C): Interests queue before it while one of them
//! is read for, as before a thread that does nothing else.

use weir_base::Instant;
use weir_store::{NameHashes, Query};
use weir_wire::{InterestView, NackReason, PacketView};

use crate::content::adaptive::DiskQueue;
use crate::content::bypass::Verdict;
use crate::content::decision::StoreDecision;
use crate::content::disk::QueuedInterest;
use crate::io::Outbox;
use crate::packet::{QueueState, ReceivedPacket};
use crate::router::Router;
use crate::stats::DropReason;

impl Router {
    /// An Interest comes while the store reads. What the filter of the store, which is before the
    /// queue, rules out does not wait (the first bypass). Anything else queues, or passes by over
    /// the threshold, whether the store has its Data or not. Past the bound, a Nack.
    #[cold]
    pub(crate) fn meet_blocked_store(
        &mut self,
        now: Instant,
        from: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        hashes: NameHashes,
        out: &mut Outbox,
    ) {
        let Some(face) = self.faces.find(from.face) else {
            return self.stats.drop_packet(DropReason::UnknownFace);
        };
        if self.is_ruled_out(now, interest, hashes) {
            return self.resume_interest(now, from, interest, hashes, out);
        }
        self.disk.neighbours.note_asked(now, &face);
        let queue = u32::try_from(self.disk.queue.len()).unwrap_or(u32::MAX);
        let home = DiskQueue { disk: 0, queue, expected_wait_ns: 0 };
        let queue_state = match self.judge(now, from, interest, home) {
            Verdict::PassBy(past) => {
                let Some(asked) = self.check(from, interest, hashes, out) else { return };
                let is_waited_for = asked.pending.is_some_and(|index| {
                    let entry = self.pit.entry(index);
                    !entry.in_records.is_empty()
                });
                let course = match is_waited_for {
                    true => StoreDecision::Forward,
                    false => StoreDecision::Bypass(past),
                };
                if let Some(index) = self.enter_pit(now, from, interest, &asked, out) {
                    self.follow(now, course, index, from, interest, out);
                }
                return;
            }
            Verdict::Wait { is_marked: false } => QueueState::Queued,
            Verdict::Wait { is_marked: true } => QueueState::QueuedToBeMarked,
        };
        if self.disk.queue.len() >= self.config.busy.interests_waiting_max {
            self.stats.busy.interests_refused += 1;
            return self.refuse(from, face, NackReason::Congestion, DropReason::StoreBusy, out);
        }
        self.stats.busy.interests_queued += 1;
        let (header, packet) = (from.header.clone(), from.packet.clone());
        self.disk.queue.push_back(QueuedInterest { face: from.face, header, packet, queue_state });
    }

    /// Whether an Interest need not ask the store: only its filter was asked, and memory has
    /// nothing.
    fn is_ruled_out(&self, now: Instant, interest: &InterestView<'_>, hashes: NameHashes) -> bool {
        let query = Query {
            name: interest.name,
            hashes,
            can_be_prefix: interest.can_be_prefix,
            must_be_fresh: interest.must_be_fresh,
        };
        !interest.can_be_prefix
            && self.store.is_ruled_out(interest.name, &hashes)
            && !self.store.has_answer(now, &query)
    }

    /// The store has read: those who waited have their turn, until one of them has it read again.
    pub(crate) fn let_queue_pass(&mut self, now: Instant, out: &mut Outbox) {
        while !self.disk.is_blocked()
            && let Some(QueuedInterest { face, header, packet, queue_state }) =
                self.disk.queue.pop_front()
        {
            let view = PacketView::decode(&packet).expect("what queues has been decoded");
            let hashes = self.hash_name(&view);
            let PacketView::Interest(interest) = &view else { unreachable!("no Data queues") };
            let from = ReceivedPacket { face, header: &header, packet: &packet, queue_state };
            self.resume_interest(now, &from, interest, hashes, out);
        }
    }
}
