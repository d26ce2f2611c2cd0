//! What only experiments vary in a router: no operator has a reason to.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use weir_base::units::Time;
use weir_base::words;
use weir_forward::{BusyPolicy, Labels};
use weir_store::disk::{Contention, DiskTierConfig, FilterKind};

/// Whether an Interest that waits for a disk holds up the Interests behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreIo {
    /// It does: Interests queue before the store while it reads for one of them, as before a thread
    /// that blocks (paper nb-cache, cases A and C).
    Blocking,
    /// It does not (cases B and D).
    #[default]
    Async,
}

words!(StoreIo { Blocking = "blocking", Async = "async" });

/// The order in which a store finds Data by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexKind {
    /// By the hash of the name: one comparison.
    #[default]
    Hash,
    /// In a list in the order of names, as CCNx did: about log n comparisons (paper
    /// ccnx-measurement, 5).
    Ordered,
}

/// What a store compares names with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compare {
    /// The position of the name in a stored packet is known.
    #[default]
    Stored,
    /// The stored packet is decoded for every comparison, as CCNx did (paper ccnx-measurement, 5).
    Decode,
}

words!(IndexKind { Hash = "hash", Ordered = "ordered" });
words!(Compare { Stored = "stored", Decode = "decode" });

/// Of a router's store: keys of `[router.store]` in a scenario and of `[lab.store]` in the
/// configuration of a router that the laboratory starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub struct StoreExperiments {
    pub index: IndexKind,
    pub compare: Compare,
}

/// Of a router's disks: keys of `[router.disk]` in a scenario and of `[lab.disks]` in the
/// configuration of a router that the laboratory starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub struct DiskExperiments {
    pub io: StoreIo,
    /// With [`StoreIo::Blocking`]: Interests that queue at most. Beyond it, their senders get a
    /// Nack for congestion.
    #[serde(deserialize_with = "waiting_max")]
    pub interests_waiting_max: u32,
    /// With marks of NB-CC: which next hops have room for an Interest that bypasses the disks.
    pub labels: Labels,
    /// With marks of NB-CC: how often a router notifies its neighbours that its disks are busy.
    #[serde(deserialize_with = "announce_period")]
    pub announce_period: Time,
    /// Whether reads or writes go first when both wait for a disk.
    pub contention: Contention,
    /// What is looked up before the index of a disk.
    pub filter: FilterKind,
    /// How many Data among a million that are not there the filter lets pass.
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
    /// `busy` with the choices of the experiment.
    #[must_use]
    pub fn busy(&self, busy: BusyPolicy) -> BusyPolicy {
        let (labels, announce_period_ns) = (self.labels, self.announce_period.ns);
        BusyPolicy { labels, announce_period_ns, ..busy }
    }

    /// `tier` with the choices of the experiment.
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
    count.ok_or_else(|| D::Error::custom(format!("{number} cannot be; give 1 to {max}")))
}

/// Neighbours believe an announcement for 10 s at most.
fn announce_period<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    let period = Time::deserialize(from)?;
    match period.ns {
        1..=3_000_000_000 => Ok(period),
        _ => Err(D::Error::custom(format!(
            "{period} cannot be; give more than 0 and at most \"3s\""
        ))),
    }
}
