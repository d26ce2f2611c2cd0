//! Fetches whole objects, each with its own transport consumer.

use weir_base::{Instant, NS_PER_MS, Rng};
use weir_transport::{
    ConsumerConfig, ConsumerEvent, ConsumerInput, PathId, RangeId, ReaderMode, SegmentSet, Target,
};
use weir_wire::{DataView, InterestView};

use super::fetch::{self, Fetch, FetchListener};
use super::{AppInput, AppOutbox, ConsumerCore};
use crate::event::EventKind;
use crate::workload::random::mix;
use crate::workload::{ArrivalProcess, ConsumerPlan, Demand, ObjectChooser, WorkloadError};

/// Limit on objects fetched at the same time. One more fails at once.
const FETCHES_MAX: usize = 256;
/// Pause before the next object after a failure.
const PAUSE_NS: u64 = 100 * NS_PER_MS;

#[derive(Debug)]
pub(super) struct ObjectLoop {
    config: ConsumerConfig,
    /// When objects start, unless they follow each other.
    arrivals: Option<(ArrivalProcess, Option<Instant>)>,
    /// Earliest start of the next object, if objects follow each other.
    resume: Instant,
    /// Objects that remain to be started.
    remaining: u64,
    chooser: ObjectChooser,
    seeds: Rng,
    /// In the order in which they started.
    fetches: Vec<(Fetch, ActiveObject)>,
}

/// An object that is being fetched.
#[derive(Debug)]
pub(super) struct ActiveObject {
    pub(super) object: u64,
    pub(super) started: Instant,
    pub(super) end: Option<FetchOutcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetchOutcome {
    Complete,
    Failed,
}

impl ObjectLoop {
    pub(super) fn new(
        plan: &ConsumerPlan,
        core: &ConsumerCore,
        seed: u64,
    ) -> Result<Self, WorkloadError> {
        let Demand::Objects { arrivals, count, controller, window } = &plan.demand else {
            unreachable!("the caller looked")
        };
        let config = fetch::config_of_objects(plan, core.controllers, controller, *window)?;
        let arrivals = match arrivals {
            Some(arrivals) => {
                let mut process = ArrivalProcess::new(arrivals, plan.start_ns, mix(seed ^ 1))?;
                let first = Instant::from_ns(process.next_ns());
                Some((process, Some(first).filter(|&at| at < core.stop)))
            }
            None => None,
        };
        Ok(Self {
            config,
            arrivals,
            resume: core.start,
            remaining: count.unwrap_or(u64::MAX),
            chooser: ObjectChooser::new(&plan.names.popularity, mix(seed ^ 2))?,
            seeds: Rng::from_seed(mix(seed ^ 3)),
            fetches: Vec::new(),
        })
    }

    pub(super) fn packet(&mut self, core: &mut ConsumerCore, input: AppInput) {
        // A single fetch checks the name itself.
        if let [(fetch, _)] = &mut self.fetches[..] {
            return fetch.push_packet(input);
        }
        let name = match input.header.nack {
            Some(_) => InterestView::decode(&input.packet).ok().map(|interest| interest.name),
            None => DataView::decode(&input.packet).ok().map(|data| data.name),
        };
        let naming = core.collection.naming();
        let Some(asked) = name.and_then(|name| naming.parse(name.value())) else {
            core.stats.malformed += 1;
            return;
        };
        let mut is_wanted = false;
        for (fetch, object) in &mut self.fetches {
            // Several fetches may want the same object. Each gets a copy.
            if object.object == asked.object {
                fetch.push_packet(input.clone());
                is_wanted = true;
            }
        }
        core.stats.unwanted += u64::from(!is_wanted);
    }

    /// Ends the run: nothing is sent any more.
    pub(super) fn end(&mut self, core: &ConsumerCore) {
        for (fetch, _) in &mut self.fetches {
            fetch.end(core);
        }
    }

    pub(super) fn set_path(&mut self, path: PathId, is_there: bool, core: &ConsumerCore) {
        for (fetch, _) in &mut self.fetches {
            fetch.set_path(path, is_there, core);
        }
    }

    pub(super) fn advance(&mut self, core: &mut ConsumerCore, out: &mut AppOutbox) {
        for (fetch, object) in &mut self.fetches {
            fetch.process(core, object, out);
        }
        self.settle(core, out);
        while self.is_due(core) || self.is_free(core) {
            self.begin(core, out);
        }
    }

