//! From sockets to the shard.

use std::mem;

use weir_base::{FaceId, Instant, Packet};
use weir_face::{RecvStatus, UdpPath};
use weir_forward::{Command, FaceScope, Input};
use weir_link::{Link, Received};
use weir_manage::FacePersistency;
use weir_wire::{HopSignal, LpHeader, LpView, peek_frame};

use super::face::{Face, Socket};
use super::{BATCH_PACKETS, SOURCES_PER_TURN, Source, Worker};
use crate::cross::Crossing;
use crate::message::{CloseReason, NewSocket, ToControl, ToWorker};

/// Interests in runs of one connection from which on its other frames wait until all other sources
/// have had their turn: a block of runs would make fifty thousand.
const RUN_INTERESTS_MAX: usize = 1024;

impl Worker {
    /// Reads every source that is ready once: each brings at most one block or batch, so that none
    /// starves the others.
    pub(super) fn read_ready(&mut self, now: Instant) {
        for _ in 0..self.ready.len().min(SOURCES_PER_TURN) {
            let Some(source) = self.ready.pop_front() else {
                return;
            };
            let has_more = match source {
                Source::Face(slot) => self.read_face(now, slot),
                Source::Port(slot) => self.read_port(now, slot),
            };
            if has_more {
                self.ready.push_back(source);
            }
            if self.inputs.len() >= BATCH_PACKETS {
                // Sent on at once: many sources that lead to one face must not fill its queue while
                // its socket would take more.
                self.process(now);
                self.flush(now);
            }
        }
    }

    /// Whether there may be more to read.
    fn read_face(&mut self, now: Instant, slot: u32) -> bool {
        let Some(face) = self.faces.at(slot) else {
            return false;
        };
        face.is_ready = false;
        let Socket::Own(socket) = &mut face.socket else {
            return false;
        };
        let mut frames = mem::take(&mut self.frames);
        let status = match face.unread.is_empty() {
            true => socket.recv(&mut self.pool, &mut frames),
            false => {
                mem::swap(&mut frames, &mut face.unread);
                Ok(RecvStatus::More)
            }
        };
        let may_wait = matches!(status, Ok(RecvStatus::Drained | RecvStatus::More));
        let mut interests = 0;
        let mut frames_left = frames.drain(..);
        for frame in frames_left.by_ref() {
            interests += self.receive(now, slot, frame);
            if interests >= RUN_INTERESTS_MAX && may_wait {
                break;
            }
        }
        if frames_left.len() > 0
            && let Some(face) = self.faces.at(slot)
        {
            face.unread.extend(frames_left);
            face.is_ready = true;
            self.frames = frames;
            return true;
        }
        drop(frames_left);
        self.frames = frames;
        if let Some(face) = self.faces.at(slot)
            && self.memory.recount_connection(face)
        {
            self.shed_connections();
        }
        let reason = match status {
            Ok(RecvStatus::Drained) => {
                self.note_room(slot);
                return false;
            }
            Ok(RecvStatus::More) => {
                if let Some(face) = self.faces.at(slot) {
                    face.is_ready = true;
                }
                return true;
            }
            Ok(RecvStatus::Closed) => CloseReason::PeerClosed,
            Ok(RecvStatus::FramingLost(error)) => {
                self.counters.framing_lost += 1;
                CloseReason::FramingLost(error.to_string())
            }
            Ok(RecvStatus::RingBroken) => CloseReason::RingBroken,
            Err(error) => CloseReason::Failed(error.to_string()),
        };
        // What came before the end is forwarded as coming from a face that still exists.
        self.process(now);
        // Its socket may have failed as it was sent to.
        if self.faces.at(slot).is_some_and(|face| matches!(face.socket, Socket::Own(_))) {
            self.close_socket(slot, reason);
        }
        false
    }

    /// What was read from a face may have told that there is room to send again, and nothing else
    /// may ever tell it.
    fn note_room(&mut self, slot: u32) {
        if let Some(face) = self.faces.at(slot)
            && face.is_full
            && let Socket::Own(socket) = &face.socket
            && socket.has_room_again()
        {
            face.is_full = false;
            self.mark_dirty(slot);
        }
    }

