//! What one run consists of, as plain data.
//!
//! A plan is complete: names, links, routes, workload, faults and seed. The simulator builds a
//! network (`weir-netsim`) from it; the laboratory's real arm starts processes from it. Nothing
//! in a plan refers to a file.

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
    /// All randomness of the run follows from it.
    pub seed: u64,
    /// When consumers stop asking for new things, ns from the start.
    pub duration_ns: u64,
    /// Time after `duration_ns` in which what is outstanding may end, ns. When it is over,
    /// consumers and producers are silent, and once all lifetimes have passed the PIT of every
    /// router must be empty.
    pub drain_ns: u64,
    /// Queue lengths, counters and windows are sampled at this period, ns; 0 samples nothing.
    pub sample_ns: u64,
    /// Nodes; others refer to them by index.
    pub nodes: Vec<NodePlan>,
    /// Links between nodes; others refer to them by index.
    pub links: Vec<LinkPlan>,
    /// Entries of routers' FIBs.
    pub routes: Vec<RoutePlan>,
    /// What goes wrong and when, in any order.
    pub faults: Vec<FaultPlan>,
    /// A controller that routers ask about large objects, if there is one.
    pub controller: Option<ControllerPlan>,
}

impl Plan {
    /// Whether a consumer asks routers what they hold.
    pub fn asks_holdings(&self) -> bool {
        let asks = |role: &Role| match role {
            Role::Consumer(consumer) => consumer.holdings != HoldingsMode::Ignore,
            _ => false,
        };
        self.nodes.iter().any(|node| asks(&node.role))
    }
}

/// A controller (paper multipath-cache-management, 3.3.2). It knows routers, links and files from
/// the start; routers ask it, and it tells them, over links of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerPlan {
    /// From a router to the controller, and back again, ns.
    pub delay_ns: u64,
    pub placement: Placement,
    /// Whether routers are ordered to fetch their parts ahead, for which each needs a consumer with
    /// [`prefetches`](ConsumerPlan::prefetches).
    #[serde(default)]
    pub prefetch: bool,
    /// Whether that is so of the part that is read first, too.
    #[serde(default)]
    pub prefetch_first: bool,
    /// In what proportion routers share what several hold, the nearest first; empty: alike.
    #[serde(default)]
    pub ratio: Vec<u64>,
    /// Whether routers do as those with an agent: they make faces to routers that are no
    /// neighbours, by the least delay, and ask about an object again a minute later; and whether it
    /// looks at the clock, and takes the routes of the plan for those with the least delay.
    #[serde(default)]
    pub agents: bool,
    /// Whether routers get their routes from it, too: instead of those of the plan, but for those
    /// to applications.
    #[serde(default)]
    pub routes: Option<RoutesPlan>,
}

/// Routers that get their routes from a controller while what they tell it changes, so that they
/// have old and new ones side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutesPlan {
    /// Between two reports of a router, ns.
    pub report_ns: u64,
    /// Between two changes of what is told of some link's round-trip time, ns.
    pub change_ns: u64,
    /// That time is up to this, ns.
    pub round_trip_max_ns: u64,
    /// A message takes up to so much longer than `delay_ns`, ns, each its own time.
    pub spread_ns: u64,
    /// The share of messages that are lost.
    pub loss: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NodePlan {
    pub name: String,
    pub role: Role,
}

/// What a node does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(clippy::large_enum_variant, reason = "a plan has few nodes, and each is made once")]
pub enum Role {
    /// Forwards. Only plans of consumers and producers are passed between processes.
    #[serde(skip)]
    Router(RouterPlan),
    /// Asks. It has one link, to a router; several if it asks with a window.
    Consumer(ConsumerPlan),
    /// Answers. It has one link, to a router.
    Producer(ProducerPlan),
}

#[derive(Clone, Debug, PartialEq)]
pub struct RouterPlan {
    /// Its content store, that of all shards together.
    pub store: StoreOptions,
    /// What no operator chooses of it.
    pub store_experiments: StoreExperiments,
    /// The share of the segments of every producer of the plan that is in the store from the start,
    /// 0 to 1, drawn by the seed, as far as it fits.
    pub store_filled: f64,
    /// Its disks, if it has any.
    pub disk: Option<DiskPlan>,
    /// Pending Interests held at most.
    pub pit_entries_max: u32,
    /// Strategy of `/`: one of `StrategyKind::WORDS`, or a whole name with parameters.
    pub strategy: String,
    /// Which packets its faces mark for congestion.
    pub marking: MarkingPolicy,
    /// In which order and when packets leave its faces.
    pub discipline: DisciplineConfig,
    /// Which Interests its faces hold for a while, a [`ShapingConfig`](weir_link::ShapingConfig) as
    /// text.
    pub shaping: String,
    pub shards: u16,
    /// Routes beside those that traffic uses, which lead nowhere: what a large FIB holds.
    pub fib_filler: u32,
    /// Queues and service times between the stages of the packet path; none in the simulator means
    /// that a packet takes no time. The real arm has no use for them.
    pub stages: Option<StagesPlan>,
}

