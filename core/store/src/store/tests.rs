use super::*;
use crate::config::{Compare, EvictionPolicy, IndexKind};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};
use weir_base::{HashKey, NS_PER_S};
use weir_wire::{Data, Name};

pub(super) const KEY: HashKey = HashKey::new([7, 8]);
const LARGE: u64 = 1 << 30;

pub(super) fn name(uri: &str) -> Name {
    uri.parse().unwrap()
}

fn hashes(name: NameView<'_>) -> NameHashes {
    let parent = name.parent();
    NameHashes {
        whole: KEY.hash(name.value()),
        parent: (!parent.is_empty()).then(|| KEY.hash(parent.value())),
        grandparent: None,
    }
}

fn insert(bed: &mut Bed, data: &DataView<'_>) -> Option<Packet> {
    let name = data.name;
    let prefixes = |path: &mut Vec<u64>| {
        path.extend((1..name.component_count()).map(|n| KEY.hash(name.prefix(n).value())));
    };
    bed.store.insert(bed.now, data, hashes(name), 7, prefixes, &mut bed.pool)
}

fn wire(uri: &str, freshness_ms: u64, content: &[u8]) -> Vec<u8> {
    Data::new(name(uri)).freshness_ms(freshness_ms).content(content).encode_with_digest()
}

fn ms(ms: u64) -> Instant {
    Instant::from_ns(ms * NS_PER_MS)
}

/// A store with what it needs around it.
pub(super) struct Bed {
    pub(super) store: Store,
    pub(super) pool: Pool,
    pub(super) now: Instant,
}

impl Bed {
    pub(super) fn new(capacity_bytes: u64, policy: EvictionPolicy) -> Self {
        let config = StoreConfig { capacity_bytes, policy, ..StoreConfig::default() };
        Self { store: Store::new(config), pool: Pool::new(1 << 20), now: ms(1) }
    }

    pub(super) fn large() -> Self {
        Self::new(LARGE, EvictionPolicy::S3Fifo)
    }

    pub(super) fn set_capacity_bytes(&mut self, capacity_bytes: u64) {
        self.store
            .configure(self.now, StoreConfig { capacity_bytes, ..self.store.config().clone() });
    }

    fn set_flags(&mut self, admit: bool, serve: bool) {
        self.store.configure(self.now, StoreConfig { admit, serve, ..self.store.config().clone() });
    }

    pub(super) fn put_wire(&mut self, wire: &[u8]) -> Option<Packet> {
        let data = DataView::decode(wire).unwrap();
        insert(self, &data)
    }

    pub(super) fn put(&mut self, uri: &str, freshness_ms: u64) -> bool {
        self.put_wire(&wire(uri, freshness_ms, b"")).is_some()
    }

    pub(super) fn ask(
        &mut self,
        uri: &str,
        can_be_prefix: bool,
        must_be_fresh: bool,
    ) -> Option<Hit> {
        let name = name(uri);
        let hashes = hashes(name.as_view());
        let query = Query { name: name.as_view(), hashes, can_be_prefix, must_be_fresh };
        match self.store.lookup(self.now, &query) {
            Lookup::Hit(hit) => Some(hit),
            Lookup::OnDisk(_) | Lookup::Miss => None,
        }
    }

    /// The name of the answer.
    fn found(&mut self, uri: &str, can_be_prefix: bool, must_be_fresh: bool) -> Option<String> {
        let hit = self.ask(uri, can_be_prefix, must_be_fresh)?;
        Some(format!("{}", DataView::decode(&hit.packet).unwrap().name))
    }

    pub(super) fn erase(&mut self, uri: &str, limit: usize) -> usize {
        let name = name(uri);
        self.store.erase(name.as_view(), KEY.hash(name.value()), limit)
    }
}

impl Store {
    /// Sums and links agree with each other.
    pub(super) fn check(&self) {
        self.memory.check();
        self.eviction.check(&self.memory.entries);
        if let Some(held) = &self.held {
            held.check(&self.memory);
        }
        assert!(self.replaced.bytes() <= replaced_bytes_max(&self.config));
        assert!(self.bytes() <= self.config.capacity_bytes);
        if self.memory.entries.is_empty() {
            assert_eq!((self.memory.nodes(), self.bytes()), (0, 0));
        }
    }
}

