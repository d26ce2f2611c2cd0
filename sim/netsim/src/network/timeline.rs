//! The clock, the events to come, and the trace of those that have been.

use weir_base::Instant;

use super::queue::{DueEvent, EventKey, EventQueue};
use super::trace::Trace;
use crate::check::recent::TraceKind;
use weir_plan::event::{EventKind, Queue};

/// What every component needs of the engine: the present, a place for its next events, and a
/// record of what it did. The order of calls is part of a run's hash.
#[derive(Default)]
pub(super) struct Timeline {
    now_ns: u64,
    queue: EventQueue,
    pub(super) trace: Trace,
}

impl Timeline {
    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    #[inline]
    pub(super) fn now(&self) -> Instant {
        Instant::from_ns(self.now_ns)
    }

    /// Takes the next event, which becomes the present, unless it is later than `until_ns`: then
    /// that is the present.
    #[inline]
    pub(super) fn advance(&mut self, until_ns: u64) -> Option<EventKey> {
        let moment = self.queue.pop_until(until_ns);
        self.now_ns = moment.map_or(until_ns, EventKey::at_ns);
        moment
    }

    /// The next event, which stays.
    #[inline]
    pub(super) fn peek(&self) -> Option<EventKey> {
        self.queue.peek()
    }

    /// Schedules an event behind all others of its time.
    #[inline]
    pub(super) fn schedule(&mut self, at_ns: u64, due: DueEvent) -> EventKey {
        let moment = self.queue.moment(at_ns, due);
        self.queue.push(moment);
        moment
    }

    /// A moment behind all others of its time that is scheduled later, by [`Timeline::push`].
    #[inline]
    pub(super) fn reserve(&mut self, at_ns: u64, due: DueEvent) -> EventKey {
        self.queue.moment(at_ns, due)
    }

    /// Schedules a moment that was reserved.
    #[inline]
    pub(super) fn push(&mut self, moment: EventKey) {
        self.queue.push(moment);
    }

    /// Records something that happened at a face of a node; 0 where it concerns no face.
    #[inline]
    pub(super) fn note(&mut self, node: u32, face: u32, what: TraceKind, number: u32) {
        self.trace.note(self.now_ns, node, face, what, number);
    }

    /// Records an event for the observer.
    pub(super) fn emit(&mut self, node: u32, kind: EventKind) {
        self.trace.emit(self.now_ns, node, kind);
    }

    /// Records that a packet found a stage of a router full, and whether it passed the stage by.
    pub(super) fn stage_full(&mut self, node: u32, queue: Queue, is_bypass: bool) {
        self.trace.stage_full += 1;
        self.note(node, 0, TraceKind::StageFull, 0);
        self.emit(node, EventKind::StageFull { queue, is_bypass });
    }

    /// Records that a node was called at the time that it had asked for.
    #[inline]
    pub(super) fn note_wakeup(&mut self, node: u32) {
        self.trace.note_wakeup(self.now_ns, node);
    }
}

/// The next event of a component that wants only the earliest of those it asks for. Events that an
/// earlier one has replaced stay in the queue and are ignored when they are due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer(EventKey);

impl Timer {
    /// A timer that is not set.
    pub(super) const UNSET: Self = Self(EventKey::NEVER);

    /// Sets the timer to `at_ns`, which is at least 1 ns from now, unless it is due earlier.
    #[inline]
    pub(super) fn set(&mut self, at_ns: u64, due: DueEvent, timeline: &mut Timeline) {
        let at_ns = at_ns.max(timeline.now_ns + 1);
        if at_ns < self.0.at_ns() {
            self.0 = timeline.schedule(at_ns, due);
        }
    }

    /// Whether this event is the timer's, which is then unset.
    #[inline]
    pub(super) fn fires(&mut self, moment: EventKey) -> bool {
        let fires = self.0 == moment;
        if fires {
            *self = Self::UNSET;
        }
        fires
    }
}
