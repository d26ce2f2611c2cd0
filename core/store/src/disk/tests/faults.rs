//! One fault at a time, at every position.

use super::super::*;
use super::disks::*;
use crate::StoreConfig;
use std::vec;
use std::vec::Vec;
use weir_base::Merge;
use weir_base::NS_PER_MS;
use weir_wire::Name;

/// A store with one disk whose second region is half full, and the names on it, oldest first.
fn filled() -> (Fixture, Vec<Name>) {
    let mut fixture = Fixture::with(
        tier_config(vec![geometry(3, 16 << 10, 512)]),
        StoreConfig { capacity_bytes: 0, ..StoreConfig::default() },
    );
    fixture.settle();
    let names: Vec<_> = (0..20).map(|number| segment("/object/v=1", number)).collect();
    for (number, name) in names.iter().enumerate() {
        assert!(fixture.put_content(name, &content(number)));
        fixture.settle();
    }
    let in_second = fixture.stats().bytes > 16 << 10;
    assert!(in_second && fixture.stats().evictions == 0);
    (fixture, names)
}

fn content(number: usize) -> Vec<u8> {
    vec![number as u8; 100 + number * 97 % 1_500]
}

/// Restarts. Returns which of the names are found. Panics if one has wrong content.
fn found(fixture: &mut Fixture, names: &[Name]) -> Vec<bool> {
    fixture.restart();
    fixture.settle();
    fixture.store.check_disk();
    let mut found = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let got = fixture.content(name);
        assert!(got.as_ref().is_none_or(|got| *got == content(number)), "wrong bytes");
        found.push(got.is_some());
    }
    fixture.store.check_disk();
    found
}

/// Where the records of the names begin and end on the disk.
fn extents(fixture: &mut Fixture, names: &[Name]) -> Vec<(usize, usize)> {
    let mut extents = Vec::new();
    for name in names {
        let Found::Disk(on_disk) = fixture.look(name, false, false) else { panic!("not on disk") };
        fixture.store.begin_read(&on_disk).unwrap();
        fixture.take();
        let op = fixture.ops.pop_front().unwrap();
        let DiskOpKind::ReadRecord { offset, len, .. } = op.kind else { panic!("no read") };
        extents.push((offset as usize, offset as usize + len as usize));
        fixture.perform(op);
        fixture.store.next_finished();
    }
    extents
}

#[test]
fn log_may_end_at_any_block() {
    let (mut fixture, names) = filled();
    let extents = extents(&mut fixture, &names);
    let whole = fixture.disks[0].clone();
    let region = fixture.config.disks[0].region_bytes as usize;
    let begin = extents.iter().map(|&(begin, _)| begin).min().unwrap() / 512 * 512 - 512;
    // Every other region of the disk belongs to this store.
    for cut in (begin..begin + 3 * region).step_by(512) {
        // As if nothing behind the cut had been written, in this region or later.
        fixture.disks[0] = whole.clone();
        fixture.disks[0].0[cut..].fill(0);
        let found = found(&mut fixture, &names);
        for (found, &(_, end)) in found.iter().zip(&extents) {
            assert_eq!(*found, end <= cut, "cut at {cut}, record ends at {end}");
        }
        // The file itself may also end there.
        fixture.disks[0] = whole.clone();
        fixture.disks[0].0.truncate(cut + 100);
        fixture.restart();
        fixture.settle();
        for (number, name) in names.iter().enumerate() {
            assert!(fixture.content(name).is_none_or(|got| got == content(number)));
        }
    }
}

