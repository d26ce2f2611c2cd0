//! What comes to a node: packets, and its own time.

use weir_base::{FaceId, Instant, Packet};
use weir_forward::{Command, Event as RouterEvent, Input, InterestStep, Onward};
use weir_link::Received;
use weir_wire::{HopSignal, LpHeader, PacketView};

use super::disk::Done;
use super::holdings;
use super::queue::{Due, Moment};
use super::stages::{CpuEntered, Entered, Job, Served, queue_of};
use super::{Network, Node, NodeKind};
use crate::check::octets::{self, Produced};
use crate::check::recent::Happened;
use crate::check::{Broken, liveness};
use crate::peek::Peek;
use weir_plan::WhenFull;
use weir_plan::app::{App, AppInput, PathId};
use weir_plan::event::{EventKind, Observer, Queue};

impl Network {
    /// The first frame from `from_end` reaches the other end.
    pub(super) fn arrive(
        &mut self,
        from_end: u32,
        moment: Moment,
        observer: &mut dyn Observer,
    ) -> Result<(), Broken> {
        let sender = &mut self.ends[from_end as usize];
        // A frame that came to be first later has taken the place of the one scheduled then.
        if sender.in_flight.front().is_none_or(|first| first.moment != moment) {
            return Ok(());
        }
        let Some(arrived) = sender.in_flight.pop_front() else { return Ok(()) };
        if let Some(next) = sender.in_flight.front() {
            self.queue.push(next.moment);
        }
        let bytes = arrived.frame.len() as u32;
        let survives = sender.model.survives(arrived.cuts, bytes);
        let end_index = from_end ^ 1;
        let end = &mut self.ends[end_index as usize];
        let (node, face) = (end.node, end.face);
        if !survives {
            self.note(node, face.0 as u32, Happened::LostInCut, bytes);
            return Ok(());
        }
        if self.nodes[node as usize].downs > 0 {
            end.past.drops += 1;
            self.note(node, face.0 as u32, Happened::LostToCrash, bytes);
            return Ok(());
        }
        let now = Instant::from_ns(self.now_ns);
        end.tell_backlog(now);
        let received = end.link.receive(now, arrived.frame, &mut self.pool);
        if end.link.is_reliable() {
            self.flush(end_index, now);
            self.schedule_link(end_index);
        }
        match received {
            Received::Packet { header, packet } => {
                self.deliver(end_index, header, packet, observer)
            }
            Received::Run => self.deliver_run(end_index, observer),
            Received::Held | Received::Offer(_) => {
                self.note(node, face.0 as u32, Happened::Held, bytes);
                self.flush(end_index, now);
                self.schedule_link(end_index);
                Ok(())
            }
            Received::Partial => {
                self.schedule_link(end_index);
                self.note(node, face.0 as u32, Happened::Fragment, bytes);
                Ok(())
            }
            Received::Signal(signal) => {
                self.ends[end_index as usize].had_signal = true;
                self.note(node, face.0 as u32, Happened::Signal, bytes);
                self.hand_to_all_shards(node, face, signal)
            }
            Received::Idle | Received::Drop(_) => {
                self.note(node, face.0 as u32, Happened::Refused, bytes);
                Ok(())
            }
        }
    }

    /// Several Interests that came in one frame.
    fn deliver_run(&mut self, end_index: u32, observer: &mut dyn Observer) -> Result<(), Broken> {
        let now = self.now();
        loop {
            let link = &mut self.ends[end_index as usize].link;
            let Some((header, packet)) = link.next_in_run(now, &mut self.pool) else { break };
            self.deliver(end_index, header, packet, observer)?;
        }
        // Shaping may hold some, and refuse others.
        self.flush(end_index, now);
        self.schedule_link(end_index);
        Ok(())
    }

    /// What the neighbour at a face says of itself concerns every shard.
    fn hand_to_all_shards(
        &mut self,
        node: u32,
        face: FaceId,
        signal: HopSignal,
    ) -> Result<(), Broken> {
        let shards = match &self.nodes[node as usize].kind {
            NodeKind::Router(router) => router.shards.len(),
            NodeKind::App(_) => 0,
        };
        for shard in 0..shards {
            self.hand_to_shard(node, shard, Input::Signal { face, signal });
            self.after_router(node, shard)?;
        }
        Ok(())
    }

