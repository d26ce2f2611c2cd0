//! The event engine: nodes, links and faults in virtual time.

mod apps;
mod build;
mod control;
mod faults;
mod links;
mod nodes;
mod processors;
mod queue;
mod router;
mod shared_disks;
mod summary;
#[cfg(test)]
mod tests;
mod timeline;
mod trace;

use std::sync::Arc;

use weir_base::{FaceId, Instant, prefetch_read};
use weir_control::message::Configuration;
use weir_forward::{Command, Event as RouterEvent, FaceAttributes, FaceScope, Input, Outbox};
use weir_wire::{HopSignal, LpHeader};

use self::apps::{Apps, FaultEffects, path_of};
use self::control::{ControlPlane, NeighbourFaces};
use self::faults::{FaultChange, Faults};
use self::links::{Arrival, Delivery, Links, PacketSource};
use self::nodes::{Node, NodeKind, Nodes};
use self::processors::Processors;
use self::queue::{DueEvent, EventKey};
use self::router::ProducerSet;
use self::shared_disks::SharedDisks;
pub use self::summary::Summary;
use self::timeline::Timeline;
use crate::check::CheckFailure;
use crate::check::recent::TraceKind;
use crate::error::Violation;
use crate::experiments::Experiments;
use weir_plan::app::{App, Application};
use weir_plan::event::{EventKind, Observer};
use weir_plan::{Fault, Plan, PlanError};

/// Runs the routers, consumers, producers and links of a [`Plan`] in virtual time.
///
/// The engine is a discrete-event simulator with one thread. It keeps future events in a heap,
/// takes the first one, sets the clock to its time, and calls one component. The component returns
/// data: packets to send, disk operations, a wake-up time. The engine passes that data on and
/// schedules new events. Components never call the engine. One event stands for each packet and
/// hop.
///
/// # A step
///
/// 1. Take the event with the smallest key from the queue, and set the clock to its time.
/// 2. Prefetch the memory that the following event will touch.
/// 3. Dispatch the event. A frame or a message of the controller arrives, a node wakes, a face is
///    polled, a disk or core finishes, a fault begins or ends, or all counters are sampled.
/// 4. Execute what the called component returned, which may call further components at the same
///    time.
/// 5. Send the frames that faces gathered in this step.
/// 6. Pass the step's events to the observer.
///
/// # Order of events
///
/// An event's key is its time, then a running number that counts scheduled events. Events of the
/// same time therefore run in the order in which they were scheduled. A frame reserves its key when
/// it is sent. Only the first frame in flight of each link direction is in the queue; the others
/// follow as it arrives. A timer that moves to an earlier time schedules a new event. The old event
/// stays in the queue and does nothing.
///
/// Example: a consumer, a router and a producer in a line, with 5 ms for each link and no other
/// delay. Timers are omitted.
///
/// | time | key's number | event | effect |
/// |---|---|---|---|
/// | 0 ms | 0 | consumer wakes | sends an Interest, which reserves number 1 |
/// | 5 ms | 1 | frame at the router | the router forwards the Interest (number 2) |
/// | 10 ms | 2 | frame at the producer | the producer sends the Data (number 3) |
/// | 15 ms | 3 | frame at the router | the router forwards the Data (number 4) |
/// | 20 ms | 4 | frame at the consumer | round-trip time 20 ms |
///
/// # Randomness
///
/// Every random generator gets its seed from `seed_of(plan seed, purpose, index)`. A link's losses
/// therefore stay the same when a router draws more numbers. `Summary::event_hash` covers each hop
/// of each packet, so two runs of one plan have the same hash on every machine.
///
/// The engine must never read a clock, start a thread, or draw from another source than the plan's
/// seed. The observer and the slices of [`Network::run_steps`] must never change a result.
pub struct Network {
    seed: u64,
    end_ns: u64,
    sample_ns: u64,
    names: Arc<[String]>,
    timeline: Timeline,
    nodes: Nodes,
    links: Links,
    apps: Apps,
    faults: Faults,
    shared_disks: SharedDisks,
    processors: Processors,
    control: Option<Box<ControlPlane>>,
    /// Present only if a router has disks.
    producers: ProducerSet,
    /// Whether acknowledged records must still be on the disks at the end. This requires that no
    /// fault makes a disk fail or return wrong data, and that no fault creates other Data of a
    /// name.
    are_records_kept: bool,
    steps: u64,
    virtual_ns: u64,
    is_over: bool,
    /// The output of the router that was called last.
    outbox: Outbox,
}