    /// Whether there may be more to read.
    fn read_port(&mut self, now: Instant, slot: u32) -> bool {
        let Some(port) = self.ports.get_mut(slot) else {
            return false;
        };
        port.is_ready = false;
        let mut datagrams = mem::take(&mut self.datagrams);
        let status = port.socket.recv(&mut self.pool, &mut datagrams);
        let displaced = self.counters.faces_displaced;
        for datagram in datagrams.drain(..) {
            let key = match self.counters.faces_displaced == displaced {
                true => datagram.key,
                // A slot that was looked up with the batch may be another peer's by now.
                false => self.ports[slot].socket.peer_key(datagram.path),
            };
            let known = key.map(|slot| slot as u32);
            let face = known
                .or_else(|| self.face_of_unknown_peer(now, slot, datagram.path, &datagram.frame));
            if let Some(face) = face {
                self.receive(now, face, datagram.frame);
            }
        }
        self.datagrams = datagrams;
        match status {
            Ok(RecvStatus::More) => {
                if let Some(port) = self.ports.get_mut(slot) {
                    port.is_ready = true;
                }
                true
            }
            Ok(_) => false,
            Err(error) => {
                self.note_port_error(now, &error);
                false
            }
        }
    }

    /// One frame from a face, into the batch for the shard. Returns how many Interests it stood
    /// for, if it was a run.
    #[inline]
    fn receive(&mut self, now: Instant, slot: u32, frame: Packet) -> usize {
        let Some(face) = self.faces.at(slot) else {
            return 0;
        };
        let mut interests = 0;
        let received = face.link.receive(now, frame, &mut self.pool);
        let has_too_many_partials = self.memory.recount_reassembly(face);
        let has_changed = face.link.is_reliable() || face.link.is_shaping();
        match received {
            Received::Packet { header, packet } => {
                let id = face.id;
                self.hand_to_shard(id, header, packet);
            }
            Received::Run => interests = self.take_run(now, slot),
            Received::Offer(_) => self.mark_dirty(slot),
            Received::Partial => {
                if let Some(at) = face.link.next_wakeup() {
                    self.timers.schedule(slot, at);
                }
                if has_too_many_partials {
                    self.shed_reassembly();
                }
            }
            Received::Signal(signal) => {
                let id = face.id;
                self.hand_to_all_shards(id, signal);
            }
            Received::Held | Received::Idle | Received::Drop(_) => {}
        }
        if has_changed {
            // What it has to send goes, its timers are set and its memory is counted when it is
            // flushed.
            self.mark_dirty(slot);
        }
        interests
    }

    /// The Interests of a run, into the batch for the shard, and how many they are.
    #[inline(never)]
    fn take_run(&mut self, now: Instant, slot: u32) -> usize {
        let mut count = 0;
        while let Some(face) = self.faces.at(slot)
            && let Some((header, packet)) = face.link.next_in_run(now, &mut self.pool)
        {
            let id = face.id;
            count += 1;
            self.hand_to_shard(id, header, packet);
            if self.inputs.len() >= BATCH_PACKETS {
                self.process(now);
                self.flush(now);
            }
        }
        count
    }

    /// Interests that were held and may go on, into the batch for the shard.
    pub(super) fn take_released(&mut self, now: Instant, slot: u32) {
        let Some(face) = self.faces.at(slot) else { return };
        if face.link.is_shaping() {
            // Nothing may have been sent since the socket was asked.
            match &mut face.socket {
                Socket::Own(socket) => socket.tell_backlog(&mut face.link),
                Socket::Peer { port, .. } => {
                    if let Some(port) = self.ports.get_mut(*port) {
                        port.socket.tell_backlog(&mut face.link);
                    }
                }
                Socket::Down => {}
            }
        }
        let id = face.id;
        while let Some(face) = self.faces.at(slot)
            && let Some((header, packet)) = face.link.take_released(now)
        {
            self.hand_to_shard(id, header, packet);
            if self.inputs.len() >= BATCH_PACKETS {
                self.process(now);
            }
        }
    }

