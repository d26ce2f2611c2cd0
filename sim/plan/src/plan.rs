//! The description of one run as plain data.
//!
//! A plan is complete: names, links, routes, workload, faults and seed. The simulator
//! (`weir-netsim`) builds a network from it, and the laboratory's real arm starts processes. A plan
//! refers to no files.

mod disk;
mod experiments;
mod router;

use serde::{Deserialize, Serialize};
use weir_control::Placement;
use weir_link::{DisciplineConfig, MarkingPolicy};
use weir_netem::{LinkConfig, ServiceTime};
use weir_options::StoreOptions;
use weir_store::EvictionPolicy;
use weir_transport::HoldingsMode;

pub use self::disk::{DISKS_MAX, DiskPlan};
pub use self::experiments::{Compare, DiskExperiments, IndexKind, StoreExperiments, StoreIo};
use crate::workload::{ConsumerPlan, ProducerPlan};

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The source of all randomness in the run.
    pub seed: u64,
    /// When consumers stop to request new content, ns from the start.
    pub duration_ns: u64,
    /// Time after `duration_ns` for answers to arrive, ns. After it, consumers and producers stop.
    /// Once all lifetimes have expired, the PIT of every router must be empty.
    pub drain_ns: u64,
    /// Interval between samples of queues, counters and windows, ns; 0 for none.
    pub sample_ns: u64,
    /// Nodes. Other elements refer to them by index.
    pub nodes: Vec<NodePlan>,
    /// Links between nodes. Other elements refer to them by index.
    pub links: Vec<LinkPlan>,
    /// FIB entries of routers.
    pub routes: Vec<RoutePlan>,
    /// Faults, in any order.
    pub faults: Vec<FaultPlan>,
    /// A controller that routers query about large objects.
    pub controller: Option<ControllerPlan>,
}

impl Plan {
    /// Whether a consumer queries routers for their holdings.
    pub fn asks_holdings(&self) -> bool {
        let asks = |role: &Role| match role {
            Role::Consumer(consumer) => consumer.holdings != HoldingsMode::Ignore,
            _ => false,
        };
        self.nodes.iter().any(|node| asks(&node.role))
    }
}

/// A controller (paper multipath-cache-management, 3.3.2). It knows routers, links and files from
/// the start, and exchanges messages with routers over separate links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerPlan {
    /// One-way delay of a message between a router and the controller, ns.
    pub delay_ns: u64,
    pub placement: Placement,
    /// Whether the controller orders routers to prefetch their ranges. Each such router needs a
    /// consumer with [`prefetches`](ConsumerPlan::prefetches).
    #[serde(default)]
    pub prefetch: bool,
    /// Whether this includes the range that is read first.
    #[serde(default)]
    pub prefetch_first: bool,
    /// In what ratio routers share the ranges that several hold, nearest router first. Empty: equal
    /// shares.
    #[serde(default)]
    pub ratio: Vec<u64>,
    /// Whether routers behave as with an agent. They create faces to routers that are not
    /// neighbours, by the least delay, and query an object again after a minute. The controller has
    /// a timer, and computes routes by the least delay.
    #[serde(default)]
    pub agents: bool,
    /// Whether routers also receive their routes from the controller. These replace the plan's
    /// routes, except those to applications.
    #[serde(default)]
    pub routes: Option<RoutesPlan>,
}

/// Routes from a controller while the reported links change, so that routers have old and new
/// routes at the same time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutesPlan {
    /// Interval between two reports of a router, ns.
    pub report_ns: u64,
    /// Interval between two changes of a reported round-trip time, ns.
    pub change_ns: u64,
    /// Maximum of the reported round-trip time, ns.
    pub round_trip_max_ns: u64,
    /// Maximum random delay of a message in addition to `delay_ns`, ns.
    pub spread_ns: u64,
    /// Fraction of lost messages.
    pub loss: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NodePlan {
    pub name: String,
    pub role: Role,
}

/// The role of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(clippy::large_enum_variant, reason = "a plan has few nodes, each created once")]
pub enum Role {
    /// Forwards packets. Only plans of consumers and producers are passed between processes.
    #[serde(skip)]
    Router(RouterPlan),
    /// Requests content. It has one link to a router, or several if it has a window.
    Consumer(ConsumerPlan),
    /// Answers Interests. It has one link to a router.
    Producer(ProducerPlan),
}