#[test]
fn flipped_metadata_is_survived() {
    let (mut fixture, names) = filled();
    let extents = extents(&mut fixture, &names);
    let whole = fixture.disks[0].clone();
    let region = fixture.config.disks[0].region_bytes as usize;
    let first = extents[0].0 - 512;
    assert!(found(&mut fixture, &names).iter().all(|&found| found));
    assert_eq!(fixture.stats().regions_unreadable, 0);
    for begin in [first, first + 2 * region] {
        let checkpoint = &whole.0[begin + region - 1024..begin + region - 512];
        let used = checkpoint.iter().rposition(|&octet| octet != 0).map_or(0, |last| last + 1);
        let padding = begin + region - 1024 + used;
        let header = begin..begin + 56;
        let footer = begin + region - 512..begin + region - 512 + 64;
        let checkpoint = begin + region - 1024..begin + region - 512;
        for at in header.chain(footer).chain(checkpoint.step_by(7)) {
            fixture.disks[0] = whole.clone();
            fixture.disks[0].0[at] ^= 0x10;
            let found = found(&mut fixture, &names);
            assert!(found.iter().all(|&found| found), "byte {at}: {found:?}");
            // Nothing was written to the place of the second region's footer yet.
            let is_written = begin == first || at < begin + 56;
            let is_padding = (padding..begin + region - 512).contains(&at);
            let expected = u64::from(is_written && !is_padding);
            assert_eq!(fixture.stats().regions_unreadable, expected, "byte {at}");
        }
    }
}

/// Restarts while the system fails all reads of a part of the disk.
fn start_without(fixture: &mut Fixture, range: std::ops::Range<usize>) {
    fixture.restart();
    loop {
        fixture.take();
        let Some(op) = fixture.ops.pop_front() else { return };
        match op.kind {
            DiskOpKind::ReadRaw { offset, len }
                if (offset as usize) < range.end
                    && offset as usize + len as usize > range.start =>
            {
                let failed = DiskOutcome::Failed(DiskFailure::Io);
                fixture.store.on_disk_done(fixture.now, op.id, failed);
            }
            _ => fixture.perform(op),
        }
    }
}

#[test]
fn unreadable_regions_are_counted_once() {
    let (mut fixture, names) = filled();
    let whole = fixture.disks[0].clone();
    let first = extents(&mut fixture, &names)[0].0 - 512;
    let region = fixture.config.disks[0].region_bytes as usize;
    let second = first + 2 * region;
    let third = second + 2 * region;
    // The unreadable part, the regions that are counted, and whether records are lost. A region
    // without header or footer is read in chunks, which are larger than the regions here.
    for (range, unreadable, loses) in [
        (first..first + 512, 1, true),
        (first + region - 1..first + region, 1, true),
        // The checkpoint replaces the records.
        (first + 4096..first + 4608, 0, false),
        (second + 4096..second + 4608, 1, true),
        (third..third + 512, 1, false),
        (first..first + region, 1, true),
        (first..third + region, 3, true),
    ] {
        fixture.disks[0] = whole.clone();
        start_without(&mut fixture, range.clone());
        let stats = fixture.stats();
        assert_eq!(stats.regions_unreadable, unreadable, "{range:?}: {stats:?}");
        assert_eq!(stats.recovered < 20, loses, "{range:?}: {stats:?}");
        assert_eq!(stats.read_errors > 0, unreadable > 0, "{range:?}: {stats:?}");
        fixture.store.check_disk();
    }
    // Footer and checkpoint are damaged: a scan finds the records.
    fixture.disks[0] = whole;
    let end = first + region;
    fixture.disks[0].0[end - 512 + 50] ^= 1;
    fixture.disks[0].0[end - 1024 + 50] ^= 1;
    assert!(found(&mut fixture, &names).iter().all(|&found| found));
    let mut sum = fixture.stats();
    assert_eq!((sum.regions_unreadable, sum.read_errors), (1, 0));
    sum.merge(&fixture.stats());
    assert_eq!(sum.regions_unreadable, 2);
}

#[test]
fn flipped_byte_is_never_served() {
    let (mut fixture, names) = filled();
    let extents = extents(&mut fixture, &names);
    let whole = fixture.disks[0].clone();
    for victim in [2, 19] {
        let (begin, _) = extents[victim];
        let len = 48 + 30 + content(victim).len();
        for at in (begin..begin + 48).chain((begin + 48..begin + len).step_by(11)) {
            fixture.disks[0] = whole.clone();
            fixture.disks[0].0[at] ^= 1;
            let found = found(&mut fixture, &names);
            let expected: Vec<_> = (0..names.len()).map(|number| number != victim).collect();
            assert_eq!(found, expected, "byte {at}");
            let stats = fixture.stats();
            assert!(stats.damaged == 1 || stats.recovered == 19, "{stats:?}");
        }
    }
}

