//! Faces coming, changing and going.

use std::time::Duration;

use weir_base::{FaceId, Instant, NS_PER_MS};
use weir_face::{Connected, FaceUri, Socket, source_toward};
use weir_forward::{Command, FaceScope};
use weir_link::{LinkConfig, RunsConfig};
use weir_manage::{
    FaceChanges, FaceError, FaceEventKind, FaceInfo, FacePersistency, FaceRequest, ManagerInput,
    Route, route_flags, route_origin,
};

use super::connect::{backoff, recheck_pause};
use super::table::{FaceRecord, apply_changes};
use super::{ACCEPT_PAUSE, ACCEPTS_PER_TURN, Control};
use crate::config::{PitTokenChoice, StaticFace};
use crate::face_quota::{Claimant, FaceClass, Refusal};
use crate::message::{
    CloseReason, ConnectOutcome, ConnectPurpose, NewFace, NewSocket, ToWorker, face_attributes,
};
use crate::rate_limited_log::RateLimitedLog;

/// How often a connection is closed to make room for others, at most.
const DISPLACE_INTERVAL_NS: u64 = 20 * NS_PER_MS;

/// A face about to be made.
pub(super) struct Draft {
    pub(super) remote: FaceUri,
    pub(super) local: FaceUri,
    pub(super) scope: FaceScope,
    pub(super) is_operator: bool,
    pub(super) persistency: FacePersistency,
    pub(super) link: LinkConfig,
    pub(super) socket: NewSocket,
    /// The thread that must own it, if it matters.
    pub(super) worker: Option<u16>,
    pub(super) static_index: Option<usize>,
}

