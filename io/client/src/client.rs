//! A client: connections to routers, for one thread.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use weir_base::{FaceId, Instant, NS_PER_MS, NS_PER_S, Packet, Pool, Rng};
use weir_face::{FaceUri, UdpPort};
use weir_link::LinkDrop;
use weir_manage::commands::{self, Command, Scope};
use weir_manage::{
    ControlParameters, ControlResponse, DatasetError, DatasetFetch, Element, face_flags,
};
use weir_store::{HoldingsStatus, ObjectList, ObjectQuery};
use weir_transport::PathId;
use weir_wire::{DataView, InterestView, LpHeader, NackReason, Name, PACKET_SIZE_MAX};

use crate::command_signer::CommandSigner;
use crate::connection::{Connection, ReceivedPacket, monotonic_now, random_u64};
use crate::connector::{
    self, Connector, Inheritance, NdnConnector, RegistrationAnswer, RegistrationError,
};
use crate::paths::{ClientError, PathChange, Paths};
use crate::sources::EndpointSources;
use crate::waker::{EndpointId, Waker, WokenEndpoints};

/// Bytes of receive blocks and packets kept for reuse.
const POOL_CACHED_BYTES_MAX: usize = 32 << 20;
/// How long a router may take to answer a registration, if the caller waits.
const REGISTRATION_WAIT_NS: u64 = 10 * NS_PER_S;
/// How long routers may delay the start of a client that requests sources.
const SOURCES_WAIT_NS: u64 = 2 * NS_PER_S;
/// Upper bound of packets kept while the client waits for a single answer. More are dropped.
const UNREAD_PACKETS_MAX: usize = 4096;

/// Why an Interest got no Data.
#[derive(Debug, thiserror::Error)]
pub enum ExpressError {
    /// The client cannot continue.
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("no answer in time")]
    Timeout,
    #[error("refused: {0:?}")]
    Nack(NackReason),
}

/// Why a management command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("the management command failed")]
    Express(#[from] ExpressError),
    #[error("the router refuses: {} {}", .0.code, .0.text)]
    Refused(ControlResponse),
    #[error("the router's answer cannot be decoded; does the router run another version?")]
    Malformed,
    /// The command exceeds the maximum packet size.
    #[error(
        "the command has {0} bytes, but a packet has at most {PACKET_SIZE_MAX}; use shorter names"
    )]
    TooLong(usize),
    /// The router is used over hICN packets, which cannot carry the names of commands.
    #[error(
        "{0} has no management protocol over hICN packets; use another address of the router, such \
         as its Unix socket"
    )]
    NoManagement(FaceUri),
    /// The router does not register a prefix.
    #[error("the router refuses: {0}")]
    NotRegistered(RegistrationError),
}

/// Connections to one or several routers: the client's *paths*. [`Client::send`] queues packets,
/// and [`Client::poll`] sends them and returns received ones. When one of several paths breaks, the
/// client reconnects with growing intervals. When none is left, the client cannot continue.
///
/// Commands and datasets go to one router: the first, or the one set by
/// [`Client::set_managed_path`].
pub struct Client {
    paths: Paths,
    managed: PathId,
    waker: Arc<Waker>,
    has_been_woken: bool,
    /// Descriptors of endpoints, once there are any.
    sources: Option<EndpointSources>,
    has_source: bool,
    pool: Pool,
    unread_packets: VecDeque<ReceivedPacket>,
    signer: CommandSigner,
}

impl Client {
    /// Connects to a router at a Unix, TCP or UDP address.
    ///
    /// # Errors
    /// [`ClientError::Connect`].
    pub fn connect(uri: &FaceUri) -> Result<Self, ClientError> {
        Self::connect_all(std::slice::from_ref(uri)).map(|(client, _)| client)
    }