#[test]
fn any_subset_of_last_writes_may_be_lost() {
    let (mut fixture, names) = filled();
    fixture.config.write_bytes_max = 512;
    fixture.restart();
    fixture.settle();
    let more: Vec<_> = (0..6).map(|number| segment("/more/v=1", number)).collect();
    more.iter().for_each(|name| assert!(fixture.put_content(name, b"more")));
    fixture.take();
    let writes: Vec<_> =
        fixture.ops.iter().map(|op| laid_out(&fixture.config, op).unwrap()).collect();
    assert_eq!(writes.len(), 6);
    let before = fixture.disks[0].clone();
    for subset in 0..1 << writes.len() {
        fixture.disks[0] = before.clone();
        let happened = |at: usize| subset >> at & 1 == 1;
        for (at, (offset, octets)) in writes.iter().enumerate() {
            if happened(at) {
                fixture.disks[0].write(*offset, octets);
            }
        }
        assert!(found(&mut fixture, &names).iter().all(|&found| found));
        for (at, name) in more.iter().enumerate() {
            assert_eq!(fixture.content(name).is_some(), happened(at));
        }
        // Later records do no harm to the recovered ones.
        assert!(fixture.put_content(&name("/later"), b"later"));
        fixture.settle();
        assert!(found(&mut fixture, &names).iter().all(|&found| found));
        assert_eq!(fixture.content(&name("/later")).unwrap(), b"later");
        for (at, name) in more.iter().enumerate() {
            assert_eq!(fixture.content(name).is_some(), happened(at));
        }
    }
}

#[test]
fn disk_of_another_store_counts_as_empty() {
    let (mut fixture, names) = filled();
    fixture.config.store_id ^= 1;
    fixture.restart();
    fixture.settle();
    assert_eq!((fixture.stats().entries, fixture.stats().recovered), (0, 0));
    assert_eq!(fixture.stats().regions_unreadable, 0, "there is none of its own");
    assert!(names.iter().all(|name| matches!(fixture.look(name, true, false), Found::Nothing)));
}

fn fail_all(fixture: &mut Fixture, failure: DiskFailure) -> usize {
    fixture.take();
    let ops: Vec<_> = fixture.ops.drain(..).collect();
    for op in &ops {
        fixture.store.on_disk_done(fixture.now, op.id, DiskOutcome::Failed(failure));
    }
    ops.len()
}

#[test]
fn write_failures_pause_but_reads_continue() {
    for failure in [DiskFailure::NoSpace, DiskFailure::ReadOnly, DiskFailure::Io] {
        let (mut fixture, names) = filled();
        for attempt in 0..3 {
            let name = segment("/new/v=1", attempt);
            assert!(fixture.put_content(&name, b"new"));
            fixture.wait_ms(10);
            assert!(fail_all(&mut fixture, failure) > 0);
            assert!(matches!(fixture.look(&name, false, false), Found::Nothing));
        }
        assert!(fixture.stats().write_errors >= 3);
        assert!(!fixture.put_content(&name("/x"), b"x"), "it has a rest from writes");
        assert_eq!(fixture.stats().passed_by, 1);
        assert_eq!(fixture.content(&names[19]), Some(content(19)), "it still reads");
        fixture.store.check_disk();
        fixture.wait_ms(61_000);
        assert!(fixture.put_content(&name("/x"), b"x"));
        fixture.settle();
        assert_eq!(fixture.content(&name("/x")), Some(b"x".to_vec()));
        let kept = names.iter().filter(|name| fixture.content(name).is_some()).count();
        match failure {
            DiskFailure::Io => assert!(kept >= 5),
            _ => assert_eq!(kept, names.len(), "nothing was given up for it"),
        }
    }
}

