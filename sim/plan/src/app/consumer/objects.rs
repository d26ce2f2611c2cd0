//! Whole objects, by the transport's own consumer.

use std::str::FromStr;

use weir_base::{Instant, NS_PER_MS, Pool, Rng};
use weir_security::sha256;
use weir_transport::{
    Consumer, ConsumerConfig, ConsumerEvent, ConsumerInput, ConsumerOutbox, Controller, PathId,
    ReaderMode, SegmentSet, Target, Verdict, Verification,
};
use weir_wire::{InterestView, LpHeader};

use super::pending::Entry;
use super::{Answer, AppInput, AppOutbox, Core};
use crate::app::encode::DataTemplate;
use crate::event::EventKind;
use crate::workload::random::mix;
use crate::workload::{ArrivalProcess, ConsumerPlan, Demand, ObjectChooser, WorkloadError};

/// Objects fetched at one time at most; one that would be more fails at once.
const FETCHES_MAX: usize = 256;
/// A consumer of the laboratory has one path.
const PATH: PathId = PathId(0);
/// The next object waits so long after one that failed.
const PAUSE_NS: u64 = 100 * NS_PER_MS;

/// See the module's text.
#[derive(Debug)]
pub(super) struct ObjectLoop {
    config: ConsumerConfig,
    /// When objects begin, if not after one another.
    arrivals: Option<(ArrivalProcess, Option<Instant>)>,
    /// When the next object may begin, if after one another.
    resume: Instant,
    /// Objects to begin yet.
    left: u64,
    chooser: ObjectChooser,
    seeds: Rng,
    /// By number, which grows.
    fetches: Vec<Fetch>,
    next_number: u64,
    inputs: Vec<ConsumerInput>,
    out: ConsumerOutbox,
}

#[derive(Debug)]
struct Fetch {
    number: u64,
    object: u64,
    started: Instant,
    consumer: Consumer,
    /// Segments from here on were not asked for.
    asked_end: u64,
    end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Complete,
    Failed,
}

impl ObjectLoop {
    pub(super) fn new(plan: &ConsumerPlan, core: &Core, seed: u64) -> Result<Self, WorkloadError> {
        let Demand::Objects { arrivals, count, controller, window } = &plan.demand else {
            unreachable!("the caller looked")
        };
        let Ok(controller) = Controller::from_str(controller) else {
            let problem = format!("is `{controller}`; it must be cubic, aimd, fixed or nb-cc");
            return Err(WorkloadError::value("controller", problem));
        };
        let default = ConsumerConfig::default();
        if window.is_some_and(|window| window == 0 || window > default.window_max) {
            let problem = format!("must be from 1 to {}", default.window_max);
            return Err(WorkloadError::value("window", problem));
        }
        let process = match arrivals {
            Some(arrivals) => {
                let mut process = ArrivalProcess::new(arrivals, plan.start_ns, mix(seed ^ 1))?;
                let first = Instant::from_ns(process.next_ns());
                Some((process, Some(first).filter(|&at| at < core.stop)))
            }
            None => None,
        };
        Ok(Self {
            config: ConsumerConfig {
                lifetime_ms: plan.lifetime_ms,
                controller,
                window: *window,
                look_for_manifest: false,
                verification: Verification::ByDriver,
                ..default
            },
            arrivals: process,
            resume: core.start,
            left: count.unwrap_or(u64::MAX),
            chooser: ObjectChooser::new(&plan.names.popularity, mix(seed ^ 2))?,
            seeds: Rng::from_seed(mix(seed ^ 3)),
            fetches: Vec::new(),
            next_number: 0,
            inputs: Vec::new(),
            out: ConsumerOutbox::default(),
        })
    }

    /// Whether an object of this number is being fetched.
    pub(super) fn has(&self, number: u64) -> bool {
        self.place(number).is_ok()
    }

    fn place(&self, number: u64) -> Result<usize, usize> {
        self.fetches.binary_search_by_key(&number, |fetch| fetch.number)
    }

    pub(super) fn answered(&mut self, core: &mut Core, answer: &Answer<'_>, out: &mut AppOutbox) {
        let mut is_wanted = false;
        for at in 0..self.fetches.len() {
            let fetch = &mut self.fetches[at];
            if fetch.object == answer.object {
                let (path, header) = (PATH, answer.header.clone());
                let packet = answer.packet.clone();
                self.inputs.push(ConsumerInput::Packet { path, header, packet });
                is_wanted |= fetch.handle(core, Some(answer), &mut self.inputs, &mut self.out, out);
            }
        }
        self.settle(core, out);
        if answer.is_right {
            is_wanted |= self.take_orphans(core, answer, out);
        }
        if !is_wanted {
            core.stats.unwanted += 1;
        }
    }

