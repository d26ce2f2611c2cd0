use core::ops::{AddAssign, Index};

macro_rules! link_drops {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// Why a frame or packet was dropped.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
        pub enum LinkDrop {
            $($(#[$doc])* #[error($name)] $variant,)+
        }

        impl LinkDrop {
            /// Every reason, in the order of [`DropCounters`].
            pub const ALL: [Self; Self::COUNT] = [$(Self::$variant,)+];
            /// How many reasons there are.
            pub const COUNT: usize = [$($name,)+].len();

            /// The reason in kebab-case, as metrics and logs spell it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

link_drops! {
    /// The frame is no Interest, Data or LpPacket that NDNLPv2 allows.
    Malformed = "lp-malformed",
    /// The LpPacket's fragment is neither an Interest nor a Data.
    NotNetworkPacket = "not-network-packet",
    /// An Interest carries CachePolicy or PrefixAnnouncement.
    InterestHeader = "interest-with-forbidden-header",
    /// A Data carries Nack, NextHopFaceId or NonDiscovery.
    DataHeader = "data-with-forbidden-header",
    /// A Nack carries NextHopFaceId, CachePolicy, NonDiscovery or PrefixAnnouncement.
    NackHeader = "nack-with-forbidden-header",
    /// An Interest carries NextHopFaceId, but the face has no local fields.
    LocalFieldsOff = "next-hop-face-without-local-fields",
    /// A fragment arrived on a face without reassembly.
    ReassemblyOff = "reassembly-off",
    /// FragCount is above 1 but there is no Sequence.
    FragmentUnnumbered = "fragment-without-sequence",
    /// FragIndex is not below FragCount.
    FragmentIndex = "fragment-index-beyond-count",
    /// FragCount is 0, or larger than the maximum.
    FragmentCount = "fragment-count-out-of-range",
    /// FragCount differs from that of the packet's other fragments.
    FragmentMismatch = "fragment-count-mismatch",
    /// This fragment of the packet has already arrived.
    FragmentDuplicate = "fragment-duplicate",
    /// The fragments together are larger than the largest packet.
    ReassembledTooLarge = "reassembled-too-large",
    /// The next fragment did not arrive in time; counted once for each packet.
    ReassemblyTimeout = "reassembly-timeout",
    /// The packet in reassembly that was idle longest was dropped for another.
    ReassemblyFull = "reassembly-full",
    /// A frame with this Sequence was received before: its acknowledgement was lost or late.
    SequenceDuplicate = "sequence-duplicate",
    QueueFull = "egress-queue-full",
    /// All egress queues together are full. This queue is one of the longest, and its newest frame
    /// was dropped.
    EgressMemory = "egress-memory-full",
    /// The queue of the rate-limiting discipline is full.
    InterestRate = "interest-rate-exceeded",
    /// The queue of this flow in HR-ICP's discipline is full.
    FlowQueueFull = "flow-queue-full",
    /// Shaping cannot delay more Interests; one was answered with a Nack.
    ShapingFull = "shaping-full",
    /// The lifetime of an Interest ended while shaping delayed it.
    ShapingExpired = "shaping-interest-expired",
    /// A run arrived on a face that does not accept runs.
    RunsOff = "runs-off",
    /// The fields of a run do not match each other or its Interest (`docs/run-interests.md`).
    RunMalformed = "run-malformed",
    /// The frame exceeds the MTU, and cannot or may not be fragmented.
    TooLargeForMtu = "too-large-for-mtu",
    /// The hICN packet ends inside its header.
    HicnTruncated = "hicn-truncated",
    /// The frame is no IPv6 packet: hICN over IPv4, or the header of version 9.
    HicnVersion = "hicn-version",
    /// The payload length of IPv6 is not that of the frame.
    HicnLength = "hicn-length",
    /// An IPv6 packet with an extension header.
    HicnExtensionHeader = "hicn-extension-header",
    /// A fragment of an IPv6 packet.
    HicnFragment = "hicn-fragment",
    HicnIcmp = "hicn-icmp",
    HicnNotTcp = "hicn-not-tcp",
    /// Other ports than those of hICN: real TCP.
    HicnPorts = "hicn-ports",
    HicnTcpOptions = "hicn-tcp-options",
    /// The authentication header is longer than the packet, or contradicts itself.
    HicnAh = "hicn-ah",
    /// The signature has an unknown algorithm.
    HicnAlgorithm = "hicn-algorithm",
    /// The NDN elements in the authentication header are malformed.
    HicnNdnElements = "hicn-ndn-elements",
    /// The payload of an Interest with the manifest flag is no Interest manifest.
    HicnInterestManifest = "hicn-interest-manifest",
    /// As an NDN packet, the hICN packet would exceed the largest packet.
    HicnTooLarge = "hicn-too-large",
    /// A packet whose name is not an hICN name was sent to a face with hICN packets.
    HicnNoName = "hicn-no-name",
    /// A packet with a field that hICN lacks, or a Nack, was sent to a face with hICN packets.
    HicnNoForm = "hicn-no-form",
    /// An Interest was sent to a face with hICN packets that has no locator of its own.
    HicnNoLocator = "hicn-no-locator",
    /// A control message of hicn-light from a peer that may not send any: one of another host.
    HicnControl = "hicn-control",
    /// The socket refused the frame (unreachable, too long, no buffers).
    SocketRefused = "socket-refused",
}

/// One count per [`LinkDrop`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropCounters([u64; LinkDrop::COUNT]);

impl Default for DropCounters {
    fn default() -> Self {
        Self([0; LinkDrop::COUNT])
    }
}

impl DropCounters {
    /// Adds one drop for `reason`.
    pub fn count(&mut self, reason: LinkDrop) {
        self.0[reason as usize] += 1;
    }

    /// All reasons with their counts, in the order of [`LinkDrop::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (LinkDrop, u64)> + '_ {
        LinkDrop::ALL.into_iter().zip(self.0.iter().copied())
    }

    /// The sum over all reasons.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl AddAssign<&Self> for DropCounters {
    fn add_assign(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum += count);
    }
}

impl Index<LinkDrop> for DropCounters {
    type Output = u64;

    fn index(&self, reason: LinkDrop) -> &u64 {
        &self.0[reason as usize]
    }
}

/// Counters of one face since it was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Whole Interests received.
    pub in_interests: u64,
    /// Whole Data packets received.
    pub in_data: u64,
    /// Whole Nacks received.
    pub in_nacks: u64,
    /// Frames received, including dropped ones.
    pub in_frames: u64,
    /// Bytes of frames received, including dropped ones.
    pub in_bytes: u64,
    /// Frames received with several Interests.
    pub in_runs: u64,
    /// Interests received in runs; also counted in [`Self::in_interests`].
    pub in_run_interests: u64,
    /// Frames sent with several Interests.
    pub out_runs: u64,
    /// Interests sent in runs; also counted in [`Self::out_interests`].
    pub out_run_interests: u64,
    /// Interests accepted into the egress queue.
    pub out_interests: u64,
    /// Data accepted into the egress queue.
    pub out_data: u64,
    /// Nacks accepted into the egress queue.
    pub out_nacks: u64,
    /// Frames that the socket has taken.
    pub out_frames: u64,
    /// Bytes of frames that the socket has taken.
    pub out_bytes: u64,
    /// Packets reassembled from fragments.
    pub reassembled: u64,
    /// Packets sent as fragments.
    pub fragmented: u64,
    pub marks_set: u64,
    /// Frames that the other end has acknowledged (NDNLPv2 reliability).
    pub acknowledged: u64,
    /// Retransmissions of frames.
    pub retransmitted: u64,
    /// Packets with a frame that was lost in every transmission.
    pub given_up: u64,
    /// Frames sent only once although reliability is on, because there was no memory to keep them
    /// or the other end acknowledges nothing.
    pub unprotected: u64,
    /// Interests that a discipline has delayed.
    pub out_interests_delayed: u64,
    /// Interests that shaping has delayed.
    pub interests_held: u64,
    /// Delayed Interests that shaping has released.
    pub interests_released: u64,
    pub drops: DropCounters,
}

impl AddAssign<&Self> for LinkCounters {
    fn add_assign(&mut self, other: &Self) {
        self.in_interests += other.in_interests;
        self.in_data += other.in_data;
        self.in_nacks += other.in_nacks;
        self.in_frames += other.in_frames;
        self.in_bytes += other.in_bytes;
        self.in_runs += other.in_runs;
        self.in_run_interests += other.in_run_interests;
        self.out_runs += other.out_runs;
        self.out_run_interests += other.out_run_interests;
        self.out_interests += other.out_interests;
        self.out_data += other.out_data;
        self.out_nacks += other.out_nacks;
        self.out_frames += other.out_frames;
        self.out_bytes += other.out_bytes;
        self.reassembled += other.reassembled;
        self.fragmented += other.fragmented;
        self.marks_set += other.marks_set;
        self.acknowledged += other.acknowledged;
        self.retransmitted += other.retransmitted;
        self.given_up += other.given_up;
        self.unprotected += other.unprotected;
        self.out_interests_delayed += other.out_interests_delayed;
        self.interests_held += other.interests_held;
        self.interests_released += other.interests_released;
        self.drops += &other.drops;
    }
}
