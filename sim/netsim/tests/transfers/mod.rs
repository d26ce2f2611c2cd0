//! The transport's consumer and producer over simulated networks: objects with metadata and
//! manifests, and growing objects.
//!
//! [`Fetch`] is the consumer with its driver, and [`Origin`] the producer. [`TestNetwork`] places
//! them in a network: each path of the consumer has a router with a link to the producer's router.

mod holes;
mod live;
mod manifest;
mod object;
mod paths;
mod reliability;

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weir_base::{Instant, Rng};
use weir_netem::{Jitter, LinkConfig, Loss};
use weir_netsim::Network;
use weir_plan::app::{App, AppInput, AppOutbox, Application};
use weir_plan::workload::{Demand, Names, Popularity};
use weir_plan::{LinkPlan, NodePlan, Role, RouterPlan};
use weir_security::DigestVerifier;
use weir_transport::{
    Consumer, ConsumerConfig, ConsumerError, ConsumerEvent, ConsumerInput, ConsumerOutbox,
    ConsumerStats, PacketId, PathId, Producer, ProducerConfig, ProducerInput, ProducerOutbox,
    ReaderMode, SegmentSet, Source, Target, Verdict, VerifyOp,
};
use weir_wire::{DataView, InterestView, LpHeader, NackReason, Name};

use self::object::Object;
use crate::common::{self, MS, PlanBuilder, S, without_store};

/// A round trip of 10 ms and no other limit.
const CLEAN: LinkConfig = LinkConfig {
    rate_bps: None,
    delay_ns: 5 * MS,
    jitter: Jitter::None,
    loss: Loss::None,
    reorder: None,
    queue_bytes_max: u64::MAX,
    queue_packets_max: u32::MAX,
    overhead_bytes: 0,
};
/// Steps after which counters are checked less often: with unanswered Interests, the checks are
/// slow.
const STEPS_CHECKED: u64 = 10_000;

fn object() -> Name {
    "/test/object".parse().unwrap()
}

fn versioned(version: u64) -> Name {
    object().append_version(version).clone()
}

fn latest() -> Target {
    Target::Latest { object: object(), allow_stored: true }
}

/// What a consumer fetches, and how its reader reads.
#[derive(Clone, Debug)]
struct Plan {
    target: Target,
    config: ConsumerConfig,
    seed: u64,
    starts: Instant,
    have: SegmentSet,
    from_newest: bool,
    reader: ReaderMode,
    /// Segments that the reader takes at first.
    reads_first: u32,
    /// Whether the reader takes another segment for each one it gets.
    reads_on: bool,
    /// When the reader takes more segments, and how many.
    reads: VecDeque<(Instant, u32)>,
    /// Duration of a verification.
    verify_ns: u64,
}

impl Plan {
    fn new(target: Target, config: ConsumerConfig) -> Self {
        Self {
            target,
            config,
            seed: 1,
            starts: Instant::ZERO,
            have: SegmentSet::new(),
            from_newest: false,
            reader: ReaderMode::None,
            reads_first: 10,
            reads_on: true,
            reads: VecDeque::new(),
            verify_ns: 0,
        }
    }
}

/// A consumer with its verification and its reader.
struct Fetch {
    plan: Plan,
    consumer: Consumer,
    inputs: Vec<ConsumerInput>,
    out: ConsumerOutbox,
    began: Option<Instant>,
    steps: u64,
    checks: VecDeque<(Instant, VerifyOp)>,
    /// The content of each verified segment.
    segments: BTreeMap<u64, Vec<u8>>,
    /// Segments that the reader got, and when.
    read: Vec<(u64, Instant)>,
    sent: BTreeMap<PathId, u64>,
    is_stored: bool,
    end: Option<(Instant, Result<(), ConsumerError>)>,
}