    /// Takes the answer for Interests of objects that are over. Whether there were any.
    fn take_orphans(&self, core: &mut Core, answer: &Answer<'_>, out: &mut AppOutbox) -> bool {
        let is_orphan = |entry: &Entry| self.place(entry.owner).is_err();
        let mut are_any = false;
        while let Some(slot) = core.pending.find(answer.object, answer.segment, is_orphan) {
            let entry = core.pending.remove(slot);
            core.received(answer, core.now.ns_since(entry.sent_at), out);
            are_any = true;
        }
        are_any
    }

    pub(super) fn refused(
        &mut self,
        core: &mut Core,
        slot: u32,
        input: &AppInput,
        out: &mut AppOutbox,
    ) {
        let owner = core.pending.get(slot).map(|entry| entry.owner);
        let Some(at) = owner.and_then(|owner| self.place(owner).ok()) else {
            core.pending.remove(slot);
            return;
        };
        // Data may come all the same.
        core.pending.rest(slot);
        let AppInput { header, packet } = input.clone();
        self.inputs.push(ConsumerInput::Packet { path: PATH, header, packet });
        self.fetches[at].handle(core, None, &mut self.inputs, &mut self.out, out);
        self.settle(core, out);
    }

    /// The run is over: fetchers must send nothing any more.
    pub(super) fn end(&mut self, core: &mut Core) {
        for fetch in self.fetches.drain(..) {
            core.pending.purge_expired(fetch.number);
        }
    }

    pub(super) fn advance(&mut self, core: &mut Core, out: &mut AppOutbox) {
        for fetch in &mut self.fetches {
            if fetch.consumer.next_wakeup().is_some_and(|at| at <= core.now) {
                fetch.handle(core, None, &mut self.inputs, &mut self.out, out);
            }
        }
        self.settle(core, out);
        while self.is_due(core) || self.is_free(core) {
            self.begin(core, out);
        }
    }

    /// Whether the next object may begin after the last one.
    fn is_free(&self, core: &Core) -> bool {
        let is_idle = self.arrivals.is_none() && self.fetches.is_empty();
        is_idle && self.left > 0 && core.may_ask() && self.resume <= core.now
    }

    /// Whether an arrival is due; it is taken.
    fn is_due(&mut self, core: &Core) -> bool {
        let Some((process, next)) = &mut self.arrivals else { return false };
        if self.left == 0 || next.is_none_or(|at| at > core.now) {
            return false;
        }
        if !core.may_send() {
            // A driver that is late: the run is over.
            *next = None;
            return false;
        }
        *next = Some(Instant::from_ns(process.next_ns())).filter(|&at| at < core.stop);
        true
    }

    fn begin(&mut self, core: &mut Core, out: &mut AppOutbox) {
        self.left -= 1;
        let (object, _) = self.chooser.next_request();
        out.events.push(EventKind::ObjectStarted { object });
        if self.fetches.len() >= FETCHES_MAX {
            core.object_failed(object, out);
            return;
        }
        let versioned = core.collection.naming().object_name(object);
        // Known from the workload, as metadata would tell it.
        let segments = 0..core.collection.shape(object).segments;
        let target = Target::Range { versioned, segments };
        let config = self.config.clone();
        let mut fetch = Fetch {
            number: self.next_number,
            object,
            started: core.now,
            consumer: Consumer::new(target, config, self.seeds.next_u64(), core.now),
            asked_end: 0,
            end: None,
        };
        self.next_number += 1;
        self.inputs.push(ConsumerInput::AddPath { path: PATH });
        fetch.handle(core, None, &mut self.inputs, &mut self.out, out);
        self.fetches.push(fetch);
        self.settle(core, out);
    }

    /// Forgets what is over.
    fn settle(&mut self, core: &mut Core, out: &mut AppOutbox) {
        self.fetches.retain(|fetch| {
            let Some(end) = fetch.end else { return true };
            core.pending.purge_expired(fetch.number);
            match end {
                End::Complete => {
                    core.object_completed(fetch.object, fetch.started, out);
                    self.resume = core.now;
                }
                End::Failed => {
                    core.object_failed(fetch.object, out);
                    self.resume = core.now.plus_ns(PAUSE_NS);
                }
            }
            false
        });
    }

