//! A window of Interests over consecutive objects or over the segments of a trace. The window is
//! constant, as in ccncatchunks2, or set by a congestion controller.

use std::collections::VecDeque;

use weir_base::Instant;
use weir_transport::{ConsumerEvent, ConsumerInput, PathId, RangeId, Target};

use super::fetch::{self, Fetch, FetchListener, WINDOW_MAX};
use super::{AppInput, AppOutbox, ConsumerCore};
use crate::event::EventKind;
use crate::workload::random::mix;
use crate::workload::{ConsumerPlan, Demand, ObjectChooser, WorkloadError};

#[derive(Debug)]
pub(super) struct WindowLoop {
    fetch: Fetch,
    ranges: Ranges,
    has_begun: bool,
}

/// The ranges that the transport consumer fetches.
#[derive(Debug)]
struct Ranges {
    chooser: ObjectChooser,
    /// Starts with the first unfinished range.
    ranges: VecDeque<WantedRange>,
    /// Number of the first range.
    base: u64,
    /// Total number of segments to fetch.
    count: u64,
    /// Segments that arrived or are assigned to the consumer.
    committed: u64,
    answered: u64,
    /// The consumer has nothing left to request, and its window has space.
    needs_more: bool,
    is_closed: bool,
}

#[derive(Debug)]
struct WantedRange {
    object: u64,
    kind: RangeKind,
    /// Segments that have not arrived.
    left: u64,
    is_over: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum RangeKind {
    /// A whole object, counted from its first Interest.
    Object {
        started: Instant,
    },
    /// The beginning of an object, because the total ends within it.
    Part,
    Segment,
}

impl WindowLoop {
    pub(super) fn new(
        plan: &ConsumerPlan,
        core: &ConsumerCore,
        seed: u64,
    ) -> Result<Self, WorkloadError> {
        let (config, count) = match &plan.demand {
            Demand::Window { window, count } => {
                (fetch::config(plan, core.controllers, "fixed", Some(*window))?, *count)
            }
            Demand::Controlled { controller, window, count } => {
                (fetch::config(plan, core.controllers, controller, *window)?, *count)
            }
            Demand::Arrivals { .. } | Demand::Objects { .. } | Demand::Live { .. } => {
                unreachable!("the caller looked")
            }
        };
        let config = weir_transport::ConsumerConfig { window_max: WINDOW_MAX, ..config };
        Ok(Self {
            fetch: Fetch::new(Target::Sequence, config, mix(seed), core),
            ranges: Ranges {
                chooser: ObjectChooser::new(&plan.names.popularity, mix(seed ^ 2))?,
                ranges: VecDeque::new(),
                base: 0,
                count: count.unwrap_or(u64::MAX),
                committed: 0,
                answered: 0,
                needs_more: false,
                is_closed: false,
            },
            has_begun: false,
        })
    }

    pub(super) fn packet(&mut self, input: AppInput) {
        self.fetch.push_packet(input);
    }

    pub(super) fn end(&mut self, core: &ConsumerCore) {
        self.fetch.end(core);
    }

    pub(super) fn set_path(&mut self, path: PathId, is_there: bool, core: &ConsumerCore) {
        self.fetch.set_path(path, is_there, core);
    }

    pub(super) fn advance(&mut self, core: &mut ConsumerCore, out: &mut AppOutbox) {
        self.has_begun |= core.now >= core.start;
        if !self.has_begun {
            return;
        }
        let Self { fetch, ranges, .. } = self;
        if core.now >= core.stop && !ranges.is_closed {
            ranges.is_closed = true;
            fetch.push(ConsumerInput::Close);
        }
        fetch.process(core, ranges, out);
        // A failed range returns its missing segments to the total, so another range may follow.
        while let Some(append) = ranges.append(core) {
            fetch.push(append);
            fetch.process(core, ranges, out);
        }
    }