impl Fetch {
    fn new(plan: Plan, paths: usize) -> Self {
        let add = |path| ConsumerInput::AddPath { path, window: None, is_local: false };
        let Plan { target, config, seed, starts, .. } = plan.clone();
        Self {
            plan,
            consumer: Consumer::new(target, config, seed, starts),
            inputs: (0..paths as u16).map(PathId).map(add).collect(),
            out: ConsumerOutbox::default(),
            began: None,
            steps: 0,
            checks: VecDeque::new(),
            segments: BTreeMap::new(),
            read: Vec::new(),
            sent: BTreeMap::new(),
            is_stored: false,
            end: None,
        }
    }

    fn stats(&self) -> ConsumerStats {
        self.consumer.stats()
    }

    fn result(&self) -> Result<(), ConsumerError> {
        self.end.clone().expect("the fetch has ended").1
    }

    /// Time until the end of the fetch.
    fn took(&self) -> Instant {
        let end = self.end.as_ref().expect("the fetch has ended").0;
        Instant::from_ns(end.ns_since(self.began.expect("it has begun")))
    }

    fn content(&self) -> Vec<u8> {
        self.segments.values().flatten().copied().collect()
    }

    /// The verified segments.
    fn have(&self) -> SegmentSet {
        let mut have = SegmentSet::new();
        for &segment in self.segments.keys() {
            have.insert(segment);
        }
        have
    }

    fn read_segments(&self) -> impl Iterator<Item = u64> {
        self.read.iter().map(|&(segment, _)| segment)
    }

    fn verify(&mut self, op: &VerifyOp) -> Verdict {
        let data = DataView::decode(&op.packet).unwrap();
        let verdict = op.check.run(&data);
        if let (Verdict::Good, PacketId::Segment(segment)) = (&verdict, op.id) {
            let previous = self.segments.insert(segment, data.content.to_vec());
            assert!(previous.is_none(), "{segment} came twice");
        }
        verdict
    }

    /// Inputs other than packets that are due by now.
    fn take_due(&mut self, now: Instant) {
        while let Some((_, op)) = self.checks.pop_front_if(|(at, _)| *at <= now) {
            let verdict = self.verify(&op);
            self.inputs.push(ConsumerInput::Verified { op: op.op, verdict });
        }
        while let Some((_, segments)) = self.plan.reads.pop_front_if(|(at, _)| *at <= now) {
            self.inputs.push(ConsumerInput::Read { segments });
        }
    }

    fn take_outbox(&mut self, now: Instant, out: &mut AppOutbox) {
        for (path, wire) in self.out.interests.iter() {
            *self.sent.entry(path).or_default() += 1;
            out.packets.push((path, LpHeader::default(), wire.into()));
        }
        self.out.interests.clear();
        let ends = now.plus_ns(self.plan.verify_ns);
        self.checks.extend(self.out.verify.drain(..).map(|op| (ends, op)));
        for delivery in self.out.deliveries.drain(..) {
            let PacketId::Segment(segment) = delivery.id else { panic!("{delivery:?}") };
            self.read.push((segment, now));
            if self.plan.reads_on {
                self.inputs.push(ConsumerInput::Read { segments: 1 });
            }
        }
        for event in std::mem::take(&mut self.out.events) {
            match event {
                ConsumerEvent::Found { metadata, stored, .. } => {
                    self.is_stored = stored.is_some();
                    let newest = metadata.newest_segment().unwrap_or(0);
                    if self.plan.from_newest {
                        self.inputs.push(ConsumerInput::Narrow { segments: newest..u64::MAX });
                    }
                    let Plan { have, reader, reads_first, .. } = &self.plan;
                    let (have, reader) = (have.clone(), *reader);
                    self.inputs.push(ConsumerInput::Start { have, reader });
                    self.inputs.push(ConsumerInput::Read { segments: *reads_first });
                }
                ConsumerEvent::NeedKey { key, .. } => {
                    let verifier = Ok(Arc::new(DigestVerifier) as _);
                    self.inputs.push(ConsumerInput::Key { key, verifier });
                }
                ConsumerEvent::Done => self.end = Some((now, Ok(()))),
                ConsumerEvent::Failed(error) => self.end = Some((now, Err(error))),
                _ => {}
            }
        }
    }
}

