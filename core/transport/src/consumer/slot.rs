//! What the scoreboard knows of one chunk, and what it counts.

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

/// Why a unit is given up.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum GiveUp {
    /// Every try timed out or was lost.
    Unanswered,
    /// A router has no route.
    NoRoute,
    /// Another Nack, again and again.
    Nacked(NackReason),
}

/// Counters of a scoreboard.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent: u64,
    pub(crate) resent: u64,
    pub(crate) lost: u64,
    pub(crate) timeouts: u64,
    pub(crate) nacks: u64,
    pub(crate) marks: u64,
    pub(crate) decreases: u64,
    pub(crate) false_losses: u64,
    pub(crate) unwanted: u64,
    /// Most units that were outstanding at one time.
    pub(crate) in_flight_max: u32,
}

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum State {
    /// Sent, not answered.
    Flying,
    /// Sent before it is known that there is such a unit; the Interest ends at this time.
    Ahead(Instant),
    /// In the list of those to be sent again, under this time.
    Waiting(Instant),
    /// Answered or not needed.
    Done,
}

/// What is known of one chunk.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Slot {
    pub(super) state: State,
    /// Its first unit, how many it has, and how many of them are wanted and have not come.
    pub(super) first: u64,
    pub(super) len: u32,
    pub(super) open: u32,
    /// What has come: packets, marked ones among them, octets.
    pub(super) packets: u32,
    pub(super) marked_packets: u32,
    /// What the marks of all of them mean.
    pub(super) mark: CongestionMark,
    pub(super) bytes: usize,
    /// The path that it was sent on last, when, and in which place.
    pub(super) path: PathId,
    /// That path is no more, though there may be another of its number.
    pub(super) is_path_gone: bool,
    pub(super) sent_at: Instant,
    pub(crate) order: u64,
    /// The nonce of each of its Interests, less the number of its segment.
    pub(super) nonce: u32,
    pub(crate) sends: u32,
    /// Open units refused since it was sent last, why the last of them, and how often all that was
    /// open was refused for want of a route.
    pub(super) nacked: u32,
    pub(super) nack_reason: NackReason,
    pub(super) no_routes: u32,
    /// Sent again because later ones had been answered.
    pub(crate) is_presumed_lost: bool,
}

impl Slot {
    /// A chunk without units that is to be sent now.
    pub(super) fn new(path: PathId, now: Instant) -> Self {
        Self {
            state: State::Waiting(now),
            first: 0,
            len: 0,
            open: 0,
            packets: 0,
            marked_packets: 0,
            mark: CongestionMark::NONE,
            bytes: 0,
            path,
            is_path_gone: false,
            sent_at: now,
            order: 0,
            nonce: 0,
            sends: 0,
            nacked: 0,
            nack_reason: NackReason::None,
            no_routes: 0,
            is_presumed_lost: false,
        }
    }

    pub(super) fn units(&self) -> Range<u64> {
        self.first..self.first + u64::from(self.len)
    }

    pub(crate) fn is_flying(&self) -> bool {
        self.state == State::Flying
    }
}
