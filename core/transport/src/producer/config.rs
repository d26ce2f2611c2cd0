use weir_base::{HashKey, counters};
use weir_store::EvictionPolicy;
use weir_store::disk::DiskTierStats;

/// What becomes of an Interest that cannot be answered.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum MissPolicy {
    /// A Nack goes back: `NoRoute` for what there is not, `Congestion` at a bound.
    #[default]
    Nack,
    /// It stays without an answer.
    Ignore,
}

/// How a producer answers.
#[derive(Clone, Debug)]
pub struct ProducerConfig {
    /// What becomes of an Interest that cannot be answered.
    pub on_miss: MissPolicy,
    /// How long an Interest for what there is not yet waits for it, in nanoseconds; its lifetime
    /// bounds that, too. 0: none waits.
    pub wait_max_ns: u64,
    /// Interests that wait, at most.
    pub waiting_max: usize,
    /// Reads under way, at most, and Interests that wait for the disk of the output buffer.
    pub reads_max: usize,
    /// Octets of memory for Data that was put and what came from reads; 0 keeps none.
    pub buffer_bytes: u64,
    /// Which Data makes room for new Data in that memory.
    pub buffer_policy: EvictionPolicy,
    /// The key of the hashes of names. Names come from strangers: a driver draws it. With a disk it
    /// is the disk's.
    pub hash_key: HashKey,
}

impl ProducerConfig {
    /// For objects that are all there, whose content is read anew for each Interest.
    pub const fn new(hash_key: HashKey) -> Self {
        Self {
            on_miss: MissPolicy::Nack,
            wait_max_ns: 0,
            waiting_max: 1 << 12,
            reads_max: 1 << 16,
            buffer_bytes: 0,
            buffer_policy: EvictionPolicy::Lru,
            hash_key,
        }
    }

    /// For Data made when it is asked for: Interests wait up to `wait_max_ns` for it, and what
    /// never comes stays without an answer.
    pub const fn on_demand(hash_key: HashKey, wait_max_ns: u64) -> Self {
        Self { on_miss: MissPolicy::Ignore, wait_max_ns, ..Self::new(hash_key) }
    }
}

counters! {
    /// What a producer did so far.
    #[derive(Copy)]
    pub struct ProducerStats {
        /// Interests that came.
        interests: Total;
        /// Interests of `interests` that looked for an object's newest metadata by their keyword:
        /// about one from each consumer that begins, less those that routers answer. Names that
        /// are mapped to others have no keyword and are not counted.
        metadata: Total;
        /// Data sent.
        data: Total;
        /// Octets of Data sent.
        octets: Total;
        /// Interests for what there is not, which did not wait or were refused while they did.
        unknown: Total;
        /// Packets that are no Interests, and Data put that is none.
        malformed: Total;
        /// Interests that were to wait, or to be read for, at the bound of those.
        refused: Total;
        /// Data sent of `data` that was read from the disk of the output buffer.
        disk_data: Total;
        /// Interests for which that disk was read in vain: it failed, did not answer, or had
        /// something else there.
        disk_vain: Total;
        /// Interests that waited in vain.
        expired: Total;
        /// Reads that failed.
        reads_failed: Total;
        /// Reads that took longer than the Interest's lifetime.
        reads_late: Total;
    }
    also {
        /// The disk of the output buffer.
        disk: DiskTierStats,
    }
}
