//! A router of the network: its shards, and what it takes to make them again after a crash.

use std::collections::VecDeque;

use weir_base::{Counters, FaceId, HashKey, Instant, Merge, Packet};
use weir_forward::shard::shard_of_packet;

use weir_control::Segments;
use weir_control::message::{Change, Tier};
use weir_forward::{
    BlockingStore, Bypass, Command, Event, FaceAttributes, FaceScope, Input, Labels, Mark,
    MissWatch, NextHop, Outbox, Router, RouterConfig, RouterStats, StoreCommand, StoreEvent,
    strategy::Strategy,
};
use weir_store::disk::{Admission, DiskOp, DiskTierConfig, OfferAt};
use weir_store::{
    Holding, HoldingsConfig, HoldingsCursor, HoldingsStatus, SegmentRange, StoreConfig,
};
use weir_wire::{LpHeader, Name};

use super::disk::{Disks, Library};
use super::stages::{Cpu, Stages};
use crate::check::{bounds, disk, liveness};
use crate::peek::Peek;
use weir_plan::event::{Queue, RouterSample};
use weir_plan::hash::{Part, seed_of};
use weir_plan::{RouterPlan, filler_prefix};

/// Inputs after which the bounds of a shard are looked at.
const CHECK_INTERVAL: u32 = 256;
/// Data put on the disks before the first run, after which what they are asked for is done.
const FILL_BATCH: usize = 64;
/// Octets of RAM of the store that fills the disks.
const FILL_BYTES: u64 = 1 << 20;
/// Records looked for on each disk to see that none is lost.
const RECORDS_LOOKED_FOR: usize = 2_000;

/// What a router is made from.
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) plan: RouterPlan,
    pub(crate) strategy: Strategy,
    pub(crate) pool_bytes_max: usize,
    pub(crate) faces: Vec<(FaceId, FaceScope)>,
    pub(crate) routes: Vec<(Name, Vec<NextHop>)>,
    /// Whether a controller wants to be asked.
    pub(crate) watches_misses: bool,
    /// A consumer asks what it holds.
    pub(crate) tells_holdings: bool,
}

/// Reads and Interests that wait for the disks of a shard.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    now: u64,
    /// Since when there are so many.
    since: Instant,
    /// The most of them since none did; kept until there are new ones, at a later moment: what was
    /// sent at this one is looked at when all shards are done.
    peak: u64,
}

impl Waiting {
    fn become_now(&mut self, now: Instant, waiting: u64) {
        let is_anew = self.now == 0 && waiting > 0 && now > self.since;
        self.peak = if is_anew { waiting } else { self.peak.max(waiting) };
        if self.now != waiting {
            (self.now, self.since) = (waiting, now);
        }
    }
}

/// A router.
pub(crate) struct RouterNode {
    setup: Setup,
    key: HashKey,
    pub(crate) shards: Vec<Router>,
    /// Of each shard: the queue before its store, where that blocks.
    blocking: Vec<Option<BlockingStore>>,
    configs: Vec<RouterConfig>,
    pub(crate) stages: Option<Box<Stages>>,
    /// They outlive the shards.
    pub(crate) disks: Option<Box<Disks>>,
    /// What waits for the disks of each shard.
    waiting: Vec<Waiting>,
    /// Counters of lives that ended in a crash.
    past: RouterSample,
    lives: u64,
    until_check: u32,
    /// Calls in a row after each of which a shard wanted the next one at once.
    calls_at_once: u32,
    /// Faults that keep the store from serving.
    store_stalls: u32,
    stalled_until: Instant,
}

impl RouterNode {
    pub(crate) fn new(setup: Setup, library: &mut Library) -> Self {
        let disk_seed = seed_of(setup.seed, Part::Disk, 0);
        let disks = setup.plan.disk.as_ref();
        let disks = disks.map(|plan| Box::new(Disks::new(plan, setup.plan.shards, disk_seed)));
        let mut router = Self {
            key: HashKey::new([
                seed_of(setup.seed, Part::HashKey, 0),
                seed_of(setup.seed, Part::HashKey, 1),
            ]),
            shards: Vec::new(),
            blocking: Vec::new(),
            configs: Vec::new(),
            stages: None,
            disks,
            waiting: Vec::new(),
            past: RouterSample::default(),
            lives: 0,
            until_check: CHECK_INTERVAL,
            calls_at_once: 0,
            store_stalls: 0,
            stalled_until: Instant::ZERO,
            setup,
        };
        router.start_at_once(library);
        router
    }

