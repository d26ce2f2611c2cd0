//! The trace of a run: its event hash, its last lines, and the events for the observer.

use crate::check::recent::{RecentEvents, TraceKind, TraceLine};
use weir_plan::event::{Event, EventKind};
use weir_plan::hash::Digest;

/// The trace of a run.
#[derive(Default)]
pub(super) struct Trace {
    digest: Digest,
    recent: RecentEvents,
    /// Events of the current step.
    events: Vec<Event>,
    event_count: u64,
    /// Interests and Data that found a stage full.
    pub(super) stage_full: u64,
    /// The plan is over, and no more events are emitted.
    is_closed: bool,
}

impl Trace {
    #[inline]
    pub(super) fn note(&mut self, at_ns: u64, node: u32, face: u32, what: TraceKind, number: u32) {
        self.digest.mix(at_ns);
        self.digest.mix(u64::from(node) << 32 | u64::from(face));
        self.digest.mix((what as u64) << 32 | u64::from(number));
        self.recent.push(TraceLine { at_ns, node, face, what, number });
    }

    /// Adds the call of a node to the hash.
    #[inline]
    pub(super) fn note_wakeup(&mut self, at_ns: u64, node: u32) {
        self.digest.mix(at_ns ^ u64::from(node) << 48);
    }

    pub(super) fn emit(&mut self, at_ns: u64, node: u32, kind: EventKind) {
        if self.is_closed {
            return;
        }
        self.event_count += 1;
        kind.digest(&mut self.digest);
        self.events.push(Event { at_ns, node, kind });
    }

    /// The events of this step, in order.
    pub(super) fn take_events(&mut self) -> impl Iterator<Item = Event> + use<'_> {
        self.events.drain(..)
    }

    /// Stops emitting events. The hash still covers what follows.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    pub(super) fn hash(&self) -> u64 {
        self.digest.value()
    }

    pub(super) fn event_count(&self) -> u64 {
        self.event_count
    }

    /// The last trace lines, oldest first.
    pub(super) fn last_lines(&self, node_name: impl Fn(u32) -> String) -> Vec<String> {
        self.recent.texts(node_name)
    }
}
