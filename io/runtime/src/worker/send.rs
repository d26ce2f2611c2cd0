//! From the shard to sockets.

use std::{io, mem};

use mio::Interest;
use weir_base::{FaceId, Instant};
use weir_face::{SendStatus, UdpPath};
use weir_forward::{Event, OutPacket};
use weir_wire::HopSignal;

use super::face::Socket;
use super::{BATCH_PACKETS, Source, UNSENT_BYTES_MAX, Worker};
use crate::cross::Crossing;
use crate::message::{CloseReason, InternalPacket, ToControl};
use crate::questions::Missed;

impl Worker {
    /// Hands the gathered inputs to the shard and queues what it sends.
    pub(super) fn process(&mut self, now: Instant) {
        if self.inputs.is_empty() {
            return;
        }
        let mut inputs = mem::take(&mut self.inputs);
        for batch in inputs.chunks_mut(BATCH_PACKETS) {
            match &mut self.blocking {
                Some(store) => store.handle(&mut self.router, now, batch, &mut self.outbox),
                None => self.router.handle(now, batch, &mut self.outbox),
            }
            self.send_packets(now);
        }
        inputs.clear();
        // Of faces that closed as they were sent to.
        inputs.append(&mut self.inputs);
        self.inputs = inputs;
        let mut signals = mem::take(&mut self.outbox.signals);
        for (face, signal) in signals.drain(..) {
            self.send_signal(face, signal);
        }
        self.outbox.signals = signals;
        self.submit_disk_ops();
        if !self.outbox.events.is_empty() {
            // Whoever is told that the store is flushed wants to know how that went.
            let is_flushed = |event: &Event| matches!(event, Event::StoreFlushed { .. });
            if self.outbox.events.iter().any(is_flushed) {
                self.report_disks_now(now);
            }
            for event in self.outbox.events.drain(..) {
                let worker = self.index;
                match event {
                    // Strangers cause them: never more than there is room for.
                    Event::Missed { ingress, is_local, object } => {
                        self.control.send_missed(Missed { ingress, is_local, object });
                    }
                    event => self.control.send(ToControl::Event { worker, event }),
                }
            }
        }
    }

    /// Queues what the shard sends.
    fn send_packets(&mut self, now: Instant) {
        if let Some(shards) = &mut self.shards {
            let from = self.index;
            for (to, message) in self.outbox.shard_messages.drain(..) {
                shards.ports.push(to, Crossing::Shard { from, message }, &mut self.pool);
            }
        }
        let mut packets = mem::take(&mut self.outbox.packets);
        for out in packets.drain(..) {
            self.send_packet(now, out);
        }
        self.outbox.packets = packets;
        self.flush_if_much(now);
    }

    #[inline]
    fn send_packet(&mut self, now: Instant, out: OutPacket) {
        if out.face == FaceId::INTERNAL {
            let internal = InternalPacket { header: out.header, packet: out.packet };
            if !self.control.send_internal(internal) {
                self.counters.management_overflow += 1;
            }
            return;
        }
        if let Some(shards) = &mut self.shards
            && let Some(&owner) = shards.owners.get(&out.face)
        {
            shards.ports.push(owner, Crossing::Out(out), &mut self.pool);
            return;
        }
        self.send_here(now, out);
    }

    /// Tells the router at the other end of a face what this shard says of itself.
    fn send_signal(&mut self, face: FaceId, signal: HopSignal) {
        if let Some(shards) = &mut self.shards
            && let Some(&owner) = shards.owners.get(&face)
        {
            shards.ports.push(owner, Crossing::SignalOut { face, signal }, &mut self.pool);
            return;
        }
        self.signal_here(face, signal);
    }

    pub(super) fn signal_here(&mut self, face: FaceId, signal: HopSignal) {
        let Some(slot) = self.faces.slot_of(face) else {
            return self.forward_signal(face, signal);
        };
        let Some(face) = self.faces.at(slot) else { return };
        // A refusal is counted by the link; a face that is down has no router at its other end.
        let is_down = matches!(face.socket, Socket::Down);
        if !is_down && face.link.enqueue_signal(signal).is_ok() {
            self.mark_dirty(slot);
        }
    }

    /// Queues a packet on a face of this thread.
    #[inline]
    pub(super) fn send_here(&mut self, now: Instant, out: OutPacket) {
        let Some(slot) = self.faces.slot_of(out.face) else {
            return self.forward_packet(out);
        };
        let Some(face) = self.faces.at(slot) else {
            return;
        };
        if matches!(face.socket, Socket::Down) {
            face.down_drops += 1;
            return;
        }
        self.unsent_bytes += out.packet.len();
        // A refusal is counted by the link.
        if face.link.enqueue(now, out.header, out.packet).is_ok() && !face.is_dirty {
            face.is_dirty = true;
            self.dirty.push(slot);
        }
    }

