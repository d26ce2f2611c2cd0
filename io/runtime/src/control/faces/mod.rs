//! All faces of the router, as the control thread knows them. Worker threads own the sockets. This
//! component sends them commands and leaves notices for the manager.
//!
//! The methods of [`Faces`] are in five files: `multicast` follows the network devices, `declared`
//! follows the configuration, `create` creates faces, `recheck` moves them to other addresses, and
//! this file manages existing ones. Each calls only later ones.

mod balance;
mod connector;
mod create;
mod declared;
mod links;
mod multicast;
mod ports;
mod recheck;
mod table;

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;

use weir_base::{FaceId, Instant, NS_PER_MS, Packet};
use weir_face::{FaceUri, TlsTrust, UdpFormat, UdpPath, UdpPort, source_toward};
use weir_forward::{Command, FaceAttributes, FaceScope};
use weir_link::LinkConfig;
use weir_manage::{
    FaceChanges, FaceError, FaceEventKind, FaceInfo, FacePersistency, HicnAnswer, ManagerInput,
};
use weir_wire::PACKET_SIZE_MAX;

use self::balance::{Balance, Move};
use self::connector::{Connector, RECHECK, RECONNECT};
use self::links::udp_mtu;
use self::multicast::MulticastFaces;
use self::ports::UdpPorts;
use self::table::{FaceRecord, FaceTable};
use super::operators::Operators;
use super::workers::{RoundRobin, Workers};
use crate::config::{FaceDefaults, PitTokenChoice, RuntimeConfig, StaticFace};
use crate::face_quota::{Claimant, FaceClass, FaceQuota, Refusal};
use crate::mailbox::ControlSender;
use crate::message::{
    CloseReason, ConnectPurpose, NewFace, NewSocket, PortId, ToWorker, WorkReport, face_attributes,
    link_type, set_face_number,
};
use crate::rate_limited_log::RateLimitedLog;

/// Minimum interval between evictions of connections.
const EVICT_INTERVAL_NS: u64 = 20 * NS_PER_MS;

/// The faces of all worker threads.
pub(super) struct Faces {
    workers: Workers,
    next_worker: RoundRobin,
    defaults: FaceDefaults,
    operators: Operators,
    quota: Arc<FaceQuota>,
    table: FaceTable,
    ports: UdpPorts,
    /// The faces of the configuration by index. An index is never used again, so that the outcome
    /// of a connection attempt cannot concern another face.
    statics: BTreeMap<usize, StaticEntry>,
    next_static: usize,
    connector: Connector,
    multicast: MulticastFaces,
    balance: Balance,
    refused: RefusedConnections,
    notices: VecDeque<ManagerInput>,
}

struct StaticEntry {
    config: StaticFace,
    /// Failed attempts to create it.
    attempts: u32,
}

/// Connections refused because of a limit on faces.
#[derive(Default)]
struct RefusedConnections {
    count: u64,
    log: RateLimitedLog,
    /// When the next connection may be evicted.
    evict_at: Instant,
}

/// A face that has no identifier yet.
struct FaceDraft {
    remote: FaceUri,
    local: FaceUri,
    scope: FaceScope,
    is_operator: bool,
    persistency: FacePersistency,
    link: LinkConfig,
    socket: NewSocket,
    /// The thread that must own the face; `None`: any.
    worker: Option<u16>,
    static_index: Option<usize>,
}

impl Faces {
    pub(super) fn new(
        config: &RuntimeConfig,
        workers: Workers,
        quota: Arc<FaceQuota>,
        control: ControlSender,
        trust: TlsTrust,
    ) -> Self {
        let statics = config.static_faces.iter().cloned();
        let statics = statics.map(|config| StaticEntry { config, attempts: 0 }).enumerate();
        let interval_ns = config.rebalance_interval.as_nanos() as u64;
        Self {
            next_worker: RoundRobin::new(workers.count()),
            defaults: config.face_defaults.clone(),
            operators: Operators::new(config),
            quota,
            table: FaceTable::default(),
            ports: UdpPorts::new(workers.clone(), config.face_defaults.clone()),
            statics: statics.collect(),
            next_static: config.static_faces.len(),
            connector: Connector::new(control, trust),
            multicast: MulticastFaces::new(config.multicast.clone()),
            balance: Balance::new(config.threads, interval_ns),
            refused: RefusedConnections::default(),
            notices: VecDeque::new(),
            workers,
        }
    }

