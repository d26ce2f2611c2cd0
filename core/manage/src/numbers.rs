//! Type numbers and enumerations of the NFD management protocol.

use crate::error::DecodeError;

/// TLV-TYPE numbers. The protocol uses some numbers in several structures.
pub mod types {
    pub(crate) const NAME: u32 = 7;
    pub(crate) const CONTROL_RESPONSE: u32 = 101;
    pub(crate) const STATUS_CODE: u32 = 102;
    pub(crate) const STATUS_TEXT: u32 = 103;
    pub(crate) const CONTROL_PARAMETERS: u32 = 104;
    pub(crate) const FACE_ID: u32 = 105;
    pub(crate) const COST: u32 = 106;
    pub(crate) const STRATEGY: u32 = 107;
    pub(crate) const FLAGS: u32 = 108;
    pub(crate) const EXPIRATION_PERIOD: u32 = 109;
    pub(crate) const ORIGIN: u32 = 111;
    pub(crate) const MASK: u32 = 112;
    pub const URI: u32 = 114;
    pub(crate) const LOCAL_URI: u32 = 129;
    pub(crate) const CAPACITY: u32 = 131;
    pub(crate) const COUNT: u32 = 132;
    pub(crate) const FACE_PERSISTENCY: u32 = 133;
    pub(crate) const BASE_CONGESTION_MARKING_INTERVAL: u32 = 135;
    pub(crate) const DEFAULT_CONGESTION_THRESHOLD: u32 = 136;
    pub(crate) const MTU: u32 = 137;

    /// FaceStatus, FibEntry, RibEntry, CsInfo and StrategyChoice alike.
    pub(crate) const DATASET_ITEM: u32 = 128;
    /// NextHopRecord and Route alike.
    pub(crate) const DATASET_RECORD: u32 = 129;
    pub(crate) const CHANNEL_STATUS: u32 = 130;
    pub(crate) const FACE_QUERY_FILTER: u32 = 150;
    pub(crate) const URI_SCHEME: u32 = 131;
    pub(crate) const FACE_SCOPE: u32 = 132;
    pub(crate) const LINK_TYPE: u32 = 134;

    pub(crate) const N_IN_INTERESTS: u32 = 144;
    pub(crate) const N_IN_DATA: u32 = 145;
    pub(crate) const N_IN_NACKS: u32 = 151;
    pub(crate) const N_OUT_INTERESTS: u32 = 146;
    pub(crate) const N_OUT_DATA: u32 = 147;
    pub(crate) const N_OUT_NACKS: u32 = 152;
    pub(crate) const N_IN_BYTES: u32 = 148;
    pub(crate) const N_OUT_BYTES: u32 = 149;

    pub(crate) const N_HITS: u32 = 129;
    pub(crate) const N_MISSES: u32 = 130;
    pub(crate) const N_CS_ENTRIES: u32 = 135;
    /// Weir's own, after the fields of CsInfo, and even, so other programs skip it: the bytes in
    /// use.
    pub(crate) const STORE_BYTES: u32 = 0xf580;
    /// Weir's own, as [`STORE_BYTES`]: the capacity in octets.
    pub(crate) const STORE_CAPACITY_BYTES: u32 = 0xf582;
    /// Weir's own, as [`STORE_BYTES`]: the disks, an element of elements.
    pub(crate) const STORE_DISK: u32 = 0xf584;
    /// The first of the numbers in [`STORE_DISK`].
    pub(crate) const STORE_DISK_FIRST: u32 = 0xf600;
    /// Weir's own, as [`STORE_BYTES`]: bytes of Data sent, by the source of the Data.
    pub(crate) const SERVED_MEMORY_BYTES: u32 = 0xf586;
    /// See [`SERVED_MEMORY_BYTES`].
    pub(crate) const SERVED_DISK_BYTES: u32 = 0xf588;
    /// See [`SERVED_MEMORY_BYTES`].
    pub(crate) const SERVED_NEXT_HOP_BYTES: u32 = 0xf58a;
    /// Weir's own, as [`STORE_BYTES`]: one disk.
    pub(crate) const STORE_DEVICE: u32 = 0xf58c;
    pub(crate) const DEVICE_PATH: u32 = 0xf680;
    pub(crate) const DEVICE_CAPACITY_BYTES: u32 = 0xf682;
    pub(crate) const DEVICE_READS: u32 = 0xf684;
    pub(crate) const DEVICE_READ_BYTES: u32 = 0xf686;
    pub(crate) const DEVICE_WRITES: u32 = 0xf688;
    pub(crate) const DEVICE_WRITTEN_BYTES: u32 = 0xf68a;
    pub(crate) const DEVICE_FAILURES: u32 = 0xf68c;
    pub(crate) const DEVICE_DEAD: u32 = 0xf68e;

