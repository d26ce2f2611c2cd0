//! The configuration that a router starts with. The application reads files and flags.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weir_disk::DiskFileConfig;
use weir_face::{CertificateFiles, NetworkInterface, UdpFormat, UnixAccess};
use weir_forward::{BusyPolicy, DataSource, Extension, UnsolicitedPolicy};
use weir_link::{
    DisciplineConfig, LinkConfig, MarkingPolicy, PacketFormat, RunsConfig, ShapingConfig,
};
use weir_security::{Certificate, Verifier};
use weir_store::StoreConfig;
use weir_store::disk::DiskTierConfig;
use weir_wire::Name;

use crate::face_quota::FaceLimits;

/// All settings of [`Runtime::start`](crate::Runtime::start).
#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// Number of worker threads, 1 to [`THREADS_MAX`]. Each owns one shard of the tables.
    pub threads: usize,
    /// The content store, for all shards together.
    pub store: StoreConfig,
    /// Prefixes whose Data the store keeps in memory, with their limits in bytes.
    pub pins: Vec<(Name, u64)>,
    /// Disks of the content store, for Data that does not fit into memory.
    pub disks: Option<DisksConfig>,
    /// For experiments: replaces components of each shard.
    pub extension: Option<Arc<dyn Extension>>,
    /// Maximum number of PIT entries, for all shards together. At the limit, the router evicts
    /// an entry of the host with the most entries, and answers it with a Nack.
    pub pit_entries_max: usize,
    /// Maximum number of PIT entries with an in-record of one face. Further Interests of that face
    /// are answered with a Nack.
    pub pit_entries_per_face_max: usize,
    /// Upper limit of the lifetime of Interests from other hosts.
    pub interest_lifetime_max: Duration,
    /// Memory in bytes in addition to the content store; at least
    /// [`memory_bytes_min`](crate::memory_bytes_min). Half of it is for the PIT, and an eighth for
    /// egress queues. A sixteenth each is for reassembly, incomplete packets on connections, free
    /// packet buffers, and memory shared with applications.
    pub memory_bytes_max: u64,
    /// Bytes of the content store's memory that are prepared ahead of use, at most.
    pub memory_ahead_bytes: u64,
    pub fib_entries_max: usize,
    /// Maximum number of components of a name. Packets with longer names are dropped.
    pub name_components_max: usize,
    /// Which faces may satisfy a pending Interest with Data.
    pub data_source: DataSource,
    /// What happens to Data without a pending Interest.
    pub unsolicited: UnsolicitedPolicy,
    /// If an Interest's forwarding hint is a prefix of one of these names, the Interest has reached
    /// the producer's region. The router then removes the hint.
    pub producer_regions: Vec<Name>,
    /// Limits on the number of faces. At a limit, the least used idle peer is evicted. If none is
    /// idle, the new connection or UDP peer is refused and counted.
    pub faces: FaceLimits,
    /// Where the router listens.
    pub listeners: Vec<Listener>,
    /// Permissions of its Unix sockets.
    pub unix_access: UnixAccess,
    /// Settings of faces, unless a command or static face overrides them.
    pub face_defaults: FaceDefaults,
    /// Which network devices have multicast faces.
    pub multicast: MulticastConfig,
    /// Faces that are created at the start and again when they break.
    pub static_faces: Vec<StaticFace>,
    /// Strategies by prefix: prefix, and strategy name with or without version.
    pub strategies: Vec<(Name, Name)>,
    pub management: ManagementConfig,
    /// Minimum interval between moves of faces to less loaded worker threads.
    pub rebalance_interval: Duration,
    /// Address of `/metrics`; `None` disables it. The metrics include the addresses of all peers,
    /// so use loopback or a trusted network.
    pub metrics: Option<SocketAddr>,
    /// Whether `/contents` of this address lists the names in the store.
    pub metrics_contents: bool,
    /// The metrics have hits, misses and served bytes of the store for these prefixes, at most
    /// [`COUNTED_PREFIXES_MAX`](weir_store::COUNTED_PREFIXES_MAX).
    pub counted_prefixes: Vec<Name>,
    /// Whether the process belongs to the router. It then handles signals: SIGTERM, SIGINT and
    /// SIGQUIT stop it, SIGHUP requests a reload, and SIGUSR1 and SIGUSR2 are ignored. And it
    /// listens on the sockets that the service manager has passed to the process (LISTEN_FDS).
    /// Off in tests, where the process belongs to the test runner.
    pub handle_signals: bool,
}

