//! The shards of a router, the messages between them, and the disks that they use.

use std::collections::VecDeque;

use weir_base::{Counters, HashKey, Instant, Merge};
use weir_forward::shard::shard_of_packet;
use weir_forward::{Command, Driver, DropReason, Input, Outbox, Router, RouterConfig, RouterStats};
use weir_store::StoreConfig;
use weir_store::disk::{DiskOp, DiskTierConfig};
use weir_wire::LpHeader;

use super::disk::{CompletedOp, Disks, ProducerSet};
use super::setup::RouterSetup;
use crate::check::{bounds, disk as promises};
use weir_plan::DiskPlan;
use weir_plan::event::{Queue, RouterSample};
use weir_plan::hash::{SeedPurpose, seed_of};

/// Inputs of a router between two checks of a shard's bounds.
const CHECK_INTERVAL: u32 = 256;
/// Records looked up on each disk at the end of a run.
const RECORDS_CHECKED_MAX: usize = 2_000;

/// Reads and Interests that wait for the disks of a shard.
#[derive(Clone, Copy, Debug, Default)]
struct DiskBacklog {
    now: u64,
    /// When the count reached `now`.
    since: Instant,
    /// The highest count since the queue was last empty. An empty queue keeps its peak until a
    /// packet waits at a later instant, because the packets of one instant are checked after all
    /// shards ran.
    peak: u64,
}

impl DiskBacklog {
    fn update(&mut self, now: Instant, waiting: u64) {
        let is_first = self.now == 0 && waiting > 0 && now > self.since;
        self.peak = if is_first { waiting } else { self.peak.max(waiting) };
        if self.now != waiting {
            (self.now, self.since) = (waiting, now);
        }
    }
}

/// The shards of one incarnation; none while the router is down. Their disks survive.
pub(super) struct Shards {
    key: HashKey,
    /// Number of shards while the router is up.
    count: u16,
    routers: Vec<Router>,
    /// For each shard, the extension that handles its inputs, if any.
    drivers: Vec<Option<Box<dyn Driver>>>,
    configs: Vec<RouterConfig>,
    disks: Option<Box<Disks>>,
    /// Interests that an extension may hold before the store of a shard.
    interests_waiting_max: u64,
    /// The queue before the disks of each shard.
    waiting: Vec<DiskBacklog>,
    until_check: u32,
}

impl Shards {
    /// No shards yet, and empty disks.
    pub(super) fn new(setup: &RouterSetup) -> Self {
        let (plan, seed) = (&setup.plan, setup.seed);
        let key = [seed_of(seed, SeedPurpose::HashKey, 0), seed_of(seed, SeedPurpose::HashKey, 1)];
        let disks = plan.disk.as_ref();
        let disk_seed = seed_of(seed, SeedPurpose::Disk, 0);
        Self {
            key: HashKey::new(key),
            count: plan.shards,
            routers: Vec::new(),
            drivers: Vec::new(),
            configs: Vec::new(),
            disks: disks.map(|disks| Box::new(Disks::new(disks, plan.shards, disk_seed))),
            interests_waiting_max: disks
                .map_or(0, |disks| disks.experiments.interests_waiting_max.into()),
            waiting: Vec::new(),
            until_check: CHECK_INTERVAL,
        }
    }

    /// Creates and configures the shards. Returns the first output of each.
    pub(super) fn start(&mut self, setup: &RouterSetup, seed: u64, now: Instant) -> Vec<Outbox> {
        let config = |shard| self.config(setup, seed, shard);
        self.configs = (0..self.count).map(config).collect();
        self.set_routers(|config| Router::new(now, config.clone()));
        let extend = |router| setup.extension.as_ref().and_then(|it| it.extend(router));
        self.drivers = self.routers.iter_mut().map(extend).collect();
        self.waiting = vec![DiskBacklog::default(); self.routers.len()];
        let outboxes = self.routers.iter_mut().map(|router| {
            let mut out = Outbox::default();
            for command in setup.commands() {
                router.handle(now, &mut [Input::Command(command)], &mut out);
            }
            out
        });
        outboxes.collect()
    }