    /// Begins, and knows what is on its disks before the run does.
    fn start_at_once(&mut self, library: &mut Library) {
        let ops = self.start(Instant::ZERO);
        let Some(disks) = &mut self.disks else { return };
        for (shard, ops) in self.shards.iter_mut().zip(ops) {
            work_at_once(shard, ops, disks, library);
        }
    }

    /// Begins with nothing but what is configured, and with what is on its disks. Returns what each
    /// shard wants of them.
    fn start(&mut self, now: Instant) -> Vec<Vec<DiskOp>> {
        let life = self.lives;
        self.lives += 1;
        let Setup { seed, plan, pool_bytes_max, .. } = &self.setup;
        let seed = seed_of(*seed, Part::Router, life);
        let count = usize::from(plan.shards);
        let entries_max = (plan.pit_entries_max as usize).div_ceil(count);
        let config = |shard: u16| RouterConfig {
            shard,
            shard_count: plan.shards,
            hash_key: self.key,
            seed: seed_of(seed, Part::Router, u64::from(shard)),
            store: StoreConfig {
                capacity_bytes: plan.store.size.bytes / count as u64,
                ..plan.store.config()
            },
            unsolicited: plan.store.unsolicited,
            pit_entries_max: entries_max,
            pit_entries_per_face_max: entries_max,
            pool_bytes_max: *pool_bytes_max,
            disk: self.disks.as_ref().map(|disks| disks.tier(shard, self.key)),
            busy: plan.disk.as_ref().map(|disk| disk.options.busy()).unwrap_or_default(),
            ..RouterConfig::default()
        };
        self.configs = (0..plan.shards).map(config).collect();
        self.shards = self.configs.iter().map(|config| Router::new(now, config.clone())).collect();
        self.blocking = self.shards.iter_mut().map(BlockingStore::of).collect();
        self.stages = plan
            .stages
            .as_ref()
            .map(|stages| Box::new(Stages::new(stages, seed_of(seed, Part::Stage, 0))));
        self.waiting = vec![Waiting::default(); count];
        let mut ops = Vec::with_capacity(count);
        for shard in &mut self.shards {
            let mut out = Outbox::default();
            for &(face, scope) in &self.setup.faces {
                let attributes = FaceAttributes::point_to_point(scope);
                apply(shard, now, Command::AddFace { face, attributes }, &mut out);
            }
            // Consumers of a simulation may be behind links, as routers are.
            let watches = match self.setup.watches_misses {
                true => MissWatch::All,
                false => MissWatch::Off,
            };
            apply(shard, now, Command::WatchMisses(watches), &mut out);
            if self.setup.tells_holdings {
                let track = StoreCommand::Track(Some(HoldingsConfig::default()));
                apply(shard, now, Command::Store(track), &mut out);
            }
            let prefix = Name::new();
            let strategy = Some(self.setup.strategy.clone());
            apply(shard, now, Command::SetStrategy { prefix, strategy }, &mut out);
            for (prefix, next_hops) in &self.setup.routes {
                let (prefix, next_hops) = (prefix.clone(), next_hops.clone());
                apply(shard, now, Command::SetNextHops { prefix, next_hops }, &mut out);
            }
            for number in 0..self.setup.plan.fib_filler {
                let prefix = filler_prefix(number);
                let next_hops = vec![NextHop { face: FaceId::NULL, cost: 0 }];
                apply(shard, now, Command::SetNextHops { prefix, next_hops }, &mut out);
            }
            ops.push(out.disk_ops);
        }
        ops
    }

