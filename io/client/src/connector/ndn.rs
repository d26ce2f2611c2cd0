use std::collections::BTreeMap;
use std::io;

use weir_base::{Instant, NS_PER_MS, NS_PER_S, Packet, Pool};
use weir_face::{FaceUri, RecvStatus};
use weir_manage::commands::{self, Command};
use weir_manage::{ControlParameters, ControlResponse, face_flags, route_flags};
use weir_transport::PathId;
use weir_wire::{DataView, InterestView, LpHeader, Name};

use super::{Connector, Inheritance, RegistrationAnswer, RegistrationError};
use crate::command_signer::CommandSigner;
use crate::connection::{Connection, Received, ReceivedPacket};

/// Routes are registered again this often over UDP, where nothing else shows that the router was
/// restarted or has closed the idle face.
const REFRESH_NS: u64 = 10 * NS_PER_S;
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
    /// Commands without an answer, by name.
    pending: BTreeMap<Name, CommandSubject>,
    /// The command that is pending for a prefix.
    commands: BTreeMap<Name, Name>,
    answers: Vec<RegistrationAnswer>,
    /// The routes that the router should have.
    routes: BTreeMap<Name, Inheritance>,
    /// When they are registered again; `None` if a broken connection would show.
    refresh_at: Option<Instant>,
    sources: SourcesRequest,
}

/// What a pending command is about.
enum CommandSubject {
    /// The registration of this prefix, or its end. The caller takes the answer.
    Prefix(Name),
    /// A repeated registration. Its answer has no receiver.
    Refresh,
    Sources,
}

/// The request that the router report the face that each packet came from.
#[derive(Default)]
struct SourcesRequest {
    tries: u32,
    /// When it is sent, or times out.
    due_at: Option<Instant>,
    is_pending: bool,
    /// Whether users of the connection still wait for the answer.
    is_awaited: bool,
}

impl SourcesRequest {
    fn on_answer(&mut self, now: Instant, result: &Result<(), RegistrationError>) {
        self.is_pending = false;
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
            pending: BTreeMap::new(),
            commands: BTreeMap::new(),
            answers: Vec::new(),
            routes: BTreeMap::new(),
            refresh_at: None,
            sources: SourcesRequest::default(),
        }
    }

    /// Sends a command. Returns its name, or `None` if it cannot be sent.
    fn send_command(
        &mut self,
        now: Instant,
        signer: &mut CommandSigner,
        command: Command,
        parameters: &ControlParameters,
    ) -> Option<Name> {
        let interest = signer.sign(self.connection.is_local(), command, parameters);
        let name = InterestView::decode(&interest).map(|interest| interest.name.to_name());
        self.send_packet(now, LpHeader::default(), Packet::from(interest)).ok()?;
        name.ok()
    }

    /// Sends a command about a route. If it cannot be sent, the caller misses the answer, as if it
    /// was lost.
    fn send_route_command(
        &mut self,
        now: Instant,
        signer: &mut CommandSigner,
        (command, inheritance): (Command, Option<Inheritance>),
        prefix: &Name,
    ) -> Option<Name> {
        let flags = inheritance.map(|inheritance| match inheritance {
            Inheritance::Inherited => route_flags::CHILD_INHERIT,
            Inheritance::Longest => 0,
        });
        let parameters =
            ControlParameters { name: Some(prefix.clone()), flags, ..Default::default() };
        self.send_command(now, signer, command, &parameters)
    }

    /// The caller awaits the answer to this command.
    fn expect_answer(&mut self, command: Option<Name>, prefix: &Name) {
        if let Some(name) = command {
            self.pending.insert(name.clone(), CommandSubject::Prefix(prefix.clone()));
            self.commands.insert(prefix.clone(), name);
        }
    }

    /// Registers all routes again.
    fn refresh(&mut self, now: Instant, signer: &mut CommandSigner) {
        self.pending.retain(|_, subject| !matches!(subject, CommandSubject::Refresh));
        for (prefix, inheritance) in self.routes.clone() {
            let command = (Command::RibRegister, Some(inheritance));
            if let Some(name) = self.send_route_command(now, signer, command, &prefix) {
                self.pending.insert(name, CommandSubject::Refresh);
            }
        }
        self.refresh_at = (!self.routes.is_empty()).then(|| now.plus_ns(REFRESH_NS));
    }

    fn send_sources_request(&mut self, now: Instant, signer: &mut CommandSigner) {
        // An earlier one without an answer was lost.
        self.pending.retain(|_, subject| !matches!(subject, CommandSubject::Sources));
        if std::mem::take(&mut self.sources.is_pending) {
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
        if let Some(name) = self.send_command(now, signer, Command::FacesUpdate, &parameters) {
            self.pending.insert(name, CommandSubject::Sources);
            self.sources.is_pending = true;
        } else {
            self.sources.is_awaited = false;
        }
    }

    /// Takes the answer to a pending command. Returns whether the packet is one.
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
        let Some(subject) = self.pending.remove(&name.to_name()) else { return false };
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
            CommandSubject::Refresh => {}
            CommandSubject::Sources => {
                self.sources.on_answer(now, &result);
            }
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
        let name = self.send_route_command(now, signer, command, prefix);
        self.expect_answer(name, prefix);
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
        let name = self.send_route_command(now, signer, command, prefix);
        if wants_answer {
            self.expect_answer(name, prefix);
        }
    }

    fn report_sources(&mut self, now: Instant, signer: &mut CommandSigner) {
        // Routers report sources only to programs of their own host.
        if self.connection.is_local() {
            self.sources = SourcesRequest { is_awaited: true, ..SourcesRequest::default() };
            self.send_sources_request(now, signer);
        }
    }

    fn awaits_sources(&self) -> bool {
        self.sources.is_awaited
    }

    fn forget_answer(&mut self, prefix: &Name) {
        if let Some(command) = self.commands.remove(prefix) {
            self.pending.remove(&command);
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
        if self.refresh_at.is_some_and(|at| at <= now) {
            self.refresh(now, signer);
        }
        if self.sources.due_at.is_some_and(|at| at <= now) {
            self.send_sources_request(now, signer);
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let link = self.connection.link.next_wakeup();
        [link, self.refresh_at, self.sources.due_at].into_iter().flatten().min()
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