    /// Weir's own, after the fields of the general status, and even, so other programs skip it:
    /// peers and connections that were refused a face.
    pub(crate) const N_FACES_REFUSED: u32 = 0xf590;
    /// Weir's own, as [`N_FACES_REFUSED`]: faces that were evicted for others.
    pub(crate) const N_FACES_DISPLACED: u32 = 0xf592;
    /// Weir's own, as [`N_FACES_REFUSED`]: connections that were closed because their peers
    /// accepted no data.
    pub(crate) const N_FACES_STALLED: u32 = 0xf594;

    /// Weir's own, after the fields of FaceStatus, and even, so other programs skip it: the policy
    /// of congestion marks, if it is not NFD's.
    pub(crate) const MARKING_POLICY: u32 = 0xf5a0;
    /// Weir's own, as [`MARKING_POLICY`]: received frames with several Interests, these Interests,
    /// and the same two numbers for sent frames.
    pub(crate) const N_IN_RUNS: u32 = 0xf5a2;
    /// See [`N_IN_RUNS`].
    pub(crate) const N_IN_RUN_INTERESTS: u32 = 0xf5a4;
    /// See [`N_IN_RUNS`].
    pub(crate) const N_OUT_RUNS: u32 = 0xf5a6;
    /// See [`N_IN_RUNS`].
    pub(crate) const N_OUT_RUN_INTERESTS: u32 = 0xf5a8;

    /// Weir's own, as [`MARKING_POLICY`]: milliseconds since a frame was last received.
    pub(crate) const LAST_HEARD: u32 = 0xf5aa;

    /// Weir's own, as [`MARKING_POLICY`]: what a router knows of its controller.
    pub(crate) const CONTROLLER_URLS: u32 = 0xf5f0;
    pub(crate) const CONTROLLER_REACHABLE: u32 = 0xf5f2;
    pub(crate) const CONTROLLER_CONNECTED: u32 = 0xf5f4;
    pub(crate) const CONTROLLER_REPORTED: u32 = 0xf5f6;
    pub(crate) const CONTROLLER_CONFIRMED: u32 = 0xf5f8;
    pub(crate) const CONTROLLER_GENERATION: u32 = 0xf5fa;
    pub(crate) const CONTROLLER_PROBLEM: u32 = 0xf5fc;

    pub(crate) const NFD_VERSION: u32 = 128;
    pub(crate) const START_TIMESTAMP: u32 = 129;
    pub(crate) const CURRENT_TIMESTAMP: u32 = 130;
    pub(crate) const N_NAME_TREE_ENTRIES: u32 = 131;
    pub(crate) const N_FIB_ENTRIES: u32 = 132;
    pub(crate) const N_PIT_ENTRIES: u32 = 133;
    pub(crate) const N_MEASUREMENTS_ENTRIES: u32 = 134;
    pub(crate) const N_SATISFIED_INTERESTS: u32 = 153;
    pub(crate) const N_UNSATISFIED_INTERESTS: u32 = 154;

    pub(crate) const FACE_EVENT_NOTIFICATION: u32 = 192;
    pub(crate) const FACE_EVENT_KIND: u32 = 193;
}

