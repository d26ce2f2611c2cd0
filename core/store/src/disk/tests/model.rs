//! The store against a model, with random steps and disks that fail in every way.

use super::super::*;
use super::disks::*;
use crate::{ReadData, StoreConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::string::String;
use std::vec::Vec;
use std::{format, vec};
use weir_base::{Instant, NS_PER_MS, Rng};
use weir_wire::{DataView, Name};

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Weather {
    /// They carry out operations correctly, in any order.
    Fair,
    /// Writes fail or are torn.
    Failing,
    Flipping,
    /// Reads return what lies elsewhere, or lay there earlier, or nothing.
    Lying,
}

/// Where a record was last written.
#[derive(Clone, Debug)]
struct Written {
    wire: Vec<u8>,
    disk: u8,
    begin: u64,
    end: u64,
    sequence: u32,
    is_acknowledged: bool,
}

/// What may be served under a name.
#[derive(Default)]
struct Known {
    /// The newest Data, unless it was erased.
    current: Option<Vec<u8>>,
    /// What a restart may still find, because its erasure was not logged in time.
    after_crash: BTreeSet<Vec<u8>>,
    /// Where it was last written, while nothing speaks against it.
    written: Option<Written>,
    /// Whether an erasure with a limit may have removed it since it arrived.
    may_be_erased: bool,
}

impl std::fmt::Display for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let current = self.current.as_ref().map(Vec::len);
        let after_crash: Vec<usize> = self.after_crash.iter().map(Vec::len).collect();
        let written = self.written.as_ref().map(|written| (written.disk, written.begin));
        write!(f, "current {current:?}, after a crash {after_crash:?}, written {written:?}")
    }
}

struct Model {
    fixture: Fixture,
    rng: Rng,
    weather: Weather,
    names: BTreeMap<String, Known>,
    /// All Data that ever arrived, by its bytes.
    all: BTreeMap<Vec<u8>, String>,
    /// The highest sequence number written, by disk and region offset.
    sequences: BTreeMap<(u8, u64), u32>,
    /// Reads in progress, and the Data that each may return.
    reading: BTreeMap<ReadId, BTreeSet<Vec<u8>>>,
    snapshots: Vec<Vec<Octets>>,
    has_lied_at_start: bool,
    counter: u32,
    served: u64,
}

impl Model {
    fn new(seed: u64, weather: Weather) -> Self {
        let mut rng = Rng::from_seed(seed);
        let block_bytes = if rng.below(4) == 0 { 4096 } else { 512 };
        let disks = 1 + rng.below(3);
        let mut disk = |_| {
            // Large regions, or enough of them that the oldest eighth has more than the oldest one.
            match rng.below(2) {
                0 => geometry(2 + rng.below(6), u64::from(12 + rng.below(20)) * 4096, block_bytes),
                _ => geometry(8 + rng.below(13), u64::from(5 + rng.below(4)) * 4096, block_bytes),
            }
        };
        let disks: Vec<_> = (0..disks).map(&mut disk).collect();
        let config = DiskTierConfig {
            filter: if rng.below(4) == 0 { FilterKind::Index } else { FilterKind::Bloom },
            offer_at: [OfferAt::Early, OfferAt::Eviction, OfferAt::Arrival][rng.below(3) as usize],
            contention: [Contention::Fifo, Contention::DataFirst, Contention::InterestFirst]
                [rng.below(3) as usize],
            depth: 1 + rng.below(8),
            reads_max: 1 + rng.below(20),
            write_backlog_bytes_max: 4096 * u64::from(1 + rng.below(60)),
            write_bytes_max: 512 << rng.below(7),
            write_delay_max_ns: u64::from(rng.below(3)) * NS_PER_MS,
            stalled_after_ns: 100 * NS_PER_MS,
            ..tier_config(disks)
        };
        let capacity_bytes = u64::from(rng.below(3)) * 12_000;
        let memory = StoreConfig { capacity_bytes, ..StoreConfig::default() };
        let mut names = BTreeMap::new();
        for object in 0..3 {
            for number in 0..12 {
                names.insert(format!("/o/{object}/seg={number}"), Known::default());
            }
        }
        for uri in ["/w", "/w/a", "/w/a/b", "/w/c/d/e", "/o/1", "/o/1/x"] {
            names.insert(uri.into(), Known::default());
        }
        Self {
            fixture: Fixture::with(config, memory),
            rng,
            weather,
            names,
            all: BTreeMap::new(),
            sequences: BTreeMap::new(),
            reading: BTreeMap::new(),
            snapshots: Vec::new(),
            has_lied_at_start: false,
            counter: 0,
            served: 0,
        }
    }