impl Application for Fetch {
    fn handle(&mut self, now: Instant, inputs: &mut Vec<AppInput>, out: &mut AppOutbox) {
        let packet =
            |AppInput { path, header, packet }| ConsumerInput::Packet { path, header, packet };
        self.inputs.extend(inputs.drain(..).map(packet));
        if now < self.plan.starts || self.end.is_some() {
            return;
        }
        self.began.get_or_insert(now);
        loop {
            self.take_due(now);
            self.consumer.handle(now, &mut self.inputs, &mut self.out);
            self.steps += 1;
            if self.steps < STEPS_CHECKED || self.steps.is_multiple_of(64) {
                self.consumer.assert_consistent();
            }
            self.take_outbox(now, out);
            if self.end.is_some() {
                assert!(self.consumer.has_ended());
                return;
            }
            let is_check_due = self.checks.front().is_some_and(|(at, _)| *at <= now);
            if self.inputs.is_empty() && !is_check_due {
                return;
            }
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        if self.end.is_some() {
            return None;
        }
        let check = self.checks.front().map(|(at, _)| *at);
        let read = self.plan.reads.front().map(|(at, _)| *at);
        let next = [self.consumer.next_wakeup(), check, read].into_iter().flatten().min();
        if self.steps == 0 { Some(self.plan.starts) } else { next }
    }

    fn set_path(&mut self, path: PathId, is_there: bool) {
        self.inputs.push(match is_there {
            true => ConsumerInput::AddPath { path, window: None, is_local: false },
            false => ConsumerInput::RemovePath { path },
        });
    }
}

/// A producer's content, which may change.
trait Changing: Source + Send + 'static {
    /// The producer's inputs at this time.
    fn changes(&mut self, now: Instant) -> Vec<ProducerInput>;

    /// When the next change is due.
    fn next_change(&self) -> Option<Instant> {
        None
    }
}

/// A producer.
struct Origin<S> {
    producer: Producer<S>,
    inputs: Vec<ProducerInput>,
    out: ProducerOutbox,
    /// Fraction of Interests that it rejects at random.
    refuses: f64,
    rng: Rng,
    /// Interests that arrived, and when.
    interests: Vec<(Name, Instant)>,
    /// Interests passed to its application, or rejected.
    unserved: usize,
}

impl<S: Changing> Origin<S> {
    fn new(source: S, config: ProducerConfig) -> Self {
        Self {
            producer: Producer::new(source, config),
            inputs: Vec::new(),
            out: ProducerOutbox::default(),
            refuses: 0.0,
            rng: Rng::from_seed(3),
            interests: Vec::new(),
            unserved: 0,
        }
    }
}

impl<S: Changing> Application for Origin<S> {
    fn handle(&mut self, now: Instant, inputs: &mut Vec<AppInput>, out: &mut AppOutbox) {
        self.inputs.extend(self.producer.source_mut().changes(now));
        for AppInput { path, header, packet } in inputs.drain(..) {
            let Ok(interest) = InterestView::decode(&packet) else { continue };
            self.interests.push((interest.name.to_name(), now));
            if self.rng.unit() < self.refuses {
                let reasons = [NackReason::Duplicate, NackReason::NoRoute, NackReason::Congestion];
                let nack = Some(reasons[self.rng.below(3) as usize]);
                out.packets.push((path, LpHeader { nack, ..header }, packet));
            } else {
                self.inputs.push(ProducerInput::Packet { path, header, packet });
            }
        }
        self.producer.handle(now, &mut self.inputs, &mut self.out);
        self.unserved += self.out.events.drain(..).count();
        self.unserved +=
            self.out.packets.iter().filter(|(_, header, _)| header.nack.is_some()).count();
        out.packets.append(&mut self.out.packets);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let changes = self.producer.source().next_change();
        changes.into_iter().chain(self.producer.next_wakeup()).min()
    }
}

