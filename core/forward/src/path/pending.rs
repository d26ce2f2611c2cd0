//! The PIT stage: an Interest creates a PIT entry or joins one.

use weir_base::{FaceId, Packet};
use weir_store::Query;
use weir_wire::{InterestView, NackReason, rewrite_interest, tlv};

use crate::egress::OutNack;
use crate::incoming::{IncomingInterest, lifetime_ns};
use crate::router::Router;
use crate::shard::Message;
use crate::stats::DropReason;
use crate::table::pit::{PitEntry, REWRITE_GROWTH, entry_bytes_max};
use crate::table::records::InRecord;
use crate::table::refusals::Holder;

/// Maximum number of hosts behind one face that wait for one entry. Each host is compared with all
/// others.
const HOSTS_MAX: usize = 64;
/// Maximum number of random samples of the PIT that one Interest may take to find entries to evict.
/// A large Interest may need the memory of several small entries.
const SAMPLES_MAX: usize = 8;

impl Router {
    /// Inserts the Interest, or adds it to the entry that is pending. If the PIT has no room, it
    /// sends a Nack and returns `None`.
    #[inline]
    pub(crate) fn enter_pit(&mut self, incoming: &IncomingInterest<'_>) -> Option<u32> {
        let IncomingInterest { received, interest, face, nonce, .. } = incoming;
        if !self.make_room(incoming) {
            self.egress.refuse(received, face, NackReason::Congestion, DropReason::PitFull);
            return None;
        }
        let mut lifetime_ns = lifetime_ns(interest);
        // A remote face must not keep PIT entries alive for longer than the operator allows.
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
        let index = match incoming.pit_index {
            Some(index) => self.join_entry(index, interest, record, face.is_point_to_point()),
            None => self.insert_entry(&incoming.query, interest, record),
        };
        // Data of any shard may satisfy this entry, so all shards watch for it.
        if interest.can_be_prefix && self.egress.is_sharded() {
            self.send_watches(index);
        }
        Some(index)
    }

    #[inline(always)]
    fn insert_entry(
        &mut self,
        query: &Query<'_>,
        interest: &InterestView<'_>,
        record: InRecord,
    ) -> u32 {
        self.tables.faces.add_pending(record.face_slot);
        let hop_limit = interest.hop_limit.map(|limit| limit - 1);
        let packet = self.rewrite(interest, record.nonce, hop_limit);
        let name_at = name_value_at(&packet);
        self.tables.pit.insert(query, packet, name_at, hop_limit, &record)
    }

    /// Adds an Interest to a pending entry. The entry adopts the nonce, the HopLimit and the
    /// forwarding hint of this Interest, so a later transmission upstream has the latest values. If
    /// the PIT has no memory for the new packet, the entry keeps the old one.
    fn join_entry(
        &mut self,
        index: u32,
        interest: &InterestView<'_>,
        record: InRecord,
        is_point_to_point: bool,
    ) -> u32 {
        let nonce = record.nonce;
        let hop_limit = interest.hop_limit.map(|limit| limit - 1);
        let entry = self.tables.pit.entry(index);
        if entry.nonce() != nonce || entry.hop_limit != hop_limit {
            let packet = self.rewrite(interest, nonce, hop_limit);
            let pit = &mut self.tables.pit;
            if pit.can_replace_interest(index, packet.len()) {
                let name_at = name_value_at(&packet);
                let before = pit.replace_interest(index, packet, name_at, nonce, hop_limit);
                self.content.pool.recycle(before);
            }
        }
        self.add_or_refresh_downstream(index, record, is_point_to_point);
        index
    }

    fn add_or_refresh_downstream(&mut self, index: u32, record: InRecord, is_point_to_point: bool) {
        let pit = &mut self.tables.pit;
        let expiry = record.expiry;
        let entry = pit.entry(index);
        if entry.has_downstreams() {
            self.egress.stats.aggregated += 1;
        }
        let downstream = record.downstream();
        let known =
            entry.downstreams().position(|known| known.is_of(&downstream, is_point_to_point));
        let known = known.or_else(|| replaceable(entry, record.face, is_point_to_point));
        // A retransmission refreshes its in-record.
        if let Some(at) = known {
            let known = &mut pit.lists_mut(index).downstreams[at];
            known.nonce = record.nonce;
            known.expiry = expiry;
            known.pit_token = record.pit_token;
        } else {
            self.tables.faces.add_pending(record.face_slot);
            pit.add_downstream(index, record);
        }
        let last = pit.entry(index).last_expiry().unwrap_or(expiry);
        // The strategy may have scheduled an earlier wakeup.
        let wake_at = pit.timers.deadline(index).map_or(last, |at| at.min(last));
        pit.timers.schedule(index, wake_at);
    }

