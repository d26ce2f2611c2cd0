//! Data that was replaced or erased does not return, and the Data that replaced it is not lost.

use super::super::*;
use super::disks::*;
use crate::{EvictionPolicy, StoreConfig};
use std::vec;
use std::vec::Vec;
use weir_wire::Name;

/// A store with disks that have this many regions of 16 KiB.
fn fixture(regions: &[u32], capacity_bytes: u64) -> Fixture {
    let disks = regions.iter().map(|&regions| geometry(regions, 16 << 10, 512)).collect();
    // The oldest Data must leave memory first.
    let policy = EvictionPolicy::S3Fifo;
    let memory = StoreConfig { capacity_bytes, policy, ..StoreConfig::default() };
    let mut fixture = Fixture::with(tier_config(disks), memory);
    fixture.settle();
    fixture
}

fn restart(fixture: &mut Fixture) {
    fixture.restart();
    fixture.settle();
    fixture.store.check_disk();
}

#[test]
fn rewritten_record_stays_erased() {
    let mut fixture = fixture(&[24, 24], 6_000);
    let names: Vec<_> = (0..2_000).map(|number| segment("/object/v=1", number)).collect();
    let mut count = 0;
    while fixture.stats().evictions == 0 {
        assert!(fixture.put_content(&names[count], &[count as u8; 1400]));
        fixture.settle();
        count += 1;
    }
    let first = (0..count).find(|&at| fixture.on_disk(&names[at], false)).unwrap();
    // In the oldest eighth, but not in its oldest regions.
    let old = first + 16..first + 34;
    let writes = fixture.stats().writes;
    for at in old.clone() {
        assert!(fixture.use_in_memory(&names[at]));
    }
    for number in 0..8 {
        fixture.put_content(&segment("/other/v=1", number), &[1; 1400]);
    }
    fixture.settle();
    assert!(fixture.stats().writes > writes + 18, "they were written again");
    for at in old.clone() {
        assert!(fixture.store.erase(names[at].as_view(), KEY.hash(names[at].value()), 1) <= 1);
    }
    fixture.settle();
    restart(&mut fixture);
    for at in old {
        assert!(fixture.fetch(&names[at]).is_none(), "segment {at}");
    }
}

/// Discards the record of a name on the first disk, and writes other Data to the second one.
fn replaced_on_another_disk(give_up: impl FnOnce(&mut Fixture, &Name)) {
    let mut fixture = fixture(&[8, 8], 0);
    let name = name("/a/b");
    assert!(fixture.put_content(&name, b"one"));
    fixture.settle();
    let (first, _) = fixture.store.offset_of(name.as_view(), hashes(name.as_view())).unwrap();
    assert_eq!(first, 0);
    give_up(&mut fixture, &name);
    assert!(!fixture.on_disk(&name, false));
    assert!(fixture.put_content(&name, b"two"));
    fixture.settle();
    let (second, _) = fixture.store.offset_of(name.as_view(), hashes(name.as_view())).unwrap();
    assert_eq!(second, 1);
    restart(&mut fixture);
    assert_eq!(fixture.content(&name), Some(b"two".to_vec()));
}

#[test]
fn unreadable_record_does_not_return() {
    replaced_on_another_disk(|fixture, name| {
        let Found::Disk(on_disk) = fixture.look(name, false, false) else { panic!("not on disk") };
        fixture.store.begin_read(&on_disk).unwrap();
        fixture.take();
        let op = fixture.ops.pop_front().unwrap();
        fixture.store.on_disk_done(fixture.now, op.id, DiskOutcome::Failed(DiskFailure::Io));
        fixture.store.next_finished();
    });
}

#[test]
fn damaged_record_does_not_return() {
    replaced_on_another_disk(|fixture, name| {
        let (_, at) = fixture.store.offset_of(name.as_view(), hashes(name.as_view())).unwrap();
        fixture.disks[0].0[at as usize + 60] ^= 1;
        assert_eq!(fixture.fetch(name), None);
        fixture.disks[0].0[at as usize + 60] ^= 1;
    });
}

#[test]
fn erasing_removes_both_duplicates() {
    let mut fixture = fixture(&[8, 8], 0);
    let name = name("/a/b");
    assert!(fixture.put_content(&name, b"one"));
    fixture.settle();
    assert_eq!(fixture.erase("/a/b", 1), 1);
    assert!(fixture.put_content(&name, b"two"));
    fixture.wait_ms(100);
    // The process dies before the first disk has logged the erasure.
    for _ in 0..10 {
        fixture.take();
        fixture.ops.retain(|op| op.disk == 1);
        while let Some(op) = fixture.ops.pop_front() {
            fixture.perform(op);
        }
    }
    restart(&mut fixture);
    assert!(fixture.content(&name).is_some());
    assert_eq!(fixture.erase("/a/b", 1), 1);
    fixture.settle();
    restart(&mut fixture);
    assert_eq!(fixture.content(&name), None);
}

