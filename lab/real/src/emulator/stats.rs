use serde::Serialize;
use weir_base::{Histogram, bucket_count};
use weir_netem::LinkStats;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EmulatorStats {
    /// How long it ran.
    pub duration_ns: u64,
    /// Processor time of its thread.
    pub processor_ns: u64,
    pub seed: u64,
    pub a_to_b: DirectionStats,
    pub b_to_a: DirectionStats,
}

/// Counters of one direction. `received_frames` is the sum of `sent_frames`, `in_flight_frames` and
/// all drops except `dropped_socket`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DirectionStats {
    /// Datagrams from the peer.
    pub received_frames: u64,
    /// Bytes of those datagrams.
    pub received_bytes: u64,
    pub sent_frames: u64,
    /// Bytes of the datagrams sent.
    pub sent_bytes: u64,
    /// Datagrams in flight when the emulator stopped.
    pub in_flight_frames: u64,
    /// Dropped by the model's limit in bytes.
    pub dropped_queue_bytes: u64,
    /// Dropped by the model's limit in frames.
    pub dropped_queue_packets: u64,
    /// Lost by the model.
    pub dropped_loss: u64,
    /// Dropped because the link was down, or went down while they were in flight.
    pub dropped_down: u64,
    /// Dropped because the peer at the other side was unknown.
    pub dropped_no_peer: u64,
    /// Dropped by the memory limit.
    pub dropped_memory: u64,
    /// Dropped because the system did not send them.
    pub dropped_send: u64,
    /// Datagrams from other addresses than the peer; not in `received_frames`.
    pub strangers: u64,
    /// Lost in the receive buffer because the emulator was too slow; not in `received_frames`.
    pub dropped_socket: u64,
    /// Frames that the model reordered.
    pub reordered_frames: u64,
    /// Longest queue of the model in bytes.
    pub queue_bytes_peak: u64,
    /// Longest queue of the model in frames.
    pub queue_packets_peak: u32,
    /// How late frames left.
    pub lateness: LatenessStats,
}

/// Time from when a frame was due to when the system had sent it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatenessStats {
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Maximum.
    pub max_ns: u64,
}

/// A histogram of lateness in nanoseconds, precise to one part in 32.
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
    /// Adds the counters of the model.
    pub(crate) fn add_link(&mut self, link: &LinkStats) {
        self.dropped_queue_bytes += link.dropped_queue_bytes;
        self.dropped_queue_packets += link.dropped_queue_packets;
        self.dropped_loss += link.dropped_loss;
        self.dropped_down += link.dropped_down + link.lost_in_cuts;
        self.reordered_frames += link.reordered_frames;
        self.queue_bytes_peak = self.queue_bytes_peak.max(link.queue_bytes_peak);
        self.queue_packets_peak = self.queue_packets_peak.max(link.queue_packets_peak);
    }

    /// All frames dropped after they were received.
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