    fn any_name(&mut self) -> String {
        let at = self.rng.below(self.names.len() as u32) as usize;
        self.names.keys().nth(at).unwrap().clone()
    }

    fn put(&mut self) {
        let uri = self.any_name();
        let known = self.names.get_mut(&uri).unwrap();
        let again = known.current.clone().filter(|wire| !wire.is_empty() && self.rng.below(3) == 0);
        let wire = again.unwrap_or_else(|| {
            self.counter += 1;
            let mut content = self.counter.to_le_bytes().to_vec();
            content.resize(4 + self.rng.below(3_000) as usize, self.counter as u8);
            wire(&name(&uri), 0, &content)
        });
        self.all.insert(wire.clone(), uri);
        if known.current.as_ref() != Some(&wire) {
            known.written = None;
        }
        known.after_crash.insert(wire.clone());
        known.current = Some(wire.clone());
        known.may_be_erased = false;
        self.fixture.put_wire(&wire);
    }

    /// Asserts that this Data may be served now for a name at or below `asked`.
    fn check_served(&mut self, requested: &Name, can_be_prefix: bool, wire: &[u8]) {
        self.served += 1;
        let uri = self.all.get(wire).expect("what is served has come once");
        let data = DataView::decode(wire).unwrap();
        assert!(data.name == requested.as_view() || can_be_prefix);
        assert!(requested.as_view().is_prefix_of(data.name));
        let known = &self.names[uri];
        let is_right = known.current.as_deref() == Some(wire)
            || known.current.is_none() && known.after_crash.contains(wire);
        assert!(is_right, "{uri} was replaced or erased: {known}");
    }

    fn ask(&mut self) {
        let uri = self.any_name();
        let mut requested = name(&uri);
        let can_be_prefix = self.rng.below(4) == 0;
        if can_be_prefix && requested.as_view().component_count() > 1 && self.rng.below(2) == 0 {
            requested.pop();
        }
        match self.fixture.look(&requested, can_be_prefix, false) {
            Found::Memory(hit) => self.check_served(&requested, can_be_prefix, &hit.packet),
            Found::Disk(found) => {
                if let Ok(read) = self.fixture.store.begin_read(&found) {
                    self.reading.entry(read).or_default();
                }
            }
            Found::Nothing => {
                let is_required = |known: &Known| self.is_required(known);
                let mut below = self.names.iter().filter(|(other, _)| {
                    let other = name(other);
                    other == requested
                        || can_be_prefix && requested.as_view().is_prefix_of(other.as_view())
                });
                let lost = below.find(|(_, known)| is_required(known));
                assert!(lost.is_none(), "{} is lost", lost.unwrap().0);
            }
        }
        self.note_what_reads_may_give();
    }

    /// Whether this Data must be found.
    fn is_required(&self, known: &Known) -> bool {
        let Some(written) = &known.written else { return false };
        // A region is reused before the disk learns of it.
        let (_, region) = self.region_of(written.disk, written.begin);
        let is_there = self.sequence_at(written.disk, written.begin) == written.sequence
            && self.fixture.store.region_sequence(written.disk, region) <= written.sequence;
        let is_over = !self.fixture.stats().is_recovering();
        written.is_acknowledged
            && !self.has_lied_at_start
            && is_there
            && is_over
            && known.current.as_ref().is_none_or(|current| *current == written.wire)
    }

    fn region_of(&self, disk: u8, offset: u64) -> (u8, u64) {
        let geometry = &self.fixture.config.disks[usize::from(disk)];
        (disk, (offset - geometry.data_offset) / geometry.region_bytes)
    }

    fn sequence_at(&self, disk: u8, offset: u64) -> u32 {
        self.sequences.get(&self.region_of(disk, offset)).copied().unwrap_or(0)
    }

    /// A read may return what was valid at any time while it was in progress.
    fn note_what_reads_may_give(&mut self) {
        for may_give in self.reading.values_mut() {
            for known in self.names.values() {
                may_give.extend(known.current.clone());
                if known.current.is_none() {
                    may_give.extend(known.after_crash.iter().cloned());
                }
            }
        }
    }