#[test]
fn unindexed_record_does_not_return() {
    let mut fixture = fixture(&[8, 8], 0);
    let name = name("/a/b");
    assert!(fixture.put_content(&name, b"one"));
    fixture.settle();
    let index_bytes_max = std::mem::replace(&mut fixture.config.index_bytes_max, 1);
    restart(&mut fixture);
    assert!(fixture.stats().no_room == 1 && !fixture.on_disk(&name, false));
    fixture.settle();
    fixture.config.index_bytes_max = index_bytes_max;
    restart(&mut fixture);
    fixture.put_content(&name, b"two");
    fixture.settle();
    restart(&mut fixture);
    assert!(fixture.content(&name).is_none_or(|content| content == b"two"));
}

#[test]
fn erasure_in_reopened_region_persists() {
    let mut fixture = fixture(&[3], 0);
    let mut count = 0;
    let names: Vec<_> = (0..100).map(|number| segment("/object/v=1", number)).collect();
    while fixture.stats().evictions == 0 {
        if fixture.stats().bytes > 36 << 10 {
            fixture.store.check_disk();
        }
        assert!(fixture.put_content(&names[count], &[count as u8; 1400]));
        if fixture.stats().evictions == 0 {
            fixture.settle();
        }
        count += 1;
    }
    assert_eq!(fixture.erase("/object/v=1/seg=0", 1), 0, "it makes room");
    // The new header never reaches the disk.
    let mut failed = 0;
    while failed < 2 {
        fixture.take();
        let Some(op) = fixture.ops.pop_front() else {
            fixture.wait_ms(10);
            fixture.put_content(&segment("/later/v=1", failed), b"x");
            continue;
        };
        let is_header = match &op.kind {
            DiskOpKind::Write { chunks: parts, .. } => {
                matches!(&parts[..], [WriteChunk::Raw(raw)] if raw.len() < 100)
            }
            _ => false,
        };
        if is_header {
            fixture.store.on_disk_done(fixture.now, op.id, DiskOutcome::Failed(DiskFailure::Io));
            failed += 1;
        } else {
            fixture.perform(op);
        }
    }
    fixture.put_content(&name("/last"), b"x");
    fixture.settle();
    restart(&mut fixture);
    assert!(fixture.fetch(&names[1]).is_some(), "its region was never written to");
    assert!(fixture.fetch(&names[0]).is_none());
}

#[test]
fn small_region_takes_fitting_erasures() {
    let config = tier_config(vec![geometry(20, 64 << 10, 512)]);
    let memory = StoreConfig { capacity_bytes: 0, ..StoreConfig::default() };
    let mut fixture = Fixture::with(config, memory);
    fixture.config.write_backlog_bytes_max = 64 << 20;
    fixture.restart();
    fixture.settle();
    let names: Vec<_> = (0..1_500).map(|number| segment("/object/v=1", number)).collect();
    for name in &names {
        assert!(fixture.put_content(name, b"x"));
    }
    fixture.settle();
    for name in &names {
        assert_eq!(fixture.store.erase(name.as_view(), KEY.hash(name.value()), 1), 1);
    }
    assert!(fixture.put_content(&name("/more"), b"x"));
    fixture.settle();
    restart(&mut fixture);
    assert!(fixture.fetch(&name("/more")).is_some());
    assert!(names.iter().all(|name| !fixture.on_disk(name, false)));
}

#[test]
fn replaced_record_does_not_return_after_stop() {
    let mut fixture = fixture(&[8], 4_000);
    let name = name("/a/b");
    let evict = |fixture: &mut Fixture, from: u64| {
        for number in from..from + 10 {
            fixture.put_content(&segment("/other/v=1", number), &[1; 1400]);
        }
        fixture.settle();
    };
    assert!(fixture.put_content(&name, b"one"));
    evict(&mut fixture, 0);
    assert!(matches!(fixture.look(&name, false, false), Found::Disk(_)));
    assert!(fixture.put_content(&name, b"two"));
    evict(&mut fixture, 10);
    stop(&mut fixture);
    restart(&mut fixture);
    assert!(fixture.content(&name).is_none_or(|content| content == b"two"));
}

/// Flushes as a router does before it exits.
fn stop(fixture: &mut Fixture) {
    for _ in 0..1_000 {
        if !fixture.store.flush(fixture.now) {
            fixture.ops.clear();
            return;
        }
        fixture.tick();
        if let Some(op) = fixture.ops.pop_front() {
            fixture.perform(op);
        }
    }
    panic!("it does not stop");
}