#[test]
fn data_is_found_by_its_name() {
    let mut bed = Bed::large();
    let packet = wire("/a/b/c", 0, b"hello");
    let stored = bed.put_wire(&packet).unwrap();
    assert_eq!(stored[..], packet[..]);
    let hit = bed.ask("/a/b/c", false, false).unwrap();
    assert_eq!(hit.packet.as_ptr(), stored.as_ptr(), "a hit shares the stored copy");
    assert_eq!((hit.freshness_ms, hit.is_fresh), (0, false));
    for miss in ["/a/b", "/a/b/c/d", "/a/b/x"] {
        assert!(bed.ask(miss, false, false).is_none());
    }
    let stats = bed.store.stats();
    assert_eq!((stats.hits, stats.misses, stats.entries, stats.insertions), (1, 3, 1, 1));
}

#[test]
fn the_three_stages_of_prefetch_are_harmless() {
    let mut bed = Bed::large();
    bed.put("/a/b", 0);
    for uri in ["/a/b", "/a", "/x"] {
        let hash = KEY.hash(name(uri).value());
        bed.store.prefetch_table(hash);
        bed.store.prefetch_parent_table(1, hash);
        bed.store.prefetch_entry(hash).inspect(|&entry| bed.store.prefetch_packet(entry));
        bed.store.prefetch_parent(hash).inspect(|&node| bed.store.prefetch_sibling(node));
    }
}

#[test]
fn freshness_runs_out() {
    let mut bed = Bed::large();
    bed.put("/a", 10);
    bed.now = ms(10);
    assert!(bed.ask("/a", false, true).unwrap().is_fresh);
    bed.now = ms(11);
    assert!(bed.ask("/a", false, true).is_none());
    assert!(bed.ask("/a", true, true).is_none());
    let hit = bed.ask("/a", false, false).unwrap();
    assert_eq!((hit.freshness_ms, hit.is_fresh), (10, false));
    bed.put("/a", 10);
    assert!(bed.ask("/a", false, true).is_some(), "the same Data is fresh again");
    assert_eq!((bed.store.stats().refreshes, bed.store.stats().entries), (1, 1));
    bed.put("/forever", u64::MAX);
    bed.now = bed.now.plus_ns(49 * 24 * 3600 * NS_PER_S);
    assert!(bed.ask("/forever", false, true).is_some());
}

#[test]
fn prefixes_of_any_depth_find_data() {
    let mut bed = Bed::large();
    bed.put("/a/b/c/d/e", 0);
    for prefix in ["/a", "/a/b", "/a/b/c", "/a/b/c/d", "/a/b/c/d/e"] {
        assert!(bed.ask(prefix, true, false).is_some(), "{prefix}");
    }
    for miss in ["/b", "/a/b/c/d/e/f", "/a/c"] {
        assert!(bed.ask(miss, true, false).is_none(), "{miss}");
    }
}

#[test]
fn the_data_that_came_last_answers_for_a_prefix() {
    let mut bed = Bed::large();
    for uri in ["/o/v=1/seg=0", "/o/v=1/seg=1", "/o/v=2/seg=0", "/o/v=1/seg=2", "/o/v=2/seg=1"] {
        bed.now = bed.now.plus_ns(1);
        bed.put(uri, 5);
        assert_eq!(bed.found("/o", true, false).unwrap(), uri);
    }
    assert_eq!(bed.found("/o/v=1", true, false).unwrap(), "/o/v=1/seg=2");
    bed.now = ms(50);
    bed.put("/o/v=1/seg=1", 5);
    assert_eq!(bed.found("/o", true, false).unwrap(), "/o/v=1/seg=1", "it came again");
    bed.erase("/o/v=1/seg=1", 1);
    assert_eq!(bed.found("/o", true, false).unwrap(), "/o/v=2/seg=1");
    assert!(bed.ask("/o", true, true).is_none(), "the others are stale");
    for uri in ["/o/v=1/seg=4", "/o/v=3/seg=0", "/o/v=1/seg=3"] {
        bed.put(uri, 5);
    }
    assert_eq!(bed.found("/o", true, false).unwrap(), "/o/v=3/seg=0", "the last name of a moment");
    bed.put("/o", 0);
    assert_eq!(bed.found("/o", true, false).unwrap(), "/o", "the very name before all below it");
}

