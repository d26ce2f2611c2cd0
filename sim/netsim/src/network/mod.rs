//! The event engine: nodes, links and faults under virtual time.

mod build;
mod control;
mod device;
mod disk;
mod drive;
mod end;
mod fault;
mod holdings;
mod processor;
mod queue;
mod router;
mod sample;
mod send;
mod stages;
#[cfg(test)]
mod tests;

use weir_base::{Instant, Pool, Rng, prefetch_read};
use weir_forward::{Input, Outbox};

use self::control::ControlPlane;
use self::device::Device;
use self::disk::Library;
use self::end::End;
use self::processor::Processor;
use self::queue::{Due, EventQueue, INDEX_MAX, Moment};
use self::router::RouterNode;
use crate::check::Broken;
use crate::check::liveness::Progress;
use crate::check::octets::Produced;
use crate::check::recent::{Happened, Line, Recent};
use crate::error::Violation;
use weir_plan::app::{App, AppInput, AppOutbox};
use weir_plan::event::{Event, EventKind, Observer};
use weir_plan::hash::Digest;
use weir_plan::{FaultPlan, Plan, PlanError};

/// What a run amounted to so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Hash of everything that happened, every hop of every packet included. One plan, one hash.
    pub event_hash: u64,
    /// Packets that were delivered over a link, whole.
    pub packet_hops: u64,
    /// Steps of the engine.
    pub steps: u64,
    /// Events given to the observer.
    pub events: u64,
    /// Virtual time that has passed, ns.
    pub virtual_ns: u64,
    /// Frames that a fault damaged.
    pub damaged_frames: u64,
    /// Times that a consumer found wrong octets in Data, all of it because of such a fault: else
    /// the run would have ended.
    pub damage_noticed: u64,
    /// Interests and Data that found a stage full, whether they passed by or were dropped.
    pub stage_full: u64,
    /// Interests that came to a router with a nonce that was there before.
    pub interests_looped: u64,
}

/// What a node is.
enum NodeKind {
    Router(Box<RouterNode>),
    App(App),
}

struct Node {
    kind: NodeKind,
    /// Its ends of links; face `FaceId::FIRST + i` is the `i`-th.
    ends: Vec<u32>,
    /// Its next wake-up in the event queue.
    wake: Moment,
    /// Faults that keep it away.
    downs: u32,
    /// Of a consumer.
    progress: Option<Progress>,
    /// The shared disk that its own is.
    device: Option<u32>,
    /// The processor that its packets pass.
    processor: Option<u32>,
}

/// The routers, consumers, producers and links of a [`Plan`] under virtual time.
///
/// One plan, one result: everything random follows from the plan's seed, events of one moment come
/// in the order in which they were scheduled, and an observer changes nothing.
pub struct Network {
    seed: u64,
    now_ns: u64,
    end_ns: u64,
    sample_ns: u64,
    /// The longest lifetime of an Interest, ns: of those that the plan tells of, and of those that
    /// were delivered, which a fault may have changed.
    lifetime_max_ns: u64,
    names: Vec<String>,
    faults: Vec<FaultPlan>,
    queue: EventQueue,
    nodes: Vec<Node>,
    ends: Vec<End>,
    devices: Vec<Device>,
    control: Option<Box<ControlPlane>>,
    processors: Vec<Processor>,
    pool: Pool,
    /// Only where a router has disks.
    library: Library,
    digest: Digest,
    summary: Summary,
    recent: Recent,
    /// Only where a fault of the plan flips octets.
    produced: Option<Produced>,
    damage_rng: Rng,
    /// When the last fault so far has ended or will have, ns.
    excused_until_ns: u64,
    /// A consumer asks routers what they hold.
    tells_holdings: bool,
    /// The links lose too much for progress to be promised.
    is_lossy: bool,
    /// What was acknowledged must be on the disks: no fault makes one fail or lie, or brings other
    /// Data of a name, which replaces what is there.
    are_records_kept: bool,
    /// The run is over for consumers and producers; what is on its way ends.
    is_settling: bool,
    is_over: bool,
    inputs: Vec<Input>,
    outbox: Outbox,
    app_inputs: Vec<AppInput>,
    app_outbox: AppOutbox,
    /// Ends that have something to send at the end of this step.
    unflushed: Vec<u32>,
}

impl Network {
    /// The network of `plan` at time 0.
    ///
    /// # Errors
    /// The plan contradicts itself.
    pub fn new(plan: &Plan) -> Result<Self, PlanError> {
        plan.check()?;
        check_numbers(plan)?;
        build::build(plan)
    }

    /// Runs to the end of the plan: its duration and drain.
    ///
    /// # Errors
    /// A promise was broken; the run must not go on.
    pub fn run(&mut self, observer: &mut dyn Observer) -> Result<Summary, Violation> {
        self.run_steps(u64::MAX, observer)?;
        Ok(self.summary())
    }

    /// Takes so many steps, or goes to the end of the plan, whichever is first. In slices of, say,
    /// ten thousand steps, it lets a caller with a clock tell how fast the run goes; time in which
    /// nothing happens takes none.
    ///
    /// # Errors
    /// A promise was broken; the run must not go on.
    pub fn run_steps(&mut self, steps: u64, observer: &mut dyn Observer) -> Result<(), Violation> {
        let before = self.summary.steps;
        self.advance(self.end_ns, steps, observer).map_err(|broken| self.violation(broken))?;
        self.summary.virtual_ns = self.summary.virtual_ns.max(self.now_ns);
        if self.summary.steps - before < steps && !self.is_over {
            self.is_over = true;
            self.settle(observer).map_err(|broken| self.violation(broken))?;
        }
        Ok(())
    }