#[test]
fn stop_waits_for_logged_erasures() {
    let mut fixture = fixture(&[8], 0);
    assert!(fixture.put_content(&name("/a/b"), b"one"));
    fixture.settle();
    assert_eq!(fixture.erase("/a/b", 1), 1);
    stop(&mut fixture);
    restart(&mut fixture);
    assert_eq!(fixture.content(&name("/a/b")), None);
}

/// Carries out all operations of one disk.
fn settle_one(fixture: &mut Fixture, disk: u8) {
    for _ in 0..100 {
        fixture.take();
        let (ours, others) =
            std::mem::take(&mut fixture.ops).into_iter().partition(|op| op.disk == disk);
        fixture.ops = ours;
        let others: std::collections::VecDeque<DiskOp> = others;
        while let Some(op) = fixture.ops.pop_front() {
            fixture.perform(op);
        }
        fixture.ops = others;
        fixture.now = fixture.now.plus_ns(weir_base::NS_PER_MS);
    }
}

#[test]
fn silent_disk_at_start_is_bounded() {
    let mut fixture = fixture(&[400, 8], 0);
    fixture.config.stalled_after_ns = u64::MAX / 2;
    fixture.config.write_backlog_bytes_max = 1 << 30;
    fixture.restart();
    fixture.settle();
    let old: Vec<_> = (0..40).map(|number| segment("/old/v=1", number)).collect();
    for name in &old {
        assert!(fixture.put_content(name, b"old"));
    }
    fixture.settle();
    fixture.restart();
    let mut new = Vec::new();
    for number in 0..5_000 {
        new.push(name(&std::format!("/new/{number}")));
        if number == 0 {
            settle_one(&mut fixture, 0);
        }
        fixture.put_content(&new[number], b"new");
        let (waiting, unread) = fixture.store.erasures_waiting();
        assert!(waiting <= 1 << 12 && unread <= (1 << 11) + 1, "{waiting}, {unread}");
    }
    settle_one(&mut fixture, 0);
    // The disk responds at last, and is used again.
    fixture.settle();
    fixture.store.check_disk();
    assert!(!fixture.stats().is_recovering());
    let more: Vec<_> = (0..40).map(|number| segment("/more/v=1", number)).collect();
    for name in &more {
        assert!(fixture.put_content(name, b"more"));
    }
    fixture.settle();
    let is_there = |fixture: &Fixture| {
        let all = old.iter().chain(&new).chain(&more);
        all.map(|name| fixture.on_disk(name, false)).collect::<Vec<_>>()
    };
    let before = is_there(&fixture);
    assert!(before.iter().filter(|is_there| **is_there).count() >= 5_040);
    for _ in 0..2 {
        restart(&mut fixture);
        assert!(is_there(&fixture) == before, "what is served is found again");
    }
}

#[test]
fn stale_read_of_reused_region_is_not_served() {
    let mut fixture = fixture(&[3], 4_000);
    let replaced = name("/a/b");
    let fill = |fixture: &mut Fixture, number: u64| {
        fixture.put_content(&segment("/other/v=1", number), &[1; 1400])
    };
    fixture.config.stalled_after_ns = u64::MAX / 2;
    fixture.restart();
    fixture.settle();
    assert!(fixture.put_content(&replaced, b"one"));
    for number in 0..6 {
        fill(&mut fixture, number);
    }
    fixture.settle();
    let Found::Disk(on_disk) = fixture.look(&replaced, false, false) else { panic!("not on disk") };
    fixture.store.begin_read(&on_disk).unwrap();
    fixture.take();
    let read = fixture.ops.pop_front().unwrap();
    let mut number = 6;
    while fixture.stats().evictions == 0 {
        fill(&mut fixture, number);
        number += 1;
        assert!(number < 1_000);
        if fixture.stats().evictions == 0 {
            settle_one(&mut fixture, 0);
        }
    }
    fixture.put_content(&replaced, b"two");
    fixture.perform(read);
    assert!(!fixture.store.next_finished().unwrap().outcome.is_data());
}

#[test]
fn sweep_keeps_up_with_small_disk() {
    let large = DiskGeometry { first: 0, stride: 1, ..geometry(64, 16 << 20, 512) };
    let config = tier_config(vec![geometry(2, 16 << 10, 512), large]);
    let memory = StoreConfig { capacity_bytes: 0, ..StoreConfig::default() };
    let mut fixture = Fixture::with(config, memory);
    fixture.settle();
    for number in 0..20_000 {
        // In scattered order: the sweep goes from segment to segment.
        let scattered = number * 40_503 % 65_536;
        assert!(fixture.put_content(&segment("/object/v=1", scattered), &[1; 1400]));
        fixture.settle();
        if number % 2_000 == 1_999 {
            fixture.store.check_disk();
        }
    }
}