    /// Puts Data on the disks, as an earlier life would have left it there, as long as all of it
    /// has room; then begins anew.
    pub(crate) fn fill_disks(
        &mut self,
        packets: impl IntoIterator<Item = Packet>,
        library: &mut Library,
    ) {
        let Some(mut disks) = self.disks.take() else { return };
        self.shards = self.configs.iter().map(|config| filler(config.clone())).collect();
        for (number, packet) in packets.into_iter().enumerate() {
            let shard = self.shard_of(&LpHeader::default(), &packet);
            let shard = &mut self.shards[shard];
            shard.preload(Instant::ZERO, &packet);
            if number % FILL_BATCH == 0 {
                work_at_once(shard, Vec::new(), &mut disks, library);
                if shard.stats().store.disk.evictions > 0 {
                    break;
                }
            }
        }
        for shard in &mut self.shards {
            let mut out = Outbox::default();
            apply(shard, Instant::ZERO, Command::FlushStore { transaction: 0 }, &mut out);
            work_at_once(shard, out.disk_ops, &mut disks, library);
        }
        self.disks = Some(disks);
        self.lives = 0;
        self.start_at_once(library);
    }

    /// Has a shard take inputs, and the disks what it wants of them.
    #[inline]
    pub(crate) fn handle(
        &mut self,
        shard: usize,
        now: Instant,
        inputs: &mut [Input],
        out: &mut Outbox,
    ) {
        match &mut self.blocking[shard] {
            Some(store) => store.handle(&mut self.shards[shard], now, inputs, out),
            None => self.shards[shard].handle(now, inputs, out),
        }
        self.after_shard(shard, now, out);
    }

    /// Whether Interests queue before the store while it reads.
    pub(crate) fn is_store_blocking(&self) -> bool {
        self.blocking.iter().any(Option::is_some)
    }

    /// Calls the shards whose time has come.
    pub(crate) fn wake(&mut self, now: Instant, out: &mut Outbox) -> Result<(), String> {
        let is_due = |shard: &Router| shard.next_wakeup().is_some_and(|at| at <= now);
        let mut is_hurried = false;
        for shard in 0..self.shards.len() {
            if is_due(&self.shards[shard]) {
                self.handle(shard, now, &mut [Input::Wakeup], out);
                is_hurried |= is_due(&self.shards[shard]);
            }
        }
        self.calls_at_once = if is_hurried { self.calls_at_once + 1 } else { 0 };
        liveness::comes_to_rest(self.calls_at_once)
    }

    /// Gives the disks what a shard wants of them, and the other shards what it says to them, which
    /// takes no time.
    #[inline]
    pub(crate) fn after_shard(&mut self, shard: usize, now: Instant, out: &mut Outbox) {
        self.submit_disk_ops(shard, now, out);
        if !out.shard_messages.is_empty() {
            self.deliver_shard_messages(shard, now, out);
        }
    }

    #[cold]
    fn deliver_shard_messages(&mut self, shard: usize, now: Instant, out: &mut Outbox) {
        let mut under_way = VecDeque::new();
        let mut from = shard;
        loop {
            let said = out.shard_messages.drain(..);
            under_way.extend(said.map(|(to, message)| (from, usize::from(to), message)));
            let Some((sender, to, message)) = under_way.pop_front() else { return };
            let mut input = [Input::Shard { from: sender as u16, message }];
            self.shards[to].handle(now, &mut input, out);
            self.submit_disk_ops(to, now, out);
            from = to;
        }
    }

    #[inline]
    fn submit_disk_ops(&mut self, shard: usize, now: Instant, out: &mut Outbox) {
        let Some(disks) = &mut self.disks else { return };
        disks.submit(now, shard, &mut out.disk_ops);
        self.waiting[shard].become_now(now, self.shards[shard].interests_waiting());
    }

    /// Has the store take what it is given, whether it admits what passes or not.
    pub(crate) fn begin_filling(&mut self) {
        self.configure_stores(|store| StoreConfig { admit: true, ..store });
    }

