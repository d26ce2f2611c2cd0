//! Hits, misses and bytes by prefix, of a store with and without disks.

use super::super::*;
use super::disks::*;
use crate::{
    COUNTED_PREFIXES_MAX, EvictionPolicy, PrefixCounts, ReadData, ShardAnswer, Store, StoreConfig,
};
use std::collections::BTreeMap;
use std::string::String;
use std::vec::Vec;
use std::{format, vec};
use weir_base::{Instant, Merge, Packet, Rng};
use weir_wire::{DataView, Interest, Name, NameView};

fn set(store: &mut Store, prefixes: &[&str]) {
    let names = prefixes.iter().map(|uri| name(uri)).collect();
    store.count_prefixes(names, |prefix| KEY.hash(prefix.value()));
}

fn counts(store: &Store, prefix: &str) -> PrefixCounts {
    let stats = store.prefix_stats();
    let row = stats.0.into_iter().find(|(known, _)| *known == name(prefix));
    row.unwrap_or_else(|| panic!("{prefix} is not counted")).1
}

fn hits(store: &Store, prefix: &str) -> u64 {
    counts(store, prefix).hits
}

#[test]
fn longest_proper_prefix_counts() {
    let mut fixture = Fixture::large();
    set(&mut fixture.store, &["/a", "/a/b/c", "/a/b"]);
    for uri in ["/a", "/a/x", "/a/b", "/a/b/y", "/a/b/c/v/seg=0", "/other/a/b"] {
        fixture.put(uri, 0);
        fixture.ask(uri, false, false).unwrap();
    }
    let served = fixture.ask("/a/b/c/v/seg=0", false, false).unwrap().packet.len() as u64;
    assert_eq!(counts(&fixture.store, "/a/b/c").served_bytes, 2 * served);
    // The Data /a/b is below /a, and the Data /a below nothing.
    let found = ["/a", "/a/b", "/a/b/c"].map(|prefix| hits(&fixture.store, prefix));
    assert_eq!(found, [2, 1, 2]);
    assert_eq!(fixture.store.stats().hits, 7);
    for (uri, can_be_prefix) in
        [("/a/b/c", false), ("/a/b/c", true), ("/a/b/z", true), ("/q", true)]
    {
        fixture.erase("/", 100);
        assert!(fixture.ask(uri, can_be_prefix, false).is_none());
    }
    let misses = ["/a", "/a/b", "/a/b/c"].map(|prefix| counts(&fixture.store, prefix).misses);
    assert_eq!(misses, [0, 2, 1]);
    assert_eq!(fixture.store.stats().misses, 4);
}

#[test]
fn kept_prefix_continues_after_a_change() {
    let mut fixture = Fixture::large();
    fixture.put("/a/b/x", 0);
    fixture.put("/c/x", 0);
    let ask = |fixture: &mut Fixture, times| {
        for _ in 0..times {
            fixture.ask("/a/b/x", false, false).unwrap();
            fixture.ask("/c/x", false, false).unwrap();
            assert!(fixture.ask("/a/none", false, false).is_none());
        }
    };
    ask(&mut fixture, 1);
    set(&mut fixture.store, &["/a", "/c"]);
    while fixture.store.classify(1) {}
    ask(&mut fixture, 2);
    assert_eq!((hits(&fixture.store, "/a"), hits(&fixture.store, "/c")), (2, 2));
    // A longer prefix takes the hits from now on. The removed one takes none along.
    set(&mut fixture.store, &["/a", "/a/b", "/a/b"]);
    while fixture.store.classify(1) {}
    ask(&mut fixture, 4);
    assert_eq!((hits(&fixture.store, "/a"), hits(&fixture.store, "/a/b")), (2, 4));
    assert_eq!(counts(&fixture.store, "/a").misses, 6);
    assert_eq!(fixture.store.prefix_stats().0.len(), 2);
    // Without waiting for the nodes of the earlier change.
    set(&mut fixture.store, &["/c"]);
    set(&mut fixture.store, &["/", "/c"]);
    while fixture.store.classify(u32::MAX) {}
    ask(&mut fixture, 8);
    assert_eq!((hits(&fixture.store, "/"), hits(&fixture.store, "/c")), (8, 8));
    set(&mut fixture.store, &[]);
    ask(&mut fixture, 16);
    assert_eq!(fixture.store.prefix_stats().0, []);
    assert_eq!((fixture.store.stats().hits, fixture.store.stats().misses), (62, 31));
}

