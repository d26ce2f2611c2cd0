//! Counters of a consumer.

use super::chunk::ScoreboardCounters;

#[derive(Clone, Debug, Default)]
pub struct ConsumerStats {
    /// Packets received and wanted: segments, manifest parts and metadata.
    pub delivered: u64,
    /// Their bytes, including headers.
    pub octets: u64,
    /// Segments verified, or delivered without verification.
    pub segments: u64,
    pub content_octets: u64,
    pub interests: u64,
    /// How many of the Interests had been sent before.
    pub retransmissions: u64,
    /// Losses found because later Interests had been answered, or because no packet arrived for a
    /// while (probe timeout).
    pub losses: u64,
    pub timeouts: u64,
    pub nacks: u64,
    /// Packets with a congestion mark.
    pub marks: u64,
    /// How often a window shrank.
    pub decreases: u64,
    /// Losses that were false: the answer arrived later.
    pub false_losses: u64,
    /// Packets that were not requested, or had been received before.
    pub unwanted: u64,
    /// Packets that could not be decoded.
    pub malformed: u64,
    /// The object has ended where a flag of hICN states its end. No signature covers the flag, but
    /// no packet follows.
    pub has_unsigned_end: bool,
    /// The window in chunks, summed over all paths in use.
    pub window: f64,
    /// Unanswered Interests.
    pub outstanding: u32,
    /// Most unanswered Interests at one time.
    pub outstanding_max: u32,
    pub rtt_smoothed_ns: Option<u64>,
    pub rtt_min_ns: Option<u64>,
    /// The median round-trip time, in nanoseconds.
    pub rtt_median_ns: Option<u64>,
    /// The 99th percentile of the round-trip time, in nanoseconds.
    pub rtt_p99_ns: Option<u64>,
}

impl ConsumerStats {
    pub(crate) fn add(&mut self, counters: &ScoreboardCounters) {
        self.interests += counters.sent;
        self.retransmissions += counters.resent;
        self.losses += counters.lost;
        self.timeouts += counters.timeouts;
        self.nacks += counters.nacks;
        self.marks += counters.marks;
        self.decreases += counters.decreases;
        self.false_losses += counters.false_losses;
        self.unwanted += counters.unwanted;
        self.outstanding_max = self.outstanding_max.max(counters.in_flight_max);
    }
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PathStats {
    /// Interests sent for segments.
    pub interests: u64,
    /// Chunks found lost because later ones had been answered, or because no packet arrived for a
    /// while (probe timeout).
    pub losses: u64,
    /// Chunks that timed out.
    pub timeouts: u64,
    /// Nacks received for segments.
    pub nacks: u64,
    /// The smoothed round-trip time, in nanoseconds, of the latest connection.
    pub rtt_smoothed_ns: Option<u64>,
}

impl PathStats {
    /// Adds the counters of a later connection, or of another path.
    pub fn add(&mut self, other: &Self) {
        self.interests += other.interests;
        self.losses += other.losses;
        self.timeouts += other.timeouts;
        self.nacks += other.nacks;
        self.rtt_smoothed_ns = other.rtt_smoothed_ns.or(self.rtt_smoothed_ns);
    }
}