#[test]
fn a_prefix_lookup_passes_over_stale_data_as_far_as_its_bound() {
    let mut bed = Bed::large();
    for (prefix, count) in [("near", PREFIX_VISITS_MAX / 2), ("far", PREFIX_VISITS_MAX * 2)] {
        bed.put(&format!("/{prefix}/fresh"), 1_000);
        for number in 0..count {
            bed.now = bed.now.plus_ns(1);
            bed.put(&format!("/{prefix}/{number}"), 0);
        }
    }
    assert_eq!(bed.found("/near", true, true).unwrap(), "/near/fresh");
    assert!(bed.ask("/far", true, true).is_none());
    assert!(bed.ask("/far", true, false).is_some());
}

#[test]
fn implicit_digests_are_compared() {
    let mut bed = Bed::large();
    let packet = wire("/a/b", 0, b"one");
    bed.put_wire(&packet);
    let digest = DataView::decode(&packet).unwrap().implicit_digest();
    let ask = |bed: &mut Bed, digest: [u8; 32]| {
        let mut full = name("/a/b");
        full.append_implicit_digest(digest);
        bed.found(&format!("{full}"), false, false)
    };
    assert_eq!(ask(&mut bed, digest).unwrap(), "/a/b");
    assert!(ask(&mut bed, [0; 32]).is_none());
    // A component that only ends as a digest component would.
    let mut value = vec![0, 1, 32];
    value.extend(digest);
    let mut other = name("/a/b");
    other.append_generic(&value);
    assert!(bed.found(&format!("{other}"), false, false).is_none());
    let mut other = name("/a/b");
    other.push(&weir_wire::Component::new(0x101, &digest).unwrap());
    assert!(bed.found(&format!("{other}"), false, false).is_none());
    let mut lone = Name::new();
    lone.append_implicit_digest(digest);
    assert!(bed.found(&format!("{lone}"), true, false).is_none());
}

#[test]
fn other_data_of_a_name_replaces_it() {
    let mut bed = Bed::large();
    bed.put_wire(&wire("/a/b", 0, &[1; 5_000]));
    let before = bed.store.stats().bytes;
    bed.put_wire(&wire("/a/b", 0, b"two"));
    bed.store.check();
    let stats = bed.store.stats();
    assert!(stats.bytes - bed.store.replaced.bytes() < before);
    assert_eq!((stats.entries, stats.evictions), (1, 0));
    let hit = bed.ask("/a/b", false, false).unwrap();
    assert_eq!(DataView::decode(&hit.packet).unwrap().content, b"two");
}

#[test]
fn what_cannot_be_stored_is_refused() {
    let mut bed = Bed::new(2_000, EvictionPolicy::Lru);
    assert!(bed.put("/small", 0));
    assert!(bed.put_wire(&wire("/large", 0, &[0; 2_000])).is_none());
    assert!(bed.ask("/small", false, false).is_some(), "nothing left for what has no room anyway");
    assert_eq!(bed.store.stats().rejections, 1);
    let mut bed = Bed::large();
    assert!(bed.put(&"/a".repeat(COMPONENTS_MAX), 0));
    assert!(!bed.put(&"/a".repeat(COMPONENTS_MAX + 1), 0));
    assert!(bed.ask("/a", true, true).is_none());
    assert!(bed.ask("/a", true, false).is_some());
    assert!(!bed.put("/", 0), "a Data without a name answers no Interest");
    let mut bed = Bed::new(0, EvictionPolicy::S3Fifo);
    assert!(!bed.put("/a", 0));
}

#[test]
fn flags_stop_admission_and_service() {
    let mut bed = Bed::large();
    bed.put("/a", 0);
    bed.set_flags(false, true);
    assert!(!bed.put("/b", 0));
    assert!(bed.ask("/a", false, false).is_some());
    bed.set_flags(true, false);
    assert!(bed.put("/b", 0));
    assert!(bed.ask("/b", false, false).is_none());
    bed.set_flags(true, true);
    assert!(bed.ask("/b", false, false).is_some());
    assert_eq!(bed.store.stats().rejections, 0);
}