#[test]
fn changes_wait_for_a_change_in_progress() {
    let mut fixture = Fixture::large();
    for number in 0..200 {
        fixture.put(&format!("/a/{number}/x"), 0);
    }
    let ask = |fixture: &mut Fixture| {
        for number in 0..200 {
            fixture.ask(&format!("/a/{number}/x"), false, false).unwrap();
        }
        assert!(fixture.ask("/a/none", false, false).is_none());
        let rows = fixture.store.prefix_stats().0.into_iter();
        rows.map(|(name, counts)| (format!("{name}"), counts)).collect::<BTreeMap<_, _>>()
    };
    let names = |rows: &BTreeMap<String, _>| rows.keys().cloned().collect::<Vec<_>>();
    set(&mut fixture.store, &["/a", "/a/1", "/a/2"]);
    while fixture.store.classify(10) {}
    assert_eq!(ask(&mut fixture)["/a/1"].hits, 1);
    set(&mut fixture.store, &["/a", "/a/1", "/a/2", "/a/3"]);
    for _ in 0..10 {
        // None of these takes effect, except that removed prefixes do not continue.
        set(&mut fixture.store, &["/a", "/a/1", "/never"]);
        assert_eq!(names(&ask(&mut fixture)), ["/a", "/a/1"]);
        set(&mut fixture.store, &["/a", "/a/1", "/a/2", "/a/4"]);
        assert_eq!(names(&ask(&mut fixture)), ["/a", "/a/1"]);
    }
    let mut steps = 0;
    while fixture.store.classify(10) {
        steps += 10;
    }
    assert!((400..500).contains(&steps), "{steps} steps for 201 nodes");
    let rows = ask(&mut fixture);
    assert_eq!(names(&rows), ["/a", "/a/1", "/a/2", "/a/4"]);
    let hits = ["/a/1", "/a/2", "/a/4"].map(|prefix| rows[prefix].hits);
    assert_eq!((hits, rows["/a"].misses), ([22, 1, 1], 22));
}

#[test]
fn new_nodes_in_old_slots_have_the_right_class() {
    let mut rng = Rng::from_seed(1);
    let mut fixture = Fixture::large();
    let uri = |rng: &mut Rng| {
        let depth = 1 + rng.below(5);
        (0..depth).map(|_| format!("/{}", rng.below(3))).collect::<String>() + "/x"
    };
    for round in 0..if cfg!(miri) { 1 } else { 200 } {
        for _ in 0..30 {
            fixture.put(&uri(&mut rng), 0);
        }
        let chosen: Vec<String> = (0..4).map(|_| uri(&mut rng).replace("/x", "")).collect();
        set(&mut fixture.store, &chosen.iter().map(|uri| &uri[..]).collect::<Vec<_>>());
        // Nodes leave slots and others come in, before and behind the present slot.
        while fixture.store.classify(1 + rng.below(4)) {
            fixture.erase(&uri(&mut rng).replace("/x", ""), 100);
            for _ in 0..3 {
                fixture.put(&uri(&mut rng), 0);
            }
        }
        for _ in 0..30 {
            let asked = uri(&mut rng);
            let longest = |uri: &&String| asked.starts_with(&format!("{uri}/"));
            let prefix = chosen.iter().filter(longest).max_by_key(|uri| uri.len());
            let before = fixture.store.prefix_stats();
            let is_hit = fixture.ask(&asked, false, false).is_some();
            for (name, counts) in before.0 {
                let is_it = prefix.is_some_and(|uri| *uri == format!("{name}"));
                let more = hits(&fixture.store, &format!("{name}")) - counts.hits;
                assert_eq!(more == 1, is_hit && is_it, "{asked} for {name} in round {round}");
            }
        }
    }
}

