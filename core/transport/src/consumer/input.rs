//! Inputs of a consumer.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::ops::Range;

use weir_base::Packet;
use weir_security::Verifier;
use weir_wire::{LpHeader, Name};

use super::check::{KeyId, Verdict, VerifyId};
use super::{RangeId, ReaderMode};
use crate::PathId;
use crate::segment_set::SegmentSet;

pub enum ConsumerInput {
    /// Adds a path. Without one, nothing is sent.
    AddPath {
        /// The driver's number of the path.
        path: PathId,
        /// The path's initial window, or its fixed one (paper multipath-cache-management, 4.1);
        /// `None`: that of the configuration.
        window: Option<u32>,
        /// Its router is on this host. [`Holdings`](super::HoldingsMode) of local routers have
        /// another name than those of neighbours.
        is_local: bool,
    },
    /// Removes a path. Its Interests in flight are sent again on another.
    RemovePath { path: PathId },
    /// A packet arrived: Data, or an Interest that a Nack returns.
    Packet {
        path: PathId,
        header: LpHeader,
        /// Exactly one Interest or Data TLV.
        packet: Packet,
    },
    /// Only these segments are wanted. Must precede [`ConsumerInput::Start`], and does not apply to
    /// a sequence.
    Narrow { segments: Range<u64> },
    /// Starts the segments, after [`ConsumerEvent::Found`](super::ConsumerEvent::Found). A sequence
    /// needs no start; without one, its segments are not delivered.
    Start {
        /// Segments that need not be fetched.
        have: SegmentSet,
        /// How verified segments are delivered.
        reader: ReaderMode,
    },
    /// Appends a range to a sequence.
    Append {
        /// The driver's number, returned in events.
        range: RangeId,
        /// The name right above the segments.
        name: Name,
        /// Which segments. `None`: the range is one Data of exactly that name.
        segments: Option<Range<u64>>,
    },
    /// No range follows.
    Close,
    /// An operation of the driver is done.
    Verified { op: VerifyId, verdict: Verdict },
    /// How to verify the packets that [`ConsumerEvent::NeedKey`](super::ConsumerEvent::NeedKey) is
    /// about, or why their signer is not trusted.
    Key { key: KeyId, verifier: Result<Arc<dyn Verifier>, String> },
    /// The reader takes this many more segments.
    Read { segments: u32 },
}

impl fmt::Debug for ConsumerInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AddPath { .. } => "AddPath",
            Self::RemovePath { .. } => "RemovePath",
            Self::Packet { .. } => "Packet",
            Self::Narrow { .. } => "Narrow",
            Self::Start { .. } => "Start",
            Self::Append { .. } => "Append",
            Self::Close => "Close",
            Self::Verified { .. } => "Verified",
            Self::Key { .. } => "Key",
            Self::Read { .. } => "Read",
        })
    }
}