/// The disks of the content store.
#[derive(Clone, Debug)]
pub struct DisksConfig {
    /// Files and devices; at least one.
    pub files: Vec<DiskFileConfig>,
    /// For tests and experiments, one for each of `files`: the disk gives no answers while a file
    /// with this path exists.
    #[cfg(feature = "lab")]
    pub stalled_while: Vec<Option<PathBuf>>,
    /// Settings of the disk tier, for all shards together. Geometry, keys and `index_bytes_max` are
    /// filled in from the files at the start.
    pub tier: DiskTierConfig,
    /// Memory in bytes for index and filter, for all shards together. `None`: enough for twice the
    /// number of typical records that the disks can hold.
    pub index_bytes_max: Option<u64>,
    /// Memory in bytes for Data that waits to be written, for all shards together. `None`: half of
    /// the store's capacity, but at least 16 MiB.
    pub write_backlog_bytes_max: Option<u64>,
    /// When the router bypasses busy disks.
    pub busy: BusyPolicy,
    /// How long a stopping router may take to write memory to its disks.
    pub stop_timeout: Duration,
}

/// Memory in bytes for index and filter of one typical record: twice what they need.
const INDEX_BYTES_PER_RECORD: u64 = 32;
/// Minimum memory of one shard's index, however small the disks are.
const INDEX_BYTES_MIN: u64 = 16 << 20;

impl DisksConfig {
    /// Memory limit in bytes of the index of one of `shards`, whose part of the disks is
    /// `capacity_bytes`.
    pub fn shard_index_bytes_max(&self, capacity_bytes: u64, shards: usize) -> u64 {
        if let Some(bytes) = self.index_bytes_max {
            return bytes / shards as u64;
        }
        let records = capacity_bytes / u64::from(self.tier.record_bytes_typical.max(1));
        (records * INDEX_BYTES_PER_RECORD).max(INDEX_BYTES_MIN)
    }
}

/// Maximum number of worker threads.
pub const THREADS_MAX: usize = 64;

/// An address where the router listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listener {
    /// A Unix stream socket at this path.
    Unix(PathBuf),
    /// A Unix stream socket at the first default path where one can be created.
    UnixDefault,
    /// A UDP port that all peers share.
    Udp {
        /// The packets of its peers.
        format: UdpFormat,
        address: SocketAddr,
        /// Whether the router refuses to start without this port.
        required: bool,
    },
    Tcp {
        address: SocketAddr,
        /// Whether the router refuses to start without this port.
        required: bool,
    },
    /// A TCP port for browsers.
    WebSocket {
        address: SocketAddr,
        /// Whether the router refuses to start without this port.
        required: bool,
    },
    /// A TCP port for browsers, over TLS.
    WebSocketTls {
        address: SocketAddr,
        /// Whether the router refuses to start without this port.
        required: bool,
        /// Read again when they change.
        files: CertificateFiles,
    },
}

/// Which network devices have a face to all NDN nodes of their link, over UDP multicast. The
/// default is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MulticastConfig {
    /// The names of the devices; `None`: all that are up, can multicast and are not loopback.
    pub devices: Option<Vec<String>>,
    pub has_ipv4: bool,
    pub has_ipv6: bool,
}

impl MulticastConfig {
    pub(crate) fn is_on(&self) -> bool {
        self.has_ipv4 || self.has_ipv6
    }

