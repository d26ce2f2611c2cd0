use super::*;
use crate::config::EvictionPolicy;
use crate::fixture::{self, Fixture, KEY, ms, name};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};
use weir_base::NS_PER_S;
use weir_wire::{Data, Name};

const LARGE: u64 = 1 << 30;

fn wire(uri: &str, freshness_ms: u64, content: &[u8]) -> Vec<u8> {
    fixture::wire(&name(uri), freshness_ms, content)
}

impl Store {
    /// Asserts that sums and links are consistent.
    pub(super) fn check(&self) {
        self.memory.check();
        self.eviction.check(&self.memory.entries);
        if let Some(held) = &self.holdings {
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
    let mut fixture = Fixture::large();
    let packet = wire("/a/b/c", 0, b"hello");
    let stored = fixture.put_wire(&packet).unwrap();
    assert_eq!(stored[..], packet[..]);
    let hit = fixture.ask("/a/b/c", false, false).unwrap();
    assert_eq!(hit.packet.as_ptr(), stored.as_ptr(), "a hit shares the stored copy");
    assert_eq!((hit.freshness_ms, hit.is_fresh), (0, false));
    for miss in ["/a/b", "/a/b/c/d", "/a/b/x"] {
        assert!(fixture.ask(miss, false, false).is_none());
    }
    let stats = fixture.store.stats();
    assert_eq!((stats.hits, stats.misses, stats.entries, stats.insertions), (1, 3, 1, 1));
}

#[test]
fn the_three_stages_of_prefetch_are_harmless() {
    let mut fixture = Fixture::large();
    fixture.put("/a/b", 0);
    for uri in ["/a/b", "/a", "/x"] {
        let hash = KEY.hash(name(uri).value());
        fixture.store.prefetch_table(hash);
        fixture.store.prefetch_parent_table(1, hash);
        fixture.store.prefetch_entry(hash).inspect(|&entry| fixture.store.prefetch_packet(entry));
        fixture.store.prefetch_parent(hash).inspect(|&node| fixture.store.prefetch_sibling(node));
    }
}

#[test]
fn freshness_runs_out() {
    let mut fixture = Fixture::large();
    fixture.put("/a", 10);
    fixture.now = ms(10);
    assert!(fixture.ask("/a", false, true).unwrap().is_fresh);
    fixture.now = ms(11);
    assert!(fixture.ask("/a", false, true).is_none());
    assert!(fixture.ask("/a", true, true).is_none());
    let hit = fixture.ask("/a", false, false).unwrap();
    assert_eq!((hit.freshness_ms, hit.is_fresh), (10, false));
    fixture.put("/a", 10);
    assert!(fixture.ask("/a", false, true).is_some(), "the same Data is fresh again");
    assert_eq!((fixture.store.stats().refreshes, fixture.store.stats().entries), (1, 1));
    fixture.put("/forever", u64::MAX);
    fixture.now = fixture.now.plus_ns(49 * 24 * 3600 * NS_PER_S);
    assert!(fixture.ask("/forever", false, true).is_some());
}

#[test]
fn prefixes_of_any_depth_find_data() {
    let mut fixture = Fixture::large();
    fixture.put("/a/b/c/d/e", 0);
    for prefix in ["/a", "/a/b", "/a/b/c", "/a/b/c/d", "/a/b/c/d/e"] {
        assert!(fixture.ask(prefix, true, false).is_some(), "{prefix}");
    }
    for miss in ["/b", "/a/b/c/d/e/f", "/a/c"] {
        assert!(fixture.ask(miss, true, false).is_none(), "{miss}");
    }
}

#[test]
fn newest_data_answers_prefix() {
    let mut fixture = Fixture::large();
    for uri in ["/o/v=1/seg=0", "/o/v=1/seg=1", "/o/v=2/seg=0", "/o/v=1/seg=2", "/o/v=2/seg=1"] {
        fixture.now = fixture.now.plus_ns(1);
        fixture.put(uri, 5);
        assert_eq!(fixture.found("/o", true, false).unwrap(), uri);
    }
    assert_eq!(fixture.found("/o/v=1", true, false).unwrap(), "/o/v=1/seg=2");
    fixture.now = ms(50);
    fixture.put("/o/v=1/seg=1", 5);
    assert_eq!(fixture.found("/o", true, false).unwrap(), "/o/v=1/seg=1", "it came again");
    fixture.erase("/o/v=1/seg=1", 1);
    assert_eq!(fixture.found("/o", true, false).unwrap(), "/o/v=2/seg=1");
    assert!(fixture.ask("/o", true, true).is_none(), "the others are stale");
    for uri in ["/o/v=1/seg=4", "/o/v=3/seg=0", "/o/v=1/seg=3"] {
        fixture.put(uri, 5);
    }
    assert_eq!(
        fixture.found("/o", true, false).unwrap(),
        "/o/v=3/seg=0",
        "the last name of a moment"
    );
    fixture.put("/o", 0);
    assert_eq!(
        fixture.found("/o", true, false).unwrap(),
        "/o",
        "the very name before all below it"
    );
}

#[test]
fn prefix_lookup_skips_stale_up_to_limit() {
    let mut fixture = Fixture::large();
    for (prefix, count) in [("near", PREFIX_VISITS_MAX / 2), ("far", PREFIX_VISITS_MAX * 2)] {
        fixture.put(&format!("/{prefix}/fresh"), 1_000);
        for number in 0..count {
            fixture.now = fixture.now.plus_ns(1);
            fixture.put(&format!("/{prefix}/{number}"), 0);
        }
    }
    assert_eq!(fixture.found("/near", true, true).unwrap(), "/near/fresh");
    assert!(fixture.ask("/far", true, true).is_none());
    assert!(fixture.ask("/far", true, false).is_some());
}

#[test]
fn implicit_digests_are_compared() {
    let mut fixture = Fixture::large();
    let packet = wire("/a/b", 0, b"one");
    fixture.put_wire(&packet);
    let digest = DataView::decode(&packet).unwrap().implicit_digest();
    let ask = |fixture: &mut Fixture, digest: [u8; 32]| {
        let mut full = name("/a/b");
        full.append_implicit_digest(digest);
        fixture.found(&format!("{full}"), false, false)
    };
    assert_eq!(ask(&mut fixture, digest).unwrap(), "/a/b");
    assert!(ask(&mut fixture, [0; 32]).is_none());
    // A component that only ends like a digest component.
    let mut value = vec![0, 1, 32];
    value.extend(digest);
    let mut other = name("/a/b");
    other.append_generic(&value);
    assert!(fixture.found(&format!("{other}"), false, false).is_none());
    let mut other = name("/a/b");
    other.push(&weir_wire::Component::new(0x101, &digest).unwrap());
    assert!(fixture.found(&format!("{other}"), false, false).is_none());
    let mut lone = Name::new();
    lone.append_implicit_digest(digest);
    assert!(fixture.found(&format!("{lone}"), true, false).is_none());
}

#[test]
fn other_data_of_a_name_replaces_it() {
    let mut fixture = Fixture::large();
    fixture.put_wire(&wire("/a/b", 0, &[1; 5_000]));
    let before = fixture.store.stats().bytes;
    fixture.put_wire(&wire("/a/b", 0, b"two"));
    fixture.store.check();
    let stats = fixture.store.stats();
    assert!(stats.bytes - fixture.store.replaced.bytes() < before);
    assert_eq!((stats.entries, stats.evictions), (1, 0));
    let hit = fixture.ask("/a/b", false, false).unwrap();
    assert_eq!(DataView::decode(&hit.packet).unwrap().content, b"two");
}

#[test]
fn what_cannot_be_stored_is_refused() {
    let mut fixture = Fixture::new(2_000, EvictionPolicy::Lru);
    assert!(fixture.put("/small", 0));
    assert!(fixture.put_wire(&wire("/large", 0, &[0; 2_000])).is_none());
    assert!(
        fixture.ask("/small", false, false).is_some(),
        "nothing left for what has no room anyway"
    );
    assert_eq!(fixture.store.stats().rejections, 1);
    let mut fixture = Fixture::large();
    assert!(fixture.put(&"/a".repeat(COMPONENTS_MAX), 0));
    assert!(!fixture.put(&"/a".repeat(COMPONENTS_MAX + 1), 0));
    assert!(fixture.ask("/a", true, true).is_none());
    assert!(fixture.ask("/a", true, false).is_some());
    assert!(!fixture.put("/", 0), "a Data without a name answers no Interest");
    let mut fixture = Fixture::new(0, EvictionPolicy::S3Fifo);
    assert!(!fixture.put("/a", 0));
}

#[test]
fn flags_stop_admission_and_service() {
    let mut fixture = Fixture::large();
    fixture.put("/a", 0);
    fixture.set_flags(false, true);
    assert!(!fixture.put("/b", 0));
    assert!(fixture.ask("/a", false, false).is_some());
    fixture.set_flags(true, false);
    assert!(fixture.put("/b", 0));
    assert!(fixture.ask("/b", false, false).is_none());
    fixture.set_flags(true, true);
    assert!(fixture.ask("/b", false, false).is_some());
    assert_eq!(fixture.store.stats().rejections, 0);
}

#[test]
fn a_smaller_capacity_evicts_at_once() {
    for &policy in EvictionPolicy::ALL {
        let mut fixture = Fixture::new(LARGE, policy);
        (0..100).for_each(|number| assert!(fixture.put(&format!("/a/{number}"), 0)));
        let bytes = fixture.store.stats().bytes;
        fixture.set_capacity_bytes(bytes / 2);
        fixture.store.check();
        let stats = fixture.store.stats();
        assert!((45..=50).contains(&stats.entries), "{stats:?}");
        assert_eq!(stats.evictions, 100 - stats.entries);
        assert!(fixture.ask("/a/99", false, false).is_some());
        fixture.set_capacity_bytes(0);
        fixture.store.check();
        assert_eq!(fixture.store.stats().bytes, 0);
    }
}

#[test]
fn a_change_of_policy_keeps_data_and_order() {
    let mut fixture = Fixture::new(LARGE, EvictionPolicy::Lru);
    (0..20).for_each(|number| assert!(fixture.put(&format!("/{number}"), 0)));
    (0..5).for_each(|number| assert!(fixture.ask(&format!("/{number}"), false, false).is_some()));
    fixture.store.configure(
        fixture.now,
        StoreConfig { policy: EvictionPolicy::Fifo, ..fixture.store.config().clone() },
    );
    let bytes = fixture.store.stats().bytes;
    fixture.set_capacity_bytes(bytes / 4);
    for number in 0..20 {
        assert_eq!(
            fixture.ask(&format!("/{number}"), false, false).is_some(),
            number < 5,
            "{number}"
        );
    }
}

#[test]
fn erase_takes_a_subtree_up_to_its_limit() {
    let mut fixture = Fixture::large();
    for uri in ["/a", "/a/b", "/a/b/c", "/a/d/e", "/ab", "/f"] {
        fixture.put(uri, 0);
    }
    assert_eq!(fixture.erase("/x", 10), 0);
    assert_eq!(fixture.erase("/a", 0), 0);
    assert_eq!(fixture.erase("/a/b", 1), 1);
    assert!(fixture.ask("/a/b", false, false).is_none());
    assert_eq!(fixture.erase("/a", usize::MAX), 3);
    fixture.store.check();
    assert_eq!(fixture.erase("/", 1), 1);
    assert_eq!(fixture.erase("/", 10), 1);
    fixture.store.check();
    assert_eq!((fixture.store.stats().erasures, fixture.store.stats().entries), (6, 0));
}

#[test]
fn finds_replaced_data_by_digest() {
    let mut fixture = Fixture::large();
    let wires: Vec<_> = (0..4_u8).map(|at| wire("/a/b", 100, &[at])).collect();
    let digest = |wire: &[u8]| DataView::decode(wire).unwrap().implicit_digest();
    for wire in &wires {
        assert!(fixture.put_wire(wire).is_some());
    }
    let full = |wire: &[u8]| {
        let mut full = name("/a/b");
        full.append_implicit_digest(digest(wire));
        full.to_string()
    };
    for wire in &wires {
        assert_eq!(*fixture.ask(&full(wire), false, true).unwrap().packet, **wire);
    }
    assert_eq!(*fixture.ask("/a/b", false, true).unwrap().packet, *wires[3], "the newest");
    fixture.now = ms(200);
    assert!(fixture.ask(&full(&wires[0]), false, true).is_none(), "it is not fresh");
    assert!(fixture.ask(&full(&wires[0]), false, false).is_some());
    fixture.store.check();
    assert_eq!(fixture.erase("/a", 9), 1);
    assert!(wires.iter().all(|wire| fixture.ask(&full(wire), false, false).is_none()));
    // Replaced Data never exceeds its share.
    fixture.set_capacity_bytes(1 << 16);
    for at in 0..200_u8 {
        fixture.put_wire(&wire_of(at));
        fixture.store.check();
    }
}

fn wire_of(at: u8) -> Vec<u8> {
    wire("/a/b", 0, &[at; 500])
}

#[test]
fn application_nack_expires() {
    let mut fixture = Fixture::large();
    let nack = |uri: &str| {
        let data = Data::new(name(uri)).content_type(weir_wire::content_type::NACK);
        data.freshness_ms(100).encode_with_digest()
    };
    assert!(fixture.put_wire(&nack("/a/none")).is_some());
    assert_eq!(fixture.found("/a/none", false, true).as_deref(), Some("/a/none"));
    assert_eq!(fixture.found("/a/none", false, false).as_deref(), Some("/a/none"));
    assert_eq!(fixture.found("/a", true, true), None, "it says nothing of other names");
    fixture.now = ms(102);
    assert_eq!(fixture.found("/a/none", false, false), None);
    assert_eq!(fixture.found("/a", true, false), None);
    // Data replaces the Nack, and a Nack does not replace Data.
    assert!(fixture.put("/a/none", 0));
    assert!(fixture.put_wire(&nack("/a/none")).is_none());
    assert_eq!(fixture.found("/a/none", false, false).as_deref(), Some("/a/none"));
    // A segment's Nack would count as a stored segment.
    assert!(fixture.put_wire(&nack("/a/v=1/seg=3")).is_none());
    fixture.store.check();
}

#[test]
fn hash_collisions_compare_names() {
    let mut fixture = Fixture::large();
    let clash = |uri: &str, fixture: &mut Fixture| {
        let wire = wire(uri, 0, b"");
        let data = DataView::decode(&wire).unwrap();
        let hashes = NameHashes { whole: 5, parent: Some(5), grandparent: None };
        let prefixes = |path: &mut Vec<u64>| path.resize(data.name.component_count() - 1, 5);
        let received = NewData { data: &data, hashes, source: 7 };
        fixture.store.insert(fixture.now, received, prefixes, &mut fixture.pool);
    };
    for uri in ["/a/b", "/c/d", "/c/e", "/f/g/h"] {
        clash(uri, &mut fixture);
    }
    fixture.store.check();
    for (uri, answer) in [("/c/d", "/c/d"), ("/c", "/c/e"), ("/a", "/a/b"), ("/f", "/f/g/h")] {
        let name = name(uri);
        let hashes = NameHashes { whole: 5, parent: Some(5), grandparent: None };
        let query =
            Query { name: name.as_view(), hashes, can_be_prefix: true, must_be_fresh: false };
        let Lookup::Hit(hit) = fixture.store.lookup(fixture.now, &query) else { panic!("{uri}") };
        assert_eq!(format!("{}", DataView::decode(&hit.packet).unwrap().name), answer);
    }
    assert_eq!(fixture.store.erase(name("/c").as_view(), 5, 9), 2);
    fixture.store.check();
    assert_eq!(fixture.store.stats().entries, 2);
}

#[derive(Clone, Debug)]
enum Step {
    Put { name: Vec<u8>, freshness_ms: u64, size: usize },
    Ask { name: Vec<u8>, can_be_prefix: bool, must_be_fresh: bool },
    Erase { name: Vec<u8>, limit: usize },
    Capacity(u64),
    Policy(usize),
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

    /// The model finds out what the store has evicted by looking up every name. So this test checks
    /// everything except the choice of victims.
    #[test]
    fn equals_a_map_of_names(
        steps in steps(),
        capacity_bytes in prop_oneof![Just(LARGE), 0..40_000u64],
    ) {
        let mut fixture = Fixture::new(capacity_bytes, EvictionPolicy::S3Fifo);
        let mut model = BTreeMap::<Vec<u8>, (Vec<u8>, Instant, Instant)>::new();
        let mut removed = 0;
        for step in steps {
            match step {
                Step::Put { name, freshness_ms, size } => {
                    let wire = wire(&uri(&name), freshness_ms, &vec![0; size]);
                    let stored = fixture.put_wire(&wire);
                    model.remove(&name);
                    if let Some(packet) = stored {
                        prop_assert_eq!(&packet[..], &wire[..]);
                        let until = fixture.now.plus_ns(freshness_ms * NS_PER_MS);
                        model.insert(name, (wire, until, fixture.now));
                    }
                }
                Step::Ask { name, can_be_prefix, must_be_fresh } => {
                    let now = fixture.now;
                    let matches = |other: &[u8]| {
                        other == name || can_be_prefix && other.starts_with(&name)
                    };
                    let matching = model.iter().filter(|(other, (_, until, _))| {
                        matches(other) && (!must_be_fresh || now < *until)
                    });
                    // Data of exactly this name, else the newest, else the last in name order.
                    let best = matching.max_by_key(|(other, (_, _, came))| {
                        (**other == name, *came, *other)
                    });
                    let hit = fixture.ask(&uri(&name), can_be_prefix, must_be_fresh);
                    prop_assert_eq!(hit.is_some(), best.is_some());
                    if let (Some(hit), Some((_, (wire, until, _)))) = (hit, best) {
                        prop_assert_eq!(&hit.packet[..], &wire[..]);
                        prop_assert_eq!(hit.is_fresh, now < *until);
                    }
                }
                Step::Erase { name, limit } => {
                    let below = model.keys().filter(|other| other.starts_with(&name)).count();
                    let erased = fixture.erase(&uri(&name), limit);
                    prop_assert_eq!(erased, below.min(limit));
                }
                Step::Capacity(bytes) => fixture.set_capacity_bytes(bytes),
                Step::Policy(at) => {
                    let policy = EvictionPolicy::ALL[at];
                    let config = StoreConfig { policy, ..fixture.store.config().clone() };
                    fixture.store.configure(fixture.now, config);
                }
                Step::Wait(wait_ms) => fixture.now = fixture.now.plus_ns(wait_ms * NS_PER_MS),
            }
            fixture.store.check();
            let present = model.len();
            model.retain(|name, _| {
                let value = super::tests::name(&uri(name));
                fixture.store.memory.find(KEY.hash(value.value()), value.value()).is_some()
            });
            prop_assert_eq!(fixture.store.stats().entries, model.len() as u64);
            let stats = fixture.store.stats();
            let gone = stats.evictions + stats.erasures - removed;
            prop_assert_eq!((present - model.len()) as u64, gone);
            removed += gone;
        }
    }
}
