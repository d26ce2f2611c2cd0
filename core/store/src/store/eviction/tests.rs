use super::*;
use crate::fixture::{Fixture, KEY, name};
use crate::{EvictionPolicy, Rule, SegmentRange};
use std::vec::Vec;
use std::{format, vec};
use weir_base::Rng;
use weir_wire::{Component, Data};

const ALL: SegmentRange = SegmentRange { first: 0, last: u64::MAX };

fn range(first: u64, last: u64) -> SegmentRange {
    SegmentRange { first, last }
}

fn rule(prefix: &str, segments: SegmentRange, retention: Retention) -> Rule {
    Rule { prefix: name(prefix), segments, retention }
}

fn keep(bytes_max: u64) -> Retention {
    Retention::Keep { bytes_max }
}

fn set(fixture: &mut Fixture, generation: u64, rules: Vec<Rule>) -> Result<(), RulesError> {
    fixture.store.set_rules(Rules { generation, rules }, |prefix| KEY.hash(prefix.value()))
}

fn put(fixture: &mut Fixture, object: &str, segment: u64) -> bool {
    let mut name = name(object);
    name.push(&Component::segment(segment));
    fixture.put_wire(&Data::new(name).content(vec![1; 500]).encode_with_digest()).is_some()
}

fn has(fixture: &mut Fixture, object: &str, segment: u64) -> bool {
    fixture.ask(&format!("{object}/seg={segment}"), false, false).is_some()
}

#[test]
fn ranges_are_kept_and_others_refused() {
    let mut fixture = Fixture::new(100_000, EvictionPolicy::default());
    let rules = vec![
        rule("/file/v=1", range(10, 29), keep(50_000)),
        rule("/file/v=1", ALL, Retention::Refuse),
    ];
    set(&mut fixture, 1, rules).unwrap();
    for segment in 0..50 {
        assert_eq!(put(&mut fixture, "/file/v=1", segment), (10..30).contains(&segment));
    }
    assert_eq!(fixture.store.stats().refusals, 30);
    for segment in 0..2_000 {
        assert!(put(&mut fixture, "/other", segment));
        fixture.store.check();
    }
    assert!((10..30).all(|segment| has(&mut fixture, "/file/v=1", segment)));
    assert_eq!(fixture.store.eviction.pinned_bytes_by_rule()[0], fixture.store.stats().kept_bytes);
    // A plan without the rule lets its Data be evicted.
    set(&mut fixture, 2, Vec::new()).unwrap();
    assert_eq!(fixture.store.stats().kept_bytes, 0);
    assert!(has(&mut fixture, "/file/v=1", 10));
    (0..2_000).for_each(|segment| assert!(put(&mut fixture, "/more", segment)));
    assert!(!(10..30).any(|segment| has(&mut fixture, "/file/v=1", segment)));
    fixture.store.check();
}

#[test]
fn longest_prefix_then_shortest_range_wins() {
    let mut fixture = Fixture::large();
    let rules = vec![
        rule("/", ALL, Retention::Refuse),
        rule("/a", ALL, Retention::Admit),
        rule("/a/b", range(0, 99), Retention::Refuse),
        rule("/a/b", range(20, 29), Retention::Admit),
        rule("/a/b", range(25, 25), Retention::Refuse),
    ];
    set(&mut fixture, 1, rules).unwrap();
    assert!(!put(&mut fixture, "/x", 1));
    assert!(put(&mut fixture, "/a", 1));
    assert!(put(&mut fixture, "/a/c", 1));
    for (segment, is_stored) in [(0, false), (20, true), (25, false), (99, false), (100, true)] {
        assert_eq!(put(&mut fixture, "/a/b", segment), is_stored, "{segment}");
    }
    // Data without a segment number matches only rules for all segments.
    assert!(!fixture.put("/no-segment", 0));
    assert!(fixture.put("/a/b/no-segment", 0));
    assert!(fixture.put("/a", 0));
}

#[test]
fn pins_existing_entries_within_limit() {
    let mut fixture = Fixture::new(100_000, EvictionPolicy::default());
    (0..20).for_each(|segment| assert!(put(&mut fixture, "/f", segment)));
    set(&mut fixture, 1, vec![rule("/f", ALL, keep(10_000))]).unwrap();
    let kept = fixture.store.eviction.pinned_bytes_by_rule()[0];
    assert!((9_000..=10_000).contains(&kept), "{kept}");
    fixture.store.check();
    (0..2_000).for_each(|segment| assert!(put(&mut fixture, "/other", segment)));
    let there = (0..20).filter(|&segment| has(&mut fixture, "/f", segment)).count();
    assert!((9..20).contains(&there), "{there}");
    // Erased Data leaves space under the rule for other Data.
    fixture.erase("/f", 100);
    assert_eq!(fixture.store.eviction.pinned_bytes_by_rule()[0], 0);
    assert!(put(&mut fixture, "/f", 77));
    assert!(fixture.store.eviction.pinned_bytes_by_rule()[0] > 500);
    // The store shrinks below the pinned bytes.
    fixture.set_capacity_bytes(300);
    fixture.store.check();
    assert_eq!(fixture.store.stats().kept_bytes, 0);
}