    /// Replaces who may command the router. It concerns new connections.
    pub(super) fn set_operators(&mut self, operators: Operators) {
        self.operators = operators;
    }

    pub(super) fn find(&self, id: FaceId) -> Option<&FaceRecord> {
        self.table.find(id)
    }

    /// Returns events for the manager, in order.
    pub(super) fn take_notices(&mut self) -> VecDeque<ManagerInput> {
        mem::take(&mut self.notices)
    }

    pub(super) fn refused_connections(&self) -> u64 {
        self.refused.count
    }

    /// Gives the sockets of a UDP port to worker threads.
    pub(super) fn add_port(&mut self, format: UdpFormat, sockets: Vec<UdpPort>) {
        self.ports.add(format, sockets, &mut self.next_worker);
    }

    /// Reports an event of a face to the manager.
    fn notify(&mut self, kind: FaceEventKind, id: FaceId) {
        let Some(face) = self.table.find(id) else { return };
        let info = face.info();
        // Peers create and close on-demand faces at will, so these events are not worth a log line.
        if face.persistency == FacePersistency::OnDemand {
            tracing::debug!(face = id.0, remote = info.uri, "face {kind}");
        } else {
            tracing::info!(face = id.0, remote = info.uri, "face {kind}");
        }
        self.notices.push_back(ManagerInput::FaceEvent { kind, info });
    }

    // New faces.

    /// Claims an identifier, gives the face to a worker thread and informs all others.
    fn add(&mut self, mut draft: FaceDraft, claimant: Claimant) -> Result<FaceId, Refusal> {
        if let Some(declared) = draft.static_index.and_then(|index| self.statics.get(&index)) {
            declared.config.configure(&mut draft.link);
        }
        let id = self.quota.claim(claimant)?;
        let owner = draft.worker.unwrap_or_else(|| self.next_worker.next());
        set_face_number(&mut draft.link, id);
        let token = self.pit_token(draft.static_index, draft.scope, &draft.remote);
        let attributes = draft.socket.attributes(draft.scope, token);
        // Announce the face first: other threads must know it before its packets cross to them.
        self.workers.send_others(owner, || ToWorker::AddRemoteFace { id, attributes, owner });
        let new = NewFace {
            id,
            attributes,
            link: draft.link.clone(),
            persistency: draft.persistency,
            socket: draft.socket,
        };
        self.workers.send(owner, ToWorker::AddFace(Box::new(new)));
        self.table.insert(FaceRecord {
            id,
            remote: draft.remote,
            local: draft.local,
            source: None,
            scope: draft.scope,
            is_operator: draft.is_operator,
            persistency: draft.persistency,
            link: draft.link,
            worker: owner,
            is_up: true,
            static_index: draft.static_index,
            attempts: 0,
            down_log: RateLimitedLog::default(),
        });
        self.notify(FaceEventKind::Created, id);
        Ok(id)
    }

    /// A worker thread has created a face for an unknown UDP peer.
    pub(super) fn on_peer_face(&mut self, worker: u16, id: FaceId, port: PortId, path: UdpPath) {
        let port = self.ports.get(port);
        let local = port.local_of(path);
        let mut link = port.links.of(path.remote).clone();
        set_face_number(&mut link, id);
        self.table.insert(FaceRecord {
            id,
            remote: port.format.uri(path.remote),
            local: port.format.uri(local),
            source: Some(local.ip()),
            scope: FaceScope::NonLocal,
            is_operator: false,
            persistency: FacePersistency::OnDemand,
            link,
            worker,
            is_up: true,
            static_index: None,
            attempts: 0,
            down_log: RateLimitedLog::default(),
        });
        self.notify(FaceEventKind::Created, id);
    }