impl Network {
    /// The network of `plan` at time 0.
    pub fn new(plan: &Plan) -> Result<Self, PlanError> {
        Self::with_experiments(plan, &Experiments::default())
    }

    /// The network of `plan` at time 0, with the extensions in `experiments`.
    ///
    /// # Errors
    /// The plan is invalid, or it needs an extension that is not in `experiments`.
    pub fn with_experiments(plan: &Plan, experiments: &Experiments) -> Result<Self, PlanError> {
        plan.check()?;
        build::build(plan, experiments)
    }

    /// Runs to the end of the plan, which is its duration plus its drain time.
    ///
    /// # Errors
    /// A check failed. The run cannot continue.
    pub fn run(&mut self, observer: &mut dyn Observer) -> Result<Summary, Violation> {
        self.run_steps(u64::MAX, observer)?;
        Ok(self.summary())
    }

    /// Takes `steps` steps, or fewer if the plan ends first.
    ///
    /// A caller with a clock can show progress by slices of, say, ten thousand steps. Virtual time
    /// without events takes no steps.
    ///
    /// # Errors
    /// A check failed. The run cannot continue.
    pub fn run_steps(&mut self, steps: u64, observer: &mut dyn Observer) -> Result<(), Violation> {
        let before = self.steps;
        self.advance(self.end_ns, steps, observer).map_err(|broken| self.violation(broken))?;
        self.virtual_ns = self.virtual_ns.max(self.now_ns());
        // Fewer steps than allowed were taken, so no event is left before the end of the plan.
        if self.steps - before < steps && !self.is_over {
            self.is_over = true;
            self.settle(observer).map_err(|broken| self.violation(broken))?;
        }
        Ok(())
    }

    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The current virtual time, ns.
    pub fn now_ns(&self) -> u64 {
        self.timeline.now_ns()
    }

    /// When the plan ends, ns.
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// The results so far.
    pub fn summary(&self) -> Summary {
        let trace = &self.timeline.trace;
        Summary {
            event_hash: trace.hash(),
            packet_hops: self.links.packet_hops(),
            steps: self.steps,
            events: trace.event_count(),
            virtual_ns: self.virtual_ns,
            damaged_frames: self.links.damaged_frames(),
            damage_noticed: self.apps.damage_noticed(),
            stage_full: trace.stage_full,
            interests_looped: self.nodes.interests_looped(),
        }
    }

    /// The consumer or producer of a node, by its index in [`Plan::nodes`]; `None` for a router.
    /// Gives access to its counters.
    #[must_use]
    pub fn app(&self, node: usize) -> Option<&App> {
        self.nodes.app(node).map(|app| &app.app)
    }

    /// Replaces the consumer or producer of a node with another application, before the run. `node`
    /// is an index into [`Plan::nodes`].
    ///
    /// # Panics
    /// The node is a router.
    pub fn replace(&mut self, node: usize, app: Box<dyn Application>) {
        let wakeup_ns = app.next_wakeup().map(Instant::as_ns);
        let NodeKind::App(replaced) = &mut self.nodes.get_mut(node as u32).kind else {
            panic!("node {node} is a router")
        };
        replaced.app = App::Other(app);
        self.nodes.set_timer(node as u32, wakeup_ns, &mut self.timeline);
    }

    /// Takes steps until `until_ns`, but at most `steps`.
    fn advance(
        &mut self,
        until_ns: u64,
        steps: u64,
        observer: &mut dyn Observer,
    ) -> Result<(), CheckFailure> {
        for _ in 0..steps {
            let Some(moment) = self.timeline.advance(until_ns) else { break };
            self.steps += 1;
            self.prefetch_next();
            let done = self.step(moment);
            if done.is_ok() {
                self.links.flush_gathered(&mut self.timeline);
            }
            self.timeline.trace.take_events().for_each(|event| observer.observe(&event));
            done?;
        }
        Ok(())
    }

