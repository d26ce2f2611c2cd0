//! What happens in a run, whether simulated or real. Every figure is computed from these events
//! alone, so that both arms are measured by the same code.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weir_base::{Counter, Counters, counters};
use weir_forward::BusyStats;
use weir_store::disk::DiskTierStats;

use crate::hash::Digest;

/// Something that happened at a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, ns from the start of the run.
    pub at_ns: u64,
    /// Where, an index into [`Plan::nodes`](crate::Plan::nodes).
    pub node: u32,
    /// What.
    pub kind: EventKind,
}

/// What happened. Objects are numbered by the workload, segments by the naming convention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A consumer sent an Interest.
    InterestSent {
        /// The object asked for.
        object: u64,
        /// The segment asked for.
        segment: u64,
        /// The segment had been asked for before.
        is_repeated: bool,
    },
    /// A consumer received Data that it had asked for, with the right octets.
    DataReceived {
        object: u64,
        segment: u64,
        content_bytes: u32,
        /// Octets of the whole Data packet.
        packet_bytes: u32,
        /// From the last Interest for it to the Data, ns, without the verification.
        rtt_ns: u64,
        /// It bore a congestion mark.
        is_marked: bool,
    },
    /// A consumer received Data with other octets than were produced. Within a window it asks
    /// again, by the digest of the right Data.
    DamagedData { object: u64, segment: u64 },
    /// A consumer was told that its Interest will not be answered.
    NackReceived {
        object: u64,
        segment: u64,
        /// NDNLPv2 reason.
        reason: u64,
    },
    /// A consumer gave an Interest up: a single one at the end of its lifetime; one of a window
    /// when its time-out had passed, or when later ones had been answered, and its segment is asked
    /// for again. What is in flight at the end of the run is not given up.
    TimedOut { object: u64, segment: u64 },
    /// A consumer began an object: its first Interest leaves.
    ObjectStarted { object: u64 },
    /// A consumer has all segments of an object, with the right octets.
    ObjectCompleted {
        object: u64,
        /// Octets of content of the whole object.
        content_bytes: u64,
        /// Time since it began, ns (paper ccnx-measurement, CDoT).
        elapsed_ns: u64,
    },
    /// A consumer gave an object up.
    ObjectFailed { object: u64 },
    /// A sample of a consumer's congestion window, Interests.
    Window {
        /// Interests that may be outstanding.
        window: f64,
        /// Interests that are.
        outstanding: u32,
    },
    /// A sample of one of a consumer's links, where it has several.
    PathSample {
        /// Which one, from 0 in the order of [`Plan::links`](crate::Plan::links).
        path: u32,
        /// Its congestion window, chunks; 0 while it carries nothing.
        window: f64,
        /// Octets of content that came by it since the start.
        content_bytes: u64,
    },
    /// A sample of a queue.
    QueueLength {
        /// Which one of the node's.
        queue: Queue,
        packets: u32,
    },
    /// A packet found a stage full and was dropped or passed it by.
    StageFull {
        /// The stage.
        queue: Queue,
        /// It passed by, else it was dropped.
        is_bypass: bool,
    },
    /// A sample of a router's counters, all since the start of the run.
    RouterSample(Box<RouterSample>),
    /// A sample of what one direction of a link has carried since the start; `node` sends.
    LinkSample {
        /// An index into [`Plan::links`](crate::Plan::links).
        link: u32,
        /// Frames that arrived at the other end.
        frames: u64,
        bytes: u64,
        /// Frames that were dropped, for whatever reason.
        dropped: u64,
        /// Octets that wait to be sent, at the sender's face and before the link; the simulator
        /// alone knows them.
        waiting_bytes: u64,
    },
    /// Something went wrong as planned, or ended to.
    FaultChanged {
        /// An index into [`Plan::faults`](crate::Plan::faults).
        fault: u32,
        /// It begins, else it ends.
        begins: bool,
    },
}

impl EventKind {
    /// Adds the event to the digest of a run.
    pub fn digest(&self, digest: &mut Digest) {
        let mut mix = |words: &[u64]| words.iter().for_each(|&word| digest.mix(word));
        match *self {
            Self::InterestSent { object, segment, is_repeated } => {
                mix(&[1, object, segment, is_repeated.into()]);
            }
            Self::DataReceived {
                object,
                segment,
                content_bytes,
                packet_bytes,
                rtt_ns,
                is_marked,
            } => {
                let sizes = u64::from(content_bytes) << 32 | u64::from(packet_bytes);
                mix(&[2, object, segment, sizes, rtt_ns, is_marked.into()]);
            }
            Self::DamagedData { object, segment } => mix(&[3, object, segment]),
            Self::NackReceived { object, segment, reason } => mix(&[4, object, segment, reason]),
            Self::TimedOut { object, segment } => mix(&[5, object, segment]),
            Self::ObjectStarted { object } => mix(&[6, object]),
            Self::ObjectCompleted { object, content_bytes, elapsed_ns } => {
                mix(&[7, object, content_bytes, elapsed_ns]);
            }
            Self::ObjectFailed { object } => mix(&[8, object]),
            Self::Window { window, outstanding } => {
                mix(&[9, window.to_bits(), outstanding.into()]);
            }
            Self::PathSample { path, window, content_bytes } => {
                mix(&[15, path.into(), window.to_bits(), content_bytes]);
            }
            Self::QueueLength { queue, packets } => mix(&[10, queue.number(), packets.into()]),
            Self::StageFull { queue, is_bypass } => mix(&[11, queue.number(), is_bypass.into()]),
            Self::RouterSample(ref sample) => {
                sample.numbers_of_all().for_each(|number| mix(&[number]));
            }
            Self::LinkSample { link, frames, bytes, dropped, waiting_bytes } => {
                mix(&[13, link.into(), frames, bytes, dropped, waiting_bytes]);
            }
            Self::FaultChanged { fault, begins } => mix(&[14, fault.into(), begins.into()]),
        }
    }
}

