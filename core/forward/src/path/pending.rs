//! The PIT stage: an Interest becomes a PIT entry or joins one.

use weir_base::Packet;
use weir_store::Query;
use weir_wire::{InterestView, NackReason, rewrite_interest, tlv};

use crate::egress::OutNack;
use crate::pass::{Pass, lifetime_ns};
use crate::router::Router;
use crate::shard::Message;
use crate::stats::DropReason;
use crate::table::pit::{REWRITE_GROWTH, entry_bytes_max};
use crate::table::records::InRecord;
use crate::table::refusals::Holder;

/// Samples of entries that one Interest may take to find room: a large one needs the room of many
/// small ones.
const SAMPLES_MAX: usize = 8;

impl Router {
    /// Inserts the Interest, or adds it to the entry that is pending. Without room in the PIT its
    /// sender gets a Nack.
    #[inline]
    pub(crate) fn enter_pit(&mut self, pass: &Pass<'_>) -> Option<u32> {
        let Pass { received, interest, face, nonce, .. } = pass;
        if !self.make_room(pass) {
            self.egress.refuse(received, face, NackReason::Congestion, DropReason::PitFull);
            return None;
        }
        let mut lifetime_ns = lifetime_ns(interest);
        if !face.is_local() {
            lifetime_ns = lifetime_ns.min(self.config.remote_lifetime_ns_max);
        }
        let record = InRecord {
            face: received.face,
            face_slot: face.slot(),
            nonce: *nonce,
            expiry: self.now.plus_ns(lifetime_ns),
            pit_token: received.header.pit_token,
        };
        let entry = match pass.pending {
            Some(entry) => self.join_pending(entry, interest, record),
            None => self.insert_pending(&pass.query, interest, record),
        };
        if interest.can_be_prefix && self.egress.is_sharded() {
            self.watch_other_shards(entry);
        }
        Some(entry)
    }

    #[inline(always)]
    fn insert_pending(
        &mut self,
        query: &Query<'_>,
        interest: &InterestView<'_>,
        record: InRecord,
    ) -> u32 {
        self.tables.faces.begin_wait(record.face_slot);
        let hop_limit = interest.hop_limit.map(|limit| limit - 1);
        let packet = self.rewrite(interest, record.nonce, hop_limit);
        let name_at = name_value_at(&packet);
        self.tables.pit.insert(query, packet, name_at, hop_limit, &record)
    }

    /// A retransmission leaves with its own nonce, HopLimit and forwarding hint, if the entry has
    /// room for it.
    fn join_pending(&mut self, index: u32, interest: &InterestView<'_>, record: InRecord) -> u32 {
        let nonce = record.nonce;
        let hop_limit = interest.hop_limit.map(|limit| limit - 1);
        let entry = self.tables.pit.entry(index);
        if entry.nonce() != nonce || entry.hop_limit != hop_limit {
            let packet = self.rewrite(interest, nonce, hop_limit);
            let pit = &mut self.tables.pit;
            if pit.has_room_instead(index, packet.len()) {
                let name_at = name_value_at(&packet);
                let before = pit.replace_interest(index, packet, name_at, nonce, hop_limit);
                self.content.pool.recycle(before);
            }
        }
        self.add_downstream(index, record);
        index
    }

    fn add_downstream(&mut self, index: u32, record: InRecord) {
        let pit = &mut self.tables.pit;
        let expiry = record.expiry;
        let entry = pit.entry(index);
        if !entry.is_abandoned() {
            self.egress.stats.aggregated += 1;
        }
        let known = entry.downstreams().position(|known| known.face == record.face);
        if let Some(at) = known {
            let known = &mut pit.lists_mut(index).downstreams[at];
            known.nonce = record.nonce;
            known.expiry = expiry;
            known.pit_token = record.pit_token;
        } else {
            self.tables.faces.begin_wait(record.face_slot);
            pit.add_downstream(index, record);
        }
        let last = pit.entry(index).last_expiry().unwrap_or(expiry);
        // The strategy may have scheduled an earlier wakeup.
        let wake_at = pit.timers.deadline(index).map_or(last, |at| at.min(last));
        pit.timers.schedule(index, wake_at);
    }