impl Control {
    pub(super) fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTS_PER_TURN {
            match self.listeners[index].accept() {
                Ok(Some(socket)) => self.on_accepted(socket),
                Ok(None) => return,
                Err(error) => {
                    // Most likely there is no descriptor left; the connection stays in the queue.
                    if let Some(count) = self.accept_failures.add(self.clock.now()) {
                        tracing::warn!(%error, count, "cannot accept a connection");
                    }
                    self.accept_later(ACCEPT_PAUSE);
                    return;
                }
            }
        }
        // Readiness is told once: come back for the rest without waiting for more of it.
        self.accept_later(Duration::ZERO);
    }

    fn accept_later(&mut self, pause: Duration) {
        let at = self.clock.now().plus_ns(pause.as_nanos() as u64);
        self.accept_again = Some(self.accept_again.map_or(at, |earlier| earlier.min(at)));
    }

    pub(super) fn on_accepted(&mut self, socket: Socket) {
        let is_operator = self.operators.includes(&socket);
        let mut draft = self.socket_draft(socket, FacePersistency::OnDemand);
        draft.is_operator = is_operator;
        let claimant = match draft.socket.peer() {
            Some(peer) => Claimant::Stream(peer),
            None => Claimant::Local,
        };
        let remote = draft.remote.to_string();
        let Err(refusal) = self.claim_and_add(draft, claimant) else { return };
        self.refused_connections += 1;
        if let Some(count) = self.refusals.add(self.clock.now()) {
            tracing::warn!(remote, %refusal, count, "a connection is refused");
        }
        let now = self.clock.now();
        if matches!(claimant, Claimant::Stream(_)) && self.displace_at <= now {
            // Room for the next one, by one thread after the other.
            self.displace_at = now.plus_ns(DISPLACE_INTERVAL_NS);
            let worker = self.pick_worker();
            let class = FaceClass { is_stream: true, network: refusal.network() };
            self.workers[usize::from(worker)].send(ToWorker::Evict(class));
        }
    }

    fn socket_draft(&self, socket: Socket, persistency: FacePersistency) -> Draft {
        Draft {
            remote: socket.remote_uri(),
            local: socket.local_uri(),
            scope: if socket.is_local() { FaceScope::Local } else { FaceScope::NonLocal },
            is_operator: false,
            persistency,
            link: self.link_config(socket.link_config()),
            socket: NewSocket::Own(socket),
            worker: None,
            static_index: None,
        }
    }

    /// The configuration's defaults on top of the link's.
    pub(super) fn link_config(&self, base: LinkConfig) -> LinkConfig {
        super::start::link_config(&self.config.face_defaults, base)
    }

    pub(super) fn add_face(&mut self, draft: Draft) -> Result<FaceId, FaceError> {
        self.claim_and_add(draft, Claimant::Operator)
            .map_err(|refusal| FaceError::Internal(refusal.to_string()))
    }

    /// The PIT tokens of a face, which may be one of the configuration. Applications of this host
    /// have nothing to forge.
    fn pit_token(&self, static_index: Option<usize>, scope: FaceScope) -> PitTokenChoice {
        let declared = static_index.and_then(|index| self.config.static_faces[index].pit_token);
        declared.unwrap_or(match scope {
            FaceScope::Local => PitTokenChoice::Short,
            FaceScope::NonLocal => self.config.face_defaults.pit_token,
        })
    }

    /// A face that is there becomes one of the configuration.
    fn adopt(&mut self, id: FaceId, index: usize) {
        let may_move = self.may_move();
        let Some(face) = self.faces.find_mut(id) else { return };
        face.static_index = Some(index);
        // It follows the route from now on, as those that the configuration makes.
        match face.remote {
            FaceUri::Udp(peer) if face.source.is_some() && may_move => {
                if let Err(error) = self.move_udp_face(id, peer) {
                    tracing::warn!(%peer, ?error, "[[face]] stays as its peer made it");
                }
            }
            _ => self.tell_attributes(id),
        }
    }

    /// Tells all shards what is to be known of a face.
    pub(super) fn tell_attributes(&self, id: FaceId) {
        let Some(face) = self.faces.find(id) else { return };
        let (scope, is_datagram) = (face.scope, face.remote.is_datagram());
        let peer = face.remote.socket_addr().filter(|_| scope == FaceScope::NonLocal);
        let token = self.pit_token(face.static_index, scope);
        let attributes = face_attributes(peer.map(|peer| peer.ip()), is_datagram, scope, token);
        self.tell_all(|| ToWorker::Router(Command::AddFace { face: id, attributes }));
    }

    /// Tells everyone of a new face.
    fn claim_and_add(&mut self, mut draft: Draft, claimant: Claimant) -> Result<FaceId, Refusal> {
        let declared = draft.static_index.and_then(|index| self.config.static_faces.get(index));
        if let Some(declared) = declared {
            declared.configure(&mut draft.link);
        }
        let id = self.quota.claim(claimant)?;
        let owner = draft.worker.unwrap_or_else(|| self.pick_worker());
        let scope = draft.scope;
        let token = self.pit_token(draft.static_index, scope);
        let attributes = draft.socket.attributes(scope, token);
        for (index, worker) in self.workers.iter().enumerate() {
            if index != usize::from(owner) {
                worker.send(ToWorker::AddRemoteFace { id, attributes, owner });
            }
        }
        self.workers[usize::from(owner)].send(ToWorker::AddFace(Box::new(NewFace {
            id,
            attributes,
            link: draft.link.clone(),
            persistency: draft.persistency,
            socket: draft.socket,
        })));
        self.faces.insert(FaceRecord {
            id,
            remote: draft.remote,
            local: draft.local,
            source: None,
            scope,
            is_operator: draft.is_operator,
            persistency: draft.persistency,
            link: draft.link,
            worker: owner,
            is_up: true,
            static_index: draft.static_index,
            attempts: 0,
            downs: RateLimitedLog::default(),
        });
        self.face_event(FaceEventKind::Created, id);
        Ok(id)
    }

    pub(super) fn on_face_closed(
        &mut self,
        now: Instant,
        id: FaceId,
        reason: &CloseReason,
        removed: bool,
    ) {
        let Some(face) = self.faces.find_mut(id) else {
            return;
        };
        let remote = face.remote.to_string();
        if removed {
            tracing::debug!(face = id.0, remote, ?reason, "face closed");
            return self.forget_face(id);
        }
        if let Some(count) = face.downs.add(now) {
            tracing::warn!(face = id.0, remote, ?reason, count, "permanent face is down");
        }
        face.is_up = false;
        self.face_event(FaceEventKind::Down, id);
        self.retry_later(now, ConnectPurpose::Reconnect { face: id });
    }

    /// Takes a face that its packet thread has closed out of all tables.
    fn forget_face(&mut self, id: FaceId) {
        self.face_event(FaceEventKind::Destroyed, id);
        if let Some(face) = self.faces.remove(id) {
            self.quota.release(id);
            for (index, worker) in self.workers.iter().enumerate() {
                if index != usize::from(face.worker) {
                    worker.send(ToWorker::RemoveFace(id));
                }
            }
        }
    }

    pub(super) fn destroy_face(&mut self, id: FaceId) {
        let Some(face) = self.faces.find(id) else {
            return;
        };
        self.workers[usize::from(face.worker)].send(ToWorker::RemoveFace(id));
        self.forget_face(id);
    }

    pub(super) fn update_face(
        &mut self,
        id: FaceId,
        changes: &FaceChanges,
        declared: Option<&StaticFace>,
    ) -> Result<FaceInfo, FaceError> {
        let face = self.faces.find(id).ok_or(FaceError::NotFound)?;
        let peer = face.remote.socket_addr().map(|peer| peer.ip());
        let mtu_default = peer.map_or(face.link.codec.mtu, |peer| self.udp_mtu(peer));
        let face = self.faces.find_mut(id).ok_or(FaceError::NotFound)?;
        let (persistency, mut link) = face.changed(changes, mtu_default)?;
        if let Some(declared) = declared {
            declared.configure(&mut link);
        }
        face.persistency = persistency;
        face.link = link.clone();
        let (worker, info) = (face.worker, face.info());
        let update = ToWorker::UpdateFace { id, link, persistency };
        match self.balance.moving(id) {
            Some(moving) => moving.updates.push(update),
            None => self.workers[usize::from(worker)].send(update),
        }
        Ok(info)
    }

    /// faces/create: answered now, or when the connection stands.
    pub(super) fn create_face(&mut self, txn: u64, request: FaceRequest) {
        let result = match request.uri.parse::<FaceUri>() {
            Ok(remote) if let Err(error) = remote.check_peer(&request.uri) => {
                Err(FaceError::Unsupported(error.to_string()))
            }
            Ok(remote) if remote.is_made_by_command() => match self.existing(&remote) {
                Some(exists) => Err(exists),
                // Nothing to wait for.
                None if remote.is_datagram() => Connected::to(&remote, Duration::ZERO)
                    .map_err(|error| FaceError::ConnectFailed(error.to_string()))
                    .and_then(|connected| self.add_connected(connected, &request, None)),
                None => return self.connect(ConnectPurpose::Command { txn, request }),
            },
            Ok(other) => Err(FaceError::Unsupported(format!(
                "faces of the scheme {} cannot be made by command; use udp4, udp6, tcp4 or tcp6",
                other.scheme()
            ))),
            Err(error) => Err(FaceError::Unsupported(error.to_string())),
        };
        self.face_created(txn, result);
    }

    pub(super) fn existing(&self, remote: &FaceUri) -> Option<FaceError> {
        let chosen_by_peer = || {
            let peer = remote.socket_addr().filter(|_| remote.is_datagram())?;
            let source = source_toward(peer)?;
            self.faces.to_peer(remote, Some(source.ip))
        };
        let face = self.faces.to_peer(remote, None).or_else(chosen_by_peer)?;
        Some(FaceError::Exists(face.info()))
    }

    pub(super) fn connect(&mut self, purpose: ConnectPurpose) {
        let uri = match &purpose {
            ConnectPurpose::Command { request, .. } => request.uri.clone(),
            ConnectPurpose::Static { index } => self.config.static_faces[*index].uri.clone(),
            ConnectPurpose::Reconnect { face } => match self.faces.find(*face) {
                // The configured address may resolve otherwise by now.
                Some(FaceRecord { static_index: Some(index), .. }) => {
                    self.config.static_faces[*index].uri.clone()
                }
                Some(face) => face.remote.to_string(),
                None => return,
            },
            // Whether it is silent is asked first.
            ConnectPurpose::Recheck { face } => return self.ask_heard(*face),
        };
        self.connector.start(uri, None, purpose);
    }

    pub(super) fn on_connected(&mut self, now: Instant, outcome: ConnectOutcome) {
        let ConnectOutcome { purpose, result } = outcome;
        match purpose {
            ConnectPurpose::Command { txn, request } => {
                let result = result
                    .map_err(FaceError::ConnectFailed)
                    .and_then(|connection| self.add_connected(connection, &request, None));
                self.face_created(txn, result);
            }
            ConnectPurpose::Static { index } => self.on_static_connected(now, index, result),
            ConnectPurpose::Reconnect { face } => self.on_reconnected(now, face, result),
            ConnectPurpose::Recheck { face } => self.on_rechecked(now, face, result),
        }
    }

    fn add_connected(
        &mut self,
        connection: Connected,
        request: &FaceRequest,
        static_index: Option<usize>,
    ) -> Result<FaceId, FaceError> {
        let socket = match connection {
            Connected::Peer(peer) => {
                if let Some(exists) = self.existing(&FaceUri::Udp(peer)) {
                    return Err(exists);
                }
                return self.add_udp_face(peer, request, static_index);
            }
            Connected::Socket(socket) => socket,
        };
        if let Some(exists) = self.existing(&socket.remote_uri()) {
            return Err(exists);
        }
        let mut draft = self.socket_draft(socket, request.persistency);
        let mtu_default = draft.link.codec.mtu;
        let face = (&draft.remote, draft.scope);
        apply_changes(&mut draft.link, &request.changes, face, mtu_default)?;
        begin_runs(&mut draft.link);
        draft.static_index = static_index;
        self.add_face(draft)
    }

    fn on_reconnected(&mut self, now: Instant, id: FaceId, result: Result<Connected, String>) {
        let Some(face) = self.faces.find_mut(id) else {
            return;
        };
        let connection = match result {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!(face = id.0, error, "permanent face stays down; trying again");
                return self.retry_later(now, ConnectPurpose::Reconnect { face: id });
            }
        };
        let Connected::Socket(socket) = connection else {
            // UDP faces never go down.
            return;
        };
        face.attempts = 0;
        face.is_up = true;
        let worker = usize::from(face.worker);
        self.faces.set_ends(id, socket.remote_uri(), socket.local_uri());
        self.workers[worker].send(ToWorker::AttachSocket { id, socket: NewSocket::Own(socket) });
        self.face_event(FaceEventKind::Up, id);
    }

    pub(super) fn retry_later(&mut self, now: Instant, purpose: ConnectPurpose) {
        let attempts = match &purpose {
            ConnectPurpose::Reconnect { face } | ConnectPurpose::Recheck { face } => {
                self.faces.find_mut(*face).map(|face| &mut face.attempts)
            }
            ConnectPurpose::Static { index } => Some(&mut self.static_attempts[*index]),
            ConnectPurpose::Command { .. } => None,
        };
        let Some(attempts) = attempts else {
            return;
        };
        *attempts += 1;
        let pause = match purpose {
            ConnectPurpose::Recheck { .. } => recheck_pause(*attempts),
            _ => backoff(*attempts),
        };
        self.retries.push((now.plus_ns(pause.as_nanos() as u64), purpose));
    }

    pub(super) fn start_statics(&mut self) {
        for index in 0..self.static_attempts.len() {
            self.connect(ConnectPurpose::Static { index });
        }
    }

    fn on_static_connected(
        &mut self,
        now: Instant,
        index: usize,
        result: Result<Connected, String>,
    ) {
        let config = self.config.static_faces[index].clone();
        let persistency = match config.permanent {
            true => FacePersistency::Permanent,
            false => FacePersistency::Persistent,
        };
        let is_udp = matches!(result, Ok(Connected::Peer(_)));
        let changes = FaceChanges {
            persistency: Some(persistency),
            mtu: config.mtu.filter(|_| is_udp).map(|mtu| mtu as u64),
            congestion_marking: config.congestion_marking,
            reliability: config.reliability.filter(|_| is_udp),
            ..FaceChanges::default()
        };
        let request =
            FaceRequest { uri: config.uri.clone(), local_uri: None, persistency, changes };
        let made = result
            .map_err(FaceError::ConnectFailed)
            .and_then(|connection| self.add_connected(connection, &request, Some(index)));
        let id = match made {
            Ok(id) => id,
            // The peer was here first: its face becomes the configured one.
            Err(FaceError::Exists(info)) => {
                let id = info.face_id;
                if let Err(error) = self.update_face(id, &request.changes, Some(&config)) {
                    tracing::error!(uri = config.uri, ?error, "[[face]] cannot be as configured");
                }
                self.adopt(id, index);
                id
            }
            Err(error) => {
                let why = match error {
                    FaceError::ConnectFailed(why) => why,
                    other => format!("{other:?}"),
                };
                tracing::warn!(uri = config.uri, why, "[[face]] is not there yet; trying again");
                return self.retry_later(now, ConnectPurpose::Static { index });
            }
        };
        self.static_attempts[index] = 0;
        self.begin_rechecks(now, id, &config.uri);
        for (prefix, cost) in config.routes {
            let route = Route {
                face: id,
                origin: route_origin::STATIC,
                cost,
                flags: route_flags::CHILD_INHERIT,
                expires: None,
            };
            self.manager_inputs.push_back(ManagerInput::AddRoute { prefix, route });
        }
    }
}

/// Who makes a connection is the first to speak of runs there.
pub(super) fn begin_runs(link: &mut LinkConfig) {
    if link.codec.runs != RunsConfig::Off {
        link.codec.runs = RunsConfig::Begins;
    }
}