/// A network under construction. Path `i` is router `edges[i]` with link `i` to the producer's
/// router. The local links follow in the order in which applications are added: first the
/// producer's, then the consumer's for each path.
struct TestNetwork {
    builder: PlanBuilder,
    core: usize,
    edges: Vec<usize>,
    producer: Option<(usize, Box<dyn Application>)>,
    consumers: Vec<(usize, Box<dyn Application>)>,
}

impl TestNetwork {
    /// Routers of one kind, each with a link to the producer's router.
    fn with_routers(links: &[LinkConfig], router: &RouterPlan) -> Self {
        let mut builder = PlanBuilder::new(1, 600 * S);
        let core = builder.router(router.clone());
        let mut edges = Vec::new();
        for link in links {
            let edge = builder.router(router.clone());
            let number = builder.link(edge, core, link);
            builder.plan.links[number].mtu = 9000;
            edges.push(edge);
        }
        Self { builder, core, edges, producer: None, consumers: Vec::new() }
    }

    fn new(links: &[LinkConfig]) -> Self {
        Self::with_routers(links, &without_store())
    }

    /// Adds the producer of everything under `/test`.
    fn produce<S: Changing>(&mut self, origin: Origin<S>) {
        self.builder.local = LinkConfig::default();
        let node = self.builder.producer(self.core, common::producer(placeholder()));
        self.producer = Some((node, Box::new(origin)));
    }

    /// Adds a consumer with the given paths.
    fn consume(&mut self, plan: Plan, paths: &[usize]) {
        let demand = Demand::Window { window: 1, count: Some(0) };
        let role = Role::Consumer(common::consumer(placeholder(), demand));
        let node = self.builder.plan.nodes.len();
        self.builder.plan.nodes.push(NodePlan { name: format!("f{node}"), role });
        for &path in paths {
            let link = LinkPlan::local(node, self.edges[path], &LinkConfig::default());
            self.builder.plan.links.push(link);
        }
        self.consumers.push((node, Box::new(Fetch::new(plan, paths.len()))));
    }

    fn run(mut self) -> Done {
        let producer = self.producer.as_ref().map(|(node, _)| *node);
        let consumers: Vec<usize> = self.consumers.iter().map(|(node, _)| *node).collect();
        let mut network = Network::new(&self.builder.plan).unwrap();
        for (node, app) in self.producer.take().into_iter().chain(self.consumers) {
            network.replace(node, app);
        }
        network.run(&mut Vec::new()).unwrap_or_else(|violation| panic!("{violation}"));
        Done { network, producer, consumers }
    }
}

/// Names of the plan's application, which another one replaces.
fn placeholder() -> Names {
    common::names("/test", Popularity::Sequential { objects: 1 }, 1, 1)
}

/// A network after its run.
struct Done {
    network: Network,
    producer: Option<usize>,
    consumers: Vec<usize>,
}

impl Done {
    fn app<T: 'static>(&self, node: usize) -> &T {
        let Some(App::Other(app)) = self.network.app(node) else { panic!("{node} is no other") };
        let app: &dyn Any = &**app;
        app.downcast_ref().expect("its type is known")
    }

    fn fetch(&self, number: usize) -> &Fetch {
        self.app(self.consumers[number])
    }

    fn origin<S: Changing>(&self) -> &Origin<S> {
        self.app(self.producer.expect("there is a producer"))
    }
}

/// Fetches a producer's object over all paths.
fn fetch_over(links: &[LinkConfig], object: Object, plan: Plan) -> Done {
    let mut site = TestNetwork::new(links);
    site.produce(object.origin());
    let paths: Vec<usize> = (0..links.len()).collect();
    site.consume(plan, &paths);
    site.run()
}
