use core::ops::Index;

macro_rules! link_drops {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// Why a frame or packet went no further.
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
    /// An Interest carries NextHopFaceId on a face without local fields.
    LocalFieldsOff = "next-hop-face-without-local-fields",
    /// A fragment came on a face that does not reassemble.
    ReassemblyOff = "reassembly-off",
    /// FragCount is above 1 but there is no Sequence.
    FragmentUnnumbered = "fragment-without-sequence",
    /// FragIndex is not below FragCount.
    FragmentIndex = "fragment-index-beyond-count",
    /// FragCount is 0 or above the most fragments of a packet.
    FragmentCount = "fragment-count-out-of-range",
    /// FragCount differs from that of the message's other fragments.
    FragmentMismatch = "fragment-count-mismatch",
    /// This fragment of the message is here already.
    FragmentDuplicate = "fragment-duplicate",
    /// The fragments together exceed the largest packet.
    ReassembledTooLarge = "reassembled-too-large",
    /// No further fragment came in time; counted once per packet given up.
    ReassemblyTimeout = "reassembly-timeout",
    /// The packet idle longest in reassembly made room for another.
    ReassemblyFull = "reassembly-full",
    /// A frame of this Sequence was received before: its acknowledgement was lost or late.
    SequenceDuplicate = "sequence-duplicate",
    QueueFull = "egress-queue-full",
    /// All egress queues together are full, and this one is among the longest: its newest frame
    /// gave way.
    EgressMemory = "egress-memory-full",
    /// More Interests wait for their turn than the rate-limiting discipline holds.
    InterestRate = "interest-rate-exceeded",
    /// More Interests of a flow wait for their turn than HR-ICP's discipline holds.
    FlowQueueFull = "flow-queue-full",
    /// More Interests wait than shaping holds: one was answered with a Nack.
    ShapingFull = "shaping-full",
    /// The lifetime of an Interest ended while shaping held it.
    ShapingExpired = "shaping-interest-expired",
    /// A run came on a face that takes none.
    RunsOff = "runs-off",
    /// The fields of a run do not fit each other or its Interest (`docs/run-interests.md`).
    RunMalformed = "run-malformed",
    /// The frame exceeds the MTU and may not be, or cannot be, cut.
    TooLargeForMtu = "too-large-for-mtu",
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

    /// Every reason with its count, in the order of [`LinkDrop::FULL_SHARE`].
    pub fn iter(&self) -> impl Iterator<Item = (LinkDrop, u64)> + '_ {
        LinkDrop::ALL.into_iter().zip(self.0.iter().copied())
    }

    /// Drops of all reasons together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Index<LinkDrop> for DropCounters {
    type Output = u64;

    fn index(&self, reason: LinkDrop) -> &u64 {
        &self.0[reason as usize]
    }
}

/// What passed through one face since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Interests received whole.
    pub in_interests: u64,
    /// Data received whole.
    pub in_data: u64,
    /// Nacks received whole.
    pub in_nacks: u64,
    /// Frames received, dropped ones included.
    pub in_frames: u64,
    /// Octets of frames received, dropped ones included.
    pub in_bytes: u64,
    /// Frames received that stood for several Interests.
    pub in_runs: u64,
    /// Interests received in runs, among [`Self::in_interests`].
    pub in_run_interests: u64,
    /// Frames made of several Interests.
    pub out_runs: u64,
    /// Interests that left in runs, among [`Self::out_interests`].
    pub out_run_interests: u64,
    /// Interests accepted into the egress queue.
    pub out_interests: u64,
    /// Data accepted into the egress queue.
    pub out_data: u64,
    /// Nacks accepted into the egress queue.
    pub out_nacks: u64,
    /// Frames the socket took.
    pub out_frames: u64,
    /// Octets of frames the socket took.
    pub out_bytes: u64,
    /// Packets put together from fragments.
    pub reassembled: u64,
    /// Packets cut into fragments.
    pub fragmented: u64,
    pub marks_set: u64,
    /// Frames that the other end acknowledged (NDNLPv2 reliability).
    pub acknowledged: u64,
    /// Frames sent again, each time.
    pub retransmitted: u64,
    /// Packets of which a frame was lost each time it was sent.
    pub given_up: u64,
    /// Frames sent once only although reliability is on: there is no room to keep them, or the
    /// other end acknowledges nothing.
    pub unprotected: u64,
    /// Interests that a discipline made wait for their turn.
    pub out_interests_delayed: u64,
    /// Interests that shaping held for a while.
    pub interests_held: u64,
    /// Held Interests that went on.
    pub interests_released: u64,
    pub drops: DropCounters,
}
