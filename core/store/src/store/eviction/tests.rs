use super::*;
use crate::store::tests::{Bed, KEY, name};
use crate::{EvictionPolicy, Rule, SegmentRange};
use std::vec::Vec;
use std::{format, vec};
use weir_base::Rng;
use weir_wire::Data;
use weir_wire::name::Component;

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

fn set(bed: &mut Bed, generation: u64, rules: Vec<Rule>) -> Result<(), RulesRefused> {
    bed.store.set_rules(Rules { generation, rules }, |prefix| KEY.hash(prefix.value()))
}

fn put(bed: &mut Bed, object: &str, segment: u64) -> bool {
    let mut name = name(object);
    name.push(&Component::segment(segment));
    bed.put_wire(&Data::new(name).content(vec![1; 500]).encode_with_digest()).is_some()
}

fn has(bed: &mut Bed, object: &str, segment: u64) -> bool {
    bed.ask(&format!("{object}/seg={segment}"), false, false).is_some()
}

#[test]
fn ranges_are_kept_and_others_refused() {
    let mut bed = Bed::new(100_000, EvictionPolicy::default());
    let rules = vec![
        rule("/file/v=1", range(10, 29), keep(50_000)),
        rule("/file/v=1", ALL, Retention::Refuse),
    ];
    set(&mut bed, 1, rules).unwrap();
    for segment in 0..50 {
        assert_eq!(put(&mut bed, "/file/v=1", segment), (10..30).contains(&segment));
    }
    assert_eq!(bed.store.stats().refusals, 30);
    for segment in 0..2_000 {
        assert!(put(&mut bed, "/other", segment));
        bed.store.check();
    }
    assert!((10..30).all(|segment| has(&mut bed, "/file/v=1", segment)));
    assert_eq!(bed.store.kept_bytes()[0], bed.store.stats().kept_bytes);
    // A plan that does not have it lets it go, in time.
    set(&mut bed, 2, Vec::new()).unwrap();
    assert_eq!(bed.store.stats().kept_bytes, 0);
    assert!(has(&mut bed, "/file/v=1", 10));
    (0..2_000).for_each(|segment| assert!(put(&mut bed, "/more", segment)));
    assert!(!(10..30).any(|segment| has(&mut bed, "/file/v=1", segment)));
    bed.store.check();
}

#[test]
fn the_longest_prefix_holds_then_the_shortest_range() {
    let mut bed = Bed::large();
    let rules = vec![
        rule("/", ALL, Retention::Refuse),
        rule("/a", ALL, Retention::Admit),
        rule("/a/b", range(0, 99), Retention::Refuse),
        rule("/a/b", range(20, 29), Retention::Admit),
        rule("/a/b", range(25, 25), Retention::Refuse),
    ];
    set(&mut bed, 1, rules).unwrap();
    assert!(!put(&mut bed, "/x", 1));
    assert!(put(&mut bed, "/a", 1));
    assert!(put(&mut bed, "/a/c", 1));
    for (segment, is_stored) in [(0, false), (20, true), (25, false), (99, false), (100, true)] {
        assert_eq!(put(&mut bed, "/a/b", segment), is_stored, "{segment}");
    }
    // Without a segment number: only what is for all segments.
    assert!(!bed.put("/no-segment", 0));
    assert!(bed.put("/a/b/no-segment", 0));
    assert!(bed.put("/a", 0));
}

#[test]
fn what_is_there_is_kept_and_what_is_kept_stays_within_its_bound() {
    let mut bed = Bed::new(100_000, EvictionPolicy::default());
    (0..20).for_each(|segment| assert!(put(&mut bed, "/f", segment)));
    set(&mut bed, 1, vec![rule("/f", ALL, keep(10_000))]).unwrap();
    let kept = bed.store.kept_bytes()[0];
    assert!((9_000..=10_000).contains(&kept), "{kept}");
    bed.store.check();
    (0..2_000).for_each(|segment| assert!(put(&mut bed, "/other", segment)));
    let there = (0..20).filter(|&segment| has(&mut bed, "/f", segment)).count();
    assert!((9..20).contains(&there), "{there}");
    // What is erased makes room for others.
    bed.erase("/f", 100);
    assert_eq!(bed.store.kept_bytes()[0], 0);
    assert!(put(&mut bed, "/f", 77));
    assert!(bed.store.kept_bytes()[0] > 500);
    // A store that shrinks below what is kept.
    bed.set_capacity_bytes(300);
    bed.store.check();
    assert_eq!(bed.store.stats().kept_bytes, 0);
}

