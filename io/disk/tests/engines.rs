//! Both engines, with and without the page cache, on real files.

use crate::common;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use common::{LONG, MIB, Shard, config, data, record, start, variants, write};
use weir_base::Rng;
use weir_disk::{DiskFileConfig, Engine, Faults, OpenError, Pace, Service, open};
use weir_store::disk::{
    DiskFailure, DiskGeometry, DiskOpId, DiskOpKind, DiskOutcome, RecordFault, WriteChunk,
};

fn read(offset: u64, len: u64, sequence: u32) -> DiskOpKind {
    DiskOpKind::ReadRecord { offset, len: len as u32, sequence }
}

fn with(config: DiskFileConfig, (engine, direct): (Engine, bool)) -> DiskFileConfig {
    DiskFileConfig { engine, direct, ..config }
}

#[test]
fn reads_back_only_what_was_written() {
    for variant in variants() {
        let folder = tempfile::tempdir().unwrap();
        let config = with(config(&folder.path().join("disk"), 16), variant);
        let set = open(&[config], 1).unwrap();
        let geometry = set.geometry(0, 0);
        let block = geometry.block_bytes;
        let (monitor, mut shards) = start(set, 8, 1);
        let shard = &mut shards[0];
        let at = geometry.data_offset;
        // Smaller than a block, one block, several, more than a small buffer and more than a large
        // one.
        let sizes = [1, 400, 464, 465, 8192, 20_000, 300_000];
        let packets: Vec<_> = (0..).zip(sizes).map(|(seed, len)| data(len, seed)).collect();
        let chunks: Vec<_> = packets.iter().cloned().map(record).collect();
        let locations: Vec<_> = chunks
            .iter()
            .scan(at, |next, chunk| {
                let offset = *next;
                *next += chunk.size(block);
                Some((offset, chunk.size(block)))
            })
            .collect();
        assert!(matches!(shard.one(0, write(at, 5, chunks, block)), DiskOutcome::Written));
        for (packet, &(offset, len)) in packets.iter().zip(&locations) {
            match shard.one(0, read(offset, len, 5)) {
                DiskOutcome::Record { packet: found, fresh_until_unix_ms: 77 } => {
                    assert!(found == *packet, "{variant:?}");
                }
                other => panic!("{variant:?}: {other:?}"),
            }
        }
        let (offset, len) = locations[4];
        let faults = [
            (read(offset, len, 6), RecordFault::Foreign),
            (read(offset + u64::from(block), len, 5), RecordFault::Foreign),
            (read(offset, u64::from(block), 5), RecordFault::Truncated),
            (read(16 * MIB, len, 5), RecordFault::Truncated),
        ];
        for (kind, fault) in faults {
            let outcome = shard.one(0, kind);
            assert!(matches!(&outcome, DiskOutcome::Damaged(f) if *f == fault), "{outcome:?}");
        }
        let counters = monitor.counters(0);
        assert_eq!((counters.writes, counters.reads, counters.damaged), (1, 11, 4));
        assert_eq!(counters.failures, 0);
        assert!(shards.remove(0).ports.close(LONG));
    }
}

#[test]
fn raw_reads_end_with_the_file() {
    for variant in variants() {
        let folder = tempfile::tempdir().unwrap();
        let config = with(config(&folder.path().join("disk"), 4), variant);
        let set = open(&[config], 1).unwrap();
        let block = u64::from(set.geometry(0, 0).block_bytes);
        let (_monitor, mut shards) = start(set, 4, 1);
        let octets: Vec<u8> = data(3 * block as usize, 9).to_vec();
        let end = 4 * MIB;
        let chunks = vec![WriteChunk::Raw(octets.clone())];
        let written = shards[0].one(0, write(end - 3 * block, 1, chunks, block as u32));
        assert!(matches!(written, DiskOutcome::Written));
        let mut raw = |offset, len: u64| match shards[0]
            .one(0, DiskOpKind::ReadRaw { offset, len: len as u32 })
        {
            DiskOutcome::Raw(octets) => octets,
            other => panic!("{other:?}"),
        };
        assert!(raw(end - 3 * block, 3 * block) == octets, "{variant:?}");
        assert!(raw(end - block, 4 * block) == octets[2 * block as usize..], "{variant:?}");
        assert!(raw(end, block).is_empty(), "{variant:?}");
        assert!(raw(end - 600 * 1024, 600 * 1024).ends_with(&octets), "{variant:?}");
    }
}

