//! What was replaced or erased does not come back, and what took its place is not lost.

use super::super::*;
use super::bed::*;
use crate::{EvictionPolicy, StoreConfig};
use std::vec;
use std::vec::Vec;
use weir_wire::{DataView, Name};

/// A store with disks of some regions of 16 KiB.
fn bed(regions: &[u32], capacity_bytes: u64) -> Bed {
    let disks = regions.iter().map(|&regions| geometry(regions, 16 << 10, 512)).collect();
    // What leaves memory is to be what came first.
    let policy = EvictionPolicy::S3Fifo;
    let memory = StoreConfig { capacity_bytes, policy, ..StoreConfig::default() };
    let mut bed = Bed::with(tier_config(disks), memory);
    bed.settle();
    bed
}

fn restart(bed: &mut Bed) {
    bed.restart();
    bed.settle();
    bed.store.check_disk();
}

/// Reads Data into RAM and uses it there.
fn use_in_memory(bed: &mut Bed, name: &Name) -> bool {
    let Some(wire) = bed.fetch(name) else { return false };
    let data = DataView::decode(&wire).unwrap();
    let fill = |path: &mut Vec<u64>| prefixes(data.name, path);
    let packet = weir_base::Packet::from(&wire[..]);
    let hashes = hashes(data.name);
    bed.store.promote(bed.now, (&packet, &data), bed.now, hashes, fill, &mut bed.pool);
    assert!(matches!(bed.look(name, false, false), Found::Memory(_)));
    true
}

#[test]
fn what_was_written_again_before_its_region_made_room_stays_erased() {
    let mut bed = bed(&[24, 24], 6_000);
    let names: Vec<_> = (0..2_000).map(|number| segment("/object/v=1", number)).collect();
    let mut count = 0;
    while bed.stats().evictions == 0 {
        assert!(bed.put(&names[count], &[count as u8; 1400]));
        bed.settle();
        count += 1;
    }
    let first = (0..count).find(|&at| bed.on_disk(&names[at], false)).unwrap();
    // Of the oldest eighth, but not of its oldest regions.
    let old = first + 16..first + 34;
    let writes = bed.stats().writes;
    for at in old.clone() {
        assert!(use_in_memory(&mut bed, &names[at]));
    }
    for number in 0..8 {
        bed.put(&segment("/other/v=1", number), &[1; 1400]);
    }
    bed.settle();
    assert!(bed.stats().writes > writes + 18, "they were written again");
    for at in old.clone() {
        assert!(bed.store.erase(names[at].as_view(), KEY.hash(names[at].value()), 1) <= 1);
    }
    bed.settle();
    restart(&mut bed);
    for at in old {
        assert!(bed.fetch(&names[at]).is_none(), "segment {at}");
    }
}

/// Gives up what is on the first disk under a name, and has other Data written to the second.
fn replaced_on_another_disk(give_up: impl FnOnce(&mut Bed, &Name)) {
    let mut bed = bed(&[8, 8], 0);
    let name = name("/a/b");
    assert!(bed.put(&name, b"one"));
    bed.settle();
    let (first, _) = bed.store.offset_of(name.as_view(), hashes(name.as_view())).unwrap();
    assert_eq!(first, 0);
    give_up(&mut bed, &name);
    assert!(!bed.on_disk(&name, false));
    assert!(bed.put(&name, b"two"));
    bed.settle();
    let (second, _) = bed.store.offset_of(name.as_view(), hashes(name.as_view())).unwrap();
    assert_eq!(second, 1);
    restart(&mut bed);
    assert_eq!(bed.content(&name), Some(b"two".to_vec()));
}

#[test]
fn what_could_not_be_read_does_not_win_over_what_took_its_place() {
    replaced_on_another_disk(|bed, name| {
        let Found::Disk(on_disk) = bed.look(name, false, false) else { panic!("not on disk") };
        bed.store.begin_read(&on_disk).unwrap();
        bed.take();
        let op = bed.ops.pop_front().unwrap();
        bed.store.on_disk_done(bed.now, op.id, DiskOutcome::Failed(DiskFailure::Io));
        bed.store.next_finished();
    });
}

#[test]
fn what_was_found_damaged_does_not_win_over_what_took_its_place() {
    replaced_on_another_disk(|bed, name| {
        let (_, at) = bed.store.offset_of(name.as_view(), hashes(name.as_view())).unwrap();
        bed.disks[0].0[at as usize + 60] ^= 1;
        assert_eq!(bed.fetch(name), None);
        bed.disks[0].0[at as usize + 60] ^= 1;
    });
}