    /// Encodes the Interest for sending: with a nonce, with HopLimit reduced by one, and without a
    /// forwarding hint that names this network.
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

    /// Makes room in the PIT for an Interest. If the PIT is full, it may evict entries of other
    /// holders with a Nack, see [`eviction`](crate::eviction). Returns `false` if there is no room.
    #[inline(always)]
    pub(crate) fn make_room(&mut self, incoming: &IncomingInterest<'_>) -> bool {
        let IncomingInterest { received, face, pit_index, .. } = incoming;
        let is_waiting = pit_index.is_some_and(|index| self.tables.is_waiting(index, incoming));
        // A single face may have only a limited number of entries, however empty the PIT is.
        if !is_waiting && face.pending_count() >= self.config.pit_entries_per_face_max {
            return false;
        }
        if self.tables.pit.has_ample_room() {
            return true;
        }
        // The Interest needs memory for one more downstream, or for a new entry.
        let (entries, bytes) = match pit_index {
            Some(index) => (0, self.tables.pit.downstream_bytes(*index, !is_waiting)),
            None => (1, entry_bytes_max(received.packet.len())),
        };
        bytes == 0
            || self.tables.pit.has_room(entries, bytes)
            || self.evict_others(incoming, entries, bytes)
    }

    #[cold]
    #[inline(never)]
    fn evict_others(
        &mut self,
        incoming: &IncomingInterest<'_>,
        entries: usize,
        bytes: u64,
    ) -> bool {
        let prefix = self.tables.prefix_number(incoming.query.name);
        let face = self.tables.faces.get(incoming.face.slot(), incoming.face.id());
        let Some((_, host)) = face else { return false };
        let requester = Holder { host, prefix };
        // A holder that was just refused is refused again without a sample. Otherwise each Interest
        // of a flood would cost samples.
        if self.tables.refusals.has(self.now, requester) {
            return false;
        }
        for _ in 0..SAMPLES_MAX {
            let victims =
                self.tables.victims(requester, incoming.face.is_local(), incoming.pit_index);
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

    /// Asks the other shards to watch for Data of an entry with CanBePrefix until the entry
    /// expires.
    #[cold]
    #[inline(never)]
    fn send_watches(&mut self, index: u32) {
        // An ended entry may have had this index. Its Unwatch must leave first, or it would remove
        // the new watch.
        self.end_watches();
        let entry = self.tables.pit.entry(index);
        let Some(until) = entry.last_expiry() else { return };
        let (hash, components) = (entry.hash, entry.component_count);
        let watch = || Message::Watch { entry: index, hash, components, until };
        self.egress.send_to_other_shards(watch);
    }

    /// Ends the watches of ended entries in the other shards.
    pub(crate) fn end_watches(&mut self) {
        while let Some((entry, hash)) = self.tables.pit.take_ended() {
            self.egress.send_to_other_shards(|| Message::Unwatch { entry, hash });
        }
    }
}

/// Start and length of the name's TLV-VALUE in an encoded Interest.
#[inline(always)]
fn name_value_at(interest: &[u8]) -> (u16, u16) {
    let read = |at: usize| tlv::read_var_number(&interest[at..]).expect("we encoded it ourselves");
    let name_at = 1 + read(1).1;
    let (name_len, size) = read(name_at + 1);
    ((name_at + 1 + size) as u16, name_len as u16)
}

/// The in-record to replace by that of another host behind the same face, if too many wait: the one
/// that expires first.
fn replaceable(entry: &PitEntry, face: FaceId, is_point_to_point: bool) -> Option<usize> {
    if is_point_to_point {
        return None;
    }
    let of_face = || entry.downstreams().enumerate().filter(|(_, known)| known.face == face);
    if of_face().count() < HOSTS_MAX {
        return None;
    }
    of_face().min_by_key(|(_, known)| known.expiry).map(|(at, _)| at)
}
