//! Queues between the stages of a router's packet path (paper nb-cache, Fig. 1).

use std::collections::VecDeque;

use weir_base::{FaceId, Instant, Packet, Rng};
use weir_forward::InterestStep;
use weir_netem::{Server, ServerConfig, ServiceTime};
use weir_wire::LpHeader;

use crate::check::bounds;
use weir_plan::event::Queue;
use weir_plan::{CpuPlan, StagePlan, StagesPlan, WhenFull};

/// A packet that waits for a stage.
pub(crate) struct Job {
    pub(crate) shard: usize,
    pub(crate) face: FaceId,
    pub(crate) header: LpHeader,
    pub(crate) packet: Packet,
    /// What the router is to do with it next, if it is an Interest.
    pub(crate) step: InterestStep,
}

/// A stage with its queue.
pub(crate) struct Stage<T> {
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

/// A router's packets before the processor, where that is a limit.
pub(crate) struct Cpu {
    plan: CpuPlan,
    /// Packets and whether they are Interests; the first one may be served.
    queue: VecDeque<(bool, Job)>,
    /// Since when the router has a core, and until when, ns.
    served: Option<(u64, u64)>,
    /// It has it for what came of a packet that is not in the queue any more.
    is_rest: bool,
    /// Service of turns that are over, ns.
    busy_ns: u64,
    rng: Rng,
}

/// What becomes of a packet before the processor.
pub(crate) enum CpuEntered {
    /// It does not need it.
    AtOnce(Job),
    /// Others are before it.
    Queued,
    /// None are.
    First,
    /// There is no room.
    Full,
}

impl Cpu {
    /// The router gets a core for the packet that is first. For how long, ns; `None` where none
    /// waits.
    pub(super) fn start(&mut self, now_ns: u64) -> Option<u64> {
        let &(is_interest, _) = self.queue.front()?;
        let service = if is_interest { &self.plan.interest } else { &self.plan.data };
        let service_ns = service.sample(&mut self.rng);
        self.served = Some((now_ns, now_ns.saturating_add(service_ns)));
        Some(service_ns)
    }

    /// A turn is over. The packet that had it, unless it was the rest of the last one's.
    pub(super) fn end(&mut self, now_ns: u64) -> Option<(bool, Job)> {
        let (from_ns, until_ns) = self.served.take()?;
        self.busy_ns += until_ns.min(now_ns) - from_ns;
        if std::mem::take(&mut self.is_rest) { None } else { self.queue.pop_front() }
    }

    /// The packet whose turn was just over has had `reads` disks asked, and has passed `bypasses`
    /// by. For how long the router keeps its core, ns; `None` where it leaves.
    pub(super) fn go_on(&mut self, now_ns: u64, (reads, bypasses): (u64, u64)) -> Option<u64> {
        let mut more_ns = 0;
        if reads > 0 {
            more_ns += self.plan.read.sample(&mut self.rng);
        }
        if bypasses > 0 {
            more_ns += self.plan.bypass.sample(&mut self.rng);
        }
        if more_ns == 0 {
            return None;
        }
        self.is_rest = true;
        self.served = Some((now_ns, now_ns.saturating_add(more_ns)));
        Some(more_ns)
    }

    /// Whether packets wait for the next turn.
    pub(super) fn wants_more(&self) -> bool {
        !self.queue.is_empty()
    }

