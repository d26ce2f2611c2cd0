//! A router of the network: its shards and disks, the queues before them, and its restarts.

mod cpu;
mod disk;
mod fill;
mod holdings;
mod setup;
mod shards;
mod stages;

use weir_base::{Counters, FaceId, Instant, Packet};
use weir_forward::{Bypass, FaceScope, Input, InterestStep, Labels, Mark, NextHop, Outbox};
use weir_wire::Name;

use self::cpu::QueuedPacket;
pub(super) use self::cpu::TurnResult;
use self::disk::{DiskFaults, SharedOperations};
pub(super) use self::disk::{EndedOp, ProducerSet, interest_wait_max_ns as disk_wait_max_ns};
pub(super) use self::setup::{Incarnation, RouterSetup};
use self::shards::Shards;
pub(super) use self::stages::interest_wait_max_ns as stages_wait_max_ns;
use self::stages::{StageContext, Stages};
use super::faults::FaultChange;
use super::links::Delivery;
use super::timeline::Timeline;
use crate::check::{bounds, disk as promises, liveness};
use crate::peek::Peek;
use weir_plan::Fault;
use weir_plan::event::{Queue, RouterSample};
use weir_plan::hash::{SeedPurpose, seed_of};

/// The result of passing a packet to a router.
pub(super) struct ReceiveResult {
    /// The shard that the packet belongs to.
    pub(super) shard: usize,
    /// The packet is queued, and the router must request its processor.
    pub(super) wants_processor: bool,
}

/// Faults that stall the store.
#[derive(Debug)]
struct StoreStalls {
    count: u32,
    until: Instant,
}

pub(super) struct RouterNode {
    setup: RouterSetup,
    /// The shards, with their disks. The disks survive a crash.
    shards: Shards,
    stages: Option<Box<Stages>>,
    /// Counters of the incarnations before the last crash.
    past: RouterSample,
    lives: u64,
    /// Number of consecutive calls that ended with a request for another call at once.
    calls_at_once: u32,
    store_stalls: StoreStalls,
}

impl RouterNode {
    pub(super) fn new(setup: RouterSetup, producers: &mut ProducerSet) -> Self {
        let mut router = Self {
            shards: Shards::new(&setup),
            stages: None,
            past: RouterSample::default(),
            lives: 0,
            calls_at_once: 0,
            store_stalls: StoreStalls { count: 0, until: Instant::ZERO },
            setup,
        };
        router.start_at_once(producers);
        router
    }

    /// Starts with the configuration and the content of the disks only. Returns the first output of
    /// each shard, which holds the disk operations of the recovery.
    fn start(&mut self, now: Instant) -> Vec<Outbox> {
        let seed = seed_of(self.setup.seed, SeedPurpose::Router, self.lives);
        self.lives += 1;
        let outboxes = self.shards.start(&self.setup, seed, now);
        let stages = self.setup.plan.stages.as_ref();
        let stage_seed = seed_of(seed, SeedPurpose::Stage, 0);
        self.stages = stages.map(|plan| Box::new(Stages::new(self.setup.node, plan, stage_seed)));
        outboxes
    }

    /// Starts and completes the recovery of the disks before the run begins.
    fn start_at_once(&mut self, producers: &mut ProducerSet) {
        let outboxes = self.start(Instant::ZERO);
        self.shards.finish_disk_ops(outboxes, producers);
    }

    /// Writes Data to the disks until one does not fit, as an earlier incarnation would have done.
    /// Then restarts the shards.
    pub(super) fn fill_disks(
        &mut self,
        packets: impl IntoIterator<Item = Packet>,
        producers: &mut ProducerSet,
    ) {
        if self.shards.disks().is_some() {
            fill::fill_disks(&mut self.shards, packets, producers);
            // The first start only wrote the disks. Seeds are those of a router without content.
            self.lives = 0;
            self.start_at_once(producers);
        }
    }

