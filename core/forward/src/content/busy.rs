//! What a router does when its store's disks are busy (paper nb-cache, III).

use weir_base::{NS_PER_MS, words};

/// When an Interest goes to the next hop although the store has what it asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bypass {
    /// Never.
    Off,
    /// When as many reads as the threshold says wait for the disk and there is another hop (paper
    /// nb-cache, III-C).
    Threshold,
    /// When the read would take longer than [`BusyPolicy::late_after_ns`], as reads from that disk
    /// have taken lately. A reader fills a queue of any length and is still served at the speed of
    /// the disk; until then marks slow it down.
    #[default]
    Late,
    /// When it is likely to be answered sooner there: the expected wait here against the time that
    /// answers have taken from there. If a driver holds
    /// Interests up before the store, this is [`Bypass::Threshold`].
    Adaptive,
}

/// Which Data carries a congestion mark because of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    Off,
    /// That of every Interest that found the queue over the threshold, whether it waited there or
    /// passed by.
    Ecn,
    /// That for which the queue was over the threshold and no available hop was left (paper
    /// nb-cache, III-E). Neighbours tell each other whether they are available.
    #[default]
    NbCc,
}

/// With [`Mark::NbCc`]: what of a next hop has to have room for an Interest to pass by to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Labels {
    /// Its own store, as it tells (paper nb-cache, III-E).
    #[default]
    Neighbour,
    /// Something on the way beyond it, as the Data of Interests tells that have passed by to it:
    /// when it bears a mark, or a Nack comes instead, there was no room on all of that way. How
    /// many may be under way at once follows from that.
    Path,
}

words!(Bypass { Off = "off", Threshold = "threshold", Late = "late", Adaptive = "adaptive" });
words!(Labels { Neighbour = "neighbour", Path = "path" });
words!(Mark { Off = "off", Ecn = "ecn", NbCc = "nb-cc" });

/// What a router does when its store's disks are busy. The threshold is
/// [`DiskTierConfig::threshold`](weir_store::disk::DiskTierConfig::threshold).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyPolicy {
    /// When Interests pass the store by.
    pub bypass: Bypass,
    /// With [`Bypass::TimedOut`]: how long a read may take before Interests go elsewhere, ns.
    pub late_after_ns: u64,
    pub mark: Mark,
    /// What next hops have room.
    pub labels: Labels,
    /// With [`Mark::NbCc`]: how often neighbours are told that this router's store is over its
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
