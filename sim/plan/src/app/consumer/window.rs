//! A number of Interests outstanding over objects one after another: a constant one, as
//! ccncatchunks2 has it, or what a congestion controller allows.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_base::{Instant, NS_PER_MS, Slab};
use weir_wire::NackReason;

use super::limit::Limit;
use super::pending::Entry;
use super::{Answer, AppOutbox, Core};
use crate::event::EventKind;
use crate::workload::random::mix;
use crate::workload::{ConsumerPlan, Demand, ObjectChooser, WorkloadError};

/// A segment is asked for so often before its object is given up.
const SENDS_MAX: u32 = 16;
/// After a Nack a segment rests, longer each time, and at most so much longer.
const REST_NS: u64 = 10 * NS_PER_MS;
const REST_DOUBLINGS_MAX: u32 = 8;
/// The owner of what is part of no object: requests of a trace.
const NOBODY: u64 = u64::MAX;

/// See the module's text.
#[derive(Debug)]
pub(super) struct WindowLoop {
    limit: Limit,
    /// Interests to be answered in all.
    count: u64,
    answered: u64,
    has_begun: bool,
    chooser: ObjectChooser,
    objects: Slab<Active>,
    /// The object that new segments are asked for of.
    current: Option<Current>,
    resting: BinaryHeap<Reverse<Resting>>,
    /// What waited for one Data; here so that its memory stays.
    taken: Vec<Entry>,
}

/// An object of which something is outstanding.
#[derive(Debug)]
struct Active {
    object: u64,
    started: Instant,
    segments_left: u64,
    /// Segments asked for and neither answered nor given up.
    outstanding: u64,
    has_failed: bool,
}

#[derive(Debug)]
struct Current {
    owner: u64,
    object: u64,
    next_segment: u64,
    segments: u64,
}

/// A segment that was refused and will be asked for again; first by time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Resting {
    until: Instant,
    object: u64,
    segment: u64,
    owner: u64,
    sends: u32,
}

impl WindowLoop {
    pub(super) fn new(plan: &ConsumerPlan, seed: u64) -> Result<Self, WorkloadError> {
        let (limit, count) = match &plan.demand {
            Demand::Window { window, count } => (Limit::fixed(*window)?, *count),
            Demand::Controlled { controller, window, count } => {
                (Limit::controlled(controller, *window)?, *count)
            }
            Demand::Arrivals { .. } | Demand::Objects { .. } => unreachable!("the caller looked"),
        };
        Ok(Self {
            limit,
            count: count.unwrap_or(u64::MAX),
            answered: 0,
            has_begun: false,
            chooser: ObjectChooser::new(&plan.names.popularity, mix(seed ^ 2))?,
            objects: Slab::new(),
            current: None,
            resting: BinaryHeap::new(),
            taken: Vec::new(),
        })
    }

    fn outstanding(&self, core: &Core) -> usize {
        core.pending.len() + self.resting.len()
    }

    pub(super) fn answered(&mut self, core: &mut Core, answer: &Answer<'_>, out: &mut AppOutbox) {
        // Several, when one object was drawn again before it was complete.
        let outstanding = self.outstanding(core);
        core.take_all(answer, out, |entry| self.taken.push(*entry));
        let is_marked = answer.header.congestion_mark != 0;
        while let Some(entry) = self.taken.pop() {
            self.limit.answered(core.now, &entry, is_marked, outstanding, core.pending.sent());
            self.answered += 1;
            self.settled(core, entry.owner, true, out);
        }
    }

    /// A segment was answered or given up.
    fn settled(&mut self, core: &mut Core, owner: u64, is_answered: bool, out: &mut AppOutbox) {
        let Some(active) = self.objects.get_mut(owner as u32).filter(|_| owner != NOBODY) else {
            return;
        };
        active.outstanding -= 1;
        let object = active.object;
        if is_answered {
            active.segments_left -= 1;
        } else if !active.has_failed {
            active.has_failed = true;
            core.object_failed(object, out);
            self.current.take_if(|current| current.owner == owner);
        }
        let is_complete = active.segments_left == 0 && !active.has_failed;
        if is_complete {
            core.object_completed(object, active.started, out);
        }
        if is_complete || (active.has_failed && active.outstanding == 0) {
            self.objects.remove(owner as u32);
        }
    }