#[test]
fn plans_that_cannot_be_followed_are_refused() {
    let mut bed = Bed::new(160_000, EvictionPolicy::default());
    let present = vec![rule("/a", ALL, keep(1_000))];
    set(&mut bed, 5, present.clone()).unwrap();
    assert_eq!(set(&mut bed, 5, present.clone()), Ok(()), "the same again");
    let older = RulesRefused::Outdated { offered: 4, present: 5 };
    assert_eq!(set(&mut bed, 4, Vec::new()), Err(older));
    let other = RulesRefused::Outdated { offered: 5, present: 5 };
    assert_eq!(set(&mut bed, 5, Vec::new()), Err(other));
    let too_much = vec![rule("/a", ALL, keep(100_000)), rule("/b", ALL, keep(50_001))];
    let refused = set(&mut bed, 6, too_much).unwrap_err();
    assert_eq!(refused, RulesRefused::KeepTooMuch { bytes: 150_001, bytes_max: 150_000 });
    assert!(format!("{refused}").contains("150001"), "{refused}");
    let empty = vec![rule("/a", range(3, 2), Retention::Admit)];
    assert_eq!(set(&mut bed, 6, empty), Err(RulesRefused::EmptyRange(name("/a"))));
    let overlap = vec![
        rule("/a", range(0, 9), Retention::Admit),
        rule("/b", range(0, 9), Retention::Admit),
        rule("/a", range(9, 18), Retention::Refuse),
    ];
    assert_eq!(set(&mut bed, 6, overlap), Err(RulesRefused::Ambiguous(name("/a"))));
    let many = vec![rule("/a", ALL, Retention::Admit); crate::rules::RULES_MAX + 1];
    assert_eq!(set(&mut bed, 6, many), Err(RulesRefused::TooMany(crate::rules::RULES_MAX + 1)));
    assert_eq!(bed.store.rules().unwrap().rules, present);
}

/// Room that is made for what a rule keeps says nothing about what comes next.
#[test]
fn a_file_is_read_in_order_while_a_rule_keeps_some_of_it() {
    const FILE: u64 = 400;
    let mut bed = Bed::new(100_000, EvictionPolicy::Parts);
    set(&mut bed, 1, vec![rule("/file/v=1", range(200, 229), keep(30_000))]).unwrap();
    let mut there = 0;
    for round in 0..4 {
        // Another plan: what was kept goes back to the policy, and is kept anew.
        if round == 2 {
            set(&mut bed, 2, Vec::new()).unwrap();
            bed.store.check();
            set(&mut bed, 3, vec![rule("/file/v=1", range(190, 219), keep(30_000))]).unwrap();
        }
        there = 0;
        for segment in 0..FILE {
            let is_there = has(&mut bed, "/file/v=1", segment);
            there += u32::from(is_there);
            if !is_there {
                assert!(put(&mut bed, "/file/v=1", segment));
            }
            bed.store.check();
            if segment % 7 == 0 {
                put(&mut bed, "/other/v=1", 1_000 * round + segment);
                bed.store.check();
            }
        }
    }
    assert_eq!(bed.store.kept_bytes()[0], bed.store.stats().kept_bytes);
    assert!((190..220).all(|segment| has(&mut bed, "/file/v=1", segment)));
    let entries = bed.store.stats().entries as u32;
    assert!(there > entries / 2, "{there} of {entries}");
}

#[test]
fn sums_hold_whatever_happens() {
    for seed in 0..if cfg!(miri) { 1 } else { 20 } {
        let mut rng = Rng::from_seed(seed);
        let mut bed =
            Bed::new(60_000, EvictionPolicy::ALL[seed as usize % EvictionPolicy::ALL.len()]);
        for step in 0..if cfg!(miri) { 40 } else { 1_500 } {
            match rng.below(40) {
                0 => {
                    bed.erase(&format!("/f/{}", rng.below(3)), 10);
                }
                1 => bed.set_capacity_bytes(20_000 + u64::from(rng.below(50_000))),
                2 => {
                    let retentions = [Retention::Admit, Retention::Refuse, keep(8_000), keep(900)];
                    let mut rules = Vec::new();
                    for prefix in ["/", "/f", "/f/0", "/f/1"] {
                        let first = rng.below(100).into();
                        let segments = if rng.below(2) == 0 { ALL } else { range(first, 150) };
                        rules.push(rule(prefix, segments, retentions[rng.below(4) as usize]));
                    }
                    if bed.store.config().capacity_bytes > 40_000 {
                        set(&mut bed, step + 1, rules).unwrap();
                    }
                }
                3..10 => {
                    has(&mut bed, &format!("/f/{}", rng.below(3)), rng.below(170).into());
                }
                _ => {
                    put(&mut bed, &format!("/f/{}", rng.below(3)), rng.below(170).into());
                }
            }
            bed.store.check();
        }
    }
}
