//! Queues between the stages of a router's packet path (paper nb-cache, Fig. 1), and how packets
//! pass through them.

use weir_base::{Instant, Rng};
use weir_forward::{ForwardingAction, InterestStep, Outbox};
use weir_netem::{Server, ServerConfig, ServiceTime};
use weir_wire::PacketView;

use super::cpu::{Cpu, CpuEntry, QueuedPacket, TurnResult};
use super::shards::Shards;
use crate::check::bounds;
use crate::network::timeline::Timeline;
use weir_plan::event::Queue;
use weir_plan::{StagePlan, StagesPlan, WhenFull};

pub(super) struct Stage<T> {
    server: Server<T>,
    capacity: u32,
    when_full: WhenFull,
}

impl<T> Stage<T> {
    fn new(plan: &StagePlan, seed: u64) -> Self {
        let config =
            ServerConfig { service: plan.service.clone(), parallelism: 1, capacity: plan.capacity };
        Self {
            server: Server::new(config, seed),
            capacity: plan.capacity,
            when_full: plan.when_full,
        }
    }
}

pub(super) struct Stages {
    node: u32,
    cpu: Option<Cpu>,
    store: Option<Stage<QueuedPacket>>,
    /// Service time of an Interest that misses the store, if it differs from that of a hit.
    store_miss: Option<ServiceTime>,
    miss_rng: Rng,
    store_write: Option<Stage<()>>,
    pit: Option<Stage<QueuedPacket>>,
    pit_data: Option<Stage<QueuedPacket>>,
    fib: Option<Stage<QueuedPacket>>,
}

/// What a packet needs on its way through the stages.
pub(super) struct StageContext<'a> {
    pub(super) shards: &'a mut Shards,
    pub(super) out: &'a mut Outbox,
    pub(super) timeline: &'a mut Timeline,
}

impl StageContext<'_> {
    /// Passes a packet to its shard at once.
    fn handle(&mut self, job: QueuedPacket) {
        self.shards.handle(job.shard, self.timeline.now(), job.into_input(), self.out);
    }

    /// Executes an Interest's next step in its shard. Returns the Interest with the step after it;
    /// `None` after the last one.
    fn serve(&mut self, job: QueuedPacket) -> Option<QueuedPacket> {
        let now = self.timeline.now();
        let input = (job.face, &job.header, &job.packet);
        let router = self.shards.router_mut(job.shard);
        let next = router.handle_interest_step(now, job.step, input, self.out);
        self.shards.after(job.shard, now, self.out);
        next.map(|step| QueuedPacket { step, ..job })
    }
}

/// The result of entering a stage.
pub(super) enum StageEntry {
    Waits,
    /// The stage has no queue, so the packet is served at once.
    AtOnce(QueuedPacket),
    /// The queue is full. The policy says what happens to the packet.
    Full(QueuedPacket, WhenFull),
}

/// A packet whose service has ended.
pub(super) enum ServedPacket {
    Interest(QueuedPacket),
    Data(QueuedPacket),
}

impl Stages {
    /// The stages of router `node`.
    pub(super) fn new(node: u32, plan: &StagesPlan, seed: u64) -> Self {
        fn stage<T>(plan: &Option<StagePlan>, seed: u64) -> Option<Stage<T>> {
            plan.as_ref().map(|plan| Stage::new(plan, seed))
        }
        let cpu_rng = Rng::from_seed(seed.wrapping_add(7));
        Self {
            node,
            cpu: plan.cpu.clone().map(|plan| Cpu::new(plan, cpu_rng)),
            store: stage(&plan.store, seed),
            store_miss: plan.store_miss.clone(),
            miss_rng: Rng::from_seed(seed.wrapping_add(5)),
            store_write: stage(&plan.store_write, seed.wrapping_add(1)),
            pit: stage(&plan.pit, seed.wrapping_add(2)),
            pit_data: stage(&plan.pit_data, seed.wrapping_add(3)),
            fib: stage(&plan.fib, seed.wrapping_add(4)),
        }
    }

    /// How long the processor has been busy, ns.
    pub(super) fn cpu_busy_ns(&self, now: Instant) -> u64 {
        self.cpu.as_ref().map_or(0, |cpu| cpu.busy_ns(now))
    }

