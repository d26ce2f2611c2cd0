use weir_base::{HashKey, counters};
use weir_store::EvictionPolicy;
use weir_store::disk::DiskTierStats;

use crate::mapping::NameMapping;

/// What happens to an Interest that cannot be answered.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum MissPolicy {
    /// A Nack: `NoRoute` if the name does not exist, `Congestion` at a limit.
    #[default]
    Nack,
    /// No answer.
    Ignore,
}

/// The configuration of a producer.
#[derive(Clone, Debug)]
pub struct ProducerConfig {
    /// What happens to an Interest that cannot be answered.
    pub on_miss: MissPolicy,
    /// How long an Interest for missing data waits, in nanoseconds; at most its lifetime. 0: it
    /// does not wait.
    pub wait_max_ns: u64,
    /// Upper bound of waiting Interests.
    pub waiting_max: usize,
    /// Upper bound of pending reads, and of Interests that wait for the output buffer's disk.
    pub reads_max: usize,
    /// Bytes of memory for Data that was put or read; 0 stores none.
    pub buffer_bytes: u64,
    /// Which Data is evicted from that memory.
    pub buffer_policy: EvictionPolicy,
    /// The key of the hashes of names. Names come from untrusted peers, so a driver draws it at
    /// random. With a disk it must be the disk's.
    pub hash_key: HashKey,
    /// How names of applications become those in Interests. Interests whose payload belongs to
    /// another name are dropped.
    pub mapping: NameMapping,
}

impl ProducerConfig {
    /// For complete objects whose content is read for each Interest.
    pub const fn new(hash_key: HashKey) -> Self {
        Self {
            on_miss: MissPolicy::Nack,
            wait_max_ns: 0,
            waiting_max: 1 << 12,
            reads_max: 1 << 16,
            buffer_bytes: 0,
            buffer_policy: EvictionPolicy::Lru,
            hash_key,
            mapping: NameMapping::Identity,
        }
    }

    /// For Data made on request: Interests wait up to `wait_max_ns` for it, and get no answer
    /// otherwise.
    pub const fn on_demand(hash_key: HashKey, wait_max_ns: u64) -> Self {
        Self { on_miss: MissPolicy::Ignore, wait_max_ns, ..Self::new(hash_key) }
    }
}

counters! {
    /// Counters of a producer.
    #[derive(Copy)]
    pub struct ProducerStats {
        /// Interests received.
        interests: Total;
        /// How many of `interests` requested an object's newest metadata by their keyword: about
        /// one from each consumer that begins, minus those that routers answer. Mapped names have
        /// no keyword and are not counted.
        metadata: Total;
        /// Data sent.
        data: Total;
        /// Bytes of Data sent.
        octets: Total;
        /// Interests for names that do not exist, and that did not wait or were refused while
        /// waiting.
        unknown: Total;
        /// Packets that are not Interests, and invalid Data given to `Put`.
        malformed: Total;
        /// Interests with a mapped name whose payload is malformed or belongs to another name.
        /// They get no answer.
        false_payloads: Total;
        /// Interests refused at the limit of waiting Interests or of reads.
        refused: Total;
        /// How many of `data` were read from the output buffer's disk.
        disk_data: Total;
        /// Interests for which that disk had no answer: it failed, did not respond, or had another
        /// record there.
        disk_vain: Total;
        /// Interests that waited until their time was over.
        expired: Total;
        /// Reads that failed.
        reads_failed: Total;
        /// Reads that outlasted the Interest's lifetime.
        reads_late: Total;
    }
    also {
        /// The disk of the output buffer.
        disk: DiskTierStats,
    }
}
