//! Data that was replaced by other Data of the same name. Only an Interest with the full name,
//! including the implicit digest, finds it, as in NFD.

use alloc::collections::VecDeque;
use core::cell::OnceCell;

use weir_base::{Instant, Packet};
use weir_wire::tlv::IMPLICIT_SHA256_DIGEST_COMPONENT as DIGEST_COMPONENT;
use weir_wire::{DataView, NameView};

use super::query::{Hit, Query};
use crate::entry::{Entry, entry_bytes};

/// Most packets, of all names together. Few names have more than one Data packet.
const PACKETS_MAX: usize = 256;

struct ReplacedPacket {
    /// The keyed hash of the name without the digest.
    hash: u64,
    packet: Packet,
    /// Computed when first needed.
    digest: OnceCell<[u8; 32]>,
    fresh_until: Instant,
    freshness_ms: u32,
}

/// A queue: the oldest packet is evicted first.
#[derive(Default)]
pub(super) struct ReplacedData {
    packets: VecDeque<ReplacedPacket>,
    bytes: u64,
}

impl ReplacedData {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a copy of an entry's Data, and evicts the oldest packets beyond `bytes_max` bytes.
    #[cold]
    pub(super) fn add(&mut self, entry: &Entry, bytes_max: u64) {
        let Entry { hash, fresh_until, freshness_ms, .. } = *entry;
        // A copy outside the pool: `Memory::compact` only knows about entries.
        let packet = Packet::from(entry.packet.to_vec());
        self.bytes += entry_bytes(packet.len());
        let digest = OnceCell::new();
        self.packets.push_back(ReplacedPacket { hash, packet, digest, fresh_until, freshness_ms });
        self.trim(bytes_max);
    }

    /// Evicts the oldest packets until no more than `bytes_max` bytes are in use.
    pub(super) fn trim(&mut self, bytes_max: u64) {
        while self.bytes > bytes_max || self.packets.len() > PACKETS_MAX {
            let Some(oldest) = self.packets.pop_front() else { break };
            self.bytes -= entry_bytes(oldest.packet.len());
        }
    }

    /// Finds the Data whose digest is the last component of the query's name.
    #[cold]
    pub(super) fn find(&self, now: Instant, query: &Query<'_>) -> Option<Hit> {
        let last = query.name.last()?;
        let hash = query.hashes.parent.filter(|_| u32::from(last.typ) == DIGEST_COMPONENT)?;
        // The digest comes last: it costs a SHA-256 of the packet the first time.
        let is_it = |one: &&ReplacedPacket| {
            let is_fresh_enough = !query.must_be_fresh || now < one.fresh_until;
            let data = DataView::decode(&one.packet).expect("only Data is stored");
            is_fresh_enough
                && data.name == query.name.parent()
                && one.digest.get_or_init(|| data.implicit_digest()) == last.value
        };
        let found = self.packets.iter().filter(|one| one.hash == hash).find(is_it)?;
        Some(Hit {
            packet: found.packet.clone(),
            freshness_ms: found.freshness_ms.into(),
            is_fresh: now < found.fresh_until,
        })
    }

    /// Removes the Data at or below a prefix.
    pub(super) fn erase(&mut self, prefix: NameView<'_>) {
        self.retain(|data| !prefix.is_prefix_of(data.name));
    }

    /// Removes the Data of this name and digest.
    pub(super) fn erase_copy(&mut self, name: NameView<'_>, digest: &[u8]) {
        self.retain(|data| data.name != name || data.implicit_digest() != digest);
    }

    fn retain(&mut self, stays: impl Fn(&DataView<'_>) -> bool) {
        self.packets.retain(|one| DataView::decode(&one.packet).is_ok_and(|data| stays(&data)));
        self.bytes = self.packets.iter().map(|one| entry_bytes(one.packet.len())).sum();
    }
}