    fn config(&self, setup: &RouterSetup, seed: u64, shard: u16) -> RouterConfig {
        let RouterSetup { plan, pool_bytes_max, .. } = setup;
        let count = usize::from(self.count);
        let entries_max = (plan.pit_entries_max as usize).div_ceil(count);
        RouterConfig {
            shard,
            shard_count: self.count,
            hash_key: self.key,
            seed: seed_of(seed, SeedPurpose::Router, u64::from(shard)),
            store: StoreConfig {
                capacity_bytes: plan.store.size.bytes / count as u64,
                ..plan.store.config()
            },
            unsolicited: plan.store.unsolicited,
            pit_entries_max: entries_max,
            pit_entries_per_face_max: entries_max,
            pool_bytes_max: *pool_bytes_max,
            disk: self.disks.as_ref().map(|disks| disks.tier(shard, self.key)),
            busy: plan.disk.as_ref().map(DiskPlan::busy).unwrap_or_default(),
            ..RouterConfig::default()
        }
    }

    pub(super) fn set_routers(&mut self, make: impl FnMut(&RouterConfig) -> Router) {
        self.routers = self.configs.iter().map(make).collect();
    }

    pub(super) fn count(&self) -> usize {
        self.routers.len()
    }

    pub(super) fn disks(&self) -> Option<&Disks> {
        self.disks.as_deref()
    }

    pub(super) fn disks_mut(&mut self) -> Option<&mut Disks> {
        self.disks.as_deref_mut()
    }

    pub(super) fn router_mut(&mut self, shard: usize) -> &mut Router {
        &mut self.routers[shard]
    }

    /// The shard that a packet belongs to. Undecodable packets go to shard 0, which counts them.
    #[inline]
    pub(super) fn shard_of(&self, header: &LpHeader, packet: &[u8]) -> usize {
        usize::from(shard_of_packet(&self.key, header, packet, self.count).unwrap_or(0))
    }

    /// Whether Interests queue before the store while it reads.
    pub(super) fn is_store_blocking(&self) -> bool {
        self.drivers.iter().any(Option::is_some)
    }

    /// Passes an input to a shard, its operations to the disks, and its messages to the other
    /// shards.
    #[inline]
    pub(super) fn handle(&mut self, shard: usize, now: Instant, input: Input, out: &mut Outbox) {
        let (router, inputs) = (&mut self.routers[shard], &mut [input]);
        match &mut self.drivers[shard] {
            Some(driver) => driver.handle(router, now, inputs, out),
            None => router.handle(now, inputs, out),
        }
        self.after(shard, now, out);
    }

    pub(super) fn command(
        &mut self,
        shard: usize,
        now: Instant,
        command: Command,
        out: &mut Outbox,
    ) {
        self.handle(shard, now, Input::Command(command), out);
    }

    /// Passes a shard's operations to the disks and its messages to the other shards, without
    /// delay.
    #[inline]
    pub(super) fn after(&mut self, shard: usize, now: Instant, out: &mut Outbox) {
        self.submit(shard, now, out);
        if !out.shard_messages.is_empty() {
            self.deliver_messages(shard, now, out);
        }
    }

    #[cold]
    fn deliver_messages(&mut self, shard: usize, now: Instant, out: &mut Outbox) {
        let mut under_way = VecDeque::new();
        let mut from = shard;
        loop {
            // A message may cause further ones. Deliver them in the order of sending until none is
            // left.
            let said = out.shard_messages.drain(..);
            under_way.extend(said.map(|(to, message)| (from, usize::from(to), message)));
            let Some((sender, to, message)) = under_way.pop_front() else { return };
            let mut input = [Input::Shard { from: sender as u16, message }];
            self.routers[to].handle(now, &mut input, out);
            self.submit(to, now, out);
            from = to;
        }
    }

    #[inline]
    fn submit(&mut self, shard: usize, now: Instant, out: &mut Outbox) {
        let Some(disks) = &mut self.disks else { return };
        disks.submit(now, shard, &mut out.disk_ops);
        self.waiting[shard].update(now, self.routers[shard].interests_waiting());
    }

    /// Submits the first operations of each shard after a start.
    pub(super) fn submit_all(&mut self, outboxes: Vec<Outbox>, now: Instant) {
        let Some(disks) = &mut self.disks else { return };
        for (shard, mut out) in outboxes.into_iter().enumerate() {
            disks.submit(now, shard, &mut out.disk_ops);
        }
    }

    /// Executes the operations of each shard before the run begins.
    pub(super) fn finish_disk_ops(&mut self, outboxes: Vec<Outbox>, producers: &mut ProducerSet) {
        for (shard, out) in outboxes.into_iter().enumerate() {
            self.finish_disk_ops_of(shard, out, producers);
        }
    }

