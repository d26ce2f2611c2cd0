//! Receiving: from sockets and other threads to the batch of the shard.

use std::mem;

use weir_base::{FaceId, Instant, Packet};
use weir_face::{Datagram, UdpPath};
use weir_forward::{AnnouncedPacket, Command, Input};
use weir_hicn::HicnView;
use weir_hicn::control::{ControlView, MessageKind};
use weir_link::{AnnouncedData, PacketFormat, Received};
use weir_wire::{HopSignal, LpHeader, LpView, peek_frame};

use super::Worker;
use super::faces::{ReadEnd, Source};
use crate::cross::RingMessage;
use crate::message::{CloseReason, InternalPacket, ToControl};

/// Maximum number of sources read in one turn.
const SOURCES_PER_TURN: usize = 64;
/// After this many Interests from run frames, the other frames of a connection wait until all other
/// sources have been served. One read of run frames could yield 50,000 Interests.
const RUN_INTERESTS_MAX: usize = 1024;

/// Buffers for one read, reused by the next.
#[derive(Default)]
pub(super) struct ReadBuffers {
    frames: Vec<Packet>,
    datagrams: Vec<Datagram>,
}

impl Worker {
    /// Reads every ready source once. Each read is limited to one block or batch, so that no source
    /// starves the others.
    pub(super) fn read_ready(&mut self, now: Instant) {
        for _ in 0..self.faces.ready_len().min(SOURCES_PER_TURN) {
            let Some(source) = self.faces.next_ready() else {
                return;
            };
            let has_more = match source {
                Source::Face(slot) => self.read_face(now, slot),
                Source::Port(slot) => self.read_port(now, slot),
            };
            if has_more {
                self.faces.mark_ready(source);
            }
            // Forward at once. Otherwise many sources that lead to one face could fill its queue
            // while its socket would accept more.
            self.forward_full_batch(now);
        }
    }

    fn forward_full_batch(&mut self, now: Instant) {
        if self.shard.is_batch_full() {
            self.forward(now);
            self.flush(now);
        }
    }

    /// Reads a face's own socket once. Returns whether there may be more.
    fn read_face(&mut self, now: Instant, slot: u32) -> bool {
        let mut frames = mem::take(&mut self.buffers.frames);
        let Some(end) = self.faces.read(slot, &mut self.pool, &mut frames) else {
            self.buffers.frames = frames;
            return false;
        };
        // A closed connection gets no later turn, so all of its frames are processed now.
        let may_wait = !matches!(end, ReadEnd::Closed(_));
        let mut interests = 0;
        let mut frames_left = frames.drain(..);
        for frame in frames_left.by_ref() {
            interests += self.receive(now, slot, frame);
            if interests >= RUN_INTERESTS_MAX && may_wait {
                break;
            }
        }
        let is_unread = frames_left.len() > 0 && self.faces.keep_unread(slot, frames_left.by_ref());
        drop(frames_left);
        self.buffers.frames = frames;
        // `end` may be dropped: it is not `Closed`, and a later turn reads the socket again.
        if is_unread {
            return true;
        }
        for slot_to_close in self.faces.connections_to_shed(slot) {
            self.close_face(slot_to_close, CloseReason::Evicted);
        }
        match end {
            ReadEnd::Drained => self.faces.recheck_writable(slot),
            ReadEnd::More => return true,
            ReadEnd::Closed(reason) => self.end_face(now, slot, reason),
        }
        false
    }

    fn end_face(&mut self, now: Instant, slot: u32, reason: CloseReason) {
        if matches!(reason, CloseReason::FramingLost(_)) {
            self.stats.counters.framing_lost += 1;
        }
        // Packets before the end are forwarded while their face still exists.
        self.forward(now);
        // The forwarding above may have closed the face, because its socket failed.
        if self.faces.has_own_socket(slot) {
            self.close_face(slot, reason);
        }
    }

    /// Reads a shared port once. Returns whether there may be more.
    fn read_port(&mut self, now: Instant, port: u32) -> bool {
        let mut datagrams = mem::take(&mut self.buffers.datagrams);
        let end = self.faces.read_port(now, port, &mut self.pool, &mut datagrams);
        let removed = self.faces.removed();
        for Datagram { path, key, frame, .. } in datagrams.drain(..) {
            let known = match self.faces.removed() == removed {
                true => key.map(|slot| slot as u32),
                // A face was removed during this batch, so the slot that was looked up with the
                // batch may belong to another peer.
                false => self.faces.peer(port, path),
            };
            if let Some(slot) = known.or_else(|| self.admit_peer(now, port, path, &frame)) {
                self.receive(now, slot, frame);
            }
        }
        self.buffers.datagrams = datagrams;
        matches!(end, ReadEnd::More)
    }

    /// Processes one frame of a face. Returns the number of Interests if the frame was a run, else
    /// 0.
    #[inline]
    fn receive(&mut self, now: Instant, slot: u32, frame: Packet) -> usize {
        let Some((face, link)) = self.faces.receiving(slot) else {
            return 0;
        };
        let received = link.receive(now, frame, &mut self.pool);
        self.faces.note_received(slot, &received);
        match received {
            Received::Packet { header, packet } => self.dispatch(face, header, packet),
            Received::Announced(data) => self.dispatch_announced(face, *data),
            Received::Run => return self.receive_run(now, slot),
            Received::Signal(signal) => self.dispatch_signal(face, signal),
            Received::Control(message) => {
                self.send_internal(InternalPacket::HicnControl { face, message });
            }
            _ => {}
        }
        0
    }

