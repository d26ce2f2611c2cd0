use weir_base::NS_PER_MS;
use weir_wire::PACKET_SIZE_MAX;
use weir_wire::lp::LP_PREFIX_MAX;

/// Most fragments one packet may be cut into, sent or received (NFD's limit).
pub const FRAGMENT_COUNT_MAX: u64 = 400;

/// A partial packet is given up this long after its latest fragment (NFD's timeout).
pub const REASSEMBLY_TIMEOUT_NS: u64 = 500 * NS_PER_MS;

/// Smallest MTU a face may be given, in octets (NFD's `MIN_MTU`).
pub const MTU_MIN: usize = 64;

/// What one face's [`Link`](crate::Link) does and how much it may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Largest frame in octets, LpPacket header included.
    pub mtu: usize,
    /// Whether packets whose frame exceeds `mtu` are cut; otherwise they are dropped.
    pub fragmentation: bool,
    /// Whether fragments are accepted.
    pub reassembly: bool,
    /// Whether IncomingFaceId is sent, and NextHopFaceId sent and accepted.
    pub local_fields: bool,
    /// Whether packets are marked while the queue stays above `mark_threshold_bytes`.
    pub congestion_marking: bool,
    /// Octets waiting (our queue and the socket's) above which marking is armed.
    pub mark_threshold_bytes: u64,
    /// How long the queue must stay above the threshold before the first mark.
    pub mark_interval_ns: u64,
    /// Bound of the egress queue in octets of memory: frames and a fixed charge for each.
    pub queue_bytes_max: u64,
    /// Bound on packets in reassembly at one time; the one idle longest makes room.
    pub partials_max: usize,
    /// Bound on octets of memory held by packets in reassembly.
    pub partial_bytes_max: usize,
    /// Sequence number of the first fragment sent. A random one keeps the fragments of a restarted
    /// router apart from those of its former life.
    pub sequence_start: u64,
}

impl LinkConfig {
    /// NFD's defaults for Unix and TCP faces: no fragments. A frame is as long as the largest
    /// packet, or longer by a PIT token, which only peers that sent one get back.
    pub fn stream() -> Self {
        Self {
            mtu: PACKET_SIZE_MAX + LP_PREFIX_MAX,
            fragmentation: false,
            reassembly: false,
            local_fields: false,
            congestion_marking: true,
            mark_threshold_bytes: 65536,
            mark_interval_ns: 100 * NS_PER_MS,
            queue_bytes_max: 8 << 20,
            partials_max: 256,
            partial_bytes_max: 1 << 20,
            sequence_start: 0,
        }
    }

    /// NFD's defaults for UDP faces: packets above `mtu` octets travel in fragments.
    pub fn datagram(mtu: usize) -> Self {
        Self { mtu, fragmentation: true, reassembly: true, ..Self::stream() }
    }
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self::stream()
    }
}