#[test]
fn stall_during_recovery_is_reported() {
    let (mut fixture, _) = filled();
    fixture.restart();
    assert_eq!((fixture.stats().unrecovered_set, fixture.stats().stalled_set), (1, 0));
    fixture.take();
    fixture.wait_ms(fixture.config.stalled_after_ns / NS_PER_MS);
    assert_eq!((fixture.stats().unrecovered_set, fixture.stats().stalled_set), (1, 1));
    fixture.settle();
    let stats = fixture.stats();
    assert_eq!((stats.unrecovered_set, stats.stalled_set, stats.is_recovering()), (0, 0, false));
}

#[test]
fn stalled_disk_releases_reads() {
    let (mut fixture, names) = filled();
    let stalled_after_ms = fixture.config.stalled_after_ns / NS_PER_MS;
    fixture.config.depth = 1;
    fixture.restart();
    fixture.settle();
    let mut reads = Vec::new();
    for name in &names[..3] {
        let Found::Disk(on_disk) = fixture.look(name, false, false) else { panic!("not on disk") };
        reads.push(fixture.store.begin_read(&on_disk).unwrap());
    }
    fixture.take();
    assert_eq!(fixture.ops.len(), 1);
    assert!(
        fixture.store.next_wakeup().unwrap()
            <= fixture.now.plus_ns(fixture.config.stalled_after_ns)
    );
    fixture.wait_ms(stalled_after_ms);
    let mut let_go = Vec::new();
    while let Some(finished) = fixture.store.next_finished() {
        assert!(matches!(finished.outcome, ReadOutcome::Stalled));
        let_go.push(finished.read);
    }
    let_go.sort();
    assert_eq!(let_go, reads);
    assert_eq!((fixture.stats().stalls, fixture.stats().stalled_set), (1, 1));
    let Found::Disk(on_disk) = fixture.look(&names[5], false, false) else { panic!("not on disk") };
    assert!(on_disk.is_stalled);
    assert!(fixture.put_content(&name("/x"), b"x"), "memory keeps it until the disk answers");
    assert!(matches!(fixture.look(&name("/x"), false, false), Found::Memory(_)));
    assert!(!fixture.store.flush(fixture.now), "a stop does not wait for it");
    fixture.wait_ms(10);
    assert_eq!(fixture.store.next_wakeup(), None);
    // The disk responds: the released read ends after all, and everything continues.
    let op = fixture.ops.pop_front().unwrap();
    fixture.perform(op);
    let late = fixture.store.next_finished().unwrap();
    assert!(late.read == reads[0] && late.outcome.is_data());
    assert_eq!(fixture.stats().stalled_set, 0);
    assert_eq!(fixture.content(&names[5]), Some(content(5)));
    fixture.settle();
    assert!(matches!(fixture.look(&name("/x"), false, false), Found::Disk(_)));
    fixture.store.check_disk();
}

#[test]
fn released_reads_are_not_joined() {
    let (mut fixture, names) = filled();
    let Found::Disk(on_disk) = fixture.look(&names[0], false, false) else { panic!("not on disk") };
    fixture.store.begin_read(&on_disk).unwrap();
    fixture.take();
    fixture.wait_ms(fixture.config.stalled_after_ns / NS_PER_MS);
    assert!(!fixture.store.next_finished().unwrap().outcome.is_data());
    let Found::Disk(on_disk) = fixture.look(&names[0], false, false) else { panic!("not on disk") };
    let late = fixture.store.begin_read(&on_disk).unwrap();
    let finished = fixture.store.next_finished().expect("it ends at once");
    assert!(finished.read == late && matches!(finished.outcome, ReadOutcome::Stalled));
}

#[test]
fn one_hung_operation_is_no_stall() {
    let (mut fixture, names) = filled();
    let ask = |fixture: &mut Fixture, name: &Name| {
        let Found::Disk(on_disk) = fixture.look(name, false, false) else { panic!("not on disk") };
        fixture.store.begin_read(&on_disk).unwrap();
        fixture.take();
        fixture.ops.pop_back().unwrap()
    };
    let hung = ask(&mut fixture, &names[0]);
    for name in &names[1..9] {
        fixture.wait_ms(fixture.config.stalled_after_ns / NS_PER_MS / 2);
        let op = ask(&mut fixture, name);
        fixture.perform(op);
        assert!(fixture.store.next_finished().unwrap().outcome.is_data());
    }
    assert_eq!(fixture.stats().stalls, 0);
    fixture.perform(hung);
    assert!(fixture.store.next_finished().unwrap().outcome.is_data());
}

