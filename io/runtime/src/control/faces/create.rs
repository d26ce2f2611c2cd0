//! Creates faces: for accepted connections, by command, and from the configuration.

use std::net::SocketAddr;
use std::time::Duration;

use weir_base::{FaceId, Instant};
use weir_face::{Connected, FaceUri, FaceUriError, Socket, UdpFormat, udp_local_toward};
use weir_forward::FaceScope;
use weir_manage::{
    FaceChanges, FaceError, FaceEventKind, FacePersistency, FaceRequest, ManagerInput, Route,
    route_flags, route_origin,
};
use weir_wire::Name;

use super::links::{apply_changes, begin_runs, link_config};
use super::table::FaceRecord;
use super::{FaceDraft, Faces};
use crate::config::StaticFace;
use crate::face_quota::Claimant;
use crate::message::{ConnectOutcome, ConnectPurpose, NewSocket, ToWorker};

impl Faces {
    // Accepted connections.

    pub(in crate::control) fn on_accepted(&mut self, now: Instant, socket: Socket) {
        let is_operator = self.operators.includes(&socket);
        let draft = FaceDraft { is_operator, ..self.draft(socket, FacePersistency::OnDemand) };
        let claimant = match draft.socket.peer() {
            Some(peer) => Claimant::Stream(peer),
            None => Claimant::Local,
        };
        let remote = draft.remote.to_string();
        if let Err(refusal) = self.add(draft, claimant) {
            self.note_refused(now, &remote, refusal, claimant);
        }
    }

    pub(super) fn draft(&self, socket: Socket, persistency: FacePersistency) -> FaceDraft {
        FaceDraft {
            remote: socket.remote_uri(),
            local: socket.local_uri(),
            scope: if socket.is_local() { FaceScope::Local } else { FaceScope::NonLocal },
            is_operator: false,
            persistency,
            link: link_config(&self.defaults, socket.link_config()),
            socket: NewSocket::Own(socket),
            worker: None,
            static_index: None,
        }
    }

    // Outgoing connections.

    /// Handles faces/create. The answer follows now, or when the connection is established.
    pub(in crate::control) fn create(&mut self, txn: u64, request: FaceRequest) {
        let result = match request.uri.parse::<FaceUri>() {
            Ok(remote) if let Err(error) = remote.check_peer(&request.uri) => {
                Err(FaceError::Unsupported(error.to_string()))
            }
            Ok(remote) if remote.is_of_one_peer() => match self.existing(&remote) {
                Some(exists) => Err(FaceError::Exists(exists)),
                // A face over UDP or a TUN device is ready at once.
                None if remote.is_datagram() => Connected::to(&remote, Duration::ZERO)
                    .map_err(|error| FaceError::ConnectFailed(error.to_string()))
                    .and_then(|connected| self.add_connected(connected, &request, None)),
                None => return self.connect(ConnectPurpose::Command { txn, request }),
            },
            Ok(other) => Err(FaceError::Unsupported(format!(
                "faces with scheme {} cannot be created by command; use udp4, udp6, tcp4, tcp6, \
                 ws, wss, hicn+udp4, hicn+udp6 or hicn+tun",
                other.scheme()
            ))),
            // The name service may be slow, so another thread asks it.
            Err(FaceUriError::NotCanonical(_)) if FaceUri::check(&request.uri).is_ok() => {
                return self.connect(ConnectPurpose::Command { txn, request });
            }
            Err(error) => Err(FaceError::Unsupported(error.to_string())),
        };
        self.answer_create(txn, result);
    }

    fn answer_create(&mut self, txn: u64, result: Result<FaceId, FaceError>) {
        let result = result.and_then(|id| {
            let face = self.table.find(id);
            face.map(FaceRecord::info).ok_or_else(|| {
                FaceError::Internal("the face closed immediately after it was created".into())
            })
        });
        self.notices.push_back(ManagerInput::FaceCreated { txn, result });
    }

    pub(in crate::control) fn connect_statics(&mut self) {
        let indices: Vec<usize> = self.statics.keys().copied().collect();
        for index in indices {
            self.connect(ConnectPurpose::Static { index });
        }
    }

