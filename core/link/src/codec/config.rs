use core::net::Ipv6Addr;

use weir_base::NS_PER_MS;

use crate::runs::RunsConfig;

/// Maximum number of fragments of one packet, sent or received (NFD's limit).
pub(crate) const FRAGMENT_COUNT_MAX: u64 = 400;

/// A partial packet times out this long after its latest fragment (NFD's timeout).
const REASSEMBLY_TIMEOUT_NS: u64 = 500 * NS_PER_MS;

/// With reliability, a frame can arrive this long after its first transmission. It covers three
/// timeouts, which double from one second on.
pub(crate) const FRAME_LIFETIME_NS: u64 = 10_000 * NS_PER_MS;

/// Smallest MTU of a face, in bytes (NFD's `MIN_MTU`).
pub const MTU_MIN: usize = 64;

/// The packets of a face on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketFormat {
    /// NDN packets, with the link header of NDNLPv2 if it is needed.
    Ndnlp,
    /// hICN packets, without fragments, reliability and local fields (decision 0046). Runs are
    /// Interest manifests: always accepted, and sent only with [`RunsConfig::Initiate`].
    Hicn(HicnConfig),
}

/// The configuration of a face with hICN packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HicnConfig {
    /// The first 64 bits of our locator: the source of Interests, to which Data returns. `::` if
    /// there is none; then Interests are dropped.
    pub locator: Ipv6Addr,
    /// Whether Interests carry our PIT tokens in the other 64 bits, and Data returns them. Only for
    /// peers that are routers of ours (decision 0048).
    pub has_tokens: bool,
    /// The number of the face, for path labels.
    pub face: u64,
    /// Whether control messages of hicn-light are passed on: those of programs of this host, and in
    /// an application, those of its router (decision 0050).
    pub has_control: bool,
}

/// The discard prefix (RFC 6666): a tunnel does not route locators.
const LOCATOR_DEFAULT: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0);

impl Default for HicnConfig {
    fn default() -> Self {
        Self { locator: LOCATOR_DEFAULT, has_tokens: false, face: 0, has_control: false }
    }
}

/// Which header fields a face sends and accepts, and how packets are fragmented and reassembled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodecConfig {
    pub format: PacketFormat,
    /// Largest frame in bytes, with its LpPacket header.
    pub mtu: usize,
    /// Whether packets larger than `mtu` are fragmented; otherwise they are dropped.
    pub fragmentation: bool,
    /// Whether fragments are accepted.
    pub reassembly: bool,
    /// Whether IncomingFaceId is sent, and NextHopFaceId sent and accepted.
    pub local_fields: bool,
    /// Whether a received IncomingFaceId is passed on. A consumer that asked its router for local
    /// fields needs it. A router has no use for the face numbers of its neighbour.
    pub keep_incoming_face: bool,
    /// Whether a received PrefixAnnouncement is passed on, see
    /// [`Received::Announced`](crate::Received::Announced). Only routers use it.
    pub announcements: bool,
    /// Maximum number of packets in reassembly. Beyond it, the packet that has been idle longest is
    /// dropped.
    pub partials_max: usize,
    /// Maximum memory of packets in reassembly, in bytes.
    pub partial_bytes_max: usize,
    /// Whether frames are numbered, acknowledged and retransmitted when they are lost (NDNLPv2
    /// reliability, NDN-FACTS 2.5). Both ends of a link must turn it on. Off, it costs nothing.
    pub reliability: bool,
    /// Maximum memory of frames that may have to be retransmitted, in bytes. Beyond it, frames are
    /// sent only once.
    pub unacknowledged_bytes_max: u64,
    /// Whether one frame may carry several Interests. With reliability, each frame carries one
    /// Interest.
    pub runs: RunsConfig,
    /// Sequence number of the first fragment. With a random start, peers do not combine fragments
    /// from before and after a restart of this router.
    pub sequence_start: u64,
}

impl CodecConfig {
    /// Turns off what the format does not have.
    pub(crate) fn sanitize(&mut self) {
        self.mtu = self.mtu.max(MTU_MIN);
        if let PacketFormat::Hicn(_) = self.format {
            self.fragmentation = false;
            self.reassembly = false;
            self.local_fields = false;
            self.reliability = false;
        }
    }

    /// How long a partial packet waits for its next fragment.
    pub(crate) fn reassembly_timeout_ns(&self) -> u64 {
        if self.reliability { FRAME_LIFETIME_NS } else { REASSEMBLY_TIMEOUT_NS }
    }
}
