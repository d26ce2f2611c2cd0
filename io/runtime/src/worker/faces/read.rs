//! Reading: from sockets to packets.

use std::mem;
use std::net::SocketAddr;

use weir_base::{FaceId, Instant, Packet, Pool};
use weir_face::{Datagram, RecvStatus, UdpPath};
use weir_link::{Link, PacketFormat, Received};
use weir_wire::LpHeader;

use super::{Faces, failed};
use crate::face::FaceSocket;
use crate::message::CloseReason;

/// The result of one read.
pub(in crate::worker) enum ReadEnd {
    /// The socket is empty.
    Drained,
    /// There may be more to read.
    More,
    Closed(CloseReason),
}

impl Faces {
    /// Reads a face's own socket once, or takes frames that were read before and not processed.
    pub(in crate::worker) fn read(
        &mut self,
        slot: u32,
        pool: &mut Pool,
        frames: &mut Vec<Packet>,
    ) -> Option<ReadEnd> {
        let face = self.table.at(slot)?;
        face.is_ready = false;
        let FaceSocket::Own(socket) = &mut face.socket else { return None };
        if !face.unread.is_empty() {
            mem::swap(frames, &mut face.unread);
            return Some(ReadEnd::More);
        }
        let received = socket.recv(pool, frames);
        if socket.has_unsent() {
            self.mark_dirty(slot);
        }
        let reason = match received {
            Ok(RecvStatus::Drained) => return Some(ReadEnd::Drained),
            Ok(RecvStatus::More) => return Some(ReadEnd::More),
            Ok(RecvStatus::Closed) => CloseReason::PeerClosed,
            Ok(RecvStatus::FramingLost(error)) => CloseReason::FramingLost(error.to_string()),
            Ok(RecvStatus::RingBroken) => CloseReason::RingBroken,
            Ok(RecvStatus::WebSocketBroken(error)) => CloseReason::FramingLost(error.to_string()),
            Err(error) => failed(error),
        };
        Some(ReadEnd::Closed(reason))
    }

    /// Keeps frames of a face for its next turn. Returns whether the face still exists.
    pub(in crate::worker) fn keep_unread(
        &mut self,
        slot: u32,
        frames: impl Iterator<Item = Packet>,
    ) -> bool {
        let Some(face) = self.table.at(slot) else { return false };
        face.unread.extend(frames);
        true
    }

    /// Counts a connection's incomplete packet after a read. Returns connections to close because
    /// all of them together hold too much.
    pub(in crate::worker) fn connections_to_shed(&mut self, slot: u32) -> Vec<u32> {
        if let Some(face) = self.table.at(slot)
            && self.memory.recount_connection(face)
        {
            return self.memory.connections_to_shed(&self.table);
        }
        Vec::new()
    }

    /// Checks whether a full socket has space again. With shared memory, this read may have
    /// consumed the doorbell that announced the space.
    pub(in crate::worker) fn recheck_writable(&mut self, slot: u32) {
        if let Some(face) = self.table.at(slot)
            && face.is_socket_full
            && let FaceSocket::Own(socket) = &face.socket
            && socket.is_writable_again()
        {
            face.is_socket_full = false;
            self.mark_dirty(slot);
        }
    }

    /// Whether the face in `slot` has a socket of its own.
    pub(in crate::worker) fn has_own_socket(&mut self, slot: u32) -> bool {
        self.table.at(slot).is_some_and(|face| matches!(face.socket, FaceSocket::Own(_)))
    }

    /// Reads a shared port once.
    pub(in crate::worker) fn read_port(
        &mut self,
        now: Instant,
        port: u32,
        pool: &mut Pool,
        datagrams: &mut Vec<Datagram>,
    ) -> ReadEnd {
        match self.ports.recv(port, pool, datagrams) {
            Some(Ok(RecvStatus::More)) => ReadEnd::More,
            Some(Err(error)) => {
                self.ports.note_failure(now, &error);
                ReadEnd::Drained
            }
            _ => ReadEnd::Drained,
        }
    }

    /// The link that receives a frame of this face. [`Self::note_received`] must follow.
    #[inline]
    pub(in crate::worker) fn receiving(&mut self, slot: u32) -> Option<(FaceId, &mut Link)> {
        self.table.at(slot).map(|face| (face.id, &mut face.link))
    }

    /// After a link has received a frame: counts its memory, sets its timers, and marks it for a
    /// flush if it has something to send.
    #[inline]
    pub(in crate::worker) fn note_received(&mut self, slot: u32, received: &Received) {
        let Some(face) = self.table.at(slot) else { return };
        let has_too_many_partials = self.memory.recount_reassembly(face);
        let mut is_changed = face.link.is_reliable() || face.link.is_shaping();
        match received {
            // The worker calls `end_run` after the last Interest.
            Received::Run => is_changed = false,
            Received::Offer(_) => is_changed = true,
            Received::Partial => {
                if let Some(at) = face.link.next_wakeup() {
                    self.timers.schedule(slot, at);
                }
                if has_too_many_partials {
                    self.memory.shed_reassembly(&mut self.table);
                }
            }
            _ => {}
        }
        if is_changed {
            self.mark_dirty(slot);
        }
    }

    /// The next Interest of a run.
    pub(in crate::worker) fn next_in_run(
        &mut self,
        now: Instant,
        slot: u32,
        pool: &mut Pool,
    ) -> Option<(FaceId, LpHeader, Packet)> {
        let face = self.table.at(slot)?;
        let (header, packet) = face.link.next_in_run(now, pool)?;
        Some((face.id, header, packet))
    }

    pub(in crate::worker) fn end_run(&mut self, slot: u32) {
        if let Some(face) = self.table.at(slot)
            && (face.link.is_reliable() || face.link.is_shaping())
        {
            self.mark_dirty(slot);
        }
    }

    /// The packets of a peer of a port.
    pub(in crate::worker) fn format_of_peer(&self, port: u32, peer: SocketAddr) -> &PacketFormat {
        &self.ports.links(port).of(peer).codec.format
    }

    pub(in crate::worker) fn peer(&self, port: u32, path: UdpPath) -> Option<u32> {
        self.ports.peer(port, path)
    }
}