    /// Counts a refused connection. Asks one thread, round robin, to evict a connection, so that a
    /// later one finds a free slot.
    fn note_refused(&mut self, now: Instant, remote: &str, refusal: Refusal, claimant: Claimant) {
        self.refused.count += 1;
        if let Some(count) = self.refused.log.add(now) {
            tracing::warn!(remote, %refusal, count, "connection refused");
        }
        if matches!(claimant, Claimant::Stream(_)) && self.refused.evict_at <= now {
            self.refused.evict_at = now.plus_ns(EVICT_INTERVAL_NS);
            let class = FaceClass { is_stream: true, network: refusal.network() };
            self.workers.send(self.next_worker.next(), ToWorker::Evict(class));
        }
    }

    /// The PIT tokens of a face. Local applications cannot forge Data of others, so they need no
    /// secret. On a link with several nodes, all see each other's tokens, and a node that answers
    /// two others returns the token of one of them. So tokens prove nothing there.
    fn pit_token(
        &self,
        static_index: Option<usize>,
        scope: FaceScope,
        remote: &FaceUri,
    ) -> PitTokenChoice {
        let declared = static_index.and_then(|index| self.statics.get(&index)?.config.pit_token);
        let format = if remote.has_hicn_packets() { UdpFormat::Hicn } else { UdpFormat::Ndn };
        declared.unwrap_or(match scope {
            FaceScope::Local => PitTokenChoice::Short,
            FaceScope::NonLocal if remote.is_multicast() => PitTokenChoice::Off,
            FaceScope::NonLocal => self.defaults.pit_token_of(format),
        })
    }

    /// Sends the face's attributes to all shards.
    fn send_attributes(&self, id: FaceId) {
        let Some(face) = self.table.find(id) else { return };
        let (scope, is_datagram) = (face.scope, face.remote.is_datagram());
        let peer = face.remote.socket_addr().filter(|_| scope == FaceScope::NonLocal);
        let token = self.pit_token(face.static_index, scope, &face.remote);
        let attributes = face_attributes(peer.map(|peer| peer.ip()), is_datagram, scope, token);
        let attributes = FaceAttributes { link_type: link_type(&face.remote), ..attributes };
        self.workers.send_all_shards(|| Command::AddFace { face: id, attributes });
    }

    /// Finds an existing face to this peer.
    fn existing(&self, remote: &FaceUri) -> Option<FaceInfo> {
        // A face that the peer opened is indexed with the local address that the peer sends to. A
        // new face would use the same addresses if the system's route starts there.
        let chosen_by_peer = || {
            let peer = remote.socket_addr().filter(|_| remote.is_datagram())?;
            let source = source_toward(peer)?;
            self.table.to_peer(remote, Some(source.ip))
        };
        self.table.to_peer(remote, None).or_else(chosen_by_peer).map(FaceRecord::info)
    }

    // Changes and removal.

    pub(super) fn update(
        &mut self,
        id: FaceId,
        changes: &FaceChanges,
    ) -> Result<FaceInfo, FaceError> {
        self.update_declared(id, changes, None)
    }

    fn update_declared(
        &mut self,
        id: FaceId,
        changes: &FaceChanges,
        declared: Option<&StaticFace>,
    ) -> Result<FaceInfo, FaceError> {
        let face = self.table.find_mut(id).ok_or(FaceError::NotFound)?;
        let peer = face.remote.socket_addr().map(|peer| peer.ip());
        let mtu_default = match peer {
            Some(peer) if peer.is_multicast() => PACKET_SIZE_MAX,
            Some(peer) => udp_mtu(&self.defaults, peer),
            None => face.remote.device_mtu().unwrap_or(face.link.codec.mtu),
        };
        let (persistency, mut link) = face.with_changes(changes, mtu_default)?;
        if let Some(declared) = declared {
            declared.configure(&mut link);
        }
        face.persistency = persistency;
        face.link = link.clone();
        let (worker, info) = (face.worker, face.info());
        let update = ToWorker::UpdateFace { id, link, persistency };
        if let Some(update) = self.balance.defer(id, update) {
            self.workers.send(worker, update);
        }
        Ok(info)
    }