    /// Has the state of a face called when it wants to be, unless it will be by then anyway.
    #[inline]
    pub(super) fn schedule_link(&mut self, end_index: u32) {
        let end = &mut self.ends[end_index as usize];
        let Some(at) = end.link.next_wakeup() else { return };
        let at_ns = at.as_ns().max(self.now_ns + 1);
        if at_ns < end.poll.at_ns() {
            end.poll = self.queue.moment(at_ns, Due::Link(end_index));
            self.queue.push(end.poll);
        }
    }

    /// The time of the state of a face has come.
    pub(super) fn poll_link(
        &mut self,
        end_index: u32,
        moment: Moment,
        observer: &mut dyn Observer,
    ) -> Result<(), Broken> {
        let now = self.now();
        let end = &mut self.ends[end_index as usize];
        if end.poll != moment {
            return Ok(());
        }
        end.poll = Moment::NEVER;
        end.link.set_socket_backlog(end.model.queue_bytes(now));
        end.link.poll(now);
        loop {
            let end = &mut self.ends[end_index as usize];
            end.tell_backlog(now);
            let Some((header, packet)) = end.link.take_released(now) else { break };
            self.deliver(end_index, header, packet, observer)?;
        }
        self.flush(end_index, now);
        self.schedule_link(end_index);
        Ok(())
    }

    /// A whole packet for the node of an end.
    fn deliver(
        &mut self,
        end_index: u32,
        header: LpHeader,
        packet: Packet,
        observer: &mut dyn Observer,
    ) -> Result<(), Broken> {
        self.summary.packet_hops += 1;
        let end = &mut self.ends[end_index as usize];
        let (node, face) = (end.node, end.face);
        let peek = Peek::of(&packet);
        let what = match &peek {
            Some(peek) if peek.is_interest && header.nack.is_none() => {
                let patience_ns = end.patience_ns;
                end.has_asked = true;
                let lifetime_ns = end.answers.on_interest(self.now_ns, &packet, peek, patience_ns);
                self.lifetime_max_ns = self.lifetime_max_ns.max(lifetime_ns);
                Happened::Interest
            }
            Some(peek) if peek.is_interest => Happened::Nack,
            _ => Happened::Data,
        };
        self.note(node, face.0 as u32, what, packet.len() as u32);
        if self.tells_holdings
            && what == Happened::Interest
            && let Some(asked) = holdings::asked(&packet)
            && matches!(self.nodes[node as usize].kind, NodeKind::Router(_))
        {
            return self.tell_holdings_at(end_index, &asked);
        }
        match &mut self.nodes[node as usize].kind {
            NodeKind::Router(router) => {
                let shard = router.shard_of(&header, &packet);
                let has_stages = router.stages.is_some();
                if has_stages {
                    let step = InterestStep::Arrival;
                    self.enter_stages(node, Job { shard, face, header, packet, step }, observer);
                } else {
                    self.hand_to_shard(node, shard, Input::Packet { face, header, packet });
                }
                self.after_router(node, shard)
            }
            NodeKind::App(_) => {
                if let Some(progress) = &mut self.nodes[node as usize].progress {
                    progress
                        .on_delivery(self.now_ns)
                        .map_err(|what| Broken::liveness(node, what))?;
                }
                let path = PathId((face.0 - FaceId::FIRST.0) as u16);
                self.app_inputs.push(AppInput { path, header, packet });
                self.call_app(node, observer)
            }
        }
    }

    #[inline]
    fn hand_to_shard(&mut self, node: u32, shard: usize, input: Input) {
        let now = self.now();
        let NodeKind::Router(router) = &mut self.nodes[node as usize].kind else { return };
        self.inputs.push(input);
        router.handle(shard, now, &mut self.inputs, &mut self.outbox);
        self.inputs.clear();
    }

    /// Sends what a router wants sent, and sees when it wants to be called again.
    #[inline]
    pub(super) fn after_router(&mut self, node: u32, shard: usize) -> Result<(), Broken> {
        self.send_out(node)?;
        let NodeKind::Router(router) = &mut self.nodes[node as usize].kind else { return Ok(()) };
        let asked = router.disks.as_mut().map_or(Ok(()), |disks| disks.take_broken());
        let checked = asked.and_then(|()| router.check_sometimes(shard));
        let wakeup_ns = router.next_wakeup_ns();
        checked.map_err(|what| Broken::invariant(node, what))?;
        self.wake_at(node, wakeup_ns);
        Ok(())
    }

