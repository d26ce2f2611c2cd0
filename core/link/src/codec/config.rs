use weir_base::NS_PER_MS;

use crate::runs::RunsConfig;

/// Most fragments one packet may be cut into, sent or received (NFD's limit).
pub(crate) const FRAGMENT_COUNT_MAX: u64 = 400;

/// A partial packet is given up this long after its latest fragment (NFD's timeout).
const REASSEMBLY_TIMEOUT_NS: u64 = 500 * NS_PER_MS;

/// With reliability a frame that has not come by then will not come any more: three timeouts that
/// double from the initial second on are over.
pub(crate) const FRAME_LIFETIME_NS: u64 = 10_000 * NS_PER_MS;

/// Smallest MTU a face may be given, in octets (NFD's `MIN_MTU`).
pub const MTU_MIN: usize = 64;

/// What a face's headers may hold, and how packets are cut and put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodecConfig {
    /// Largest frame in octets, LpPacket header included.
    pub mtu: usize,
    /// Whether packets whose frame exceeds `mtu` are cut; otherwise they are dropped.
    pub fragmentation: bool,
    /// Whether fragments are accepted.
    pub reassembly: bool,
    /// Whether IncomingFaceId is sent, and NextHopFaceId sent and accepted.
    pub local_fields: bool,
    /// Whether a received IncomingFaceId is handed on. A consumer that asked its router for local
    /// fields wants it; a router has no use for its neighbour's face numbers.
    pub keep_incoming_face: bool,
    /// Bound on packets in reassembly at one time; the one idle longest makes room.
    pub partials_max: usize,
    /// Bound on octets of memory held by packets in reassembly.
    pub partial_bytes_max: usize,
    /// Whether frames are numbered, acknowledged and, when lost, sent again (NDNLPv2 reliability,
    /// NDN-FACTS 2.5). Both ends of a link must have it on; off, it costs nothing.
    pub reliability: bool,
    /// Bound on octets of memory held by frames that may have to be sent again. Beyond it frames
    /// are sent once only.
    pub unacknowledged_bytes_max: u64,
    /// Whether one frame may stand for several Interests. Not sent with reliability.
    pub runs: RunsConfig,
    /// Sequence number of the first fragment sent. A random one keeps the fragments of a restarted
    /// router apart from those it sent before.
    pub sequence_start: u64,
}

impl CodecConfig {
    /// How long a packet waits for another of its fragments.
    pub(crate) fn reassembly_timeout_ns(&self) -> u64 {
        if self.reliability { FRAME_LIFETIME_NS } else { REASSEMBLY_TIMEOUT_NS }
    }
}
