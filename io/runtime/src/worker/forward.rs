//! From the batch through the shard to the targets of its outbox: faces of this thread, other
//! threads, disks, and the control thread. This is the lowest layer of the worker; nothing here
//! reads sockets.

use std::mem;

use weir_base::{FaceId, Instant, Packet};
use weir_forward::{Command, Event, OutPacket};
use weir_wire::HopSignal;

use super::Worker;
use super::faces::{ClosedFace, FlushEvent};
use super::shard::Shard;
use crate::contents_request::Miss;
use crate::cross::RingMessage;
use crate::face::Face;
use crate::message::{CloseReason, InternalPacket, ToControl};

impl Worker {
    /// Passes the batch to the shard, and delivers its outbox.
    pub(super) fn forward(&mut self, now: Instant) {
        if !self.shard.has_inputs() {
            return;
        }
        let mut inputs = self.shard.begin_round();
        for batch in Shard::batches(&mut inputs) {
            self.shard.handle(now, batch);
            self.deliver_messages();
            self.deliver_packets(now);
        }
        self.shard.end_round(inputs);
        self.deliver_signals();
        if let Some(disks) = &mut self.disks {
            disks.submit(self.shard.outbox.disk_ops.drain(..));
        }
        if !self.shard.outbox.events.is_empty() {
            self.deliver_events(now);
        }
    }

    fn deliver_messages(&mut self) {
        if let Some(siblings) = &mut self.siblings {
            for (to, message) in self.shard.outbox.shard_messages.drain(..) {
                siblings.send_message(to, message, &mut self.pool);
            }
        }
    }

    fn deliver_packets(&mut self, now: Instant) {
        if !self.shard.outbox.announcements.is_empty() {
            return self.deliver_with_announcements(now);
        }
        let mut packets = mem::take(&mut self.shard.outbox.packets);
        for out in packets.drain(..) {
            self.deliver_packet(now, out);
        }
        self.shard.outbox.packets = packets;
        if self.faces.has_much_unsent() {
            self.flush(now);
        }
    }

    /// [`Self::deliver_packets`] when some Data leaves with a prefix announcement.
    #[cold]
    #[inline(never)]
    fn deliver_with_announcements(&mut self, now: Instant) {
        let mut announcements = mem::take(&mut self.shard.outbox.announcements);
        announcements.sort_by_key(|(position, _)| *position);
        let mut announcements = announcements.into_iter().peekable();
        let packets = mem::take(&mut self.shard.outbox.packets);
        for (position, out) in packets.into_iter().enumerate() {
            match announcements.next_if(|(announced, _)| *announced == position) {
                None => self.deliver_packet(now, out),
                Some((_, announcement)) => self.deliver_announced(now, out, announcement),
            }
        }
        if self.faces.has_much_unsent() {
            self.flush(now);
        }
    }

    /// Delivers Data with a prefix announcement to its face.
    #[cold]
    pub(super) fn deliver_announced(&mut self, now: Instant, out: OutPacket, announcement: Packet) {
        if let Some(slot) = self.faces.table().slot_of(out.face) {
            return self.faces.enqueue_announced(now, slot, out, &announcement);
        }
        match &mut self.siblings {
            Some(siblings) if let Some(owner) = siblings.owner_of(out.face) => {
                let crossing = RingMessage::OutAnnounced(Box::new((out, announcement)));
                siblings.rings.push(owner, crossing, &mut self.pool);
            }
            _ => self.stats.counters.face_gone += 1,
        }
    }

    #[inline]
    fn deliver_packet(&mut self, now: Instant, out: OutPacket) {
        if out.face < FaceId::FIRST {
            return self.deliver_reserved(out);
        }
        if let Some(siblings) = &mut self.siblings
            && let Some(owner) = siblings.owner_of(out.face)
        {
            siblings.rings.push(owner, RingMessage::Out(out), &mut self.pool);
            return;
        }
        self.enqueue(now, out);
    }

    /// Passes a packet to the manager, or drops it at the null face.
    #[cold]
    fn deliver_reserved(&mut self, out: OutPacket) {
        if out.face == FaceId::INTERNAL {
            self.send_internal(InternalPacket::Ndn { header: out.header, packet: out.packet });
        } else {
            self.stats.counters.null_face += 1;
        }
    }

    /// Passes a packet to the manager.
    pub(super) fn send_internal(&mut self, internal: InternalPacket) {
        if !self.control.send_internal(internal) {
            self.stats.counters.management_overflow += 1;
        }
    }

    /// Queues a packet on a face of this thread. The face may have moved to another thread or be
    /// gone.
    #[inline]
    pub(super) fn enqueue(&mut self, now: Instant, out: OutPacket) {
        let Some(slot) = self.faces.table().slot_of(out.face) else {
            return self.forward_to_owner(out);
        };
        self.faces.enqueue(now, slot, out.header, out.packet);
    }