#[test]
fn of_two_that_a_start_finds_none_comes_back_when_one_is_erased() {
    let mut bed = bed(&[8, 8], 0);
    let name = name("/a/b");
    assert!(bed.put(&name, b"one"));
    bed.settle();
    assert_eq!(bed.erase("/a/b", 1), 1);
    assert!(bed.put(&name, b"two"));
    bed.wait_ms(100);
    // It dies before the first disk has noted what was erased.
    for _ in 0..10 {
        bed.take();
        bed.ops.retain(|op| op.disk == 1);
        while let Some(op) = bed.ops.pop_front() {
            bed.perform(op);
        }
    }
    restart(&mut bed);
    assert!(bed.content(&name).is_some());
    assert_eq!(bed.erase("/a/b", 1), 1);
    bed.settle();
    restart(&mut bed);
    assert_eq!(bed.content(&name), None);
}

#[test]
fn what_the_index_had_no_room_for_at_a_start_does_not_win_over_what_took_its_place() {
    let mut bed = bed(&[8, 8], 0);
    let name = name("/a/b");
    assert!(bed.put(&name, b"one"));
    bed.settle();
    let index_bytes_max = std::mem::replace(&mut bed.config.index_bytes_max, 1);
    restart(&mut bed);
    assert!(bed.stats().no_room == 1 && !bed.on_disk(&name, false));
    bed.settle();
    bed.config.index_bytes_max = index_bytes_max;
    restart(&mut bed);
    bed.put(&name, b"two");
    bed.settle();
    restart(&mut bed);
    assert!(bed.content(&name).is_none_or(|content| content == b"two"));
}

#[test]
fn what_is_erased_while_its_region_is_opened_again_stays_erased() {
    let mut bed = bed(&[3], 0);
    let mut count = 0;
    let names: Vec<_> = (0..100).map(|number| segment("/object/v=1", number)).collect();
    while bed.stats().evictions == 0 {
        if bed.stats().bytes > 36 << 10 {
            bed.store.check_disk();
        }
        assert!(bed.put(&names[count], &[count as u8; 1400]));
        if bed.stats().evictions == 0 {
            bed.settle();
        }
        count += 1;
    }
    assert_eq!(bed.erase("/object/v=1/seg=0", 1), 0, "it makes room");
    // The new header never lands.
    let mut failed = 0;
    while failed < 2 {
        bed.take();
        let Some(op) = bed.ops.pop_front() else {
            bed.wait_ms(10);
            bed.put(&segment("/later/v=1", failed), b"x");
            continue;
        };
        let is_header = match &op.kind {
            DiskOpKind::Write { parts, .. } => {
                matches!(&parts[..], [WritePart::Raw(raw)] if raw.len() < 100)
            }
            _ => false,
        };
        if is_header {
            bed.store.on_disk_done(bed.now, op.id, DiskOutcome::Failed(DiskFailure::Io));
            failed += 1;
        } else {
            bed.perform(op);
        }
    }
    bed.put(&name("/last"), b"x");
    bed.settle();
    restart(&mut bed);
    assert!(bed.fetch(&names[1]).is_some(), "its region was never written to");
    assert!(bed.fetch(&names[0]).is_none());
}

#[test]
fn a_small_region_takes_as_many_erasures_as_fit() {
    let config = tier_config(vec![geometry(20, 64 << 10, 512)]);
    let memory = StoreConfig { capacity_bytes: 0, ..StoreConfig::default() };
    let mut bed = Bed::with(config, memory);
    bed.config.write_backlog_bytes_max = 64 << 20;
    bed.restart();
    bed.settle();
    let names: Vec<_> = (0..1_500).map(|number| segment("/object/v=1", number)).collect();
    for name in &names {
        assert!(bed.put(name, b"x"));
    }
    bed.settle();
    for name in &names {
        assert_eq!(bed.store.erase(name.as_view(), KEY.hash(name.value()), 1), 1);
    }
    assert!(bed.put(&name("/more"), b"x"));
    bed.settle();
    restart(&mut bed);
    assert!(bed.fetch(&name("/more")).is_some());
    assert!(names.iter().all(|name| !bed.on_disk(name, false)));
}

#[test]
fn what_was_replaced_in_memory_alone_does_not_come_back_after_a_stop() {
    let mut bed = bed(&[8], 4_000);
    let name = name("/a/b");
    let evict = |bed: &mut Bed, from: u64| {
        for number in from..from + 10 {
            bed.put(&segment("/other/v=1", number), &[1; 1400]);
        }
        bed.settle();
    };
    assert!(bed.put(&name, b"one"));
    evict(&mut bed, 0);
    assert!(matches!(bed.look(&name, false, false), Found::Disk(_)));
    assert!(bed.put(&name, b"two"));
    evict(&mut bed, 10);
    stop(&mut bed);
    restart(&mut bed);
    assert!(bed.content(&name).is_none_or(|content| content == b"two"));
}

/// As a router does before it ends.
fn stop(bed: &mut Bed) {
    for _ in 0..1_000 {
        if !bed.store.flush(bed.now) {
            bed.ops.clear();
            return;
        }
        bed.tick();
        if let Some(op) = bed.ops.pop_front() {
            bed.perform(op);
        }
    }
    panic!("it does not stop");
}