/// A model of one shard's share: the contents of each slot of 16 KiB.
struct Model {
    slots: Vec<Option<(u64, usize)>>,
    busy: Vec<bool>,
    asked: HashMap<DiskOpId, (usize, bool)>,
    rng: Rng,
}

const SLOT: u64 = 16 << 10;

impl Model {
    fn step(&mut self, shard: &mut Shard, geometry: &DiskGeometry, seed: u64) {
        let slot = self.rng.below(self.slots.len() as u32) as usize;
        if self.busy[slot] {
            return;
        }
        let region = slot as u64 / (geometry.region_bytes / SLOT);
        let within = slot as u64 % (geometry.region_bytes / SLOT) * SLOT;
        let disk_region = u64::from(geometry.first) + region * u64::from(geometry.stride);
        let offset = geometry.data_offset + disk_region * geometry.region_bytes + within;
        let is_write = self.slots[slot].is_none() || self.rng.below(3) == 0;
        let kind = if is_write {
            let len = 1 + self.rng.below(SLOT as u32 - 64) as usize;
            self.slots[slot] = Some((seed, len));
            write(offset, slot as u32, vec![record(data(len, seed))], geometry.block_bytes)
        } else {
            let (_, len) = self.slots[slot].unwrap();
            let len = weir_store::disk::record::size(len, geometry.block_bytes);
            read(offset, len, slot as u32)
        };
        let id = shard.submit(0, kind);
        self.busy[slot] = true;
        self.asked.insert(id, (slot, is_write));
    }

    fn check(&mut self, outcomes: Vec<(DiskOpId, DiskOutcome)>) {
        for (id, outcome) in outcomes {
            let (slot, is_write) = self.asked.remove(&id).expect("asked once, answered once");
            self.busy[slot] = false;
            match outcome {
                DiskOutcome::Written => assert!(is_write),
                DiskOutcome::Record { packet, .. } => {
                    let (seed, len) = self.slots[slot].unwrap();
                    assert!(packet == data(len, seed), "wrong bytes in slot {slot}");
                }
                other => panic!("slot {slot}: {other:?}"),
            }
        }
    }
}

fn agrees_with_model(config: DiskFileConfig, operations: u64) {
    const DEPTH: usize = 16;
    let set = open(&[config], 2).unwrap();
    let geometries = [set.geometry(0, 0), set.geometry(0, 1)];
    let (_monitor, shards) = start(set, DEPTH as u32, 2);
    std::thread::scope(|scope| {
        for ((mut shard, geometry), number) in shards.into_iter().zip(&geometries).zip(1_u64..) {
            scope.spawn(move || {
                let slots = geometry.regions as usize * (geometry.region_bytes / SLOT) as usize;
                let mut model = Model {
                    slots: vec![None; slots],
                    busy: vec![false; slots],
                    asked: HashMap::new(),
                    rng: Rng::from_seed(number),
                };
                for step in 0..operations {
                    model.step(&mut shard, geometry, number << 32 | step);
                    if model.rng.below(4) == 0 {
                        shard.ports.flush();
                    }
                    if model.asked.len() == DEPTH {
                        let outcomes = shard.wait(LONG);
                        assert!(!outcomes.is_empty(), "it hangs");
                        model.check(outcomes);
                    }
                }
                while !model.asked.is_empty() {
                    let outcomes = shard.wait(LONG);
                    assert!(!outcomes.is_empty(), "it hangs");
                    model.check(outcomes);
                }
                assert_eq!(shard.ports.under_way(), 0);
                assert!(shard.ports.close(LONG));
            });
        }
    });
}