    /// Whether the next object may start after the previous one.
    fn is_free(&self, core: &ConsumerCore) -> bool {
        let is_idle = self.arrivals.is_none() && self.fetches.is_empty();
        is_idle && self.remaining > 0 && core.can_request() && self.resume <= core.now
    }

    /// Whether an arrival is due. If so, it is consumed.
    fn is_due(&mut self, core: &ConsumerCore) -> bool {
        let Some((process, next)) = &mut self.arrivals else { return false };
        if self.remaining == 0 || next.is_none_or(|at| at > core.now) {
            return false;
        }
        if !core.may_send() {
            // The caller was late, and the run is over.
            *next = None;
            return false;
        }
        *next = Some(Instant::from_ns(process.next_ns())).filter(|&at| at < core.stop);
        true
    }

    fn begin(&mut self, core: &mut ConsumerCore, out: &mut AppOutbox) {
        self.remaining -= 1;
        let (object, _) = self.chooser.next_request();
        out.events.push(EventKind::ObjectStarted { object });
        if self.fetches.len() >= FETCHES_MAX {
            core.object_failed(object, out);
            return;
        }
        let begun = ActiveObject::begin(object, &self.config, self.seeds.next_u64(), core, out);
        self.fetches.push(begun);
    }

    /// Removes finished objects.
    fn settle(&mut self, core: &mut ConsumerCore, out: &mut AppOutbox) {
        self.fetches.retain(|(fetch, object)| {
            match object.end {
                Some(FetchOutcome::Complete) => {
                    core.object_completed(object.object, object.started, out);
                    self.resume = core.now;
                }
                Some(FetchOutcome::Failed) => {
                    core.object_failed(object.object, out);
                    self.resume = core.now.plus_ns(PAUSE_NS);
                }
                None => return !fetch.is_over(core),
            }
            false
        });
    }

    pub(super) fn next_wakeup(&self, core: &ConsumerCore) -> Option<Instant> {
        let next = match &self.arrivals {
            _ if self.remaining == 0 => None,
            Some((_, next)) => *next,
            None if self.fetches.is_empty() && core.now < core.stop => {
                Some(self.resume).filter(|&at| at < core.stop)
            }
            None => None,
        };
        self.fetches.iter().filter_map(|(fetch, _)| fetch.next_wakeup(core)).chain(next).min()
    }

    pub(super) fn is_done(&self, core: &ConsumerCore) -> bool {
        let more = match &self.arrivals {
            Some((_, next)) => next.is_some(),
            None => self.resume.max(core.now) < core.stop,
        };
        self.fetches.is_empty() && (self.remaining == 0 || !more)
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.fetches.iter().map(|(fetch, _)| fetch.in_flight()).sum()
    }

    pub(super) fn window(&self) -> f64 {
        self.fetches.iter().map(|(fetch, _)| fetch.window()).sum()
    }

    pub(super) fn window_of(&self, path: PathId) -> f64 {
        self.fetches.iter().map(|(fetch, _)| fetch.window_of(path)).sum()
    }
}

impl ActiveObject {
    /// Begins to fetch an object.
    pub(super) fn begin(
        object: u64,
        config: &ConsumerConfig,
        seed: u64,
        core: &mut ConsumerCore,
        out: &mut AppOutbox,
    ) -> (Fetch, Self) {
        let collection = &core.collection;
        // The workload gives the number of segments, as metadata would.
        let target = Target::Range {
            versioned: collection.naming().object_name(object),
            segments: 0..collection.shape(object).segments,
        };
        let mut fetch = Fetch::new(target, config.clone(), seed, core);
        let mut object = Self { object, started: core.now, end: None };
        fetch.process(core, &mut object, out);
        (fetch, object)
    }
}

impl FetchListener for ActiveObject {
    fn object_of(&self, _: RangeId) -> Option<u64> {
        self.end.is_none().then_some(self.object)
    }

    fn on_first_interest(&mut self, _: &ConsumerCore, _: RangeId, _: &mut AppOutbox) {}

    fn on_segment(&mut self, _: RangeId) {}

    fn on_event(
        &mut self,
        _: &mut ConsumerCore,
        event: ConsumerEvent,
        inputs: &mut Vec<ConsumerInput>,
        _: &mut AppOutbox,
    ) {
        match event {
            ConsumerEvent::Found { .. } => {
                inputs.push(ConsumerInput::Start {
                    have: SegmentSet::new(),
                    reader: ReaderMode::None,
                });
            }
            ConsumerEvent::Done => self.end = Some(FetchOutcome::Complete),
            ConsumerEvent::Failed(_) => self.end = Some(FetchOutcome::Failed),
            _ => {}
        }
    }
}
