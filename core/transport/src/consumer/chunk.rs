//! One chunk of the scoreboard: its state, and what is counted.

use core::ops::Range;

use weir_base::{Instant, NS_PER_MS, NS_PER_S};
use weir_wire::{CongestionMark, NackReason};

use crate::PathId;

/// Waits after a Nack grow from the first to the second by factors of two.
const NACK_WAIT_NS: u64 = 100 * NS_PER_MS;
const NACK_WAIT_MAX_NS: u64 = NS_PER_S;

/// How long to wait after a Nack, the first (`times` 0) or a later one in a row.
pub(crate) fn nack_wait_ns(times: u32) -> u64 {
    (NACK_WAIT_NS << times.min(8)).min(NACK_WAIT_MAX_NS)
}

/// Why a segment is given up.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum FailReason {
    /// Every try timed out or was lost.
    Unanswered,
    NoRoute,
    /// Another Nack, again and again.
    Nacked(NackReason),
}

impl FailReason {
    pub(super) fn from_nack(reason: NackReason) -> Self {
        match reason {
            NackReason::NoRoute => Self::NoRoute,
            other => Self::Nacked(other),
        }
    }
}

/// A segment that is given up.
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
    /// Most segments that were in flight at one time.
    pub(crate) in_flight_max: u32,
}

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum ChunkState {
    /// Sent, not answered.
    InFlight,
    /// Sent before the segment is known to exist; the Interest ends at this time.
    Ahead(Instant),
    /// To be sent again at this time.
    AwaitsResend(Instant),
    /// Answered or not needed.
    Done,
}

#[derive(Copy, Clone, Debug)]
pub(crate) struct Chunk {
    pub(super) state: ChunkState,
    /// Its first segment, how many it has, and how many of them are wanted and have not come.
    pub(super) first_segment: u64,
    pub(super) segment_count: u32,
    pub(super) open_count: u32,
    /// What has come: packets, marked ones among them, octets.
    pub(super) packets: u32,
    pub(super) marked_packets: u32,
    /// What the marks of all of them mean.
    pub(super) mark: CongestionMark,
    pub(super) bytes: usize,
    /// The path that it was sent on last, when, and its number in the order of sending there.
    pub(super) path: PathId,
    /// That path was removed, though there may be another of its number.
    pub(super) is_path_gone: bool,
    pub(super) sent_at: Instant,
    pub(crate) send_order: u64,
    /// The nonce of each of its Interests, less the number of its segment.
    pub(super) nonce: u32,
    pub(crate) sends: u32,
    /// Open segments refused since it was sent last, why the last of them, and how often all that
    /// was open was refused for want of a route.
    pub(super) nacked_count: u32,
    pub(super) nack_reason: NackReason,
    pub(super) no_route_rounds: u32,
    /// Sent again because later chunks had been answered.
    pub(crate) is_presumed_lost: bool,
}

impl Chunk {
    /// A chunk without segments, to be sent now.
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