    /// Dispatches one event to its component.
    #[inline]
    fn step(&mut self, moment: EventKey) -> Result<(), CheckFailure> {
        match moment.due() {
            DueEvent::Arrival(from_end) => self.on_arrival(from_end, moment),
            DueEvent::Wake(node) if self.nodes.is_due(node, moment) => self.wake(node),
            DueEvent::Link(end) if self.links.is_due(end, moment) => {
                self.links.poll(end, &self.timeline);
                self.deliver_waiting(end, PacketSource::Shaped)
            }
            DueEvent::Device(disk) if self.shared_disks.is_due(disk, moment) => {
                self.end_shared_operations(disk)
            }
            DueEvent::Processor(processor) if self.processors.is_due(processor, moment) => {
                self.end_turns(processor)
            }
            DueEvent::Fault(number) => self.change_fault(number),
            DueEvent::Control => self.on_control_message(),
            DueEvent::Sample => self.sample(),
            // The component has set an earlier timer since, so this event is stale.
            DueEvent::Wake(_)
            | DueEvent::Link(_)
            | DueEvent::Device(_)
            | DueEvent::Processor(_) => Ok(()),
        }
    }

    /// Handles a frame at the end of its link.
    #[inline]
    fn on_arrival(&mut self, from_end: u32, moment: EventKey) -> Result<(), CheckFailure> {
        match self.links.arrive(from_end, moment, &mut self.timeline) {
            Arrival::Nothing => Ok(()),
            Arrival::Packet(delivery) => self.deliver(delivery),
            Arrival::Run => self.deliver_waiting(from_end ^ 1, PacketSource::Run),
            Arrival::Signal { node, face, signal } => self.on_signal(node, face, signal),
        }
    }

    fn deliver_waiting(&mut self, end: u32, waiting: PacketSource) -> Result<(), CheckFailure> {
        while let Some(delivery) = self.links.next_delivery(end, waiting, &mut self.timeline) {
            self.deliver(delivery)?;
        }
        Ok(())
    }

    /// Hands a packet to the node that it reached.
    fn deliver(&mut self, delivery: Delivery) -> Result<(), CheckFailure> {
        let node = delivery.node;
        let router = match &mut self.nodes.get_mut(node).kind {
            NodeKind::Router(router) => router,
            NodeKind::App(app) => {
                self.apps.receive(app, delivery, &self.timeline)?;
                return self.call_app(node);
            }
        };
        // Queries of holdings go to the router itself and pass neither stages nor shards.
        if delivery.what == TraceKind::Interest
            && let Some(asked) = router.holdings_query(&delivery.packet)
        {
            return match router.holdings(self.timeline.now(), &asked) {
                Some(answer) => {
                    let header = LpHeader::default();
                    self.links.send(delivery.end, header, answer, &mut self.timeline)
                }
                None => Ok(()),
            };
        }
        let incarnation = router.incarnation();
        let received = router.receive(delivery, &mut self.outbox, &mut self.timeline);
        if received.wants_processor {
            self.processors.request(incarnation, &mut self.nodes, &mut self.timeline);
        }
        self.after_router(node, received.shard)
    }

    /// A neighbour's signal concerns every shard of a router.
    fn on_signal(
        &mut self,
        node: u32,
        face: FaceId,
        signal: HopSignal,
    ) -> Result<(), CheckFailure> {
        self.give_all_shards(node, || Input::Signal { face, signal })
    }

    /// Passes an input to every shard of a router.
    fn give_all_shards(
        &mut self,
        node: u32,
        input: impl Fn() -> Input,
    ) -> Result<(), CheckFailure> {
        let shards = self.nodes.router(node).map_or(0, |router| router.shard_count());
        (0..shards).try_for_each(|shard| self.give_shard(node, shard, input()))
    }

