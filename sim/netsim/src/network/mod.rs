//! The event engine: nodes, links and faults under virtual time.

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

/// The routers, consumers, producers and links of a [`Plan`] under virtual time.
///
/// One plan, one result: everything random follows from the plan's seed, events of one moment come
/// in the order in which they were scheduled, and an observer changes nothing.
///
/// A step takes the next event and calls the component that it is for. What the component returns
/// goes to the next one: a link's packet to its node, a router's packets to links, its disk
/// operations to a shared disk. Components never call the network.
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
    /// Only where a router has disks.
    library: ProducerSet,
    /// What was acknowledged must be on the disks: no fault makes one fail or lie, or brings other
    /// Data of a name, which replaces what is there.
    are_records_kept: bool,
    steps: u64,
    virtual_ns: u64,
    is_over: bool,
    /// Of the router that was called last.
    outbox: Outbox,
}

impl Network {
    /// The network of `plan` at time 0.
    pub fn new(plan: &Plan) -> Result<Self, PlanError> {
        Self::with_experiments(plan, &Experiments::default())
    }

    /// The network of `plan` at time 0, whose nodes may have these parts.
    ///
    /// # Errors
    /// The plan contradicts itself, or needs a part that is not in `experiments`.
    pub fn with_experiments(plan: &Plan, experiments: &Experiments) -> Result<Self, PlanError> {
        plan.check()?;
        build::build(plan, experiments)
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
    /// ten thousand steps, it lets a caller with a clock report how fast the run goes; time in
    /// which nothing happens takes none.
    ///
    /// # Errors
    /// A promise was broken; the run must not go on.
    pub fn run_steps(&mut self, steps: u64, observer: &mut dyn Observer) -> Result<(), Violation> {
        let before = self.steps;
        self.advance(self.end_ns, steps, observer).map_err(|broken| self.violation(broken))?;
        self.virtual_ns = self.virtual_ns.max(self.now_ns());
        if self.steps - before < steps && !self.is_over {
            self.is_over = true;
            self.settle(observer).map_err(|broken| self.violation(broken))?;
        }
        Ok(())
    }

    /// Whether the end of the plan has been reached.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// How far it is, virtual time in ns.
    pub fn now_ns(&self) -> u64 {
        self.timeline.now_ns()
    }

    /// When the plan ends, ns.
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// What the run amounted to so far.
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

    /// The consumer or producer of a node, an index into [`Plan::nodes`]; none for a router. For
    /// its counters.
    #[must_use]
    pub fn app(&self, node: usize) -> Option<&App> {
        self.nodes.app(node).map(|app| &app.app)
    }

    /// Puts an application that no plan describes in the place of the consumer or producer of a
    /// node, an index into [`Plan::nodes`]. To be done before the run.
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

    /// Takes the steps up to a time, but no more than `steps`.
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
            // The component has replaced this event by an earlier one since.
            DueEvent::Wake(_)
            | DueEvent::Link(_)
            | DueEvent::Device(_)
            | DueEvent::Processor(_) => Ok(()),
        }
    }

    /// A frame reaches the end of its link.
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

    /// Hands a packet to the node that it has reached.
    fn deliver(&mut self, delivery: Delivery) -> Result<(), CheckFailure> {
        let node = delivery.node;
        let router = match &mut self.nodes.get_mut(node).kind {
            NodeKind::Router(router) => router,
            NodeKind::App(app) => {
                self.apps.receive(app, delivery, &self.timeline)?;
                return self.call_app(node);
            }
        };
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

    /// What a neighbour says about itself concerns every shard of a router.
    fn on_signal(
        &mut self,
        node: u32,
        face: FaceId,
        signal: HopSignal,
    ) -> Result<(), CheckFailure> {
        self.give_all_shards(node, || Input::Signal { face, signal })
    }

    /// Gives every shard of a router an input.
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

    /// The time that a node has asked for has come.
    fn wake(&mut self, node: u32) -> Result<(), CheckFailure> {
        self.timeline.note_wakeup(node);
        let Some(router) = self.nodes.router_mut(node) else { return self.call_app(node) };
        router.end_services(&mut self.outbox, &mut self.timeline);
        while let Some(router) = self.nodes.router_mut(node)
            && router.end_disk_operation(&mut self.library, &mut self.outbox, &mut self.timeline)
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

    /// Operations of a shared disk have ended: their routers are told.
    fn end_shared_operations(&mut self, disk: u32) -> Result<(), CheckFailure> {
        while let Some((incarnation, ended)) = self.shared_disks.complete(disk, &mut self.timeline)
        {
            let router = self.nodes.router_mut(incarnation.node);
            let Some(router) = router.filter(|router| router.is_current(incarnation.number)) else {
                continue;
            };
            let (library, out) = (&mut self.library, &mut self.outbox);
            if let Some(shard) = router.end_shared(ended, library, out, &mut self.timeline) {
                self.execute(incarnation.node)?;
                self.after_router(incarnation.node, shard)?;
            }
        }
        Ok(())
    }

    /// Routers have had their time on a processor: each takes up the packet that it had it for.
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

    /// Carries out what a router wants, and sets when it is called next.
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

    /// Carries out what a router wants: operations of a shared disk, packets, signals, questions
    /// to the controller.
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
        for event in outbox.events.drain(..) {
            // It lacks segments of a large object that an application wants.
            if let RouterEvent::Missed { ingress, object, .. } = event
                && let Some(control) = control
                && let Some(end) = state.end_of(ingress)
                && !nodes.is_router(links.peer(end))
            {
                control.query(node, links.peer(end), object, timeline);
            }
        }
        Ok(())
    }

    /// Gives an application what came for it, and sends what it wants sent.
    fn call_app(&mut self, node: u32) -> Result<(), CheckFailure> {
        let excuse = FaultEffects {
            until_ns: self.faults.effects_end_ns(),
            has_damage: self.links.damaged_frames() > 0,
        };
        let Node { kind: NodeKind::App(app), ends, .. } = self.nodes.get_mut(node) else {
            return Ok(());
        };
        let wakeup_ns = self.apps.call(node, app, excuse, &mut self.timeline)?;
        for (path, header, packet) in self.apps.take_packets() {
            self.links.send(ends[usize::from(path.0)], header, packet, &mut self.timeline)?;
        }
        self.nodes.set_timer(node, wakeup_ns, &mut self.timeline);
        Ok(())
    }

    /// A fault begins or ends.
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
            router.crash(self.timeline.now(), &mut self.library);
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

    /// A link has gone down or come up: an application with several links sees that.
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

    /// A message to the controller, or from it, arrives.
    fn on_control_message(&mut self) -> Result<(), CheckFailure> {
        let control = self.control.as_mut();
        match control.and_then(|control| control.receive(&mut self.timeline)) {
            Some((node, configuration)) => self.configure(node, &configuration),
            None => Ok(()),
        }
    }

    /// A router does what the controller says: routes, faces, parts of objects, and what it fetches
    /// ahead.
    fn configure(&mut self, node: u32, configuration: &Configuration) -> Result<(), CheckFailure> {
        let wrong =
            |what: &dyn std::fmt::Display| CheckFailure::correctness(node, what.to_string());
        let faces = self.faces_to_routers(node);
        let Self { control: Some(control), nodes, .. } = self else { return Ok(()) };
        let Some(router) = nodes.router(node) else { return Ok(()) };
        let routes = control.routes(router, configuration, &faces);
        let links = control.links_to_make(node, configuration, &faces);
        self.command(node, routes)?;
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

    /// Gives every shard of a router commands.
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

    /// Joins two routers by a link of its own, with faces as those to their neighbours.
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
            let end = self.links.add_like(like, face, delay_ns);
            self.links.set_node_down(end, self.nodes.is_down(node));
            self.nodes.add_end(node, end);
            faces.push((node, face));
        }
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

    /// Samples everything, and schedules the next time.
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

    /// Tables and queues are within their bounds.
    fn check_bounds(&mut self) -> Result<(), CheckFailure> {
        self.nodes.check()?;
        self.links.check(&self.timeline)
    }

    /// Lets what is on its way end, with consumers and producers silent, and looks whether every
    /// PIT is empty then.
    fn settle(&mut self, observer: &mut dyn Observer) -> Result<(), CheckFailure> {
        self.check_bounds()?;
        self.apps.close();
        self.timeline.trace.close();
        // Interests that were sent at the last moment expire at every router that they still reach,
        // however long their way takes.
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
        self.nodes.check_drained(self.timeline.now(), self.are_records_kept, &mut self.library)
    }

    /// Asks for the memory that the next step will touch, while this one is taken: in large
    /// networks most steps wait for memory.
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

/// Whether a router's own store marked what leaves.
fn is_marked_by_store(header: &LpHeader) -> bool {
    header.congestion_mark > 0 && header.incoming_face == Some(FaceId::CONTENT_STORE.0)
}

/// The store of a router marks a Data.
#[cold]
fn check_mark(node: &Node, links: &Links, data: &[u8]) -> Result<(), String> {
    let NodeKind::Router(router) = &node.kind else { return Ok(()) };
    // A neighbour that asks may be who asked for this, and one that was not available once may
    // have been so when it mattered.
    let is_available = |face| node.end_of(face).is_some_and(|end| links.end(end).is_untouched());
    router.check_mark(data, is_available)
}