    fn busy_ns(&self, now: Instant) -> u64 {
        let now_ns = now.as_ns();
        let current = self.served.map_or(0, |(from_ns, until_ns)| until_ns.min(now_ns) - from_ns);
        self.busy_ns + current
    }
}

/// The stages of a router.
pub(crate) struct Stages {
    pub(crate) cpu: Option<Cpu>,
    store: Option<Stage<Job>>,
    /// What an Interest that the store cannot answer costs it, where that is another time.
    store_miss: Option<ServiceTime>,
    miss_rng: Rng,
    store_write: Option<Stage<()>>,
    pit: Option<Stage<Job>>,
    pit_data: Option<Stage<Job>>,
    fib: Option<Stage<Job>>,
}

/// Where a packet goes from here.
pub(crate) enum Entered {
    /// It waits for its turn.
    Waits,
    /// There is no queue: it is served at once.
    AtOnce(Job),
    /// There is no room; what is to become of it.
    Full(Job, WhenFull),
}

/// A packet whose service has ended.
pub(crate) enum Served {
    Interest(Job),
    Data(Job),
}

impl Stages {
    pub(crate) fn new(plan: &StagesPlan, seed: u64) -> Self {
        fn stage<T>(plan: &Option<StagePlan>, seed: u64) -> Option<Stage<T>> {
            plan.as_ref().map(|plan| Stage::new(plan, seed))
        }
        let cpu = plan.cpu.clone().map(|plan| Cpu {
            queue: VecDeque::new(),
            served: None,
            is_rest: false,
            busy_ns: 0,
            rng: Rng::from_seed(seed.wrapping_add(7)),
            plan,
        });
        Self {
            cpu,
            store: stage(&plan.store, seed),
            store_miss: plan.store_miss.clone(),
            miss_rng: Rng::from_seed(seed.wrapping_add(5)),
            store_write: stage(&plan.store_write, seed.wrapping_add(1)),
            pit: stage(&plan.pit, seed.wrapping_add(2)),
            pit_data: stage(&plan.pit_data, seed.wrapping_add(3)),
            fib: stage(&plan.fib, seed.wrapping_add(4)),
        }
    }

    /// Time that the processor has been busy for, ns.
    pub(crate) fn cpu_busy_ns(&self, now: Instant) -> u64 {
        self.cpu.as_ref().map_or(0, |cpu| cpu.busy_ns(now))
    }

    /// Whether it matters to the store's queue that an Interest will find nothing there.
    pub(crate) fn tells_misses_apart(&self) -> bool {
        self.store_miss.is_some()
    }

    /// A packet before the processor.
    pub(crate) fn enter_cpu(&mut self, is_interest: bool, job: Job) -> CpuEntered {
        let Some(cpu) = &mut self.cpu else { return CpuEntered::AtOnce(job) };
        let service = if is_interest { &cpu.plan.interest } else { &cpu.plan.data };
        if service.is_zero() {
            return CpuEntered::AtOnce(job);
        }
        if cpu.queue.len() >= cpu.plan.capacity as usize {
            return CpuEntered::Full;
        }
        let is_first = cpu.queue.is_empty() && cpu.served.is_none();
        cpu.queue.push_back((is_interest, job));
        if is_first { CpuEntered::First } else { CpuEntered::Queued }
    }

    /// An Interest before the store, which has nothing for it.
    pub(crate) fn enter_store_in_vain(&mut self, now: Instant, job: Job) -> Entered {
        let (Some(stage), Some(miss)) = (&mut self.store, &self.store_miss) else {
            return Entered::AtOnce(job);
        };
        let service_ns = miss.sample(&mut self.miss_rng);
        match stage.server.offer_with(now, job, service_ns) {
            Ok(()) => Entered::Waits,
            Err(job) => Entered::Full(job, stage.when_full),
        }
    }

    /// An Interest before its next step.
    pub(crate) fn enter(&mut self, now: Instant, job: Job) -> Entered {
        let queue = match &job.step {
            InterestStep::Arrival => &mut None,
            InterestStep::Store => &mut self.store,
            InterestStep::Pit(_) => &mut self.pit,
            InterestStep::Fib(_) => &mut self.fib,
        };
        offer(queue, now, job)
    }

    /// A Data before the PIT.
    pub(crate) fn enter_data(&mut self, now: Instant, job: Job) -> Entered {
        offer(&mut self.pit_data, now, job)
    }

    /// Whether there is room to write one more Data; if so it is being written.
    pub(crate) fn write(&mut self, now: Instant) -> bool {
        let Some(stage) = &mut self.store_write else { return true };
        stage.server.offer(now, ()).is_ok()
    }