    fn drain(&mut self) {
        while let Some(finished) = self.fixture.store.next_finished() {
            let may_give = self.reading.get(&finished.read).cloned();
            let ReadOutcome::Data { packet, fresh_until: until } = finished.outcome else {
                continue;
            };
            let may_give = may_give.expect("a read that was never begun");
            self.served += 1;
            let uri = &self.all[&packet[..]];
            // If a disk hides at a start how far a region was written, the log continues at the
            // wrong position. Older records of the same use of the region then pass for valid ones.
            // Only the name reveals it, which a router compares.
            if self.has_lied_at_start {
                continue;
            }
            assert!(
                may_give.contains(&packet[..]),
                "read of {uri}, which is not right any more: {}",
                self.names[uri]
            );
            if self.rng.below(2) == 0 {
                let data = DataView::decode(&packet).unwrap();
                let fill = |path: &mut Vec<u64>| prefixes(data.name, path);
                let (now, pool) = (self.fixture.now, &mut self.fixture.pool);
                let hashes = hashes(data.name);
                let read = ReadData { packet: &packet, data: &data, hashes, fresh_until: until };
                self.fixture.store.promote(now, read, fill, pool);
            }
        }
    }

    fn erase(&mut self) {
        let uri = self.any_name();
        let mut prefix = name(&uri);
        for _ in 0..self.rng.below(3) {
            prefix.pop();
        }
        let is_all = self.rng.below(2) == 0;
        let limit = if is_all { 1_000 } else { self.rng.below(4) as usize };
        let erased = self.fixture.store.erase(prefix.as_view(), KEY.hash(prefix.value()), limit);
        assert!(erased <= limit);
        if is_all {
            for uri in
                self.names.keys().filter(|uri| prefix.as_view().is_prefix_of(name(uri).as_view()))
            {
                let is_gone = matches!(self.fixture.look(&name(uri), false, false), Found::Nothing);
                assert!(
                    is_gone,
                    "{uri} is still there after {prefix} was erased: {erased} {:?}",
                    self.fixture.stats()
                );
            }
        }
        for (uri, known) in &mut self.names {
            if prefix.as_view().is_prefix_of(name(uri).as_view()) {
                known.written = None;
                known.may_be_erased = true;
                if is_all {
                    // A crash before the erasure is on disk brings the Data back. Until then,
                    // nothing does.
                    known.current = Some(Vec::new());
                }
            }
        }
    }

    fn perform_any(&mut self) {
        self.fixture.take();
        if self.fixture.ops.is_empty() {
            return;
        }
        let at = self.rng.below(self.fixture.ops.len() as u32) as usize;
        let op = self.fixture.ops.remove(at).unwrap();
        let outcome = match laid_out(&self.fixture.config, &op) {
            Some((offset, octets)) => self.write(&op, offset, &octets),
            None => self.read(&op),
        };
        self.fixture.store.on_disk_done(self.fixture.now, op.id, outcome);
        self.drain();
    }

    fn write(&mut self, op: &DiskOp, offset: u64, octets: &[u8]) -> DiskOutcome {
        let fails = self.weather == Weather::Failing && self.rng.below(8) == 0;
        self.note_write(op, fails);
        if fails {
            self.tear(op.disk, offset, octets);
            let failures = [DiskFailure::NoSpace, DiskFailure::ReadOnly, DiskFailure::Io];
            return DiskOutcome::Failed(failures[self.rng.below(3) as usize]);
        }
        self.fixture.disks[usize::from(op.disk)].write(offset, octets);
        DiskOutcome::Written
    }

    /// Any subset of a write's blocks reaches the disk.
    fn tear(&mut self, disk: u8, offset: u64, octets: &[u8]) {
        for (at, block) in octets.chunks(512).enumerate() {
            if self.rng.below(2) == 0 {
                self.fixture.disks[usize::from(disk)].write(offset + at as u64 * 512, block);
            }
        }
    }

