//! Producers.

use std::collections::VecDeque;

use weir_base::{Instant, Packet, Pool};
use weir_security::sha256;
use weir_wire::{InterestView, LpHeader, PitToken};

use super::encode::DataTemplate;
use super::{AppInput, AppOutbox};
use crate::workload::{Collection, ProducerPlan, WorkloadError};

/// Answers that may be due later, at most.
const DUE_MAX: usize = 1 << 16;
/// Octets of blocks at rest.
const POOL_BYTES: usize = 4 << 20;

/// What a producer did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProducerStats {
    /// Interests that came.
    pub interests: u64,
    /// Data sent.
    pub answered: u64,
    /// Interests for what it does not have.
    pub unknown: u64,
    /// Packets that are no Interests.
    pub malformed: u64,
    /// Interests dropped because too many answers were due already.
    pub dropped: u64,
}

/// Answers every Interest of its naming with octets that follow from the name, in packets with a
/// NullSignature. What it does not have it leaves unanswered.
#[derive(Debug)]
pub struct Producer {
    collection: Collection,
    template: DataTemplate,
    pool: Pool,
    delay_ns: u64,
    /// Answers of the future, in order.
    due: VecDeque<Due>,
    stats: ProducerStats,
}

#[derive(Debug)]
struct Due {
    at: Instant,
    object: u64,
    segment: u64,
    token: PitToken,
}

impl Producer {
    /// The producer of `plan`. Nothing that it does is random, so that all seeds are alike.
    ///
    /// # Errors
    /// A value of the plan is out of range.
    pub fn new(plan: &ProducerPlan, _seed: u64) -> Result<Self, WorkloadError> {
        let collection = Collection::new(&plan.names)?;
        if collection.object_count() == 0 {
            let problem = "names no object; there must be at least one";
            return Err(WorkloadError::value("popularity", problem));
        }
        Ok(Self {
            collection,
            template: DataTemplate::new(plan.freshness_ms),
            pool: Pool::new(POOL_BYTES),
            delay_ns: plan.delay_ns,
            due: VecDeque::new(),
            stats: ProducerStats::default(),
        })
    }

    /// See [`App::handle`](super::App::handle).
    pub fn handle(&mut self, now: Instant, inputs: &mut Vec<AppInput>, out: &mut AppOutbox) {
        for AppInput { header, packet } in inputs.drain(..) {
            self.interest(now, &header, &packet, out);
        }
        while let Some(due) = self.due.front().filter(|due| due.at <= now) {
            let (object, segment, token) = (due.object, due.segment, due.token);
            self.due.pop_front();
            let packet = self.data(object, segment);
            self.send(packet, token, out);
        }
    }

    fn interest(&mut self, now: Instant, header: &LpHeader, packet: &[u8], out: &mut AppOutbox) {
        let Some(interest) = Some(packet)
            .filter(|_| header.nack.is_none())
            .and_then(|packet| InterestView::decode(packet).ok())
        else {
            self.stats.malformed += 1;
            return;
        };
        self.stats.interests += 1;
        let asked = self.collection.naming().parse(interest.name.value()).filter(|asked| {
            asked.object < self.collection.object_count()
                && asked.segment < self.collection.shape(asked.object).segments
        });
        let Some(asked) = asked else {
            self.stats.unknown += 1;
            return;
        };
        let (object, segment) = (asked.object, asked.segment);
        if let Some(digest) = asked.digest {
            let packet = self.data(object, segment);
            if sha256(&[&packet]) != *digest {
                self.stats.unknown += 1;
                return;
            }
        }
        if self.delay_ns == 0 {
            let packet = self.data(object, segment);
            self.send(packet, header.pit_token, out);
        } else if self.due.len() < DUE_MAX {
            let at = now.plus_ns(self.delay_ns);
            self.due.push_back(Due { at, object, segment, token: header.pit_token });
        } else {
            self.stats.dropped += 1;
        }
    }

    #[inline]
    fn data(&mut self, object: u64, segment: u64) -> Packet {
        let shape = self.collection.shape(object);
        self.template.write(&self.collection, shape, object, segment, &mut self.pool)
    }

    #[inline]
    fn send(&mut self, packet: Packet, token: PitToken, out: &mut AppOutbox) {
        self.stats.answered += 1;
        out.packets.push((LpHeader { pit_token: token, ..LpHeader::default() }, packet));
    }

    /// See [`App::next_wakeup`](super::App::next_wakeup).
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.due.front().map(|due| due.at)
    }

    /// See [`App::is_done`](super::App::is_done).
    pub fn is_done(&self) -> bool {
        self.due.is_empty()
    }

    /// What it has.
    pub fn collection(&self) -> &Collection {
        &self.collection
    }

    /// The Data of a segment, as it would send it: for filling stores.
    pub fn segment(&mut self, object: u64, segment: u64) -> Packet {
        self.data(object, segment)
    }

    /// Counters.
    pub fn stats(&self) -> ProducerStats {
        self.stats
    }
}
