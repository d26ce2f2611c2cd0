//! A store over disks in memory.

use super::super::*;
pub(super) use crate::fixture::{
    Fixture, KEY, Octets, STORE_ID, checksum, hashes, name, prefixes, wire,
};
use crate::{Hit, HoldingsConfig, Lookup, Query, ReadData, Store, StoreConfig};
use std::vec::Vec;
use std::{format, vec};
use weir_base::{Instant, NS_PER_MS, Packet};
use weir_wire::{DataView, Name};

pub(super) fn geometry(regions: u32, region_bytes: u64, block_bytes: u32) -> DiskGeometry {
    DiskGeometry {
        data_offset: 4096,
        region_bytes,
        block_bytes,
        first: 1,
        stride: 2,
        regions,
        is_writable: true,
    }
}

pub(super) fn tier_config(disks: Vec<DiskGeometry>) -> DiskTierConfig {
    DiskTierConfig {
        unix_ms_at_zero: 1_700_000_000_000,
        record_bytes_typical: 1024,
        ..DiskTierConfig::new(disks, STORE_ID, KEY, checksum)
    }
}

/// The offset and the encoded bytes of a write.
pub(super) fn laid_out(config: &DiskTierConfig, op: &DiskOp) -> Option<(u64, Vec<u8>)> {
    let DiskOpKind::Write { offset, len, sequence, chunks } = &op.kind else { return None };
    let geometry = &config.disks[usize::from(op.disk)];
    let block_bytes = u64::from(geometry.block_bytes);
    assert!(offset % block_bytes == 0 && u64::from(*len) % block_bytes == 0);
    let mut octets = vec![0xEE; *len as usize];
    let address =
        record::RecordLocation { store_id: STORE_ID, offset: *offset, sequence: *sequence };
    record::encode_chunks(chunks, &address, geometry.block_bytes, checksum, &mut octets);
    Some((*offset, octets))
}

pub(super) fn read(disk: &Octets, op: &DiskOpKind) -> DiskOutcome {
    match *op {
        DiskOpKind::ReadRaw { offset, len } => DiskOutcome::Raw(disk.read(offset, len)),
        DiskOpKind::ReadRecord { offset, len, sequence } => {
            let octets = disk.read(offset, len);
            let address = record::RecordLocation { store_id: STORE_ID, offset, sequence };
            match record::parse_data(&octets, &address, checksum) {
                Ok(record) => DiskOutcome::Record {
                    packet: Packet::from(record.body),
                    fresh_until_unix_ms: record.fresh_until_unix_ms,
                },
                Err(fault) => DiskOutcome::Damaged(fault),
            }
        }
        DiskOpKind::Write { .. } => panic!("not a read"),
    }
}

pub(super) fn segment(uri: &str, number: u64) -> Name {
    let mut name = name(uri);
    name.append_segment(number);
    name
}

pub(super) enum Found {
    Nothing,
    Memory(Hit),
    Disk(OnDisk),
}

impl Fixture {
    pub(super) fn with(config: DiskTierConfig, memory: StoreConfig) -> Self {
        let mut fixture = Self::new(0, memory.policy);
        fixture.disks = config.disks.iter().map(Octets::of).collect();
        (fixture.config, fixture.memory) = (config, memory);
        fixture.restart();
        fixture
    }

    /// One disk of 8 regions of 64 KiB, and hardly any memory.
    pub(super) fn small() -> Self {
        Self::with(
            tier_config(vec![geometry(8, 64 << 10, 512)]),
            StoreConfig { capacity_bytes: 0, ..StoreConfig::default() },
        )
    }

    /// Restarts after a crash: operations in progress are lost.
    pub(super) fn restart(&mut self) {
        self.ops.clear();
        self.store = Store::with_disk(self.memory.clone(), self.config.clone());
        self.store.track_holdings(HoldingsConfig::default());
        while self.store.build_holdings(100) {}
        self.now = Instant::from_ns(1);
    }

    pub(super) fn wait_ms(&mut self, ms: u64) {
        self.now = self.now.plus_ns(ms * NS_PER_MS);
        self.tick();
    }

