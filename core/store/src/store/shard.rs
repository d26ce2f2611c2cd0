//! Lookups in a store that is one shard of a router's store. The caller chooses among the answers
//! of all shards.

use super::{Lookup, Query, Store};
use crate::disk::OnDisk;
use crate::entry::USED;
use weir_base::{Instant, Packet};
use weir_wire::{DataView, InterestView, NameView};

/// What one shard has for a [`Query`]. See [`Store::lookup_shard`].
#[derive(Debug)]
pub enum ShardAnswer {
    Memory {
        /// The whole Data TLV.
        packet: Packet,
        arrived_at: Instant,
        /// Whether the query names exactly this Data, with or without its implicit digest.
        is_whole_name: bool,
    },
    /// Data that waits to be written to a disk.
    Unwritten(Packet),
    OnDisk(OnDisk),
    Miss,
}

impl Store {
    /// Like [`Store::lookup`], but counts neither a hit nor a miss.
    pub fn lookup_shard(&mut self, now: Instant, query: &Query<'_>) -> ShardAnswer {
        let found = if self.config.serve { self.memory.find_answer(now, query) } else { None };
        if let Some(index) = found {
            self.eviction.on_hit(&mut self.memory.entries, index);
            let entry = &mut self.memory.entries[index];
            entry.flags |= USED;
            let name_len = entry.name_value().len();
            return ShardAnswer::Memory {
                packet: entry.packet.share(),
                arrived_at: entry.arrived_at(),
                is_whole_name: name_len <= query.name.value().len(),
            };
        }
        if self.is_memory_only(query) {
            return ShardAnswer::Miss;
        }
        match self.lookup_disks(now, query) {
            Lookup::Hit(hit) => ShardAnswer::Unwritten(hit.packet),
            Lookup::OnDisk(found) => ShardAnswer::OnDisk(found),
            Lookup::Miss => ShardAnswer::Miss,
        }
    }

    /// Counts a hit of [`Store::lookup_shard`], with the Data that answers.
    pub fn count_hit(&mut self, packet: &Packet) {
        self.prefix_counters.count_hit_with(packet);
    }

    /// Counts a miss of this Interest: [`Store::lookup_shard`] found nothing in any shard, or the
    /// record that a lookup has found is not read.
    pub fn count_miss(&mut self, interest: NameView<'_>, can_be_prefix: bool) {
        self.stats.misses += 1;
        self.prefix_counters.count_miss(interest, can_be_prefix);
    }

    /// Like [`Store::count_miss`], for an encoded Interest.
    pub fn count_miss_of(&mut self, interest: &Packet) {
        if let Ok(interest) = InterestView::decode(interest) {
            self.count_miss(interest.name, interest.can_be_prefix);
        }
    }

    /// Whether `one` answers a prefix query before `other`. Each is the arrival time and the
    /// packet.
    pub fn is_preferred(&self, one: (Instant, &[u8]), other: (Instant, &[u8])) -> bool {
        if self.memory.is_ordered() {
            return name_of(one.1) < name_of(other.1);
        }
        (one.0, name_of(one.1)) > (other.0, name_of(other.1))
    }
}

fn name_of(packet: &[u8]) -> &[u8] {
    DataView::decode(packet).map_or(&[], |data| data.name.value())
}
