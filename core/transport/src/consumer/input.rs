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
    /// There is a path. Without any, nothing is sent.
    AddPath {
        /// The driver's number of it.
        path: PathId,
        /// Its window at the start, or for good if fixed: a depth of its own (paper
        /// multipath-cache-management, 4.1). `None`: that of the configuration.
        window: Option<u32>,
        /// The router at its other end is on this machine: [`Holdings`](super::Holdings) of it are
        /// asked for under another name than those of a neighbour.
        is_local: bool,
    },
    /// A path was removed. What is in flight on it is sent again on another.
    RemovePath { path: PathId },
    /// A packet came: Data, or an Interest that a Nack brings back.
    Packet {
        path: PathId,
        header: LpHeader,
        /// Exactly one Interest or Data TLV.
        packet: Packet,
    },
    /// Only these segments are wanted. Before [`ConsumerInput::Start`], and not of a sequence.
    Narrow { segments: Range<u64> },
    /// Begin with the segments, now that [`ConsumerEvent::Found`](super::ConsumerEvent::Found) has
    /// been seen. A sequence needs none: without it, its segments are not handed out.
    Start {
        /// Segments that need not be fetched.
        have: SegmentSet,
        /// How verified segments are handed out.
        reader: ReaderMode,
    },
    /// The next range of a sequence.
    Append {
        /// The driver's number, which comes back in events.
        range: RangeId,
        /// What the segments are right below.
        name: Name,
        /// Which segments. `None`: the range is one Data of that very name.
        segments: Option<Range<u64>>,
    },
    /// No range follows.
    Close,
    /// An operation of the driver is done.
    Verified {
        op: VerifyId,
        /// What came of it.
        verdict: Verdict,
    },
    /// What verifies the packets that [`ConsumerEvent::NeedKey`](super::ConsumerEvent::NeedKey) is
    /// about, or why their signer is not to be believed.
    Key { key: KeyId, verifier: Result<Arc<dyn Verifier>, String> },
    /// The reader takes this many segments more.
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
