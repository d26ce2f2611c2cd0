//! What happens in a run, whether simulated or real. Every figure is computed from these events
//! alone, so that both arms are measured by the same code.

use serde::{Deserialize, Serialize};

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
        /// The object.
        object: u64,
        /// The segment.
        segment: u64,
        /// Octets of content.
        content_bytes: u32,
        /// Octets of the whole Data packet.
        packet_bytes: u32,
        /// Time since the (last) Interest for it, ns.
        rtt_ns: u64,
        /// It bore a congestion mark.
        is_marked: bool,
    },
    /// A consumer received Data with other octets than were produced. It goes on waiting, or asks
    /// again.
    DamagedData {
        /// The object.
        object: u64,
        /// The segment.
        segment: u64,
    },
    /// A consumer was told that its Interest will not be answered.
    NackReceived {
        /// The object.
        object: u64,
        /// The segment.
        segment: u64,
        /// NDNLPv2 reason.
        reason: u64,
    },
    /// A consumer's Interest was not answered within its lifetime.
    TimedOut {
        /// The object.
        object: u64,
        /// The segment.
        segment: u64,
    },
    /// A consumer began an object: its first Interest leaves.
    ObjectStarted {
        /// The object.
        object: u64,
    },
    /// A consumer has all segments of an object, with the right octets.
    ObjectCompleted {
        /// The object.
        object: u64,
        /// Octets of content of the whole object.
        content_bytes: u64,
        /// Time since it began, ns (paper ccnx-measurement, CDoT).
        elapsed_ns: u64,
    },
    /// A consumer gave an object up.
    ObjectFailed {
        /// The object.
        object: u64,
    },
    /// A sample of a consumer's congestion window, Interests.
    Window {
        /// Interests that may be outstanding.
        window: f64,
        /// Interests that are.
        outstanding: u32,
    },
    /// A sample of a queue.
    QueueLength {
        /// Which one of the node's.
        queue: Queue,
        /// Packets in it.
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
        /// Their octets.
        bytes: u64,
        /// Frames that were dropped, for whatever reason.
        dropped: u64,
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
            Self::QueueLength { queue, packets } => mix(&[10, queue.number(), packets.into()]),
            Self::StageFull { queue, is_bypass } => mix(&[11, queue.number(), is_bypass.into()]),
            Self::RouterSample(ref sample) => {
                mix(&sample.numbers());
                // Runs without disks keep the digest that they always had.
                if sample.disk != DiskSample::default() {
                    mix(&sample.disk.numbers());
                }
            }
            Self::LinkSample { link, frames, bytes, dropped } => {
                mix(&[13, link.into(), frames, bytes, dropped]);
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

/// Counters of a router since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouterSample {
    /// Interests in.
    pub in_interests: u64,
    /// Data in.
    pub in_data: u64,
    /// Nacks in.
    pub in_nacks: u64,
    /// Interests out.
    pub out_interests: u64,
    /// Data out.
    pub out_data: u64,
    /// Nacks out.
    pub out_nacks: u64,
    /// Octets in, as the faces count them.
    pub in_bytes: u64,
    /// Octets out.
    pub out_bytes: u64,
    /// Answers from the store.
    pub store_hits: u64,
    /// Look-ups that found nothing.
    pub store_misses: u64,
    /// Data in the store now.
    pub store_entries: u64,
    /// Pending Interests now.
    pub pit_entries: u64,
    /// Processor time that the router has used, ns: in the simulator that of the plan's `cpu`
    /// stage, 0 without one.
    pub cpu_ns: u64,
    /// Packets dropped, for whatever reason.
    pub dropped: u64,
    /// What its disks did; zeros without any.
    #[serde(flatten)]
    pub disk: DiskSample,
}

/// What the disks of a router did since the start of the run, and what the router did because of
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskSample {
    /// Records in the index now.
    pub disk_entries: u64,
    /// Records read for Interests.
    pub disk_reads: u64,
    /// Look-ups that joined a read that was under way.
    pub disk_reads_shared: u64,
    /// Interests refused because as many reads, or Interests before a store that blocks, as may be
    /// were waiting.
    pub disk_reads_refused: u64,
    /// Interests answered from a disk.
    pub disk_answers: u64,
    /// The time that those answers took, the wait included, ns: over `disk_answers` it is the mean.
    pub disk_answer_ns: u64,
    /// Records written.
    pub disk_writes: u64,
    /// Octets written.
    pub disk_written_bytes: u64,
    /// Data that passed by because as many records as may be were waiting to be written.
    pub disk_writes_passed_by: u64,
    /// Records that made room for others.
    pub disk_evictions: u64,
    /// Look-ups that the filter ended.
    pub filter_negatives: u64,
    /// Look-ups that the filter let pass for nothing.
    pub filter_false_positives: u64,
    /// Operations that failed.
    pub disk_errors: u64,
    /// Records read that were not what they should be.
    pub disk_damaged: u64,
    /// Interests that passed the disks by since as many reads waited as the threshold says.
    pub bypass_threshold: u64,
    /// Interests that passed the disks by since an answer was likely to come sooner from elsewhere.
    pub bypass_adaptive: u64,
    /// Interests that passed the disks by to find out how long answers take from elsewhere.
    pub bypass_probe: u64,
    /// Interests that passed the disks by since the disk did not answer.
    pub bypass_stalled: u64,
    /// Interests that waited for a disk over its threshold, for want of another hop.
    pub waited_over_threshold: u64,
    /// Data marked because of the disks.
    pub store_marks: u64,
    /// Neighbours told that this router is not available (paper nb-cache, III-E).
    pub alphas_out: u64,
    /// Neighbours told that it is available again.
    pub betas_out: u64,
    /// Times that a neighbour said that it is not available.
    pub alphas_in: u64,
    /// Times that a neighbour said that it is available again.
    pub betas_in: u64,
}

impl DiskSample {
    /// As if counting had begun at `before`; what there is now is not counted.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        self.joined(before, u64::saturating_sub)
    }

    /// Of a router that lived before, with these counts, and lives again.
    #[must_use]
    pub fn after(&self, before: &Self) -> Self {
        self.joined(before, u64::saturating_add)
    }

    fn joined(mut self, other: &Self, join: impl Fn(u64, u64) -> u64) -> Self {
        let disk_entries = self.disk_entries;
        let mut others = *other;
        for (mine, theirs) in self.numbers_mut().into_iter().zip(others.numbers_mut()) {
            *mine = join(*mine, *theirs);
        }
        Self { disk_entries, ..self }
    }

    fn numbers(mut self) -> [u64; 24] {
        self.numbers_mut().map(|number| *number)
    }

    fn numbers_mut(&mut self) -> [&mut u64; 24] {
        [
            &mut self.disk_entries,
            &mut self.disk_reads,
            &mut self.disk_reads_shared,
            &mut self.disk_reads_refused,
            &mut self.disk_answers,
            &mut self.disk_answer_ns,
            &mut self.disk_writes,
            &mut self.disk_written_bytes,
            &mut self.disk_writes_passed_by,
            &mut self.disk_evictions,
            &mut self.filter_negatives,
            &mut self.filter_false_positives,
            &mut self.disk_errors,
            &mut self.disk_damaged,
            &mut self.bypass_threshold,
            &mut self.bypass_adaptive,
            &mut self.bypass_probe,
            &mut self.bypass_stalled,
            &mut self.waited_over_threshold,
            &mut self.store_marks,
            &mut self.alphas_out,
            &mut self.betas_out,
            &mut self.alphas_in,
            &mut self.betas_in,
        ]
    }
}

impl RouterSample {
    fn numbers(&self) -> [u64; 14] {
        [
            self.in_interests,
            self.in_data,
            self.in_nacks,
            self.out_interests,
            self.out_data,
            self.out_nacks,
            self.in_bytes,
            self.out_bytes,
            self.store_hits,
            self.store_misses,
            self.store_entries,
            self.pit_entries,
            self.cpu_ns,
            self.dropped,
        ]
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