    /// The Interests of one read may ask for more than the queue of a face takes: it goes to the
    /// socket meanwhile, so that nothing is dropped for which there is room.
    #[inline]
    pub(super) fn flush_if_much(&mut self, now: Instant) {
        if self.unsent_bytes >= UNSENT_BYTES_MAX {
            self.flush(now);
        }
    }

    /// Gives every face's queue to its socket, once a turn or a batch.
    pub(super) fn flush(&mut self, now: Instant) {
        self.unsent_bytes = 0;
        let mut dirty = mem::take(&mut self.dirty);
        for slot in dirty.drain(..) {
            self.flush_face(now, slot);
            self.bound_egress(slot);
        }
        self.dirty = dirty;
        if let Some(shards) = &mut self.shards {
            shards.ports.wake_pending();
        }
        self.flush_disks();
    }

    fn flush_face(&mut self, now: Instant, slot: u32) {
        let Some(face) = self.faces.at(slot) else {
            return;
        };
        face.is_dirty = false;
        if face.link.is_reliable() {
            face.link.tell_time(now);
        }
        // A discipline may hold packets back.
        if let Some(at) = face.link.next_wakeup() {
            self.timers.schedule(slot, at);
        }
        let status = match &mut face.socket {
            // Asking again would cost a system call for each batch that a deaf peer asks for.
            Socket::Own(_) if face.is_full => Ok(SendStatus::WouldBlock),
            Socket::Own(socket) => socket.send(&mut face.link),
            Socket::Peer { port, path } => {
                let (port_slot, path) = (*port, *path);
                return self.flush_peer(now, slot, port_slot, path);
            }
            Socket::Down => {
                face.link.discard_all();
                return;
            }
        };
        match status {
            Ok(SendStatus::Drained) => {
                face.blocked = None;
                self.await_writable(slot, false);
            }
            Ok(SendStatus::WouldBlock) => {
                face.is_full = true;
                face.note_blocked(now);
                face.link.detach_frames(&mut self.pool);
                self.await_writable(slot, true);
            }
            Ok(SendStatus::RingBroken) => self.close_socket(slot, CloseReason::RingBroken),
            Err(error) => self.close_socket(slot, CloseReason::Failed(error.to_string())),
        }
    }

    /// Changes, where it must, whether the kernel tells when a socket is writable. Always
    /// asking would wake the thread each time the peer reads.
    fn await_writable(&mut self, slot: u32, awaits: bool) {
        let Some(face) = self.faces.at(slot) else {
            return;
        };
        let Socket::Own(socket) = &mut face.socket else {
            return;
        };
        if face.awaits_writable == awaits {
            return;
        }
        face.awaits_writable = awaits;
        let interest =
            if awaits { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        let token = Source::Face(slot).token();
        if let Err(error) = self.poll.registry().reregister(socket, token, interest) {
            self.close_socket(slot, CloseReason::Failed(error.to_string()));
        }
    }

    /// A UDP port fails, which others may have brought about.
    pub(super) fn note_port_error(&mut self, now: Instant, error: &io::Error) {
        self.counters.port_errors += 1;
        if let Some(count) = self.port_failures.add(now) {
            tracing::error!(%error, count, "a UDP port is broken");
        }
    }

    fn flush_peer(&mut self, now: Instant, slot: u32, port_slot: u32, path: UdpPath) {
        let (Some(face), Some(port)) = (self.faces.at(slot), self.ports.get_mut(port_slot)) else {
            return;
        };
        let is_blocked = match port.socket.send(path, &mut face.link) {
            Ok(SendStatus::Drained) => false,
            Ok(SendStatus::WouldBlock | SendStatus::RingBroken) => true,
            Err(error) => {
                face.link.discard_all();
                return self.note_port_error(now, &error);
            }
        };
        if is_blocked || face.link.is_reliable() {
            face.link.detach_frames(&mut self.pool);
        }
        if face.link.is_reliable()
            && let Some(at) = face.link.next_wakeup()
        {
            self.timers.schedule(slot, at);
        }
        if is_blocked && !mem::replace(&mut face.awaits_writable, true) {
            port.blocked.push(slot);
        }
        let awaits = !port.blocked.is_empty();
        if port.awaits_writable == awaits {
            return;
        }
        port.awaits_writable = awaits;
        let interest =
            if awaits { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        let token = Source::Port(port_slot).token();
        if let Err(error) = self.poll.registry().reregister(&mut port.socket, token, interest) {
            self.counters.port_errors += 1;
            tracing::error!(%error, "watching a UDP port");
        }
    }
}
