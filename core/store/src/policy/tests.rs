use super::*;
use crate::entry::{Links, NONE};
use std::collections::HashMap;
use std::vec::Vec;
use weir_base::{Instant, Packet, Rng};

/// The entries that a policy orders, without a store.
struct Fixture {
    entries: Slab<Entry>,
    policy: Policy,
    by_key: HashMap<u64, u32>,
}

impl Fixture {
    fn new(kind: EvictionPolicy) -> Self {
        Self { entries: Slab::new(), policy: Policy::new(kind), by_key: HashMap::new() }
    }

    fn insert(&mut self, key: u64) {
        let entry = Entry {
            packet: Packet::from_static(&[0; 100]),
            fresh_until: Instant::ZERO,
            hash: key.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            freshness_ms: 0,
            node: NONE,
            sibling_links: Links::NONE,
            policy_links: Links::NONE,
            policy_state: 0,
            flags: 0,
            name_offset: 0,
            name_len: 0,
        };
        let index = self.entries.insert(entry);
        self.policy.on_insert(&mut self.entries, index);
        assert!(self.by_key.insert(key, index).is_none());
    }

    fn hit(&mut self, key: u64) {
        self.policy.on_hit(&mut self.entries, self.by_key[&key]);
    }

    fn remove(&mut self, key: u64) {
        let index = self.by_key.remove(&key).unwrap();
        self.policy.on_remove(&mut self.entries, index);
        self.entries.remove(index);
    }

    fn evict(&mut self) -> Option<u64> {
        let index = self.policy.take_victim(&mut self.entries, IncomingData::NONE)?;
        self.entries.remove(index);
        let key = self.by_key.iter().find(|&(_, &other)| other == index).map(|(&key, _)| key);
        self.by_key.remove(&key.unwrap());
        key
    }

    fn evict_all(mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.evict()).collect()
    }

    /// Requests `key` from a cache of `max` entries. Returns whether it was there.
    fn request(&mut self, key: u64, max: usize) -> bool {
        if self.by_key.contains_key(&key) {
            self.hit(key);
            return true;
        }
        if self.by_key.len() >= max {
            self.evict().unwrap();
        }
        self.insert(key);
        false
    }
}

fn filled(kind: EvictionPolicy, keys: u64) -> Fixture {
    let mut fixture = Fixture::new(kind);
    (0..keys).for_each(|key| fixture.insert(key));
    fixture
}

#[test]
fn fifo_ignores_use() {
    let mut fixture = filled(EvictionPolicy::Fifo, 5);
    fixture.hit(0);
    fixture.remove(2);
    assert_eq!(fixture.evict_all(), [0, 1, 3, 4]);
}

#[test]
fn lru_goes_by_the_last_use() {
    let mut fixture = filled(EvictionPolicy::Lru, 5);
    fixture.hit(1);
    fixture.hit(0);
    fixture.hit(4);
    fixture.hit(4);
    fixture.remove(3);
    assert_eq!(fixture.evict_all(), [2, 1, 0, 4]);
}

#[test]
fn lfu_evicts_least_used_then_oldest() {
    let mut fixture = filled(EvictionPolicy::Lfu, 6);
    for key in [0, 0, 0, 1, 2, 2, 3] {
        fixture.hit(key);
    }
    fixture.remove(5);
    assert_eq!(fixture.evict_all(), [4, 1, 3, 2, 0]);
}

#[test]
fn lfu_and_lru_equal_their_definition() {
    for kind in [EvictionPolicy::Lfu, EvictionPolicy::Lru] {
        let mut rng = Rng::from_seed(9);
        let mut fixture = Fixture::new(kind);
        // The number of uses, and the time of the last one.
        let mut model = HashMap::<u64, (u64, u64)>::new();
        for time in 0..if cfg!(miri) { 100 } else { 5_000 } {
            let key = u64::from(rng.below(40));
            match (model.get_mut(&key), rng.below(10)) {
                (Some(_), 0) => {
                    fixture.remove(key);
                    model.remove(&key);
                }
                (Some((uses, last)), _) => {
                    (*uses, *last) = (*uses + 1, time);
                    fixture.hit(key);
                }
                (None, _) => {
                    if model.len() == 20 {
                        let rank = |&(_, &(uses, last)): &(&u64, &(u64, u64))| match kind {
                            EvictionPolicy::Lfu => (uses, last),
                            _ => (last, 0),
                        };
                        let victim = *model.iter().min_by_key(rank).unwrap().0;
                        assert_eq!(fixture.evict(), Some(victim));
                        model.remove(&victim);
                    }
                    model.insert(key, (1, time));
                    fixture.insert(key);
                }
            }
        }
    }
}

#[test]
fn s3_fifo_evicts_data_used_once() {
    let mut fixture = Fixture::new(EvictionPolicy::S3Fifo);
    for key in 0..100 {
        fixture.request(key, 100);
    }
    for key in 0..50 {
        fixture.hit(key);
        fixture.hit(key);
    }
    for key in 1_000..2_000 {
        fixture.request(key, 100);
    }
    let kept = (0..50).filter(|key| fixture.by_key.contains_key(key)).count();
    assert_eq!(kept, 50, "a scan does not push out what is in use");
}

#[test]
fn s3_fifo_remembers_evicted_names() {
    let mut fixture = filled(EvictionPolicy::S3Fifo, 10);
    assert_eq!(fixture.evict(), Some(0));
    fixture.insert(0);
    // It is in the main queue now, which has less than its nine tenths, so all others are evicted
    // first.
    assert_eq!(fixture.evict_all().last(), Some(&0));
}

#[test]
fn s3_fifo_finds_a_victim_when_all_are_in_use() {
    let mut fixture = filled(EvictionPolicy::S3Fifo, 500);
    for key in 0..500 {
        (0..5).for_each(|_| fixture.hit(key));
    }
    assert!(fixture.evict().is_some());
    assert_eq!(fixture.evict_all().len(), 499);
}

/// A tenth of the names draws most requests, between scans of names that are requested once.
#[test]
fn s3_fifo_beats_lru_where_many_names_come_once() {
    if cfg!(miri) {
        return;
    }
    let hits = |kind| {
        let mut fixture = Fixture::new(kind);
        let mut rng = Rng::from_seed(4);
        let mut once = 1 << 32;
        (0..40_000)
            .filter(|_| {
                once += 1;
                let popular = u64::from(rng.below(100) * rng.below(100) / 40);
                let key = if rng.below(2) == 0 { popular } else { once };
                fixture.request(key, 100)
            })
            .count()
    };
    assert!(hits(EvictionPolicy::S3Fifo) > hits(EvictionPolicy::Lru) * 11 / 10);
}

#[test]
fn candidates_are_the_next_victims() {
    for &kind in EvictionPolicy::ALL {
        let mut fixture = filled(kind, 20);
        assert_ne!(fixture.policy.candidates(), [NONE; 2]);
        while !fixture.by_key.is_empty() {
            let candidates = fixture.policy.candidates();
            let victim =
                fixture.policy.take_victim(&mut fixture.entries, IncomingData::NONE).unwrap();
            assert!(candidates.contains(&victim));
            fixture.entries.remove(victim);
            fixture.by_key.retain(|_, index| *index != victim);
        }
        assert_eq!(fixture.policy.candidates(), [NONE; 2]);
        assert!(fixture.evict_all().is_empty());
    }
}