    /// Connects to at most [`ROUTERS_MAX`](crate::ROUTERS_MAX) routers, and returns the errors of
    /// those that do not answer. These are retried later, like broken paths.
    ///
    /// # Errors
    /// [`ClientError::Connect`] of the first router, if none answers.
    pub fn connect_all(uris: &[FaceUri]) -> Result<(Self, Vec<ClientError>), ClientError> {
        // In parallel, because an unresponsive router delays the result by seconds.
        let results: Vec<_> = std::thread::scope(|scope| {
            let others = uris.iter().skip(1);
            let others: Vec<_> =
                others.map(|uri| scope.spawn(move || connector::connect(uri))).collect();
            let first = uris.iter().take(1).map(connector::connect).collect::<Vec<_>>();
            let others = others.into_iter().map(|thread| thread.join().expect("it cannot panic"));
            first.into_iter().chain(others).collect()
        });
        let mut errors = Vec::new();
        let mut routers = Vec::new();
        for (uri, result) in uris.iter().zip(results) {
            let failed = |source| ClientError::Connect { uri: uri.to_string(), source };
            routers.push((uri.clone(), result.map_err(|error| errors.push(failed(error))).ok()));
        }
        if errors.len() == routers.len() {
            return Err(errors.swap_remove(0));
        }
        Ok((Self::from_paths(routers)?, errors))
    }

    /// Connects to the router of this process, at the other end of a socket pair. Does not
    /// reconnect.
    pub fn from_socket_pair(stream: UnixStream) -> Result<Self, ClientError> {
        let connector = NdnConnector::new(Connection::from_socket_pair(stream)?);
        Self::from_paths(vec![(FaceUri::Internal, Some(Box::new(connector)))])
    }

    /// Connects to routers at UDP addresses, each from a bound port, with datagrams of at most
    /// `mtu` bytes.
    pub fn from_udp_ports(
        routers: impl IntoIterator<Item = (UdpPort, SocketAddr, usize)>,
    ) -> Result<Self, ClientError> {
        let connect = |(port, peer, mtu)| {
            let connector = NdnConnector::new(Connection::from_udp_port(port, peer, mtu)?);
            Ok((FaceUri::Udp(peer), Some(Box::new(connector) as Box<dyn Connector>)))
        };
        Self::from_paths(routers.into_iter().map(connect).collect::<io::Result<Vec<_>>>()?)
    }

    fn from_paths(
        routers: Vec<(FaceUri, Option<Box<dyn Connector>>)>,
    ) -> Result<Self, ClientError> {
        let waker = Arc::new(Waker::new()?);
        let paths = Paths::new(routers, waker.clone());
        let managed = paths.connected_paths().next().expect("at least one connection exists");
        Ok(Self {
            paths,
            managed,
            waker,
            has_been_woken: false,
            sources: None,
            has_source: false,
            pool: Pool::new(POOL_CACHED_BYTES_MAX),
            unread_packets: VecDeque::new(),
            signer: CommandSigner::new(Rng::from_seed(random_u64()?)),
        })
    }

    /// The working paths, numbered from 0 in the order in which the routers were given.
    pub fn paths(&self) -> impl Iterator<Item = PathId> {
        self.paths.connected_paths()
    }

    /// The address of the router of a path.
    pub fn uri_of(&self, path: PathId) -> &FaceUri {
        self.paths.uri(path)
    }

    /// Sends commands and dataset requests to the router of this path from now on.
    pub fn set_managed_path(&mut self, path: PathId) {
        self.managed = path;
    }

    /// The address of the router that receives commands.
    pub fn uri(&self) -> &FaceUri {
        self.paths.uri(self.managed)
    }

    /// Whether the router that receives commands runs on this host.
    pub fn is_local(&self) -> bool {
        self.paths.is_local(self.managed)
    }

    /// Whether the router of a path runs on this host.
    pub fn is_local_at(&self, path: PathId) -> bool {
        self.paths.is_local(path)
    }

    /// From now on the client also reconnects its last path, without a time limit. Meanwhile it has
    /// no path.
    pub fn retry_last_path(&mut self) {
        self.paths.retry_last_path(u64::MAX);
    }