#[test]
fn a_smaller_capacity_evicts_at_once() {
    for &policy in EvictionPolicy::ALL {
        let mut bed = Bed::new(LARGE, policy);
        (0..100).for_each(|number| assert!(bed.put(&format!("/a/{number}"), 0)));
        let bytes = bed.store.stats().bytes;
        bed.set_capacity_bytes(bytes / 2);
        bed.store.check();
        let stats = bed.store.stats();
        assert!((45..=50).contains(&stats.entries), "{stats:?}");
        assert_eq!(stats.evictions, 100 - stats.entries);
        assert!(bed.ask("/a/99", false, false).is_some());
        bed.set_capacity_bytes(0);
        bed.store.check();
        assert_eq!(bed.store.stats().bytes, 0);
    }
}

#[test]
fn a_change_of_policy_keeps_data_and_order() {
    let mut bed = Bed::new(LARGE, EvictionPolicy::Lru);
    (0..20).for_each(|number| assert!(bed.put(&format!("/{number}"), 0)));
    (0..5).for_each(|number| assert!(bed.ask(&format!("/{number}"), false, false).is_some()));
    bed.store.configure(
        bed.now,
        StoreConfig { policy: EvictionPolicy::Fifo, ..bed.store.config().clone() },
    );
    let bytes = bed.store.stats().bytes;
    bed.set_capacity_bytes(bytes / 4);
    for number in 0..20 {
        assert_eq!(bed.ask(&format!("/{number}"), false, false).is_some(), number < 5, "{number}");
    }
}

#[test]
fn an_ordered_index_answers_prefixes_with_the_first_name() {
    let mut bed = Bed::large();
    let config = bed.store.config().clone();
    let compare = Compare::Decode;
    bed.store.configure(bed.now, StoreConfig { index: IndexKind::Ordered, compare, ..config });
    for uri in ["/b", "/a/c", "/a/b/2", "/a/b/1", "/a"] {
        assert!(bed.put(uri, 0));
    }
    assert_eq!(bed.found("/a", true, false).unwrap(), "/a");
    assert_eq!(bed.found("/a/b", true, false).unwrap(), "/a/b/1");
    assert_eq!(bed.found("/a/b", false, false), None);
    assert_eq!(bed.found("/b", false, false).unwrap(), "/b");
    assert_eq!(bed.erase("/a/b", 9), 2);
    assert_eq!(bed.found("/a/b", true, false), None);
}

#[test]
fn erase_takes_a_subtree_up_to_its_limit() {
    let mut bed = Bed::large();
    for uri in ["/a", "/a/b", "/a/b/c", "/a/d/e", "/ab", "/f"] {
        bed.put(uri, 0);
    }
    assert_eq!(bed.erase("/x", 10), 0);
    assert_eq!(bed.erase("/a", 0), 0);
    assert_eq!(bed.erase("/a/b", 1), 1);
    assert!(bed.ask("/a/b", false, false).is_none());
    assert_eq!(bed.erase("/a", usize::MAX), 3);
    bed.store.check();
    assert_eq!(bed.erase("/", 1), 1);
    assert_eq!(bed.erase("/", 10), 1);
    bed.store.check();
    assert_eq!((bed.store.stats().erasures, bed.store.stats().entries), (6, 0));
}

#[test]
fn all_data_of_one_name_are_found_by_their_digests() {
    let mut bed = Bed::large();
    let wires: Vec<_> = (0..4_u8).map(|at| wire("/a/b", 100, &[at])).collect();
    let digest = |wire: &[u8]| DataView::decode(wire).unwrap().implicit_digest();
    for wire in &wires {
        assert!(bed.put_wire(wire).is_some());
    }
    let full = |wire: &[u8]| {
        let mut full = name("/a/b");
        full.append_implicit_digest(digest(wire));
        full.to_string()
    };
    for wire in &wires {
        assert_eq!(*bed.ask(&full(wire), false, true).unwrap().packet, **wire);
    }
    assert_eq!(*bed.ask("/a/b", false, true).unwrap().packet, *wires[3], "the newest");
    bed.now = ms(200);
    assert!(bed.ask(&full(&wires[0]), false, true).is_none(), "it is not fresh");
    assert!(bed.ask(&full(&wires[0]), false, false).is_some());
    bed.store.check();
    assert_eq!(bed.erase("/a", 9), 1);
    assert!(wires.iter().all(|wire| bed.ask(&full(wire), false, false).is_none()));
    // They never take more than their part.
    bed.set_capacity_bytes(1 << 16);
    for at in 0..200_u8 {
        bed.put_wire(&wire_of(at));
        bed.store.check();
    }
}