macro_rules! numbered {
    ($(#[$meta:meta])* $name:ident, $what:literal {
        $($(#[$variant_meta:meta])* $variant:ident = $number:literal $text:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
        }

        impl $name {
            pub const fn number(self) -> u64 {
                match self {
                    $(Self::$variant => $number,)+
                }
            }

            /// The value of a number on the wire.
            pub const fn from_number(number: u64) -> Result<Self, DecodeError> {
                match number {
                    $($number => Ok(Self::$variant),)+
                    _ => Err(DecodeError::Value { element: $what }),
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $text,)+
                })
            }
        }
    };
}

numbered! {
    /// Whether a face leads to a program on this host.
    #[derive(Default)]
    FaceScope, "FaceScope" {
        /// Another host.
        #[default]
        NonLocal = 0 "non-local",
        /// A program on this host.
        Local = 1 "local",
    }
}

numbered! {
    /// When a face closes.
    #[derive(Default)]
    FacePersistency, "FacePersistency" {
        /// On failure, or by command.
        #[default]
        Persistent = 0 "persistent",
        /// When idle, on failure, or by command: created because a peer connected.
        OnDemand = 1 "on-demand",
        /// By command only; rebuilt after failures.
        Permanent = 2 "permanent",
    }
}

numbered! {
    /// How many peers a face reaches.
    #[derive(Default)]
    LinkType, "LinkType" {
        /// One peer.
        #[default]
        PointToPoint = 0 "point-to-point",
        /// Several peers that receive each other's packets.
        MultiAccess = 1 "multi-access",
        /// Several peers that may not receive each other's packets.
        AdHoc = 2 "ad-hoc",
    }
}

numbered! {
    #[derive(Default)]
    FaceEventKind, "FaceEventKind" {
        #[default]
        Created = 1 "created",
        Destroyed = 2 "destroyed",
        /// It works again.
        Up = 3 "up",
        /// It stopped working, and may come back.
        Down = 4 "down",
    }
}

/// Face flag bits (ControlParameters, FaceStatus).
pub mod face_flags {
    /// The peer may use NextHopFaceId and receives IncomingFaceId.
    pub const LOCAL_FIELDS: u64 = 1;
    /// NDNLPv2 reliability.
    pub const LP_RELIABILITY: u64 = 1 << 1;
    /// Egress queues mark packets.
    pub const CONGESTION_MARKING: u64 = 1 << 2;
}

/// Content store flag bits (cs/config, CsInfo).
pub mod store_flags {
    /// New Data is stored.
    pub const ADMIT: u64 = 1;
    /// Stored Data answers Interests.
    pub const SERVE: u64 = 1 << 1;
}

/// Route flag bits.
pub mod route_flags {
    /// Longer RIB prefixes inherit the route.
    pub const CHILD_INHERIT: u64 = 1;
    /// Routes of shorter prefixes are not inherited here or below.
    pub const CAPTURE: u64 = 1 << 1;
}

pub mod route_origin {
    /// An application, for itself.
    pub(crate) const APP: u64 = 0;
    /// Automatic registration on new faces.
    pub(crate) const AUTOREG: u64 = 64;
    /// A client that registers remotely.
    pub(crate) const CLIENT: u64 = 65;
    /// Automatic configuration of a host.
    pub(crate) const AUTOCONF: u64 = 66;
    pub(crate) const NLSR: u64 = 128;
    pub(crate) const PREFIX_ANNOUNCEMENT: u64 = 129;
    /// Weir's own: a controller, through the router's agent.
    pub const CONTROLLER: u64 = 144;
    pub const STATIC: u64 = 255;

    /// The usual name of an origin, if it has one.
    pub const fn name(origin: u64) -> Option<&'static str> {
        Some(match origin {
            APP => "app",
            AUTOREG => "autoreg",
            CLIENT => "client",
            AUTOCONF => "autoconf",
            NLSR => "nlsr",
            PREFIX_ANNOUNCEMENT => "prefixann",
            CONTROLLER => "controller",
            STATIC => "static",
            _ => return None,
        })
    }

    /// The origin with this usual name.
    pub fn from_name(name: &str) -> Option<u64> {
        [APP, AUTOREG, CLIENT, AUTOCONF, NLSR, PREFIX_ANNOUNCEMENT, CONTROLLER, STATIC]
            .into_iter()
            .find(|origin| self::name(*origin) == Some(name))
    }
}