    /// As [`Self::retry_last_path`], but the client fails if it has no path for this long. A router
    /// that restarts does not end a download then.
    pub fn retry_last_path_for(&mut self, limit: Duration) {
        self.paths.retry_last_path(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Which of several paths broke or returned since the last call.
    pub(crate) fn take_changes(&mut self) -> Vec<PathChange> {
        self.paths.take_changes()
    }

    /// Nanoseconds of the machine's monotonic clock, the same in every process.
    pub fn now(&self) -> Instant {
        monotonic_now()
    }

    /// The pool that packets come from.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// A random number for nonces and seeds.
    pub fn random_u64(&mut self) -> u64 {
        self.signer.rng.next_u64()
    }

    /// Wakes this client from another thread.
    pub fn waker(&self) -> Arc<Waker> {
        self.waker.clone()
    }

    /// Wakes the client when a descriptor of this endpoint becomes readable.
    pub(crate) fn watch(&mut self, source: BorrowedFd<'_>, id: EndpointId) -> io::Result<()> {
        let sources = match &mut self.sources {
            Some(sources) => sources,
            none => none.insert(EndpointSources::new()?),
        };
        sources.watch(source, id)
    }

    /// Which endpoints were woken since the last call, by [`Client::waker`] or by a descriptor.
    pub(crate) fn take_woken(&mut self) -> WokenEndpoints {
        let mut woken = match std::mem::take(&mut self.has_been_woken) {
            true => self.waker.take(),
            false => WokenEndpoints::default(),
        };
        if let Some(sources) = self.sources.as_ref().filter(|_| self.has_source) {
            sources.take(&mut woken.endpoints);
        }
        self.has_source = false;
        woken
    }

    /// Number of unreadable frames, and of packets that were too large or too many to send.
    pub fn dropped(&self) -> u64 {
        self.paths.dropped()
    }

    /// Queues a packet. The next [`Client::poll`] or [`Client::flush`] sends it.
    ///
    /// # Errors
    /// The queue is full, the packet cannot be sent over this link, or the path is broken.
    pub fn send(&mut self, path: PathId, header: LpHeader, packet: Packet) -> Result<(), LinkDrop> {
        self.paths.send(path, header, packet)
    }

    /// Queues an Interest or Data without a link header.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn send_bytes(&mut self, path: PathId, octets: &[u8]) -> Result<(), LinkDrop> {
        let packet = self.pool.copy(octets);
        self.send(path, LpHeader::default(), packet)
    }

    /// Sends queued packets, as far as the sockets accept them.
    ///
    /// # Errors
    /// [`ClientError::Lost`].
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.paths.flush(&mut self.pool, &mut self.signer)
    }

    /// Answers an Interest with a Nack: no route.
    pub fn nack_no_route(&mut self, ReceivedPacket { path, header, packet }: ReceivedPacket) {
        let nack = Some(NackReason::NoRoute);
        let header = LpHeader { pit_token: header.pit_token, nack, ..LpHeader::default() };
        // The link counts packets that its queue refuses.
        let _ = self.send(path, header, packet);
    }

    /// Sends queued packets, and appends received ones to `packets`. Waits for packets, for the
    /// [`Client::waker`], for a change of a path, or until `deadline`. Does not wait if packets
    /// have already arrived.
    ///
    /// # Errors
    /// [`ClientError::Lost`].
    pub fn poll(
        &mut self,
        deadline: Option<Instant>,
        packets: &mut Vec<ReceivedPacket>,
    ) -> Result<(), ClientError> {
        self.paths.poll_reconnects(&mut self.signer)?;
        self.flush()?;
        let before = packets.len();
        packets.extend(self.unread_packets.drain(..));
        self.paths.read(&mut self.pool, packets)?;
        if packets.len() == before && !self.has_news() {
            self.wait(None, deadline)?;
            self.flush()?;
            self.paths.read(&mut self.pool, packets)?;
        }
        Ok(())
    }

    /// As [`Client::poll`], but also returns when `other` becomes readable. Returns whether it is;
    /// reads nothing from it.
    ///
    /// # Errors
    /// [`ClientError::Lost`].
    pub fn poll_with_fd(
        &mut self,
        other: BorrowedFd<'_>,
        deadline: Option<Instant>,
        packets: &mut Vec<ReceivedPacket>,
    ) -> Result<bool, ClientError> {
        self.paths.poll_reconnects(&mut self.signer)?;
        self.flush()?;
        packets.extend(self.unread_packets.drain(..));
        let is_ready = !packets.is_empty() || self.has_news();
        let deadline = if is_ready { Some(Instant::ZERO) } else { deadline };
        if self.wait(Some(other), deadline)? {
            return Ok(true);
        }
        self.flush()?;
        self.paths.read(&mut self.pool, packets)?;
        Ok(false)
    }