    pub(super) fn refused(
        &mut self,
        core: &mut Core,
        entry: Entry,
        reason: NackReason,
        out: &mut AppOutbox,
    ) {
        if !core.may_send() {
            return;
        }
        let Entry { object, segment, owner, sends, .. } = entry;
        if reason == NackReason::Congestion {
            self.limit.refused(core.now, &entry, core.pending.sent());
        }
        if sends >= SENDS_MAX {
            self.settled(core, owner, false, out);
            return;
        }
        // Another nonce is all that a duplicate needs.
        let rest_ns = match reason {
            NackReason::Duplicate => 0,
            _ => REST_NS << (sends - 1).min(REST_DOUBLINGS_MAX),
        };
        let until = core.now.plus_ns(rest_ns);
        self.resting.push(Reverse(Resting { until, object, segment, owner, sends }));
    }

    pub(super) fn expired(&mut self, core: &mut Core, slot: u32, out: &mut AppOutbox) {
        let Some(entry) = core.pending.get(slot).copied() else { return };
        self.limit.timed_out(core.now, &entry, core.pending.sent());
        if core.may_send() && entry.sends < SENDS_MAX {
            core.send_again(slot, out);
            return;
        }
        core.pending.remove(slot);
        if core.may_send() {
            self.settled(core, entry.owner, false, out);
        }
    }

    /// The run is over: nothing rests any more, and what is incomplete stays so.
    pub(super) fn end(&mut self) {
        self.resting.clear();
        self.current = None;
    }

    pub(super) fn advance(&mut self, core: &mut Core, out: &mut AppOutbox) {
        self.has_begun |= core.now >= core.start;
        if !core.may_send() {
            return;
        }
        while self.resting.peek().is_some_and(|Reverse(first)| first.until <= core.now) {
            let Some(Reverse(rested)) = self.resting.pop() else { break };
            core.send((rested.object, rested.segment), rested.owner, rested.sends + 1, out);
        }
        loop {
            let outstanding = self.outstanding(core);
            let committed = self.answered.saturating_add(outstanding as u64);
            if outstanding >= self.limit.interests() || committed >= self.count {
                return;
            }
            let Some((asked, owner)) = self.next_segment(core, out) else { return };
            core.send(asked, owner, 1, out);
        }
    }

    /// What to ask for next: the next segment of the object at hand or the first of the next one.
    fn next_segment(&mut self, core: &mut Core, out: &mut AppOutbox) -> Option<((u64, u64), u64)> {
        let current = match self.current.take() {
            Some(current) => current,
            None if !core.may_ask() => return None,
            None => match self.chooser.next_request() {
                (object, Some(segment)) => return Some(((object, segment), NOBODY)),
                (object, None) => self.begin(core, object, out),
            },
        };
        let Current { owner, object, next_segment, segments } = current;
        if let Some(active) = self.objects.get_mut(owner as u32) {
            active.outstanding += 1;
        }
        let next = next_segment + 1;
        self.current =
            (next < segments).then_some(Current { owner, object, next_segment: next, segments });
        Some(((object, next_segment), owner))
    }

    fn begin(&mut self, core: &Core, object: u64, out: &mut AppOutbox) -> Current {
        let segments = core.collection.shape(object).segments;
        let owner = self.objects.insert(Active {
            object,
            started: core.now,
            segments_left: segments,
            outstanding: 0,
            has_failed: false,
        });
        out.events.push(EventKind::ObjectStarted { object });
        Current { owner: u64::from(owner), object, next_segment: 0, segments }
    }

    pub(super) fn next_wakeup(&self, core: &Core) -> Option<Instant> {
        if !self.has_begun {
            return Some(core.start).filter(|&at| at < core.stop);
        }
        self.resting.peek().map(|Reverse(first)| first.until)
    }

    pub(super) fn is_done(&self, core: &Core) -> bool {
        let may_begin = core.now < core.stop && core.start < core.stop;
        let is_unfinished =
            !self.resting.is_empty() || self.current.is_some() && core.may_send() || may_begin;
        self.answered >= self.count || !is_unfinished
    }

    pub(super) fn sample(&self, core: &Core) -> EventKind {
        let outstanding = core.pending.len() as u32;
        EventKind::Window { window: self.limit.window(), outstanding }
    }
}