    /// Sends what a router wants sent.
    #[inline]
    fn send_out(&mut self, node: u32) -> Result<(), Broken> {
        self.ask_device(node);
        let mut packets = std::mem::take(&mut self.outbox.packets);
        for out in packets.drain(..) {
            let slot = out.face.0.wrapping_sub(FaceId::FIRST.0) as usize;
            if out.header.congestion_mark > 0
                && out.header.incoming_face == Some(FaceId::CONTENT_STORE.0)
            {
                self.check_mark(node, &out.packet)?;
            }
            if let Some(&end) = self.nodes[node as usize].ends.get(slot) {
                self.send(end, out.header, out.packet)?;
            }
        }
        self.outbox.packets = packets;
        let mut signals = std::mem::take(&mut self.outbox.signals);
        for (face, signal) in signals.drain(..) {
            let slot = face.0.wrapping_sub(FaceId::FIRST.0) as usize;
            if let Some(&end) = self.nodes[node as usize].ends.get(slot) {
                self.send_signal(end, signal);
            }
        }
        self.outbox.signals = signals;
        self.take_events(node);
        Ok(())
    }

    /// A router says that it lacks parts of large objects. What else it says nobody asked for.
    #[inline]
    fn take_events(&mut self, node: u32) {
        let mut events = std::mem::take(&mut self.outbox.events);
        for event in events.drain(..) {
            if let RouterEvent::Missed { ingress, object, .. } = event {
                self.ask_controller(node, ingress, object);
            }
        }
        self.outbox.events = events;
    }

    /// Gives a shard of a router a command.
    pub(super) fn command(
        &mut self,
        node: u32,
        shard: usize,
        command: Command,
    ) -> Result<(), Broken> {
        self.hand_to_shard(node, shard, Input::Command(command));
        self.after_router(node, shard)
    }

    /// The store of a router marks a Data.
    #[cold]
    fn check_mark(&self, node: u32, data: &[u8]) -> Result<(), Broken> {
        let state = &self.nodes[node as usize];
        let NodeKind::Router(router) = &state.kind else { return Ok(()) };
        // A neighbour that asks may be who asked for this, and one that was not available once may
        // have been so when it mattered.
        let is_available = |face: &FaceId| {
            let slot = face.0.wrapping_sub(FaceId::FIRST.0) as usize;
            let end = state.ends.get(slot).map(|&end| &self.ends[end as usize]);
            end.is_some_and(|end| !end.has_asked && !end.had_signal)
        };
        router.check_mark(data, is_available).map_err(|what| Broken::invariant(node, what))
    }

    /// A packet for a router with queues between its stages.
    fn enter_stages(&mut self, node: u32, job: Job, observer: &mut dyn Observer) {
        let is_interest = match PacketView::decode(&job.packet) {
            Ok(PacketView::Interest(_)) if job.header.nack.is_none() => true,
            Ok(PacketView::Data(_)) => false,
            // Nacks and what cannot be decoded take no time and end where they always end.
            _ => {
                let Job { shard, face, header, packet, .. } = job;
                return self.hand_to_shard(node, shard, Input::Packet { face, header, packet });
            }
        };
        let NodeKind::Router(router) = &mut self.nodes[node as usize].kind else { return };
        let life = router.lives();
        let Some(stages) = &mut router.stages else { return };
        match stages.enter_cpu(is_interest, job) {
            CpuEntered::AtOnce(job) => self.begin(node, is_interest, job, observer),
            CpuEntered::Queued => {}
            CpuEntered::First => self.want_processor(node, life),
            CpuEntered::Full => self.on_full(node, Queue::Cpu, false, observer),
        }
    }

    /// A packet that the router looks at for the first time.
    pub(super) fn begin(
        &mut self,
        node: u32,
        is_interest: bool,
        job: Job,
        observer: &mut dyn Observer,
    ) {
        if is_interest {
            if self.is_store_blocking(node) {
                // Its queue takes the place of those between the stages.
                let Job { shard, face, header, packet, .. } = job;
                return self.hand_to_shard(node, shard, Input::Packet { face, header, packet });
            }
            return self.walk(node, job, observer);
        }
        let now = self.now();
        let Some(stages) = self.stages(node) else { return };
        match stages.enter_data(now, job) {
            Entered::Waits => {}
            Entered::AtOnce(job) => self.serve_data(node, job, observer),
            Entered::Full(..) => self.on_full(node, Queue::PitData, false, observer),
        }
    }