#[test]
fn many_changes_reuse_classes() {
    let mut fixture = Fixture::large();
    set(&mut fixture.store, &["/kept"]);
    fixture.put("/kept/x", 0);
    for round in 0..20 {
        let mut prefixes: Vec<String> =
            (0..COUNTED_PREFIXES_MAX).map(|at| format!("/{round}/{at}")).collect();
        prefixes[0] = String::from("/kept");
        set(&mut fixture.store, &prefixes.iter().map(|uri| &uri[..]).collect::<Vec<_>>());
        fixture.ask("/kept/x", false, false).unwrap();
        // The others wait for the change before them, and the next one replaces them.
        if round % 2 == 1 {
            fixture.store.classify(1);
            assert_eq!(fixture.store.prefix_stats().0.len(), COUNTED_PREFIXES_MAX);
        }
    }
    assert_eq!(hits(&fixture.store, "/kept"), 20);
}

#[test]
fn shards_add_up_by_name() {
    let stats = |prefixes: &[&str], hit: &str| {
        let mut fixture = Fixture::large();
        set(&mut fixture.store, prefixes);
        fixture.put(hit, 0);
        fixture.ask(hit, false, false).unwrap();
        fixture.store.prefix_stats()
    };
    let mut sum = stats(&["/a", "/b"], "/b/x");
    sum.merge(&stats(&["/c", "/b"], "/b/y"));
    let found: Vec<_> =
        sum.0.iter().map(|(name, counts)| (format!("{name}"), counts.hits)).collect();
    let expected = [("/a", 0), ("/b", 2), ("/c", 0)];
    assert_eq!(found, expected.map(|(name, hits)| (String::from(name), hits)));
}

#[test]
fn refused_read_is_counted_by_the_caller() {
    let memory = StoreConfig { capacity_bytes: 0, ..StoreConfig::default() };
    let config = DiskTierConfig { reads_max: 1, ..tier_config(vec![geometry(8, 64 << 10, 512)]) };
    let mut fixture = Fixture::with(config, memory);
    fixture.settle();
    set(&mut fixture.store, &["/o", "/o/v=1"]);
    let interest = Interest::new(name("/o")).can_be_prefix(true).encode().into();
    let names = [segment("/o/v=1", 0), segment("/o/v=1", 1), name("/o/whole")];
    for name in &names {
        assert!(fixture.put_content(name, b"1"));
    }
    fixture.settle();
    for name in &names {
        let Found::Disk(found) = fixture.look(name, false, false) else { panic!("on disk") };
        if fixture.store.begin_read(&found).is_err() {
            fixture.store.count_miss_of(&interest);
        }
    }
    // Reads count by the name of the Data, misses by that of the Interest.
    let found = ["/o", "/o/v=1"].map(|prefix| {
        let counts = counts(&fixture.store, prefix);
        (counts.hits, counts.misses, counts.served_bytes)
    });
    assert_eq!(found, [(0, 2, 0), (1, 0, 0)]);
    assert_eq!((fixture.store.stats().hits, fixture.store.stats().misses), (1, 2));
}

const PREFIXES: [&str; 8] = ["/", "/a", "/a/b", "/a/b/c", "/a/b/c/v", "/d", "/d/whole", "/none"];

