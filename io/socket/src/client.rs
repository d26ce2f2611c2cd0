//! A connection to a router, for one thread.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::poll::PollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};
use weir_base::{FaceId, Instant, NS_PER_MS, Packet, Pool, Rng};
use weir_face::{FaceUri, RecvStatus, SendStatus, UdpPort, unix_time_ms};
use weir_link::{LinkDrop, Received};
use weir_manage::commands::{self, Command, Scope};
use weir_manage::{
    ControlParameters, ControlResponse, DatasetError, DatasetFetch, Element, face_flags,
};
use weir_security::DigestSigner;
use weir_wire::{DataView, InterestView, LpHeader, NackReason, Name};

use crate::connection::{Connection, monotonic_now, random_u64};

/// Memory kept for receive blocks and packets under way.
const POOL_CACHED_BYTES_MAX: usize = 32 << 20;
/// Blocks read before the application gets its turn.
const READS_MAX: usize = 4;
/// Octets waiting to be sent from which on nothing more is read: it would only add to them.
const QUEUE_BYTES_HIGH: u64 = 4 << 20;
/// Packets that came while a single answer was waited for; more are dropped.
const STASH_MAX: usize = 4096;

/// Why a client cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing answers at the router's address.
    #[error("no router answers at {uri}: {source}")]
    Connect {
        /// The address.
        uri: String,
        /// What the system says.
        source: io::Error,
    },
    /// The router closed the connection, or it broke.
    #[error("the connection to the router is lost: {0}")]
    Lost(String),
    /// The system refuses something.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Why an Interest got no Data.
#[derive(Debug, thiserror::Error)]
pub enum ExpressError {
    /// The client cannot go on.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No answer came in time.
    #[error("no answer")]
    Timeout,
    /// The router refuses.
    #[error("refused: {0:?}")]
    Nack(NackReason),
}

/// Why a management command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The router did not answer.
    #[error("the router does not answer its management: {0}")]
    Express(#[from] ExpressError),
    /// The router refused.
    #[error("the router refuses: {} {}", .0.code, .0.text)]
    Refused(ControlResponse),
    /// The answer cannot be read.
    #[error("the router's answer cannot be read")]
    Malformed,
}

/// A packet that came from the router.
#[derive(Clone, Debug)]
pub struct FromRouter {
    /// Its link header; a Nack is an Interest whose header holds a reason.
    pub header: LpHeader,
    /// Exactly one Interest or Data TLV, its inside not looked at.
    pub packet: Packet,
}

/// Ends a wait of the [`Client`] that it comes from, from any thread.
#[derive(Debug)]
pub struct Waker(EventFd);

impl Waker {
    fn new() -> io::Result<Self> {
        Ok(Self(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?))
    }

