//! Several readers read files larger than memory again and again, over disks of any speed.
//! Everything stored is still stored, or its loss was counted.

use super::super::*;
use super::disks::*;
use crate::{EvictionPolicy, ReadData, StoreConfig};
use std::vec;
use std::vec::Vec;
use weir_base::{NS_PER_MS, Rng};
use weir_wire::{DataView, Name};

const CONTENT_BYTES: usize = 1_400;
const POLICIES: [EvictionPolicy; 5] = [
    EvictionPolicy::Lru,
    EvictionPolicy::Fifo,
    EvictionPolicy::Lfu,
    EvictionPolicy::S3Fifo,
    EvictionPolicy::Parts,
];
const OFFERS: [OfferAt; 3] = [OfferAt::Early, OfferAt::Eviction, OfferAt::Arrival];

#[derive(Clone, Debug)]
struct Workload {
    policy: EvictionPolicy,
    offer_at: OfferAt,
    segments: u64,
    readers: u64,
    readings: u64,
    /// Of a thousand Interests whose Data is on a disk, how many are forwarded instead.
    bypassed_permille: u32,
    /// Disk operations carried out for a thousand Interests.
    disk_permille: u32,
    index_bytes_max: u64,
    write_backlog_bytes_max: u64,
    write_failures_permille: u32,
}

struct Readers {
    fixture: Fixture,
    rng: Rng,
    workload: Workload,
    names: Vec<Name>,
}

fn content(number: u64) -> Vec<u8> {
    let mut content = vec![number as u8; CONTENT_BYTES];
    content[..8].copy_from_slice(&number.to_le_bytes());
    content
}

impl Readers {
    /// A disk of three times the file, and memory for about 330 segments.
    fn new(workload: Workload, seed: u64) -> Self {
        let file_bytes = workload.segments * 2_048;
        let regions = (3 * file_bytes).div_ceil(64 << 10).max(16) as u32;
        let config = DiskTierConfig {
            offer_at: workload.offer_at,
            index_bytes_max: workload.index_bytes_max,
            write_backlog_bytes_max: workload.write_backlog_bytes_max,
            write_bytes_max: 16 << 10,
            depth: 8,
            ..tier_config(vec![geometry(regions, 64 << 10, 512)])
        };
        let memory = StoreConfig {
            capacity_bytes: 600_000,
            policy: workload.policy,
            ..StoreConfig::default()
        };
        let mut fixture = Fixture::with(config, memory);
        fixture.settle();
        let names = (0..workload.segments).map(|number| segment("/file/v=1", number)).collect();
        Self { fixture, rng: Rng::from_seed(seed), workload, names }
    }

    /// Carries out a random one of the disk operations in progress.
    fn perform_any(&mut self) {
        self.fixture.take();
        if self.fixture.ops.is_empty() {
            return;
        }
        let at = self.rng.below(self.fixture.ops.len() as u32) as usize;
        let op = self.fixture.ops.remove(at).unwrap();
        let fails = self.rng.below(1_000) < self.workload.write_failures_permille;
        if fails && matches!(op.kind, DiskOpKind::Write { .. }) {
            let failed = DiskOutcome::Failed(DiskFailure::Io);
            self.fixture.store.on_disk_done(self.fixture.now, op.id, failed);
        } else {
            self.fixture.perform(op);
        }
        self.take_reads();
    }

    fn take_reads(&mut self) {
        while let Some(finished) = self.fixture.store.next_finished() {
            let ReadOutcome::Data { packet, fresh_until } = finished.outcome else { continue };
            let data = DataView::decode(&packet).unwrap();
            let number = data.name.last().unwrap().as_segment().unwrap();
            assert_eq!(data.content, content(number), "a wrong byte leaves the store");
            let fill = |path: &mut Vec<u64>| prefixes(data.name, path);
            let (now, pool) = (self.fixture.now, &mut self.fixture.pool);
            let hashes = hashes(data.name);
            let read = ReadData { packet: &packet, data: &data, hashes, fresh_until };
            self.fixture.store.promote(now, read, fill, pool);
        }
    }

    /// One Interest, and its consequences.
    fn ask(&mut self, number: u64) {
        let name = self.names[number as usize].clone();
        match self.fixture.look(&name, false, false) {
            Found::Memory(_) => {}
            Found::Disk(found) => {
                let is_bypassed = self.rng.below(1_000) < self.workload.bypassed_permille;
                if is_bypassed || self.fixture.store.begin_read(&found).is_err() {
                    self.fixture.put_content(&name, &content(number));
                }
            }
            Found::Nothing => {
                self.fixture.put_content(&name, &content(number));
            }
        }
        self.fixture.now = self.fixture.now.plus_ns(NS_PER_MS / 100);
        self.fixture.store.handle_timeout(self.fixture.now);
        self.fixture.take();
        let (whole, rest) =
            (self.workload.disk_permille / 1_000, self.workload.disk_permille % 1_000);
        let more = u32::from(self.rng.below(1_000) < rest);
        (0..whole + more).for_each(|_| self.perform_any());
    }