    fn give_shard(&mut self, node: u32, shard: usize, input: Input) -> Result<(), CheckFailure> {
        if let Some(router) = self.nodes.router_mut(node) {
            router.handle(shard, self.timeline.now(), input, &mut self.outbox);
        }
        self.after_router(node, shard)
    }

    /// A node's wake-up time has come.
    fn wake(&mut self, node: u32) -> Result<(), CheckFailure> {
        self.timeline.note_wakeup(node);
        let Some(router) = self.nodes.router_mut(node) else { return self.call_app(node) };
        router.end_services(&mut self.outbox, &mut self.timeline);
        while let Some(router) = self.nodes.router_mut(node)
            && router.end_disk_operation(&mut self.producers, &mut self.outbox, &mut self.timeline)
        {
            self.execute(node)?;
        }
        if let Some(router) = self.nodes.router_mut(node) {
            router
                .wake(self.timeline.now(), &mut self.outbox)
                .map_err(|what| CheckFailure::liveness(node, what))?;
        }
        self.after_router(node, 0)
    }

    /// Passes finished operations of a shared disk to their routers.
    fn end_shared_operations(&mut self, disk: u32) -> Result<(), CheckFailure> {
        while let Some((incarnation, ended)) = self.shared_disks.complete(disk, &mut self.timeline)
        {
            let router = self.nodes.router_mut(incarnation.node);
            // A crash has already decided what the operations of an earlier incarnation wrote.
            let Some(router) = router.filter(|router| router.is_current(incarnation.number)) else {
                continue;
            };
            let (producers, out) = (&mut self.producers, &mut self.outbox);
            if let Some(shard) = router.end_shared(ended, producers, out, &mut self.timeline) {
                self.execute(incarnation.node)?;
                self.after_router(incarnation.node, shard)?;
            }
        }
        Ok(())
    }

    /// Routers have finished their turns on a processor. Each handles the packet of its turn.
    fn end_turns(&mut self, processor: u32) -> Result<(), CheckFailure> {
        while let Some(incarnation) = self.processors.next_ended(processor, &mut self.timeline) {
            let Some(router) = self.nodes.router_mut(incarnation.node) else { continue };
            let turn = router.end_turn(incarnation.number, &mut self.outbox, &mut self.timeline);
            if let Some(shard) = turn.shard {
                self.after_router(incarnation.node, shard)?;
            }
            let timeline = &mut self.timeline;
            self.processors.end_turn(processor, incarnation, &turn, &mut self.nodes, timeline);
        }
        Ok(())
    }

    /// Executes a router's output, and sets its next wake-up time.
    #[inline]
    fn after_router(&mut self, node: u32, shard: usize) -> Result<(), CheckFailure> {
        self.execute(node)?;
        let Some(router) = self.nodes.router_mut(node) else { return Ok(()) };
        let checked = router.check_sometimes(shard);
        let wakeup_ns = router.next_wakeup_ns();
        checked.map_err(|what| CheckFailure::invariant(node, what))?;
        self.nodes.set_timer(node, wakeup_ns, &mut self.timeline);
        Ok(())
    }

    /// Executes a router's output: operations of a shared disk, packets, signals and queries to the
    /// controller.
    #[inline]
    fn execute(&mut self, node: u32) -> Result<(), CheckFailure> {
        if let Some(disk) = self.shared_disks.of_node(node)
            && let Some(router) = self.nodes.router_mut(node)
        {
            let incarnation = router.incarnation();
            if let Some(operations) = router.take_shared_operations() {
                self.shared_disks.submit(disk, incarnation, operations, &mut self.timeline);
            }
        }
        let Self { nodes, links, timeline, outbox, control, .. } = self;
        let state = nodes.get(node);
        for out in outbox.packets.drain(..) {
            if is_marked_by_store(&out.header) {
                check_mark(state, links, &out.packet)
                    .map_err(|what| CheckFailure::invariant(node, what))?;
            }
            if let Some(end) = state.end_of(out.face) {
                links.send(end, out.header, out.packet, timeline)?;
            }
        }
        for (face, signal) in outbox.signals.drain(..) {
            if let Some(end) = state.end_of(face) {
                links.send_signal(end, signal, timeline);
            }
        }
        let mut announcements_needed = Vec::new();
        for event in outbox.events.drain(..) {
            if let RouterEvent::AnnouncementNeeded { prefix } = event {
                announcements_needed.push(prefix);
                continue;
            }
            // The router lacks segments of a large object that an application requests.
            if let RouterEvent::Missed { ingress, object, .. } = event
                && let Some(control) = control
                && let Some(end) = state.end_of(ingress)
                && !nodes.is_router(links.peer(end))
            {
                control.query(node, links.peer(end), object, timeline);
            }
        }
        // A simulated router has no manager, so there are no announcements.
        announcements_needed.into_iter().try_for_each(|prefix| {
            self.give_all_shards(node, || {
                let (prefix, announcement) = (prefix.clone(), None);
                Input::Command(Command::SetAnnouncement { prefix, announcement })
            })
        })
    }