#[test]
fn random_operations_equal_a_model() {
    for variant in variants() {
        let folder = tempfile::tempdir().unwrap();
        agrees_with_model(with(config(&folder.path().join("disk"), 8), variant), 2000);
    }
}

#[test]
fn short_and_interrupted_calls_are_no_errors() {
    for direct in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(&folder.path().join("disk"), 8);
        config.direct = direct;
        config.faults = Some(Faults {
            seed: 4,
            short_ppm: 300_000,
            interrupts_ppm: 200_000,
            ..Faults::default()
        });
        agrees_with_model(config, 1500);
    }
}

#[test]
fn faults_are_reported_and_not_served() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(&folder.path().join("disk"), 8);
    config.faults = Some(Faults {
        seed: 11,
        read_errors_ppm: 100_000,
        write_errors_ppm: 100_000,
        no_space_ppm: 100_000,
        flips_ppm: 200_000,
        torn_writes_ppm: 200_000,
        stalls_ppm: 50_000,
        stall: Duration::from_millis(1),
        ..Faults::default()
    });
    let set = open(&[config], 1).unwrap();
    let geometry = set.geometry(0, 0);
    let (monitor, mut shards) = start(set, 1, 1);
    let mut seen = [0; 6];
    for turn in 0..600_u64 {
        let packet = data(12_000, turn);
        let chunk = record(packet.clone());
        let len = chunk.size(geometry.block_bytes);
        let offset = geometry.data_offset + turn % 50 * SLOT;
        let sequence = turn as u32;
        match shards[0].one(0, write(offset, sequence, vec![chunk], geometry.block_bytes)) {
            DiskOutcome::Written => seen[0] += 1,
            DiskOutcome::Failed(DiskFailure::NoSpace) => seen[1] += 1,
            DiskOutcome::Failed(DiskFailure::Io) => seen[2] += 1,
            other => panic!("{other:?}"),
        }
        match shards[0].one(0, read(offset, len, sequence)) {
            DiskOutcome::Record { packet: found, .. } => {
                assert!(found == packet);
                seen[3] += 1;
            }
            DiskOutcome::Damaged(_) => seen[4] += 1,
            DiskOutcome::Failed(DiskFailure::Io) => seen[5] += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(seen.iter().all(|&count| count > 20), "{seen:?}");
    let counters = monitor.counters(0);
    assert_eq!(counters.failures, seen[1] + seen[2] + seen[5]);
    assert_eq!(counters.damaged, seen[4]);
}

#[test]
fn system_errors_fail_one_operation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    open(&[config(&path, 4)], 1).unwrap();
    for variant in variants() {
        let set = open(&[with(config(&path, 4), variant)], 1).unwrap();
        let at = set.geometry(0, 0).data_offset;
        let (_monitor, mut shards) = start(set, 4, 1);
        let huge = 1 << 62;
        let chunks = vec![WriteChunk::Raw(vec![1; 4096])];
        let outcome = shards[0].one(0, write(huge, 1, chunks, 4096));
        assert!(matches!(outcome, DiskOutcome::Failed(_)), "{variant:?}: {outcome:?}");
        let raw = shards[0].one(0, DiskOpKind::ReadRaw { offset: at, len: 4096 });
        assert!(matches!(raw, DiskOutcome::Raw(octets) if octets.len() == 4096), "{variant:?}");
    }
}