impl Default for RouterPlan {
    fn default() -> Self {
        Self {
            // What is recorded was measured with this policy where a scenario names none.
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

/// The queueing network of paper nb-cache, Fig. 1: Interests pass store, PIT and FIB; Data passes
/// the PIT and is written to the store. A stage that is `None` takes no time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StagesPlan {
    /// The processor of a router that is the limit itself: every packet occupies it before all
    /// else.
    pub cpu: Option<CpuPlan>,
    /// Look-up of an Interest in the store (rate mu_1).
    pub store: Option<StagePlan>,
    /// How long an Interest holds the server of `store` when the store has not what it asks for, as
    /// its filter or index tells without a read; it waits in the same queue. Which of the two an
    /// Interest takes is found out when it joins the queue. `None`: as long as any other.
    pub store_miss: Option<ServiceTime>,
    /// Writing Data to the store (mu_2). Data is on its way already; when the queue is full, it is
    /// not stored.
    pub store_write: Option<StagePlan>,
    /// Interests in the PIT (mu_3).
    pub pit: Option<StagePlan>,
    /// Data in the PIT (mu_4).
    pub pit_data: Option<StagePlan>,
    /// Interests in the FIB (mu_5).
    pub fib: Option<StagePlan>,
}

/// One processor for packets of both kinds, with one queue. A kind that takes no time does not wait
/// for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuPlan {
    pub interest: ServiceTime,
    pub data: ServiceTime,
    /// What an Interest takes beside `interest` when a disk is asked for its Data.
    #[serde(default)]
    pub read: ServiceTime,
    /// And when it passes by a disk that has its Data.
    #[serde(default)]
    pub bypass: ServiceTime,
    /// The machine whose cores it shares with all other routers that name it; `None`: it has
    /// `cores` of its own. A router has one packet served at a time.
    #[serde(default)]
    pub machine: Option<String>,
    #[serde(default = "one")]
    pub cores: u32,
    /// Packets that wait and are being served at most; others are dropped.
    pub capacity: u32,
}

fn one() -> u32 {
    1
}

/// A stage: a bounded queue and a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagePlan {
    pub service: ServiceTime,
    /// Packets in the stage at most, the one in service included (K of M/M/1/K).
    pub capacity: u32,
    /// What becomes of a packet that finds it full.
    pub when_full: WhenFull,
}

/// What becomes of a packet that finds a stage full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    Drop,
    /// It passes the stage by, to the next one (paper nb-cache, III-C).
    Bypass,
}

/// A link between two nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPlan {
    /// One end, an index into [`Plan::nodes`].
    pub a: usize,
    /// The other end.
    pub b: usize,
    /// The way from `a` to `b`.
    pub a_to_b: LinkConfig,
    /// The way from `b` to `a`.
    pub b_to_a: LinkConfig,
    /// Both ends are on one host: the face is local, and nothing is emulated in the real arm.
    pub is_local: bool,
    /// What carries it in the real arm; the simulator takes the frame sizes from it: datagrams are
    /// cut at `mtu`.
    pub transport: Transport,
    /// Octets of a datagram at most.
    pub mtu: usize,
    /// Both ends send again what the link lost (NDNLPv2 reliability); of datagrams alone.
    #[serde(default)]
    pub reliability: bool,
    /// One frame may stand for several Interests.
    #[serde(default)]
    pub runs: bool,
}

impl LinkPlan {
    /// A link within a host that is `way` in both directions.
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
        }
    }
}

/// What carries a link in the real arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    Unix,
    /// TCP over loopback.
    Tcp,
    /// UDP over loopback, through the link emulator unless the link is ideal.
    Udp,
}

/// A FIB entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutePlan {
    /// The router, an index into [`Plan::nodes`].
    pub node: usize,
    pub prefix: String,
    /// The link it leaves by, an index into [`Plan::links`].
    pub link: usize,
    /// Lower is better.
    pub cost: u64,
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultPlan {
    /// When, ns from the start.
    pub at_ns: u64,
    pub fault: Fault,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// A link carries nothing for a time.
    LinkDown {
        /// An index into [`Plan::links`].
        link: usize,
        /// For how long, ns.
        for_ns: u64,
    },
    /// A link has less of its rate for a time, both ways. What waits already leaves as it would
    /// have.
    LinkSlow {
        /// An index into [`Plan::links`].
        link: usize,
        /// For how long, ns.
        for_ns: u64,
        /// The share of its rate that is left.
        share: f64,
    },
    /// A router loses all its state and comes back with its routes after a time.
    Crash {
        /// An index into [`Plan::nodes`].
        node: usize,
        /// For how long it is away, ns.
        for_ns: u64,
    },
    /// The store of a router (its disks, its stage, where it has them) serves nothing for a time.
    StoreStall {
        /// An index into [`Plan::nodes`].
        node: usize,
        /// For how long, ns.
        for_ns: u64,
    },
    /// A link flips octets in what it carries for a time.
    WrongBytes {
        /// An index into [`Plan::links`].
        link: usize,
        /// For how long, ns.
        for_ns: u64,
        /// The share of frames that are hit.
        probability: f64,
    },
    /// One disk of a router answers nothing for a time.
    DiskStall {
        /// An index into [`Plan::nodes`].
        node: usize,
        /// Which of its disks, from 0.
        disk: u8,
        /// For how long, ns.
        for_ns: u64,
    },
    /// One disk of a router fails operations for a time.
    DiskErrors {
        /// An index into [`Plan::nodes`].
        node: usize,
        /// Which of its disks, from 0.
        disk: u8,
        /// For how long, ns.
        for_ns: u64,
        /// The share of operations that fail. Of a write that fails, any part may be written.
        probability: f64,
    },
    /// One disk of a router says that all is well for a time, and it is not.
    DiskDamage {
        /// An index into [`Plan::nodes`].
        node: usize,
        /// Which of its disks, from 0.
        disk: u8,
        /// For how long, ns.
        for_ns: u64,
        /// The share of reads in which bits are flipped.
        flipped: f64,
        /// The share of writes of which nothing is written.
        lost: f64,
        /// The share of writes of which only the first blocks are written.
        torn: f64,
    },
    /// One disk of a router has no space left for a time: writes fail.
    DiskFull {
        /// An index into [`Plan::nodes`].
        node: usize,
        /// Which of its disks, from 0.
        disk: u8,
        /// For how long, ns.
        for_ns: u64,
    },
}

impl Fault {
    /// How long it lasts, ns.
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
