use super::*;
use crate::fixture::{Fixture, KEY, name};
use crate::{EvictionPolicy, SegmentRange, StoreConfig};
use alloc::collections::BTreeSet;
use std::{format, vec};
use weir_base::Rng;
use weir_wire::{Component, Data};

fn put(fixture: &mut Fixture, object: &str, segment: u64) {
    let mut name = name(object);
    name.push(&Component::segment(segment));
    let wire = Data::new(name).content(vec![1; 100]).encode_with_digest();
    fixture.put_wire(&wire);
}

fn ranges(fixture: &Fixture, object: &str) -> Vec<SegmentRange> {
    let object = name(object);
    let hash = KEY.hash(object.value());
    let page = fixture.store.holdings_of(object.as_view(), hash).unwrap();
    page.holdings.into_iter().flat_map(|holding| holding.ranges).collect()
}

const fn range(first: u64, last: u64) -> SegmentRange {
    SegmentRange { first, last }
}

#[test]
fn build_lists_earlier_entries() {
    let mut fixture = Fixture::large();
    (0..200).for_each(|segment| put(&mut fixture, "/a/v=1", segment));
    put(&mut fixture, "/b/v=1", 7);
    fixture.put("/b/no-segment", 0);
    assert_eq!(fixture.store.holdings(name("/").as_view(), HoldingsCursor::default(), 9), None);
    fixture.store.track_holdings(HoldingsConfig::default());
    assert!(fixture.store.build_holdings(100));
    let list = |fixture: &Fixture, uri: &str| {
        fixture.store.holdings(name(uri).as_view(), HoldingsCursor::default(), 100).unwrap()
    };
    assert!(list(&fixture, "/").is_partial);
    // Entries that come and go while the index is built.
    put(&mut fixture, "/a/v=1", 300);
    fixture.erase("/a/v=1/seg=5", 1);
    fixture.erase("/a/v=1/seg=150", 1);
    while fixture.store.build_holdings(100) {}
    let page = list(&fixture, "/");
    assert!(!page.is_partial);
    assert_eq!(page.holdings.len(), 2);
    assert_eq!(
        ranges(&fixture, "/a/v=1"),
        [range(0, 4), range(6, 149), range(151, 199), range(300, 300)]
    );
    assert_eq!(list(&fixture, "/b").holdings[0].ranges, [range(7, 7)]);
    assert_eq!(list(&fixture, "/c").holdings, []);
    fixture.store.check();
    assert!(fixture.store.stats().holdings_bytes > 0);
    fixture.store.stop_tracking_holdings();
    assert_eq!(fixture.store.stats().holdings_bytes, 0);
}

#[test]
fn changes_sum_to_holdings() {
    for seed in 0..if cfg!(miri) { 1 } else { 20 } {
        let mut rng = Rng::from_seed(seed);
        let mut fixture =
            Fixture::new(40_000, EvictionPolicy::ALL[seed as usize % EvictionPolicy::ALL.len()]);
        fixture.store.track_holdings(HoldingsConfig::default());
        let (mut believed, mut generation, mut sequence) = (BTreeSet::new(), 0, 0);
        for step in 0..if cfg!(miri) { 40 } else { 2_000 } {
            match rng.below(30) {
                0 => {
                    fixture.erase(&format!("/f/{}", rng.below(3)), 10);
                }
                1 => fixture.set_capacity_bytes(20_000 + u64::from(rng.below(30_000))),
                2 if rng.below(10) == 0 => fixture.store.restart_changes(),
                3 => {
                    fixture.store.build_holdings(rng.below(50));
                }
                4..7 => {
                    let changes = fixture.store.take_changes(1 + rng.below(4) as usize).unwrap();
                    if changes.generation != generation {
                        (generation, sequence) = (changes.generation, 0);
                        believed.clear();
                    }
                    sequence += 1;
                    assert_eq!(changes.sequence, sequence);
                    apply(&mut believed, changes);
                }
                _ => put(&mut fixture, &format!("/f/{}", rng.below(3)), step / 3 % 170),
            }
        }
        while fixture.store.build_holdings(50) {}
        fixture.store.check();
        loop {
            let changes = fixture.store.take_changes(3).unwrap();
            let has_more = changes.has_more;
            if changes.generation != generation {
                generation = changes.generation;
                believed.clear();
            }
            apply(&mut believed, changes);
            if !has_more {
                break;
            }
        }
        let mut stored = BTreeSet::new();
        let page =
            fixture.store.holdings(name("/").as_view(), HoldingsCursor::default(), 100).unwrap();
        for Holding { name, ranges, .. } in page.holdings {
            for range in ranges {
                stored.extend((range.first..=range.last).map(|segment| (name.clone(), segment)));
            }
        }
        assert!(!stored.is_empty());
        assert_eq!(believed, stored, "seed {seed}");
        fixture.store.configure(
            fixture.now,
            StoreConfig { capacity_bytes: 0, ..fixture.store.config().clone() },
        );
        fixture.store.stop_changes();
        assert_eq!(fixture.store.stats().holdings_bytes, 0);
    }
}

#[test]
fn restart_finds_missed_segments() {
    let mut fixture = Fixture::large();
    fixture.store.track_holdings(HoldingsConfig { bytes_max: 20_000 });
    while fixture.store.build_holdings(100) {}
    (0..200).for_each(|object| put(&mut fixture, &format!("/f/{object}/v=1"), 0));
    let list = |fixture: &Fixture| {
        fixture.store.holdings(name("/").as_view(), HoldingsCursor::default(), 1_000).unwrap()
    };
    fixture.store.take_changes(1_000).unwrap();
    assert!(
        list(&fixture).is_partial && !fixture.store.has_holdings_to_build(),
        "there is no room"
    );
    for object in 0..150 {
        fixture.erase(&format!("/f/{object}"), 1);
    }
    assert_eq!(list(&fixture).holdings.len(), 0, "those that came first were listed");
    fixture.store.restart_changes();
    assert!(list(&fixture).is_partial && fixture.store.has_holdings_to_build());
    // A restart during the build does not prevent it from being completed.
    assert!(fixture.store.build_holdings(10));
    fixture.store.restart_changes();
    let mut calls = 0;
    while fixture.store.build_holdings(10) {
        calls += 1;
    }
    assert!((10..40).contains(&calls), "{calls}");
    let page = list(&fixture);
    assert!(!page.is_partial);
    assert_eq!(page.holdings.len(), 50);
    fixture.store.check();
    let changes = fixture.store.take_changes(1_000).unwrap();
    assert_eq!((changes.changes.len(), changes.sequence), (50, 1));
}

#[test]
fn generations_continue_after_stop() {
    let mut fixture = Fixture::large();
    put(&mut fixture, "/f/v=1", 1);
    assert_eq!(fixture.store.take_changes(10), None);
    for generation in 1..4 {
        fixture.store.track_holdings(HoldingsConfig::default());
        while fixture.store.build_holdings(100) {}
        let changes = fixture.store.take_changes(10).unwrap();
        assert_eq!(
            (changes.generation, changes.sequence, changes.changes.len()),
            (generation, 1, 1)
        );
        fixture.store.stop_tracking_holdings();
    }
}

fn apply(believed: &mut BTreeSet<(weir_wire::Name, u64)>, changes: HoldingChanges) {
    for change in changes.changes {
        for range in change.added {
            for segment in range.first..=range.last {
                assert!(believed.insert((change.name.clone(), segment)));
            }
        }
        for range in change.removed {
            for segment in range.first..=range.last {
                assert!(believed.remove(&(change.name.clone(), segment)));
            }
        }
    }
}
