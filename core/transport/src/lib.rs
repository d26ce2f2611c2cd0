#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod congestion;
mod consumer;
mod interest;
mod mapping;
mod metadata;
mod path_id;
mod producer;
mod request;
mod segment_set;

pub use congestion::{
    Controller, ControllerConfig, ControllerConstants, ControllerError, Controllers,
};
pub use consumer::scoreboard::FailReason;
pub use consumer::{
    CHUNK_SEGMENTS_MAX, Check, Consumer, ConsumerConfig, ConsumerError, ConsumerEvent,
    ConsumerInput, ConsumerOutbox, ConsumerStats, Delivery, HoldingsMode, KeyId, LabelStats,
    LagPolicy, MissingSegments, OnBad, PacketId, PathSchedule, PathStats, RangeId, ReaderMode,
    Target, TraceEvent, TraceKind, Verdict, Verification, VerifyId, VerifyOp,
};
pub use interest::{InterestBatch, Selectors};
pub use mapping::{FalsePayload, MappingError, NameMapping, is_hicn_metadata, is_hicn_metadata_of};
pub use metadata::{ContentDigest, LISTING_KEYWORD, METADATA_KEYWORD, Metadata, MetadataError};
pub use path_id::PathId;
pub use producer::{
    Answer, Catalog, Frame, MissPolicy, ObjectId, Producer, ProducerConfig, ProducerEvent,
    ProducerInput, ProducerOutbox, ProducerStats, ReadOp, SealedObject, SegmentTemplate,
    Signatures, Source,
};
pub use request::{Nack, Request, RetryLimits};
pub use segment_set::SegmentSet;