    /// Puts a Data into the store. No when it does not fit, or only in place of other Data.
    pub(crate) fn fill(&mut self, shard: usize, packet: &Packet) -> bool {
        let shard = &mut self.shards[shard];
        shard.preload(Instant::ZERO, packet) && shard.stats().store.evictions == 0
    }

    /// What the stores of all shards hold in memory at the start, as an agent would tell it. They
    /// keep no index of it afterwards.
    pub(crate) fn holdings_at_start(&mut self) -> Vec<Change> {
        let mut changes: Vec<Change> = Vec::new();
        let now = Instant::ZERO;
        let keeps_index = self.setup.tells_holdings;
        if !keeps_index {
            self.track_holdings(Some(HoldingsConfig::default()));
        }
        for shard in 0..self.shards.len() {
            let mut out = Outbox::default();
            while self.shards[shard].next_wakeup().is_some_and(|at| at == now) {
                self.handle(shard, now, &mut [Input::Wakeup], &mut out);
            }
        }
        self.for_holdings(now, &Name::new(), |holding| add_holding(&mut changes, holding));
        if !keeps_index {
            self.track_holdings(None);
        }
        changes
    }

    /// What they hold of an object.
    pub(crate) fn holdings_of(&mut self, now: Instant, object: Name) -> HoldingsStatus {
        let mut held = Segments::default();
        self.for_holdings(now, &object, |holding| {
            if holding.name == object {
                for range in holding.ranges {
                    held.insert(range.first..=range.last);
                }
            }
        });
        let range = |(first, last)| SegmentRange { first, last };
        let memory = held.ranges().map(range).collect();
        let mut status = HoldingsStatus { memory, object, ..HoldingsStatus::default() };
        status.limit();
        status
    }

    fn track_holdings(&mut self, config: Option<HoldingsConfig>) {
        for shard in 0..self.shards.len() {
            let command = Command::Store(StoreCommand::Track(config));
            self.command(shard, Instant::ZERO, command, &mut Outbox::default());
        }
    }

    /// Calls `each` with what the stores hold in memory below a prefix, of which there is an index.
    fn for_holdings(&mut self, now: Instant, prefix: &Name, mut each: impl FnMut(Holding)) {
        for shard in 0..self.shards.len() {
            let mut out = Outbox::default();
            let (prefix, from) = (prefix.clone(), HoldingsCursor::default());
            let list = StoreCommand::List { transaction: 0, prefix, from, visits_max: u32::MAX };
            self.command(shard, now, Command::Store(list), &mut out);
            for event in out.events.drain(..) {
                if let Event::Store(StoreEvent::Listed { page: Some(page), .. }) = event {
                    page.holdings.into_iter().for_each(&mut each);
                }
            }
        }
    }

    /// Has the store admit what it is configured to.
    pub(crate) fn end_filling(&mut self) {
        self.configure_stores(|store| store);
    }

    fn configure_stores(&mut self, change: impl Fn(StoreConfig) -> StoreConfig) {
        let mut out = Outbox::default();
        for shard in 0..self.shards.len() {
            let store = change(self.configs[shard].store.clone());
            self.command(shard, Instant::ZERO, Command::ConfigureStore(store), &mut out);
        }
    }

    /// Everything it knew is lost, but what its disks hold.
    pub(crate) fn crash(&mut self, now: Instant, library: &mut Library) {
        self.past = self.counters(now);
        self.past.clear_sizes();
        self.past.disk.clear_sizes();
        self.past.busy.clear_sizes();
        self.shards.clear();
        self.stages = None;
        if let Some(disks) = &mut self.disks {
            disks.crash(library);
        }
    }

    /// It has got a further face, which it makes again after a crash.
    pub(crate) fn note_face(&mut self, face: FaceId) {
        self.setup.faces.push((face, FaceScope::NonLocal));
    }

    /// Which life this is.
    pub(crate) fn lives(&self) -> u64 {
        self.lives
    }

    /// Whether a life goes on.
    pub(crate) fn is_living(&self, life: u64) -> bool {
        self.lives == life && !self.shards.is_empty()
    }

