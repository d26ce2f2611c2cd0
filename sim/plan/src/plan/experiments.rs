//! Router settings that only experiments change. No operator needs them.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use weir_base::units::Time;
use weir_base::words;
use weir_forward::{BusyPolicy, Labels};
use weir_store::disk::{Contention, DiskTierConfig, FilterKind};

/// Whether an Interest that waits for a disk blocks the Interests behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreIo {
    /// It does. Interests queue before the store during a read, as before a blocking thread (paper
    /// nb-cache, cases A and C).
    Blocking,
    /// It does not (cases B and D).
    #[default]
    Async,
}

words!(StoreIo { Blocking = "blocking", Async = "async" });

/// The order of a store's index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexKind {
    /// By the hash of the name: one comparison.
    #[default]
    Hash,
    /// A list in name order, as in CCNx: about log n comparisons (paper ccnx-measurement, 5).
    Ordered,
}

/// How a store compares names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compare {
    /// Uses the known position of the name in a stored packet.
    #[default]
    Stored,
    /// Decodes the stored packet for every comparison, as CCNx did (paper ccnx-measurement, 5).
    Decode,
}

words!(IndexKind { Hash = "hash", Ordered = "ordered" });
words!(Compare { Stored = "stored", Decode = "decode" });

/// Store settings: keys of `[router.store]` in a scenario, and of `[lab.store]` in the
/// configuration of a router that the laboratory starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub struct StoreExperiments {
    pub index: IndexKind,
    pub compare: Compare,
}

/// Disk settings: keys of `[router.disk]` in a scenario, and of `[lab.disks]` in the configuration
/// of a router that the laboratory starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub struct DiskExperiments {
    pub io: StoreIo,
    /// With [`StoreIo::Blocking`]: limit on queued Interests. Further ones get a Nack for
    /// congestion.
    #[serde(deserialize_with = "waiting_max")]
    pub interests_waiting_max: u32,
    /// With NB-CC marks: which next hops have capacity for an Interest that bypasses the disks.
    pub labels: Labels,
    /// With NB-CC marks: how often a router signals to its neighbours that its disks are busy.
    #[serde(deserialize_with = "announce_period")]
    pub announce_period: Time,
    /// Whether reads or writes go first when both wait for a disk.
    pub contention: Contention,
    /// The filter before the index of a disk.
    pub filter: FilterKind,
    /// False positives of the filter, per million absent Data.
    #[serde(deserialize_with = "false_positives_ppm")]
    pub filter_false_positives_ppm: u32,
}

impl Default for DiskExperiments {
    fn default() -> Self {
        let busy = BusyPolicy::default();
        Self {
            io: StoreIo::default(),
            interests_waiting_max: 20_000,
            labels: busy.labels,
            announce_period: Time { ns: busy.announce_period_ns },
            contention: Contention::default(),
            filter: FilterKind::default(),
            filter_false_positives_ppm: 10_000,
        }
    }
}

impl DiskExperiments {
    /// Applies the experiment's settings to `busy`.
    #[must_use]
    pub fn busy(&self, busy: BusyPolicy) -> BusyPolicy {
        let (labels, announce_period_ns) = (self.labels, self.announce_period.ns);
        BusyPolicy { labels, announce_period_ns, ..busy }
    }

    /// Applies the experiment's settings to `tier`.
    #[must_use]
    pub fn tier(&self, tier: DiskTierConfig) -> DiskTierConfig {
        let Self { contention, filter, filter_false_positives_ppm: false_positives_ppm, .. } =
            *self;
        DiskTierConfig { contention, filter, false_positives_ppm, ..tier }
    }
}

fn waiting_max<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    count(from, 1_000_000)
}

fn false_positives_ppm<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    count(from, 500_000)
}

fn count<'de, D: Deserializer<'de>>(from: D, max: u32) -> Result<u32, D::Error> {
    let number = i64::deserialize(from)?;
    let count = u32::try_from(number).ok().filter(|count| (1..=max).contains(count));
    count.ok_or_else(|| D::Error::custom(format!("{number} is out of range; choose 1 to {max}")))
}

/// A neighbour forgets an announcement after at most 10 s.
fn announce_period<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    let period = Time::deserialize(from)?;
    match period.ns {
        1..=3_000_000_000 => Ok(period),
        _ => Err(D::Error::custom(format!(
            "{period} is out of range; choose more than 0 and at most \"3s\""
        ))),
    }
}