#[test]
fn a_stop_waits_for_what_was_erased_to_be_noted() {
    let mut bed = bed(&[8], 0);
    assert!(bed.put(&name("/a/b"), b"one"));
    bed.settle();
    assert_eq!(bed.erase("/a/b", 1), 1);
    stop(&mut bed);
    restart(&mut bed);
    assert_eq!(bed.content(&name("/a/b")), None);
}

/// Does all that is asked of one disk.
fn settle_one(bed: &mut Bed, disk: u8) {
    for _ in 0..100 {
        bed.take();
        let (ours, others) =
            std::mem::take(&mut bed.ops).into_iter().partition(|op| op.disk == disk);
        bed.ops = ours;
        let others: std::collections::VecDeque<DiskOp> = others;
        while let Some(op) = bed.ops.pop_front() {
            bed.perform(op);
        }
        bed.ops = others;
        bed.now = bed.now.plus_ns(weir_base::NS_PER_MS);
    }
}

#[test]
fn a_disk_that_does_not_answer_at_a_start_takes_no_memory_without_bound() {
    let mut bed = bed(&[400, 8], 0);
    bed.config.stalled_after_ns = u64::MAX / 2;
    bed.config.write_backlog_bytes_max = 1 << 30;
    bed.restart();
    bed.settle();
    let old: Vec<_> = (0..40).map(|number| segment("/old/v=1", number)).collect();
    for name in &old {
        assert!(bed.put(name, b"old"));
    }
    bed.settle();
    bed.restart();
    let mut new = Vec::new();
    for number in 0..5_000 {
        new.push(name(&std::format!("/new/{number}")));
        if number == 0 {
            settle_one(&mut bed, 0);
        }
        bed.put(&new[number], b"new");
        let (waiting, unread) = bed.store.erasures_waiting();
        assert!(waiting <= 1 << 12 && unread <= (1 << 11) + 1, "{waiting}, {unread}");
    }
    settle_one(&mut bed, 0);
    // At last it answers, and takes part.
    bed.settle();
    bed.store.check_disk();
    assert!(!bed.stats().is_recovering());
    let more: Vec<_> = (0..40).map(|number| segment("/more/v=1", number)).collect();
    for name in &more {
        assert!(bed.put(name, b"more"));
    }
    bed.settle();
    let is_there = |bed: &Bed| {
        let all = old.iter().chain(&new).chain(&more);
        all.map(|name| bed.on_disk(name, false)).collect::<Vec<_>>()
    };
    let before = is_there(&bed);
    assert!(before.iter().filter(|is_there| **is_there).count() >= 5_040);
    for _ in 0..2 {
        restart(&mut bed);
        assert!(is_there(&bed) == before, "what is served is found again");
    }
}

#[test]
fn what_is_read_while_its_region_makes_room_is_not_served_once_it_was_replaced() {
    let mut bed = bed(&[3], 4_000);
    let replaced = name("/a/b");
    let fill = |bed: &mut Bed, number: u64| bed.put(&segment("/other/v=1", number), &[1; 1400]);
    bed.config.stalled_after_ns = u64::MAX / 2;
    bed.restart();
    bed.settle();
    assert!(bed.put(&replaced, b"one"));
    for number in 0..6 {
        fill(&mut bed, number);
    }
    bed.settle();
    let Found::Disk(on_disk) = bed.look(&replaced, false, false) else { panic!("not on disk") };
    bed.store.begin_read(&on_disk).unwrap();
    bed.take();
    let read = bed.ops.pop_front().unwrap();
    let mut number = 6;
    while bed.stats().evictions == 0 {
        fill(&mut bed, number);
        number += 1;
        assert!(number < 1_000);
        if bed.stats().evictions == 0 {
            settle_one(&mut bed, 0);
        }
    }
    bed.put(&replaced, b"two");
    bed.perform(read);
    assert!(!bed.store.next_finished().unwrap().outcome.is_data());
}

#[test]
fn the_sweep_keeps_up_with_a_small_disk_beside_a_large_one() {
    let large = DiskGeometry { first: 0, stride: 1, ..geometry(64, 16 << 20, 512) };
    let config = tier_config(vec![geometry(2, 16 << 10, 512), large]);
    let memory = StoreConfig { capacity_bytes: 0, ..StoreConfig::default() };
    let mut bed = Bed::with(config, memory);
    bed.settle();
    for number in 0..20_000 {
        // In no order: the sweep goes from segment to segment.
        let scattered = number * 40_503 % 65_536;
        assert!(bed.put(&segment("/object/v=1", scattered), &[1; 1400]));
        bed.settle();
        if number % 2_000 == 1_999 {
            bed.store.check_disk();
        }
    }
}