    /// Executes the operations of one shard until it submits no more.
    pub(super) fn finish_disk_ops_of(
        &mut self,
        shard: usize,
        mut out: Outbox,
        producers: &mut ProducerSet,
    ) {
        let Some(disks) = &mut self.disks else { return };
        loop {
            let done = |op: DiskOp| Input::DiskDone {
                id: op.id,
                outcome: disks.execute_at_once(op, producers),
            };
            let mut inputs: Vec<Input> = out.disk_ops.drain(..).map(done).collect();
            inputs.push(Input::Wakeup);
            self.routers[shard].handle(Instant::ZERO, &mut inputs, &mut out);
            if out.disk_ops.is_empty() {
                return;
            }
        }
    }

    /// Passes the result of a disk operation to its shard.
    pub(super) fn end_disk_operation(&mut self, now: Instant, done: CompletedOp, out: &mut Outbox) {
        let CompletedOp { shard, id, outcome, .. } = done;
        self.handle(shard, now, Input::DiskDone { id, outcome }, out);
    }

    /// Calls the shards whose wake-up time has come. Returns whether one wants another call at
    /// once.
    pub(super) fn wake(&mut self, now: Instant, out: &mut Outbox) -> bool {
        let is_due = |shard: &Router| shard.next_wakeup().is_some_and(|at| at <= now);
        let mut is_hurried = false;
        for shard in 0..self.routers.len() {
            if is_due(&self.routers[shard]) {
                self.handle(shard, now, Input::Wakeup, out);
                is_hurried |= is_due(&self.routers[shard]);
            }
        }
        is_hurried
    }