    /// Queues a packet before the processor. Returns whether the router must request a core.
    pub(super) fn receive(&mut self, job: QueuedPacket, pass: &mut StageContext<'_>) -> bool {
        let is_interest = match PacketView::decode(&job.packet) {
            Ok(PacketView::Interest(_)) if job.header.nack.is_none() => true,
            Ok(PacketView::Data(_)) => false,
            // Nacks and undecodable packets need no stage.
            _ => {
                pass.handle(job);
                return false;
            }
        };
        let entered = match &mut self.cpu {
            Some(cpu) => cpu.enter(is_interest, job),
            None => CpuEntry::AtOnce(job),
        };
        match entered {
            CpuEntry::AtOnce(job) => self.begin(is_interest, job, pass),
            CpuEntry::Queued => {}
            CpuEntry::First => return true,
            CpuEntry::Full => pass.timeline.stage_full(self.node, Queue::Cpu, false),
        }
        false
    }

    /// Starts a turn for the first packet. Returns its length in ns; `None` if no packet waits.
    pub(super) fn start_turn(&mut self, now_ns: u64) -> Option<u64> {
        self.cpu.as_mut()?.start(now_ns)
    }

    /// Ends a turn, and handles its packet.
    pub(super) fn end_turn(&mut self, pass: &mut StageContext<'_>) -> TurnResult {
        let now_ns = pass.timeline.now_ns();
        let ended = self.cpu.as_mut().and_then(|cpu| cpu.end(now_ns));
        let mut turn = TurnResult::default();
        let mut decisions = (0, 0);
        if let Some((is_interest, job)) = ended {
            let shard = job.shard;
            // The disk decisions that this packet causes decide how long its turn continues.
            let before = pass.shards.disk_decisions(shard);
            self.begin(is_interest, job, pass);
            let after = pass.shards.disk_decisions(shard);
            decisions = (after.0 - before.0, after.1 - before.1);
            turn.shard = Some(shard);
        }
        if let Some(cpu) = &mut self.cpu {
            let (reads, bypasses) = decisions;
            turn.more_ns = cpu.extend(now_ns, reads, bypasses);
            turn.has_more = cpu.length().0 > 0;
        }
        turn
    }

    /// Starts a packet on its way through the stages.
    fn begin(&mut self, is_interest: bool, job: QueuedPacket, pass: &mut StageContext<'_>) {
        if is_interest {
            // A blocking store has its own queue, which replaces those between the stages.
            if pass.shards.is_store_blocking() {
                return pass.handle(job);
            }
            return self.run_steps(job, pass);
        }
        match offer(&mut self.pit_data, pass.timeline.now(), job) {
            StageEntry::Waits => {}
            StageEntry::AtOnce(job) => self.serve_data(job, pass),
            StageEntry::Full(..) => pass.timeline.stage_full(self.node, Queue::PitData, false),
        }
    }

    /// Continues the packets whose service has ended by now.
    pub(super) fn end_services(&mut self, pass: &mut StageContext<'_>) {
        while let Some(served) = self.take_served(pass.timeline.now()) {
            match served {
                ServedPacket::Data(job) => self.serve_data(job, pass),
                ServedPacket::Interest(job) => {
                    if let Some(job) = pass.serve(job) {
                        self.run_steps(job, pass);
                    }
                }
            }
        }
    }

    /// Moves an Interest through its steps until it waits in a queue or has finished.
    fn run_steps(&mut self, mut job: QueuedPacket, pass: &mut StageContext<'_>) {
        loop {
            match self.enter(job, pass) {
                StageEntry::Waits => return,
                StageEntry::AtOnce(entered) => {
                    let Some(served) = pass.serve(entered) else { return };
                    job = served;
                }
                StageEntry::Full(full, when_full) => {
                    let is_bypass = when_full == WhenFull::Bypass;
                    pass.timeline.stage_full(self.node, queue_of(&full.step), is_bypass);
                    if !is_bypass {
                        return;
                    }
                    // Only the store may be bypassed. The Interest then continues as after a miss,
                    // at the PIT.
                    job =
                        QueuedPacket { step: InterestStep::Pit(ForwardingAction::Forward), ..full };
                }
            };
        }
    }

