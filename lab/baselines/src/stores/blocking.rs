//! A blocking store (paper nb-cache, cases A and C). It serves one Interest at a time: while it
//! reads from disk, all other Interests wait in a queue.

use std::collections::VecDeque;
use std::mem;

use weir_base::Instant;
use weir_forward::{Driver, Input, Outbox, QueuedInterest, Router, Turn};
use weir_wire::tlv;

/// The queue before the store of a shard.
pub(super) struct StoreQueue {
    queue: VecDeque<QueuedInterest>,
    /// Limit on queued Interests. Further ones get a Nack for congestion.
    interests_max: usize,
}

impl Driver for StoreQueue {
    fn handle(
        &mut self,
        router: &mut Router,
        now: Instant,
        inputs: &mut [Input],
        out: &mut Outbox,
    ) {
        let mut turn = Turn::begin(router, now, out);
        self.settle(&mut turn);
        for input in inputs {
            match mem::replace(input, Input::Wakeup) {
                Input::Packet { face, header, packet }
                    if turn.is_reading()
                        && header.nack.is_none()
                        && packet.first().is_some_and(|&kind| u32::from(kind) == tlv::INTEREST) =>
                {
                    if let Some(held) = turn.offer_to_queue(face, header, packet, self.queue.len())
                    {
                        self.push(&mut turn, held);
                    }
                }
                packet @ Input::Packet { .. } => turn.handle(packet),
                input => {
                    turn.handle(input);
                    self.settle(&mut turn);
                }
            }
        }
        self.settle(&mut turn);
        turn.end();
    }
}

impl StoreQueue {
    pub(super) fn new(interests_max: usize) -> Self {
        Self { queue: VecDeque::new(), interests_max }
    }

    fn push(&mut self, turn: &mut Turn<'_>, interest: QueuedInterest) {
        if self.queue.len() >= self.interests_max {
            return turn.refuse(&interest);
        }
        self.queue.push_back(interest);
        turn.count_queued(self.queue.len());
    }

    /// Continues after finished reads: looks up queued Interests until the store reads for one of
    /// them.
    fn settle(&mut self, turn: &mut Turn<'_>) {
        turn.finish_reads();
        while !turn.is_reading()
            && let Some(interest) = self.queue.pop_front()
        {
            turn.resume(&interest, self.queue.len());
            turn.finish_reads();
        }
    }
}