/// A store, and what it should count.
struct Model {
    fixture: Fixture,
    rng: Rng,
    names: Vec<Name>,
    /// All versions of each name's Data that may still be stored.
    wires: BTreeMap<usize, Vec<Vec<u8>>>,
    expected: BTreeMap<Name, PrefixCounts>,
    /// The counts after the last step.
    before: BTreeMap<Name, PrefixCounts>,
    hits_before: u64,
    hits: u64,
    misses: u64,
    /// Whether nodes may have the classes of earlier prefixes.
    is_changing: bool,
    /// Whether the last hits had no Data.
    is_unknown: bool,
    counter: u32,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed);
        let capacity_bytes = [0, 8_000, 16_000, 1 << 20][rng.below(4) as usize];
        let policies = [EvictionPolicy::Lru, EvictionPolicy::Parts];
        let policy = policies[rng.below(2) as usize];
        let memory = StoreConfig { capacity_bytes, policy, ..StoreConfig::default() };
        let fixture = match rng.below(3) {
            0 => Fixture::new(capacity_bytes, policy),
            _ => Fixture::with(tier_config(vec![geometry(8, 64 << 10, 512)]), memory),
        };
        let mut names: Vec<Name> =
            ["/a", "/a/b", "/a/b/c/x", "/d/whole", "/d/whole/more", "/e"].map(name).into();
        for object in ["/a/v", "/a/b/v", "/a/b/c/v", "/d/v", "/e/v"] {
            names.extend((0..4).map(|number| segment(object, number)));
        }
        let mut model = Self {
            fixture,
            rng,
            names,
            wires: BTreeMap::new(),
            expected: BTreeMap::new(),
            before: BTreeMap::new(),
            hits_before: 0,
            hits: 0,
            misses: 0,
            is_changing: false,
            is_unknown: false,
            counter: 0,
        };
        model.fixture.settle();
        model
    }

    fn any(&mut self) -> usize {
        self.rng.below(self.names.len() as u32) as usize
    }

    fn put(&mut self) {
        let at = self.any();
        self.counter += 1;
        let mut content = self.counter.to_le_bytes().to_vec();
        content.resize(4 + self.rng.below(1_000) as usize, 7);
        let wire = wire(&self.names[at], 0, &content);
        self.wires.entry(at).or_default().push(wire.clone());
        self.fixture.put_wire(&wire);
    }

    /// The longest chosen prefix for which a name counts.
    fn prefix_of(&self, name: NameView<'_>, can_be_prefix: bool) -> Option<Name> {
        let matches = |prefix: &&Name| {
            let prefix = prefix.as_view();
            prefix.is_prefix_of(name) && (prefix != name || can_be_prefix)
        };
        let matching = self.expected.keys().filter(matches);
        matching.max_by_key(|prefix| prefix.component_count()).cloned()
    }

    fn on_hit(&mut self, wire: &[u8]) {
        self.hits += 1;
        let data = DataView::decode(wire).unwrap();
        if let Some(prefix) = self.prefix_of(data.name, false) {
            let counts = self.expected.get_mut(&prefix).unwrap();
            counts.hits += 1;
            counts.served_bytes += wire.len() as u64;
        }
    }

    fn on_miss(&mut self, requested: &Name, can_be_prefix: bool) {
        self.misses += 1;
        if let Some(prefix) = self.prefix_of(requested.as_view(), can_be_prefix) {
            self.expected.get_mut(&prefix).unwrap().misses += 1;
        }
    }

    fn ask(&mut self) {
        let at = self.any();
        let mut requested = self.names[at].clone();
        let can_be_prefix = self.rng.below(3) == 0;
        if can_be_prefix && self.rng.below(2) == 0 {
            requested.pop();
        }
        if !can_be_prefix && self.rng.below(4) == 0 {
            // The present Data, or Data that was replaced.
            let Some(wires) = self.wires.get(&at) else { return };
            let wire = &wires[self.rng.below(wires.len() as u32) as usize];
            requested.append_implicit_digest(DataView::decode(wire).unwrap().implicit_digest());
        }
        match self.rng.below(3) {
            0 => self.ask_shard(&requested, can_be_prefix),
            _ => self.ask_store(&requested, can_be_prefix),
        }
    }

    fn ask_store(&mut self, requested: &Name, can_be_prefix: bool) {
        match self.fixture.look(requested, can_be_prefix, false) {
            Found::Memory(hit) => self.on_hit(&hit.packet),
            Found::Disk(found) => self.read(requested, can_be_prefix, &found),
            Found::Nothing => self.on_miss(requested, can_be_prefix),
        }
    }

    fn ask_shard(&mut self, requested: &Name, can_be_prefix: bool) {
        let hashes = hashes(requested.as_view());
        let query =
            crate::Query { name: requested.as_view(), hashes, can_be_prefix, must_be_fresh: false };
        match self.fixture.store.lookup_shard(self.fixture.now, &query) {
            ShardAnswer::Memory { packet, .. } | ShardAnswer::Unwritten(packet) => {
                self.fixture.store.count_hit(&packet);
                self.on_hit(&packet);
            }
            ShardAnswer::OnDisk(found) => self.read(requested, can_be_prefix, &found),
            ShardAnswer::Miss => self.miss(requested, can_be_prefix),
        }
    }

    fn miss(&mut self, requested: &Name, can_be_prefix: bool) {
        self.fixture.store.count_miss(requested.as_view(), can_be_prefix);
        self.on_miss(requested, can_be_prefix);
    }

    /// Reads a record for one or two Interests, and keeps it in memory, or declines it.
    fn read(&mut self, requested: &Name, can_be_prefix: bool, found: &OnDisk) {
        if self.rng.below(4) == 0 {
            return self.miss(requested, can_be_prefix);
        }
        let interests = 1 + self.rng.below(2);
        for _ in 0..interests {
            self.fixture.store.begin_read(found).unwrap();
        }
        self.fixture.settle();
        let finished = self.fixture.store.next_finished().expect("the read has ended");
        let ReadOutcome::Data { packet, fresh_until } = finished.outcome else {
            // The record was replaced meanwhile: its name is not known here.
            self.hits += u64::from(interests);
            self.is_unknown = true;
            return;
        };
        let data = DataView::decode(&packet).unwrap();
        let hashes = hashes(data.name);
        let bytes = u64::from(interests) * packet.len() as u64;
        self.fixture.store.count_read_bytes(data.name, bytes);
        let fill = |path: &mut Vec<u64>| prefixes(data.name, path);
        let read =
            ReadData { packet: &Packet::from(packet.to_vec()), data: &data, hashes, fresh_until };
        let Fixture { store, pool, now, .. } = &mut self.fixture;
        store.promote(*now, read, fill, pool);
        (0..interests).for_each(|_| self.on_hit(&packet));
    }

    fn choose(&mut self) {
        let chosen: Vec<&str> = PREFIXES.into_iter().filter(|_| self.rng.below(2) == 0).collect();
        set(&mut self.fixture.store, &chosen);
        let old = core::mem::take(&mut self.expected);
        let counts = |uri: &&str| {
            let name = name(uri);
            let counts = old.get(&name).copied().unwrap_or_default();
            (name, counts)
        };
        self.expected = chosen.iter().map(counts).collect();
        self.before.clone_from(&self.expected);
        self.is_changing = true;
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..30 => self.put(),
            30..80 => self.ask(),
            80..85 => {
                let at = self.any();
                self.fixture.erase(&format!("{}", self.names[at].clone()), 1);
            }
            85..92 => self.fixture.settle(),
            92..95 => self.choose(),
            _ => self.is_changing &= self.fixture.store.classify(self.rng.below(20)),
        }
        self.check();
    }

    fn check(&mut self) {
        let stats = self.fixture.store.stats();
        assert_eq!((stats.hits, stats.misses), (self.hits, self.misses));
        let found: BTreeMap<_, _> = self.fixture.store.prefix_stats().0.into_iter().collect();
        if core::mem::take(&mut self.is_unknown) || self.is_changing {
            // Hits may count for earlier prefixes, but no counter ever decreases.
            let sum = |of: &BTreeMap<_, PrefixCounts>| of.values().map(|counts| counts.hits).sum();
            let (before, after): (u64, u64) = (sum(&self.before), sum(&found));
            assert!(after <= before + self.hits - self.hits_before);
            // Prefixes that wait for an earlier change to end are missing.
            assert!(found.keys().all(|name| self.expected.contains_key(name)));
            for (name, counts) in &mut self.expected {
                *counts = found.get(name).copied().unwrap_or_default();
                assert!(self.before[name].hits <= counts.hits);
            }
        } else {
            assert_eq!(found, self.expected);
        }
        (self.before, self.hits_before) = (self.expected.clone(), self.hits);
    }
}

#[test]
fn prefix_hits_sum_to_the_stores_hits() {
    let (mut hits, mut misses) = (0, 0);
    for seed in 0..if cfg!(miri) { 1 } else { 100 } {
        let result = std::panic::catch_unwind(|| {
            let mut model = Model::new(seed);
            (0..500).for_each(|_| model.step());
            assert!(model.fixture.now > Instant::ZERO);
            (model.hits, model.misses)
        });
        let (hit, missed) = result.unwrap_or_else(|_| panic!("seed {seed}"));
        (hits, misses) = (hits + hit, misses + missed);
    }
    assert!(hits > 1_000 && misses > 1_000, "{hits} hits, {misses} misses");
}