    /// The processor's queue of a life that goes on.
    pub(crate) fn cpu_of(&mut self, life: u64) -> Option<&mut Cpu> {
        if !self.is_living(life) {
            return None;
        }
        self.stages.as_mut()?.cpu.as_mut()
    }

    /// The shard that a packet belongs to; what is no packet may be counted by any.
    #[inline]
    pub(crate) fn shard_of(&self, header: &LpHeader, packet: &[u8]) -> usize {
        let count = self.setup.plan.shards;
        usize::from(shard_of_packet(&self.key, header, packet, count).unwrap_or(0))
    }

    /// The bounds of a shard, every so often.
    #[inline]
    pub(crate) fn check_sometimes(&mut self, shard: usize) -> Result<(), String> {
        self.until_check -= 1;
        if self.until_check > 0 {
            return Ok(());
        }
        self.until_check = CHECK_INTERVAL;
        // A router that has crashed has no shards.
        match (self.shards.get(shard), self.configs.get(shard)) {
            (Some(shard), Some(config)) => self.check_shard(shard, config),
            _ => Ok(()),
        }
    }

    fn check_shard(&self, shard: &Router, config: &RouterConfig) -> Result<(), String> {
        let stats = shard.stats();
        bounds::router(&stats, config)?;
        let interests_max = config.busy.interests_waiting_max as u64;
        config.disk.as_ref().map_or(Ok(()), |tier| disk::queues(&stats, tier, interests_max))
    }