    fn is_store_blocking(&self, node: u32) -> bool {
        match &self.nodes[node as usize].kind {
            NodeKind::Router(router) => router.is_store_blocking(),
            NodeKind::App(_) => false,
        }
    }

    fn stages(&mut self, node: u32) -> Option<&mut super::stages::Stages> {
        match &mut self.nodes[node as usize].kind {
            NodeKind::Router(router) => router.stages.as_deref_mut(),
            NodeKind::App(_) => None,
        }
    }

    /// An Interest from the queue before its next step on, until it waits or has come to its end.
    fn walk(&mut self, node: u32, job: Job, observer: &mut dyn Observer) {
        let now = self.now();
        let mut job = job;
        loop {
            match self.enter(node, now, job) {
                Entered::Waits => return,
                Entered::AtOnce(entered) => {
                    let Some(served) = self.serve(node, entered) else { return };
                    job = served;
                }
                Entered::Full(full, when_full) => {
                    let is_bypass = when_full == WhenFull::Bypass;
                    self.on_full(node, queue_of(&full.step), is_bypass, observer);
                    if !is_bypass {
                        return;
                    }
                    job = Job { step: InterestStep::Pit(Onward::Forward), ..full };
                }
            };
        }
    }

    /// An Interest before the queue of its next step.
    fn enter(&mut self, node: u32, now: Instant, job: Job) -> Entered {
        let NodeKind::Router(router) = &mut self.nodes[node as usize].kind else {
            return Entered::AtOnce(job);
        };
        let Some(stages) = &mut router.stages else { return Entered::AtOnce(job) };
        let is_vain = matches!(job.step, InterestStep::Store)
            && stages.tells_misses_apart()
            && !router.shards[job.shard].would_hit(now, &job.packet);
        if is_vain { stages.enter_store_in_vain(now, job) } else { stages.enter(now, job) }
    }

    /// The router takes the next step of an Interest. Returns it with the step after that.
    fn serve(&mut self, node: u32, job: Job) -> Option<Job> {
        let now = self.now();
        let NodeKind::Router(router) = &mut self.nodes[node as usize].kind else { return None };
        let input = (job.face, &job.header, &job.packet);
        let shard = &mut router.shards[job.shard];
        let next = shard.handle_interest_step(now, job.step, input, &mut self.outbox);
        router.after_shard(job.shard, now, &mut self.outbox);
        next.map(|step| Job { step, ..job })
    }

    /// The router takes a Data, and writes it to the store if there is room to.
    fn serve_data(&mut self, node: u32, job: Job, observer: &mut dyn Observer) {
        let now = self.now();
        let Job { shard, face, mut header, packet, .. } = job;
        let Some(stages) = self.stages(node) else { return };
        if !header.no_cache && !stages.write(now) {
            header.no_cache = true;
            self.on_full(node, Queue::StoreWrite, true, observer);
        }
        self.hand_to_shard(node, shard, Input::Packet { face, header, packet });
    }

    fn on_full(&mut self, node: u32, queue: Queue, is_bypass: bool, observer: &mut dyn Observer) {
        self.summary.stage_full += 1;
        self.note(node, 0, Happened::StageFull, 0);
        self.emit(node, EventKind::StageFull { queue, is_bypass }, observer);
    }

    /// A node's own time has come.
    pub(super) fn wake(
        &mut self,
        node: u32,
        moment: Moment,
        observer: &mut dyn Observer,
    ) -> Result<(), Broken> {
        if self.nodes[node as usize].wake != moment {
            return Ok(());
        }
        self.nodes[node as usize].wake = Moment::NEVER;
        if self.nodes[node as usize].downs > 0 {
            return Ok(());
        }
        self.digest.mix(self.now_ns ^ u64::from(node) << 48);
        let now = self.now();
        if let NodeKind::App(_) = &self.nodes[node as usize].kind {
            return self.call_app(node, observer);
        }
        while let Some(served) = self.stages(node).and_then(|stages| stages.take_served(now)) {
            match served {
                Served::Data(job) => self.serve_data(node, job, observer),
                Served::Interest(job) => {
                    if let Some(served) = self.serve(node, job) {
                        self.walk(node, served, observer);
                    }
                }
            }
        }
        self.end_disk_operations(node)?;
        let NodeKind::Router(router) = &mut self.nodes[node as usize].kind else { return Ok(()) };
        router.wake(now, &mut self.outbox).map_err(|what| Broken::liveness(node, what))?;
        self.after_router(node, 0)
    }