    pub(super) fn tick(&mut self) {
        self.store.handle_timeout(self.now);
        self.take();
    }

    pub(super) fn take(&mut self) {
        let mut ops = Vec::new();
        self.store.take_disk_ops(self.now, &mut ops);
        self.ops.extend(ops);
    }

    /// Carries out all disk operations, and those that follow from them.
    pub(super) fn settle(&mut self) {
        for _ in 0..100_000 {
            self.take();
            if let Some(op) = self.ops.pop_front() {
                self.perform(op);
            } else if let Some(at) = self.store.next_wakeup() {
                self.now = self.now.max(at);
                self.store.handle_timeout(self.now);
            } else {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    pub(super) fn perform(&mut self, op: DiskOp) {
        let outcome = match laid_out(&self.config, &op) {
            Some((offset, octets)) => {
                self.disks[usize::from(op.disk)].write(offset, &octets);
                DiskOutcome::Written
            }
            None => read(&self.disks[usize::from(op.disk)], &op.kind),
        };
        self.store.on_disk_done(self.now, op.id, outcome);
    }

    pub(super) fn put_content(&mut self, name: &Name, content: &[u8]) -> bool {
        self.put_wire(&wire(name, 0, content)).is_some()
    }

    pub(super) fn look(&mut self, name: &Name, can_be_prefix: bool, must_be_fresh: bool) -> Found {
        match self.lookup(name, can_be_prefix, must_be_fresh) {
            Lookup::Hit(hit) => Found::Memory(hit),
            Lookup::OnDisk(found) => Found::Disk(found),
            Lookup::Miss => Found::Nothing,
        }
    }

    pub(super) fn on_disk(&self, name: &Name, can_be_prefix: bool) -> bool {
        let hashes = hashes(name.as_view());
        let query = Query { name: name.as_view(), hashes, can_be_prefix, must_be_fresh: false };
        self.store.is_on_disk(&query)
    }

    /// What an Interest gets from memory or disk.
    pub(super) fn fetch_with(&mut self, name: &Name, can_be_prefix: bool) -> Option<Vec<u8>> {
        match self.look(name, can_be_prefix, false) {
            Found::Nothing => None,
            Found::Memory(hit) => Some(hit.packet.to_vec()),
            Found::Disk(found) => {
                let read = self.store.begin_read(&found).unwrap();
                self.settle();
                let finished = self.store.next_finished().expect("the read has ended");
                assert_eq!(finished.read, read);
                match finished.outcome {
                    ReadOutcome::Data { packet, .. } => Some(packet.to_vec()),
                    ReadOutcome::Unavailable | ReadOutcome::Stalled => None,
                }
            }
        }
    }

    pub(super) fn fetch(&mut self, name: &Name) -> Option<Vec<u8>> {
        self.fetch_with(name, false)
    }

    /// Reads Data into memory and uses it there.
    pub(super) fn use_in_memory(&mut self, name: &Name) -> bool {
        let Some(wire) = self.fetch(name) else { return false };
        let data = DataView::decode(&wire).unwrap();
        let fill = |path: &mut Vec<u64>| prefixes(data.name, path);
        let packet = Packet::from(&wire[..]);
        let hashes = hashes(data.name);
        let read = ReadData { packet: &packet, data: &data, hashes, fresh_until: self.now };
        self.store.promote(self.now, read, fill, &mut self.pool);
        assert!(matches!(self.look(name, false, false), Found::Memory(_)));
        true
    }

    pub(super) fn content(&mut self, name: &Name) -> Option<Vec<u8>> {
        self.fetch(name).map(|wire| DataView::decode(&wire).unwrap().content.to_vec())
    }

    pub(super) fn stats(&self) -> DiskTierStats {
        self.store.stats().disk
    }

    pub(super) fn uri(&mut self, uri: &str, can_be_prefix: bool) -> Option<std::string::String> {
        let wire = self.fetch_with(&name(uri), can_be_prefix)?;
        Some(format!("{}", DataView::decode(&wire).unwrap().name))
    }
}
