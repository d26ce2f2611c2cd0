//! Units that get no answer although others do: when the scoreboard gives them up, so that they do
//! not hold the window, and how the order of units skips over them.
//!
//! The consumer keeps what is given up here and requests it again outside the window, see
//! [`super::super::holes`].

use alloc::vec::Vec;

use weir_base::Instant;

use super::{GiveUp, NO_ROUTE_MAX, Scoreboard, State};
use crate::PathId;
use crate::consumer::path::Path;

/// Retransmissions of a unit in the window before it is set aside. Five losses in a row of one unit
/// are no chance: at a loss of 5 % one unit in 60 million meets them.
const RETRIES_IN_WINDOW: u32 = 5;
/// As long as no hole is known, all paths must have been silent for this many lifetimes of an
/// Interest before silence counts as a hole: a link that fails for seconds is none.
const SILENT_LIFETIMES: u64 = 2;

/// When a unit that gets no answer is set aside.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum HoleRules {
    /// Never: it is given up after all its retries.
    #[default]
    Off,
    /// After [`RETRIES_IN_WINDOW`], and after [`SILENT_LIFETIMES`] without any answer.
    Watch,
    /// A hole has been met: after one retry, one Nack, or one timeout without any answer.
    Known,
}

impl Scoreboard {
    pub(crate) fn set_hole_rules(&mut self, rules: HoleRules) {
        self.hole_rules = rules;
    }

    /// Whether the reader wants all in order.
    pub(crate) fn is_in_order(&self) -> bool {
        self.is_in_order
    }

    /// Whether a unit is asked for and not answered.
    pub(crate) fn is_asked(&self, index: u64) -> bool {
        self.chunks.find(index).is_some_and(|at| self.chunks.is_open(at, index))
    }

    /// The rules in force. Without a known end there is nothing to skip to.
    fn rules(&self) -> HoleRules {
        if self.limit.is_some() { self.hole_rules } else { HoleRules::Off }
    }

    /// How often a unit that gets no answer is sent again.
    pub(super) fn tries_max(&self) -> u32 {
        let retries_max = self.config.retries_max;
        match self.rules() {
            HoleRules::Off => retries_max,
            HoleRules::Watch => retries_max.min(RETRIES_IN_WINDOW),
            HoleRules::Known => retries_max.min(1),
        }
    }

    /// How many Nacks for want of a route a unit takes.
    pub(super) fn no_routes_max(&self) -> u32 {
        if self.rules() == HoleRules::Known { 0 } else { NO_ROUTE_MAX }
    }

    /// Whether nothing has come on any path since a timeout.
    pub(crate) fn is_silent(&self) -> bool {
        let in_use = self.paths_in_use();
        !in_use.is_empty() && in_use.iter().all(Path::is_unheard)
    }

    /// Since when nothing has come, if something has timed out since.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        let heard_at = self.paths.iter().filter_map(|path| path.heard_at()).max();
        heard_at.or(self.unheard_since).filter(|_| self.is_silent())
    }

    /// After a timeout: gives up what would be sent again, if nothing has come for long enough.
    pub(super) fn set_silent_aside(&mut self, now: Instant) {
        let lifetimes = match self.rules() {
            HoleRules::Off => return,
            HoleRules::Watch => SILENT_LIFETIMES,
            HoleRules::Known => 0,
        };
        let enough_ns = self.config.lifetime_ns.saturating_mul(lifetimes);
        if self.silent_since().is_none_or(|since| now.ns_since(since) < enough_ns) {
            return;
        }
        for at in 0..self.chunks.len() {
            if matches!(self.chunks.slot(at).state, State::Waiting(_)) {
                self.fail_chunk(at, GiveUp::Unanswered);
            }
        }
        self.chunks.shift();
    }

    /// Gives up everything that is asked for and not answered. The units.
    pub(crate) fn abandon_open(&mut self) -> Vec<u64> {
        let mut open = Vec::new();
        for at in 0..self.chunks.len() {
            open.extend(self.chunks.open_units(at));
            for index in self.chunks.slot(at).units() {
                self.close(at, index);
            }
            self.end(at);
        }
        self.chunks.shift();
        open
    }

    /// Nothing is asked for, and the next unit is this one, after the one that would be next or
    /// before it. The units between them that have been answered already.
    pub(crate) fn skip_to(&mut self, index: u64) -> Vec<u64> {
        debug_assert!(self.chunks.is_empty());
        let later = self.done_beyond.split_off(&index);
        let done = core::mem::replace(&mut self.done_beyond, later);
        self.chunks.start_at(index);
        done.into_iter().collect()
    }

    /// A unit that has not been asked for in its order is answered.
    pub(crate) fn answered_early(&mut self, index: u64) {
        if index >= self.next_index() {
            self.done_beyond.insert(index);
        }
    }

    /// Whether a unit that has not been asked for in its order is answered.
    pub(crate) fn is_answered_early(&self, index: u64) -> bool {
        self.done_beyond.contains(&index)
    }

    /// Data for a unit that was set aside came by this path.
    pub(crate) fn heard_aside(&mut self, path: PathId, now: Instant) {
        if let Some(path) = self.path_mut(path) {
            path.heard_aside(now);
        }
    }
}
