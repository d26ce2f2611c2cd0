//! The clock, the future events, and the trace of past ones.

use weir_base::Instant;

use super::queue::{DueEvent, EventKey, EventQueue};
use super::trace::Trace;
use crate::check::recent::TraceKind;
use weir_plan::event::{EventKind, Queue};

/// The clock, the event queue and the trace, which all components use. The order of calls is part
/// of a run's event hash.
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

    /// Removes the next event and sets the clock to its time. If that event is later than
    /// `until_ns`, sets the clock to `until_ns` and returns `None`.
    #[inline]
    pub(super) fn advance(&mut self, until_ns: u64) -> Option<EventKey> {
        let moment = self.queue.pop_until(until_ns);
        self.now_ns = moment.map_or(until_ns, EventKey::at_ns);
        moment
    }

    /// The next event, which stays in the queue.
    #[inline]
    pub(super) fn peek(&self) -> Option<EventKey> {
        self.queue.peek()
    }

    /// Schedules an event after all others of the same time.
    #[inline]
    pub(super) fn schedule(&mut self, at_ns: u64, due: DueEvent) -> EventKey {
        let moment = self.queue.moment(at_ns, due);
        self.queue.push(moment);
        moment
    }

    /// Reserves a key after all others of the same time. [`Timeline::push`] schedules it later.
    #[inline]
    pub(super) fn reserve(&mut self, at_ns: u64, due: DueEvent) -> EventKey {
        self.queue.moment(at_ns, due)
    }

    /// Schedules a reserved key.
    #[inline]
    pub(super) fn push(&mut self, moment: EventKey) {
        self.queue.push(moment);
    }

    /// Adds a trace line for a face of a node; 0 if no face is involved.
    #[inline]
    pub(super) fn note(&mut self, node: u32, face: u32, what: TraceKind, number: u32) {
        self.trace.note(self.now_ns, node, face, what, number);
    }

    /// Emits an event to the observer.
    pub(super) fn emit(&mut self, node: u32, kind: EventKind) {
        self.trace.emit(self.now_ns, node, kind);
    }

    /// Records that a packet found a stage of a router full, and whether it bypassed the stage.
    pub(super) fn stage_full(&mut self, node: u32, queue: Queue, is_bypass: bool) {
        self.trace.stage_full += 1;
        self.note(node, 0, TraceKind::StageFull, 0);
        self.emit(node, EventKind::StageFull { queue, is_bypass });
    }

    /// Records a call of a node at its wake-up time.
    #[inline]
    pub(super) fn note_wakeup(&mut self, node: u32) {
        self.trace.note_wakeup(self.now_ns, node);
    }
}

/// A timer that keeps the earliest time it was set to. Events that an earlier time replaced stay in
/// the queue, and [`Timer::fires`] returns false for them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer(EventKey);

impl Timer {
    /// A timer that is not set.
    pub(super) const UNSET: Self = Self(EventKey::NEVER);

    /// Sets the timer to `at_ns` or 1 ns from now, whichever is later, unless it fires earlier.
    #[inline]
    pub(super) fn set(&mut self, at_ns: u64, due: DueEvent, timeline: &mut Timeline) {
        let at_ns = at_ns.max(timeline.now_ns + 1);
        if at_ns < self.0.at_ns() {
            self.0 = timeline.schedule(at_ns, due);
        }
    }

    /// Whether this event is the timer's. If so, the timer is unset.
    #[inline]
    pub(super) fn fires(&mut self, moment: EventKey) -> bool {
        let fires = self.0 == moment;
        if fires {
            *self = Self::UNSET;
        }
        fires
    }
}