    pub(super) fn next_wakeup(&self, core: &ConsumerCore) -> Option<Instant> {
        if self.has_begun {
            return self.fetch.next_wakeup(core);
        }
        Some(core.start).filter(|&at| at < core.stop)
    }

    pub(super) fn is_done(&self, core: &ConsumerCore) -> bool {
        let begins_never = !self.has_begun && core.start.max(core.now) >= core.stop;
        begins_never || self.ranges.answered >= self.ranges.count || self.fetch.is_over(core)
    }

    pub(super) fn fetch(&self) -> &Fetch {
        &self.fetch
    }
}

impl Ranges {
    /// The next range, if the consumer needs one.
    fn append(&mut self, core: &ConsumerCore) -> Option<ConsumerInput> {
        let left = self.count - self.committed;
        if !self.needs_more || left == 0 || !core.can_request() {
            return None;
        }
        self.needs_more = false;
        let (object, segment) = self.chooser.next_request();
        let (segments, kind) = match segment {
            Some(segment) => (segment..segment + 1, RangeKind::Segment),
            None => {
                let all = core.collection.shape(object).segments;
                let kind = match all <= left {
                    true => RangeKind::Object { started: core.now },
                    false => RangeKind::Part,
                };
                (0..all.min(left), kind)
            }
        };
        let count = segments.end - segments.start;
        self.committed += count;
        let range = RangeId(self.base + self.ranges.len() as u64);
        self.ranges.push_back(WantedRange { object, kind, left: count, is_over: false });
        let name = core.collection.naming().object_name(object);
        Some(ConsumerInput::Append { range, name, segments: Some(segments) })
    }

    fn get(&mut self, id: RangeId) -> Option<&mut WantedRange> {
        let at = usize::try_from(id.0.checked_sub(self.base)?).ok()?;
        self.ranges.get_mut(at).filter(|range| !range.is_over)
    }

    fn drop_finished_front(&mut self) {
        while self.ranges.front().is_some_and(|range| range.is_over) {
            self.ranges.pop_front();
            self.base += 1;
        }
    }
}

impl FetchListener for Ranges {
    fn object_of(&self, range: RangeId) -> Option<u64> {
        let at = usize::try_from(range.0.checked_sub(self.base)?).ok()?;
        self.ranges.get(at).filter(|range| !range.is_over).map(|range| range.object)
    }

    fn on_first_interest(&mut self, core: &ConsumerCore, range: RangeId, out: &mut AppOutbox) {
        let Some(WantedRange { object, kind, .. }) = self.get(range) else { return };
        if let RangeKind::Object { started } = kind {
            *started = core.now;
        }
        if *kind != RangeKind::Segment {
            out.events.push(EventKind::ObjectStarted { object: *object });
        }
    }

    fn on_segment(&mut self, range: RangeId) {
        self.answered += 1;
        if let Some(range) = self.get(range) {
            range.left -= 1;
        }
    }

    fn on_event(
        &mut self,
        core: &mut ConsumerCore,
        event: ConsumerEvent,
        inputs: &mut Vec<ConsumerInput>,
        out: &mut AppOutbox,
    ) {
        match event {
            ConsumerEvent::NeedsMore => {
                self.needs_more = true;
                inputs.extend(self.append(core));
            }
            ConsumerEvent::RangeDone { range } => {
                let Some(range) = self.get(range) else { return };
                range.is_over = true;
                if let WantedRange { object, kind: RangeKind::Object { started }, .. } = *range {
                    core.object_completed(object, started, out);
                }
                self.drop_finished_front();
            }
            ConsumerEvent::RangeFailed { range, .. } => {
                let Some(range) = self.get(range) else { return };
                range.is_over = true;
                let (object, left) = (range.object, range.left);
                if range.kind != RangeKind::Segment {
                    core.object_failed(object, out);
                }
                // The segments that never arrived may be requested again, in another range.
                self.committed -= left;
                self.drop_finished_front();
            }
            // Nothing else is reported for a sequence that the caller verifies.
            _ => {}
        }
    }
}
