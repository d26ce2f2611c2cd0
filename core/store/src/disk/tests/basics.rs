//! The main path, step by step.

use super::super::{DiskTierConfig, address};
use super::disks::*;
use crate::StoreConfig;
use crate::{HoldingsConfig, HoldingsCursor, SegmentRange};
use std::vec;
use std::vec::Vec;
use weir_base::Merge;

#[test]
fn evicted_data_is_found_on_disk() {
    let mut fixture = Fixture::small();
    fixture.settle();
    let names: Vec<_> = (0..20).map(|number| segment("/object/v=1", number)).collect();
    for (number, name) in names.iter().enumerate() {
        assert!(fixture.put_content(name, &[number as u8; 900]));
    }
    assert!(matches!(fixture.look(&names[3], false, false), Found::Memory(_)), "not written yet");
    assert_eq!(fixture.stats().hits_unwritten, 1);
    assert_eq!((fixture.stats().entries, fixture.stats().writes_waiting), (20, 20));
    fixture.settle();
    assert_eq!((fixture.stats().writes, fixture.stats().writes_waiting), (20, 0));
    assert!(matches!(fixture.look(&names[3], false, false), Found::Disk(_)));
    for (number, name) in names.iter().enumerate() {
        assert_eq!(fixture.content(name), Some(vec![number as u8; 900]));
    }
    assert!(fixture.fetch(&segment("/object/v=1", 99)).is_none());
    assert!(fixture.fetch(&name("/object")).is_none());
    assert_eq!(fixture.stats().reads, 20);
    assert_eq!(fixture.store.stats().hits, 21);
}

#[test]
fn management_is_not_written_to_disks() {
    let written = ["/localhop/app/v=1/seg=0", "/localhop/nfdx", "/a/localhost/nfd"];
    let management = ["/localhost/nfd/faces/list/v=1/seg=0", "/localhop/nfd/rib/register/v=1"];
    for (how, memory_bytes) in [("evicted", 3000), ("flushed", 1 << 20), ("too large", 600)] {
        let mut fixture = Fixture::small();
        fixture.set_capacity_bytes(memory_bytes);
        fixture.settle();
        for uri in management.iter().chain(&written) {
            fixture.put_content(&name(uri), &[7; 900]);
        }
        for number in 0..10 {
            fixture.put_content(&segment("/object/v=1", number), &[7; 900]);
        }
        while fixture.store.flush(fixture.now) {
            fixture.settle();
        }
        fixture.settle();
        fixture.restart();
        fixture.settle();
        for uri in management {
            assert_eq!(fixture.content(&name(uri)), None, "{how}: {uri}");
        }
        for uri in written {
            assert_eq!(fixture.content(&name(uri)), Some(vec![7; 900]), "{how}: {uri}");
        }
    }
}

/// Fills the fixture's log with `count` Data packets of about 1.5 KB, written one after another.
fn fill(fixture: &mut Fixture, count: u64) -> Vec<weir_wire::Name> {
    let names: Vec<_> = (0..count).map(|number| segment("/object/v=1", number)).collect();
    for (number, name) in names.iter().enumerate() {
        assert!(fixture.put_content(name, &[number as u8; 1400]));
        fixture.settle();
    }
    names
}

#[test]
fn restart_finds_all_records() {
    for count in [0, 1, 20, 100, 200] {
        let mut fixture = Fixture::small();
        fixture.settle();
        let names = fill(&mut fixture, count);
        let before = fixture.stats();
        fixture.restart();
        assert!(fixture.stats().is_recovering());
        fixture.settle();
        let stats = fixture.stats();
        assert_eq!((stats.entries, stats.bytes), (before.entries, before.bytes));
        assert_eq!((stats.recovered, stats.is_recovering()), (count, false));
        for (number, name) in names.iter().enumerate() {
            assert_eq!(fixture.content(name), Some(vec![number as u8; 1400]), "{count}: {number}");
        }
        assert_eq!(fixture.uri("/object", true), (count > 0).then(|| "/object/v=1/seg=0".into()));
        // Data written after the restart is found as well.
        assert!(fixture.put_content(&name("/more"), b"1"));
        fixture.settle();
        fixture.restart();
        fixture.settle();
        assert_eq!(fixture.content(&name("/more")), Some(b"1".to_vec()));
        assert_eq!(fixture.stats().entries, count + 1);
    }
}

#[test]
fn oldest_region_is_reused() {
    let mut fixture = Fixture::small();
    fixture.settle();
    let names = fill(&mut fixture, 1_000);
    let stats = fixture.stats();
    assert!(stats.evictions > 600 && stats.entries + stats.evictions == 1_000, "{stats:?}");
    assert_eq!(stats.entries * 1536, stats.bytes);
    let mut found = 0;
    for (number, name) in names.iter().enumerate() {
        if let Some(content) = fixture.content(name) {
            assert_eq!(content, vec![number as u8; 1400]);
            assert!(number as u64 >= stats.evictions);
            found += 1;
        }
    }
    assert_eq!(found, stats.entries);
    fixture.restart();
    fixture.settle();
    assert_eq!(fixture.stats().entries, stats.entries);
    for (number, name) in names.iter().enumerate().skip(stats.evictions as usize) {
        assert_eq!(fixture.content(name), Some(vec![number as u8; 1400]));
    }
}

