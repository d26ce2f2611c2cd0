//! Interests of the router itself for segments that its store lost.

use weir_base::{FaceId, Instant, Packet};
use weir_wire::{Interest, InterestView, LpHeader, PacketView};

use crate::content::refill::Hole;
use crate::io::{FaceAttributes, FaceScope, Outbox};
use crate::packet::{Origin, ReceivedPacket};
use crate::router::Router;

/// Octets that may wait for disks that count as idle.
const IDLE_BACKLOG_BYTES: u64 = 1 << 20;
/// How long an Interest for a lost segment is pending, ms.
const LIFETIME_MS: u64 = 2_000;

impl Router {
    /// Notes what the store has lost, and requests what is due while the disks have little to do:
    /// after all that others ask for.
    #[inline(never)]
    pub(crate) fn refill_holes(&mut self, now: Instant, out: &mut Outbox) {
        for lost in self.store.take_lost() {
            self.disk.refill.on_lost(now, lost);
        }
        if self.disk.refill.next_wakeup().is_none_or(|at| at > now) {
            return;
        }
        let is_busy = self.disk.reads.longest_queue() > 0
            || self
                .store
                .write_backlog(now)
                .is_none_or(|backlog| backlog.offered_bytes > IDLE_BACKLOG_BYTES);
        if is_busy {
            return self.disk.refill.back_off(now);
        }
        let attributes = FaceAttributes::point_to_point(FaceScope::Local);
        self.faces.insert(FaceId::CONTENT_STORE, attributes);
        for hole in self.disk.refill.take_due(now) {
            if self.request_hole(now, &hole, out) {
                self.stats.busy.refill_interests += 1;
                self.disk.refill.on_requested(now, hole);
            } else {
                self.disk.refill.remove(&hole);
            }
        }
    }

    /// Nothing leaves towards the store itself: what it asked for it has.
    #[inline]
    pub(crate) fn drop_own_packets(&mut self, out: &mut Outbox) {
        if self.faces.find(FaceId::CONTENT_STORE).is_none() {
            return;
        }
        out.packets.retain(|packet| packet.face != FaceId::CONTENT_STORE);
        if self.disk.refill.is_empty() {
            self.faces.remove(FaceId::CONTENT_STORE);
        }
    }

    /// Sends an Interest for a hole. Returns whether the hole is yet to be filled.
    fn request_hole(&mut self, now: Instant, hole: &Hole, out: &mut Outbox) -> bool {
        let mut name = (*hole.object).clone();
        name.append_segment(hole.segment);
        let nonce = self.rng.next_u32();
        let interest = Interest::new(name).nonce(nonce).lifetime_ms(LIFETIME_MS);
        let packet = Packet::from(interest.encode());
        let Ok(interest) = InterestView::decode(&packet) else { return false };
        let hashes = self.hash_name(&PacketView::Interest(interest));
        let header = LpHeader::default();
        let received = ReceivedPacket::new(FaceId::CONTENT_STORE, &header, &packet);
        let Some(asked) = self.check(&received, &interest, &hashes, out) else { return false };
        if self.store.has_answer(now, &asked.query) {
            return false;
        }
        if asked.pending.is_some() {
            return true;
        }
        if let Some(index) = self.enter_pit(now, &received, &interest, &asked, out) {
            self.forward(now, index, Origin::of(&received), None, &interest, out);
        }
        true
    }
}
