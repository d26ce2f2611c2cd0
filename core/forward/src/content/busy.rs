//! What a router does when the disks of its store are busy (paper nb-cache, III).

use weir_base::{NS_PER_MS, words};

/// When an Interest goes to the next hop although the store has its Data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bypass {
    /// Never.
    Off,
    /// When the read queue has reached the threshold and there is another hop (paper nb-cache,
    /// III-C).
    Threshold,
    /// When the read would take longer than [`BusyPolicy::late_after_ns`], judged by recent reads
    /// of this disk. Until then marks slow consumers down. A consumer fills a queue of any length,
    /// and is still served at the speed of the disk.
    #[default]
    Late,
    /// When the next hop will probably answer sooner, see `content/adaptive.rs`.
    /// If a driver queues Interests in front of the store, this is the same as
    /// [`Bypass::Threshold`].
    Adaptive,
}

/// Which Data carries a congestion mark because of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    Off,
    /// Data of every Interest that found the queue over the threshold, whether it waited or
    /// bypassed it.
    Ecn,
    /// Data of Interests that found the queue over the threshold and no available hop (paper
    /// nb-cache, III-E). Neighbours signal to each other whether they are available.
    #[default]
    NbCc,
}

/// With [`Mark::NbCc`]: which store must have room before an Interest may bypass a disk to a next
/// hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Labels {
    /// The store of the next hop, as it signals (paper nb-cache, III-E).
    #[default]
    Neighbour,
    /// Some store on the path beyond the next hop. Data of bypassing Interests shows it: a mark or
    /// a Nack means that no store on the path had room. These results set the number of bypassing
    /// Interests that may be in flight to the next hop.
    Path,
}

words!(Bypass { Off = "off", Threshold = "threshold", Late = "late", Adaptive = "adaptive" });
words!(Labels { Neighbour = "neighbour", Path = "path" });
words!(Mark { Off = "off", Ecn = "ecn", NbCc = "nb-cc" });

/// What a router does when the disks of its store are busy. The threshold is
/// [`DiskTierConfig::bypass_threshold`](weir_store::disk::DiskTierConfig::bypass_threshold).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyPolicy {
    /// When Interests bypass a disk.
    pub bypass: Bypass,
    /// With [`Bypass::Late`]: the longest time that a read may take before Interests go elsewhere,
    /// ns.
    pub late_after_ns: u64,
    pub mark: Mark,
    /// What decides whether a next hop has room.
    pub labels: Labels,
    /// With [`Mark::NbCc`]: the interval of signals to neighbours that this store is over its
    /// threshold, ns.
    pub announce_period_ns: u64,
}

impl Default for BusyPolicy {
    fn default() -> Self {
        Self {
            bypass: Bypass::default(),
            late_after_ns: 250 * NS_PER_MS,
            mark: Mark::default(),
            labels: Labels::default(),
            announce_period_ns: 10 * NS_PER_MS,
        }
    }
}