#[derive(Clone, Debug, PartialEq)]
pub struct RouterPlan {
    /// The content store, for all shards together.
    pub store: StoreOptions,
    /// Store settings for experiments only.
    pub store_experiments: StoreExperiments,
    /// Fraction of every producer's segments in the store at the start, 0 to 1. The seed chooses
    /// them, and those that do not fit are omitted.
    pub store_filled: f64,
    /// Its disks, if any.
    pub disk: Option<DiskPlan>,
    /// Limit on pending Interests.
    pub pit_entries_max: u32,
    /// Strategy of `/`: one of `StrategyKind::WORDS`, or a full strategy name with parameters.
    pub strategy: String,
    /// Which packets its faces mark for congestion.
    pub marking: MarkingPolicy,
    /// Order and times at which packets leave its faces.
    pub discipline: DisciplineConfig,
    /// Which Interests its faces delay, as the text of a
    /// [`ShapingConfig`](weir_link::ShapingConfig).
    pub shaping: String,
    pub shards: u16,
    /// Number of FIB entries without traffic, which make a large FIB.
    pub fib_filler: u32,
    /// Queues and service times between the stages of the packet path. Without them, packets take
    /// no time in the simulator. The real arm ignores them.
    pub stages: Option<StagesPlan>,
}

impl Default for RouterPlan {
    fn default() -> Self {
        Self {
            // Recorded results used this policy where a scenario names none.
            store: StoreOptions {
                policy: EvictionPolicy::S3Fifo,
                ..StoreOptions::with_bytes(64 << 20)
            },
            store_experiments: StoreExperiments::default(),
            store_filled: 0.0,
            disk: None,
            pit_entries_max: 1 << 16,
            strategy: "best-route".into(),
            marking: MarkingPolicy::Nfd,
            discipline: DisciplineConfig::Fifo,
            shaping: "none".into(),
            shards: 1,
            fib_filler: 0,
            stages: None,
        }
    }
}

/// The queueing network of paper nb-cache, Fig. 1. Interests pass store, PIT and FIB; Data passes
/// the PIT and is written to the store. A stage that is `None` takes no time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StagesPlan {
    /// A processor that every packet occupies before all stages.
    pub cpu: Option<CpuPlan>,
    /// Lookup of an Interest in the store (rate mu_1).
    pub store: Option<StagePlan>,
    /// Service time of `store` for an Interest that misses. A filter or an index detects a miss
    /// without a read. The Interest waits in the same queue, and its service time is chosen when it
    /// joins. `None`: the same as for a hit.
    pub store_miss: Option<ServiceTime>,
    /// Writes of Data to the store (mu_2). The Data is forwarded first. When the queue is full, the
    /// Data is not stored.
    pub store_write: Option<StagePlan>,
    /// Interests in the PIT (mu_3).
    pub pit: Option<StagePlan>,
    /// Data in the PIT (mu_4).
    pub pit_data: Option<StagePlan>,
    /// Interests in the FIB (mu_5).
    pub fib: Option<StagePlan>,
}

/// A processor with one queue for Interests and Data. A kind without service time skips the queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuPlan {
    pub interest: ServiceTime,
    pub data: ServiceTime,
    /// Additional time of an Interest that causes a disk read.
    #[serde(default)]
    pub read: ServiceTime,
    /// Additional time of an Interest that bypasses a disk with its Data.
    #[serde(default)]
    pub bypass: ServiceTime,
    /// The machine whose cores this router shares with all others that name it. `None`: the router
    /// has `cores` of its own. A router serves one packet at a time.
    #[serde(default)]
    pub machine: Option<String>,
    #[serde(default = "one")]
    pub cores: u32,
    /// Limit on packets that wait or are in service. Further packets are dropped.
    pub capacity: u32,
}

fn one() -> u32 {
    1
}

/// A stage: a bounded queue with one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagePlan {
    pub service: ServiceTime,
    /// Limit on packets in the stage, the one in service included (K of M/M/1/K).
    pub capacity: u32,
    /// What happens to a packet when the stage is full.
    pub when_full: WhenFull,
}

/// What happens to a packet when a stage is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    Drop,
    /// It skips the stage (paper nb-cache, III-C).
    Bypass,
}

/// A link between two nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPlan {
    /// One end, an index in [`Plan::nodes`].
    pub a: usize,
    /// The other end.
    pub b: usize,
    /// The direction from `a` to `b`.
    pub a_to_b: LinkConfig,
    /// The direction from `b` to `a`.
    pub b_to_a: LinkConfig,
    /// Both ends are on one host. The face is local, and the real arm emulates nothing.
    pub is_local: bool,
    /// The transport in the real arm. The simulator uses it for frame sizes: datagrams are
    /// fragmented at `mtu`.
    pub transport: Transport,
    /// Maximum datagram size in bytes.
    pub mtu: usize,
    /// Whether both ends retransmit lost frames (NDNLPv2 reliability); datagrams only.
    #[serde(default)]
    pub reliability: bool,
    /// Whether one frame may carry several Interests.
    #[serde(default)]
    pub runs: bool,
    /// The packets on a link over UDP.
    #[serde(default)]
    pub packets: LinkPackets,
}