    /// Whether there is something else than packets, so that a wait would delay it.
    fn has_news(&self) -> bool {
        self.paths.has_changes() || self.paths.has_answers()
    }

    fn wait(
        &mut self,
        other: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> Result<bool, ClientError> {
        let ready = self.paths.wait(self.sources.as_ref(), other, deadline)?;
        self.has_been_woken |= ready.woken;
        self.has_source |= ready.endpoint_source;
        Ok(ready.other_fd)
    }

    /// Sends an Interest and waits for its Data, at most for the Interest's lifetime. The next
    /// [`Client::poll`] returns other packets that arrive meanwhile.
    ///
    /// # Errors
    /// [`ExpressError`].
    pub fn express(&mut self, interest: &[u8]) -> Result<ReceivedPacket, ExpressError> {
        let view = InterestView::decode(interest)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))
            .map_err(ClientError::from)?;
        let deadline = self.now().plus_ns(view.lifetime_ms_or_default().saturating_mul(NS_PER_MS));
        let path = self.managed;
        self.send_bytes(path, interest)
            .map_err(|drop| ClientError::Lost(format!("it accepts no packets: {}", drop.name())))?;
        let is_wanted = |packet: &ReceivedPacket| packet.path == path && is_answer(&view, packet);
        let answer = self.wait_for(deadline, |_, packets| {
            let at = packets.iter().position(is_wanted)?;
            Some(packets.remove(at))
        })?;
        match answer {
            Some(ReceivedPacket { header: LpHeader { nack: Some(reason), .. }, .. }) => {
                Err(ExpressError::Nack(reason))
            }
            Some(data) => Ok(data),
            None => Err(ExpressError::Timeout),
        }
    }

    /// Polls until `take` finds something in what has arrived, or until `deadline`. The next
    /// [`Client::poll`] returns the packets that `take` leaves.
    fn wait_for<T>(
        &mut self,
        deadline: Instant,
        mut take: impl FnMut(&mut Paths, &mut Vec<ReceivedPacket>) -> Option<T>,
    ) -> Result<Option<T>, ClientError> {
        let (mut packets, mut found) = (Vec::new(), None);
        // Unread packets from before cannot be the answer. They are moved away, because `poll`
        // would return them at once.
        let mut kept: VecDeque<_> = self.unread_packets.drain(..).collect();
        while found.is_none() && self.now() < deadline {
            self.poll(Some(deadline), &mut packets)?;
            found = take(&mut self.paths, &mut packets);
            let free = UNREAD_PACKETS_MAX.saturating_sub(kept.len());
            kept.extend(packets.drain(..).take(free));
        }
        self.unread_packets = kept;
        Ok(found)
    }

    /// Sends a management command signed with DigestSha256, and waits for the answer, with any
    /// status code.
    ///
    /// # Errors
    /// [`CommandError::Express`] and [`CommandError::Malformed`].
    pub fn request_command(
        &mut self,
        command: Command,
        parameters: &ControlParameters,
    ) -> Result<ControlResponse, CommandError> {
        self.check_management()?;
        let interest = self.signer.sign(self.is_local(), command, parameters);
        // The router would close the connection, which would end all other requests, too.
        if interest.len() > PACKET_SIZE_MAX {
            return Err(CommandError::TooLong(interest.len()));
        }
        let answer = self.express(&interest)?;
        let data = DataView::decode(&answer.packet).map_err(|_| CommandError::Malformed)?;
        commands::parse_response(&data).map_err(|_| CommandError::Malformed)
    }

    /// Whether the router that receives commands has NFD's management protocol.
    fn check_management(&mut self) -> Result<(), CommandError> {
        match self.paths.connector(self.managed) {
            Some(connector) if !connector.has_management() => {
                Err(CommandError::NoManagement(self.uri().clone()))
            }
            _ => Ok(()),
        }
    }

    /// Sends a management command to the router of a path without waiting. Returns the name of its
    /// Interest; the answer, Data or Nack, has the same name. `None` if it cannot be sent.
    pub fn send_command(
        &mut self,
        path: PathId,
        command: Command,
        parameters: &ControlParameters,
    ) -> Option<Name> {
        self.paths.connector(path).filter(|connector| connector.has_management())?;
        let interest = self.signer.sign(self.is_local_at(path), command, parameters);
        self.send_bytes(path, &interest).ok()?;
        InterestView::decode(&interest).ok().map(|interest| interest.name.to_name())
    }

    /// Sends a management command like [`Client::request_command`], and returns the effective
    /// values.
    pub fn command(
        &mut self,
        command: Command,
        parameters: &ControlParameters,
    ) -> Result<ControlParameters, CommandError> {
        match self.request_command(command, parameters)? {
            ControlResponse { code: 200, body, .. } => {
                Ok(body.map(|body| *body).unwrap_or_default())
            }
            refused => Err(CommandError::Refused(refused)),
        }
    }

    /// Requests that the router send Interests below `prefix` to this client, and waits for the
    /// answer. The kind of the router decides how (paper socket-api, `connectProducer`).
    ///
    /// # Errors
    /// [`CommandError::Refused`], [`CommandError::NotRegistered`], and those of the connection.
    pub fn register_prefix(&mut self, prefix: &Name) -> Result<(), CommandError> {
        self.register_prefix_with(prefix, Inheritance::Inherited)
    }

    /// The same, with a choice whether longer prefixes get the route as well.
    ///
    /// # Errors
    /// As [`Client::register_prefix`].
    pub fn register_prefix_with(
        &mut self,
        prefix: &Name,
        inheritance: Inheritance,
    ) -> Result<(), CommandError> {
        self.connect_producer(self.managed, prefix, inheritance);
        self.wait_for_registration(prefix)
    }

    /// Reverses [`Client::register_prefix`].
    pub fn unregister_prefix(&mut self, prefix: &Name) -> Result<(), CommandError> {
        let now = self.now();
        if let Some(connector) = self.paths.connector(self.managed) {
            connector.disconnect_producer(now, &mut self.signer, prefix, true);
        }
        self.wait_for_registration(prefix)
    }

    fn wait_for_registration(&mut self, prefix: &Name) -> Result<(), CommandError> {
        let deadline = self.now().plus_ns(REGISTRATION_WAIT_NS);
        let mut answers = Vec::new();
        let result = self.wait_for(deadline, |paths, _| {
            paths.take_answers(&mut answers);
            let is_wanted = |answer: &RegistrationAnswer| answer.prefix == *prefix;
            answers.drain(..).find(is_wanted).map(|answer| answer.result)
        });
        if let Some(connector) = self.paths.connector(self.managed) {
            connector.forget_answer(prefix);
        }
        match result.map_err(ExpressError::from)? {
            Some(Ok(())) => Ok(()),
            Some(Err(RegistrationError::Refused(response))) => Err(CommandError::Refused(response)),
            Some(Err(RegistrationError::Unreachable(reason))) => {
                Err(ExpressError::Nack(reason).into())
            }
            Some(Err(RegistrationError::Malformed)) => Err(CommandError::Malformed),
            Some(Err(error)) => Err(CommandError::NotRegistered(error)),
            None => Err(ExpressError::Timeout.into()),
        }
    }

    /// As [`Client::register_prefix`], with the router of this path and without waiting.
    /// [`Client::take_registrations`] returns the answer.
    pub fn connect_producer(&mut self, path: PathId, prefix: &Name, inheritance: Inheritance) {
        let now = self.now();
        if let Some(connector) = self.paths.connector(path) {
            connector.connect_producer(now, &mut self.signer, prefix, inheritance);
        }
    }

    /// Reverses [`Client::connect_producer`]. There is no answer.
    pub fn disconnect_producer(&mut self, path: PathId, prefix: &Name) {
        let now = self.now();
        if let Some(connector) = self.paths.connector(path) {
            connector.disconnect_producer(now, &mut self.signer, prefix, false);
        }
    }

    /// The answers to [`Client::connect_producer`] since the last call.
    pub fn take_registrations(&mut self) -> Vec<RegistrationAnswer> {
        let mut answers = Vec::new();
        self.paths.take_answers(&mut answers);
        answers
    }

    pub(crate) fn has_registrations(&self) -> bool {
        self.paths.has_answers()
    }

    /// The items of one of the router's status datasets, such as `faces/list`.
    pub fn dataset<E: Element>(&mut self, dataset: &str) -> Result<Vec<E>, CommandError> {
        let content = self.dataset_content(dataset)?;
        E::decode_all(&content).map_err(|_| CommandError::Malformed)
    }

    /// The holdings of the router that receives commands, for an object named without segment
    /// number.
    pub fn holdings(&mut self, object: &Name) -> Result<HoldingsStatus, CommandError> {
        let scope = if self.is_local() { Scope::Localhost } else { Scope::Localhop };
        let content = self.dataset_at(HoldingsStatus::dataset_name(scope.prefix(), object))?;
        HoldingsStatus::decode(&content).map_err(|_| CommandError::Malformed)
    }

    /// The objects in the store of a router on this machine. Their times count from `now`.
    pub fn objects(
        &mut self,
        query: &ObjectQuery,
        now: Instant,
    ) -> Result<ObjectList, CommandError> {
        let content = self.dataset_at(query.dataset_name(Scope::Localhost.prefix()))?;
        ObjectList::decode(&content, now).map_err(|_| CommandError::Malformed)
    }

    /// A status dataset as the router sends it, with all its segments joined.
    pub fn dataset_content(&mut self, dataset: &str) -> Result<Vec<u8>, CommandError> {
        let mut name = Scope::Localhost.prefix();
        for component in dataset.split('/') {
            name.append_str(component);
        }
        self.dataset_at(name)
    }

    fn dataset_at(&mut self, name: Name) -> Result<Vec<u8>, CommandError> {
        self.check_management()?;
        let mut fetch = DatasetFetch::new(name);
        loop {
            let interest = fetch.interest(self.random_u64() as u32);
            let answer = self.express(&interest)?;
            let data = DataView::decode(&answer.packet).map_err(|_| CommandError::Malformed)?;
            match fetch.on_data(&data) {
                Ok(true) => return Ok(fetch.into_content()),
                Ok(false) => {}
                Err(DatasetError::Refused(response)) => {
                    return Err(CommandError::Refused(response));
                }
                Err(_) => return Err(CommandError::Malformed),
            }
        }
    }

    /// Makes the routers of this host report the face that each packet came from, also after a
    /// reconnect. Waits for their answers, but not long: some routers do not report it.
    ///
    /// # Errors
    /// [`ClientError::Lost`].
    pub fn report_sources(&mut self) -> Result<(), ClientError> {
        self.paths.report_sources(&mut self.signer);
        let deadline = self.now().plus_ns(SOURCES_WAIT_NS);
        let mut packets = Vec::new();
        // The answer is no packet for the caller, so `poll` would wait for another one.
        while self.paths.awaits_sources() && self.now() < deadline {
            self.flush()?;
            self.wait(None, Some(deadline))?;
            self.paths.read(&mut self.pool, &mut packets)?;
            let free = UNREAD_PACKETS_MAX.saturating_sub(self.unread_packets.len());
            self.unread_packets.extend(packets.drain(..).take(free));
        }
        Ok(())
    }

    /// Makes the router report the face that each packet came from, until the connection ends.
    /// Returns the number of the client's own face there. Only local routers do.
    pub fn enable_local_fields(&mut self) -> Result<FaceId, CommandError> {
        let parameters = ControlParameters {
            flags: Some(face_flags::LOCAL_FIELDS),
            mask: Some(face_flags::LOCAL_FIELDS),
            ..Default::default()
        };
        let effective = self.command(Command::FacesUpdate, &parameters)?;
        Ok(effective.face_id.unwrap_or(FaceId::INVALID))
    }
}

fn is_answer(interest: &InterestView<'_>, answer: &ReceivedPacket) -> bool {
    if answer.header.nack.is_some() {
        return InterestView::decode(&answer.packet)
            .is_ok_and(|nacked| nacked.name == interest.name && nacked.nonce == interest.nonce);
    }
    DataView::decode(&answer.packet).is_ok_and(|data| data.satisfies(interest))
}