fn wire_of(at: u8) -> Vec<u8> {
    wire("/a/b", 0, &[at; 500])
}

#[test]
fn word_that_there_is_no_such_data_counts_while_it_is_fresh() {
    let mut bed = Bed::large();
    let nack = |uri: &str| {
        let data = Data::new(name(uri)).content_type(weir_wire::content_type::NACK);
        data.freshness_ms(100).encode_with_digest()
    };
    assert!(bed.put_wire(&nack("/a/none")).is_some());
    assert_eq!(bed.found("/a/none", false, true).as_deref(), Some("/a/none"));
    assert_eq!(bed.found("/a/none", false, false).as_deref(), Some("/a/none"));
    assert_eq!(bed.found("/a", true, true), None, "it says nothing of other names");
    bed.now = ms(102);
    assert_eq!(bed.found("/a/none", false, false), None);
    assert_eq!(bed.found("/a", true, false), None);
    // It gives way to Data, and Data does not give way to it.
    assert!(bed.put("/a/none", 0));
    assert!(bed.put_wire(&nack("/a/none")).is_none());
    assert_eq!(bed.found("/a/none", false, false).as_deref(), Some("/a/none"));
    // A segment would count as held.
    assert!(bed.put_wire(&nack("/a/v=1/seg=3")).is_none());
    bed.store.check();
}

#[test]
fn equal_hashes_of_different_names_are_told_apart() {
    let mut bed = Bed::large();
    let clash = |uri: &str, bed: &mut Bed| {
        let wire = wire(uri, 0, b"");
        let data = DataView::decode(&wire).unwrap();
        let hashes = NameHashes { whole: 5, parent: Some(5), grandparent: None };
        let prefixes = |path: &mut Vec<u64>| path.resize(data.name.component_count() - 1, 5);
        bed.store.insert(bed.now, &data, hashes, 7, prefixes, &mut bed.pool);
    };
    for uri in ["/a/b", "/c/d", "/c/e", "/f/g/h"] {
        clash(uri, &mut bed);
    }
    bed.store.check();
    for (uri, answer) in [("/c/d", "/c/d"), ("/c", "/c/e"), ("/a", "/a/b"), ("/f", "/f/g/h")] {
        let name = name(uri);
        let hashes = NameHashes { whole: 5, parent: Some(5), grandparent: None };
        let query =
            Query { name: name.as_view(), hashes, can_be_prefix: true, must_be_fresh: false };
        let Lookup::Hit(hit) = bed.store.lookup(bed.now, &query) else { panic!("{uri}") };
        assert_eq!(format!("{}", DataView::decode(&hit.packet).unwrap().name), answer);
    }
    assert_eq!(bed.store.erase(name("/c").as_view(), 5, 9), 2);
    bed.store.check();
    assert_eq!(bed.store.stats().entries, 2);
}

#[derive(Clone, Debug)]
enum Step {
    Put { name: Vec<u8>, freshness_ms: u64, size: usize },
    Ask { name: Vec<u8>, can_be_prefix: bool, must_be_fresh: bool },
    Erase { name: Vec<u8>, limit: usize },
    Capacity(u64),
    Policy(usize),
    Index(IndexKind, Compare),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || proptest::collection::vec(0..3u8, 1..6);
    let step = prop_oneof![
        8 => (name(), prop_oneof![Just(0), 1..50u64], 0..3_000usize)
            .prop_map(|(name, freshness_ms, size)| Step::Put { name, freshness_ms, size }),
        8 => (name(), any::<bool>(), any::<bool>())
            .prop_map(|(name, can_be_prefix, must_be_fresh)| {
                Step::Ask { name, can_be_prefix, must_be_fresh }
            }),
        1 => (proptest::collection::vec(0..3u8, 0..4), 0..5usize)
            .prop_map(|(name, limit)| Step::Erase { name, limit }),
        1 => (0..40_000u64).prop_map(Step::Capacity),
        1 => (0..EvictionPolicy::ALL.len()).prop_map(Step::Policy),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(is_ordered, decodes)| {
            let index = if is_ordered { IndexKind::Ordered } else { IndexKind::Hash };
            Step::Index(index, if decodes { Compare::Decode } else { Compare::Stored })
        }),
        2 => (0..40u64).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 0..if cfg!(miri) { 20 } else { 150 })
}