    /// Inserts Data into the store until one does not fit, regardless of its admission policy.
    /// Calls `each` with each Data first.
    pub(super) fn fill_store(
        &mut self,
        packets: impl IntoIterator<Item = Packet>,
        each: impl FnMut(&Packet),
    ) {
        fill::fill_store(&mut self.shards, packets, each);
    }

    /// Accepts a packet that a link delivers.
    pub(super) fn receive(
        &mut self,
        delivery: Delivery,
        out: &mut Outbox,
        timeline: &mut Timeline,
    ) -> ReceiveResult {
        let Delivery { face, header, packet, .. } = delivery;
        let shard = self.shards.shard_of(&header, &packet);
        let job = QueuedPacket { shard, face, header, packet, step: InterestStep::Arrival };
        let wants_processor = match &mut self.stages {
            Some(stages) => {
                stages.receive(job, &mut StageContext { shards: &mut self.shards, out, timeline })
            }
            None => {
                self.shards.handle(shard, timeline.now(), job.into_input(), out);
                false
            }
        };
        ReceiveResult { shard, wants_processor }
    }

    /// Passes a shard an input that skips the stages.
    pub(super) fn handle(&mut self, shard: usize, now: Instant, input: Input, out: &mut Outbox) {
        self.shards.handle(shard, now, input, out);
    }

    pub(super) fn shard_count(&self) -> usize {
        self.shards.count()
    }

    /// Continues the packets whose service in a stage has ended.
    pub(super) fn end_services(&mut self, out: &mut Outbox, timeline: &mut Timeline) {
        if let Some(stages) = &mut self.stages {
            stages.end_services(&mut StageContext { shards: &mut self.shards, out, timeline });
        }
    }

    /// Passes one finished disk operation to its shard. Returns false if none has ended by now.
    pub(super) fn end_disk_operation(
        &mut self,
        producers: &mut ProducerSet,
        out: &mut Outbox,
        timeline: &mut Timeline,
    ) -> bool {
        let now = timeline.now();
        let done = self.shards.disks_mut().and_then(|disks| disks.complete(now, producers));
        let Some(done) = done else { return false };
        timeline.note(self.setup.node, 0, done.what, done.bytes);
        self.shards.end_disk_operation(now, done, out);
        true
    }

    /// Finishes an operation of a shared disk, and returns its shard.
    pub(super) fn end_shared(
        &mut self,
        ended: EndedOp,
        producers: &mut ProducerSet,
        out: &mut Outbox,
        timeline: &mut Timeline,
    ) -> Option<usize> {
        let done = self.shards.disks_mut()?.end_shared(ended, producers);
        let shard = done.shard;
        timeline.note(self.setup.node, 0, done.what, done.bytes);
        self.shards.end_disk_operation(timeline.now(), done, out);
        Some(shard)
    }