    fn note_write(&mut self, op: &DiskOp, fails: bool) {
        let DiskOpKind::Write { offset, sequence, chunks, .. } = &op.kind else { return };
        let region = self.region_of(op.disk, *offset);
        let highest = self.sequences.entry(region).or_default();
        *highest = (*highest).max(*sequence);
        let block_bytes = self.fixture.config.disks[usize::from(op.disk)].block_bytes;
        let mut begin = *offset;
        for chunk in chunks {
            let end = begin + chunk.size(block_bytes);
            if let WriteChunk::Data { packet, .. } = chunk {
                let known = self.names.get_mut(&self.all[&packet[..]]).unwrap();
                known.after_crash.insert(packet.to_vec());
                let data = DataView::decode(packet).unwrap();
                // The same Data may have been appended, erased and appended again.
                let address = self.fixture.store.offset_of(data.name, hashes(data.name));
                let is_latest = address == Some((op.disk, begin));
                if is_latest && known.current.as_deref() == Some(&packet[..]) {
                    known.written = (!fails && !known.may_be_erased).then(|| Written {
                        wire: packet.to_vec(),
                        disk: op.disk,
                        begin,
                        end,
                        sequence: *sequence,
                        is_acknowledged: true,
                    });
                }
            }
            begin = end;
        }
    }

    fn read(&mut self, op: &DiskOp) -> DiskOutcome {
        let disk = usize::from(op.disk);
        if self.weather == Weather::Failing && self.rng.below(10) == 0 {
            self.forget_required(op);
            return DiskOutcome::Failed(DiskFailure::Io);
        }
        if self.weather != Weather::Lying || self.rng.below(4) != 0 {
            return read(&self.fixture.disks[disk], &op.kind);
        }
        // Data that a disk denies cannot be required. After a disk has lied about its contents, the
        // log may have continued at the wrong position.
        self.has_lied_at_start |= matches!(op.kind, DiskOpKind::ReadRaw { .. });
        self.names.values_mut().for_each(|known| known.written = None);
        let octets = match self.rng.below(4) {
            0 => Octets(vec![0; self.fixture.disks[disk].0.len()]),
            1 => match self.snapshots.is_empty() {
                true => Octets(Vec::new()),
                false => {
                    let at = self.rng.below(self.snapshots.len() as u32) as usize;
                    self.snapshots[at][disk].clone()
                }
            },
            2 => {
                let mut octets = self.fixture.disks[disk].clone();
                octets.0.rotate_left(512 * (1 + self.rng.below(20) as usize));
                octets
            }
            _ => {
                let mut octets = self.fixture.disks[disk].clone();
                let len = self.rng.below(octets.0.len() as u32) as usize;
                octets.0.truncate(len);
                octets
            }
        };
        read(&octets, &op.kind)
    }

    /// A record that could not be read is discarded. So is a region that could not be read at a
    /// start.
    fn forget_required(&mut self, op: &DiskOp) {
        let is_raw = matches!(op.kind, DiskOpKind::ReadRaw { .. });
        for known in self.names.values_mut() {
            let DiskOpKind::ReadRecord { offset, .. } = op.kind else { continue };
            if known.written.as_ref().is_some_and(|written| written.begin == offset) {
                known.written = None;
            }
        }
        if is_raw {
            self.names.values_mut().for_each(|known| known.written = None);
        }
    }

    fn flip(&mut self) {
        let disk = self.rng.below(self.fixture.disks.len() as u32) as usize;
        let octets = &mut self.fixture.disks[disk].0;
        let at = self.rng.below(octets.len() as u32) as usize;
        octets[at] ^= 1 << self.rng.below(8);
        for known in self.names.values_mut() {
            let is_hit = |written: &mut Written| {
                usize::from(written.disk) == disk
                    && (written.begin..written.end).contains(&(at as u64))
            };
            known.written.take_if(is_hit);
        }
        // It may have been a record of erasures.
        self.anything_may_come_back();
    }

    fn anything_may_come_back(&mut self) {
        for (wire, uri) in &self.all {
            self.names.get_mut(uri).unwrap().after_crash.insert(wire.clone());
        }
    }

    /// Completes everything that waits for the disks.
    fn settle(&mut self) {
        for _ in 0..20_000 {
            self.fixture.take();
            if !self.fixture.ops.is_empty() {
                self.perform_any();
                continue;
            }
            let Some(at) = self.fixture.store.next_wakeup() else { break };
            self.fixture.now = self.fixture.now.max(at);
            self.fixture.store.handle_timeout(self.fixture.now);
        }
        self.drain();
        self.reading.clear();
        if matches!(self.weather, Weather::Fair) {
            for known in self.names.values_mut() {
                // Erasures are logged by now. Data that arrived while other Data of its name was on
                // disk may be lost in a crash.
                if known.current.as_ref().is_some_and(Vec::is_empty) {
                    known.after_crash.clear();
                }
            }
        }
    }