    pub(super) fn destroy(&mut self, id: FaceId) {
        if let Some(face) = self.table.find(id) {
            self.workers.send(face.worker, ToWorker::RemoveFace(id));
            self.remove(id);
        }
    }

    /// Answers a control message of hicn-light. Then closes the face, if its program is leaving.
    pub(super) fn answer_hicn(&mut self, answer: HicnAnswer) {
        let HicnAnswer { face, message, has_routes, is_closing } = answer;
        if let Some(record) = self.table.find(face) {
            let message = Packet::from(message);
            self.workers.send(record.worker, ToWorker::HicnControl { face, message, has_routes });
        }
        if is_closing {
            self.destroy(face);
        }
    }

    /// A worker thread has closed the socket of a face.
    pub(super) fn on_closed(
        &mut self,
        now: Instant,
        id: FaceId,
        reason: &CloseReason,
        removed: bool,
    ) {
        let Some(face) = self.table.find_mut(id) else { return };
        let remote = face.remote.to_string();
        // The worker keeps permanent faces, and so the lost multicast face.
        let is_lost = !removed && self.multicast.lose(now, id);
        if removed || is_lost {
            tracing::debug!(face = id.0, remote, ?reason, "face closed");
            return if is_lost { self.destroy(id) } else { self.remove(id) };
        }
        if let Some(count) = face.down_log.add(now) {
            tracing::warn!(face = id.0, remote, ?reason, count, "permanent face is down");
        }
        face.is_up = false;
        self.notify(FaceEventKind::Down, id);
        self.retry_later(now, ConnectPurpose::Reconnect { face: id });
    }

    /// Removes a face, which its worker thread has closed, from all tables.
    fn remove(&mut self, id: FaceId) {
        self.notify(FaceEventKind::Destroyed, id);
        if let Some(face) = self.table.remove(id) {
            self.quota.release(id);
            self.workers.send_others(face.worker, || ToWorker::RemoveFace(id));
        }
    }

    // Reconnecting.

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.connector.next_retry().into_iter().chain(self.multicast.next_wakeup()).min()
    }

    fn retry_later(&mut self, now: Instant, purpose: ConnectPurpose) {
        let attempts = match &purpose {
            ConnectPurpose::Reconnect { face } | ConnectPurpose::Recheck { face } => {
                self.table.find_mut(*face).map(|face| &mut face.attempts)
            }
            ConnectPurpose::Static { index } => {
                self.statics.get_mut(index).map(|declared| &mut declared.attempts)
            }
            ConnectPurpose::Command { .. } => None,
        };
        let Some(attempts) = attempts else { return };
        *attempts += 1;
        let waits = match purpose {
            ConnectPurpose::Recheck { .. } => RECHECK,
            _ => RECONNECT,
        };
        let pause_ns = waits.delay_ns(*attempts);
        self.connector.retry_after(now, pause_ns, purpose);
    }

    // Moving faces between threads.

    pub(super) fn is_moving(&self) -> bool {
        self.balance.is_moving()
    }

    /// Records a worker thread's load. Moves a face if `may_move` and it would balance the load.
    pub(super) fn on_work(
        &mut self,
        now: Instant,
        worker: u16,
        report: WorkReport,
        may_move: bool,
    ) {
        self.balance.note_work(now, worker, report);
        if may_move
            && !self.is_moving()
            && let Some(Move { face, from, to }) = self.balance.decide(now)
        {
            tracing::debug!(face = face.0, from, to, "moving a face to another worker thread");
            self.balance.begin(face);
            self.workers.send(from, ToWorker::MoveFace { id: face, to, socket: None });
        }
    }

    /// The move has ended: thread `worker` has the face, if it still exists.
    pub(super) fn on_move_ended(&mut self, id: FaceId, worker: u16) {
        if let Some(face) = self.table.find_mut(id) {
            face.worker = worker;
        }
        for command in self.balance.end() {
            self.workers.send(worker, command);
        }
    }
}
