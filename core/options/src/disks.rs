//! Options of disks, and of the router's behaviour when they are busy.

use alloc::vec::Vec;

use weir_base::HashKey;
use weir_base::units::{Size, Time};
use weir_forward::{BusyPolicy, Bypass, Mark};
use weir_store::disk::{Admission, DiskTierConfig, OfferAt};

use crate::bounds;

options! {
    /// How a router uses its disks: `[disks]` of its configuration, `[router.disk]` of a scenario.
    /// Limits apply to the whole router.
    pub struct DisksOptions {
        /// Which Data is stored on disk: "all", "second-hit" (Data that is requested a second
        /// time), or a size such as "4KiB" (Data of at least this size).
        #[serde(with = "bounds::admission")]
        admission: Admission = tier().admission;
        /// When Data is written: "early", as soon as memory is a quarter full, oldest Data first;
        /// at its "eviction" from memory; or at its "arrival". With "arrival", kill -9 loses only
        /// the Data of the last `write_delay_max` and Data that waited for a disk. A shutdown
        /// writes the rest.
        offer: OfferAt = tier().offer_at;
        /// Size of a typical record. The filter has room for as many such records as the disks
        /// hold.
        #[serde(deserialize_with = "bounds::size::<_, 64, 1_048_576>")]
        record_size_typical: Size = Size { bytes: tier().record_bytes_typical.into() };
        /// Memory for index and filter (about 16 bytes for each record), at least "1MiB" for each
        /// of the `threads`. When it is full, nothing more is stored. "auto" is twice the need of
        /// disks that are full of typical records.
        #[serde(with = "bounds::memory")]
        index_memory_max: Option<Size> = None;
        /// When Interests go to the next hop although a disk has their Data: when a read would take
        /// longer than `late_after` ("late"), when `threshold` reads wait ("threshold"), when the
        /// next hop will probably answer sooner ("adaptive"), or never ("off"). A stalled disk is
        /// always bypassed.
        bypass: Bypass = BusyPolicy::default().bypass;
        /// With bypass "late": how long a read may take. From a sixteenth of it on, some of the
        /// Data read is marked. The share of marked Data grows with the time, so that consumers
        /// slow down first.
        #[serde(deserialize_with = "bounds::positive_time")]
        late_after: Time = Time { ns: BusyPolicy::default().late_after_ns };
        /// Number of waiting reads from which on a disk is busy, for `mark` and for bypass
        /// "threshold".
        #[serde(deserialize_with = "bounds::count::<_, 0, { u32::MAX }>")]
        threshold: u32 = tier().bypass_threshold;
        /// Congestion marks because of disks. "nb-cc" marks Data for which the queue was over the
        /// threshold and no next hop was available; neighbours signal whether they are available.
        /// "ecn" marks Data of every Interest that found the queue over the threshold, even if it
        /// bypassed the disk. "off" marks none. Unless it is "off", Data that arrives faster than
        /// disks write it is marked too.
        mark: Mark = BusyPolicy::default().mark;
        /// Maximum number of operations in progress on a disk.
        #[serde(deserialize_with = "bounds::count::<_, 1, 1024>")]
        depth: u32 = tier().depth;
        /// Maximum number of reads that wait for a disk. Further Interests receive a Congestion
        /// Nack.
        #[serde(deserialize_with = "bounds::count::<_, 1, 1_000_000>")]
        reads_max: u32 = tier().reads_max;
        /// Memory for Data that waits to be written. It is a part of `size` in [store] if that is
        /// larger. When it is full, Data is not stored. Before that, Data is marked and consumers
        /// slow down. "auto" is half of `size`, but at least "16MiB".
        #[serde(with = "bounds::backlog")]
        write_backlog_max: Option<Size> = None;
        /// Maximum size of one write.
        #[serde(deserialize_with = "bounds::size::<_, 4_096, 4_194_304>")]
        write_size_max: Size = Size { bytes: tier().write_bytes_max.into() };
        /// How long a record may wait for others that are written with it, up to "1m".
        #[serde(deserialize_with = "bounds::write_delay")]
        write_delay_max: Time = Time { ns: tier().write_delay_max_ns };
        /// A disk that does not respond for this long is stalled. Interests that wait for it are
        /// forwarded, and the disk is bypassed until it responds again.
        #[serde(deserialize_with = "bounds::positive_time")]
        stalled_after: Time = Time { ns: tier().stalled_after_ns };
        /// How long a router that shuts down may write memory to its disks; "0s" writes nothing. A
        /// second signal stops it at once.
        stop_timeout: Time = Time { ns: 30_000_000_000 };
    }
}

/// The core's own defaults, without disks.
fn tier() -> DiskTierConfig {
    DiskTierConfig::new(Vec::new(), 0, HashKey::new([0, 0]), |_| 0)
}

impl DisksOptions {
    /// Applies these options to `tier`, which provides the disks, their owner, and the memory of
    /// the index.
    pub fn tier(&self, tier: DiskTierConfig) -> DiskTierConfig {
        DiskTierConfig {
            record_bytes_typical: self.record_size_typical.bytes as u32,
            admission: self.admission,
            offer_at: self.offer,
            depth: self.depth,
            reads_max: self.reads_max,
            write_backlog_bytes_max: match self.write_backlog_max {
                Some(size) => size.bytes,
                None => tier.write_backlog_bytes_max,
            },
            bypass_threshold: self.threshold,
            write_bytes_max: self.write_size_max.bytes as u32,
            write_delay_max_ns: self.write_delay_max.ns,
            stalled_after_ns: self.stalled_after.ns,
            ..tier
        }
    }

    /// What the router does when the disks are busy.
    pub fn busy(&self) -> BusyPolicy {
        BusyPolicy {
            bypass: self.bypass,
            late_after_ns: self.late_after.ns,
            mark: self.mark,
            ..BusyPolicy::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn defaults_are_those_of_the_core() {
        let options = DisksOptions::default();
        assert_eq!(options.busy(), BusyPolicy::default());
        let (made, core) = (options.tier(tier()), tier());
        assert_eq!(alloc::format!("{made:?}"), alloc::format!("{core:?}"));
    }

    #[test]
    fn options_round_trip_through_toml() {
        let changed = DisksOptions {
            admission: Admission::Size { bytes_min: 4096 },
            index_memory_max: Some(Size { bytes: 3 << 20 }),
            write_delay_max: Time { ns: 1_500_000 },
            mark: Mark::Ecn,
            ..DisksOptions::default()
        };
        for options in [DisksOptions::default(), changed] {
            let text = toml::to_string(&options).unwrap();
            assert_eq!(toml::from_str::<DisksOptions>(&text).unwrap(), options, "{text}");
        }
    }

    #[test]
    fn unknown_and_invalid_options_are_refused() {
        for (text, problem) in [
            ("depth = 0", "1 to 1024"),
            ("write_size_max = 1", "4KiB"),
            ("admission = \"third-hit\"", "second-hit"),
            ("index_memory_max = \"4KiB\"", "\"1MiB\""),
            ("mark = \"nbcc\"", "nb-cc"),
            ("speed = 1", "unknown field `speed`"),
        ] {
            let error = toml::from_str::<DisksOptions>(text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
