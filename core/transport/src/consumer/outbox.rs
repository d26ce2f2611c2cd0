//! The output of a consumer.

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

/// What the driver must do. It drains the lists; their memory is reused.
#[derive(Debug, Default)]
pub struct ConsumerOutbox {
    /// Interests to send, in order.
    pub interests: InterestBatch,
    /// Packets to verify, on any thread. The answer is
    /// [`ConsumerInput::Verified`](super::ConsumerInput::Verified).
    pub verify: Vec<VerifyOp>,
    /// Segments for the reader, unless there is [none](super::ReaderMode::None).
    pub deliveries: Vec<Delivery>,
    pub events: Vec<ConsumerEvent>,
    /// Events of single segments, if [wanted](super::ConsumerConfig::trace).
    pub trace: Vec<TraceEvent>,
}

#[derive(Clone, Debug)]
pub struct VerifyOp {
    /// Returned in the answer.
    pub op: VerifyId,
    /// Its range; 0 unless the target is a sequence.
    pub range: RangeId,
    pub id: PacketId,
    /// The Data: decodable and with the right name, but otherwise unchecked.
    pub packet: Packet,
    pub path: PathId,
    /// The router's face that it came from, if the router reports it.
    pub incoming_face: Option<FaceId>,
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
    /// Whether it is verified. False only if verification is off, or bad segments are
    /// [delivered](super::OnBad::Deliver).
    pub is_verified: bool,
}

#[derive(Clone, Debug)]
pub enum ConsumerEvent {
    /// The name to fetch is known. The driver answers with
    /// [`ConsumerInput::Start`](super::ConsumerInput::Start).
    Found {
        /// What is known about the object.
        metadata: Metadata,
        /// The metadata came from a store and may not be the latest, because the producer could
        /// not be reached, for this reason.
        stored: Option<Box<ConsumerError>>,
    },
    /// It is known whether there is a digest manifest. Without one, every segment is verified by
    /// its signature.
    Manifest {
        /// How it is cut into parts, if there is one.
        shape: Option<ManifestShape>,
    },
    /// A router has reported its holdings of the object.
    Holdings {
        path: PathId,
        segments: u64,
        /// It may hold more.
        is_partial: bool,
    },
    /// The number of the last segment is known, or corrected. It is not verified.
    LastSegment(u64),
    /// The driver must decide whether to trust a signer, and answer with
    /// [`ConsumerInput::Key`](super::ConsumerInput::Key). The rest continues meanwhile.
    NeedKey {
        /// Returned in the answer.
        key: KeyId,
        /// A Data signed by that signer, or claiming to be.
        packet: Packet,
    },
    /// A packet is skipped, because the consumer is unreliable.
    Missed {
        /// Its range; 0 unless the target is a sequence.
        range: RangeId,
        /// Which segment.
        id: PacketId,
    },
    /// All packets of a range have been verified or skipped.
    RangeDone {
        /// The driver's number of the range.
        range: RangeId,
    },
    /// A range failed; the others continue.
    RangeFailed {
        /// The driver's number of the range.
        range: RangeId,
        error: ConsumerError,
    },
    /// All of a sequence has been requested and the window has room: more may be appended.
    NeedsMore,
    /// Every segment has been verified and delivered.
    Done,
    Failed(ConsumerError),
}

/// An event of one packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Its range; 0 unless the target is a sequence.
    pub range: RangeId,
    pub id: PacketId,
    /// The path of its last sending.
    pub path: PathId,
    pub kind: TraceKind,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// Its Interest left.
    Sent {
        /// It had been sent before.
        is_resend: bool,
    },
    /// Data arrived, not verified yet.
    Answered {
        /// Nanoseconds since its last sending.
        rtt_ns: u64,
        is_marked: bool,
    },
    TimedOut,
    /// Later Interests were answered and this one was not.
    Lost,
    /// A Nack arrived.
    Nacked {
        reason: NackReason,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConsumerError {
    /// A growing object has a newer version, and will grow no more.
    #[error("{versioned} was abandoned before its end; fetch the newer version {newer}")]
    Superseded {
        /// The version that was fetched.
        versioned: Name,
        /// The current version.
        newer: Name,
    },
    /// The router has no route for the name.
    #[error("no route to {0}")]
    NoRoute(Name),
    /// The router has a route for the name, but a router further on has none.
    #[error("a router further on has no route to {0}")]
    NoRouteFurtherOn(Name),
    #[error("no answer for {0}")]
    Unanswered(Name),
    /// Some segments got no answer. All others have been fetched.
    #[error("{0}")]
    Incomplete(Box<MissingSegments>),
    /// Interests for the name are refused repeatedly.
    #[error("the router refuses {name}: {reason:?}")]
    Nacked {
        /// The requested name.
        name: Name,
        /// The reason given by the router.
        reason: NackReason,
    },
    /// The producer answers that it has no such data.
    #[error("the producer has no {0}")]
    Refused(Name),
    #[error("{0} and many other packets arrive damaged or forged")]
    Damaged(Name),
    #[error("{0}")]
    Untrusted(String),
    #[error("{what} cannot be verified: {reason}")]
    Unverified { what: String, reason: String },
    #[error("the metadata of {name} cannot be used: {error}")]
    Metadata { name: Name, error: crate::metadata::MetadataError },
    #[error("the metadata of {object} name {versioned}, which is another object")]
    ForeignMetadata {
        /// The requested name.
        object: Name,
        versioned: Name,
    },
    /// Some packets of the object have no name in the network.
    #[error(transparent)]
    Unnameable(#[from] crate::mapping::MappingError),
}