    /// Queues an Interest for its next step.
    fn enter(&mut self, job: QueuedPacket, pass: &mut StageContext<'_>) -> StageEntry {
        let now = pass.timeline.now();
        let queue = match &job.step {
            InterestStep::Arrival => return StageEntry::AtOnce(job),
            InterestStep::Store => &mut self.store,
            InterestStep::Pit(_) => &mut self.pit,
            InterestStep::Fib(_) => &mut self.fib,
        };
        // A miss in the store may have its own service time.
        if let (InterestStep::Store, Some(miss), Some(stage)) =
            (&job.step, &self.store_miss, &mut *queue)
            && !pass.shards.router_mut(job.shard).would_hit(now, &job.packet)
        {
            let service_ns = miss.sample(&mut self.miss_rng);
            return match stage.server.offer_with(now, job, service_ns) {
                Ok(()) => StageEntry::Waits,
                Err(job) => StageEntry::Full(job, stage.when_full),
            };
        }
        offer(queue, now, job)
    }

    /// Handles a Data, and writes it to the store if the write queue has space.
    fn serve_data(&mut self, mut job: QueuedPacket, pass: &mut StageContext<'_>) {
        let now = pass.timeline.now();
        // A full write queue only keeps the Data out of the store. The Data is still forwarded.
        if !job.header.no_cache && !self.write(now) {
            job.header.no_cache = true;
            pass.timeline.stage_full(self.node, Queue::StoreWrite, true);
        }
        pass.handle(job);
    }

    /// Starts to write a Data, unless the write queue is full. Returns whether it did.
    pub(super) fn write(&mut self, now: Instant) -> bool {
        let Some(stage) = &mut self.store_write else { return true };
        stage.server.offer(now, ()).is_ok()
    }

    /// One packet whose service has ended by `now`.
    pub(super) fn take_served(&mut self, now: Instant) -> Option<ServedPacket> {
        if let Some(stage) = &mut self.store_write {
            // A finished write has no further step. Take it all the same, or it would stay the next
            // completion.
            while stage.server.complete(now).is_some() {}
        }
        if let Some(job) = complete(&mut self.pit_data, now) {
            return Some(ServedPacket::Data(job));
        }
        let interests = [&mut self.store, &mut self.pit, &mut self.fib];
        interests.into_iter().find_map(|stage| complete(stage, now)).map(ServedPacket::Interest)
    }

    /// When the next service ends.
    pub(super) fn next_completion(&self) -> Option<Instant> {
        let jobs = [&self.store, &self.pit, &self.pit_data, &self.fib];
        let jobs = jobs.into_iter().flatten().filter_map(|stage| stage.server.next_completion());
        let writes = self.store_write.as_ref().and_then(|stage| stage.server.next_completion());
        jobs.chain(writes).min()
    }

    /// Stalls the store's stage until the given time.
    pub(super) fn stall_store(&mut self, now: Instant, until: Instant) {
        if let Some(stage) = &mut self.store {
            stage.server.stall(now, until);
        }
        if let Some(stage) = &mut self.store_write {
            stage.server.stall(now, until);
        }
    }

    /// Whether the store has a stage.
    pub(super) fn has_store(&self) -> bool {
        self.store.is_some()
    }

    /// Packets in each stage, and its limit.
    pub(super) fn lengths(&self) -> impl Iterator<Item = (Queue, u32, u32)> + use<> {
        fn of<T>(queue: Queue, stage: &Option<Stage<T>>) -> Option<(Queue, u32, u32)> {
            stage.as_ref().map(|stage| (queue, stage.server.len() as u32, stage.capacity))
        }
        let cpu = self.cpu.as_ref().map(Cpu::length);
        [
            cpu.map(|(packets, capacity)| (Queue::Cpu, packets, capacity)),
            of(Queue::Store, &self.store),
            of(Queue::StoreWrite, &self.store_write),
            of(Queue::Pit, &self.pit),
            of(Queue::PitData, &self.pit_data),
            of(Queue::Fib, &self.fib),
        ]
        .into_iter()
        .flatten()
    }

    /// Checks that no stage exceeds its limit.
    pub(super) fn check(&self) -> Result<(), String> {
        self.lengths().try_for_each(|(queue, len, capacity)| {
            bounds::queue(&format!("stage {queue:?}"), len.into(), capacity.into())
        })
    }
}