#[test]
fn reads_are_shared_and_refused_past_the_bound() {
    let (mut fixture, names) = filled();
    fixture.config.reads_max = 2;
    fixture.restart();
    fixture.settle();
    let ask = |fixture: &mut Fixture, name: &Name| {
        let Found::Disk(on_disk) = fixture.look(name, false, false) else { panic!("not on disk") };
        (on_disk.reads_waiting, fixture.store.begin_read(&on_disk))
    };
    let first = ask(&mut fixture, &names[0]);
    assert_eq!(ask(&mut fixture, &names[0]), (0, first.1));
    assert_eq!(ask(&mut fixture, &names[1]).0, 1);
    assert_eq!(ask(&mut fixture, &names[2]), (2, Err(ReadRefused)));
    assert_eq!(ask(&mut fixture, &names[1]).0, 1);
    let stats = fixture.stats();
    assert_eq!((stats.reads_shared, stats.reads_refused, stats.reads_waiting), (2, 1, 2));
    fixture.settle();
    assert!(fixture.store.next_finished().is_some() && fixture.store.next_finished().is_some());
    assert!(fixture.store.next_finished().is_none(), "one answer for all who share");
    assert_eq!(fixture.stats().reads, 2);
}

#[test]
fn failed_read_drops_one_record() {
    let (mut fixture, names) = filled();
    for name in &names[..3] {
        let Found::Disk(on_disk) = fixture.look(name, false, false) else { panic!("not on disk") };
        fixture.store.begin_read(&on_disk).unwrap();
        fail_all(&mut fixture, DiskFailure::Io);
        assert!(!fixture.store.next_finished().unwrap().outcome.is_data());
    }
    assert_eq!(fixture.stats().read_errors, 3);
    assert_eq!(fixture.content(&names[0]), None, "a bad sector");
    assert_eq!(fixture.content(&names[1]), Some(content(1)), "the disk as a whole was in trouble");
}

#[test]
fn memory_and_writes_waiting_are_bounded() {
    let bytes_max = 400_000;
    let config = DiskTierConfig {
        index_bytes_max: bytes_max,
        write_backlog_bytes_max: 3 * 512,
        ..tier_config(vec![geometry(8, 1 << 20, 512)])
    };
    let memory = StoreConfig { capacity_bytes: 0, ..StoreConfig::default() };
    let mut fixture = Fixture::with(config, memory);
    fixture.settle();
    for number in 0..5 {
        assert_eq!(fixture.put_content(&segment("/y", number), b"y"), number < 3);
    }
    assert_eq!(fixture.stats().passed_by, 2);
    fixture.settle();
    for round in 0..4 {
        for number in 0..2_000 {
            let object = std::format!("/{round}/{number}/{number}");
            // If the first Data is on disk, only a fingerprint of the second is kept.
            let contents: &[&[u8]] = if number % 10 == 0 { &[b"y", b"z"] } else { &[b"y"] };
            for content in contents {
                fixture.put_content(&name(&object), content);
                fixture.put_content(&segment(&object, number % 7), content);
                fixture.settle();
                assert!(fixture.stats().index_bytes <= bytes_max, "{:?}", fixture.stats());
            }
        }
        let stats = fixture.stats();
        assert!(stats.no_room > 0 && stats.entries > 700, "{stats:?}");
        fixture.erase(&std::format!("/{round}"), usize::MAX);
        fixture.store.check_disk();
    }
    fixture.restart();
    while fixture.stats().is_recovering() {
        fixture.tick();
        if let Some(op) = fixture.ops.pop_front() {
            fixture.perform(op);
        }
        assert!(fixture.stats().index_bytes <= bytes_max, "{:?}", fixture.stats());
    }
}
