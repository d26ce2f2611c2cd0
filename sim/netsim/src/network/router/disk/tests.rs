use super::*;
use std::collections::BTreeSet;
use weir_base::Packet;
use weir_netem::ServiceTime;
use weir_options::DisksOptions;
use weir_store::disk::WriteChunk;
use weir_wire::Data;

const BLOCK: u32 = 512;

fn plan() -> DiskPlan {
    DiskPlan {
        bytes: 1 << 20,
        region_bytes: 1 << 16,
        block_bytes: BLOCK,
        options: DisksOptions { depth: 8, ..DisksOptions::default() },
        device: DiskConfig {
            read: ServiceTime::Constant { ns: 100 },
            write: ServiceTime::Constant { ns: 1_000 },
            ..DiskConfig::default()
        },
        ..DiskPlan::default()
    }
}

fn at(ns: u64) -> Instant {
    Instant::from_ns(ns)
}

fn packet(number: u8) -> Packet {
    let name = format!("/x/{number}").parse().unwrap();
    Packet::from(Data::new(name).content([number; 1_200]).encode_with_digest())
}

/// Three records of 1,536 bytes.
fn write(id: u64) -> DiskOp {
    let parts =
        (1..=3).map(|number| WriteChunk::Data { packet: packet(number), fresh_until_unix_ms: 0 });
    let kind = DiskOpKind::Write {
        offset: DATA_OFFSET,
        len: 3 * 1_536,
        sequence: 1,
        chunks: parts.collect(),
    };
    DiskOp { id: DiskOpId(id), disk: 0, kind }
}

fn read(id: u64, record: u64) -> DiskOp {
    let offset = DATA_OFFSET + record * 1_536;
    DiskOp {
        id: DiskOpId(id),
        disk: 0,
        kind: DiskOpKind::ReadRecord { offset, len: 1_536, sequence: 1 },
    }
}

fn finish(disks: &mut Disks, now: Instant) -> Vec<(u64, DiskOutcome)> {
    let mut producers = ProducerSet::default();
    let mut done = Vec::new();
    while let Some(it) = disks.complete(now, &mut producers) {
        done.push((it.id.0, it.outcome));
    }
    done
}

fn is_record(outcome: &DiskOutcome, number: u8) -> bool {
    matches!(outcome, DiskOutcome::Record { packet: found, .. } if **found == *packet(number))
}

#[test]
fn operations_end_on_time_with_written_data() {
    let mut disks = Disks::new(&plan(), 1, 1);
    disks.submit(at(0), 0, &mut vec![write(1), read(2, 0), read(3, 2)]);
    assert_eq!(disks.next_completion(), Some(at(1_000)));
    assert!(finish(&mut disks, at(999)).is_empty());
    let done = finish(&mut disks, at(1_100));
    assert!(matches!(done[0], (1, DiskOutcome::Written)), "{done:?}");
    assert!(done[1].0 == 2 && is_record(&done[1].1, 1), "{done:?}");
    let done = finish(&mut disks, at(1_200));
    assert!(done[0].0 == 3 && is_record(&done[0].1, 3), "{done:?}");
    assert_eq!(disks.under_way(), 0);
    assert_eq!(disks.take_failure(), Ok(()));
    // Nine operations are one more than the depth.
    disks.submit(at(1_200), 0, &mut (0..9).map(|id| read(id, 0)).collect());
    assert!(disks.take_failure().unwrap_err().contains("9 operations"));
}

/// A write that a crash interrupts leaves all, none or some of its blocks, and never other bytes.
#[test]
fn crash_tears_active_writes() {
    let mut producers = ProducerSet::default();
    let mut seen = BTreeSet::new();
    for seed in 0..64 {
        let mut disks = Disks::new(&plan(), 1, seed);
        disks.submit(at(0), 0, &mut vec![write(1), read(2, 0)]);
        disks.crash(&mut producers);
        assert_eq!((disks.under_way(), disks.next_completion()), (0, None));
        assert!(disks.acknowledged(10, 0, &mut producers).is_empty());
        disks.submit(at(5), 0, &mut (0..3).map(|record| read(record, record)).collect());
        let whole: Vec<bool> = finish(&mut disks, at(10_000))
            .into_iter()
            .map(|(id, outcome)| match outcome {
                DiskOutcome::Damaged(_) => false,
                outcome => is_record(&outcome, id as u8 + 1) || panic!("{outcome:?}"),
            })
            .collect();
        seen.insert(whole);
    }
    assert!(seen.contains(&vec![true; 3]) && seen.contains(&vec![false; 3]), "{seen:?}");
    assert!(seen.contains(&vec![true, false, false]), "{seen:?}");
    assert!(seen.contains(&vec![false, false, true]), "{seen:?}");
}