#[test]
fn erased_data_stays_erased() {
    let mut fixture = Fixture::small();
    fixture.settle();
    for uri in ["/a", "/a/b", "/a/b/c", "/a/d/e", "/ab", "/f"] {
        assert!(fixture.put_content(&name(uri), uri.as_bytes()));
    }
    for number in 0..5 {
        assert!(fixture.put_content(&segment("/s/v=1", number), b"x"));
    }
    fixture.settle();
    assert_eq!(fixture.erase("/a/b", 1), 1);
    assert_eq!(fixture.erase("/s/v=1/seg=2", 9), 1);
    assert_eq!(fixture.erase("/x", 9), 0);
    assert_eq!(fixture.stats().erasures, 2);
    for _ in 0..2 {
        fixture.settle();
        assert_eq!(fixture.stats().entries, 9);
        assert!(fixture.fetch(&segment("/s/v=1", 2)).is_none());
        assert!(fixture.fetch(&segment("/s/v=1", 3)).is_some());
        fixture.restart();
        fixture.settle();
    }
    assert_eq!(fixture.erase("/a", 99), 3);
    assert!(fixture.put_content(&name("/a/b"), b"again"));
    fixture.settle();
    fixture.restart();
    fixture.settle();
    assert_eq!(fixture.content(&name("/a/b")), Some(b"again".to_vec()));
    assert!(fixture.fetch(&name("/a")).is_none());
    assert!(fixture.fetch(&name("/ab")).is_some());
    assert_eq!(fixture.erase("/", 99), 7);
    fixture.settle();
    fixture.restart();
    fixture.settle();
    assert_eq!(fixture.stats().entries, 0);
}

#[test]
fn new_data_replaces_disk_record() {
    let mut fixture = Fixture::small();
    fixture.settle();
    let name = name("/a/b");
    assert!(fixture.put_content(&name, b"one"));
    assert!(fixture.put_content(&name, b"two"), "replaces what is not written yet");
    fixture.settle();
    assert_eq!(fixture.content(&name), Some(b"two".to_vec()));
    fixture.put_content(&name, b"three");
    fixture.settle();
    assert!(fixture.content(&name).is_none_or(|content| content == b"three"));
    assert!(fixture.put_content(&name, b"four"));
    fixture.settle();
    assert!(fixture.content(&name).is_none_or(|content| content == b"four"));
}

#[test]
fn the_same_data_is_not_written_again() {
    let mut fixture = Fixture::small();
    fixture.settle();
    for _ in 0..3 {
        assert!(fixture.put_content(&name("/a/b"), b"one"));
        fixture.settle();
        assert_eq!(fixture.content(&name("/a/b")), Some(b"one".to_vec()));
    }
    assert_eq!((fixture.stats().writes, fixture.stats().damaged), (1, 0));
}

#[test]
fn all_below_a_prefix_is_erased() {
    let mut fixture = Fixture::small();
    fixture.settle();
    for object in 0..3 {
        for number in 0..12 {
            assert!(fixture.put_content(&segment(&std::format!("/o/{object}"), number), b"x"));
        }
    }
    fixture.settle();
    assert_eq!(fixture.erase("/o", 1_000), 36);
}

#[test]
fn finds_records_missed_by_full_holdings() {
    let mut fixture = Fixture::small();
    fixture.store.track_holdings(HoldingsConfig { bytes_max: 10_000 });
    while fixture.store.build_holdings(100) {}
    fixture.settle();
    for object in 0..100 {
        assert!(fixture.put_content(&segment(&std::format!("/o/{object}/v=1"), 3), b"x"));
    }
    fixture.settle();
    let is_partial = |fixture: &Fixture| {
        let page = fixture.store.holdings(name("/").as_view(), HoldingsCursor::default(), 100);
        page.unwrap().is_partial
    };
    let changes = fixture.store.take_changes(1_000).unwrap();
    assert!(is_partial(&fixture) && changes.changes.len() < 60, "{}", changes.changes.len());
    for object in 0..70 {
        assert_eq!(fixture.erase(&std::format!("/o/{object}"), 1), 1);
    }
    fixture.store.restart_changes();
    while fixture.store.build_holdings(7) {}
    for object in 70..100 {
        let object = name(&std::format!("/o/{object}/v=1"));
        let page = fixture.store.holdings_of(object.as_view(), KEY.hash(object.value())).unwrap();
        assert_eq!(page.holdings[0].ranges, [SegmentRange { first: 3, last: 3 }]);
    }
    // Only the hashes of the missed objects are known.
    assert!(is_partial(&fixture));
    assert_eq!(fixture.erase("/o", 100), 30);
    assert_eq!(fixture.store.take_changes(1_000).unwrap().changes, []);
    assert!(!is_partial(&fixture));
}