    pub(crate) fn includes(&self, interface: &NetworkInterface) -> bool {
        let is_wanted = |names: &Vec<String>| names.contains(&interface.device);
        let has_family = if interface.address.is_ipv6() { self.has_ipv6 } else { self.has_ipv4 };
        has_family && self.devices.as_ref().is_none_or(is_wanted)
    }
}

/// Default settings of faces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaceDefaults {
    /// Largest datagram in bytes; `None` uses [`weir_face::udp_mtu_default`].
    pub udp_mtu: Option<usize>,
    /// Limit of one face's egress queue, in bytes.
    pub queue_bytes_max: usize,
    /// Whether packets are marked when the egress queue grows.
    pub congestion_marking: bool,
    pub marking: MarkingPolicy,
    /// Queue length from which NFD's policy marks (NFD: 65536).
    pub mark_threshold_bytes: u64,
    /// Base interval between marks of NFD's policy (NFD: 100 ms).
    pub mark_interval: Duration,
    /// Whether UDP faces retransmit lost frames (NDNLPv2 reliability; off by default in NFD).
    pub reliability: bool,
    /// Whether one frame may carry several Interests, between routers that support it
    /// (`docs/run-interests.md`).
    pub runs: bool,
    /// PIT tokens of Interests to other hosts.
    pub pit_token: PitTokenChoice,
    /// Whether local applications may switch from the Unix socket to shared memory
    /// (`docs/shared-memory.md`).
    pub shared_memory: bool,
    /// The queue discipline: in which order and when packets leave a face. `None`: paced for UDP,
    /// otherwise first in, first out.
    pub discipline: Option<DisciplineConfig>,
    /// Which Interests that arrive at a face are held back.
    pub shaping: ShapingConfig,
    /// On-demand UDP faces close after this much silence (NFD: 600 s).
    pub idle_timeout: Duration,
    /// A connection closes when its peer reads nothing for this long while packets wait for it.
    pub stall_timeout: Duration,
    /// File of authorities (PEM) whose certificates `wss://` peers may have, in addition to those
    /// of the system.
    pub tls_ca: Option<PathBuf>,
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
            discipline: None,
            shaping: ShapingConfig::default(),
            idle_timeout: Duration::from_secs(600),
            stall_timeout: Duration::from_secs(60),
            tls_ca: None,
        }
    }
}

impl FaceDefaults {
    /// The PIT tokens of faces with these packets. A peer with hICN packets may be no router of
    /// ours (decision 0048).
    pub(crate) fn pit_token_of(&self, format: UdpFormat) -> PitTokenChoice {
        match format {
            UdpFormat::Ndn => self.pit_token,
            UdpFormat::Hicn => PitTokenChoice::Off,
        }
    }
}

/// Which PIT tokens Interests carry. Over UDP, a secret token proves that Data comes from the peer
/// that received the Interest. With several worker threads, the token also names the shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PitTokenChoice {
    /// None: Data from a forged UDP source address is accepted.
    Off,
    /// Six bytes, which ndnd also accepts. Over UDP, 41 to 48 bits of them are secret.
    #[default]
    Short,
    /// Twelve bytes over UDP, with 64 secret bits.
    Long,
}

/// A face of the configuration, created at the start or by a reload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StaticFace {
    /// `udp://host:port`, `hicn+udp://host:port`, `hicn+tun://device/locator`, `tcp://host:port`,
    /// `ws://host:port`, `wss://host:port/path` or `unix:///path`. Host names are resolved again
    /// when the face reconnects, and while a UDP peer is silent.
    pub uri: String,
    /// Whether the face is created again when it breaks.
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
    /// Overrides [`FaceDefaults::pit_token`], and off for hICN (decision 0048).
    pub pit_token: Option<PitTokenChoice>,
    /// Overrides [`FaceDefaults::discipline`].
    pub discipline: Option<DisciplineConfig>,
    /// Overrides [`FaceDefaults::shaping`].
    pub shaping: Option<ShapingConfig>,
    /// Routes over this face: prefix and cost.
    pub routes: Vec<(Name, u64)>,
}