    /// Calls an application with its buffered packets, and sends its packets.
    fn call_app(&mut self, node: u32) -> Result<(), CheckFailure> {
        // Computed for each call, because a fault may begin or end at any step.
        let effects = FaultEffects {
            until_ns: self.faults.effects_end_ns(),
            has_damage: self.links.damaged_frames() > 0,
        };
        let Node { kind: NodeKind::App(app), ends, .. } = self.nodes.get_mut(node) else {
            return Ok(());
        };
        let wakeup_ns = self.apps.call(node, app, effects, &mut self.timeline)?;
        for (path, header, packet) in self.apps.take_packets() {
            self.links.send(ends[usize::from(path.0)], header, packet, &mut self.timeline)?;
        }
        self.nodes.set_timer(node, wakeup_ns, &mut self.timeline);
        Ok(())
    }

    /// Begins or ends a fault.
    fn change_fault(&mut self, number: u32) -> Result<(), CheckFailure> {
        let change = self.faults.change(number);
        let FaultChange { index: fault, begins, .. } = change;
        let node = match change.fault {
            Fault::LinkDown { link, .. } => self.links.set_up(link, !begins),
            Fault::LinkSlow { link, share, .. } => {
                self.links.set_rate_share(link, if begins { share } else { 1.0 })
            }
            Fault::WrongBytes { link, probability, .. } => {
                self.links.change_damage(link, if begins { probability } else { -probability })
            }
            Fault::Crash { node, .. } if begins => self.crash(node as u32),
            Fault::Crash { node, .. } => self.restart(node as u32),
            Fault::StoreStall { node, .. }
            | Fault::DiskStall { node, .. }
            | Fault::DiskErrors { node, .. }
            | Fault::DiskDamage { node, .. }
            | Fault::DiskFull { node, .. } => {
                if let Some(router) = self.nodes.router_mut(node as u32) {
                    router.change_fault(&change, self.timeline.now(), &mut self.outbox);
                }
                node as u32
            }
        };
        let changed = if begins { TraceKind::FaultBegins } else { TraceKind::FaultEnds };
        self.timeline.note(node, 0, changed, fault);
        self.timeline.emit(node, EventKind::FaultChanged { fault, begins });
        // Applications with several links stop using a link that is down.
        if let Fault::LinkDown { link, .. } = change.fault {
            self.report_link(link as u32)?;
        }
        if self.nodes.is_router(node) {
            self.after_router(node, 0)?;
        }
        Ok(())
    }

    fn crash(&mut self, node: u32) -> u32 {
        if !self.nodes.take_down(node) {
            return node;
        }
        let Node { kind, ends, .. } = self.nodes.get_mut(node);
        for &end in &*ends {
            self.links.set_node_down(end, true);
        }
        if let NodeKind::Router(router) = kind {
            router.crash(self.timeline.now(), &mut self.producers);
            ends.iter().for_each(|&end| self.links.restart(end));
        }
        node
    }

