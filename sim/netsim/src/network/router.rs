//! A router of the network: its shards, and what it takes to make them again after a crash.

use weir_base::{FaceId, HashKey, Instant, Packet};
use weir_forward::shard::{shard_of_name, shard_of_token};
use weir_forward::{
    Command, FaceScope, Input, LinkType, NextHop, Outbox, Router, RouterConfig, RouterStats,
    strategy::Strategy,
};
use weir_store::StoreConfig;
use weir_wire::{LpHeader, Name, NameView};

use super::stages::Stages;
use crate::check::bounds;
use crate::event::RouterSample;
use crate::hash::{Part, seed_of};
use crate::peek::{Peek, component_end};
use crate::plan::RouterPlan;

/// Inputs after which the bounds of a shard are looked at.
const CHECK_INTERVAL: u32 = 256;

/// What a router is made from.
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) plan: RouterPlan,
    pub(crate) store: StoreConfig,
    pub(crate) strategy: Strategy,
    pub(crate) pool_bytes_max: usize,
    pub(crate) faces: Vec<(FaceId, FaceScope)>,
    pub(crate) routes: Vec<(Name, Vec<NextHop>)>,
}

/// A router.
pub(crate) struct RouterNode {
    setup: Setup,
    key: HashKey,
    pub(crate) shards: Vec<Router>,
    configs: Vec<RouterConfig>,
    pub(crate) stages: Option<Box<Stages>>,
    /// Counters of lives that ended in a crash.
    past: RouterSample,
    lives: u64,
    until_check: u32,
    /// Faults that keep the store from serving.
    store_stalls: u32,
    stalled_until: Instant,
}

impl RouterNode {
    pub(crate) fn new(setup: Setup) -> Self {
        let mut router = Self {
            key: HashKey::new([
                seed_of(setup.seed, Part::HashKey, 0),
                seed_of(setup.seed, Part::HashKey, 1),
            ]),
            shards: Vec::new(),
            configs: Vec::new(),
            stages: None,
            past: RouterSample::default(),
            lives: 0,
            until_check: CHECK_INTERVAL,
            store_stalls: 0,
            stalled_until: Instant::ZERO,
            setup,
        };
        router.start(Instant::ZERO);
        router
    }

    /// Begins with nothing but what is configured.
    fn start(&mut self, now: Instant) {
        let life = self.lives;
        self.lives += 1;
        let Setup { seed, plan, store, pool_bytes_max, .. } = &self.setup;
        let seed = seed_of(*seed, Part::Router, life);
        let count = usize::from(plan.shards);
        let entries_max = (plan.pit_entries_max as usize).div_ceil(count);
        let config = |shard: u16| RouterConfig {
            shard,
            shard_count: plan.shards,
            hash_key: self.key,
            seed: seed_of(seed, Part::Router, u64::from(shard)),
            store: StoreConfig {
                capacity_bytes: store.capacity_bytes / count as u64,
                ..store.clone()
            },
            pit_entries_max: entries_max,
            pit_entries_per_face_max: entries_max,
            pool_bytes_max: *pool_bytes_max,
            ..RouterConfig::default()
        };
        self.configs = (0..plan.shards).map(config).collect();
        self.shards = self.configs.iter().map(|config| Router::new(now, config.clone())).collect();
        self.stages = plan
            .stages
            .as_ref()
            .map(|stages| Box::new(Stages::new(stages, seed_of(seed, Part::Stage, 0))));
        let mut out = Outbox::default();
        for shard in &mut self.shards {
            for &(face, scope) in &self.setup.faces {
                let link_type = LinkType::PointToPoint;
                apply(shard, now, Command::AddFace { face, scope, link_type }, &mut out);
            }
            let prefix = Name::new();
            let strategy = Some(self.setup.strategy.clone());
            apply(shard, now, Command::SetStrategy { prefix, strategy }, &mut out);
            for (prefix, next_hops) in &self.setup.routes {
                let (prefix, next_hops) = (prefix.clone(), next_hops.clone());
                apply(shard, now, Command::SetNextHops { prefix, next_hops }, &mut out);
            }
            for number in 0..self.setup.plan.fib_filler {
                let prefix = filler_name(number);
                let next_hops = vec![NextHop { face: FaceId::NULL, cost: 0 }];
                apply(shard, now, Command::SetNextHops { prefix, next_hops }, &mut out);
            }
        }
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

    /// Has the store admit what it is configured to.
    pub(crate) fn end_filling(&mut self) {
        self.configure_stores(|store| store);
    }

    fn configure_stores(&mut self, change: impl Fn(StoreConfig) -> StoreConfig) {
        let mut out = Outbox::default();
        for (shard, config) in self.shards.iter_mut().zip(&self.configs) {
            let store = change(config.store.clone());
            apply(shard, Instant::ZERO, Command::ConfigureStore(store), &mut out);
        }
    }

    /// Everything it knew is lost.
    pub(crate) fn crash(&mut self, now: Instant) {
        self.past = self.counters(now);
        self.past.store_entries = 0;
        self.past.pit_entries = 0;
        self.shards.clear();
        self.stages = None;
    }

    /// The shard that a packet belongs to, as the runtime spreads them.
    #[inline]
    pub(crate) fn shard_of(&self, header: &LpHeader, peek: Option<&Peek>, packet: &[u8]) -> usize {
        let count = self.setup.plan.shards;
        if count == 1 {
            return 0;
        }
        let Some(peek) = peek else { return 0 };
        if !peek.is_interest
            && let Some(shard) = shard_of_token(&header.pit_token, count)
        {
            return usize::from(shard);
        }
        let name = peek.name_value(packet);
        let first = component_end(name, 0).and_then(|end| name.get(..end)).unwrap_or(name);
        NameView::from_value(first)
            .map_or(0, |name| usize::from(shard_of_name(&self.key, name, 1, count)))
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
            (Some(shard), Some(config)) => bounds::router(&shard.stats(), config),
            _ => Ok(()),
        }
    }

