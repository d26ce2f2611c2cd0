//! One chunk of the scoreboard: its state and its counters.

use core::ops::Range;

use weir_base::{Instant, NS_PER_MS, NS_PER_S};
use weir_wire::{CongestionMark, NackReason};

use crate::PathId;

/// The wait after a Nack doubles from the first value to the second.
const NACK_WAIT_NS: u64 = 100 * NS_PER_MS;
const NACK_WAIT_MAX_NS: u64 = NS_PER_S;

/// How long to wait after the `times`-th consecutive Nack, counted from 0.
pub(crate) fn nack_wait_ns(times: u32) -> u64 {
    (NACK_WAIT_NS << times.min(8)).min(NACK_WAIT_MAX_NS)
}

/// Why a segment could not be fetched.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum FailReason {
    /// Every attempt timed out or was lost.
    Unanswered,
    NoRoute,
    /// Nacks with another reason, repeatedly.
    Nacked(NackReason),
}

impl FailReason {
    pub(crate) fn from_nack(reason: NackReason) -> Self {
        match reason {
            NackReason::NoRoute => Self::NoRoute,
            other => Self::Nacked(other),
        }
    }
}

/// A segment that could not be fetched.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct FailedSegment {
    pub(crate) index: u64,
    pub(crate) reason: FailReason,
}

#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct ScoreboardCounters {
    pub(crate) sent: u64,
    pub(crate) resent: u64,
    pub(crate) lost: u64,
    pub(crate) timeouts: u64,
    pub(crate) nacks: u64,
    pub(crate) marks: u64,
    pub(crate) decreases: u64,
    pub(crate) false_losses: u64,
    pub(crate) unwanted: u64,
    /// Most segments in flight at one time.
    pub(crate) in_flight_max: u32,
}

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum ChunkState {
    /// Sent and not answered.
    InFlight,
    /// Requested ahead: sent before the segment is known to exist. The Interest expires at this
    /// time.
    Ahead(Instant),
    /// Will be sent again at this time.
    AwaitsResend(Instant),
    /// Answered or not needed.
    Done,
}

#[derive(Copy, Clone, Debug)]
pub(crate) struct Chunk {
    pub(super) state: ChunkState,
    /// Its first segment, its number of segments, and how many of them are wanted and have not
    /// arrived.
    pub(super) first_segment: u64,
    pub(super) segment_count: u32,
    pub(super) open_count: u32,
    /// What has arrived: packets, how many of them have a mark, bytes.
    pub(super) packets: u32,
    pub(super) marked_packets: u32,
    /// The combined mark of all packets.
    pub(super) mark: CongestionMark,
    pub(super) bytes: usize,
    /// The path of the last sending, its time, and its order on that path.
    pub(super) path: PathId,
    /// That path was removed. A new path may have the same number.
    pub(super) is_path_gone: bool,
    pub(super) sent_at: Instant,
    pub(crate) send_order: u64,
    /// The nonce of each Interest, minus the number of its segment (see `Transfer::send`).
    pub(super) nonce: u32,
    pub(crate) sends: u32,
    /// Open segments refused since the last sending, the latest reason, and how often all open
    /// segments were refused with "no route".
    pub(super) nacked_count: u32,
    pub(super) nack_reason: NackReason,
    pub(super) no_route_rounds: u32,
    /// It was found lost because later chunks had been answered. If its answer arrives after all,
    /// the loss was false.
    pub(crate) is_presumed_lost: bool,
}

impl Chunk {
    /// A chunk without segments, due now.
    pub(super) fn new(path: PathId, now: Instant) -> Self {
        Self {
            state: ChunkState::AwaitsResend(now),
            first_segment: 0,
            segment_count: 0,
            open_count: 0,
            packets: 0,
            marked_packets: 0,
            mark: CongestionMark::NONE,
            bytes: 0,
            path,
            is_path_gone: false,
            sent_at: now,
            send_order: 0,
            nonce: 0,
            sends: 0,
            nacked_count: 0,
            nack_reason: NackReason::None,
            no_route_rounds: 0,
            is_presumed_lost: false,
        }
    }

    pub(super) fn segments(&self) -> Range<u64> {
        self.first_segment..self.first_segment + u64::from(self.segment_count)
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        self.state == ChunkState::InFlight
    }
}
