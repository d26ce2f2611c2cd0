//! Rechecks static UDP faces whose host name may resolve to several or new addresses.
//!
//! A TCP connection that breaks is made again with the host's current address. A UDP face never
//! breaks. If its peer is silent, its host name is resolved again, and the face moves to an address
//! that responds.

use std::net::SocketAddr;

use weir_base::{FaceId, Instant};
use weir_face::{Connected, FaceUri, udp_local_toward};
use weir_manage::{FaceError, FaceEventKind, FacePersistency};

use super::Faces;
use super::connector::RECHECK;
use crate::message::{ConnectPurpose, ToWorker};

impl Faces {
    /// Starts the rechecks of a static face, if its URI has a host name.
    pub(super) fn begin_rechecks(&mut self, now: Instant, id: FaceId, uri: &str) {
        let is_udp = self.table.find(id).is_some_and(|face| face.remote.is_datagram());
        if is_udp && FaceUri::has_host_name(uri) {
            self.retry_later(now, ConnectPurpose::Recheck { face: id });
        }
    }

    /// Asks the face's thread when its peer was last heard.
    pub(super) fn request_last_heard(&self, id: FaceId) {
        if let Some(face) = self.table.find(id) {
            self.workers.send(face.worker, ToWorker::ReportLastHeard(id));
        }
    }

    /// The peer was last heard at `at`. If that is long ago, its host name is resolved again.
    pub(in crate::control) fn on_last_heard(&mut self, now: Instant, id: FaceId, at: Instant) {
        let Some(face) = self.table.find_mut(id) else { return };
        let Some(declared) = face.static_index.and_then(|index| self.statics.get(&index)) else {
            return;
        };
        let uri = declared.config.uri.clone();
        let purpose = ConnectPurpose::Recheck { face: id };
        if now.ns_since(at) < RECHECK.delay_ns(1) {
            face.attempts = 0;
            return self.retry_later(now, purpose);
        }
        let current = Some(face.remote.clone());
        self.connector.start(uri, current, purpose);
    }

    pub(super) fn on_rechecked(
        &mut self,
        now: Instant,
        id: FaceId,
        result: Result<Connected, String>,
        may_move: bool,
    ) {
        let Some(face) = self.table.find(id) else { return };
        if let (Some((_, before)), Ok(Connected::Peer(_, peer))) = (face.remote.as_udp(), result)
            && peer != before
            && may_move
            && !self.is_moving()
        {
            match self.move_to_peer(id, peer) {
                Ok(()) => {
                    tracing::info!(face = id.0, %before, %peer, "moved a silent face")
                }
                Err(error) => {
                    tracing::warn!(face = id.0, %before, %peer, ?error, "cannot move silent face");
                }
            }
        }
        self.retry_later(now, ConnectPurpose::Recheck { face: id });
    }

    /// Moves a UDP face to another peer address. The face keeps its identifier and routes. No other
    /// face may be moving, because datagrams of `peer` may arrive at another worker thread.
    pub(super) fn move_to_peer(&mut self, id: FaceId, peer: SocketAddr) -> Result<(), FaceError> {
        let face = self.table.find(id).ok_or(FaceError::NotFound)?;
        let (format, _) = face.remote.as_udp().ok_or(FaceError::NotFound)?;
        let (from, remote) = (face.worker, format.uri(peer));
        // An on-demand face to the same peer is no obstacle: the worker thread replaces it.
        if let Some(other) = self.existing(&remote)
            && other.face_id != id
            && other.persistency != FacePersistency::OnDemand
        {
            return Err(FaceError::Exists(other));
        }
        let port = self.ports.toward(format, peer, &mut self.next_worker)?;
        let (to, local) = (port.worker_of(peer), udp_local_toward(port.local, peer));
        let (socket, local) = (port.socket(peer.into()), format.uri(local));
        self.table.set_ends(id, remote, local);
        self.send_attributes(id);
        let command = if from == to {
            ToWorker::AttachSocket { id, socket }
        } else {
            self.balance.begin(id);
            ToWorker::MoveFace { id, to, socket: Some(socket) }
        };
        self.workers.send(from, command);
        self.notify(FaceEventKind::Up, id);
        Ok(())
    }
}