/// Upper bound on the time that an Interest spends in a router's stages, ns, without stalls.
///
/// The wait of a Data before its PIT lookup does not count: it is part of the Interest's lifetime.
/// `sharers` is the number of routers on the machine, this one included.
pub(in crate::network) fn interest_wait_max_ns(plan: &StagesPlan, sharers: u64) -> u64 {
    let cpu = plan.cpu.as_ref().map_or(0, |cpu| {
        let wait_ns = |time| wait_max_ns(time, cpu.capacity);
        let first_ns = wait_ns(&cpu.interest).max(wait_ns(&cpu.data));
        // A read or a bypass of the store extends a turn.
        let rest_ns = wait_ns(&cpu.read).max(wait_ns(&cpu.bypass));
        first_ns.saturating_add(rest_ns).saturating_mul(sharers)
    });
    let of = |stage: &Option<StagePlan>| {
        stage.as_ref().map_or(0, |stage| wait_max_ns(&stage.service, stage.capacity))
    };
    let misses = match (&plan.store, &plan.store_miss) {
        (Some(store), Some(miss)) => wait_max_ns(miss, store.capacity),
        _ => 0,
    };
    [cpu, of(&plan.store).max(misses), of(&plan.pit), of(&plan.fib)]
        .into_iter()
        .fold(0, u64::saturating_add)
}

/// Upper bound on the time from entering a stage to leaving it, ns. An exponential service time has
/// no bound; the bound used here is exceeded with a probability below 1e-25.
fn wait_max_ns(service: &ServiceTime, capacity: u32) -> u64 {
    let capacity = u64::from(capacity);
    match service {
        ServiceTime::Constant { ns } => ns.saturating_mul(capacity),
        ServiceTime::Exponential { mean_ns } => mean_ns.saturating_mul(2 * capacity + 64),
        ServiceTime::Histogram { bins } => {
            let longest_ns = bins.iter().map(|&(ns, _)| ns).max().unwrap_or(0);
            longest_ns.saturating_mul(capacity)
        }
    }
}

fn offer(queue: &mut Option<Stage<QueuedPacket>>, now: Instant, job: QueuedPacket) -> StageEntry {
    let Some(stage) = queue else { return StageEntry::AtOnce(job) };
    match stage.server.offer(now, job) {
        Ok(()) => StageEntry::Waits,
        Err(job) => StageEntry::Full(job, stage.when_full),
    }
}

fn complete(stage: &mut Option<Stage<QueuedPacket>>, now: Instant) -> Option<QueuedPacket> {
    stage.as_mut()?.server.complete(now)
}

/// The queue before a step, as events name it.
pub(super) fn queue_of(step: &InterestStep) -> Queue {
    match step {
        InterestStep::Arrival | InterestStep::Store => Queue::Store,
        InterestStep::Pit(_) => Queue::Pit,
        InterestStep::Fib(_) => Queue::Fib,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_plan::CpuPlan;

    fn stage(service: ServiceTime, capacity: u32) -> Option<StagePlan> {
        Some(StagePlan { service, capacity, when_full: WhenFull::Drop })
    }

    /// The capacities of the stages bound an Interest's wait; Data does not count.
    #[test]
    fn interest_wait_is_bounded() {
        let constant = |ns| ServiceTime::Constant { ns };
        assert_eq!(interest_wait_max_ns(&StagesPlan::default(), 1), 0);
        let cpu = CpuPlan {
            interest: constant(2),
            data: constant(3),
            read: constant(0),
            bypass: constant(1),
            machine: None,
            cores: 1,
            capacity: 10,
        };
        let plan = StagesPlan {
            cpu: Some(CpuPlan { read: constant(4), ..cpu }),
            store: stage(constant(100), 7),
            store_miss: Some(constant(1)),
            store_write: stage(constant(1 << 40), 1 << 20),
            pit: stage(ServiceTime::Exponential { mean_ns: 1_000 }, 20),
            pit_data: stage(constant(1 << 40), 1 << 20),
            fib: stage(ServiceTime::Histogram { bins: vec![(5, 0.5), (50_000, 0.5)] }, 2),
        };
        assert_eq!(interest_wait_max_ns(&plan, 2), 2 * (30 + 40) + 700 + 104_000 + 100_000);
        let endless = StagesPlan { pit: stage(constant(u64::MAX), 2), ..StagesPlan::default() };
        assert_eq!(interest_wait_max_ns(&endless, 1), u64::MAX);
    }

    /// Compares sums of exponential draws with the bound of a full stage.
    #[test]
    fn exponential_waits_stay_below_their_bound() {
        let service = ServiceTime::Exponential { mean_ns: 1_000 };
        let mut rng = Rng::from_seed(2);
        for capacity in [1, 2, 10, 100] {
            let bound = wait_max_ns(&service, capacity);
            for _ in 0..10_000 {
                let wait: u64 = (0..capacity).map(|_| service.sample(&mut rng)).sum();
                assert!(wait < bound, "{capacity}: {wait}");
            }
        }
    }
}
