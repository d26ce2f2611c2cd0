//! Timers of links: for reassembly, reliability, queue disciplines and shaping.

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

    /// Polls the next link whose timer has expired. [`Self::take_released`] and
    /// [`Self::reschedule`] must follow.
    pub(in crate::worker) fn next_expired(&mut self, now: Instant) -> Option<u32> {
        loop {
            let slot = self.expired.pop()?;
            let Some(face) = self.table.at(slot) else { continue };
            face.link.poll(now);
            self.memory.recount_reassembly(face);
            if face.link.is_shaping() {
                // The kernel may have drained the socket's send queue since the last measurement,
                // which only a send would repeat.
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

    /// The next Interest that shaping has released.
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