    /// Starts connection attempts that are due.
    pub(in crate::control) fn run_timers(&mut self, now: Instant) {
        while let Some(purpose) = self.connector.take_due(now) {
            self.connect(purpose);
        }
    }

    pub(super) fn connect(&mut self, purpose: ConnectPurpose) {
        let uri = match &purpose {
            ConnectPurpose::Command { request, .. } => request.uri.clone(),
            ConnectPurpose::Static { index } => match self.statics.get(index) {
                Some(declared) => declared.config.uri.clone(),
                // A reload has removed it.
                None => return,
            },
            ConnectPurpose::Reconnect { face } => match self.table.find(*face) {
                // The host name of the configuration may resolve to another address by now.
                Some(FaceRecord { static_index: Some(index), .. }) => {
                    self.statics[index].config.uri.clone()
                }
                Some(face) => face.remote.to_string(),
                None => return,
            },
            // The face's thread first reports whether the peer is silent.
            ConnectPurpose::Recheck { face } => return self.request_last_heard(*face),
        };
        self.connector.start(uri, None, purpose);
    }

    /// Handles the outcome of a connection attempt. A face may move to another thread only if
    /// `may_move`.
    pub(in crate::control) fn on_connected(
        &mut self,
        now: Instant,
        outcome: ConnectOutcome,
        may_move: bool,
    ) {
        let ConnectOutcome { purpose, result } = outcome;
        match purpose {
            ConnectPurpose::Command { txn, request } => {
                let result = result
                    .map_err(FaceError::ConnectFailed)
                    .and_then(|connection| check_resolved(connection, &request.uri))
                    .and_then(|connection| self.add_connected(connection, &request, None));
                self.answer_create(txn, result);
            }
            ConnectPurpose::Static { index } => {
                self.on_static_connected(now, index, result, may_move);
            }
            ConnectPurpose::Reconnect { face } => self.on_reconnected(now, face, result),
            ConnectPurpose::Recheck { face } => self.on_rechecked(now, face, result, may_move),
        }
    }

    fn add_connected(
        &mut self,
        connection: Connected,
        request: &FaceRequest,
        static_index: Option<usize>,
    ) -> Result<FaceId, FaceError> {
        let remote = connection.remote_uri();
        if let Some(exists) = self.existing(&remote) {
            return Err(FaceError::Exists(exists));
        }
        let mut draft = match connection {
            Connected::Peer(format, peer) => self.udp_draft(format, peer, request.persistency)?,
            Connected::Socket(socket) => self.draft(socket, request.persistency),
        };
        let mtu_default = draft.link.codec.mtu;
        let changes = &request.changes;
        apply_changes(&mut draft.link, changes, &draft.remote, draft.scope, mtu_default)?;
        begin_runs(&mut draft.link);
        draft.static_index = static_index;
        self.add(draft, Claimant::Operator)
            .map_err(|refusal| FaceError::Internal(refusal.to_string()))
    }

    fn udp_draft(
        &mut self,
        format: UdpFormat,
        peer: SocketAddr,
        persistency: FacePersistency,
    ) -> Result<FaceDraft, FaceError> {
        let port = self.ports.toward(format, peer, &mut self.next_worker)?;
        Ok(FaceDraft {
            remote: format.uri(peer),
            local: format.uri(udp_local_toward(port.local, peer)),
            scope: FaceScope::NonLocal,
            is_operator: false,
            persistency,
            link: port.links.of(peer).clone(),
            socket: port.socket(peer.into()),
            worker: Some(port.worker_of(peer)),
            static_index: None,
        })
    }

