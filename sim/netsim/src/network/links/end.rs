//! One end of a link: the face, and the direction from here to the other end.

use std::collections::VecDeque;

use weir_base::{FaceId, Instant, Packet, prefetch_read};
use weir_link::{Link, LinkConfig};
use weir_netem::LinkModel;

use crate::check::answers::Answers;
use crate::network::queue::EventKey;
use crate::network::timeline::Timer;
use crate::peek::Peek;

#[derive(Debug)]
pub(super) struct FrameInFlight {
    pub(super) moment: EventKey,
    /// [`LinkModel::cuts`] when the frame was sent. A later value means that the link went down
    /// since.
    pub(super) cuts: u32,
    pub(super) frame: Packet,
}

pub(in crate::network) struct End {
    pub(in crate::network) node: u32,
    pub(in crate::network) face: FaceId,
    pub(in crate::network) link: Link,
    pub(in crate::network) model: LinkModel,
    /// Ordered by arrival. Only the first frame is in the event queue.
    pub(super) in_flight: VecDeque<FrameInFlight>,
    /// Interests that arrived here and may be answered.
    pub(super) answers: Answers,
    /// How long after its lifetime an Interest may still be answered, ns.
    pub(super) patience_ns: u64,
    /// An Interest has arrived here.
    pub(super) has_asked: bool,
    /// The router at the other end has sent a signal about itself.
    pub(super) had_signal: bool,
    /// Fraction of frames that a fault damages now.
    pub(super) wrong_bytes: f64,
    /// Number of faults that keep the link down.
    pub(super) downs: u32,
    /// The node has crashed, and frames to it are lost.
    pub(super) is_node_down: bool,
    /// When the face must be polled next.
    pub(super) timer: Timer,
    /// Counters of the face before its router's crashes.
    pub(super) past_counters: PastCounters,
}

/// Counters of a face that was replaced after a crash.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PastCounters {
    pub(super) in_bytes: u64,
    pub(super) out_bytes: u64,
    pub(super) drops: u64,
}

impl End {
    /// Creates an end from the configurations of its face and of the direction to the other end.
    pub(in crate::network) fn new(
        node: u32,
        face: FaceId,
        link: LinkConfig,
        model: LinkModel,
        patience_ns: u64,
    ) -> Self {
        Self {
            node,
            face,
            link: Link::new(link),
            model,
            in_flight: VecDeque::new(),
            answers: Answers::default(),
            patience_ns,
            has_asked: false,
            had_signal: false,
            wrong_bytes: 0.0,
            downs: 0,
            is_node_down: false,
            timer: Timer::UNSET,
            past_counters: PastCounters::default(),
        }
    }

    /// Consumes the open Interest that a Data or Nack answers. Returns false if there is none.
    pub(super) fn may_answer(&mut self, now: Instant, is_nack: bool, packet: &[u8]) -> bool {
        let Some(peek) = Peek::of(packet) else { return false };
        if is_nack {
            self.answers.on_nack(now.as_ns(), packet, &peek)
        } else {
            self.answers.on_data(now.as_ns(), packet, &peek)
        }
    }

    /// Whether no fault keeps the link down.
    pub(in crate::network) fn is_up(&self) -> bool {
        self.downs == 0
    }

    /// Whether the neighbour has sent neither an Interest nor a signal.
    pub(in crate::network) fn is_untouched(&self) -> bool {
        !self.has_asked && !self.had_signal
    }

    /// Bytes queued at the face and before the link.
    pub(super) fn waiting_bytes(&mut self, now: Instant) -> u64 {
        self.link.queue_bytes() + self.model.queue_bytes(now)
    }

    /// Reports the length of the link's queue to the face, if the face uses it for incoming
    /// packets.
    #[inline]
    pub(super) fn set_backlog(&mut self, now: Instant) {
        if self.link.is_shaping() {
            self.link.set_socket_backlog(self.model.queue_bytes(now));
        }
    }

    /// Adds a frame to those in flight. Returns whether it arrives first.
    #[inline]
    pub(super) fn launch(&mut self, frame: FrameInFlight) -> bool {
        if self.in_flight.back().is_none_or(|last| last.moment < frame.moment) {
            self.in_flight.push_back(frame);
            return self.in_flight.len() == 1;
        }
        // A link that reorders lets a frame overtake those sent before it.
        let at = self.in_flight.partition_point(|other| other.moment < frame.moment);
        self.in_flight.insert(at, frame);
        at == 0
    }

    /// Prefetches the memory that the arrival of the next frame from here will touch.
    #[inline]
    pub(super) fn prefetch_arrival(&self) {
        prefetch_read(&self.in_flight);
        prefetch_read(&self.model);
        if let Some(first) = self.in_flight.front() {
            first.frame.prefetch();
        }
    }

    /// Prefetches the memory that a delivery here will touch.
    #[inline]
    pub(super) fn prefetch_delivery(&self) {
        prefetch_read(&self.node);
        prefetch_read(&self.link);
        prefetch_read(self.link.counters());
        prefetch_read(&self.answers);
    }

    /// Replaces the face, as a router does after a crash.
    pub(super) fn restart(&mut self) {
        self.past_counters = self.totals();
        let mut config = self.link.config().clone();
        // The sequence numbers start far away, as after a random draw. The other end still
        // remembers the old ones.
        config.codec.sequence_start = config.codec.sequence_start.wrapping_add(1 << 32);
        self.link = Link::new(config);
        self.answers.clear();
        self.timer = Timer::UNSET;
    }

    /// Counters since the start of the run.
    pub(super) fn totals(&self) -> PastCounters {
        let counters = self.link.counters();
        PastCounters {
            in_bytes: self.past_counters.in_bytes + counters.in_bytes,
            out_bytes: self.past_counters.out_bytes + counters.out_bytes,
            drops: self.past_counters.drops + counters.drops.total(),
        }
    }
}