#[test]
fn a_stalled_disk_answers_later_and_others_go_on() {
    for variant in variants() {
        let folder = tempfile::tempdir().unwrap();
        let configs = ["a", "b"].map(|name| with(config(&folder.path().join(name), 4), variant));
        let set = open(&configs, 1).unwrap();
        let at = set.geometry(0, 0).data_offset;
        let (monitor, mut shards) = start(set, 4, 1);
        let shard = &mut shards[0];
        let raw = || DiskOpKind::ReadRaw { offset: at, len: 4096 };
        monitor.stall_handle(0).stall_for(Duration::from_secs(3600));
        let stalled: Vec<_> = (0..4).map(|_| shard.submit(0, raw())).collect();
        for _ in 0..20 {
            assert!(matches!(shard.one(1, raw()), DiskOutcome::Raw(_)));
        }
        assert_eq!(shard.ports.under_way(), 4);
        monitor.stall_handle(0).stall_for(Duration::ZERO);
        let mut answered = Vec::new();
        while answered.len() < 4 {
            let outcomes = shard.wait(LONG);
            assert!(!outcomes.is_empty(), "it hangs");
            answered.extend(outcomes.into_iter().map(|(id, _)| id));
        }
        answered.sort();
        assert_eq!(answered, stalled);
        let begin = Instant::now();
        monitor.stall_handle(0).stall_for(Duration::from_millis(50));
        assert!(matches!(shard.one(0, raw()), DiskOutcome::Raw(_)));
        assert!(begin.elapsed() >= Duration::from_millis(50));
    }
}

#[test]
fn a_paced_disk_is_never_faster_than_its_pace() {
    for variant in variants() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = with(config(&folder.path().join("disk"), 4), variant);
        config.pace = Some(Pace { ops_per_s: 2000.0, parallelism: 2, service: Service::Constant });
        let set = open(&[config], 1).unwrap();
        let geometry = set.geometry(0, 0);
        let at = geometry.data_offset;
        let (_monitor, mut shards) = start(set, 8, 1);
        let begin = Instant::now();
        let mut done = 0;
        while done < 200 {
            while shards[0].ports.under_way() < 8 {
                shards[0].submit(0, DiskOpKind::ReadRaw { offset: at, len: 4096 });
            }
            done += shards[0].wait(LONG).len();
        }
        assert!(begin.elapsed() >= Duration::from_millis(100), "{:?}", begin.elapsed());
        // A write of ten records takes as long as ten operations of one server.
        while shards[0].ports.under_way() > 0 {
            shards[0].wait(LONG);
        }
        let begin = Instant::now();
        let chunks = (0..10).map(|seed| record(data(100, seed))).collect();
        let outcome = shards[0].one(0, write(at, 1, chunks, geometry.block_bytes));
        assert!(matches!(outcome, DiskOutcome::Written));
        assert!(begin.elapsed() >= Duration::from_millis(10), "{:?}", begin.elapsed());
    }
}

#[test]
fn close_ends_a_deliberate_stall() {
    for variant in variants() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let set = open(&[with(config(&path, 4), variant)], 1).unwrap();
        let at = set.geometry(0, 0).data_offset;
        let (monitor, mut shards) = start(set, 4, 1);
        monitor.stall_handle(0).stall_for(Duration::from_secs(3600));
        for _ in 0..3 {
            shards[0].submit(0, DiskOpKind::ReadRaw { offset: at, len: 4096 });
        }
        assert!(shards.remove(0).ports.close(LONG), "what is stalled on purpose has been read");
        drop(monitor);
        // The lock is free immediately.
        open(&[config(&path, 4)], 1).unwrap();
    }
}

#[test]
fn a_device_that_hangs_is_left_to_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let mut config = config(&path, 4);
    config.engine = Engine::Threads(2);
    config.faults =
        Some(Faults { stalls_ppm: 1_000_000, stall: Duration::from_secs(20), ..Faults::default() });
    let set = open(&[config.clone()], 1).unwrap();
    let at = set.geometry(0, 0).data_offset;
    let (monitor, mut shards) = start(set, 8, 1);
    let begin = Instant::now();
    for _ in 0..8 {
        shards[0].submit(0, DiskOpKind::ReadRaw { offset: at, len: 4096 });
    }
    shards[0].ports.flush();
    assert!(!shards.remove(0).ports.close(Duration::from_millis(100)));
    drop(monitor);
    assert!(begin.elapsed() < Duration::from_secs(19), "it waited for the device");
    // The hung device may still read and write.
    assert!(matches!(open(&[config], 1), Err(OpenError::Locked { .. })));
}

