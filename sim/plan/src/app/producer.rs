//! The producer of the transport, with content that is generated on request.

use std::collections::VecDeque;
use std::fmt;

use weir_base::{HashKey, Instant, Packet, Pool};
use weir_transport::{
    MissPolicy, ProducerConfig, ProducerInput, ProducerOutbox, ProducerStats, ReadOp,
};

use super::content::Content;
use super::{AppInput, AppOutbox};
use crate::event::EventKind;
use crate::workload::{Collection, ProducerPlan, WorkloadError};

/// Limit on delayed answers.
const DUE_MAX: usize = 1 << 16;
/// Memory for free packet blocks.
const POOL_BYTES: usize = 4 << 20;

/// Answers every Interest of its naming with bytes that depend on the name only, in packets with a
/// NullSignature. It ignores Interests for content that it does not have.
pub struct Producer {
    producer: weir_transport::Producer<Content>,
    inputs: Vec<ProducerInput>,
    out: ProducerOutbox,
    pool: Pool,
    delay_ns: u64,
    /// Delayed answers, in order.
    due: VecDeque<(Instant, ReadOp)>,
}

impl Producer {
    /// The producer of `plan`. Nothing about it is random; `seed` is the key of its hash tables.
    pub fn new(plan: &ProducerPlan, seed: u64) -> Result<Self, WorkloadError> {
        let collection = Collection::new(&plan.names)?;
        if collection.object_count() == 0 {
            let problem = "has no objects; write at least 1";
            return Err(WorkloadError::value("popularity", problem));
        }
        let config = ProducerConfig {
            on_miss: MissPolicy::Ignore,
            reads_max: DUE_MAX,
            ..ProducerConfig::new(HashKey::new([seed, !seed]))
        };
        let content = Content::new(collection, plan.freshness_ms);
        Ok(Self {
            producer: weir_transport::Producer::new(content, config),
            inputs: Vec::new(),
            out: ProducerOutbox::default(),
            pool: Pool::new(POOL_BYTES),
            delay_ns: plan.delay_ns,
            due: VecDeque::new(),
        })
    }

    /// See [`App::handle`](super::App::handle).
    pub fn handle(&mut self, now: Instant, inputs: &mut Vec<AppInput>, out: &mut AppOutbox) {
        let packet =
            |AppInput { path, header, packet }| ProducerInput::Packet { path, header, packet };
        self.inputs.extend(inputs.drain(..).map(packet));
        self.producer.source_mut().set_now(now);
        self.producer.handle(now, &mut self.inputs, &mut self.out);
        let ends = now.plus_ns(self.delay_ns);
        self.due.extend(self.out.reads.drain(..).map(|op| (ends, op)));
        // Without a delay, this also answers the reads of this call.
        while let Some((_, op)) = self.due.pop_front_if(|(at, _)| *at <= now) {
            let data = self.segment(op.object.0, op.segment);
            self.inputs.push(ProducerInput::ReadDone { op, data });
        }
        if !self.inputs.is_empty() {
            self.producer.handle(now, &mut self.inputs, &mut self.out);
        }
        if self.collection().live().is_some() {
            self.report(out);
        }
        out.packets.append(&mut self.out.packets);
    }

    /// Reports what a server of live channels was requested and sends.
    fn report(&mut self, out: &mut AppOutbox) {
        let requests = self.producer.source_mut().take_requests();
        if requests > 0 {
            out.events.push(EventKind::ServerRequests { count: requests });
        }
        let packet_bytes = self.out.packets.iter().map(|(.., packet)| packet.len() as u64).sum();
        if packet_bytes > 0 {
            out.events.push(EventKind::ServerSent { packet_bytes });
        }
    }

    /// See [`App::next_wakeup`](super::App::next_wakeup).
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.due.front().map(|(at, _)| *at)
    }

    /// See [`App::is_done`](super::App::is_done).
    pub(crate) fn is_done(&self) -> bool {
        self.due.is_empty()
    }

    pub fn collection(&self) -> &Collection {
        self.producer.source().collection()
    }

    /// The Data of a segment as the producer would send it. Used to fill stores.
    #[inline]
    pub fn segment(&mut self, object: u64, segment: u64) -> Packet {
        self.producer.source_mut().packet(object, segment, &mut self.pool)
    }

    /// Counters.
    pub(crate) fn stats(&self) -> ProducerStats {
        self.producer.stats()
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Producer").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