impl LinkPlan {
    /// A link within a host with the same configuration in both directions.
    pub fn local(a: usize, b: usize, way: &LinkConfig) -> Self {
        Self {
            a,
            b,
            a_to_b: way.clone(),
            b_to_a: way.clone(),
            is_local: true,
            transport: Transport::Unix,
            mtu: 8800,
            reliability: false,
            runs: false,
            packets: LinkPackets::Ndn,
        }
    }
}

/// The format of the packets on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkPackets {
    #[default]
    Ndn,
    /// hICN packets, without fragments and reliability. They carry hICN names only.
    Hicn,
}

/// The transport of a link in the real arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    Unix,
    /// TCP over loopback.
    Tcp,
    /// UDP over loopback. The link emulator is in between unless the link is ideal.
    Udp,
}

/// A FIB entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutePlan {
    /// The router, an index in [`Plan::nodes`].
    pub node: usize,
    pub prefix: String,
    /// The outgoing link, an index in [`Plan::links`].
    pub link: usize,
    /// Lower is better.
    pub cost: u64,
}

/// A planned fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultPlan {
    /// Time of the fault, ns from the start.
    pub at_ns: u64,
    pub fault: Fault,
}

/// The kinds of faults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// A link is down for a time.
    LinkDown {
        /// Index in [`Plan::links`].
        link: usize,
        /// Duration, ns.
        for_ns: u64,
    },
    /// A link has a reduced rate for a time, in both directions. Queued frames keep their times.
    LinkSlow {
        /// Index in [`Plan::links`].
        link: usize,
        /// Duration, ns.
        for_ns: u64,
        /// Fraction of the rate that is left.
        share: f64,
    },
    /// A router loses its state, and restarts with its routes after a time.
    Crash {
        /// Index in [`Plan::nodes`].
        node: usize,
        /// Time until the restart, ns.
        for_ns: u64,
    },
    /// A router's store, with its disks and its stage, serves nothing for a time.
    StoreStall {
        /// Index in [`Plan::nodes`].
        node: usize,
        /// Duration, ns.
        for_ns: u64,
    },
    /// A link flips bytes of its frames for a time.
    WrongBytes {
        /// Index in [`Plan::links`].
        link: usize,
        /// Duration, ns.
        for_ns: u64,
        /// Fraction of damaged frames.
        probability: f64,
    },
    /// One disk of a router does not respond for a time.
    DiskStall {
        /// Index in [`Plan::nodes`].
        node: usize,
        /// Index of the disk, from 0.
        disk: u8,
        /// Duration, ns.
        for_ns: u64,
    },
    /// Operations of one disk fail for a time.
    DiskErrors {
        /// Index in [`Plan::nodes`].
        node: usize,
        /// Index of the disk, from 0.
        disk: u8,
        /// Duration, ns.
        for_ns: u64,
        /// Fraction of failed operations. A failed write may write any of its blocks.
        probability: f64,
    },
    /// One disk reports success for a time although operations go wrong.
    DiskDamage {
        /// Index in [`Plan::nodes`].
        node: usize,
        /// Index of the disk, from 0.
        disk: u8,
        /// Duration, ns.
        for_ns: u64,
        /// Fraction of reads with flipped bits.
        flipped: f64,
        /// Fraction of writes that write nothing.
        lost: f64,
        /// Fraction of writes that write all, none or some of their blocks.
        torn: f64,
    },
    /// One disk has no space left for a time, and writes fail.
    DiskFull {
        /// Index in [`Plan::nodes`].
        node: usize,
        /// Index of the disk, from 0.
        disk: u8,
        /// Duration, ns.
        for_ns: u64,
    },
}

impl Fault {
    /// Duration, ns.
    pub fn for_ns(&self) -> u64 {
        match *self {
            Self::LinkDown { for_ns, .. }
            | Self::LinkSlow { for_ns, .. }
            | Self::Crash { for_ns, .. }
            | Self::StoreStall { for_ns, .. }
            | Self::WrongBytes { for_ns, .. }
            | Self::DiskStall { for_ns, .. }
            | Self::DiskErrors { for_ns, .. }
            | Self::DiskDamage { for_ns, .. }
            | Self::DiskFull { for_ns, .. } => for_ns,
        }
    }
}
