//! Links that must be polled: for reassembly, reliability, disciplines and shaping.

use weir_base::{FaceId, Instant, Packet};
use weir_wire::LpHeader;

use super::Faces;
use crate::face::FaceSocket;

impl Faces {
    pub(in crate::worker) fn next_wakeup(&self) -> Option<Instant> {
        self.timers.next_wakeup()
    }

    pub(in crate::worker) fn advance_timers(&mut self, now: Instant) {
        self.timers.advance(now, &mut self.expired);
    }

    /// Polls the link whose timer expired next. [`Self::take_released`] and [`Self::reschedule`]
    /// follow.
    pub(in crate::worker) fn next_expired(&mut self, now: Instant) -> Option<u32> {
        loop {
            let slot = self.expired.pop()?;
            let Some(face) = self.table.at(slot) else { continue };
            face.link.poll(now);
            self.memory.recount_reassembly(face);
            if face.link.is_shaping() {
                // Nothing may have been sent since the socket was asked.
                match &mut face.socket {
                    FaceSocket::Own(socket) => socket.tell_backlog(&mut face.link),
                    FaceSocket::Peer { port, .. } => {
                        self.ports.report_backlog(*port, &mut face.link);
                    }
                    FaceSocket::Down => {}
                }
            }
            return Some(slot);
        }
    }

    /// The next Interest that shaping held back and that may be forwarded now.
    pub(in crate::worker) fn take_released(
        &mut self,
        now: Instant,
        slot: u32,
    ) -> Option<(FaceId, LpHeader, Packet)> {
        let face = self.table.at(slot)?;
        let (header, packet) = face.link.take_released(now)?;
        Some((face.id, header, packet))
    }

    pub(in crate::worker) fn reschedule(&mut self, slot: u32) {
        let Some(face) = self.table.at(slot) else { return };
        if let Some(at) = face.link.next_wakeup() {
            self.timers.schedule(slot, at);
        }
        if !face.link.is_egress_empty() {
            self.mark_dirty(slot);
        }
    }
}