    fn read_all(&mut self) {
        let Workload { segments, readers, readings, .. } = self.workload;
        // Each reader starts a quarter of the file after the one before.
        let lag = segments / 4;
        for step in 0..segments * readings + lag * (readers - 1) {
            for reader in 0..readers {
                let Some(at) = step.checked_sub(lag * reader) else { continue };
                if at < segments * readings {
                    self.ask(at % segments);
                }
            }
        }
        self.settle();
    }

    fn settle(&mut self) {
        for _ in 0..1_000_000 {
            self.fixture.take();
            if !self.fixture.ops.is_empty() {
                self.perform_any();
            } else if let Some(at) = self.fixture.store.next_wakeup() {
                self.fixture.now = self.fixture.now.max(at);
                self.fixture.store.handle_timeout(self.fixture.now);
            } else {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    fn missing(&mut self) -> u64 {
        let names = std::mem::take(&mut self.names);
        let is_held =
            |name: &&Name| !matches!(self.fixture.look(name, false, false), Found::Nothing);
        let held = names.iter().filter(is_held).count();
        self.names = names;
        self.workload.segments - held as u64
    }

    /// Data that the counters report as lost or not stored.
    fn counted(&self) -> u64 {
        let disk = self.fixture.stats();
        disk.passed_by
            + disk.no_room
            + disk.not_admitted
            + disk.evictions
            + disk.damaged
            + disk.lost
            + disk.superseded
    }

    fn stop(&mut self) {
        for _ in 0..100_000 {
            if !self.fixture.store.flush(self.fixture.now) {
                self.fixture.ops.clear();
                self.fixture.restart();
                self.settle();
                return;
            }
            self.fixture.tick();
            self.perform_any();
        }
        panic!("it does not stop");
    }
}

fn usual() -> Workload {
    Workload {
        policy: EvictionPolicy::Parts,
        offer_at: OfferAt::Early,
        segments: 1_300,
        readers: 1,
        readings: 1,
        bypassed_permille: 0,
        disk_permille: 1_000,
        index_bytes_max: u64::MAX,
        write_backlog_bytes_max: 300_000,
        write_failures_permille: 0,
    }
}

#[test]
fn keeps_all_of_a_file_of_four_times_memory() {
    for policy in POLICIES {
        for offer_at in OFFERS {
            for (readers, readings) in [(1, 1), (1, 2), (1, 5), (4, 1), (4, 2)] {
                let workload = Workload { policy, offer_at, readers, readings, ..usual() };
                let mut readers = Readers::new(workload.clone(), 1);
                readers.read_all();
                assert_eq!(readers.missing(), 0, "{workload:?} {:?}", readers.fixture.stats());
                readers.fixture.store.check_disk();
                readers.stop();
                assert_eq!(
                    readers.missing(),
                    0,
                    "after a stop: {workload:?} {:?}",
                    readers.fixture.stats()
                );
            }
        }
    }
}

#[test]
fn keeps_repeated_data_past_a_busy_disk() {
    for policy in POLICIES {
        for bypassed_permille in [300, 1_000] {
            // Space for fewer fingerprints than there are segments.
            let index_bytes_max = 500_000;
            let workload =
                Workload { policy, readings: 3, bypassed_permille, index_bytes_max, ..usual() };
            let mut readers = Readers::new(workload.clone(), 2);
            readers.read_all();
            assert_eq!(readers.missing(), 0, "{workload:?} {:?}", readers.fixture.stats());
            readers.stop();
            assert_eq!(
                readers.missing(),
                0,
                "after a stop: {workload:?} {:?}",
                readers.fixture.stats()
            );
        }
    }
}

#[test]
fn counts_every_loss() {
    let mut lost = 0;
    for seed in 0..60 {
        let mut rng = Rng::from_seed(seed);
        let workload = Workload {
            policy: POLICIES[rng.below(5) as usize],
            offer_at: OFFERS[rng.below(3) as usize],
            segments: 400 + u64::from(rng.below(1_500)),
            readers: 1 + u64::from(rng.below(4)),
            readings: 1 + u64::from(rng.below(3)),
            bypassed_permille: [0, 100, 500][rng.below(3) as usize],
            disk_permille: [20, 50, 200, 3_000][rng.below(4) as usize],
            index_bytes_max: [500_000, u64::MAX][rng.below(2) as usize],
            // The second value exceeds memory.
            write_backlog_bytes_max: [300_000, 4_000_000][rng.below(2) as usize]
                - u64::from(rng.below(280_000)),
            write_failures_permille: [0, 0, 20, 300][rng.below(4) as usize],
        };
        let mut readers = Readers::new(workload.clone(), seed);
        readers.read_all();
        let (missing, counted) = (readers.missing(), readers.counted());
        assert!(missing <= counted, "seed {seed}: {missing} of {counted}: {workload:?}");
        lost += missing;
        readers.fixture.store.check_disk();
    }
    assert!(lost > 0, "the workloads lose something, or nothing was tested");
}
