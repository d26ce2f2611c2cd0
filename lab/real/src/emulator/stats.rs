use serde::Serialize;
use weir_base::{Histogram, bucket_count};
use weir_netem::LinkStats;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EmulatorStats {
    /// Time that it ran.
    pub duration_ns: u64,
    /// Processor time of its thread.
    pub processor_ns: u64,
    pub seed: u64,
    pub a_to_b: DirectionStats,
    pub b_to_a: DirectionStats,
}

/// What became of the datagrams of one direction. `received_frames` is the sum of `sent_frames`,
/// `in_flight_frames` and everything dropped but `dropped_socket`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DirectionStats {
    /// Datagrams from the peer, and their octets.
    pub received_frames: u64,
    /// Octets of those datagrams.
    pub received_bytes: u64,
    pub sent_frames: u64,
    /// Octets of the datagrams sent on.
    pub sent_bytes: u64,
    /// Datagrams on the link when the emulator stopped.
    pub in_flight_frames: u64,
    /// Dropped for the model's bound in octets.
    pub dropped_queue_bytes: u64,
    /// Dropped for the model's bound in frames.
    pub dropped_queue_packets: u64,
    /// Lost by the model.
    pub dropped_loss: u64,
    /// Dropped because the link was down, or cut while they were on it.
    pub dropped_down: u64,
    /// Dropped because no peer at the other side was known yet.
    pub dropped_no_peer: u64,
    /// Dropped for the bound of memory.
    pub dropped_memory: u64,
    /// Dropped because the system would not send them.
    pub dropped_send: u64,
    /// Datagrams that did not come from the peer; not in `received_frames`.
    pub strangers: u64,
    /// Lost in the receiving socket before the emulator saw them: it was too slow. Not in
    /// `received_frames`.
    pub dropped_socket: u64,
    /// Frames held back by the model to arrive out of order.
    pub reordered_frames: u64,
    /// The most octets that waited in the model's queue.
    pub queue_bytes_peak: u64,
    /// The most frames that waited in the model's queue.
    pub queue_packets_peak: u32,
    /// How late frames left.
    pub lateness: LatenessStats,
}

/// Time from when a frame was due to when the system had sent it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatenessStats {
    /// Half were no later than that.
    pub p50_ns: u64,
    /// 90 % were no later than that.
    pub p90_ns: u64,
    /// 99 % were no later than that.
    pub p99_ns: u64,
    /// 99.9 % were no later than that.
    pub p999_ns: u64,
    /// None was later than that.
    pub max_ns: u64,
}

/// How late things happened, in nanoseconds, to one part in 32.
pub(crate) type LatenessHistogram = Histogram<32, { bucket_count(32) }>;

impl LatenessStats {
    pub(crate) fn of(histogram: &LatenessHistogram) -> Self {
        let quantile = |share| histogram.quantile(share).unwrap_or(0);
        Self {
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: histogram.max(),
        }
    }
}

impl DirectionStats {
    /// Adds what the model counted.
    pub(crate) fn add_link(&mut self, link: &LinkStats) {
        self.dropped_queue_bytes += link.dropped_queue_bytes;
        self.dropped_queue_packets += link.dropped_queue_packets;
        self.dropped_loss += link.dropped_loss;
        self.dropped_down += link.dropped_down + link.lost_in_cuts;
        self.reordered_frames += link.reordered_frames;
        self.queue_bytes_peak = self.queue_bytes_peak.max(link.queue_bytes_peak);
        self.queue_packets_peak = self.queue_packets_peak.max(link.queue_packets_peak);
    }

    /// Everything dropped after it was received.
    pub(crate) fn dropped_frames(&self) -> u64 {
        self.dropped_queue_bytes
            + self.dropped_queue_packets
            + self.dropped_loss
            + self.dropped_down
            + self.dropped_no_peer
            + self.dropped_memory
            + self.dropped_send
    }
}
