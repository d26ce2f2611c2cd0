use std::collections::{BTreeMap, BTreeSet};
use std::io;

use weir_base::{Instant, NS_PER_MS, NS_PER_S, Packet, Pool};
use weir_face::{FaceUri, RecvStatus};
use weir_hicn::HicnPrefix;
use weir_hicn::control::{Command, ControlMessage, ControlView, ListedRoute, MessageKind};
use weir_transport::PathId;
use weir_wire::Name;

use super::{Connector, Inheritance, RegistrationAnswer, RegistrationError};
use crate::command_signer::CommandSigner;
use crate::connection::{Connection, Received, random_u64};

/// A request without an answer is repeated after this time.
const RESEND_NS: u64 = 500 * NS_PER_MS;
/// How often a request is sent.
const TRIES_MAX: u32 = 4;
/// Routes are added again this often. hicn-light and a router that was restarted have forgotten
/// them, and over UDP nothing else shows that.
const REFRESH_NS: u64 = 10 * NS_PER_S;

/// The connector for hicn-light, and for Weir where it answers as hicn-light does: hICN packets and
/// control messages over one UDP socket (decision 0050).
///
/// hicn-light sends Interests to the connection that added the route, and accepts Data only from
/// the one that got the Interest, so everything uses one socket. It never forgets a connection, so
/// the end of this one is announced.
pub(crate) struct HicnLightConnector {
    connection: Connection,
    sequence: u32,
    /// The routes that the router should have.
    routes: BTreeMap<HicnPrefix, Name>,
    /// Requests without an answer, by sequence number.
    pending: BTreeMap<u32, PendingRequest>,
    /// When each of them is repeated.
    resends: BTreeSet<(Instant, u32)>,
    refresh_at: Option<Instant>,
    answers: Vec<RegistrationAnswer>,
}

struct PendingRequest {
    subject: RequestSubject,
    /// The whole message, for repetitions.
    message: Vec<u8>,
    tries: u32,
    again_at: Instant,
}

enum RequestSubject {
    /// The route to add or to remove.
    Route { command: Command, prefix: HicnPrefix, name: Name, wants_answer: bool },
    /// The list of all routes, because this one was not removed.
    ListFor(HicnPrefix),
}

impl HicnLightConnector {
    fn next_message(&mut self, command: Command) -> ControlMessage {
        self.sequence = self.sequence.wrapping_add(1);
        ControlMessage::request(command, self.sequence)
    }

    fn send(&mut self, message: Vec<u8>) {
        // The link counts a refusal. The request is repeated.
        let _ = self.connection.link.enqueue_control(Packet::from(message));
    }

    fn request(
        &mut self,
        now: Instant,
        command: Command,
        (prefix, name): (HicnPrefix, &Name),
        wants_answer: bool,
    ) {
        self.forget_answer(name);
        let message = self.next_message(command);
        let name = name.clone();
        let subject = RequestSubject::Route { command, prefix, name, wants_answer };
        self.send_request(now, message.sequence, subject, message.encode_route(prefix));
    }

    /// Sends a request, and repeats it until the answer arrives.
    fn send_request(
        &mut self,
        now: Instant,
        sequence: u32,
        subject: RequestSubject,
        message: Vec<u8>,
    ) {
        self.send(message.clone());
        let again_at = now.plus_ns(RESEND_NS);
        let request = PendingRequest { subject, message, tries: 1, again_at };
        self.pending.insert(sequence, request);
        self.resends.insert((again_at, sequence));
    }

    fn take_pending(&mut self, sequence: u32) -> Option<PendingRequest> {
        let request = self.pending.remove(&sequence)?;
        self.resends.remove(&(request.again_at, sequence));
        Some(request)
    }

    fn on_message(&mut self, now: Instant, message: &[u8]) {
        let Ok(view) = ControlView::decode(message) else { return };
        let is_positive = match view.kind {
            MessageKind::Ack => true,
            MessageKind::Nack => false,
            MessageKind::Response => return self.on_list(&view),
            // Nothing else was requested.
            _ => return,
        };
        // Answers to repetitions and refreshes are not pending.
        let Some(request) = self.take_pending(view.sequence) else { return };
        let RequestSubject::Route { command, prefix, name, wants_answer } = request.subject else {
            return;
        };
        let result = match (command, is_positive) {
            (Command::ROUTE_ADD, false) => {
                self.routes.remove(&prefix);
                Err(RegistrationError::Negative)
            }
            (_, false) => {
                self.list_for(now, prefix);
                Ok(())
            }
            (_, true) => Ok(()),
        };
        if wants_answer {
            self.answers.push(RegistrationAnswer { prefix: name, result });
        }
    }

    /// The list of all routes, if it was requested.
    fn on_list(&mut self, view: &ControlView<'_>) {
        let subject = self.pending.get(&view.sequence).map(|request| &request.subject);
        if let Some(&RequestSubject::ListFor(prefix)) = subject {
            self.take_pending(view.sequence);
            self.remove_listed(view, prefix);
        }
    }

    /// Requests the number of this connection. hicn-light removes the route of a connection only by
    /// its number or name, and no command returns those of the own connection.
    fn list_for(&mut self, now: Instant, prefix: HicnPrefix) {
        let message = self.next_message(Command::ROUTE_LIST);
        let subject = RequestSubject::ListFor(prefix);
        self.send_request(now, message.sequence, subject, message.encode());
    }