#[test]
fn rejects_invalid_plans() {
    let mut fixture = Fixture::new(160_000, EvictionPolicy::default());
    let present = vec![rule("/a", ALL, keep(1_000))];
    set(&mut fixture, 5, present.clone()).unwrap();
    assert_eq!(set(&mut fixture, 5, present.clone()), Ok(()), "the same again");
    let older = RulesError::Outdated { offered: 4, present: 5 };
    assert_eq!(set(&mut fixture, 4, Vec::new()), Err(older));
    let other = RulesError::Outdated { offered: 5, present: 5 };
    assert_eq!(set(&mut fixture, 5, Vec::new()), Err(other));
    let too_much = vec![rule("/a", ALL, keep(100_000)), rule("/b", ALL, keep(50_001))];
    let refused = set(&mut fixture, 6, too_much).unwrap_err();
    assert_eq!(refused, RulesError::KeepTooMuch { bytes: 150_001, bytes_max: 150_000 });
    assert!(format!("{refused}").contains("150001"), "{refused}");
    let empty = vec![rule("/a", range(3, 2), Retention::Admit)];
    assert_eq!(set(&mut fixture, 6, empty), Err(RulesError::EmptyRange(name("/a"))));
    let overlap = vec![
        rule("/a", range(0, 9), Retention::Admit),
        rule("/b", range(0, 9), Retention::Admit),
        rule("/a", range(9, 18), Retention::Refuse),
    ];
    assert_eq!(set(&mut fixture, 6, overlap), Err(RulesError::Ambiguous(name("/a"))));
    let many = vec![rule("/a", ALL, Retention::Admit); crate::rules::RULES_MAX + 1];
    assert_eq!(set(&mut fixture, 6, many), Err(RulesError::TooMany(crate::rules::RULES_MAX + 1)));
    assert_eq!(fixture.store.eviction.rules().unwrap().rules, present);
}

/// Evictions for Data that a rule pins must not affect where the next insertion goes.
#[test]
fn scan_of_partly_pinned_file() {
    const FILE: u64 = 400;
    let mut fixture = Fixture::new(100_000, EvictionPolicy::Parts);
    set(&mut fixture, 1, vec![rule("/file/v=1", range(200, 229), keep(30_000))]).unwrap();
    let mut there = 0;
    for round in 0..4 {
        // Another plan: pinned entries return to the policy and are pinned again.
        if round == 2 {
            set(&mut fixture, 2, Vec::new()).unwrap();
            fixture.store.check();
            set(&mut fixture, 3, vec![rule("/file/v=1", range(190, 219), keep(30_000))]).unwrap();
        }
        there = 0;
        for segment in 0..FILE {
            let is_there = has(&mut fixture, "/file/v=1", segment);
            there += u32::from(is_there);
            if !is_there {
                assert!(put(&mut fixture, "/file/v=1", segment));
            }
            fixture.store.check();
            if segment % 7 == 0 {
                put(&mut fixture, "/other/v=1", 1_000 * round + segment);
                fixture.store.check();
            }
        }
    }
    assert_eq!(fixture.store.eviction.pinned_bytes_by_rule()[0], fixture.store.stats().kept_bytes);
    assert!((190..220).all(|segment| has(&mut fixture, "/file/v=1", segment)));
    let entries = fixture.store.stats().entries as u32;
    assert!(there > entries / 2, "{there} of {entries}");
}

#[test]
fn sums_hold_whatever_happens() {
    for seed in 0..if cfg!(miri) { 1 } else { 20 } {
        let mut rng = Rng::from_seed(seed);
        let mut fixture =
            Fixture::new(60_000, EvictionPolicy::ALL[seed as usize % EvictionPolicy::ALL.len()]);
        for step in 0..if cfg!(miri) { 40 } else { 1_500 } {
            match rng.below(40) {
                0 => {
                    fixture.erase(&format!("/f/{}", rng.below(3)), 10);
                }
                1 => fixture.set_capacity_bytes(20_000 + u64::from(rng.below(50_000))),
                2 => {
                    let retentions = [Retention::Admit, Retention::Refuse, keep(8_000), keep(900)];
                    let mut rules = Vec::new();
                    for prefix in ["/", "/f", "/f/0", "/f/1"] {
                        let first = rng.below(100).into();
                        let segments = if rng.below(2) == 0 { ALL } else { range(first, 150) };
                        rules.push(rule(prefix, segments, retentions[rng.below(4) as usize]));
                    }
                    if fixture.store.config().capacity_bytes > 40_000 {
                        set(&mut fixture, step + 1, rules).unwrap();
                    }
                }
                3..10 => {
                    has(&mut fixture, &format!("/f/{}", rng.below(3)), rng.below(170).into());
                }
                _ => {
                    put(&mut fixture, &format!("/f/{}", rng.below(3)), rng.below(170).into());
                }
            }
            fixture.store.check();
        }
    }
}
