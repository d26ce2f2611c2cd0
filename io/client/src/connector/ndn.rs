use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;

use weir_base::{Instant, NS_PER_MS, NS_PER_S, Packet, Pool};
use weir_face::{FaceUri, RecvStatus};
use weir_manage::commands::{self, Command};
use weir_manage::{ControlParameters, ControlResponse, face_flags, route_flags};
use weir_transport::PathId;
use weir_wire::{DataView, InterestView, LpHeader, Name};

use super::pending_commands::PendingCommands;
use super::{Connector, Inheritance, RegistrationAnswer, RegistrationError};
use crate::command_signer::CommandSigner;
use crate::connection::{Connection, Received, ReceivedPacket};

/// Routes are registered again this often over UDP, where nothing else shows that the router was
/// restarted or has closed the idle face.
const REFRESH_NS: u64 = 10 * NS_PER_S;
/// How many of them in one turn, and the time between the turns. More could exceed the queues of
/// the link and of the router, and delay the packets of users.
const REFRESHES_PER_TURN: usize = 50;
const REFRESH_PAUSE_NS: u64 = 10 * NS_PER_MS;
/// How long the router may take to answer the request to report sources.
const SOURCES_TIMEOUT_NS: u64 = 2 * NS_PER_S;
/// How long after a Nack that request is repeated: the router's management may be starting. The
/// first requests, for which users of the connection wait, follow sooner.
const SOURCES_RETRY_NS: u64 = 500 * NS_PER_MS;
const SOURCES_RETRY_FIRST_NS: u64 = 50 * NS_PER_MS;
/// How many requests users of the connection wait for.
const SOURCES_TRIES_AWAITED: u32 = 6;
/// How often that request is sent over one connection. Some routers have no management.
const SOURCES_TRIES_MAX: u32 = 20;

/// The connector for Weir, NFD and compatible routers, which register prefixes by NFD's management
/// protocol.
pub(crate) struct NdnConnector {
    connection: Connection,
    pending: PendingCommands<CommandSubject>,
    /// The command for a prefix whose answer the caller awaits.
    commands: BTreeMap<Name, Name>,
    answers: Vec<RegistrationAnswer>,
    /// The routes that the router should have.
    routes: BTreeMap<Name, Inheritance>,
    /// When they are registered again; `None` if a broken connection would show.
    refresh_at: Option<Instant>,
    /// The last of them that has been registered again, if others follow.
    refreshed: Option<Name>,
    sources: SourcesRequest,
}

/// What a pending command is about.
enum CommandSubject {
    /// The registration of this prefix, or its end. The caller takes the answer.
    Prefix(Name),
    Sources,
}

/// The request that the router report the face that each packet came from.
#[derive(Default)]
struct SourcesRequest {
    tries: u32,
    /// When it is sent, or times out.
    due_at: Option<Instant>,
    pending: Option<Name>,
    /// Whether users of the connection still wait for the answer.
    is_awaited: bool,
}

impl SourcesRequest {
    fn on_answer(&mut self, now: Instant, result: &Result<(), RegistrationError>) {
        self.pending = None;
        // Some routers refuse. The sources are then unknown.
        let is_starting = matches!(result, Err(RegistrationError::Unreachable(_)));
        self.is_awaited &= is_starting && self.tries < SOURCES_TRIES_AWAITED;
        let wait_ns = if self.is_awaited { SOURCES_RETRY_FIRST_NS } else { SOURCES_RETRY_NS };
        self.due_at = is_starting.then(|| now.plus_ns(wait_ns));
    }
}

impl NdnConnector {
    pub(crate) fn new(connection: Connection) -> Self {
        Self {
            connection,
            pending: PendingCommands::new(),
            commands: BTreeMap::new(),
            answers: Vec::new(),
            routes: BTreeMap::new(),
            refresh_at: None,
            refreshed: None,
            sources: SourcesRequest::default(),
        }
    }