#[test]
fn faults_have_their_effects() {
    let mut producers = ProducerSet::default();
    let mut disks = Disks::new(&plan(), 1, 3);
    disks.execute_at_once(write(0), &mut producers);
    assert_eq!(disks.acknowledged(10, 0, &mut producers).len(), 3);
    let try_once = |disks: &mut Disks, op: DiskOp, now: u64| {
        disks.submit(at(now), 0, &mut vec![op]);
        finish(disks, at(now + 5_000)).pop().map(|(_, outcome)| outcome).unwrap()
    };
    let errors = DiskFaults { errors: 1.0, ..DiskFaults::default() };
    disks.change_faults(0, errors, true);
    assert!(matches!(try_once(&mut disks, read(1, 0), 0), DiskOutcome::Failed(DiskFailure::Io)));
    disks.change_faults(0, errors, false);
    let full = DiskFaults { full: 1.0, ..DiskFaults::default() };
    disks.change_faults(0, full, true);
    let outcome = try_once(&mut disks, write(2), 10_000);
    assert!(matches!(outcome, DiskOutcome::Failed(DiskFailure::NoSpace)), "{outcome:?}");
    disks.change_faults(0, full, false);
    disks.execute_at_once(write(3), &mut producers);
    let flipped = DiskFaults { flipped: 1.0, ..DiskFaults::default() };
    disks.change_faults(0, flipped, true);
    let mut damaged = 0;
    for number in 0..50 {
        match try_once(&mut disks, read(number, 0), 20_000 + 10_000 * number) {
            DiskOutcome::Damaged(_) => damaged += 1,
            // The flipped bits were in the padding.
            outcome => assert!(is_record(&outcome, 1), "{outcome:?}"),
        }
    }
    assert!(damaged > 30, "{damaged}");
    disks.change_faults(0, flipped, false);
    assert!(is_record(&try_once(&mut disks, read(9, 0), 1_000_000), 1));
    disks.stall(at(2_000_000), None, at(3_000_000));
    disks.submit(at(2_000_000), 0, &mut vec![read(9, 0)]);
    assert_eq!(disks.next_completion(), Some(at(3_000_100)));
}

/// A write that is silently lost or torn is acknowledged like any other.
#[test]
fn silent_damage_is_silent() {
    let mut producers = ProducerSet::default();
    for (faults, expected) in [
        (DiskFaults { lost: 1.0, ..DiskFaults::default() }, BTreeSet::from([0])),
        (DiskFaults { torn: 1.0, ..DiskFaults::default() }, BTreeSet::from([0, 1, 2, 3])),
    ] {
        let mut seen = BTreeSet::new();
        for seed in 0..40 {
            let mut disks = Disks::new(&plan(), 1, seed);
            disks.change_faults(0, faults, true);
            let mut ops = vec![write(0)];
            disks.submit(at(0), 0, &mut ops);
            assert!(matches!(finish(&mut disks, at(1_000))[0].1, DiskOutcome::Written));
            let whole = (0..3).filter(|&record| {
                let outcome = disks.execute_at_once(read(1, record), &mut producers);
                is_record(&outcome, record as u8 + 1)
            });
            seen.insert(whole.count());
        }
        assert_eq!(seen, expected);
    }
}

#[test]
fn shards_share_the_regions_of_a_disk() {
    let disks = Disks::new(&DiskPlan { disks: 3, ..plan() }, 3, 1);
    let tiers: Vec<DiskTierConfig> =
        (0..3).map(|shard| disks.tier(shard, HashKey::new([1, 2]))).collect();
    let regions: u32 = tiers.iter().map(|tier| tier.disks[0].regions).sum();
    assert_eq!(regions, 16);
    let mut all: Vec<u32> = tiers
        .iter()
        .flat_map(|tier| {
            let DiskGeometry { first, stride, regions, .. } = tier.disks[2];
            (0..regions).map(move |number| first + number * stride)
        })
        .collect();
    all.sort_unstable();
    assert_eq!(all, (0..16).collect::<Vec<_>>());
}