    /// Adds the Interests of a run to the batch. Returns their number.
    #[inline(never)]
    fn receive_run(&mut self, now: Instant, slot: u32) -> usize {
        let mut count = 0;
        while let Some((face, header, packet)) = self.faces.next_in_run(now, slot, &mut self.pool) {
            count += 1;
            self.dispatch(face, header, packet);
            self.forward_full_batch(now);
        }
        self.faces.end_run(slot);
        count
    }

    /// Passes a packet to this thread's shard or to another's.
    #[inline]
    pub(super) fn dispatch(&mut self, face: FaceId, header: LpHeader, packet: Packet) {
        if let Some(siblings) = &mut self.siblings
            && let Some(shard) = siblings.shard_of(&header, &packet)
        {
            siblings.send_packet(shard, face, header, packet, &mut self.pool);
            return;
        }
        self.shard.push(Input::Packet { face, header, packet });
    }

    /// Passes Data with a prefix announcement to this thread's shard or to another's.
    #[cold]
    fn dispatch_announced(&mut self, face: FaceId, data: AnnouncedData) {
        let AnnouncedData { header, packet, announcement } = data;
        let siblings = self.siblings.as_ref();
        let shard = siblings.and_then(|siblings| siblings.shard_of(&header, &packet));
        let announced = Box::new(AnnouncedPacket { face, header, packet, announcement });
        match (shard, &mut self.siblings) {
            (Some(shard), Some(siblings)) => {
                let crossing = RingMessage::InAnnounced(announced);
                siblings.rings.push(shard, crossing, &mut self.pool);
            }
            _ => self.shard.push(Input::Announced(announced)),
        }
    }

    /// A neighbour's signal concerns every shard.
    fn dispatch_signal(&mut self, face: FaceId, signal: HopSignal) {
        self.shard.push(Input::Signal { face, signal });
        if let Some(siblings) = &mut self.siblings {
            siblings.send_signal(face, signal, &mut self.pool);
        }
    }

    /// Creates a face for an unknown peer, if its datagram is a valid packet. Further datagrams of
    /// the same batch find the face.
    fn admit_peer(&mut self, now: Instant, port: u32, path: UdpPath, frame: &[u8]) -> Option<u32> {
        if let Some(slot) = self.faces.peer(port, path) {
            return Some(slot);
        }
        // Garbage from unknown addresses must not create faces.
        let is_packet = match self.faces.format_of_peer(port, path.remote) {
            PacketFormat::Ndnlp => {
                matches!(peek_frame(frame), Ok(Some(len)) if len == frame.len())
                    && LpView::decode(frame).is_ok()
            }
            PacketFormat::Hicn(hicn) => {
                let is_request = || {
                    ControlView::decode(frame)
                        .is_ok_and(|message| message.kind == MessageKind::Request)
                };
                HicnView::decode(frame).is_ok() || (hicn.has_control && is_request())
            }
        };
        if !is_packet {
            self.stats.counters.unknown_peer_malformed += 1;
            return None;
        }
        let peer = path.remote;
        let claim = match self.admission.claim(now, peer.ip(), self.faces.table()) {
            Ok(claim) => claim,
            Err(refused) => {
                self.stats.counters.unknown_peer_refused += 1;
                if let (Some(siblings), Some(class)) = (&mut self.siblings, refused.evict_elsewhere)
                {
                    siblings.request_eviction(class);
                }
                if let Some(count) = refused.log {
                    let refusal = refused.refusal;
                    tracing::warn!(%peer, %refusal, count, "no face for a UDP peer");
                }
                return None;
            }
        };
        if let Some(evicted) = claim.evicted {
            self.close_face(evicted, CloseReason::Evicted);
        }
        let id = claim.id;
        let slot = self.faces.insert_peer(now, id, port, path);
        let attributes = self.faces.peer_attributes(port, path);
        self.shard.command(Command::AddFace { face: id, attributes });
        // Announce it in the command queues: other threads read them before their rings.
        if let Some(siblings) = &self.siblings {
            siblings.announce(id, attributes);
        }
        let port = self.faces.ports().id_of(port);
        self.control.send(ToControl::PeerFace { worker: self.index, id, port, path });
        Some(slot)
    }

    /// Handles messages that other threads had sent when [`ShardRings::note_lengths`] was called.
    ///
    /// [`ShardRings::note_lengths`]: crate::cross::ShardRings::note_lengths
    pub(super) fn take_ring_messages(&mut self, now: Instant) {
        while let Some(siblings) = &mut self.siblings
            && let Some(crossing) = siblings.rings.next_message(&mut self.pool)
        {
            match crossing {
                RingMessage::In { face, header, packet } => {
                    self.shard.push(Input::Packet { face, header, packet });
                }
                RingMessage::InAnnounced(announced) => {
                    self.shard.push(Input::Announced(announced));
                }
                RingMessage::OutAnnounced(crossing) => {
                    let (out, announcement) = *crossing;
                    self.deliver_announced(now, out, announcement);
                }
                RingMessage::Shard { from, message } => {
                    self.shard.push(Input::Shard { from, message });
                }
                RingMessage::Out(out) => {
                    self.enqueue(now, out);
                    if self.faces.has_much_unsent() {
                        self.flush(now);
                    }
                }
                RingMessage::SignalIn { face, signal } => {
                    self.shard.push(Input::Signal { face, signal });
                }
                RingMessage::SignalOut { face, signal } => self.signal(face, signal),
            }
            if self.shard.is_batch_full() {
                self.forward(now);
            }
        }
    }
}