/// A queue of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// Packets before the processor.
    Cpu,
    /// Interests before the store.
    Store,
    /// Data before the store.
    StoreWrite,
    /// Interests before the PIT.
    Pit,
    /// Data before the PIT.
    PitData,
    /// Interests before the FIB.
    Fib,
    /// Interests before a store that blocks.
    DiskBlocked,
    /// Reads that wait for the disks of a router or are under way.
    DiskReads,
    /// Records that wait to be written to the disks of a router or are being written.
    DiskWrites,
    /// Frames before a link, an index into [`Plan::links`](crate::Plan::links).
    Link(u32),
}

impl Queue {
    fn number(self) -> u64 {
        match self {
            Self::Store => 0,
            Self::StoreWrite => 1,
            Self::Pit => 2,
            Self::PitData => 3,
            Self::Fib => 4,
            Self::Cpu => 5,
            Self::Link(link) => 6 + u64::from(link),
            Self::DiskReads => 1 << 32,
            Self::DiskWrites => (1 << 32) + 1,
            Self::DiskBlocked => (1 << 32) + 2,
        }
    }
}

counters! {
    /// Counters of a router since the start of the run. As data it is a map of those numbers that
    /// are not 0, by their names; what the tables of the router tell goes by their metrics.
    #[derive(Copy)]
    pub struct RouterSample {
        /// Interests in.
        in_interests: Total;
        /// Data in.
        in_data: Total;
        /// Nacks in.
        in_nacks: Total;
        /// Interests out.
        out_interests: Total;
        /// Data out.
        out_data: Total;
        /// Nacks out.
        out_nacks: Total;
        /// Octets in, as the faces count them.
        in_bytes: Total;
        /// Octets out.
        out_bytes: Total;
        /// Answers from the store.
        store_hits: Total;
        /// Look-ups that found nothing.
        store_misses: Total;
        /// Data in the store.
        store_entries: Now;
        /// Pending Interests.
        pit_entries: Now;
        /// Octets that wait to leave at all its faces, in the simulator those before the links
        /// included; the real arm does not tell.
        egress_bytes: Now;
        /// Processor time that the router has used, ns: in the simulator that of the plan's `cpu`
        /// stage, 0 without one.
        cpu_ns: Total;
        /// Packets dropped, for whatever reason.
        dropped: Total;
        /// The time that answers from disks took, the wait included, ns: over
        /// [`BusyStats::answered`] it is the mean.
        disk_answer_ns: Total;
    }
    also {
        /// What is on its disks, and what they did.
        disk: DiskTierStats,
        /// What it did because of them. Times are not sampled, but for `disk_answer_ns`.
        busy: BusyStats,
    }
}

impl RouterSample {
    /// As if counting had begun at `before`; what there is now is not counted.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        self.subtract_totals(before);
        self.disk.subtract_totals(&before.disk);
        self.busy.subtract_totals(&before.busy);
        self
    }

    /// Of a router that lived before, with these counts, and lives again.
    #[must_use]
    pub fn after(mut self, before: &Self) -> Self {
        self.add_totals(before);
        self.disk.add_totals(&before.disk);
        self.busy.add_totals(&before.busy);
        self
    }

    /// Every number in the order of the tables.
    fn numbers_of_all(&self) -> impl Iterator<Item = u64> {
        self.numbers().chain(self.disk.numbers()).chain(self.busy.numbers())
    }

    fn set(&mut self, name: &str, number: u64) {
        set_named(self, name, number);
        set_named(&mut self.disk, name, number);
        set_named(&mut self.busy, name, number);
    }
}

/// The name of a number in a sample.
fn name_of(counter: &Counter) -> String {
    let name = counter.metric.unwrap_or(counter.name);
    counter.label.map_or(name.to_owned(), |(_, label)| format!("{name}.{label}"))
}

fn set_named<T: Counters>(table: &mut T, name: &str, number: u64) {
    if let Some(index) = T::TABLE.iter().position(|counter| name_of(counter) == name) {
        *table.number_mut(index) = number;
    }
}

impl Serialize for RouterSample {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tables = [RouterSample::TABLE, DiskTierStats::TABLE, BusyStats::TABLE];
        let rows = tables.into_iter().flatten().zip(self.numbers_of_all());
        let rows = rows.filter(|(_, number)| *number != 0);
        // Collected first: binary encodings need the length of a map before its entries.
        serializer.collect_map(rows.map(|(row, number)| (name_of(row), number)).collect::<Vec<_>>())
    }
}

impl<'de> Deserialize<'de> for RouterSample {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut sample = Self::default();
        for (name, number) in BTreeMap::<String, u64>::deserialize(deserializer)? {
            sample.set(&name, number);
        }
        Ok(sample)
    }
}

/// Takes events as they happen. `Vec<Event>` keeps them all.
pub trait Observer {
    /// `event` happened; events come in the order of time.
    fn observe(&mut self, event: &Event);
}

impl Observer for Vec<Event> {
    fn observe(&mut self, event: &Event) {
        self.push(event.clone());
    }
}