    /// Sends a command. `subject`: `None` if the answer is not needed. Returns the name of the
    /// command, or `None` if it cannot be sent.
    fn send_command(
        &mut self,
        now: Instant,
        signer: &mut CommandSigner,
        command: Command,
        parameters: &ControlParameters,
        subject: Option<CommandSubject>,
    ) -> Option<Name> {
        let interest = signer.sign(self.connection.is_local(), command, parameters);
        let name = InterestView::decode(&interest).ok()?.name.to_name();
        self.send_packet(now, LpHeader::default(), Packet::from(interest)).ok()?;
        self.pending.insert(now, name.clone(), subject);
        Some(name)
    }

    /// Sends a command about a route. Returns whether it was sent. If not, the caller misses the
    /// answer, as if it was lost.
    fn send_route_command(
        &mut self,
        now: Instant,
        signer: &mut CommandSigner,
        (command, inheritance): (Command, Option<Inheritance>),
        prefix: &Name,
        wants_answer: bool,
    ) -> bool {
        let flags = inheritance.map(|inheritance| match inheritance {
            Inheritance::Inherited => route_flags::CHILD_INHERIT,
            Inheritance::Longest => 0,
        });
        let parameters =
            ControlParameters { name: Some(prefix.clone()), flags, ..Default::default() };
        let subject = wants_answer.then(|| CommandSubject::Prefix(prefix.clone()));
        let name = self.send_command(now, signer, command, &parameters, subject);
        let is_sent = name.is_some();
        if let Some(name) = name.filter(|_| wants_answer) {
            self.commands.insert(prefix.clone(), name);
        }
        is_sent
    }

    /// Registers some of the routes again. The next turns continue with the others.
    fn refresh(&mut self, now: Instant, signer: &mut CommandSigner) {
        let after = self.refreshed.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let due: Vec<(Name, Inheritance)> = self
            .routes
            .range::<Name, _>((after, Bound::Unbounded))
            .take(REFRESHES_PER_TURN)
            .map(|(prefix, inheritance)| (prefix.clone(), *inheritance))
            .collect();
        let mut is_complete = due.len() < REFRESHES_PER_TURN;
        for (prefix, inheritance) in due {
            let command = (Command::RibRegister, Some(inheritance));
            if !self.send_route_command(now, signer, command, &prefix, false) {
                // The queue is full. The next turn continues here.
                is_complete = false;
                break;
            }
            self.refreshed = Some(prefix);
        }
        if is_complete {
            self.refreshed = None;
        }
        let wait_ns = if is_complete { REFRESH_NS } else { REFRESH_PAUSE_NS };
        self.refresh_at = (!self.routes.is_empty()).then(|| now.plus_ns(wait_ns));
    }

    /// The present request was lost, or its answer is late. Returns whether there is one.
    fn forget_sources_request(&mut self) -> bool {
        let Some(name) = self.sources.pending.take() else { return false };
        self.pending.forget(&name);
        true
    }

    fn send_sources_request(&mut self, now: Instant, signer: &mut CommandSigner) {
        if self.forget_sources_request() {
            self.sources.is_awaited = false;
        }
        self.sources.due_at = None;
        if self.sources.tries >= SOURCES_TRIES_MAX {
            return;
        }
        self.sources.tries += 1;
        self.sources.due_at = Some(now.plus_ns(SOURCES_TIMEOUT_NS));
        let parameters = ControlParameters {
            flags: Some(face_flags::LOCAL_FIELDS),
            mask: Some(face_flags::LOCAL_FIELDS),
            ..Default::default()
        };
        let subject = Some(CommandSubject::Sources);
        self.sources.pending =
            self.send_command(now, signer, Command::FacesUpdate, &parameters, subject);
        self.sources.is_awaited &= self.sources.pending.is_some();
    }

    /// Takes the answer to a command of this connector. Returns whether the packet is one.
    fn take_answer(&mut self, now: Instant, received: &ReceivedPacket) -> bool {
        let ReceivedPacket { header, packet, .. } = received;
        let data = DataView::decode(packet).ok();
        let name = match (header.nack, &data) {
            (None, Some(data)) => data.name,
            (None, None) => return false,
            (Some(_), _) => match InterestView::decode(packet) {
                Ok(interest) => interest.name,
                Err(_) => return false,
            },
        };
        if !self.pending.contains(name) {
            return false;
        }
        // The answer may no longer be needed.
        let Some(subject) = self.pending.take(name) else { return true };
        let result = match (header.nack, &data) {
            (Some(reason), _) => Err(RegistrationError::Unreachable(reason)),
            (None, Some(data)) => match commands::parse_response(data) {
                Ok(ControlResponse { code: 200, .. }) => Ok(()),
                Ok(refusal) => Err(RegistrationError::Refused(refusal)),
                Err(_) => Err(RegistrationError::Malformed),
            },
            (None, None) => return false,
        };
        match subject {
            CommandSubject::Prefix(prefix) => self.on_registration(prefix, result),
            CommandSubject::Sources => self.sources.on_answer(now, &result),
        }
        true
    }