    /// The next wake-up time of any shard or disk.
    #[inline]
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let disks = self.disks.as_ref().and_then(|disks| disks.next_completion());
        self.routers.iter().filter_map(Router::next_wakeup).chain(disks).min()
    }

    /// Drops the shards. Each write in progress takes effect in full, in part or not at all.
    pub(super) fn crash(&mut self, producers: &mut ProducerSet) {
        self.routers.clear();
        if let Some(disks) = &mut self.disks {
            disks.crash(producers);
        }
    }

    /// Stops the store from answering and inserting, or lets it resume.
    pub(super) fn set_store_serves(&mut self, now: Instant, serves: bool, out: &mut Outbox) {
        self.configure_stores(now, out, |store| StoreConfig {
            admit: store.admit && serves,
            serve: store.serve && serves,
            ..store
        });
    }

    /// Configures the stores with their first configuration, changed by a function.
    pub(super) fn configure_stores(
        &mut self,
        now: Instant,
        out: &mut Outbox,
        change: impl Fn(StoreConfig) -> StoreConfig,
    ) {
        for shard in 0..self.routers.len() {
            let store = change(self.configs[shard].store.clone());
            self.command(shard, now, Command::ConfigureStore(store), out);
        }
    }

    /// Adds the counters of all shards.
    pub(super) fn count_into(&self, sum: &mut RouterSample) {
        self.routers.iter().for_each(|router| add(sum, &router.stats()));
    }

    /// Interests that arrived with a nonce seen before.
    pub(super) fn interests_looped(&self) -> u64 {
        let looped = |router: &Router| router.stats().drops[DropReason::Loop as usize];
        self.routers.iter().map(looped).sum()
    }

    pub(super) fn pit_entries(&self) -> u64 {
        self.routers.iter().map(|router| router.stats().pit_entries).sum()
    }

    /// Interests of a shard that waited for a disk, and those that bypassed it.
    pub(super) fn disk_decisions(&self, shard: usize) -> (u64, u64) {
        self.routers.get(shard).map_or((0, 0), Router::disk_decisions)
    }

    /// Number of operations in progress on the disks.
    pub(super) fn disk_operations(&self) -> usize {
        self.disks.as_ref().map_or(0, |disks| disks.under_way())
    }

    pub(super) fn disk_queues(&self) -> impl Iterator<Item = (Queue, u32)> + use<> {
        let mut lengths = [(Queue::DiskReads, 0), (Queue::DiskWrites, 0), (Queue::DiskBlocked, 0)];
        for shard in self.routers.iter().filter(|_| self.disks.is_some()) {
            let stats = shard.stats();
            lengths[0].1 += stats.store.disk.reads_waiting as u32;
            lengths[1].1 += stats.store.disk.writes_waiting as u32;
            lengths[2].1 += stats.busy.interests_waiting as u32;
        }
        let count = if self.disks.is_some() { lengths.len() } else { 0 };
        lengths.into_iter().take(count)
    }

    fn tier(&self) -> Option<&DiskTierConfig> {
        self.configs.first().and_then(|config| config.disk.as_ref())
    }

    /// The longest queue before the disks of one shard since that queue was last empty.
    pub(super) fn waiting_peak(&self) -> u64 {
        self.waiting.iter().map(|waiting| waiting.peak).max().unwrap_or(0)
    }

    /// Queue length from which the store marks.
    pub(super) fn mark_threshold(&self) -> u32 {
        self.tier().map_or(0, |tier| tier.bypass_threshold)
    }

    /// Whether a shard inserts Data faster than its disks write it.
    pub(super) fn writes_lag_behind(&self) -> bool {
        let backlog_max = self.tier().map_or(0, |tier| tier.write_backlog_bytes_max);
        let backlog = |router: &Router| router.stats().store.disk.write_backlog_bytes;
        self.routers.iter().map(backlog).max().unwrap_or(0) > backlog_max / 4
    }

    /// Checks failed disk operations, and after every [`CHECK_INTERVAL`] inputs the bounds of a
    /// shard.
    #[inline]
    pub(super) fn check_sometimes(&mut self, shard: usize) -> Result<(), String> {
        self.disks.as_mut().map_or(Ok(()), |disks| disks.take_failure())?;
        self.until_check -= 1;
        if self.until_check > 0 {
            return Ok(());
        }
        self.until_check = CHECK_INTERVAL;
        // A router that is down has no shards.
        match (self.routers.get(shard), self.configs.get(shard)) {
            (Some(router), Some(config)) => self.check_shard(router, config),
            _ => Ok(()),
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let mut shards = self.routers.iter().zip(&self.configs);
        shards.try_for_each(|(router, config)| self.check_shard(router, config))
    }

    fn check_shard(&self, router: &Router, config: &RouterConfig) -> Result<(), String> {
        let stats = router.stats();
        bounds::router(&stats, config)?;
        let tier = config.disk.as_ref();
        tier.map_or(Ok(()), |tier| promises::queues(&stats, tier, self.interests_waiting_max))
    }

    /// Checks that no operation waits for a disk.
    pub(super) fn check_disks_drained(&self) -> Result<(), String> {
        let Some(disks) = &self.disks else { return Ok(()) };
        let under_way = disks.under_way();
        self.routers.iter().try_for_each(|router| promises::drained(&router.stats(), under_way))
    }

    /// Checks that filters admit every record and, if `are_records_kept`, that every acknowledged
    /// record is found. Skips the check while a shard still recovers its disks.
    pub(super) fn check_records(
        &self,
        now: Instant,
        are_records_kept: bool,
        producers: &mut ProducerSet,
    ) -> Result<(), String> {
        let Some(disks) = &self.disks else { return Ok(()) };
        let is_recovering = |router: &Router| router.disk_stats().is_recovering();
        if self.routers.is_empty() || self.routers.iter().any(is_recovering) {
            return Ok(());
        }
        // Each check samples other records, because the time chooses where the sample starts.
        let skip = now.as_ns() as usize;
        for (shard, record) in disks.acknowledged(RECORDS_CHECKED_MAX, skip, producers) {
            let router = &self.routers[shard];
            promises::filter(router.is_filter_wrong(&record.packet), record.offset)?;
            if are_records_kept {
                let is_found = router.would_find(now, &record.packet);
                promises::acknowledged(is_found, record.offset, record.sequence)?;
            }
        }
        Ok(())
    }
}

fn add(sum: &mut RouterSample, stats: &RouterStats) {
    sum.in_interests += stats.in_interests;
    sum.in_data += stats.in_data;
    sum.in_nacks += stats.in_nacks;
    sum.out_interests += stats.out_interests;
    sum.out_data += stats.out_data;
    sum.out_nacks += stats.out_nacks;
    sum.store_hits += stats.store.hits;
    sum.store_misses += stats.store.misses;
    sum.store_entries += stats.store.entries;
    sum.pit_entries += stats.pit_entries;
    sum.dropped += stats.drops.iter().sum::<u64>();
    sum.disk_answer_ns += stats.busy.read_latency.sum();
    sum.disk.merge(&stats.store.disk);
    sum.busy.merge_numbers(&stats.busy);
}