    /// The process dies. Of the operations in progress, any part has happened.
    fn crash(&mut self) {
        for op in std::mem::take(&mut self.fixture.ops) {
            if let Some((offset, octets)) = laid_out(&self.fixture.config, &op) {
                let is_whole = self.rng.below(2) == 0;
                match is_whole {
                    true => self.fixture.disks[usize::from(op.disk)].write(offset, &octets),
                    false => self.tear(op.disk, offset, &octets),
                }
                self.note_crashed(&op);
            }
        }
        self.reading.clear();
        self.fixture.restart();
        if self.weather == Weather::Lying {
            self.anything_may_come_back();
        }
        for known in self.names.values_mut() {
            // Only memory knew that the newest Data is valid.
            known.current = None;
        }
    }

    /// A write that was not acknowledged has happened, or not.
    fn note_crashed(&mut self, op: &DiskOp) {
        let DiskOpKind::Write { offset, sequence, chunks, .. } = &op.kind else { return };
        let region = self.region_of(op.disk, *offset);
        let highest = self.sequences.entry(region).or_default();
        *highest = (*highest).max(*sequence);
        for chunk in chunks {
            if let WriteChunk::Data { packet, .. } = chunk {
                let known = self.names.get_mut(&self.all[&packet[..]]).unwrap();
                known.after_crash.insert(packet.to_vec());
            }
        }
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..30 => self.put(),
            30..55 => self.ask(),
            55..80 => self.perform_any(),
            80..85 => self.erase(),
            85..90 => {
                let ms = self.rng.below(10).into();
                self.fixture.wait_ms(ms);
            }
            90 => {
                // A stall, and its end.
                self.fixture.wait_ms(150);
                self.drain();
            }
            91..93 => self.crash(),
            93..95 => self.settle(),
            95 => drop(self.fixture.store.flush(self.fixture.now)),
            96 if self.weather == Weather::Flipping => self.flip(),
            97 if self.weather == Weather::Lying && self.snapshots.len() < 4 => {
                self.snapshots.push(self.fixture.disks.clone());
            }
            _ => {}
        }
        self.note_what_reads_may_give();
        self.drain();
        self.fixture.store.check_disk();
        self.check_prefixes();
    }

    /// Data that is found by name is also found by prefix.
    fn check_prefixes(&self) {
        let mut below_o = self.names.keys().filter(|uri| uri.starts_with("/o/"));
        let found = below_o.find(|uri| self.fixture.on_disk(&name(uri), false));
        if let Some(uri) = found {
            assert!(self.fixture.on_disk(&name("/o"), true), "{uri} is not found below /o");
        }
    }
}

fn run(seed: u64, weather: Weather) {
    let mut model = Model::new(seed, weather);
    let steps = 200 + model.rng.below(400);
    for _ in 0..steps {
        model.step();
    }
    model.settle();
    let uris: Vec<String> = model.names.keys().cloned().collect();
    for uri in uris {
        let requested = name(&uri);
        match model.fixture.look(&requested, false, false) {
            Found::Memory(hit) => model.check_served(&requested, false, &hit.packet),
            Found::Disk(found) => {
                if let Ok(read) = model.fixture.store.begin_read(&found) {
                    model.reading.entry(read).or_default();
                    model.note_what_reads_may_give();
                    model.settle();
                }
            }
            Found::Nothing => assert!(
                !model.is_required(&model.names[&uri]),
                "{uri} is lost: {} {:?}",
                model.names[&uri],
                model.fixture.stats()
            ),
        }
    }
    assert!(model.fixture.now > Instant::ZERO);
}

fn run_all(seeds: std::ops::Range<u64>) {
    for weather in [Weather::Fair, Weather::Failing, Weather::Flipping, Weather::Lying] {
        for seed in seeds.clone() {
            let result = std::panic::catch_unwind(|| run(seed, weather));
            assert!(result.is_ok(), "seed {seed}, {weather:?}");
        }
    }
}

#[test]
fn equals_a_model_on_good_and_bad_disks() {
    run_all(0..if cfg!(miri) { 1 } else { 60 });
}

#[test]
#[ignore = "takes minutes"]
fn equals_a_model_with_many_seeds() {
    run_all(1_000..4_000);
}