    fn restart(&mut self, node: u32) -> u32 {
        if !self.nodes.bring_up(node) {
            return node;
        }
        let Node { kind, ends, .. } = self.nodes.get_mut(node);
        for &end in &*ends {
            self.links.set_node_down(end, false);
        }
        if let NodeKind::Router(router) = kind {
            router.restart(self.timeline.now(), &mut self.outbox);
            if let Some(control) = &mut self.control {
                control.on_restart(node, &mut self.timeline);
            }
        }
        node
    }

    /// Reports a link's new state to applications with several links.
    fn report_link(&mut self, link: u32) -> Result<(), CheckFailure> {
        for end in 2 * link..2 * link + 2 {
            let end = self.links.end(end);
            let (node, face, is_up) = (end.node, end.face, end.is_up());
            if let Node { kind: NodeKind::App(app), ends, .. } = self.nodes.get_mut(node)
                && ends.len() > 1
            {
                app.app.set_path(path_of(face), is_up);
                self.call_app(node)?;
            }
        }
        Ok(())
    }

    /// A message from or to the controller arrives.
    fn on_control_message(&mut self) -> Result<(), CheckFailure> {
        let control = self.control.as_mut();
        match control.and_then(|control| control.receive(&mut self.timeline)) {
            Some((node, configuration)) => self.configure(node, &configuration),
            None => Ok(()),
        }
    }

    /// Applies a configuration of the controller to a router: routes, faces, ranges of objects, and
    /// prefetches.
    fn configure(&mut self, node: u32, configuration: &Configuration) -> Result<(), CheckFailure> {
        let wrong =
            |what: &dyn std::fmt::Display| CheckFailure::correctness(node, what.to_string());
        let faces = self.faces_to_routers(node);
        let Self { control: Some(control), nodes, .. } = self else { return Ok(()) };
        let Some(router) = nodes.router(node) else { return Ok(()) };
        // Routes come first: the new faces and next hops below build on them.
        let routes = control.routes(router, configuration, &faces);
        let links = control.links_to_make(node, configuration, &faces);
        self.command(node, routes)?;
        // New links change the router's faces, so these are read again afterwards.
        for (other, delay_ns) in links {
            self.join(node, other, delay_ns)?;
        }
        let faces = self.faces_to_routers(node);
        let Self { control: Some(control), nodes, .. } = self else { return Ok(()) };
        let Some(router) = nodes.router(node) else { return Ok(()) };
        let settings = control.settings(router, configuration, &faces);
        let settings = settings.map_err(|error| wrong(&format_args!("the controller: {error}")))?;
        let prefetchers = control.prefetch(node, configuration);
        self.command(node, settings)?;
        for (node, consumer) in prefetchers.map_err(|what| wrong(&what))? {
            if let NodeKind::App(app) = &mut self.nodes.get_mut(node).kind {
                app.app = consumer;
            }
            self.call_app(node)?;
        }
        Ok(())
    }

    fn faces_to_routers(&self, node: u32) -> NeighbourFaces {
        let faces = self.nodes.faces_to_routers(node, &self.links);
        faces.map(|(peer, _, face)| (peer, face)).collect()
    }

    /// Passes commands to every shard of a router.
    fn command<C>(&mut self, node: u32, commands: Vec<C>) -> Result<(), CheckFailure>
    where
        C: Clone + Into<Command>,
    {
        let shards = self.nodes.router(node).map_or(0, |router| router.shard_count());
        for shard in 0..shards {
            for command in commands.clone() {
                self.give_shard(node, shard, Input::Command(command.into()))?;
            }
        }
        Ok(())
    }

    /// Joins two routers by a new link, with faces like those to their neighbours.
    fn join(&mut self, one: u32, other: u32, delay_ns: u64) -> Result<(), CheckFailure> {
        if !self.links.has_capacity() {
            return Ok(());
        }
        let neighbour = |node| self.nodes.faces_to_routers(node, &self.links).next();
        let (Some(like_one), Some(like_other)) = (neighbour(one), neighbour(other)) else {
            return Ok(());
        };
        let mut faces = Vec::new();
        for (node, (_, like, _)) in [(one, like_one), (other, like_other)] {
            let face = self.nodes.next_face(node);
            // The two ends must follow each other: the other end of `end` is `end ^ 1`.
            let end = self.links.add_like(like, face, delay_ns);
            self.links.set_node_down(end, self.nodes.is_down(node));
            self.nodes.add_end(node, end);
            faces.push((node, face));
        }
        // A router may send as soon as it has the face, so both ends must exist by now.
        for (node, face) in faces {
            if let Some(router) = self.nodes.router_mut(node) {
                router.add_face(face);
            }
            let attributes = FaceAttributes::point_to_point(FaceScope::NonLocal);
            let add = || Input::Command(Command::AddFace { face, attributes });
            self.give_all_shards(node, add)?;
        }
        Ok(())
    }