    fn on_reconnected(&mut self, now: Instant, id: FaceId, result: Result<Connected, String>) {
        let Some(face) = self.table.find_mut(id) else { return };
        let socket = match result {
            Ok(Connected::Socket(socket)) => socket,
            // UDP faces never go down.
            Ok(Connected::Peer(..)) => return,
            Err(error) => {
                tracing::warn!(face = id.0, error, "cannot reconnect permanent face; will retry");
                return self.retry_later(now, ConnectPurpose::Reconnect { face: id });
            }
        };
        face.attempts = 0;
        face.is_up = true;
        let worker = face.worker;
        self.table.set_ends(id, socket.remote_uri(), socket.local_uri());
        let socket = NewSocket::Own(socket);
        self.workers.send(worker, ToWorker::AttachSocket { id, socket });
        self.notify(FaceEventKind::Up, id);
    }

    // Static faces.

    fn on_static_connected(
        &mut self,
        now: Instant,
        index: usize,
        result: Result<Connected, String>,
        may_move: bool,
    ) {
        let Some(declared) = self.statics.get(&index) else { return };
        let config = declared.config.clone();
        let is_datagram = result.as_ref().is_ok_and(Connected::is_datagram);
        let request = static_request(&config, is_datagram);
        let made = result
            .map_err(FaceError::ConnectFailed)
            .and_then(|connection| self.add_connected(connection, &request, Some(index)));
        let id = match made {
            Ok(id) => id,
            // The peer connected first. Its face becomes the static one.
            Err(FaceError::Exists(info)) => {
                let id = info.face_id;
                if let Err(error) = self.update_declared(id, &request.changes, Some(&config)) {
                    tracing::error!(
                        uri = config.uri,
                        ?error,
                        "cannot apply the settings of [[face]]"
                    );
                }
                self.make_static(id, index, may_move);
                id
            }
            Err(error) => {
                let why = match error {
                    FaceError::ConnectFailed(why) => why,
                    other => format!("{other:?}"),
                };
                tracing::warn!(uri = config.uri, why, "cannot create [[face]]; will retry");
                return self.retry_later(now, ConnectPurpose::Static { index });
            }
        };
        if let Some(declared) = self.statics.get_mut(&index) {
            declared.attempts = 0;
        }
        self.begin_rechecks(now, id, &config.uri);
        for (prefix, cost) in config.routes {
            self.add_static_route(id, prefix, cost);
        }
    }

    /// Adds a route of the configuration.
    pub(super) fn add_static_route(&mut self, face: FaceId, prefix: Name, cost: u64) {
        let route = Route {
            face,
            origin: route_origin::STATIC,
            cost,
            flags: route_flags::CHILD_INHERIT,
            expires: None,
        };
        self.notices.push_back(ManagerInput::AddRoute { prefix, route });
    }

    /// Turns an existing face into a static one.
    fn make_static(&mut self, id: FaceId, index: usize, may_move: bool) {
        let may_move = may_move && !self.is_moving();
        let Some(face) = self.table.find_mut(id) else { return };
        face.static_index = Some(index);
        // From now on it follows the route, like other static faces.
        match face.remote.as_udp() {
            Some((_, peer)) if face.source.is_some() && may_move => {
                if let Err(error) = self.move_to_peer(id, peer) {
                    tracing::warn!(%peer, ?error, "cannot move [[face]] to its route");
                }
            }
            _ => self.send_attributes(id),
        }
    }
}

/// Checks the address to which a command's host name has resolved.
fn check_resolved(connection: Connected, uri: &str) -> Result<Connected, FaceError> {
    let remote = connection.remote_uri();
    match remote.check_peer(uri) {
        Ok(()) => Ok(connection),
        Err(error) => Err(FaceError::Unsupported(error.to_string())),
    }
}

pub(super) fn static_request(config: &StaticFace, is_datagram: bool) -> FaceRequest {
    let persistency = match config.permanent {
        true => FacePersistency::Permanent,
        false => FacePersistency::Persistent,
    };
    let changes = FaceChanges {
        persistency: Some(persistency),
        mtu: config.mtu.filter(|_| is_datagram).map(|mtu| mtu as u64),
        congestion_marking: config.congestion_marking,
        reliability: config.reliability.filter(|_| is_datagram),
        ..FaceChanges::default()
    };
    FaceRequest { uri: config.uri.clone(), local_uri: None, persistency, changes }
}
