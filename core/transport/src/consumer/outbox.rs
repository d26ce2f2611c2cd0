//! What a consumer wants done.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use weir_base::{FaceId, Packet};
use weir_security::manifest::ManifestShape;
use weir_wire::{NackReason, Name};

use super::check::{Check, KeyId, VerifyId};
use super::missing::MissingSegments;
use super::{PacketId, RangeId};
use crate::PathId;
use crate::interest::InterestBatch;
use crate::metadata::Metadata;

/// What a consumer wants done. The driver drains the lists; their memory stays.
#[derive(Debug, Default)]
pub struct ConsumerOutbox {
    /// Interests to send, in order.
    pub interests: InterestBatch,
    /// Packets to verify, on whatever thread; each is answered by
    /// [`ConsumerInput::Verified`](super::ConsumerInput::Verified).
    pub verify: Vec<VerifyOp>,
    /// Segments for the reader, unless there is [none](super::ReaderMode::None).
    pub deliveries: Vec<Delivery>,
    /// What happened.
    pub events: Vec<ConsumerEvent>,
    /// What happened to single segments, if [wanted](super::ConsumerConfig::trace).
    pub trace: Vec<TraceEvent>,
}

/// A packet to be verified.
#[derive(Clone, Debug)]
pub struct VerifyOp {
    /// Comes back in the answer.
    pub op: VerifyId,
    /// Its range; 0 unless the target is a sequence.
    pub range: RangeId,
    pub id: PacketId,
    /// The Data, decodable and of the right name, nothing more.
    pub packet: Packet,
    pub path: PathId,
    /// The router's face that it came from, if the router says so.
    pub incoming_face: Option<FaceId>,
    /// What it is held against.
    pub check: Check,
}

/// A segment for the reader.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Its range; 0 unless the target is a sequence.
    pub range: RangeId,
    /// Which segment.
    pub id: PacketId,
    pub packet: Packet,
    /// Whether it is known to be what the producer signed. It is, unless verification is off or
    /// bad segments are [wanted](super::OnBad::Deliver).
    pub is_verified: bool,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum ConsumerEvent {
    /// The name to fetch is known. The driver answers with
    /// [`ConsumerInput::Start`](super::ConsumerInput::Start).
    Found {
        /// What is known about the object.
        metadata: Metadata,
        /// The metadata came from a store and may not be the latest.
        is_stored: bool,
    },
    /// It is known whether there is a digest manifest: if not, every segment is verified by its
    /// signature.
    Manifest {
        /// How it is cut into parts, if there is one.
        shape: Option<ManifestShape>,
    },
    /// A router has reported what it holds of the object.
    Holdings {
        path: PathId,
        segments: u64,
        /// It may hold more.
        is_partial: bool,
    },
    /// The number of the last segment is known, or known better; not verified.
    LastSegment(u64),
    /// A signer must be trusted or not. Answered by
    /// [`ConsumerInput::Key`](super::ConsumerInput::Key); the rest continues in the meantime.
    NeedKey {
        /// Comes back in the answer.
        key: KeyId,
        /// A Data that the signer in question signed, or says it did.
        packet: Packet,
    },
    /// A packet is skipped: the consumer is not reliable.
    Missed {
        /// Its range; 0 unless the target is a sequence.
        range: RangeId,
        /// Which segment.
        id: PacketId,
    },
    /// All of a range has been verified, or skipped.
    RangeDone {
        /// The driver's number of it.
        range: RangeId,
    },
    /// A range is given up; the others continue.
    RangeFailed {
        /// The driver's number of it.
        range: RangeId,
        error: ConsumerError,
    },
    /// All of a sequence has been requested and the window has room: more may be appended.
    NeedsMore,
    /// Every segment has been verified and handed out.
    Done,
    Failed(ConsumerError),
}

/// Something that happened to one packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Its range; 0 unless the target is a sequence.
    pub range: RangeId,
    /// Which segment.
    pub id: PacketId,
    /// The path that it was sent on last.
    pub path: PathId,
    /// What happened.
    pub kind: TraceKind,
}

/// What happened to a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// Its Interest left.
    Sent {
        /// It had been sent before.
        is_resend: bool,
    },
    /// Data came, not verified yet.
    Answered {
        /// The time since the Interest was sent last, in nanoseconds.
        rtt_ns: u64,
        is_marked: bool,
    },
    TimedOut,
    /// Later Interests were answered, this one was not.
    Lost,
    /// It was refused.
    Nacked {
        reason: NackReason,
    },
}

/// Why something cannot be fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConsumerError {
    /// An object that grew has a newer version, and grows no more.
    #[error("{versioned} has no end, and {newer} is newer")]
    Superseded {
        /// The version that was fetched.
        versioned: Name,
        /// The one that there is now.
        newer: Name,
    },
    /// The router answers that it has no route for the name.
    #[error("no route to {0}")]
    NoRoute(Name),
    /// The router has a route for the name; another one that it leads to has none.
    #[error("a router farther on has no route to {0}")]
    NoRouteFurtherOn(Name),
    /// No answer comes for the name.
    #[error("nobody answers for {0}")]
    Unanswered(Name),
    /// Some segments got no answer; all the others have been fetched.
    #[error("{0}")]
    Incomplete(Box<MissingSegments>),
    /// Interests for the name are refused again and again.
    #[error("{name} is refused: {reason:?}")]
    Nacked {
        /// What was asked for.
        name: Name,
        /// The reason that the router gives.
        reason: NackReason,
    },
    /// The producer answers that it has no such thing.
    #[error("the producer says that it has no {0}")]
    Refused(Name),
    /// Too much of what comes is not what the producer signed.
    #[error("{0} and many packets like it come damaged or forged")]
    Damaged(Name),
    /// The signer is not to be believed.
    #[error("{0}")]
    Untrusted(String),
    /// A packet is not what its producer signed.
    #[error("{what} cannot be verified: {reason}")]
    Unverified {
        /// Which packet.
        what: String,
        reason: String,
    },
    /// The metadata cannot be read.
    #[error("the metadata of {name} cannot be used: {error}")]
    Metadata {
        name: Name,
        /// What is wrong with it.
        error: crate::metadata::MetadataError,
    },
    /// The metadata is that of another object.
    #[error("the metadata of {object} names {versioned}, which is something else")]
    ForeignMetadata {
        /// What was asked for.
        object: Name,
        versioned: Name,
    },
    /// The network has no names for all of the object.
    #[error(transparent)]
    Unnameable(#[from] crate::mapping::MappingError),
}