    /// Operations that must be submitted to the shared disk.
    pub(super) fn take_shared_operations(&mut self) -> Option<SharedOperations<'_>> {
        Some(self.shards.disks_mut()?.take_shared())
    }

    /// Calls the shards whose wake-up time has come.
    pub(super) fn wake(&mut self, now: Instant, out: &mut Outbox) -> Result<(), String> {
        let is_hurried = self.shards.wake(now, out);
        self.calls_at_once = if is_hurried { self.calls_at_once + 1 } else { 0 };
        liveness::check_quiescence(self.calls_at_once)
    }

    /// The next wake-up time of any shard, stage or disk, ns.
    #[inline]
    pub(super) fn next_wakeup_ns(&self) -> Option<u64> {
        let stages = self.stages.as_ref().and_then(|stages| stages.next_completion());
        self.shards.next_wakeup().into_iter().chain(stages).min().map(Instant::as_ns)
    }

    pub(super) fn incarnation(&self) -> Incarnation {
        Incarnation { node: self.setup.node, number: self.lives }
    }

    /// Whether the router is up and still in this incarnation.
    pub(super) fn is_current(&self, life: u64) -> bool {
        self.lives == life && self.shards.count() > 0
    }

    /// Starts a turn on a core, if the incarnation is current. Returns its length in ns; `None` if
    /// no packet waits.
    pub(super) fn start_turn(&mut self, life: u64, now_ns: u64) -> Option<u64> {
        let is_living = self.is_current(life);
        self.stages.as_mut().filter(|_| is_living)?.start_turn(now_ns)
    }

    /// Ends the turn of the first packet before the processor, if the incarnation is current. The
    /// router then handles that packet.
    pub(super) fn end_turn(
        &mut self,
        life: u64,
        out: &mut Outbox,
        timeline: &mut Timeline,
    ) -> TurnResult {
        let is_living = self.is_current(life);
        match self.stages.as_mut().filter(|_| is_living) {
            Some(stages) => {
                stages.end_turn(&mut StageContext { shards: &mut self.shards, out, timeline })
            }
            None => TurnResult::default(),
        }
    }

    /// Loses everything except the content of the disks.
    pub(super) fn crash(&mut self, now: Instant, producers: &mut ProducerSet) {
        self.past = self.counters(now);
        self.past.clear_sizes();
        self.past.disk.clear_sizes();
        self.past.busy.clear_sizes();
        self.shards.crash(producers);
        self.stages = None;
    }

    /// Restarts after a crash. Stalls of the store that are still active apply again.
    pub(super) fn restart(&mut self, now: Instant, out: &mut Outbox) {
        let outboxes = self.start(now);
        self.shards.submit_all(outboxes, now);
        if self.store_stalls.count > 0 {
            self.stall_store(now, out);
        }
    }

    /// Begins or ends a fault of the store or of a disk.
    pub(super) fn change_fault(&mut self, change: &FaultChange, now: Instant, out: &mut Outbox) {
        let FaultChange { begins, ends_at, .. } = *change;
        let (disk, faults) = match change.fault {
            Fault::StoreStall { .. } if begins => {
                self.store_stalls.count += 1;
                self.store_stalls.until = self.store_stalls.until.max(ends_at);
                return self.stall_store(now, out);
            }
            Fault::StoreStall { .. } => return self.end_store_stall(now, out),
            Fault::DiskStall { disk, .. } => {
                // The stall ends by itself at that time.
                if let Some(disks) = self.shards.disks_mut().filter(|_| begins) {
                    disks.stall(now, Some(disk), ends_at);
                }
                return;
            }
            Fault::DiskErrors { disk, probability, .. } => {
                (disk, DiskFaults { errors: probability, ..DiskFaults::default() })
            }
            Fault::DiskDamage { disk, flipped, lost, torn, .. } => {
                (disk, DiskFaults { flipped, lost, torn, ..DiskFaults::default() })
            }
            Fault::DiskFull { disk, .. } => {
                (disk, DiskFaults { full: 1.0, ..DiskFaults::default() })
            }
            Fault::Crash { .. }
            | Fault::LinkDown { .. }
            | Fault::LinkSlow { .. }
            | Fault::WrongBytes { .. } => return,
        };
        if let Some(disks) = self.shards.disks_mut() {
            disks.change_faults(disk, faults, begins);
        }
    }

    /// Stalls the disks and the store's stage, or the store itself if it has neither.
    fn stall_store(&mut self, now: Instant, out: &mut Outbox) {
        let until = self.store_stalls.until;
        let has_disks = self.shards.disks().is_some();
        if let Some(disks) = self.shards.disks_mut() {
            disks.stall(now, None, until);
        }
        match &mut self.stages {
            Some(stages) if stages.has_store() => stages.stall_store(now, until),
            _ if has_disks => {}
            _ => self.shards.set_store_serves(now, false, out),
        }
    }

    /// Ends a fault that stalls the store. The store resumes when the last one has ended.
    fn end_store_stall(&mut self, now: Instant, out: &mut Outbox) {
        self.store_stalls.count -= 1;
        let has_store_stage = self.stages.as_ref().is_some_and(|stages| stages.has_store());
        if self.store_stalls.count == 0 && !has_store_stage && self.shards.disks().is_none() {
            self.shards.set_store_serves(now, true, out);
        }
    }

    /// Adds a face, which the router adds again after a crash.
    pub(super) fn add_face(&mut self, face: FaceId) {
        self.setup.faces.push((face, FaceScope::NonLocal));
    }

    /// The next hops of the longest matching prefix among the plan's routes.
    pub(super) fn next_hops_of(&self, name: &Name) -> &[NextHop] {
        self.setup.next_hops_of(name.as_view().value())
    }

    /// Counters since the start of the run, without those of the faces.
    pub(super) fn counters(&self, now: Instant) -> RouterSample {
        let mut sum = self.past;
        sum.cpu_ns += self.stages.as_ref().map_or(0, |stages| stages.cpu_busy_ns(now));
        self.shards.count_into(&mut sum);
        sum
    }

    /// Interests that arrived with a nonce seen before.
    pub(super) fn interests_looped(&self) -> u64 {
        self.shards.interests_looped()
    }

    /// Queue lengths of the stages and of the disks.
    pub(super) fn queue_lengths(&self) -> impl Iterator<Item = (Queue, u32)> + use<'_> {
        let stages = self.stages.iter().flat_map(|stages| stages.lengths());
        let stages = stages.map(|(queue, packets, _)| (queue, packets));
        stages.chain(self.shards.disk_queues())
    }

    /// Checks failed disk operations, and from time to time the bounds of a shard.
    #[inline]
    pub(super) fn check_sometimes(&mut self, shard: usize) -> Result<(), String> {
        self.shards.check_sometimes(shard)
    }

    /// Checks all bounds.
    pub(super) fn check(&self) -> Result<(), String> {
        self.shards.check()?;
        self.stages.as_ref().map_or(Ok(()), |stages| stages.check())
    }

    /// Checks the end of a run: nothing is pending and no disk is busy. Filters must admit every
    /// record, and if `are_records_kept`, every acknowledged record must be found.
    pub(super) fn check_drained(
        &self,
        now: Instant,
        are_records_kept: bool,
        producers: &mut ProducerSet,
    ) -> Result<(), String> {
        bounds::drained(self.shards.pit_entries())?;
        self.shards.check_disks_drained()?;
        self.shards.check_records(now, are_records_kept, producers)
    }

    /// Whether the router has no packet or operation inside.
    pub(super) fn is_quiet(&self) -> bool {
        self.shards.disk_operations() == 0 && self.queue_lengths().all(|(_, len)| len == 0)
    }

    /// Checks a marked Data that leaves a store. The check covers all shards: shards woken together
    /// send together, and one may mark because of another one's disks.
    #[cold]
    pub(super) fn check_mark(
        &self,
        data: &[u8],
        is_available: impl Fn(FaceId) -> bool,
    ) -> Result<(), String> {
        let disk = self.setup.plan.disk.as_ref();
        let options = disk.map(|plan| &plan.options);
        let mark = options.map_or(Mark::Off, |options| options.mark);
        let is_late = options.is_some_and(|options| options.bypass == Bypass::Late);
        if mark != Mark::Off && (is_late || self.shards.writes_lag_behind()) {
            // These marks depend on read times or on the write backlog, which this check does not
            // know.
            return Ok(());
        }
        promises::mark(mark, self.shards.waiting_peak(), self.shards.mark_threshold())?;
        let can_pass = options.is_some_and(|options| options.bypass != Bypass::Off);
        // With path labels, marks carry the availability, so no announcement does.
        let is_announced = disk.is_some_and(|plan| plan.experiments.labels == Labels::Neighbour);
        if mark != Mark::NbCc || !can_pass || !is_announced {
            return Ok(());
        }
        let next_hops = Peek::of(data).map(|peek| self.setup.next_hops_of(&data[peek.name]));
        let hops = next_hops.unwrap_or_default().iter();
        promises::lazy_mark(hops.filter(|hop| is_available(hop.face)).count())
    }
}