impl StaticFace {
    /// Applies overrides that management commands cannot express.
    pub(crate) fn configure(&self, link: &mut LinkConfig) {
        link.shaping = self.shaping.unwrap_or(link.shaping);
        let is_hicn = matches!(link.codec.format, PacketFormat::Hicn(_));
        let runs = &mut link.codec.runs;
        *runs = match self.runs.unwrap_or(*runs != RunsConfig::Off) {
            // Without offers, only the operator knows that the peer understands Interest manifests.
            true if is_hicn && self.runs.is_none() => RunsConfig::Accept,
            true => RunsConfig::Initiate,
            false => RunsConfig::Off,
        };
        if let PacketFormat::Hicn(hicn) = &mut link.codec.format {
            hicn.has_tokens = self.pit_token.is_some_and(|token| token != PitTokenChoice::Off);
        }
        let egress = &mut link.egress;
        if let Some(policy) = &self.marking {
            egress.marking.policy = policy.clone();
        }
        if let Some(discipline) = &self.discipline {
            egress.discipline = discipline.clone();
        }
    }
}

/// Who may send management commands. Root, the router's own user and the group of its Unix sockets
/// ([`RuntimeConfig::unix_access`]) always may, over such a socket.
#[derive(Clone, Debug)]
pub struct ManagementConfig {
    /// Keys that may command the router from any face.
    pub trust_anchors: Vec<TrustAnchor>,
    /// The keys whose prefix announcements are accepted. Empty accepts all.
    pub announcement_anchors: Vec<TrustAnchor>,
    /// Whether every local program may register prefixes for its own face.
    pub local_registration: bool,
    /// Whether TCP connections from this host may send commands. Their user is unknown.
    pub loopback_commands: bool,
    /// Whether `/localhop/nfd/rib` accepts commands that a trust anchor has signed.
    pub localhop: bool,
    /// Whether neighbours may list the segments of an object in the store
    /// (`/localhop/nfd/cs/holdings`). If so, the index of holdings exists from the start.
    pub holdings_for_neighbours: bool,
    /// Whether the prefixes of local applications are registered with the routing daemon of this
    /// host, if there is one (NFD, `readvertise_nlsr`).
    pub readvertise_nlsr: bool,
}

impl Default for ManagementConfig {
    fn default() -> Self {
        Self {
            trust_anchors: Vec::new(),
            announcement_anchors: Vec::new(),
            local_registration: true,
            loopback_commands: false,
            localhop: false,
            holdings_for_neighbours: false,
            readvertise_nlsr: true,
        }
    }
}

/// A trusted certificate, and a verifier for its key.
#[derive(Clone)]
pub struct TrustAnchor {
    pub certificate: Certificate,
    /// Verifies signatures of the certificate's key.
    pub verifier: Arc<dyn Verifier>,
}

impl fmt::Debug for TrustAnchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrustAnchor({})", self.certificate.name())
    }
}

#[cfg(test)]
mod tests {
    use weir_link::HicnConfig;

    use super::*;

    /// Producers of hICN's library answer only the first suffix of an Interest manifest.
    #[test]
    fn interest_manifests_are_sent_only_by_configuration() {
        let runs_of = |runs, mut link: LinkConfig| {
            link.codec.runs = RunsConfig::Accept;
            StaticFace { runs, ..StaticFace::default() }.configure(&mut link);
            link.codec.runs
        };
        let hicn = || LinkConfig::hicn(1500, HicnConfig::default());
        assert_eq!(runs_of(None, hicn()), RunsConfig::Accept);
        assert_eq!(runs_of(Some(true), hicn()), RunsConfig::Initiate);
        assert_eq!(runs_of(Some(false), hicn()), RunsConfig::Off);
        assert_eq!(runs_of(None, LinkConfig::stream()), RunsConfig::Initiate);
    }
}
