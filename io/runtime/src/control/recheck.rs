//! Configured UDP faces whose host has several addresses, or others than before. A TCP connection
//! that ends is made anew, with the address that the host has then; a UDP face never ends, so one
//! whose peer is silent is checked now and then, and moves to an address that answers.

use std::net::SocketAddr;

use weir_base::{FaceId, Instant};
use weir_face::{Connected, FaceUri, udp_local_toward};
use weir_manage::{FaceError, FaceEventKind, FacePersistency};

use super::Control;
use super::connect::recheck_pause;
use crate::message::{ConnectPurpose, NewSocket, ToWorker};

impl Control {
    /// A face of the configuration is there. One with a host name is checked from now on.
    pub(super) fn begin_rechecks(&mut self, now: Instant, id: FaceId, uri: &str) {
        let is_udp = self.faces.find(id).is_some_and(|face| face.remote.is_datagram());
        if is_udp && FaceUri::has_host_name(uri) {
            self.retry_later(now, ConnectPurpose::Recheck { face: id });
        }
    }

    pub(super) fn ask_heard(&self, id: FaceId) {
        if let Some(face) = self.faces.find(id) {
            self.workers[usize::from(face.worker)].send(ToWorker::TellHeard(id));
        }
    }

    /// The peer of a face was last heard at `at`: if that is long ago its host is looked up.
    pub(super) fn on_heard(&mut self, now: Instant, id: FaceId, at: Instant) {
        let Some(face) = self.faces.find_mut(id) else { return };
        let Some(index) = face.static_index else { return };
        let purpose = ConnectPurpose::Recheck { face: id };
        if now.ns_since(at) < recheck_pause(1).as_nanos() as u64 {
            face.attempts = 0;
            return self.retry_later(now, purpose);
        }
        let current = Some(face.remote.clone());
        let uri = self.config.static_faces[index].uri.clone();
        self.connector.start(uri, current, purpose);
    }

    pub(super) fn on_rechecked(
        &mut self,
        now: Instant,
        id: FaceId,
        result: Result<Connected, String>,
    ) {
        let Some(face) = self.faces.find(id) else { return };
        let (before, is_same) = match (&face.remote, &result) {
            (FaceUri::Udp(before), Ok(Connected::Peer(peer))) => (*before, before == peer),
            _ => return self.retry_later(now, ConnectPurpose::Recheck { face: id }),
        };
        if let Ok(Connected::Peer(peer)) = result
            && !is_same
            && self.may_move()
        {
            match self.move_udp_face(id, peer) {
                Ok(()) => tracing::info!(face = id.0, %before, %peer, "a silent face moved"),
                Err(error) => {
                    tracing::warn!(face = id.0, %before, %peer, ?error, "a silent face stays");
                }
            }
        }
        self.retry_later(now, ConnectPurpose::Recheck { face: id });
    }

    /// Whether a face may go over to another packet thread now.
    pub(super) fn may_move(&mut self) -> bool {
        self.balance.any_moving().is_none() && self.snapshots.is_empty()
    }

    /// Has a UDP face lead to `peer`, by the route that there is. It keeps its number and its
    /// routes. To be called when a face [may move](Self::may_move): what `peer` sends may come to
    /// another packet thread.
    pub(super) fn move_udp_face(&mut self, id: FaceId, peer: SocketAddr) -> Result<(), FaceError> {
        let remote = FaceUri::Udp(peer);
        if let Some(FaceError::Exists(other)) = self.existing(&remote)
            && other.face_id != id
            && other.persistency != FacePersistency::OnDemand
        {
            return Err(FaceError::Exists(other));
        }
        let (port_id, port) = self.port_for(peer)?;
        let (to, local) = (port.worker_of(peer), udp_local_toward(port.local, peer));
        let socket = NewSocket::Peer { port: port_id, path: peer.into() };
        let from = self.faces.find(id).ok_or(FaceError::NotFound)?.worker;
        self.faces.set_ends(id, remote, local);
        self.tell_attributes(id);
        let command = if from == to {
            ToWorker::AttachSocket { id, socket }
        } else {
            self.balance.begin(id);
            ToWorker::GiveFace { id, to, socket: Some(socket) }
        };
        self.workers[usize::from(from)].send(command);
        self.face_event(FaceEventKind::Up, id);
        Ok(())
    }
}