    /// Tells a router of the operations of its disks that have ended.
    fn end_disk_operations(&mut self, node: u32) -> Result<(), Broken> {
        let now = self.now();
        while let NodeKind::Router(router) = &mut self.nodes[node as usize].kind
            && let Some(disks) = &mut router.disks
            && let Some(done) = disks.complete(now, &mut self.library)
        {
            self.end_disk_operation(node, done)?;
        }
        Ok(())
    }

    pub(super) fn end_disk_operation(&mut self, node: u32, done: Done) -> Result<(), Broken> {
        let now = self.now();
        let NodeKind::Router(router) = &mut self.nodes[node as usize].kind else { return Ok(()) };
        let input = Input::DiskDone { id: done.id, outcome: done.outcome };
        router.handle(done.shard, now, &mut [input], &mut self.outbox);
        self.note(node, 0, done.what, done.bytes);
        self.send_out(node)
    }

    /// Gives an application what came and carries out what it wants.
    pub(super) fn call_app(
        &mut self,
        node: u32,
        observer: &mut dyn Observer,
    ) -> Result<(), Broken> {
        if self.is_settling {
            self.app_inputs.clear();
            return Ok(());
        }
        let now = self.now();
        let is_genuine = self.are_inputs_genuine();
        let mut out = std::mem::take(&mut self.app_outbox);
        let node_state = &mut self.nodes[node as usize];
        let NodeKind::App(app) = &mut node_state.kind else { return Ok(()) };
        app.handle(now, &mut self.app_inputs, &mut out);
        let wakeup = app.next_wakeup();
        let is_producer = matches!(app, App::Producer(_));
        let is_done = is_producer || app.is_done();
        self.app_inputs.clear();
        liveness::wants_wakeup(is_done, wakeup.is_some())
            .map_err(|what| Broken::liveness(node, what))?;
        self.take_verdict(node, out.violation.take(), is_genuine)?;
        for kind in out.events.drain(..) {
            self.on_report(node, &kind, is_genuine)?;
            self.emit(node, kind, observer);
        }
        for (path, header, packet) in out.packets.drain(..) {
            let end = self.nodes[node as usize].ends[usize::from(path.0)];
            if let (true, Some(produced)) = (is_producer, &mut self.produced) {
                produced.on_produced(&packet);
            }
            self.send(end, header, packet)?;
        }
        self.app_outbox = out;
        self.wake_at(node, wakeup.map(Instant::as_ns));
        Ok(())
    }

    /// Whether no Data that an application is about to get was damaged.
    fn are_inputs_genuine(&self) -> bool {
        let Some(produced) = &self.produced else { return true };
        let is_genuine = |produced: &Produced, packet: &[u8]| {
            Peek::of(packet).is_some_and(|peek| peek.is_interest) || produced.is_genuine(packet)
        };
        self.app_inputs.iter().all(|input| is_genuine(produced, &input.packet))
    }

    /// A consumer found wrong octets, or not.
    fn take_verdict(
        &mut self,
        node: u32,
        wrong: Option<String>,
        is_genuine: bool,
    ) -> Result<(), Broken> {
        let Some(what) = wrong else { return Ok(()) };
        // What was damaged may lie in a store for long.
        let is_damaged = self.summary.damaged_frames > 0;
        octets::complained(is_genuine, is_damaged, what)
            .map_err(|what| Broken::correctness(node, what))?;
        self.summary.damage_noticed += 1;
        Ok(())
    }

    fn on_report(&mut self, node: u32, kind: &EventKind, is_genuine: bool) -> Result<(), Broken> {
        match kind {
            EventKind::InterestSent { .. } if !self.is_lossy => {
                let (now_ns, excused_until_ns) = (self.now_ns, self.excused_until_ns);
                let Node { progress: Some(progress), .. } = &mut self.nodes[node as usize] else {
                    return Ok(());
                };
                progress
                    .on_interest(now_ns, excused_until_ns)
                    .map_err(|what| Broken::liveness(node, what))
            }
            EventKind::DataReceived { .. } => {
                octets::received(is_genuine, true).map_err(|what| Broken::correctness(node, what))
            }
            _ => Ok(()),
        }
    }
}
