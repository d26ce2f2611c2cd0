//! Sending: from queues to sockets.

use std::mem;

use weir_base::{Instant, Packet, Pool};
use weir_face::{SendStatus, UdpPath};
use weir_forward::OutPacket;
use weir_link::LinkDrop;
use weir_wire::{HopSignal, LpHeader};

use super::source::interest;
use super::{Faces, Source, failed};
use crate::face::{Face, FaceSocket};
use crate::message::CloseReason;

/// Above this many queued bytes, the queues are flushed before the turn ends.
const UNSENT_BYTES_MAX: usize = 256 << 10;

/// A flush result that the worker must handle.
pub(in crate::worker) enum FlushEvent {
    /// The socket in this slot failed, so the face must be closed.
    Failed(u32, CloseReason),
    /// All queues together are too long. These connections, which have accepted nothing for
    /// longest, must be closed.
    Stalled(Vec<u32>),
}

impl Faces {
    /// Queues a packet on a face.
    #[inline]
    pub(in crate::worker) fn enqueue(
        &mut self,
        now: Instant,
        slot: u32,
        header: LpHeader,
        packet: Packet,
    ) {
        let len = packet.len();
        let Some(face) = self.face_to_send(slot, len) else { return };
        // The link counts a refusal.
        match face.link.enqueue(now, header, packet) {
            Ok(()) if !face.is_dirty => {
                face.is_dirty = true;
                self.dirty.push_back(slot);
            }
            Err(LinkDrop::TooLargeForMtu) => self.log_too_large(now, slot, len),
            _ => {}
        }
    }

    /// The face for a packet of this length, unless it is down. Counts the packet.
    #[inline(always)]
    fn face_to_send(&mut self, slot: u32, len: usize) -> Option<&mut Face> {
        let face = self.table.at(slot)?;
        if matches!(face.socket, FaceSocket::Down) {
            face.down_drops += 1;
            return None;
        }
        self.unsent_bytes += len;
        Some(face)
    }

    /// Queues Data with its prefix announcement on a face.
    #[cold]
    pub(in crate::worker) fn enqueue_announced(
        &mut self,
        now: Instant,
        slot: u32,
        out: OutPacket,
        announcement: &Packet,
    ) {
        let len = out.packet.len() + announcement.len();
        let Some(face) = self.face_to_send(slot, len) else { return };
        // The link counts a refusal.
        match face.link.enqueue_announced(now, out.header, out.packet, announcement) {
            Err(LinkDrop::TooLargeForMtu) => self.log_too_large(now, slot, len),
            _ => self.mark_dirty(slot),
        }
    }

    /// Logs a packet that its face cannot carry. The producer gets no error, and its consumers see
    /// only missing Data.
    #[cold]
    #[inline(never)]
    fn log_too_large(&mut self, now: Instant, slot: u32, packet_bytes: usize) {
        let Some(face) = self.table.at(slot) else { return };
        if let Some(count) = self.too_large.add(now) {
            tracing::warn!(
                face = face.id.0,
                mtu = face.link.config().codec.mtu,
                packet_bytes,
                count,
                "dropping packets that are longer than the MTU of a face: raise its `mtu`, or \
                 lower the `segment_size` of the producer"
            );
        }
    }

    /// Queues a signal to the router at the other end of a face.
    pub(in crate::worker) fn enqueue_signal(&mut self, slot: u32, signal: HopSignal) {
        let Some(face) = self.table.at(slot) else { return };
        // The link counts a refusal. If the face is down, there is no router to receive the signal.
        let is_down = matches!(face.socket, FaceSocket::Down);
        if !is_down && face.link.enqueue_signal(signal).is_ok() {
            self.mark_dirty(slot);
        }
    }

    /// Queues a control message of hicn-light. `has_routes`: the face has routes now.
    pub(in crate::worker) fn enqueue_control(
        &mut self,
        slot: u32,
        message: Packet,
        has_routes: bool,
    ) {
        let Some(face) = self.table.at(slot) else { return };
        face.has_routes = has_routes;
        // The link counts a refusal. The program will send its request again, or fail.
        if face.link.enqueue_control(message).is_ok() {
            self.mark_dirty(slot);
        }
    }

    /// See [`Face::extend_idle`](crate::face::Face::extend_idle).
    pub(in crate::worker) fn extend_idle(&mut self, now: Instant, slot: u32) -> bool {
        self.table.at(slot).is_some_and(|face| face.extend_idle(now))
    }

