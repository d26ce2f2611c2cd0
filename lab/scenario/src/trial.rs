//! The description of a trial as data.

mod video;

use serde::{Deserialize, Serialize};
use weir_base::NS_PER_S;
use weir_base::units::{Size, Time};
use weir_plan::LinkPackets;
use weir_transport::NameMapping;
use weir_wire::Name;

pub use self::video::{Delivery, QualityChoice, Video};

/// Prefix of all names in trials, as applications call them.
pub const PREFIX: &str = "/trial";
/// The hICN prefix of all names in trials. It is for documentation (RFC 3849).
const HICN_PREFIX: &str = "hicn:2001:db8:7::/48";

/// `[trial]`: what is measured instead of a plan's consumers and producers. Keys that do not apply
/// to `what` have no effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub struct Trial {
    pub what: TrialKind,
    /// Content bytes of a transfer or publication, of an answer (`answers`), of a message that
    /// returns (`echo`), or of a message of `subscribers`.
    #[serde(default = "size")]
    pub size: Size,
    /// Content bytes of a segment (of `video`, too), or of a signed packet (`cryptography`).
    #[serde(default = "segment")]
    pub segment: Size,
    /// The packets between routers.
    #[serde(default)]
    pub packets: LinkPackets,
    #[serde(default)]
    pub signature: Algorithm,
    #[serde(default)]
    pub signs: SignatureScope,
    /// Whether consumers verify.
    #[serde(default = "yes")]
    pub verify: bool,
    #[serde(default)]
    pub publication: Publication,
    /// Concurrent transfers, each with its own content, producer and consumer.
    #[serde(default = "one")]
    pub transfers: u32,
    /// Whether routers have the content already.
    #[serde(default)]
    pub warm: bool,
    /// Number of answers, echoes, packets in a vector, sockets or messages.
    #[serde(default = "hundred")]
    pub count: u32,
    /// Pause between two answers, echoes, messages or operations on single packets.
    #[serde(default = "no_time")]
    pub gap: Time,
    /// MTU of the loopback interface of `tcp`.
    #[serde(default = "mtu")]
    pub mtu: u32,
    /// Whether the kernel passes several TCP segments to the interface at once.
    #[serde(default = "yes")]
    pub offload: bool,
    #[serde(default)]
    pub sockets: Sockets,
    /// Consumers that follow one growing object, spread over all routers except the producer's.
    #[serde(default = "ten")]
    pub subscribers: u32,
    /// Percentage of the subscribers that join when half of the messages have been published.
    #[serde(default = "ten")]
    pub late: u32,
    /// How subscribers share connections.
    #[serde(default)]
    pub sessions: Sessions,
    /// Lifetime of subscribers' Interests.
    #[serde(default = "lifetime")]
    pub lifetime: Time,
    /// `[trial.video]`, of `video`.
    #[serde(default)]
    pub video: Video,
}

impl Trial {
    /// Whether it uses routers.
    #[must_use]
    pub fn has_routers(&self) -> bool {
        match self.what {
            TrialKind::Transfer
            | TrialKind::Answers
            | TrialKind::Sockets
            | TrialKind::Subscribers => true,
            TrialKind::Video => self.video.delivery == Delivery::Named,
            _ => false,
        }
    }

    /// How the names of a producer, and of its consumer, become names of the network. Each has a
    /// prefix of its own.
    ///
    /// # Panics
    /// Never: each index has a prefix.
    #[must_use]
    pub fn mapping(&self, index: u16) -> NameMapping {
        match self.packets {
            LinkPackets::Ndn => NameMapping::Identity,
            LinkPackets::Hicn => {
                format!("hicn:2001:db8:7:{index:x}::/64").parse().expect("a mapping")
            }
        }
    }

    /// The prefix of all names in the network.
    pub(crate) fn network_prefix(&self) -> Name {
        let prefix: Name = PREFIX.parse().expect("a name");
        match self.packets {
            LinkPackets::Ndn => prefix,
            LinkPackets::Hicn => {
                let mapping: NameMapping = HICN_PREFIX.parse().expect("a mapping");
                mapping.prefix(prefix.as_view())
            }
        }
    }

