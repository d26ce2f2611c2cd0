//! The events of a run, simulated or real. Every figure is computed from these events only, so the
//! same code measures both arms.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weir_base::{Counter, Counters, counters};
use weir_forward::BusyStats;
use weir_store::disk::DiskTierStats;

use crate::hash::Digest;

/// An event at a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Time, ns from the start of the run.
    pub at_ns: u64,
    /// Index of the node in [`Plan::nodes`](crate::Plan::nodes).
    pub node: u32,
    pub kind: EventKind,
}

/// The kinds of events. The workload numbers objects, and the naming convention numbers segments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A consumer sent an Interest.
    InterestSent {
        object: u64,
        segment: u64,
        /// The segment was requested before.
        is_repeated: bool,
    },
    /// A consumer received Data that it had requested, with the correct bytes.
    DataReceived {
        object: u64,
        segment: u64,
        content_bytes: u32,
        /// Bytes of the whole Data packet.
        packet_bytes: u32,
        /// Time from the last Interest to the Data, ns, without the verification.
        rtt_ns: u64,
        /// The Data had a congestion mark.
        is_marked: bool,
    },
    /// A consumer received Data with wrong bytes. With a window, it requests the segment again by
    /// the digest of the correct Data.
    DamagedData { object: u64, segment: u64 },
    /// A consumer received a Nack.
    NackReceived {
        object: u64,
        segment: u64,
        /// NDNLPv2 reason.
        reason: u64,
    },
    /// An Interest timed out or was considered lost. A single Interest ends with its lifetime. One
    /// of a window ends at its timeout, or when later Interests were answered, and its segment is
    /// requested again. Interests in flight at the end of the run do not count.
    TimedOut { object: u64, segment: u64 },
    /// A consumer sent the first Interest of an object.
    ObjectStarted { object: u64 },
    /// A consumer has all segments of an object, with the correct bytes.
    ObjectCompleted {
        object: u64,
        /// Content bytes of the whole object.
        content_bytes: u64,
        /// Time since its first Interest, ns (paper ccnx-measurement, CDoT).
        elapsed_ns: u64,
    },
    /// A consumer abandoned an object.
    ObjectFailed { object: u64 },
    /// A sample of a consumer's congestion window, in Interests.
    Window {
        /// Interests that may be in flight.
        window: f64,
        /// Interests in flight.
        outstanding: u32,
    },
    /// A sample of one link of a consumer with several links.
    PathSample {
        /// The link, from 0 in the order of [`Plan::links`](crate::Plan::links).
        path: u32,
        /// Its congestion window in chunks; 0 while the link is unused.
        window: f64,
        /// Content bytes received on it since the start.
        content_bytes: u64,
    },
    /// A sample of a queue.
    QueueLength {
        /// The queue of the node.
        queue: Queue,
        packets: u32,
    },
    /// A packet found a stage full, and was dropped or bypassed the stage.
    StageFull {
        queue: Queue,
        /// The packet bypassed the stage; otherwise it was dropped.
        is_bypass: bool,
    },
    /// A sample of a router's counters, all since the start of the run.
    RouterSample(Box<RouterSample>),
    /// A sample of one direction of a link, counted since the start; `node` is the sender.
    LinkSample {
        /// Index in [`Plan::links`](crate::Plan::links).
        link: u32,
        /// Frames that arrived at the other end.
        frames: u64,
        bytes: u64,
        /// Frames that were dropped, for any reason.
        dropped: u64,
        /// Bytes queued at the sender's face and before the link. Only the simulator knows them.
        waiting_bytes: u64,
    },
    /// A player of live channels began to watch a channel.
    ChannelWatched { channel: u64 },
    /// A player received the playlist of a stream of a live channel.
    PlaylistReceived {
        stream: u64,
        /// Number of the newest segment that it lists.
        newest: u64,
        /// Bytes of the whole Data packet.
        packet_bytes: u32,
    },
    /// A producer of live channels got Interests for a playlist, or for the first packet of a
    /// segment of video. Each stands for one request to an HTTP server.
    ServerRequests { count: u64 },
    /// A producer of live channels sent Data.
    ServerSent { packet_bytes: u64 },
    /// A planned fault began or ended.
    FaultChanged {
        /// Index in [`Plan::faults`](crate::Plan::faults).
        fault: u32,
        /// The fault begins; otherwise it ends.
        begins: bool,
    },
}

