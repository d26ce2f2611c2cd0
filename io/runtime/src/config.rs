//! What a router is started with. Plain values: reading files and flags is the application's work.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weir_disk::DiskFileConfig;
use weir_face::UnixAccess;
use weir_forward::{BusyPolicy, DataSource, Extension, UnsolicitedPolicy};
use weir_link::{DisciplineConfig, LinkConfig, MarkingPolicy, RunsConfig, ShapingConfig};
use weir_security::{Certificate, Verifier};
use weir_store::StoreConfig;
use weir_store::disk::DiskTierConfig;
use weir_wire::Name;

use crate::face_quota::FaceLimits;

/// Everything [`Runtime::start`](crate::Runtime::start) needs to know.
#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// Packet threads, 1 to [`THREADS_MAX`]. Each owns one shard of the tables.
    pub threads: usize,
    /// The content store, all shards together.
    pub store: StoreConfig,
    /// Disks for what memory has no room for.
    pub disks: Option<DisksConfig>,
    /// For experiments: what replaces parts of each shard.
    pub extension: Option<Arc<dyn Extension>>,
    /// Most PIT entries, all shards together. Beyond it those of whoever has the most give way: a
    /// Nack.
    pub pit_entries_max: usize,
    /// Most PIT entries that one face waits for; an Interest beyond it is answered with a Nack.
    pub pit_entries_per_face_max: usize,
    /// How long Interests of other hosts wait at most.
    pub interest_lifetime_max: Duration,
    /// Octets of memory beside the content store, at least
    /// [`memory_bytes_min`](crate::memory_bytes_least). Shared out: a half for the PIT, an eighth
    /// for egress queues, a sixteenth each for reassembly, for beginnings of packets on
    /// connections, for packet buffers at rest and for memory shared with applications.
    pub memory_bytes_max: u64,
    /// Octets of the content store's memory that are made ready before they are needed, at most.
    pub memory_ahead_bytes: u64,
    pub fib_entries_max: usize,
    /// Components that a name has at most; other packets are dropped.
    pub name_components_max: usize,
    /// Whose Data satisfies a pending Interest.
    pub data_source: DataSource,
    /// What becomes of Data that no Interest asked for.
    pub unsolicited: UnsolicitedPolicy,
    /// A forwarding hint that is a prefix of one of these names has led home and is taken off.
    pub producer_regions: Vec<Name>,
    /// Most faces. Beyond it the least used peer makes room if it is silent; else a connection or a
    /// UDP peer is refused and counted.
    pub faces: FaceLimits,
    /// Where the router waits for peers.
    pub listeners: Vec<Listener>,
    /// Who may connect to its Unix sockets.
    pub unix_access: UnixAccess,
    /// Settings of faces that no command or static face overrides.
    pub face_defaults: FaceDefaults,
    /// Faces that exist from the start and come back when they break.
    pub static_faces: Vec<StaticFace>,
    /// Strategies chosen per prefix, by versioned or unversioned strategy name.
    pub strategies: Vec<(Name, Name)>,
    pub management: ManagementConfig,
    /// How often faces may go over to packet threads that have less to do.
    pub rebalance_interval: Duration,
    /// Where `/metrics` is served; nowhere when `None`. Whoever reaches it reads who the peers are:
    /// loopback or a trusted network only.
    pub metrics: Option<SocketAddr>,
    /// Whether the router handles signals (SIGTERM, SIGINT and SIGQUIT stop it, SIGHUP, SIGUSR1 and
    /// SIGUSR2 do nothing). Off in tests, where the process is not ours.
    pub handle_signals: bool,
}

/// The disks of the content store.
#[derive(Clone, Debug)]
pub struct DisksConfig {
    /// Files and devices, at least one.
    pub files: Vec<DiskFileConfig>,
    /// For tests and experiments, for each of `files`: while a file of this path is there, the disk
    /// gives no answers.
    #[cfg(feature = "lab")]
    pub stalled_while: Vec<Option<PathBuf>>,
    /// How the disks are used, by all shards together. What the files themselves say (geometry,
    /// keys) and `index_bytes_max` are filled in at the start.
    pub tier: DiskTierConfig,
    /// Octets of RAM for index and filter, all shards together. None: what twice as many typical
    /// records take as the disks have room for.
    pub index_bytes_max: Option<u64>,
    /// Octets of memory for Data that waits to be written, all shards together. None: half of what
    /// the store may take.
    pub write_backlog_bytes_max: Option<u64>,
    /// What the router does when they are busy.
    pub busy: BusyPolicy,
    /// How long a router that is told to stop may write what is in memory to its disks.
    pub stop_timeout: Duration,
}

/// Most packet threads.
pub const THREADS_MAX: usize = 64;

/// One place where the router waits for peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listener {
    /// Unix stream socket at this path.
    Unix(PathBuf),
    /// Unix stream socket at the first of the usual paths that may be created.
    UnixDefault,
    /// UDP port, shared by all its peers.
    Udp {
        address: SocketAddr,
        /// Whether the router refuses to start without it.
        required: bool,
    },
    Tcp {
        address: SocketAddr,
        /// Whether the router refuses to start without it.
        required: bool,
    },
}