fn uri(name: &[u8]) -> String {
    if name.is_empty() {
        "/".into()
    } else {
        name.iter().map(|letter| format!("/{letter}")).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

    /// The model is told what the store has evicted by asking for every name, so it checks
    /// everything but the choice of victims.
    #[test]
    fn equals_a_map_of_names(
        steps in steps(),
        capacity_bytes in prop_oneof![Just(LARGE), 0..40_000u64],
    ) {
        let mut bed = Bed::new(capacity_bytes, EvictionPolicy::S3Fifo);
        let mut model = BTreeMap::<Vec<u8>, (Vec<u8>, Instant, Instant)>::new();
        let mut removed = 0;
        for step in steps {
            match step {
                Step::Put { name, freshness_ms, size } => {
                    let wire = wire(&uri(&name), freshness_ms, &vec![0; size]);
                    let stored = bed.put_wire(&wire);
                    model.remove(&name);
                    if let Some(packet) = stored {
                        prop_assert_eq!(&packet[..], &wire[..]);
                        let until = bed.now.plus_ns(freshness_ms * NS_PER_MS);
                        model.insert(name, (wire, until, bed.now));
                    }
                }
                Step::Ask { name, can_be_prefix, must_be_fresh } => {
                    let now = bed.now;
                    let matches = |other: &[u8]| {
                        other == name || can_be_prefix && other.starts_with(&name)
                    };
                    let matching = model.iter().filter(|(other, (_, until, _))| {
                        matches(other) && (!must_be_fresh || now < *until)
                    });
                    let best = match bed.store.config().index {
                        // The very name, else what came last, the last name of a moment.
                        IndexKind::Hash => matching.max_by_key(|(other, (_, _, came))| {
                            (**other == name, *came, *other)
                        }),
                        IndexKind::Ordered => matching.min_by_key(|(other, _)| *other),
                    };
                    let hit = bed.ask(&uri(&name), can_be_prefix, must_be_fresh);
                    prop_assert_eq!(hit.is_some(), best.is_some());
                    if let (Some(hit), Some((_, (wire, until, _)))) = (hit, best) {
                        prop_assert_eq!(&hit.packet[..], &wire[..]);
                        prop_assert_eq!(hit.is_fresh, now < *until);
                    }
                }
                Step::Erase { name, limit } => {
                    let below = model.keys().filter(|other| other.starts_with(&name)).count();
                    let erased = bed.erase(&uri(&name), limit);
                    prop_assert_eq!(erased, below.min(limit));
                }
                Step::Capacity(bytes) => bed.set_capacity_bytes(bytes),
                Step::Policy(at) => {
                    let policy = EvictionPolicy::ALL[at];
                    let config = StoreConfig { policy, ..bed.store.config().clone() };
                    bed.store.configure(bed.now, config);
                }
                Step::Index(index, compare) => {
                    let config = bed.store.config().clone();
                    bed.store.configure(bed.now, StoreConfig { index, compare, ..config });
                }
                Step::Wait(wait_ms) => bed.now = bed.now.plus_ns(wait_ms * NS_PER_MS),
            }
            bed.store.check();
            let present = model.len();
            model.retain(|name, _| {
                let value = super::tests::name(&uri(name));
                bed.store.memory.find(KEY.hash(value.value()), value.value()).is_some()
            });
            prop_assert_eq!(bed.store.stats().entries, model.len() as u64);
            let stats = bed.store.stats();
            let gone = stats.evictions + stats.erasures - removed;
            prop_assert_eq!((present - model.len()) as u64, gone);
            removed += gone;
        }
    }
}