    /// The Interest as it leaves: with a nonce, HopLimit decremented, and without a forwarding hint
    /// that has led it here.
    #[inline(always)]
    fn rewrite(
        &mut self,
        interest: &InterestView<'_>,
        nonce: u32,
        hop_limit: Option<u8>,
    ) -> Packet {
        let strip_hint = self.tables.is_in_producer_region(interest);
        let mut block = self.content.pool.alloc(interest.wire.len() + REWRITE_GROWTH);
        let len = rewrite_interest(interest, nonce, hop_limit, strip_hint, &mut block)
            .expect("the block is longer than the Interest can grow");
        block.freeze(len)
    }

    /// Whether the PIT has room for an Interest. When it is full, entries of others may be evicted
    /// for it, see [`Tables::victims`](crate::tables::Tables::victims).
    #[inline(always)]
    pub(crate) fn make_room(&mut self, pass: &Pass<'_>) -> bool {
        let Pass { received, face, pending, .. } = pass;
        let is_waiting = pending.is_some_and(|entry| self.tables.is_waiting(entry, received.face));
        if !is_waiting && face.waits_for() >= self.config.pit_entries_per_face_max {
            return false;
        }
        if self.tables.pit.has_much_room() {
            return true;
        }
        let (entries, bytes) = match pending {
            Some(index) => (0, self.tables.pit.downstream_bytes(*index, !is_waiting)),
            None => (1, entry_bytes_max(received.packet.len())),
        };
        bytes == 0
            || self.tables.pit.has_room(entries, bytes)
            || self.evict_others(pass, entries, bytes)
    }

    #[cold]
    #[inline(never)]
    fn evict_others(&mut self, pass: &Pass<'_>, entries: usize, bytes: u64) -> bool {
        let prefix = self.tables.prefix_number(pass.query.name);
        let face = self.tables.faces.get(pass.face.slot(), pass.face.id());
        let Some((_, host)) = face else { return false };
        let requester = Holder { host, prefix };
        if self.tables.refusals.has(self.now, requester) {
            return false;
        }
        for _ in 0..SAMPLES_MAX {
            let victims = self.tables.victims(requester, pass.face.is_local(), pass.pending);
            if victims.is_empty() {
                break;
            }
            for victim in victims {
                self.egress.stats.displaced += 1;
                self.end_with_nack(victim, OutNack::own(NackReason::Congestion));
            }
            if self.tables.pit.has_room(entries, bytes) {
                return true;
            }
        }
        self.tables.refusals.add(self.now, requester);
        false
    }

    /// Lets the other shards watch for Data of a PIT entry with CanBePrefix until it expires.
    #[cold]
    #[inline(never)]
    fn watch_other_shards(&mut self, index: u32) {
        // An entry that has ended may have had this index.
        self.end_watches();
        let entry = self.tables.pit.entry(index);
        let Some(until) = entry.last_expiry() else { return };
        let (hash, components) = (entry.hash, entry.component_count);
        let watch = || Message::Watch { entry: index, hash, components, until };
        self.egress.send_to_other_shards(watch);
    }

    /// Ends the watches for entries that have ended.
    pub(crate) fn end_watches(&mut self) {
        while let Some((entry, hash)) = self.tables.pit.take_ended() {
            self.egress.send_to_other_shards(|| Message::Unwatch { entry, hash });
        }
    }
}

/// Where the TLV-VALUE of the name lies in an encoded Interest.
#[inline(always)]
fn name_value_at(interest: &[u8]) -> (u16, u16) {
    let read = |at: usize| tlv::read_var_number(&interest[at..]).expect("we encoded it ourselves");
    let name_at = 1 + read(1).1;
    let (name_len, size) = read(name_at + 1);
    ((name_at + 1 + size) as u16, name_len as u16)
}