/// Settings of faces that nothing overrides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaceDefaults {
    /// Largest datagram in octets; `None` takes
    /// [`weir_face::udp_mtu_default`].
    pub udp_mtu: Option<usize>,
    /// Bound of one face's egress queue.
    pub queue_bytes_max: usize,
    /// Whether packets are marked when the egress queue grows.
    pub congestion_marking: bool,
    pub marking: MarkingPolicy,
    /// Queue from which NFD's marking starts (NFD: 65536).
    pub mark_threshold_bytes: u64,
    /// Base interval between NFD's marks (NFD: 100 ms).
    pub mark_interval: Duration,
    /// Whether UDP faces send again what was lost (NDNLPv2 reliability; NFD: not by default).
    pub reliability: bool,
    /// Whether one frame may stand for several Interests between routers that know it
    /// (`docs/run-interests.md`).
    pub runs: bool,
    /// The PIT tokens of Interests to other hosts.
    pub pit_token: PitTokenChoice,
    /// Whether applications of this machine may go over from the Unix socket to shared memory
    /// (`docs/shared-memory.md`).
    pub shared_memory: bool,
    /// In which order and when packets leave a face.
    pub discipline: DisciplineConfig,
    /// Which Interests that come in by a face wait.
    pub shaping: ShapingConfig,
    /// On-demand UDP faces close after this much silence (NFD: 600 s).
    pub idle_timeout: Duration,
    /// A connection closes when its peer takes nothing for this long while packets wait for it.
    pub stall_timeout: Duration,
}

impl Default for FaceDefaults {
    fn default() -> Self {
        Self {
            udp_mtu: None,
            queue_bytes_max: 4 << 20,
            congestion_marking: true,
            marking: MarkingPolicy::default(),
            mark_threshold_bytes: 65536,
            mark_interval: Duration::from_millis(100),
            reliability: false,
            runs: true,
            pit_token: PitTokenChoice::Short,
            shared_memory: true,
            discipline: DisciplineConfig::default(),
            shaping: ShapingConfig::default(),
            idle_timeout: Duration::from_secs(600),
            stall_timeout: Duration::from_secs(60),
        }
    }
}

/// Which PIT tokens Interests bear. Over UDP they prove that Data comes from whoever got the
/// Interest; with several packet threads they say which one waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PitTokenChoice {
    /// None: anyone who forges a UDP peer's address is believed.
    Off,
    /// Six octets, which ndnd takes, too; over UDP 41 to 48 bits of them are secret.
    #[default]
    Short,
    /// Twelve octets over UDP, with 64 secret bits.
    Long,
}

/// A face that exists from the start.
#[derive(Clone, Debug, Default)]
pub struct StaticFace {
    /// `udp://host:port`, `tcp://host:port`, `unix:///path`; host names are resolved, and resolved
    /// again when the face has to be built anew, and while a UDP peer is silent.
    pub uri: String,
    /// Whether the face is rebuilt when it breaks; persistent faces are not.
    pub permanent: bool,
    /// Overrides [`FaceDefaults::udp_mtu`].
    pub mtu: Option<usize>,
    /// Overrides [`FaceDefaults::congestion_marking`].
    pub congestion_marking: Option<bool>,
    /// Overrides [`FaceDefaults::reliability`], for UDP.
    pub reliability: Option<bool>,
    /// Overrides [`FaceDefaults::marking`].
    pub marking: Option<MarkingPolicy>,
    /// Overrides [`FaceDefaults::runs`].
    pub runs: Option<bool>,
    /// Overrides [`FaceDefaults::pit_token`].
    pub pit_token: Option<PitTokenChoice>,
    /// Overrides [`FaceDefaults::discipline`].
    pub discipline: Option<DisciplineConfig>,
    /// Overrides [`FaceDefaults::shaping`].
    pub shaping: Option<ShapingConfig>,
    /// Routes over this face: prefix and cost.
    pub routes: Vec<(Name, u64)>,
}

impl StaticFace {
    /// Changes what it overrides and management knows nothing of.
    pub(crate) fn configure(&self, link: &mut LinkConfig) {
        link.shaping = self.shaping.unwrap_or(link.shaping);
        let runs = &mut link.codec.runs;
        *runs = match self.runs.unwrap_or(*runs != RunsConfig::Off) {
            true => RunsConfig::Initiate,
            false => RunsConfig::Off,
        };
        let egress = &mut link.egress;
        if let Some(policy) = &self.marking {
            egress.marking.policy = policy.clone();
        }
        if let Some(discipline) = &self.discipline {
            egress.discipline = discipline.clone();
        }
    }
}

/// Who may command the router. Root, the user that the router runs as and the group of its Unix
/// sockets ([`RuntimeConfig::unix_access`]) may, over such a socket.
#[derive(Clone, Debug)]
pub struct ManagementConfig {
    /// Keys that may command the router from anywhere.
    pub trust_anchors: Vec<TrustAnchor>,
    /// Whether every program of this host may register prefixes for its own face.
    pub local_registration: bool,
    /// Whether connections by TCP from this host, of whose users nothing is known, may command.
    pub loopback_commands: bool,
    /// Whether `/localhop/nfd/rib` is served to neighbours whose commands a trust anchor signed.
    pub localhop: bool,
    /// Whether neighbours are told which segments of an object the store holds
    /// (`/localhop/nfd/cs/holdings`). The index of these is kept from the start then.
    pub holdings_for_neighbours: bool,
}

impl Default for ManagementConfig {
    fn default() -> Self {
        Self {
            trust_anchors: Vec::new(),
            local_registration: true,
            loopback_commands: false,
            localhop: false,
            holdings_for_neighbours: false,
        }
    }
}

/// A certificate that is trusted as it stands, and what verifies its key's signatures.
#[derive(Clone)]
pub struct TrustAnchor {
    pub certificate: Certificate,
    /// Verifies what the certificate's key signs.
    pub verifier: Arc<dyn Verifier>,
}

impl fmt::Debug for TrustAnchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrustAnchor({})", self.certificate.name())
    }
}