    /// The bounds of everything.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (shard, config) in self.shards.iter().zip(&self.configs) {
            bounds::router(&shard.stats(), config)?;
        }
        self.stages.as_ref().map_or(Ok(()), |stages| stages.check())
    }

    /// Pending Interests of all shards.
    pub(crate) fn pit_entries(&self) -> usize {
        self.shards.iter().map(|shard| shard.stats().pit_entries).sum()
    }

    /// When the first shard or stage wants to be called, ns.
    #[inline]
    pub(crate) fn next_wakeup_ns(&self) -> Option<u64> {
        let shards = self.shards.iter().filter_map(Router::next_wakeup).min();
        let stages = self.stages.as_ref().and_then(|stages| stages.next_completion());
        shards.into_iter().chain(stages).min().map(Instant::as_ns)
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
        if self.store_stalls == 0 && !self.has_store_stage() {
            self.set_store_serves(now, true, out);
        }
    }

    /// Holds the store's stage up, or the store itself where it has none.
    fn stall(&mut self, now: Instant, out: &mut Outbox) {
        match &mut self.stages {
            Some(stages) if stages.has_store() => stages.stall_store(now, self.stalled_until),
            _ => self.set_store_serves(now, false, out),
        }
    }

    fn has_store_stage(&self) -> bool {
        self.stages.as_ref().is_some_and(|stages| stages.has_store())
    }

    /// Begins anew after a crash; what holds up the store still does.
    pub(crate) fn restart(&mut self, now: Instant, out: &mut Outbox) {
        self.start(now);
        if self.store_stalls > 0 {
            self.stall(now, out);
        }
    }

    /// Has the store answer nobody, and store nothing, or lets it again.
    fn set_store_serves(&mut self, now: Instant, serves: bool, out: &mut Outbox) {
        for (shard, config) in self.shards.iter_mut().zip(&self.configs) {
            let StoreConfig { admit, serve, .. } = config.store;
            let store = StoreConfig {
                admit: admit && serves,
                serve: serve && serves,
                ..config.store.clone()
            };
            apply(shard, now, Command::ConfigureStore(store), out);
        }
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
    sum.store_entries += stats.store.entries as u64;
    sum.pit_entries += stats.pit_entries as u64;
    sum.dropped += stats.drops.iter().sum::<u64>();
}

/// A prefix that nobody asks for.
pub(crate) fn filler_name(number: u32) -> Name {
    let mut name = Name::new();
    name.append_generic(b"filler");
    name.append_generic(number.to_string().as_bytes());
    name
}
