//! What the scoreboard knows of one unit, and what it counts.

use weir_base::Instant;

use crate::PathId;

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
    /// Most that were outstanding at one time.
    pub(crate) in_flight_max: u32,
}

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum State {
    /// Sent, not answered.
    Flying,
    /// In the list of those to be sent again, under this time.
    Waiting(Instant),
    /// Answered or not needed.
    Done,
}

/// What is known of one unit.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Slot {
    pub(super) state: State,
    /// The path that it was sent on last, when, and in which place.
    pub(super) path: PathId,
    /// That path is no more, though there may be another of its number.
    pub(super) is_path_gone: bool,
    pub(super) sent_at: Instant,
    pub(crate) order: u64,
    pub(super) nonce: u32,
    pub(crate) sends: u32,
    pub(super) no_routes: u32,
    /// Sent again because later ones had been answered.
    pub(crate) is_presumed_lost: bool,
}

impl Slot {
    pub(crate) fn is_flying(&self) -> bool {
        self.state == State::Flying
    }
}