impl EventKind {
    /// Adds the event to the event hash of a run.
    pub fn digest(&self, digest: &mut Digest) {
        // The first word identifies the kind, except in router samples. Changing it would change
        // the event hash of every run.
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
            Self::ChannelWatched { channel } => mix(&[16, channel]),
            Self::PlaylistReceived { stream, newest, packet_bytes } => {
                mix(&[17, stream, newest, packet_bytes.into()]);
            }
            Self::ServerRequests { count } => mix(&[18, count]),
            Self::ServerSent { packet_bytes } => mix(&[19, packet_bytes]),
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
    /// Interests before a blocking store.
    DiskBlocked,
    /// Reads in a router's disk queues or in service.
    DiskReads,
    /// Records in a router's disk write queues or in service.
    DiskWrites,
    /// Frames before a link, an index in [`Plan::links`](crate::Plan::links).
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
            // Numbers of links start at 6 and stay below 2^32, so the disks begin there.
            Self::DiskReads => 1 << 32,
            Self::DiskWrites => (1 << 32) + 1,
            Self::DiskBlocked => (1 << 32) + 2,
        }
    }
}

counters! {
    /// Counters of a router since the start of the run. They are serialized as a map from name to
    /// value without zeros. Counters of the router's tables have the names of their metrics.
    #[derive(Copy)]
    pub struct RouterSample {
        /// Interests received.
        in_interests: Total;
        /// Data received.
        in_data: Total;
        /// Nacks received.
        in_nacks: Total;
        /// Interests sent.
        out_interests: Total;
        /// Data sent.
        out_data: Total;
        /// Nacks sent.
        out_nacks: Total;
        /// Bytes received, as the faces count them.
        in_bytes: Total;
        /// Bytes sent.
        out_bytes: Total;
        /// Interests answered from the store.
        store_hits: Total;
        /// Lookups that found nothing in the store.
        store_misses: Total;
        /// Entries in the store.
        store_entries: Now;
        /// Pending Interests.
        pit_entries: Now;
        /// Bytes queued at all its faces. In the simulator, this includes the queues before the
        /// links; the real arm does not report it.
        egress_bytes: Now;
        /// Processor time of the router, ns. In the simulator, it is that of the plan's `cpu`
        /// stage, or 0.
        cpu_ns: Total;
        /// Packets dropped, for any reason.
        dropped: Total;
        /// Total time of answers from disks, ns, with their wait. Divided by
        /// [`BusyStats::answered`], it is the mean.
        disk_answer_ns: Total;
    }
    also {
        /// Content and operations of its disks.
        disk: DiskTierStats,
        /// Decisions of the router about its disks. Only `disk_answer_ns` samples a time.
        busy: BusyStats,
    }
}

impl RouterSample {
    /// The counters as if counting had started at `before`. Current values stay.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        self.subtract_totals(before);
        self.disk.subtract_totals(&before.disk);
        self.busy.subtract_totals(&before.busy);
        self
    }

    /// The counters of a restarted router, with `before` from its earlier incarnations added.
    #[must_use]
    pub fn after(mut self, before: &Self) -> Self {
        self.add_totals(before);
        self.disk.add_totals(&before.disk);
        self.busy.add_totals(&before.busy);
        self
    }

    /// Every number, in the order of the tables.
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
        // Collected first, because binary encodings need the length of a map before its entries.
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

/// Receives events as they occur. `Vec<Event>` stores them.
pub trait Observer {
    /// Receives one event. Times never decrease.
    fn observe(&mut self, event: &Event);
}

impl Observer for Vec<Event> {
    fn observe(&mut self, event: &Event) {
        self.push(event.clone());
    }
}