    fn on_registration(&mut self, prefix: Name, result: Result<(), RegistrationError>) {
        self.commands.remove(&prefix);
        if result.is_err() {
            self.routes.remove(&prefix);
        }
        self.answers.push(RegistrationAnswer { prefix, result });
    }
}

impl Connector for NdnConnector {
    fn connect_consumer(uri: &FaceUri) -> io::Result<Self> {
        Connection::open(uri).map(Self::new)
    }

    fn connect_producer(
        &mut self,
        now: Instant,
        signer: &mut CommandSigner,
        prefix: &Name,
        inheritance: Inheritance,
    ) {
        self.forget_answer(prefix);
        let command = (Command::RibRegister, Some(inheritance));
        if !self.send_route_command(now, signer, command, prefix, true) {
            return;
        }
        self.routes.insert(prefix.clone(), inheritance);
        if self.connection.has_datagrams() {
            self.refresh_at.get_or_insert(now.plus_ns(REFRESH_NS));
        }
    }

    fn disconnect_producer(
        &mut self,
        now: Instant,
        signer: &mut CommandSigner,
        prefix: &Name,
        wants_answer: bool,
    ) {
        self.forget_answer(prefix);
        self.routes.remove(prefix);
        let command = (Command::RibUnregister, None);
        self.send_route_command(now, signer, command, prefix, wants_answer);
    }

    fn report_sources(&mut self, now: Instant, signer: &mut CommandSigner) {
        // Routers report sources only to programs of their own host.
        if self.connection.is_local() {
            self.forget_sources_request();
            self.sources = SourcesRequest { is_awaited: true, ..SourcesRequest::default() };
            self.send_sources_request(now, signer);
        }
    }

    fn awaits_sources(&self) -> bool {
        self.sources.is_awaited
    }

    fn forget_answer(&mut self, prefix: &Name) {
        if let Some(command) = self.commands.remove(prefix) {
            self.pending.forget(&command);
            // It is not known whether the router has the route. A refresh would lead Interests to a
            // client without producer.
            self.routes.remove(prefix);
        }
        self.answers.retain(|answer| answer.prefix != *prefix);
    }

    fn take_answers(&mut self, answers: &mut Vec<RegistrationAnswer>) {
        answers.append(&mut self.answers);
    }

    fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    fn recv_packets(
        &mut self,
        now: Instant,
        path: PathId,
        pool: &mut Pool,
        received: &mut Received<'_>,
    ) -> io::Result<RecvStatus> {
        let mut at = received.packets.len();
        let status = self.connection.recv_packets(now, path, pool, received)?;
        // Usually no command is pending, and no packet is looked at.
        while !self.pending.is_empty() && at < received.packets.len() {
            if self.take_answer(now, &received.packets[at]) {
                received.packets.remove(at);
            } else {
                at += 1;
            }
        }
        Ok(status)
    }

    fn run_timers(&mut self, now: Instant, signer: &mut CommandSigner) {
        self.connection.run_timers(now);
        self.pending.expire(now);
        if self.refresh_at.is_some_and(|at| at <= now) {
            self.refresh(now, signer);
        }
        if self.sources.due_at.is_some_and(|at| at <= now) {
            self.send_sources_request(now, signer);
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let link = self.connection.link.next_wakeup();
        let expiry = self.pending.next_expiry();
        [link, self.refresh_at, self.sources.due_at, expiry].into_iter().flatten().min()
    }

    fn has_management(&self) -> bool {
        true
    }

    fn connection(&self) -> &Connection {
        &self.connection
    }

    fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}