    /// One packet whose service has ended by `now`.
    pub(crate) fn take_served(&mut self, now: Instant) -> Option<Served> {
        if let Some(stage) = &mut self.store_write {
            while stage.server.complete(now).is_some() {}
        }
        if let Some(job) = complete(&mut self.pit_data, now) {
            return Some(Served::Data(job));
        }
        let interests = [&mut self.store, &mut self.pit, &mut self.fib];
        interests.into_iter().find_map(|stage| complete(stage, now)).map(Served::Interest)
    }

    /// When the next service ends.
    pub(crate) fn next_completion(&self) -> Option<Instant> {
        let jobs = [&self.store, &self.pit, &self.pit_data, &self.fib];
        let jobs = jobs.into_iter().flatten().filter_map(|stage| stage.server.next_completion());
        let writes = self.store_write.as_ref().and_then(|stage| stage.server.next_completion());
        jobs.chain(writes).min()
    }

    /// The store serves nothing until then.
    pub(crate) fn stall_store(&mut self, now: Instant, until: Instant) {
        if let Some(stage) = &mut self.store {
            stage.server.stall(now, until);
        }
        if let Some(stage) = &mut self.store_write {
            stage.server.stall(now, until);
        }
    }

    /// Whether the store has a stage that can be stalled.
    pub(crate) fn has_store(&self) -> bool {
        self.store.is_some()
    }

    /// Packets in each stage, and how many there may be.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = (Queue, u32, u32)> + use<> {
        fn of<T>(queue: Queue, stage: &Option<Stage<T>>) -> Option<(Queue, u32, u32)> {
            stage.as_ref().map(|stage| (queue, stage.server.len() as u32, stage.capacity))
        }
        let cpu = self.cpu.as_ref();
        [
            cpu.map(|cpu| (Queue::Cpu, cpu.queue.len() as u32, cpu.plan.capacity)),
            of(Queue::Store, &self.store),
            of(Queue::StoreWrite, &self.store_write),
            of(Queue::Pit, &self.pit),
            of(Queue::PitData, &self.pit_data),
            of(Queue::Fib, &self.fib),
        ]
        .into_iter()
        .flatten()
    }

    /// No stage holds more than it may.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.lengths().try_for_each(|(queue, len, capacity)| {
            bounds::queue(&format!("stage {queue:?}"), len.into(), capacity.into())
        })
    }
}

/// The longest that the stages of a router hold an Interest up, as long as they are not stalled,
/// ns. Data that answers it waits before it is looked for in the PIT, so that its wait is part of
/// the Interest's lifetime. `sharers`: routers of the same machine, itself included.
pub(crate) fn interest_wait_max_ns(plan: &StagesPlan, sharers: u64) -> u64 {
    let cpu = plan.cpu.as_ref().map_or(0, |cpu| {
        let wait_ns = |time| wait_max_ns(time, cpu.capacity);
        let first_ns = wait_ns(&cpu.interest).max(wait_ns(&cpu.data));
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

/// The longest time from coming to a stage to leaving it, ns. What is drawn from an exponential
/// distribution has no bound; that many services last longer with a probability below 1e-25.
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

fn offer(queue: &mut Option<Stage<Job>>, now: Instant, job: Job) -> Entered {
    let Some(stage) = queue else { return Entered::AtOnce(job) };
    match stage.server.offer(now, job) {
        Ok(()) => Entered::Waits,
        Err(job) => Entered::Full(job, stage.when_full),
    }
}

fn complete(stage: &mut Option<Stage<Job>>, now: Instant) -> Option<Job> {
    stage.as_mut()?.server.complete(now)
}

/// The queue before a step, as events name it.
pub(crate) fn queue_of(step: &InterestStep) -> Queue {
    match step {
        InterestStep::Arrival | InterestStep::Store => Queue::Store,
        InterestStep::Pit(_) => Queue::Pit,
        InterestStep::Fib(_) => Queue::Fib,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(service: ServiceTime, capacity: u32) -> Option<StagePlan> {
        Some(StagePlan { service, capacity, when_full: WhenFull::Drop })
    }

    /// What an Interest waits for is bounded by what its stages hold; Data has no part in it.
    #[test]
    fn the_wait_of_an_interest_is_bounded() {
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

    /// The sum of as many draws as the stage holds stays below its bound.
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
