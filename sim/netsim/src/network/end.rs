//! One end of a link: the face's state, and the way from here to the other end.

use std::collections::VecDeque;

use weir_base::{FaceId, Instant, Packet, prefetch_read};
use weir_link::{Link, LinkConfig};
use weir_netem::LinkModel;

use super::queue::Moment;
use crate::check::answers::Answers;

/// A frame on its way.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// When it arrives.
    pub(crate) moment: Moment,
    /// [`LinkModel::cuts`] when it was sent.
    pub(crate) cuts: u32,
    pub(crate) frame: Packet,
}

/// One end of a link. Ends are numbered `2 * link` at `a` and `2 * link + 1` at `b`, so that the
/// other end of `end` is `end ^ 1`.
pub(crate) struct End {
    pub(crate) node: u32,
    pub(crate) face: FaceId,
    pub(crate) link: Link,
    pub(crate) model: LinkModel,
    /// By time of arrival. Only the first one is in the event queue.
    pub(crate) in_flight: VecDeque<InFlight>,
    /// What was asked here and may be answered.
    pub(crate) answers: Answers,
    /// How long after its lifetime an Interest may still be answered, ns.
    pub(crate) patience_ns: u64,
    /// An Interest came here.
    pub(crate) has_asked: bool,
    /// The router at the other end has said something of itself.
    pub(crate) had_signal: bool,
    /// The share of frames that are damaged now.
    pub(crate) wrong_bytes: f64,
    /// Faults that keep the link down.
    pub(crate) downs: u32,
    /// The next [`Due::Link`](super::queue::Due), if any.
    pub(crate) poll: Moment,
    /// Octets out, in, and drops, of links that crashed with their router.
    pub(crate) past: Past,
}

/// Counters of a face that began anew.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Past {
    pub(crate) in_bytes: u64,
    pub(crate) out_bytes: u64,
    pub(crate) drops: u64,
}

impl End {
    pub(crate) fn new(node: u32, face: FaceId, link: LinkConfig, model: LinkModel) -> Self {
        Self {
            node,
            face,
            link: Link::new(link),
            model,
            in_flight: VecDeque::new(),
            answers: Answers::default(),
            patience_ns: 0,
            has_asked: false,
            had_signal: false,
            wrong_bytes: 0.0,
            downs: 0,
            poll: Moment::NEVER,
            past: Past::default(),
        }
    }

    /// Tells the state of the face what waits on the link, if that matters to what comes in.
    #[inline]
    pub(crate) fn tell_backlog(&mut self, now: Instant) {
        if self.link.is_shaping() {
            self.link.set_socket_backlog(self.model.queue_bytes(now));
        }
    }

    /// Puts a frame among those on their way. Whether it is the first to arrive now.
    #[inline]
    pub(crate) fn launch(&mut self, frame: InFlight) -> bool {
        if self.in_flight.back().is_none_or(|last| last.moment < frame.moment) {
            self.in_flight.push_back(frame);
            return self.in_flight.len() == 1;
        }
        // Overtaken on the link, which then reorders.
        let at = self.in_flight.partition_point(|other| other.moment < frame.moment);
        self.in_flight.insert(at, frame);
        at == 0
    }

    /// Asks for what the arrival of a frame from here touches.
    #[inline]
    pub(crate) fn prefetch_arrival(&self) {
        prefetch_read(&self.in_flight);
        prefetch_read(&self.model);
        if let Some(first) = self.in_flight.front() {
            first.frame.prefetch();
        }
    }

    /// Asks for what the delivery of a packet here touches.
    #[inline]
    pub(crate) fn prefetch_delivery(&self) {
        prefetch_read(&self.node);
        prefetch_read(&self.link);
        prefetch_read(self.link.counters());
        prefetch_read(&self.answers);
    }

    /// The face begins anew, as that of a router that crashed.
    pub(crate) fn restart(&mut self) {
        self.past = self.totals();
        let mut config = self.link.config().clone();
        // As one that draws its first number: the other end remembers those of its former life.
        config.codec.sequence_start = config.codec.sequence_start.wrapping_add(1 << 32);
        self.link = Link::new(config);
        self.answers.clear();
        self.poll = Moment::NEVER;
    }

    /// Counters since the start of the run.
    pub(crate) fn totals(&self) -> Past {
        let counters = self.link.counters();
        Past {
            in_bytes: self.past.in_bytes + counters.in_bytes,
            out_bytes: self.past.out_bytes + counters.out_bytes,
            drops: self.past.drops + counters.drops.total(),
        }
    }
}