#[test]
fn keys_tell_segments_by_the_end_of_a_name() {
    let key = |name: &weir_wire::Name| {
        let hashes = hashes(name.as_view());
        super::super::key_of(name.as_view(), hashes.whole, hashes.parent)
    };
    let object = name("/object/v=1");
    for number in [0, 1, 255, 256, 65_535, 65_536, 0x0032_0105, u64::MAX >> 1, u64::MAX - 1] {
        let key = key(&segment("/object/v=1", number));
        assert_eq!((key.object, key.segment), (KEY.hash(object.value()), number), "{number}");
    }
    for whole in ["/object/v=1", "/object/50=%00%01", "/object/50=%01%02%03", "/seg=1", "/2%01"] {
        let whole = name(whole);
        let expected = (KEY.hash(whole.value()), address::WHOLE);
        assert_eq!((key(&whole).object, key(&whole).segment), expected, "{whole}");
    }
    assert_eq!(key(&segment("/o", u64::MAX)).segment, address::WHOLE);
    assert_eq!(key(&segment("/o", 7)).segment, 7, "shorter than the longest number");
}

#[test]
fn reports_saturated_filter() {
    let with = |record_bytes_typical| {
        let tier = tier_config(vec![geometry(8, 64 << 10, 512)]);
        let config = DiskTierConfig { record_bytes_typical, ..tier };
        let memory = StoreConfig { capacity_bytes: 0, ..StoreConfig::default() };
        let mut fixture = Fixture::with(config, memory);
        fixture.settle();
        let names = fill(&mut fixture, 200);
        assert!(names.iter().all(|name| fixture.on_disk(name, false)));
        fixture.stats()
    };
    let (well, full) = (with(1_024), with(u32::MAX));
    assert_eq!(well.filter_saturated, 0);
    assert!((1..=128).contains(&full.filter_saturated), "of one block: {full:?}");
    let mut sum = full;
    sum.merge(&full);
    assert_eq!(sum.filter_saturated, 2 * full.filter_saturated);
}

/// A store whose memory has evicted the first segments of `/a/v=1`, which were used, to the disk.
fn with_object_on_disk(segments: u64) -> Fixture {
    let policy = crate::EvictionPolicy::Lru;
    let memory = StoreConfig { capacity_bytes: 16 << 10, policy, ..StoreConfig::default() };
    let mut fixture = Fixture::with(tier_config(vec![geometry(8, 64 << 10, 512)]), memory);
    fixture.settle();
    for number in 0..segments {
        assert!(fixture.put_content(&segment("/a/v=1", number), b"x"));
        assert!(fixture.ask(&std::format!("/a/v=1/seg={number}"), false, false).is_some());
    }
    fixture.settle();
    for number in 0..200 {
        assert!(fixture.put_content(&segment("/b/v=1", number), b"x"));
        fixture.settle();
    }
    fixture
}

#[test]
fn counters_outlive_memory_on_disk() {
    let mut fixture = with_object_on_disk(10);
    let memory = fixture.store.objects(name("/a").as_view(), HoldingsCursor::default(), 1000);
    assert_eq!(memory.objects, [], "it has left memory");
    let next = memory.next.expect("the disk follows");
    let disk = fixture.store.objects(name("/a").as_view(), next, 1000);
    let [object] = &disk.objects[..] else { panic!("{disk:?}") };
    assert_eq!((object.disk.packets, object.disk.bytes), (10, 10 * 512));
    assert_eq!(object.uses.hits, 10);
    assert!(!disk.is_partial && disk.unnamed == 0, "{disk:?}");
    // After a restart, only the hash of the name is known.
    fixture.restart();
    fixture.settle();
    let disk = fixture.store.objects(name("/").as_view(), next, 1000);
    assert_eq!((disk.objects.len(), disk.unnamed), (0, 2), "{disk:?}");
}

#[test]
fn index_learns_names_of_objects_in_memory() {
    let mut fixture = with_object_on_disk(3);
    fixture.restart();
    fixture.store.stop_tracking_holdings();
    fixture.settle();
    for number in 0..3 {
        assert!(fixture.use_in_memory(&segment("/a/v=1", number)));
    }
    // The list starts the index only now. The object is not read from the disk again.
    fixture.store.track_holdings(HoldingsConfig::default());
    while fixture.store.build_holdings(1) {}
    assert!(!fixture.store.has_holdings_to_build());
    let from = HoldingsCursor { is_on_disk: true, object: 0 };
    let disk = fixture.store.objects(name("/").as_view(), from, 1000);
    // `/b` was not read, and has no name yet.
    assert_eq!((disk.objects.len(), disk.unnamed), (1, 1), "{disk:?}");
    assert_eq!((&disk.objects[0].name, disk.objects[0].disk.packets), (&name("/a/v=1"), 3));
}