    /// The bounds of everything.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (shard, config) in self.shards.iter().zip(&self.configs) {
            self.check_shard(shard, config)?;
        }
        self.stages.as_ref().map_or(Ok(()), |stages| stages.check())
    }

    /// Pending Interests of all shards.
    pub(crate) fn pit_entries(&self) -> u64 {
        self.shards.iter().map(|shard| shard.stats().pit_entries).sum()
    }

    /// Nothing is pending, and nothing waits for a disk.
    pub(crate) fn check_drained(&self) -> Result<(), String> {
        bounds::drained(self.pit_entries())?;
        let Some(disks) = &self.disks else { return Ok(()) };
        self.shards.iter().try_for_each(|shard| disk::drained(&shard.stats(), disks.under_way()))
    }

    /// Whether nothing is on its way within the router.
    pub(crate) fn is_quiet(&self) -> bool {
        let has_empty_stages =
            self.stages.as_ref().is_none_or(|stages| stages.lengths().all(|(_, len, _)| len == 0));
        let is_idle = self.disks.as_ref().is_none_or(|disks| disks.under_way() == 0);
        has_empty_stages && is_idle && self.disk_queues().all(|(_, len)| len == 0)
    }

    /// What waits for the disks.
    pub(crate) fn disk_queues(&self) -> impl Iterator<Item = (Queue, u32)> + use<> {
        let mut lengths = [(Queue::DiskReads, 0), (Queue::DiskWrites, 0), (Queue::DiskBlocked, 0)];
        for shard in self.shards.iter().filter(|_| self.disks.is_some()) {
            let stats = shard.stats();
            lengths[0].1 += stats.store.disk.reads_waiting as u32;
            lengths[1].1 += stats.store.disk.writes_waiting as u32;
            lengths[2].1 += stats.busy.interests_waiting as u32;
        }
        let count = if self.disks.is_some() { lengths.len() } else { 0 };
        lengths.into_iter().take(count)
    }

    /// A Data that was marked leaves the store of a shard. Which one is not asked: shards that are
    /// woken together send together, and one may mark because of another one's disks.
    #[cold]
    pub(crate) fn check_mark(
        &self,
        data: &[u8],
        is_available: impl Fn(&FaceId) -> bool,
    ) -> Result<(), String> {
        let plan = self.setup.plan.disk.as_ref();
        let mark = plan.map_or(Mark::Off, |plan| plan.options.mark);
        let tier = self.configs.first().and_then(|config| config.disk.as_ref());
        let threshold = tier.map_or(0, |tier| tier.threshold);
        let is_late = plan.is_some_and(|plan| plan.options.bypass == Bypass::Late);
        let backlog_max = tier.map_or(0, |tier| tier.write_backlog_bytes_max);
        let backlogs = self.shards.iter().map(|shard| shard.stats().store.disk.write_backlog_bytes);
        let outruns_disks = backlogs.max().unwrap_or(0) > backlog_max / 4;
        if mark != Mark::Off && (is_late || outruns_disks) {
            // Marks follow how long reads take, or how much waits to be written.
            return Ok(());
        }
        let peak = self.waiting.iter().map(|waiting| waiting.peak).max().unwrap_or(0);
        disk::mark(mark, peak, threshold)?;
        let can_pass = plan.is_some_and(|plan| plan.options.bypass != Bypass::Off);
        // With labels of paths, marks say what is available, which no announcement tells.
        let is_told = plan.is_some_and(|plan| plan.options.labels == Labels::Neighbour);
        if mark != Mark::NbCc || !can_pass || !is_told {
            return Ok(());
        }
        let hops = self.next_hops_of(data).iter().map(|hop| hop.face);
        disk::lazy_mark(hops.filter(is_available).count())
    }

    /// The next hops of the longest prefix of the name of a Data.
    fn next_hops_of(&self, data: &[u8]) -> &[NextHop] {
        Peek::of(data).map_or(&[], |peek| self.next_hops_below(peek.name_value(data)))
    }

    /// The next hops of the longest prefix of a name among the routes of the plan.
    pub(crate) fn next_hops_below(&self, name: &[u8]) -> &[NextHop] {
        let is_prefix = |prefix: &Name| name.starts_with(prefix.as_view().value());
        let matching = self.setup.routes.iter().filter(|(prefix, _)| is_prefix(prefix));
        let longest = matching.max_by_key(|(prefix, _)| prefix.as_view().value().len());
        longest.map_or(&[], |(_, next_hops)| next_hops)
    }

    /// No filter refuses what it must not, and no shard has lost a record that was acknowledged, if
    /// `are_records_kept`; nothing is said while one is still reading in what it has.
    pub(crate) fn check_records(
        &self,
        now: Instant,
        are_records_kept: bool,
        library: &mut Library,
    ) -> Result<(), String> {
        let Some(disks) = &self.disks else { return Ok(()) };
        let is_recovering = |shard: &Router| shard.disk_stats().is_recovering();
        if self.shards.is_empty() || self.shards.iter().any(is_recovering) {
            return Ok(());
        }
        let skip = now.as_ns() as usize;
        for (shard, record) in disks.acknowledged(RECORDS_LOOKED_FOR, skip, library) {
            let shard = &self.shards[shard];
            disk::filter(shard.is_filter_wrong(&record.packet), record.offset)?;
            if are_records_kept {
                let is_found = shard.would_find(now, &record.packet);
                disk::acknowledged(is_found, record.offset, record.sequence)?;
            }
        }
        Ok(())
    }

    /// When the first shard or stage wants to be called, ns.
    #[inline]
    pub(crate) fn next_wakeup_ns(&self) -> Option<u64> {
        let shards = self.shards.iter().filter_map(Router::next_wakeup).min();
        let stages = self.stages.as_ref().and_then(|stages| stages.next_completion());
        let disks = self.disks.as_ref().and_then(|disks| disks.next_completion());
        shards.into_iter().chain(stages).chain(disks).min().map(Instant::as_ns)
    }

    /// A fault keeps the store from serving until then.
    pub(crate) fn begin_stall(&mut self, now: Instant, until: Instant, out: &mut Outbox) {
        self.store_stalls += 1;
        self.stalled_until = self.stalled_until.max(until);
        self.stall(now, out);
    }

    /// One fault less keeps the store from serving.
    pub(crate) fn end_stall(&mut self, now: Instant, out: &mut Outbox) {
        self.store_stalls -= 1;
        if self.store_stalls == 0 && !self.has_store_stage() && self.disks.is_none() {
            self.set_store_serves(now, true, out);
        }
    }

    /// Holds the store's disks and stage up, or the store itself where it has none.
    fn stall(&mut self, now: Instant, out: &mut Outbox) {
        let until = self.stalled_until;
        if let Some(disks) = &mut self.disks {
            disks.stall(now, None, until);
        }
        match &mut self.stages {
            Some(stages) if stages.has_store() => stages.stall_store(now, until),
            _ if self.disks.is_some() => {}
            _ => self.set_store_serves(now, false, out),
        }
    }

    fn has_store_stage(&self) -> bool {
        self.stages.as_ref().is_some_and(|stages| stages.has_store())
    }

    /// Begins anew after a crash; what holds up the store still does.
    pub(crate) fn restart(&mut self, now: Instant, out: &mut Outbox) {
        let ops = self.start(now);
        if let Some(disks) = &mut self.disks {
            for (shard, mut ops) in ops.into_iter().enumerate() {
                disks.submit(now, shard, &mut ops);
            }
        }
        if self.store_stalls > 0 {
            self.stall(now, out);
        }
    }

    /// Stops the store from answering and storing, or lets it do so again.
    fn set_store_serves(&mut self, now: Instant, serves: bool, out: &mut Outbox) {
        for shard in 0..self.shards.len() {
            let StoreConfig { admit, serve, .. } = self.configs[shard].store;
            let store = StoreConfig {
                admit: admit && serves,
                serve: serve && serves,
                ..self.configs[shard].store.clone()
            };
            self.command(shard, now, Command::ConfigureStore(store), out);
        }
    }

    fn command(&mut self, shard: usize, now: Instant, command: Command, out: &mut Outbox) {
        self.handle(shard, now, &mut [Input::Command(command)], out);
    }

    /// Counters since the start of the run, but those of the faces.
    pub(crate) fn counters(&mut self, now: Instant) -> RouterSample {
        let mut sum = self.past;
        if let Some(stages) = &mut self.stages {
            sum.cpu_ns += stages.cpu_busy_ns(now);
        }
        for shard in &self.shards {
            add(&mut sum, &shard.stats());
        }
        sum
    }
}