    /// Removes a route that should be gone. If other connections have routes for the prefix, it is
    /// not known which one is this. The route then stays until the end of the connection.
    fn remove_listed(&mut self, view: &ControlView<'_>, prefix: HicnPrefix) {
        let Ok(routes) = view.routes() else { return };
        let routes: Vec<ListedRoute> = routes.filter_map(Result::ok).collect();
        let mut found = routes.iter().filter(|route| route.prefix == prefix);
        if let (Some(route), None) = (found.next(), found.next())
            && !self.routes.contains_key(&prefix)
        {
            let message = self.next_message(Command::ROUTE_REMOVE);
            self.send(message.encode_route_of(route.connection, prefix));
        }
    }

    fn refresh(&mut self) {
        let prefixes: Vec<HicnPrefix> = self.routes.keys().copied().collect();
        for prefix in prefixes {
            let message = self.next_message(Command::ROUTE_ADD);
            self.send(message.encode_route(prefix));
        }
    }

    fn resend_due(&mut self, now: Instant) {
        while let Some(&(at, sequence)) = self.resends.first()
            && at <= now
        {
            let Some(mut request) = self.take_pending(sequence) else { return };
            if request.tries >= TRIES_MAX {
                self.give_up(request);
                continue;
            }
            self.send(request.message.clone());
            request.tries += 1;
            request.again_at = now.plus_ns(RESEND_NS);
            self.resends.insert((request.again_at, sequence));
            self.pending.insert(sequence, request);
        }
    }

    /// No answer arrived. The caller of a registration notices that, and may try again.
    fn give_up(&mut self, request: PendingRequest) {
        // A router that starts later must not lead the prefix to a socket without producer.
        if let RequestSubject::Route { command: Command::ROUTE_ADD, prefix, .. } = request.subject {
            self.routes.remove(&prefix);
        }
    }
}

impl Connector for HicnLightConnector {
    fn connect_consumer(uri: &FaceUri) -> io::Result<Self> {
        let connection = Connection::open_hicn(uri)?;
        Ok(Self {
            connection,
            // Hosts that do not see the requests cannot guess it, and so forge no answers.
            sequence: random_u64()? as u32,
            routes: BTreeMap::new(),
            pending: BTreeMap::new(),
            resends: BTreeSet::new(),
            refresh_at: None,
            answers: Vec::new(),
        })
    }

    fn connect_producer(
        &mut self,
        now: Instant,
        _: &mut CommandSigner,
        name: &Name,
        _: Inheritance,
    ) {
        let Some(prefix) = HicnPrefix::from_name(name.as_view()) else {
            let (prefix, result) = (name.clone(), Err(RegistrationError::NotHicn));
            return self.answers.push(RegistrationAnswer { prefix, result });
        };
        self.routes.insert(prefix, name.clone());
        self.refresh_at.get_or_insert(now.plus_ns(REFRESH_NS));
        self.request(now, Command::ROUTE_ADD, (prefix, name), true);
    }

    fn disconnect_producer(
        &mut self,
        now: Instant,
        _: &mut CommandSigner,
        name: &Name,
        wants_answer: bool,
    ) {
        let Some(prefix) = HicnPrefix::from_name(name.as_view()) else {
            if wants_answer {
                let (prefix, result) = (name.clone(), Err(RegistrationError::NotHicn));
                self.answers.push(RegistrationAnswer { prefix, result });
            }
            return;
        };
        self.routes.remove(&prefix);
        self.request(now, Command::ROUTE_REMOVE, (prefix, name), wants_answer);
    }

    fn forget_answer(&mut self, name: &Name) {
        let is_about = |request: &PendingRequest| match &request.subject {
            RequestSubject::Route { name: requested, .. } => requested == name,
            RequestSubject::ListFor(_) => false,
        };
        let sequences: Vec<u32> = self
            .pending
            .iter()
            .filter(|(_, request)| is_about(request))
            .map(|(&sequence, _)| sequence)
            .collect();
        for sequence in sequences {
            self.take_pending(sequence);
        }
        self.answers.retain(|answer| answer.prefix != *name);
    }

    fn take_answers(&mut self, answers: &mut Vec<RegistrationAnswer>) {
        answers.append(&mut self.answers);
    }

    fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// hICN packets have no field for the source.
    fn report_sources(&mut self, _now: Instant, _signer: &mut CommandSigner) {}

    fn awaits_sources(&self) -> bool {
        false
    }

    fn recv_packets(
        &mut self,
        now: Instant,
        path: PathId,
        pool: &mut Pool,
        received: &mut Received<'_>,
    ) -> io::Result<RecvStatus> {
        let status = self.connection.recv_packets(now, path, pool, received)?;
        for message in received.control.drain(..) {
            self.on_message(now, &message);
        }
        Ok(status)
    }

    fn run_timers(&mut self, now: Instant, _signer: &mut CommandSigner) {
        self.connection.run_timers(now);
        self.resend_due(now);
        if self.refresh_at.is_some_and(|at| at <= now) {
            self.refresh();
            self.refresh_at = (!self.routes.is_empty()).then(|| now.plus_ns(REFRESH_NS));
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let resend = self.resends.first().map(|&(at, _)| at);
        [self.connection.link.next_wakeup(), resend, self.refresh_at].into_iter().flatten().min()
    }

    fn has_management(&self) -> bool {
        false
    }

    fn connection(&self) -> &Connection {
        &self.connection
    }

    fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl Drop for HicnLightConnector {
    fn drop(&mut self) {
        // The only one: after the end of a connection, hicn-light of 2023 may crash on further
        // messages from it.
        let message = self.next_message(Command::CONNECTION_REMOVE);
        self.send(message.encode_connection());
        // If the socket is full, the router keeps the connection until another program gets its
        // port.
        let _ = self.connection.flush();
    }
}
