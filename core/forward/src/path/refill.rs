//! The router's own Interests for segments that its store has lost.

use weir_base::{FaceId, Packet};
use weir_wire::{Interest, InterestView, LpHeader, PacketView};

use crate::content::refill::Hole;
use crate::incoming::ReceivedPacket;
use crate::io::{FaceAttributes, FaceScope, OutPacket};
use crate::router::Router;

/// Disks with at most this many bytes to write count as idle.
const IDLE_BACKLOG_BYTES: u64 = 1 << 20;
/// Lifetime of an Interest for a lost segment, ms.
const LIFETIME_MS: u64 = 2_000;

impl Router {
    /// Records the segments that the store has lost. While the disks are idle, requests the
    /// segments that are due.
    #[inline(never)]
    pub(crate) fn refill_holes(&mut self) {
        let now = self.now;
        let (store, disk) = (&mut self.content.store, &mut self.content.disk);
        for lost in store.take_lost() {
            disk.refill.on_lost(now, lost);
        }
        if disk.refill.next_wakeup().is_none_or(|at| at > now) {
            return;
        }
        let is_busy = disk.reads.longest_queue() > 0
            || store
                .write_backlog(now)
                .is_none_or(|backlog| backlog.offered_bytes > IDLE_BACKLOG_BYTES);
        if is_busy {
            return disk.refill.back_off(now);
        }
        let due = disk.refill.take_due(now);
        // The store is the downstream of these Interests. Its face exists only while some are
        // pending.
        let attributes = FaceAttributes::point_to_point(FaceScope::Local);
        self.tables.faces.insert(FaceId::CONTENT_STORE, attributes);
        for hole in due {
            if self.request_hole(&hole) {
                self.egress.stats.busy.refill_interests += 1;
                self.content.disk.refill.on_requested(now, hole);
            } else {
                self.content.disk.refill.remove(&hole);
            }
        }
    }

    /// Drops packets that are addressed to the store. It has already stored their Data.
    #[inline]
    pub(crate) fn drop_own_packets(&mut self) {
        if self.tables.faces.find(FaceId::CONTENT_STORE).is_none() {
            return;
        }
        // The announcements that are due refer to positions in the outbox.
        if self.announcements.has_due() {
            self.attach_announcements();
        }
        let is_own = |packet: &OutPacket| packet.face == FaceId::CONTENT_STORE;
        if self.egress.out.announcements.is_empty() {
            self.egress.out.packets.retain(|packet| !is_own(packet));
        } else {
            self.egress.remove_packets(|_, packet| is_own(packet));
        }
        if self.content.disk.refill.is_empty() {
            self.tables.faces.remove(FaceId::CONTENT_STORE);
        }
    }

    /// Sends an Interest for a missing segment. Returns whether the segment is still missing.
    fn request_hole(&mut self, hole: &Hole) -> bool {
        let mut name = (*hole.object).clone();
        name.append_segment(hole.segment);
        let nonce = self.tables.rng.next_u32();
        let interest = Interest::new(name).nonce(nonce).lifetime_ms(LIFETIME_MS);
        let packet = Packet::from(interest.encode());
        let Ok(interest) = InterestView::decode(&packet) else { return false };
        let hashes = self.hash_name(&PacketView::Interest(interest));
        let header = LpHeader::default();
        let received = ReceivedPacket::new(FaceId::CONTENT_STORE, &header, &packet);
        let Some(incoming) = self.check_interest(&received, &interest, &hashes) else {
            return false;
        };
        if self.content.store.has_answer(self.now, &incoming.query) {
            return false;
        }
        // A consumer has requested the segment meanwhile. Its Data will fill the hole.
        if incoming.pit_index.is_some() {
            return true;
        }
        if let Some(entry) = self.enter_pit(&incoming) {
            self.forward(entry, received.origin(), None, &interest);
        }
        true
    }
}
