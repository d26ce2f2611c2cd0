//! What a trial measures, as data.

use serde::{Deserialize, Serialize};
use weir_base::NS_PER_S;
use weir_base::units::{Size, Time};

/// The names that trials ask for begin with it.
pub const PREFIX: &str = "/trial";

/// `[trial]`: what is measured, in the place of consumers and producers of a plan. Of the keys that
/// `what` has no use for, none has an effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub struct Trial {
    pub what: TrialKind,
    /// Octets of content of a transfer, of a publication; of what is sent back by `answers` and
    /// `echo`; of a message of `subscribers`.
    #[serde(default = "size")]
    pub size: Size,
    /// Octets of content of a segment; of a packet that is signed (`cryptography`).
    #[serde(default = "segment")]
    pub segment: Size,
    #[serde(default)]
    pub signature: Algorithm,
    #[serde(default)]
    pub signs: SigningMode,
    /// Whether consumers verify.
    #[serde(default = "yes")]
    pub verify: bool,
    #[serde(default)]
    pub publication: Publication,
    /// Transfers side by side, each of a content, a producer and a consumer of its own.
    #[serde(default = "one")]
    pub transfers: u32,
    /// Whether routers have the content already.
    #[serde(default)]
    pub warm: bool,
    /// How often: answers, echoes, packets of a vector, sockets, messages.
    #[serde(default = "hundred")]
    pub count: u32,
    /// Pause between two answers, echoes, messages or operations on single packets.
    #[serde(default = "no_time")]
    pub gap: Time,
    /// MTU of the loopback interface of `tcp`.
    #[serde(default = "mtu")]
    pub mtu: u32,
    /// Whether the kernel hands segments of TCP to the interface in one piece.
    #[serde(default = "yes")]
    pub offload: bool,
    #[serde(default)]
    pub sockets: Sockets,
    /// Consumers that follow one object that grows, spread over all routers but the producer's.
    #[serde(default = "ten")]
    pub subscribers: u32,
    /// Of a hundred of them, how many join when half of the messages have been published.
    #[serde(default = "ten")]
    pub late: u32,
    /// Whose connections subscribers have.
    #[serde(default)]
    pub sessions: Sessions,
    /// Lifetime of subscribers' Interests.
    #[serde(default = "lifetime")]
    pub lifetime: Time,
}

impl Trial {
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
    /// Whole objects, from producer sockets to consumer sockets through the routers.
    Transfer,
    /// The same octets by TCP, with iperf3, in a network of its own.
    Tcp,
    /// The same octets by HTTPS, from nginx to curl.
    Https,
    /// Single packets that are made when an Interest asks for them.
    Answers,
    /// Single messages that come back by TCP through as many relays as there are routers.
    Echo,
    /// Signatures and digests alone.
    Cryptography,
    /// Segmenting, naming and signing alone, with one thread.
    Publication,
    Sockets,
    /// Many consumers of one object that grows.
    Subscribers,
}

impl TrialKind {
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
        }
    }

    /// Whether it takes place between sockets at routers.
    #[must_use]
    pub const fn has_routers(self) -> bool {
        matches!(self, Self::Transfer | Self::Answers | Self::Sockets | Self::Subscribers)
    }
}

/// Who signs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Nobody, and there is nothing to verify.
    None,
    /// A digest: integrity alone.
    Digest,
    /// A shared key.
    Hmac,
    /// Ed25519.
    Ed25519,
    /// Ed25519, many signatures of one key verified together.
    #[serde(rename = "ed25519-batch")]
    Ed25519Batch,
    /// ECDSA over P-192, as in papers of some years ago.
    EcdsaP192,
    /// ECDSA over P-256.
    #[default]
    EcdsaP256,
    /// RSA with 1024 bits, as in papers of some years ago.
    #[serde(rename = "rsa-1024")]
    Rsa1024,
    /// RSA with 2048 bits.
    #[serde(rename = "rsa-2048")]
    Rsa2048,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SigningMode {
    /// Each packet, and each is verified by its own signature.
    #[default]
    Packets,
    /// A manifest of the packets' digests.
    Manifest,
}

/// When content is published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Publication {
    /// Before anybody asks.
    #[default]
    Asynchronous,
    /// When the first Interest asks.
    Synchronous,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sockets {
    #[default]
    Consumers,
    /// Consumers, each with a fetch under way.
    Fetches,
    /// Producers that are bound, each with a prefix of its own.
    Producers,
}

/// Whose connections subscribers have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sessions {
    /// Each its own, as applications of their own have: a face of the router each.
    #[default]
    Own,
    /// Those of a process have one.
    Shared,
}