/// A shard that takes all that it is given to its disks.
fn filler(config: RouterConfig) -> Router {
    let disk = config.disk.map(|disk| DiskTierConfig {
        admission: Admission::All,
        offer_at: OfferAt::Arrival,
        write_backlog_bytes_max: u64::MAX,
        write_delay_max_ns: 0,
        ..disk
    });
    let store = StoreConfig { capacity_bytes: FILL_BYTES, admit: true, ..config.store };
    Router::new(Instant::ZERO, RouterConfig { disk, store, ..config })
}

/// Does on the disks what a shard wants, at the beginning of time, until it wants no more.
fn work_at_once(
    shard: &mut Router,
    mut ops: Vec<DiskOp>,
    disks: &mut Disks,
    library: &mut Library,
) {
    let mut out = Outbox::default();
    loop {
        let done = |op: DiskOp| {
            let id = op.id;
            Input::DiskDone { id, outcome: disks.do_at_once(op, library) }
        };
        let mut inputs: Vec<Input> = ops.drain(..).map(done).collect();
        inputs.push(Input::Wakeup);
        shard.handle(Instant::ZERO, &mut inputs, &mut out);
        std::mem::swap(&mut ops, &mut out.disk_ops);
        if ops.is_empty() {
            return;
        }
    }
}

fn apply(shard: &mut Router, now: Instant, command: Command, out: &mut Outbox) {
    shard.handle(now, &mut [Input::Command(command)], out);
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

/// Adds what one shard holds of an object to what others do.
fn add_holding(changes: &mut Vec<Change>, holding: Holding) {
    let known = changes.iter_mut().find(|change| change.object == holding.name);
    let change = match known {
        Some(change) => change,
        None => {
            changes.push(Change {
                object: holding.name,
                tier: Tier::Memory,
                added: Segments::default(),
                removed: Segments::default(),
            });
            let last = changes.len() - 1;
            &mut changes[last]
        }
    };
    for range in holding.ranges {
        change.added.insert(range.first..=range.last);
    }
}