#[test]
fn hung_disk_does_not_delay_close() {
    for (engine, direct) in variants() {
        let folder = tempfile::tempdir().unwrap();
        let mut configs = ["a", "b"].map(|name| config(&folder.path().join(name), 4));
        configs[0].engine = Engine::Threads(1);
        configs[0].faults = Some(Faults {
            stalls_ppm: 1_000_000,
            stall: Duration::from_secs(20),
            ..Faults::default()
        });
        (configs[1].engine, configs[1].direct) = (engine, direct);
        let set = open(&configs, 1).unwrap();
        let at = set.geometry(0, 0).data_offset;
        let (monitor, mut shards) = start(set, 4, 1);
        for disk in [0, 1] {
            shards[0].submit(disk, DiskOpKind::ReadRaw { offset: at, len: 4096 });
        }
        shards[0].ports.flush();
        // The first disk uses up all of the time. The second one has certainly finished by then.
        assert!(!shards.remove(0).ports.close(Duration::from_millis(500)));
        assert_eq!((monitor.has_unfinished_io(0), monitor.has_unfinished_io(1)), (true, false));
        assert_eq!(monitor.counters(1).reads, 1);
    }
}

#[test]
fn dead_thread_fails_only_its_disk() {
    let folder = tempfile::tempdir().unwrap();
    let mut configs = ["a", "b"].map(|name| config(&folder.path().join(name), 8));
    configs[0].engine = Engine::Threads(3);
    configs[0].faults = Some(Faults { panic_at: Some(10), ..Faults::default() });
    let set = open(&configs, 2).unwrap();
    let at = set.geometry(0, 0).data_offset;
    let (monitor, mut shards) = start(set, 8, 2);
    let raw = || DiskOpKind::ReadRaw { offset: at, len: 4096 };
    let (mut good, mut bad) = (0, 0);
    let mut count = |outcomes: Vec<(DiskOpId, DiskOutcome)>| {
        assert!(!outcomes.is_empty(), "it hangs");
        for (_, outcome) in outcomes {
            match outcome {
                DiskOutcome::Raw(_) => good += 1,
                DiskOutcome::Failed(DiskFailure::Io) => bad += 1,
                other => panic!("{other:?}"),
            }
        }
    };
    // The second shard waits in the kernel for answers that only the death of the disk releases.
    monitor.stall_handle(0).stall_for(Duration::from_secs(3600));
    for _ in 0..4 {
        shards[1].submit(0, raw());
    }
    let mut second = shards.remove(1);
    let waiting = std::thread::spawn(move || {
        let mut outcomes = Vec::new();
        while second.ports.under_way() > 0 {
            let some = second.wait(LONG);
            assert!(!some.is_empty(), "it hangs");
            outcomes.extend(some);
        }
        outcomes
    });
    let first = &mut shards[0];
    for _ in 0..10 {
        for _ in 0..8 {
            first.submit(0, raw());
        }
        while first.ports.under_way() > 0 {
            count(first.wait(LONG));
        }
    }
    count(waiting.join().unwrap());
    assert!(monitor.death(0).is_some_and(|cause| cause.contains("panicked")));
    assert!(monitor.death(1).is_none());
    // Data that the disk had read before its death is returned with it.
    assert!(bad >= 72 && good + bad == 84, "{good} {bad}");
    assert!(matches!(first.one(1, raw()), DiskOutcome::Raw(_)));
}

#[test]
#[should_panic(expected = "the store exceeded its depth")]
fn exceeding_depth_panics() {
    let folder = tempfile::tempdir().unwrap();
    let set = open(&[config(&folder.path().join("disk"), 4)], 1).unwrap();
    let (_monitor, mut shards) = start(set, 2, 1);
    for _ in 0..3 {
        shards[0].submit(0, DiskOpKind::ReadRaw { offset: 8192, len: 4096 });
    }
}