    pub(super) fn next_wakeup(&self, core: &Core) -> Option<Instant> {
        let next = match &self.arrivals {
            _ if self.left == 0 => None,
            Some((_, next)) => *next,
            None if self.fetches.is_empty() && core.now < core.stop => {
                Some(self.resume).filter(|&at| at < core.stop)
            }
            None => None,
        };
        let fetches = self.fetches.iter().filter_map(|fetch| fetch.consumer.next_wakeup());
        fetches.chain(next).min()
    }

    pub(super) fn is_done(&self, core: &Core) -> bool {
        let more = match &self.arrivals {
            Some((_, next)) => next.is_some(),
            None => self.resume.max(core.now) < core.stop,
        };
        self.fetches.is_empty() && (self.left == 0 || !more)
    }

    pub(super) fn sample(&self) -> EventKind {
        let mut sum = (0.0, 0);
        for fetch in &self.fetches {
            let stats = fetch.consumer.stats();
            sum = (sum.0 + stats.window, sum.1 + stats.outstanding);
        }
        EventKind::Window { window: sum.0, outstanding: sum.1 }
    }
}

impl Fetch {
    /// Gives `inputs`, which are drained, to the fetcher and does what it wants, until it wants
    /// nothing more. Whether it took the answer that was among the inputs.
    fn handle(
        &mut self,
        core: &mut Core,
        answer: Option<&Answer<'_>>,
        inputs: &mut Vec<ConsumerInput>,
        fetched: &mut ConsumerOutbox,
        out: &mut AppOutbox,
    ) -> bool {
        let mut is_taken = false;
        loop {
            self.consumer.handle(core.now, inputs, fetched);
            for op in fetched.verify.drain(..) {
                let Some(answer) = answer else { continue };
                is_taken = true;
                let verdict = if answer.is_right {
                    self.delivered(core, answer, out);
                    Verdict::Good
                } else {
                    let reason = "it came with wrong octets".to_owned();
                    Verdict::Bad { reason, digest: Some(right_digest(core, answer)) }
                };
                inputs.push(ConsumerInput::Verified { op: op.op, verdict });
            }
            for event in fetched.events.drain(..) {
                match event {
                    ConsumerEvent::Found { .. } => {
                        let (have, reader) = (SegmentSet::new(), ReaderMode::None);
                        inputs.push(ConsumerInput::Start { have, reader });
                    }
                    ConsumerEvent::Failed(_) => self.end = Some(End::Failed),
                    _ => {}
                }
            }
            for (_, wire) in fetched.interests.iter() {
                self.send(core, wire, out);
            }
            fetched.interests.clear();
            if inputs.is_empty() {
                break;
            }
        }
        if self.consumer.is_over() && self.end.is_none() {
            self.end = Some(End::Complete);
        }
        is_taken
    }

    fn delivered(&mut self, core: &mut Core, answer: &Answer<'_>, out: &mut AppOutbox) {
        let slot =
            core.pending.find(answer.object, answer.segment, |entry| entry.owner == self.number);
        let Some(slot) = slot else {
            debug_assert!(false, "a segment that was asked for is in the table until it comes");
            return;
        };
        let entry = core.pending.remove(slot);
        core.received(answer, core.now.ns_since(entry.sent_at), out);
    }

    /// Sends an Interest that the fetcher wrote.
    fn send(&mut self, core: &mut Core, wire: &[u8], out: &mut AppOutbox) {
        let Ok(interest) = InterestView::decode(wire) else { return };
        let Some(asked) = core.collection.naming().parse(interest.name.value()) else { return };
        let (object, segment) = (asked.object, asked.segment);
        let nonce = interest.nonce.unwrap_or_default();
        let is_repeated = segment < self.asked_end;
        self.asked_end = self.asked_end.max(segment + 1);
        match core.pending.find(object, segment, |entry| entry.owner == self.number) {
            Some(slot) => core.pending.renew(slot, core.now, nonce),
            None => core.pending.insert(
                core.now,
                (object, segment),
                self.number,
                nonce,
                1 + u32::from(is_repeated),
            ),
        }
        core.stats.interests += 1;
        out.events.push(EventKind::InterestSent { object, segment, is_repeated });
        out.packets.push((LpHeader::default(), core.pool.copy(wire)));
    }
}

/// The implicit digest of what the producer sent when this came, damaged.
#[cold]
fn right_digest(core: &Core, answer: &Answer<'_>) -> [u8; 32] {
    let (object, segment) = (answer.object, answer.segment);
    let shape = core.collection.shape(object);
    let template = DataTemplate::new(answer.data.freshness_ms);
    sha256(&[&template.write(&core.collection, shape, object, segment, &mut Pool::new(0))])
}