    /// Whether the queues should be flushed before the turn ends. The Interests of one read may
    /// request more Data than a face's queue holds, although its socket would accept it.
    #[inline]
    pub(in crate::worker) fn has_much_unsent(&self) -> bool {
        self.unsent_bytes >= UNSENT_BYTES_MAX
    }

    /// Sends the queues of faces, up to the first result that the worker must handle. `None` when
    /// all queues are flushed.
    pub(in crate::worker) fn flush(&mut self, now: Instant, pool: &mut Pool) -> Option<FlushEvent> {
        self.unsent_bytes = 0;
        while let Some(slot) = self.dirty.pop_front() {
            if let Err(reason) = self.flush_face(now, slot, pool) {
                return Some(FlushEvent::Failed(slot, reason));
            }
            if let Some(face) = self.table.at(slot)
                && self.memory.recount_egress(face)
            {
                let stalled = self.memory.shed_egress(&mut self.table);
                if !stalled.is_empty() {
                    return Some(FlushEvent::Stalled(stalled));
                }
            }
        }
        None
    }

    fn flush_face(&mut self, now: Instant, slot: u32, pool: &mut Pool) -> Result<(), CloseReason> {
        let Some(face) = self.table.at(slot) else { return Ok(()) };
        face.is_dirty = false;
        if face.link.is_reliable() {
            face.link.set_now(now);
        }
        // A discipline may hold packets back until this time.
        if let Some(at) = face.link.next_wakeup() {
            self.timers.schedule(slot, at);
        }
        let status = match &mut face.socket {
            // The socket is still full. Another attempt would cost a system call for each batch
            // that an unresponsive peer requests.
            FaceSocket::Own(_) if face.is_socket_full => SendStatus::WouldBlock,
            FaceSocket::Own(socket) => socket.send(&mut face.link).map_err(failed)?,
            &mut FaceSocket::Peer { port, path } => {
                self.flush_peer(now, slot, port, path, pool);
                return Ok(());
            }
            FaceSocket::Down => {
                face.link.discard_all();
                return Ok(());
            }
        };
        match status {
            SendStatus::Drained => {
                face.note_drained();
                self.watch_writable(slot, false)
            }
            SendStatus::WouldBlock => {
                face.note_blocked(now);
                // Waiting frames must not keep the large blocks that they were received into.
                face.link.detach_frames(pool);
                self.watch_writable(slot, true)
            }
            SendStatus::RingBroken => Err(CloseReason::RingBroken),
        }
    }

    /// Enables or disables writability events for a face's own socket, if that changes.
    fn watch_writable(&mut self, slot: u32, awaits: bool) -> Result<(), CloseReason> {
        let Some(face) = self.table.at(slot) else { return Ok(()) };
        let FaceSocket::Own(socket) = &mut face.socket else { return Ok(()) };
        if mem::replace(&mut face.awaits_writable, awaits) == awaits {
            return Ok(());
        }
        let token = Source::Face(slot).token();
        self.poll.registry().reregister(socket, token, interest(awaits)).map_err(failed)
    }

    fn flush_peer(&mut self, now: Instant, slot: u32, port: u32, path: UdpPath, pool: &mut Pool) {
        let Some(face) = self.table.at(slot) else { return };
        let is_blocked = match self.ports.send(port, path, &mut face.link) {
            Ok(is_blocked) => is_blocked,
            Err(error) => {
                face.link.discard_all();
                return self.ports.note_failure(now, &error);
            }
        };
        // Frames that wait or are not acknowledged must not keep large receive blocks in use.
        if is_blocked || face.link.is_reliable() {
            face.link.detach_frames(pool);
        }
        // On a reliable link, sending has started retransmission timers.
        if face.link.is_reliable()
            && let Some(at) = face.link.next_wakeup()
        {
            self.timers.schedule(slot, at);
        }
        if is_blocked && !mem::replace(&mut face.awaits_writable, true) {
            self.ports.add_blocked(port, slot);
        }
        self.ports.watch_writable(port, self.poll.registry());
    }

    /// Before the thread ends: sends what the sockets accept at once.
    pub(in crate::worker) fn flush_at_exit(&mut self) {
        for face in self.table.iter_mut() {
            if let FaceSocket::Own(socket) = &mut face.socket {
                let _ = socket.send(&mut face.link);
            }
        }
    }
}