    /// What a neighbour says of itself concerns every shard.
    fn hand_to_all_shards(&mut self, face: FaceId, signal: HopSignal) {
        self.inputs.push(Input::Signal { face, signal });
        if let Some(shards) = &mut self.shards {
            for index in (0..shards.count).filter(|&index| index != self.index) {
                shards.ports.push(index, Crossing::SignalIn { face, signal }, &mut self.pool);
            }
        }
    }

    /// To this thread's shard or to another's.
    #[inline]
    pub(super) fn hand_to_shard(&mut self, face: FaceId, header: LpHeader, packet: Packet) {
        if let Some(shards) = &mut self.shards
            && let Some(shard) = shards.shard_of(&header, &packet)
            && shard != self.index
        {
            shards.ports.push(shard, Crossing::In { face, header, packet }, &mut self.pool);
            return;
        }
        self.inputs.push(Input::Packet { face, header, packet });
    }

    /// An unknown peer gets a face when what it sent is a packet. Later datagrams of one batch find
    /// it.
    fn face_of_unknown_peer(
        &mut self,
        now: Instant,
        port_slot: u32,
        path: UdpPath,
        frame: &[u8],
    ) -> Option<u32> {
        if let Some(slot) = self.ports[port_slot].socket.peer_key(path) {
            return Some(slot as u32);
        }
        let is_packet = matches!(peek_frame(frame), Ok(Some(len)) if len == frame.len());
        if !is_packet || LpView::decode(frame).is_err() {
            self.counters.unknown_peer_malformed += 1;
            return None;
        }
        let peer = path.remote;
        let id = match self.claim_for_peer(now, peer.ip()) {
            Ok(id) => id,
            Err(refusal) => {
                self.counters.unknown_peer_refused += 1;
                if let Some(count) = self.refusals.add(now) {
                    tracing::warn!(%peer, %refusal, count, "a UDP peer gets no face");
                }
                return None;
            }
        };
        let port = &self.ports[port_slot];
        let (port_id, token) = (port.id, port.links.pit_token);
        let link = Link::new(port.links.of(peer).clone());
        let socket = Socket::Peer { port: port_slot, path };
        let mut face = Face::new(id, link, socket, FacePersistency::OnDemand, now);
        face.peer = Some(peer.ip());
        let slot = self.faces.insert(face);
        self.ports[port_slot].socket.add_peer(path, u64::from(slot));
        let attributes = NewSocket::Peer { port: port_id, path };
        let attributes = attributes.attributes(FaceScope::NonLocal, token);
        self.inputs.push(Input::Command(Command::AddFace { face: id, attributes }));
        if let Some(shards) = &self.shards {
            // Through the command queues, which lose nothing; shards read them before the rings.
            for (index, sibling) in shards.siblings.iter().enumerate() {
                if index != usize::from(self.index) {
                    let owner = self.index;
                    let _ = sibling.send(ToWorker::AddRemoteFace { id, attributes, owner });
                }
            }
        }
        self.control.send(ToControl::PeerFace { worker: self.index, id, port: port_id, path });
        Some(slot)
    }

    /// Commands from the control thread and, on routers of several threads, packets from the
    /// others. A face's announcement is in the command queue before its packets are in the rings,
    /// so the rings' length is read first.
    pub(super) fn take_commands_and_crossings(&mut self, now: Instant) {
        if let Some(shards) = &mut self.shards {
            shards.ports.note_waiting();
        }
        while let Ok(command) = self.commands.try_recv() {
            self.handle_command(now, command);
        }
        while let Some(shards) = &mut self.shards
            && let Some(crossing) = shards.ports.next_noted(&mut self.pool)
        {
            match crossing {
                Crossing::In { face, header, packet } => {
                    self.inputs.push(Input::Packet { face, header, packet });
                }
                Crossing::Shard { from, message } => {
                    self.inputs.push(Input::Shard { from, message });
                }
                Crossing::Out(out) => {
                    self.send_here(now, out);
                    self.flush_if_much(now);
                }
                Crossing::SignalIn { face, signal } => {
                    self.inputs.push(Input::Signal { face, signal });
                }
                Crossing::SignalOut { face, signal } => self.signal_here(face, signal),
            }
            if self.inputs.len() >= BATCH_PACKETS {
                self.process(now);
            }
        }
    }
}