    /// Ends the wait that is under way, or else the next one.
    ///
    /// # Errors
    /// What the system says.
    pub fn wake(&self) -> io::Result<()> {
        match self.0.write(1) {
            // So often that the counter is full, which wakes as well.
            Ok(_) | Err(nix::errno::Errno::EAGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A connection to a router. Packets go out with [`Client::send`] and [`Client::poll`]; `poll` also
/// brings what came.
pub struct Client {
    uri: FaceUri,
    connection: Connection,
    waker: Arc<Waker>,
    is_woken: bool,
    pool: Pool,
    frames: Vec<Packet>,
    stash: VecDeque<FromRouter>,
    is_readable: bool,
    is_writable: bool,
    rng: Rng,
    command_time_ms: u64,
    malformed: u64,
}

impl Client {
    /// Connects to a router at a Unix, TCP or UDP address.
    ///
    /// # Errors
    /// [`ClientError::Connect`].
    pub fn connect(uri: &FaceUri) -> Result<Self, ClientError> {
        let failed = |source| ClientError::Connect { uri: uri.to_string(), source };
        Self::over(uri.clone(), Connection::open(uri).map_err(failed)?)
    }

    /// Goes over to a router at a UDP address from a port that is bound already, with datagrams of
    /// at most `mtu` octets.
    ///
    /// # Errors
    /// What the system says.
    pub fn over_udp(port: UdpPort, peer: SocketAddr, mtu: usize) -> Result<Self, ClientError> {
        Self::over(FaceUri::Udp(peer), Connection::over_udp(port, peer, mtu)?)
    }

    fn over(uri: FaceUri, connection: Connection) -> Result<Self, ClientError> {
        Ok(Self {
            uri,
            connection,
            waker: Arc::new(Waker::new()?),
            is_woken: false,
            pool: Pool::new(POOL_CACHED_BYTES_MAX),
            frames: Vec::new(),
            stash: VecDeque::new(),
            is_readable: true,
            is_writable: true,
            rng: Rng::from_seed(random_u64()?),
            command_time_ms: 0,
            malformed: 0,
        })
    }

    /// The router's address.
    pub fn uri(&self) -> &FaceUri {
        &self.uri
    }

    /// Whether the router runs on this host.
    pub fn is_local(&self) -> bool {
        self.connection.is_local()
    }

    /// Nanoseconds of the machine's monotonic clock, the same in every process.
    pub fn now(&self) -> Instant {
        monotonic_now()
    }

    /// The pool that packets come from.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// A number for nonces and seeds.
    pub fn random(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// Ends a wait from another thread.
    pub fn waker(&self) -> Arc<Waker> {
        self.waker.clone()
    }

    /// Whether the [`Client::waker`] was used since this was asked last.
    pub(crate) fn take_woken(&mut self) -> bool {
        std::mem::take(&mut self.is_woken)
    }

    /// Octets that wait to be sent.
    pub fn queue_bytes(&self) -> u64 {
        self.connection.link.queue_bytes()
    }

    /// Frames that could not be read, and packets too large or too many to be sent.
    pub fn dropped(&self) -> u64 {
        self.malformed + self.connection.link.counters().drops.total()
    }

    /// Queues a packet; it goes out with the next [`Client::poll`] or [`Client::flush`].
    ///
    /// # Errors
    /// The queue is full, or the packet cannot be sent over this link.
    pub fn send(&mut self, header: LpHeader, packet: Packet) -> Result<(), LinkDrop> {
        let now = self.now();
        self.connection.link.enqueue(now, header, packet)
    }

    /// Queues an Interest or Data without link header.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn send_octets(&mut self, octets: &[u8]) -> Result<(), LinkDrop> {
        let packet = self.pool.copy(octets);
        self.send(LpHeader::default(), packet)
    }

    /// Sends what is queued, as far as the socket takes it.
    ///
    /// # Errors
    /// [`ClientError::Lost`].
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.poll_link();
        if self.is_writable && !self.connection.link.is_egress_empty() {
            let status = self.connection.flush().map_err(|error| lost(&error))?;
            if status == SendStatus::WouldBlock {
                self.is_writable = false;
                self.connection.link.detach_frames(&mut self.pool);
            }
        }
        Ok(())
    }

    /// Sends what is queued, waits for packets, for the [`Client::waker`] or until `deadline`, and
    /// appends what came to `packets`. Packets that are there already are not waited for.
    ///
    /// # Errors
    /// [`ClientError::Lost`].
    pub fn poll(
        &mut self,
        deadline: Option<Instant>,
        packets: &mut Vec<FromRouter>,
    ) -> Result<(), ClientError> {
        self.flush()?;
        let before = packets.len();
        packets.extend(self.stash.drain(..));
        self.read(packets)?;
        if packets.len() == before {
            self.wait(None, deadline)?;
            self.flush()?;
            self.read(packets)?;
        }
        Ok(())
    }

    /// Sends what is queued, waits for packets, until `other` can be read or `deadline` is past,
    /// and appends what came to `packets`. Tells whether `other` can be read; if so, it has read
    /// nothing itself.
    ///
    /// # Errors
    /// [`ClientError::Lost`].
    pub fn poll_beside(
        &mut self,
        other: BorrowedFd<'_>,
        deadline: Option<Instant>,
        packets: &mut Vec<FromRouter>,
    ) -> Result<bool, ClientError> {
        self.flush()?;
        packets.extend(self.stash.drain(..));
        let deadline = if packets.is_empty() { deadline } else { Some(Instant::ZERO) };
        if self.wait(Some(other), deadline)? {
            return Ok(true);
        }
        self.flush()?;
        self.read(packets)?;
        Ok(false)
    }

    /// Whether packets are to be read.
    fn wants_packets(&self) -> bool {
        self.queue_bytes() < QUEUE_BYTES_HIGH
    }

    fn wait(
        &mut self,
        other: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> Result<bool, ClientError> {
        let link = self.connection.link.next_wakeup();
        let until = [deadline, link].into_iter().flatten().min();
        let timeout_ns = until.map(|until| until.ns_since(self.now()));
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::POLLIN, self.wants_packets());
        wanted.set(PollFlags::POLLOUT, !self.is_writable);
        let ready = self.connection.wait(wanted, self.waker.0.as_fd(), other, timeout_ns)?;
        self.is_readable |= ready.readable;
        self.is_writable |= ready.writable;
        if ready.woken {
            self.is_woken = true;
            // Nothing is lost: whoever wakes has done its part before.
            let _ = self.waker.0.read();
        }
        Ok(ready.other)
    }

    /// Has the link do what its time has come for.
    fn poll_link(&mut self) {
        if let Some(at) = self.connection.link.next_wakeup() {
            let now = self.now();
            if at <= now {
                self.connection.link.poll(now);
            }
        }
    }

    fn read(&mut self, packets: &mut Vec<FromRouter>) -> Result<(), ClientError> {
        for _ in 0..READS_MAX {
            if !self.is_readable || !self.wants_packets() {
                break;
            }
            let status = self
                .connection
                .recv(&mut self.pool, &mut self.frames)
                .map_err(|error| lost(&error))?;
            self.receive(packets);
            match status {
                RecvStatus::Drained => self.is_readable = false,
                RecvStatus::More => {}
                RecvStatus::Closed => return Err(ClientError::Lost("the router closed it".into())),
                RecvStatus::FramingLost(error) => {
                    return Err(ClientError::Lost(format!(
                        "what answers is not a router: {error}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Takes the frames apart.
    fn receive(&mut self, packets: &mut Vec<FromRouter>) {
        let now = self.now();
        for frame in self.frames.drain(..) {
            match self.connection.link.receive(now, frame, &mut self.pool) {
                Received::Packet { header, packet } => {
                    packets.push(FromRouter { header, packet });
                }
                // An application's link shapes no Interests.
                Received::Held => {}
                Received::Partial | Received::Idle | Received::Signal(_) => {}
                Received::Drop(_) => self.malformed += 1,
            }
        }
    }

    /// Sends an Interest and waits for its Data. Other packets that come in the meantime are kept
    /// for the next [`Client::poll`].
    ///
    /// # Errors
    /// [`ExpressError`]; the Interest's lifetime is the time that is waited.
    pub fn express(&mut self, interest: &[u8]) -> Result<FromRouter, ExpressError> {
        let view = InterestView::decode(interest)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))
            .map_err(ClientError::from)?;
        let deadline = self.now().plus_ns(view.lifetime_ms_or_default().saturating_mul(NS_PER_MS));
        self.send_octets(interest)
            .map_err(|drop| ClientError::Lost(format!("it takes no packets: {}", drop.name())))?;
        let mut packets = Vec::new();
        let mut answer = None;
        // What was stashed cannot be the answer.
        let mut kept: VecDeque<_> = self.stash.drain(..).collect();
        while answer.is_none() && self.now() < deadline {
            self.poll(Some(deadline), &mut packets)?;
            for packet in packets.drain(..) {
                if answer.is_none() && is_answer(&view, &packet) {
                    answer = Some(packet);
                } else if kept.len() < STASH_MAX {
                    kept.push_back(packet);
                }
            }
        }
        self.stash = kept;
        match answer {
            Some(FromRouter { header: LpHeader { nack: Some(reason), .. }, .. }) => {
                Err(ExpressError::Nack(reason))
            }
            Some(data) => Ok(data),
            None => Err(ExpressError::Timeout),
        }
    }

    /// Sends a management command, signed with DigestSha256, and waits for the answer, whatever its
    /// code.
    ///
    /// # Errors
    /// [`CommandError::Express`] and [`CommandError::Malformed`].
    pub fn respond(
        &mut self,
        command: Command,
        parameters: &ControlParameters,
    ) -> Result<ControlResponse, CommandError> {
        let scope = if self.is_local() { Scope::Localhost } else { Scope::Localhop };
        self.command_time_ms = unix_time_ms().max(self.command_time_ms + 1);
        let nonce = self.random().to_be_bytes();
        let interest = commands::build_command(
            scope,
            command,
            parameters,
            &DigestSigner,
            nonce,
            self.command_time_ms,
        )
        .expect("a digest signer does not fail");
        let answer = self.express(&interest)?;
        let data = DataView::decode(&answer.packet).map_err(|_| CommandError::Malformed)?;
        commands::parse_response(&data).map_err(|_| CommandError::Malformed)
    }

    /// Sends a management command as [`Client::respond`] does; gives the effective values.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn command(
        &mut self,
        command: Command,
        parameters: &ControlParameters,
    ) -> Result<ControlParameters, CommandError> {
        match self.respond(command, parameters)? {
            ControlResponse { code: 200, body, .. } => {
                Ok(body.map(|body| *body).unwrap_or_default())
            }
            refused => Err(CommandError::Refused(refused)),
        }
    }

    /// Has the router send Interests below `prefix` here.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn register_prefix(&mut self, prefix: &Name) -> Result<(), CommandError> {
        let parameters = ControlParameters { name: Some(prefix.clone()), ..Default::default() };
        self.command(Command::RibRegister, &parameters).map(|_| ())
    }

    /// Takes [`Client::register_prefix`] back.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn unregister_prefix(&mut self, prefix: &Name) -> Result<(), CommandError> {
        let parameters = ControlParameters { name: Some(prefix.clone()), ..Default::default() };
        self.command(Command::RibUnregister, &parameters).map(|_| ())
    }

    /// The items of one of the router's status datasets, such as `faces/list`.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn dataset<E: Element>(&mut self, dataset: &str) -> Result<Vec<E>, CommandError> {
        let content = self.dataset_content(dataset)?;
        E::decode_all(&content).map_err(|_| CommandError::Malformed)
    }

    /// A status dataset as the router sends it, all its segments together.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn dataset_content(&mut self, dataset: &str) -> Result<Vec<u8>, CommandError> {
        let mut name = Scope::Localhost.prefix();
        for component in dataset.split('/') {
            name.append_str(component);
        }
        let mut fetch = DatasetFetch::new(name);
        loop {
            let interest = fetch.interest(self.random() as u32);
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

    /// Asks the router to say of each packet which face it came from; routers elsewhere refuse.
    ///
    /// # Errors
    /// [`CommandError`].
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

fn lost(error: &io::Error) -> ClientError {
    ClientError::Lost(error.to_string())
}

fn is_answer(interest: &InterestView<'_>, answer: &FromRouter) -> bool {
    if answer.header.nack.is_some() {
        return InterestView::decode(&answer.packet)
            .is_ok_and(|nacked| nacked.name == interest.name && nacked.nonce == interest.nonce);
    }
    DataView::decode(&answer.packet).is_ok_and(|data| data.satisfies(interest))
}