    pub(crate) fn measure_names(&self) -> &'static [&'static str] {
        self.what.gives()
    }
}

const fn size() -> Size {
    Size { bytes: 1 << 20 }
}

const fn segment() -> Size {
    Size { bytes: 8000 }
}

const fn yes() -> bool {
    true
}

const fn one() -> u32 {
    1
}

const fn ten() -> u32 {
    10
}

const fn hundred() -> u32 {
    100
}

const fn lifetime() -> Time {
    Time { ns: 4 * NS_PER_S }
}

const fn no_time() -> Time {
    Time { ns: 0 }
}

const fn mtu() -> u32 {
    65_536
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialKind {
    /// Whole objects, from producer sockets through the routers to consumer sockets.
    Transfer,
    /// The same bytes over TCP with iperf3, in a separate network namespace.
    Tcp,
    /// The same bytes over HTTPS, from nginx to curl.
    Https,
    /// Single packets that a producer creates for each Interest.
    Answers,
    /// Single messages that return over TCP, through as many relays as there are routers.
    Echo,
    /// Signatures and digests only.
    Cryptography,
    /// Segmenting, naming and signing only, with one thread.
    Publication,
    Sockets,
    /// Many consumers of one growing object.
    Subscribers,
    /// Viewers of live channels behind Apache Traffic Server.
    Video,
}

impl TrialKind {
    /// Whether its packets can have hICN names.
    pub(crate) const fn maps_names(self) -> bool {
        matches!(self, Self::Transfer | Self::Answers | Self::Video)
    }

    const fn gives(self) -> &'static [&'static str] {
        match self {
            Self::Transfer => &[
                "goodput",
                "fairness",
                "consumer-per-cpu",
                "producer-per-cpu",
                "out-per-cpu",
                "publication-rate",
            ],
            Self::Tcp => &["goodput"],
            Self::Https => &["goodput", "fairness"],
            Self::Answers | Self::Echo => &["answer-time"],
            Self::Cryptography => &["sign-time", "verify-time", "hash-time"],
            Self::Publication => &["publication-rate"],
            Self::Sockets => &["socket-memory", "socket-time"],
            Self::Subscribers => &[
                "message-interests",
                "message-octets",
                "message-cpu",
                "message-delay",
                "join-interests",
                "join-time",
            ],
            Self::Video => &[
                "server-requests",
                "server-hits",
                "server-misses",
                "server-memory",
                "server-cpu",
                "server-share",
                "network-cpu",
                "channels-watched",
                "viewer-requests",
                "viewer-failures",
                "viewer-stalls",
                "source-delay",
            ],
        }
    }
}

/// The signature algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// No signature, so nothing is verified.
    None,
    /// A digest, which protects integrity only.
    Digest,
    /// A shared key.
    Hmac,
    Ed25519,
    /// Ed25519, with many signatures of one key verified together.
    #[serde(rename = "ed25519-batch")]
    Ed25519Batch,
    /// ECDSA over P-192, as in older papers.
    EcdsaP192,
    /// ECDSA over P-256.
    #[default]
    EcdsaP256,
    /// RSA with 1024 bits, as in older papers.
    #[serde(rename = "rsa-1024")]
    Rsa1024,
    /// RSA with 2048 bits.
    #[serde(rename = "rsa-2048")]
    Rsa2048,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SignatureScope {
    /// Each packet is signed, and verified by its own signature.
    #[default]
    Packets,
    /// A manifest of the packets' digests is signed.
    Manifest,
}

/// When content is published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Publication {
    /// Before the first Interest.
    #[default]
    Asynchronous,
    /// On the first Interest.
    Synchronous,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sockets {
    #[default]
    Consumers,
    /// Consumers, each with a fetch in progress.
    Fetches,
    /// Bound producers, each with its own prefix.
    Producers,
}

/// How subscribers share connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sessions {
    /// Each has its own connection, and so its own face at the router, as separate applications
    /// have.
    #[default]
    Own,
    /// All subscribers of a process share one.
    Shared,
}
