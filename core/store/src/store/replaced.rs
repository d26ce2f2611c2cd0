//! Data that other Data of its name has taken the place of. It is found by its full name alone,
//! with the implicit digest, as NFD finds it.

use alloc::collections::VecDeque;
use core::cell::OnceCell;

use weir_base::{Instant, Packet};
use weir_wire::tlv::IMPLICIT_SHA256_DIGEST_COMPONENT as DIGEST_COMPONENT;
use weir_wire::{DataView, NameView};

use super::query::{Hit, Query};
use crate::entry::{Entry, entry_bytes};

/// Of all names together. Who publishes different Data under one name needs few of them.
const PACKETS_MAX: usize = 256;

struct ReplacedPacket {
    /// The keyed hash of the name without the digest.
    hash: u64,
    packet: Packet,
    /// Computed when it is first asked for.
    digest: OnceCell<[u8; 32]>,
    fresh_until: Instant,
    freshness_ms: u32,
}

/// The oldest goes first.
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

    /// Keeps a copy of an entry's Data, as long as all of them take `bytes_max` at most.
    #[cold]
    pub(super) fn add(&mut self, entry: &Entry, bytes_max: u64) {
        let Entry { hash, fresh_until, freshness_ms, .. } = *entry;
        // The store's own memory is moved about.
        let packet = Packet::from(entry.packet.to_vec());
        self.bytes += entry_bytes(packet.len());
        let digest = OnceCell::new();
        self.packets.push_back(ReplacedPacket { hash, packet, digest, fresh_until, freshness_ms });
        self.trim(bytes_max);
    }

    /// Forgets the oldest of what takes more than this.
    pub(super) fn trim(&mut self, bytes_max: u64) {
        while self.bytes > bytes_max || self.packets.len() > PACKETS_MAX {
            let Some(oldest) = self.packets.pop_front() else { break };
            self.bytes -= entry_bytes(oldest.packet.len());
        }
    }

    /// The Data of the digest that the name of an Interest ends with.
    #[cold]
    pub(super) fn find(&self, now: Instant, query: &Query<'_>) -> Option<Hit> {
        let last = query.name.last()?;
        let hash = query.hashes.parent.filter(|_| u32::from(last.typ) == DIGEST_COMPONENT)?;
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

    /// Forgets the Data of a name, or below it.
    pub(super) fn erase(&mut self, prefix: NameView<'_>) {
        self.retain(|data| !prefix.is_prefix_of(data.name));
    }

    /// Forgets the Data of this name and digest.
    pub(super) fn erase_copy(&mut self, name: NameView<'_>, digest: &[u8]) {
        self.retain(|data| data.name != name || data.implicit_digest() != digest);
    }

    fn retain(&mut self, stays: impl Fn(&DataView<'_>) -> bool) {
        self.packets.retain(|one| DataView::decode(&one.packet).is_ok_and(|data| stays(&data)));
        self.bytes = self.packets.iter().map(|one| entry_bytes(one.packet.len())).sum();
    }
}
