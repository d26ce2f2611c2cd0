//! Records whose write the driver has not confirmed yet.

use super::address::{Key, RecordAddress};
use weir_base::{Packet, Pool, Slab, Table, mix};

/// A record whose write the driver has not confirmed yet. It shares the packet with memory and with
/// the write batch.
pub(super) struct Pending {
    pub(super) key: Key,
    pub(super) address: RecordAddress,
    pub(super) packet: Packet,
    pub(super) fresh_until_unix_ms: u64,
    /// Whether memory has evicted the Data, so that only this record holds the packet.
    pub(super) is_evicted: bool,
}

/// All pending records, by address.
pub(super) struct PendingRecords {
    records: Slab<Pending>,
    by_address: Table,
    /// Bytes of packets that memory has evicted.
    evicted_bytes: u64,
}

#[inline]
fn hash(address: RecordAddress) -> u64 {
    mix(u64::from(address.disk()) << 36 | address.offset_sectors())
}

impl PendingRecords {
    pub(super) fn new() -> Self {
        Self { records: Slab::new(), by_address: Table::with_capacity(0), evicted_bytes: 0 }
    }

    pub(super) fn get(&self, at: u32) -> &Pending {
        &self.records[at]
    }

    pub(super) fn packet_mut(&mut self, at: u32) -> &mut Packet {
        &mut self.records[at].packet
    }

    pub(super) fn find(&self, address: RecordAddress) -> Option<u32> {
        if self.by_address.is_empty() {
            return None;
        }
        self.by_address.find(hash(address), |at| self.records[at].address == address)
    }

    pub(super) fn insert(&mut self, pending: Pending) -> u32 {
        let hash = hash(pending.address);
        let at = self.records.insert(pending);
        self.by_address.insert(hash, at);
        at
    }

    pub(super) fn remove(&mut self, at: u32) -> Pending {
        let pending = self.records.remove(at);
        if pending.is_evicted {
            self.evicted_bytes -= Pool::footprint(pending.packet.len()) as u64;
        }
        self.by_address.remove(hash(pending.address), at);
        pending
    }

    /// Notes that memory has evicted the Data of a record. Counts its bytes once.
    #[inline]
    pub(super) fn on_evicted(&mut self, at: u32) {
        let pending = &mut self.records[at];
        if !core::mem::replace(&mut pending.is_evicted, true) {
            self.evicted_bytes += Pool::footprint(pending.packet.len()) as u64;
        }
    }

    /// Bytes of packets that memory has evicted.
    #[inline]
    pub(super) fn evicted_bytes(&self) -> u64 {
        self.evicted_bytes
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Pending> {
        self.records.iter().map(|(_, pending)| pending)
    }
}