    /// Samples all counters, and schedules the next sample.
    fn sample(&mut self) -> Result<(), CheckFailure> {
        self.check_bounds()?;
        self.nodes.sample(&mut self.links, &mut self.timeline);
        self.links.sample(&mut self.timeline);
        let next_ns = self.now_ns().saturating_add(self.sample_ns);
        if next_ns <= self.end_ns {
            self.timeline.schedule(next_ns, DueEvent::Sample);
        }
        Ok(())
    }

    /// Checks that tables and queues are within their bounds.
    fn check_bounds(&mut self) -> Result<(), CheckFailure> {
        self.nodes.check()?;
        self.links.check(&self.timeline)
    }

    /// Lets packets in flight finish without calling applications, then checks that every PIT is
    /// empty.
    fn settle(&mut self, observer: &mut dyn Observer) -> Result<(), CheckFailure> {
        self.check_bounds()?;
        self.apps.close();
        self.timeline.trace.close();
        // An Interest sent at the very end starts a new lifetime at each router that it reaches.
        // Wait one lifetime at a time until nothing is in flight, then once more for the last
        // entries.
        let mut until_ns = self.end_ns;
        loop {
            let lifetime_max_ns = self.links.lifetime_max_ns();
            until_ns = until_ns.saturating_add(lifetime_max_ns).saturating_add(1_000_000);
            self.advance(until_ns, u64::MAX, observer)?;
            if self.links.are_quiet() && self.nodes.are_quiet() {
                break;
            }
        }
        let lifetime_max_ns = self.links.lifetime_max_ns();
        until_ns = until_ns.saturating_add(lifetime_max_ns).saturating_add(1_000_000_000);
        self.advance(until_ns, u64::MAX, observer)?;
        self.nodes.check_drained(self.timeline.now(), self.are_records_kept, &mut self.producers)
    }

    /// Prefetches the memory of the next step during this one. In large networks, most steps wait
    /// for memory.
    #[inline]
    fn prefetch_next(&self) {
        match self.timeline.peek().map(EventKey::due) {
            Some(DueEvent::Arrival(end)) => self.links.prefetch_arrival(end),
            Some(DueEvent::Wake(node)) => prefetch_read(self.nodes.get(node)),
            _ => {}
        }
    }

    #[cold]
    fn violation(&self, broken: CheckFailure) -> Violation {
        let name = |node: u32| self.names[node as usize].clone();
        Violation {
            kind: broken.kind,
            what: broken.what,
            at_ns: self.now_ns(),
            node: name(broken.node),
            seed: self.seed,
            last_events: self.timeline.trace.last_lines(name),
        }
    }
}

/// Whether the router's own store marked this packet.
fn is_marked_by_store(header: &LpHeader) -> bool {
    header.congestion_mark > 0 && header.incoming_face == Some(FaceId::CONTENT_STORE.0)
}

/// Checks a mark that a router's store set on a Data.
#[cold]
fn check_mark(node: &Node, links: &Links, data: &[u8]) -> Result<(), String> {
    let NodeKind::Router(router) = &node.kind else { return Ok(()) };
    // The store may mark only if no other neighbour was available at that time. A neighbour may
    // have requested this Data itself, or may have been unavailable then. Only a neighbour that
    // sent neither an Interest nor a signal was certainly available.
    let is_available = |face| node.end_of(face).is_some_and(|end| links.end(end).is_untouched());
    router.check_mark(data, is_available)
}