    #[cold]
    fn forward_to_owner(&mut self, out: OutPacket) {
        match &mut self.siblings {
            Some(siblings) if let Some(owner) = siblings.owner_of(out.face) => {
                siblings.rings.push(owner, RingMessage::Out(out), &mut self.pool);
            }
            _ => self.stats.counters.face_gone += 1,
        }
    }

    fn deliver_signals(&mut self) {
        let mut signals = mem::take(&mut self.shard.outbox.signals);
        for (face, signal) in signals.drain(..) {
            self.signal(face, signal);
        }
        self.shard.outbox.signals = signals;
    }

    /// Sends a signal to the neighbour at a face, through the thread that owns the face.
    pub(super) fn signal(&mut self, face: FaceId, signal: HopSignal) {
        if let Some(slot) = self.faces.table().slot_of(face) {
            self.faces.enqueue_signal(slot, signal);
        } else if let Some(siblings) = &mut self.siblings
            && let Some(owner) = siblings.owner_of(face)
        {
            siblings.rings.push(owner, RingMessage::SignalOut { face, signal }, &mut self.pool);
        }
    }

    #[cold]
    fn deliver_events(&mut self, now: Instant) {
        // The flush event must find current statistics at the control thread.
        let is_flushed = |event: &Event| matches!(event, Event::StoreFlushed { .. });
        if self.shard.outbox.events.iter().any(is_flushed) {
            self.report_disks(now);
        }
        let mut events = mem::take(&mut self.shard.outbox.events);
        for event in events.drain(..) {
            match event {
                // Remote hosts cause misses, so their queue is bounded.
                Event::Missed { ingress, is_local, object } => {
                    self.control.send_miss(Miss { ingress, is_local, object });
                }
                // Remote hosts cause these as well. They leave space in the queue for commands.
                Event::Announced { .. } | Event::RouteRefused { .. } => {
                    let internal = InternalPacket::Learning(event);
                    if !self.control.send_internal(internal) {
                        self.stats.counters.management_overflow += 1;
                    }
                }
                Event::AnnouncementNeeded { prefix } => {
                    let event = Event::AnnouncementNeeded { prefix: prefix.clone() };
                    if !self.control.send_internal(InternalPacket::Learning(event)) {
                        // The Data that waits leaves without an announcement.
                        self.stats.counters.management_overflow += 1;
                        self.shard.command(Command::SetAnnouncement { prefix, announcement: None });
                    }
                }
                event => self.control.send(ToControl::Event { worker: self.index, event }),
            }
        }
        self.shard.outbox.events = events;
    }

    /// Sends the control thread the statistics of the shard's disks.
    pub(super) fn report_disks(&mut self, now: Instant) {
        let Some(disks) = &mut self.disks else { return };
        let stats = Box::new(self.shard.disk_stats());
        disks.note_report(now, &stats);
        self.control.send(ToControl::Disks { worker: self.index, stats });
    }

    /// Sends every face's queue, wakes other threads, and starts disk operations. Called once a
    /// turn or a batch.
    pub(super) fn flush(&mut self, now: Instant) {
        while let Some(event) = self.faces.flush(now, &mut self.pool) {
            match event {
                FlushEvent::Failed(slot, reason) => self.close_face(slot, reason),
                FlushEvent::Stalled(slots) => {
                    for slot in slots {
                        self.close_stalled(now, slot);
                    }
                }
            }
        }
        if let Some(siblings) = &mut self.siblings {
            siblings.rings.wake_pending();
        }
        if let Some(disks) = &mut self.disks {
            disks.flush();
        }
    }

    pub(super) fn close_stalled(&mut self, now: Instant, slot: u32) {
        let Some(face) = self.faces.table().get(slot).map(|face| face.id.0) else { return };
        self.close_face(slot, CloseReason::Stalled);
        self.stats.log_stall(now, face);
    }

    /// Closes a face's socket. A permanent face keeps its next hops and waits for a new socket.
    /// Other faces are removed.
    pub(super) fn close_face(&mut self, slot: u32, reason: CloseReason) {
        if let Some(face) = self.faces.table().get(slot) {
            self.stats.add_closed_socket(&face.socket);
        }
        let (id, removed) = match self.faces.close(slot) {
            Some(ClosedFace::Down(id)) => (id, false),
            Some(ClosedFace::Removed(face)) => {
                self.remove_from_shard(&face);
                (face.id, true)
            }
            None => return,
        };
        self.stats.note_closed(&reason);
        self.control.send(ToControl::FaceClosed { id, reason, removed });
    }

    /// Removes a face that this thread no longer has from the shard.
    pub(super) fn remove_from_shard(&mut self, face: &Face) {
        self.stats.add_removed_face(face);
        self.shard.command(Command::RemoveFace { face: face.id });
    }
}