    /// Whether the end of the plan has been reached.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// How far it is, virtual time in ns.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// When the plan ends, ns.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// What the run amounted to so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let interests_looped = self.interests_looped();
        Summary { event_hash: self.digest.value(), interests_looped, ..self.summary }
    }

    /// The consumer or producer of a node, an index into [`Plan::nodes`]; none for a router. For
    /// its counters.
    #[must_use]
    pub fn app(&self, node: usize) -> Option<&App> {
        match &self.nodes.get(node)?.kind {
            NodeKind::App(app) => Some(app),
            NodeKind::Router(_) => None,
        }
    }

    fn now(&self) -> Instant {
        Instant::from_ns(self.now_ns)
    }

    /// Takes the steps up to a time, but no more than `steps`.
    fn advance(
        &mut self,
        until_ns: u64,
        steps: u64,
        observer: &mut dyn Observer,
    ) -> Result<(), Broken> {
        for _ in 0..steps {
            let Some(moment) = self.queue.pop_until(until_ns) else {
                self.now_ns = until_ns;
                return Ok(());
            };
            self.now_ns = moment.at_ns();
            self.summary.steps += 1;
            self.prefetch_next();
            match moment.due() {
                Due::Arrival(end) => self.arrive(end, moment, observer)?,
                Due::Wake(node) => self.wake(node, moment, observer)?,
                Due::Link(end) => self.poll_link(end, moment, observer)?,
                Due::Fault(index) => self.change_fault(index, observer)?,
                Due::Sample => self.sample(observer)?,
                Due::Device(index) => self.wake_device(index, moment)?,
                Due::Processor(index) => self.wake_processor(index, moment, observer)?,
                Due::Control => self.on_control_message(observer)?,
            }
            if !self.unflushed.is_empty() {
                self.flush_gathered();
            }
        }
        Ok(())
    }

    /// Asks for the memory that the next step will touch, while this one is taken: in large
    /// networks most steps wait for memory.
    #[inline]
    fn prefetch_next(&self) {
        let Some(next) = self.queue.peek() else { return };
        match next.due() {
            Due::Arrival(end) => {
                let (from, to) = (&self.ends[end as usize], &self.ends[(end ^ 1) as usize]);
                from.prefetch_arrival();
                to.prefetch_delivery();
            }
            Due::Wake(node) => prefetch_read(&self.nodes[node as usize]),
            _ => {}
        }
    }

    /// Lets what is on its way end, with consumers and producers silent, and looks whether every
    /// PIT is empty then.
    fn settle(&mut self, observer: &mut dyn Observer) -> Result<(), Broken> {
        self.check_bounds()?;
        self.is_settling = true;
        // Interests that were sent at the last moment expire at every router that they still reach,
        // however long their way takes.
        let mut until_ns = self.end_ns;
        loop {
            until_ns = until_ns.saturating_add(self.lifetime_max_ns).saturating_add(1_000_000);
            self.advance(until_ns, u64::MAX, observer)?;
            let is_quiet = |end: &End| end.in_flight.is_empty() && !end.link.holds_interests();
            let is_quiet = self.ends.iter().all(is_quiet) && self.nodes.iter().all(Node::is_quiet);
            if is_quiet {
                break;
            }
        }
        until_ns = until_ns.saturating_add(self.lifetime_max_ns).saturating_add(1_000_000_000);
        self.advance(until_ns, u64::MAX, observer)?;
        self.check_drained()
    }

    #[cold]
    fn violation(&self, broken: Broken) -> Violation {
        let name = |node: u32| self.names[node as usize].clone();
        Violation {
            kind: broken.kind,
            what: broken.what,
            at_ns: self.now_ns,
            node: name(broken.node),
            seed: self.seed,
            last_events: self.recent.texts(name),
        }
    }

    /// Notes what happened: for the digest, and for whoever has to look into a failure.
    #[inline]
    fn note(&mut self, node: u32, face: u32, what: Happened, number: u32) {
        self.digest.mix(self.now_ns);
        self.digest.mix(u64::from(node) << 32 | u64::from(face));
        self.digest.mix((what as u64) << 32 | u64::from(number));
        self.recent.push(Line { at_ns: self.now_ns, node, face, what, number });
    }

    /// Tells the observer.
    fn emit(&mut self, node: u32, kind: EventKind, observer: &mut dyn Observer) {
        if self.is_settling {
            return;
        }
        self.summary.events += 1;
        kind.digest(&mut self.digest);
        observer.observe(&Event { at_ns: self.now_ns, node, kind });
    }

    /// Has a node called at `at_ns`, unless it will be by then anyway.
    #[inline]
    fn wake_at(&mut self, node: u32, at_ns: Option<u64>) {
        let Some(at_ns) = at_ns else { return };
        let at_ns = at_ns.max(self.now_ns + 1);
        let node_state = &mut self.nodes[node as usize];
        if at_ns < node_state.wake.at_ns() {
            let moment = self.queue.moment(at_ns, Due::Wake(node));
            node_state.wake = moment;
            self.queue.push(moment);
        }
    }
}

impl Node {
    fn is_quiet(&self) -> bool {
        match &self.kind {
            NodeKind::Router(router) => router.is_quiet(),
            NodeKind::App(_) => true,
        }
    }
}

/// The engine numbers nodes, ends of links and beginnings and ends of faults.
fn check_numbers(plan: &Plan) -> Result<(), PlanError> {
    let counts = [
        ("nodes", plan.nodes.len()),
        ("links", 2 * plan.links.len()),
        ("faults", 2 * plan.faults.len()),
    ];
    let Some((key, _)) = counts.into_iter().find(|&(_, count)| count >= INDEX_MAX) else {
        return Ok(());
    };
    let problem = format!("are more than the {} that the engine can number", INDEX_MAX / 2);
    Err(PlanError::Value { place: "the plan".into(), key, problem })
}
