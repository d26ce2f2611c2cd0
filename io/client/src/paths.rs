//! The paths of a client: one connection to each of its routers.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use weir_base::{Backoff, Instant, NS_PER_MS, NS_PER_S, Packet, Pool};
use weir_face::{FaceUri, RecvStatus, SendStatus};
use weir_link::LinkDrop;
use weir_transport::PathId;
use weir_wire::LpHeader;

use crate::command_signer::CommandSigner;
use crate::connection::{Connection, Received, ReceivedPacket, monotonic_now};
use crate::connector::{self, Connector, RegistrationAnswer};
use crate::sources::EndpointSources;
use crate::waker::Waker;

/// Upper bound of routers of one client.
pub const ROUTERS_MAX: usize = 16;
/// Reads of one connection before the other connections and the application get their turn.
const READS_PER_TURN_MAX: usize = 4;
/// A connection with this many bytes to send is not read, because answers would add to its backlog.
const READ_PAUSE_BYTES: u64 = 4 << 20;
/// The first and the longest wait before the client reconnects.
const RECONNECT_BACKOFF: Backoff = Backoff::new(100 * NS_PER_MS, 5 * NS_PER_S);

/// Why a client cannot continue, or lost one of its paths.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no router answers at {uri}: {source}")]
    Connect { uri: String, source: io::Error },
    /// The router closed the connection, or it broke.
    #[error("the connection to the router was lost: {0}")]
    Lost(String),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// One of several paths broke or returned.
#[derive(Debug)]
pub struct PathChange {
    pub path: PathId,
    /// Why it broke; `None`: it returned.
    pub error: Option<ClientError>,
}

/// Why a wait ended.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct WaitResult {
    pub(crate) woken: bool,
    pub(crate) endpoint_source: bool,
    pub(crate) other_fd: bool,
}

/// The connection to one router.
struct Path {
    uri: FaceUri,
    /// `None` while the path is broken.
    connector: Option<Box<dyn Connector>>,
    is_readable: bool,
    is_writable: bool,
    /// When to reconnect; `None` while connected or connecting.
    retry_at: Option<Instant>,
    /// Failures since the router last sent something.
    failures: u32,
    /// It is connected again. Users do not see it before the router has answered the first request
    /// to report sources. Otherwise the first packets would have no source.
    is_returning: bool,
}

impl Path {
    fn new(uri: FaceUri, connector: Option<Box<dyn Connector>>) -> Self {
        let (is_readable, is_writable) = (true, true);
        let retry_at =
            connector.is_none().then(|| monotonic_now().plus_ns(RECONNECT_BACKOFF.delay_ns(1)));
        Self {
            uri,
            connector,
            is_readable,
            is_writable,
            retry_at,
            failures: 0,
            is_returning: false,
        }
    }

    fn connection(&self) -> Option<&Connection> {
        self.connector.as_deref().map(Connector::connection)
    }

    fn retry_later(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(monotonic_now().plus_ns(RECONNECT_BACKOFF.delay_ns(self.failures)));
    }

    /// Whether packets should be read.
    fn wants_packets(connection: &Connection) -> bool {
        connection.link.queue_bytes() < READ_PAUSE_BYTES
    }

    /// Whether packets may be available that would be read now.
    fn has_readable_packets(&self) -> bool {
        self.is_readable && self.connection().is_some_and(Self::wants_packets)
    }

    /// Whether queued data can be sent now.
    fn has_sendable_data(&self) -> bool {
        let is_empty = |connection: &Connection| connection.link.is_egress_empty();
        self.is_writable && !self.connection().is_none_or(is_empty)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let connector = self.connector.as_ref().and_then(|connector| connector.next_wakeup());
        [connector, self.retry_at].into_iter().flatten().min()
    }

    /// Runs the timers, and sends queued packets, as far as the socket accepts them.
    fn flush(&mut self, pool: &mut Pool, signer: &mut CommandSigner) -> Result<(), ClientError> {
        let Some(connector) = &mut self.connector else { return Ok(()) };
        if let Some(at) = connector.next_wakeup() {
            let now = monotonic_now();
            if at <= now {
                connector.run_timers(now, signer);
            }
        }
        let connection = connector.connection_mut();
        // Packets stay unread for now. Without this, the wakeup would end every wait at once.
        if self.is_readable && !Self::wants_packets(connection) {
            connection.drain_wakeup().map_err(|error| connection_lost(&error))?;
        }
        if self.is_writable && !connection.link.is_egress_empty() {
            let status = connection.flush().map_err(|error| connection_lost(&error))?;
            match status {
                SendStatus::Drained => {}
                SendStatus::WouldBlock => {
                    self.is_writable = false;
                    connection.link.detach_frames(pool);
                }
                SendStatus::RingBroken => return Err(invalid_ring()),
            }
        }
        Ok(())
    }
}

pub(crate) struct Paths {
    all: Vec<Path>,
    frames: Vec<Packet>,
    control: Vec<Packet>,
    /// Changes since the last call of [`Paths::take_changes`].
    changes: Vec<PathChange>,
    /// Results of the threads that reconnect: at most one per path.
    attempt_receiver: Receiver<(PathId, io::Result<Box<dyn Connector>>)>,
    attempt_sender: Sender<(PathId, io::Result<Box<dyn Connector>>)>,
    waker: Arc<Waker>,
    /// Unreadable frames, and packets that could not be queued, of broken connections.
    dropped: u64,
    /// How long the client may be without any path before it fails, in ns.
    last_path_limit_ns: u64,
    /// Since when it has none, and why the last one broke.
    lost: Option<(Instant, String)>,
    /// Whether each new connection requests that the router report sources.
    reports_sources: bool,
}

impl Paths {
    /// Paths for these routers, connected or not.
    pub(crate) fn new(
        routers: impl IntoIterator<Item = (FaceUri, Option<Box<dyn Connector>>)>,
        waker: Arc<Waker>,
    ) -> Self {
        let all: Vec<Path> = routers.into_iter().map(|(uri, one)| Path::new(uri, one)).collect();
        assert!((1..=ROUTERS_MAX).contains(&all.len()), "1 to {ROUTERS_MAX} routers");
        let (sender, attempts) = unbounded();
        let (frames, control, changes) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            all,
            frames,
            control,
            changes,
            attempt_receiver: attempts,
            attempt_sender: sender,
            waker,
            dropped: 0,
            last_path_limit_ns: 0,
            lost: None,
            reports_sources: false,
        }
    }

    pub(crate) fn retry_last_path(&mut self, limit_ns: u64) {
        self.last_path_limit_ns = limit_ns;
    }

    /// Requests that the routers report sources, over the connections of now and of later.
    pub(crate) fn report_sources(&mut self, signer: &mut CommandSigner) {
        self.reports_sources = true;
        let connectors = self.all.iter_mut().filter_map(|path| path.connector.as_mut());
        connectors.for_each(|connector| connector.report_sources(monotonic_now(), signer));
    }

    /// Whether a router may still answer the first such request.
    pub(crate) fn awaits_sources(&self) -> bool {
        let mut connectors = self.all.iter().filter_map(|path| path.connector.as_ref());
        connectors.any(|connector| connector.awaits_sources())
    }

    pub(crate) fn connected_paths(&self) -> impl Iterator<Item = PathId> {
        let is_usable = |path: &Path| path.connector.is_some() && !path.is_returning;
        let all = self.all.iter().enumerate();
        all.filter(move |(_, path)| is_usable(path)).map(|(at, _)| PathId(at as u16))
    }

    pub(crate) fn uri(&self, path: PathId) -> &FaceUri {
        &self.all[usize::from(path.0)].uri
    }

    /// Whether the router runs on this host.
    pub(crate) fn is_local(&self, path: PathId) -> bool {
        self.all[usize::from(path.0)].connection().is_some_and(Connection::is_local)
    }

    /// What broke and returned since the last call.
    pub(crate) fn take_changes(&mut self) -> Vec<PathChange> {
        std::mem::take(&mut self.changes)
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Number of unreadable frames, and of packets that were too large or too many to send.
    pub(crate) fn dropped(&self) -> u64 {
        let links = self.all.iter().filter_map(Path::connection);
        links.map(|one| one.link.counters().drops.total()).sum::<u64>() + self.dropped
    }

    pub(crate) fn send(
        &mut self,
        path: PathId,
        header: LpHeader,
        packet: Packet,
    ) -> Result<(), LinkDrop> {
        match self.connector(path) {
            Some(connector) => connector.send_packet(monotonic_now(), header, packet),
            None => Err(LinkDrop::SocketRefused),
        }
    }

    /// The connector of a path, unless the path is broken.
    pub(crate) fn connector(&mut self, path: PathId) -> Option<&mut Box<dyn Connector>> {
        self.all[usize::from(path.0)].connector.as_mut()
    }

    /// Moves the answers to registrations to `answers`.
    pub(crate) fn take_answers(&mut self, answers: &mut Vec<RegistrationAnswer>) {
        let connectors = self.all.iter_mut().filter_map(|path| path.connector.as_mut());
        connectors.for_each(|connector| connector.take_answers(answers));
    }

    pub(crate) fn has_answers(&self) -> bool {
        let mut connectors = self.all.iter().filter_map(|path| path.connector.as_ref());
        connectors.any(|connector| connector.has_answers())
    }

    /// Sends queued packets, as far as the sockets accept them. Runs the timers.
    pub(crate) fn flush(
        &mut self,
        pool: &mut Pool,
        signer: &mut CommandSigner,
    ) -> Result<(), ClientError> {
        for at in 0..self.all.len() {
            if let Err(error) = self.all[at].flush(pool, signer) {
                self.disconnect(at, error)?;
            }
            self.announce_return(at);
        }
        Ok(())
    }

    /// Appends the packets that have arrived.
    pub(crate) fn read(
        &mut self,
        pool: &mut Pool,
        packets: &mut Vec<ReceivedPacket>,
    ) -> Result<(), ClientError> {
        for at in 0..self.all.len() {
            if let Err(error) = self.read_one(at, pool, packets) {
                self.disconnect(at, error)?;
            }
            self.announce_return(at);
        }
        Ok(())
    }

    /// Reports a path that is connected again, once it can be used.
    fn announce_return(&mut self, at: usize) {
        let path = &mut self.all[at];
        let is_usable = path.connector.as_ref().is_some_and(|one| !one.awaits_sources());
        if path.is_returning && is_usable {
            path.is_returning = false;
            self.changes.push(PathChange { path: PathId(at as u16), error: None });
        }
    }

    fn read_one(
        &mut self,
        at: usize,
        pool: &mut Pool,
        packets: &mut Vec<ReceivedPacket>,
    ) -> Result<(), ClientError> {
        let path = &mut self.all[at];
        let Some(connector) = &mut path.connector else { return Ok(()) };
        let mut received = Received {
            packets,
            control: &mut self.control,
            frames: &mut self.frames,
            has_frames: false,
            dropped: 0,
        };
        // A fast router must not keep this loop from reading the others.
        for _ in 0..READS_PER_TURN_MAX {
            if !path.is_readable || !Path::wants_packets(connector.connection()) {
                break;
            }
            let id = PathId(at as u16);
            let status = connector
                .recv_packets(monotonic_now(), id, pool, &mut received)
                .map_err(|error| connection_lost(&error))?;
            self.dropped += std::mem::take(&mut received.dropped);
            if received.has_frames {
                // The router works, so the next reconnect begins with the shortest wait.
                path.failures = 0;
            }
            match status {
                RecvStatus::Drained => path.is_readable = false,
                RecvStatus::More => {}
                RecvStatus::Closed => return Err(ClientError::Lost("the router closed it".into())),
                RecvStatus::RingBroken => return Err(invalid_ring()),
                RecvStatus::WebSocketBroken(error) => {
                    return Err(ClientError::Lost(format!("the peer breaks WebSocket: {error}")));
                }
                RecvStatus::FramingLost(error) => {
                    return Err(ClientError::Lost(format!("the peer is not a router: {error}")));
                }
            }
        }
        Ok(())
    }

    /// A path broke. It is reconnected later while the others continue. If no other is connected,
    /// returns the error, unless [`Self::retry_last_path`] was called.
    fn disconnect(&mut self, at: usize, error: ClientError) -> Result<(), ClientError> {
        let is_last = |(other, path): (usize, &Path)| other == at || path.connector.is_none();
        if self.all.iter().enumerate().all(is_last) {
            if self.last_path_limit_ns == 0 {
                return Err(error);
            }
            let why = match &error {
                ClientError::Lost(why) => why.clone(),
                other => other.to_string(),
            };
            self.lost = Some((monotonic_now(), why));
        }
        let path = &mut self.all[at];
        if let Some(connector) = path.connector.take() {
            self.dropped += connector.connection().link.counters().drops.total();
        }
        path.retry_later();
        if !std::mem::take(&mut path.is_returning) {
            self.changes.push(PathChange { path: PathId(at as u16), error: Some(error) });
        }
        Ok(())
    }

    /// Takes over restored connections, and reconnects paths whose time has come.
    ///
    /// # Errors
    /// [`ClientError::Lost`] if there has been no path for too long.
    pub(crate) fn poll_reconnects(
        &mut self,
        signer: &mut CommandSigner,
    ) -> Result<(), ClientError> {
        if self.all.len() == 1 && self.last_path_limit_ns == 0 {
            return Ok(());
        }
        while let Ok((id, result)) = self.attempt_receiver.try_recv() {
            let path = &mut self.all[usize::from(id.0)];
            match result {
                Ok(mut connector) => {
                    if self.reports_sources {
                        // The face is a new one, and has none of the settings of the former.
                        connector.report_sources(monotonic_now(), signer);
                    }
                    (path.is_readable, path.is_writable) = (true, true);
                    path.connector = Some(connector);
                    path.is_returning = true;
                    self.lost = None;
                }
                Err(_) => path.retry_later(),
            }
        }
        for at in 0..self.all.len() {
            if self.all[at].retry_at.is_some_and(|due| due <= monotonic_now()) {
                self.all[at].retry_at = None;
                self.reconnect(at);
            }
        }
        match &self.lost {
            Some((since, why)) if self.fails_at(*since) <= monotonic_now() => {
                Err(ClientError::Lost(why.clone()))
            }
            _ => Ok(()),
        }
    }

    /// When a client without any path `since` then fails.
    fn fails_at(&self, since: Instant) -> Instant {
        since.plus_ns(self.last_path_limit_ns)
    }

    /// Connects in a thread, because that may take seconds.
    fn reconnect(&mut self, at: usize) {
        let (id, uri) = (PathId(at as u16), self.all[at].uri.clone());
        let (sender, waker) = (self.attempt_sender.clone(), self.waker.clone());
        let thread = std::thread::Builder::new().name("connect".into()).spawn(move || {
            // If the client is gone, there is no one to wake.
            let _ = sender.send((id, connector::connect(&uri)));
            let _ = waker.wake();
        });
        if let Err(error) = thread {
            // The receiver is a field of `self`, so sending cannot fail.
            let _ = self.attempt_sender.send((id, Err(error)));
        }
    }

    /// Waits until a socket is readable or accepts queued data, the waker was used, one of
    /// `sources` or `other` is readable, or `deadline` has passed. Uses the kernel's timers at full
    /// resolution.
    pub(crate) fn wait(
        &mut self,
        sources: Option<&EndpointSources>,
        other: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> io::Result<WaitResult> {
        // The kernel does not watch shared memory rings. If one is ready, `ppoll` must not wait.
        let mut is_ready = false;
        for path in &mut self.all {
            path.is_writable |= path.connection().is_some_and(Connection::is_writable_again);
            is_ready |= path.has_readable_packets() || path.has_sendable_data();
        }
        let now = is_ready.then_some(Instant::ZERO);
        let wakeups = self.all.iter().filter_map(Path::next_wakeup);
        let fails_at = self.lost.as_ref().map(|(since, _)| self.fails_at(*since));
        let until = wakeups.chain(deadline).chain(now).chain(fails_at).min();
        let timeout = until.map(|until| {
            TimeSpec::from_duration(Duration::from_nanos(until.ns_since(monotonic_now())))
        });
        let waker = self.waker.as_fd();
        // Entry 0 is the waker, and entry 1 the caller's descriptor. If there are endpoint sources,
        // they are entry 2. The connections follow. Unused entries repeat the waker.
        let mut watched: [PollFd<'_>; ROUTERS_MAX + 3] =
            std::array::from_fn(|_| PollFd::new(waker, PollFlags::POLLIN));
        watched[1] = PollFd::new(other.unwrap_or(waker), PollFlags::POLLIN);
        let first = match sources {
            Some(sources) => {
                watched[2] = PollFd::new(sources.as_fd(), PollFlags::POLLIN);
                3
            }
            None => 2,
        };
        let mut count = first;
        for path in &self.all {
            let Some(connection) = path.connection() else { continue };
            let mut wanted = PollFlags::empty();
            wanted.set(PollFlags::POLLIN, Path::wants_packets(connection));
            if !path.is_writable {
                wanted |= connection.writable_event();
            }
            watched[count] = PollFd::new(connection.as_fd(), wanted);
            count += 1;
        }
        match ppoll(&mut watched[..count], timeout, None) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(WaitResult::default()),
            Err(error) => return Err(error.into()),
        }
        let found = watched.map(|one| one.revents().unwrap_or(PollFlags::empty()));
        // A broken connection counts as readable and writable: the next call returns its error.
        let broken = PollFlags::POLLERR | PollFlags::POLLHUP;
        let connected = self.all.iter_mut().filter(|path| path.connector.is_some());
        for (path, found) in connected.zip(&found[first..]) {
            let writable = path.connection().map_or(broken, Connection::writable_event);
            path.is_readable |= found.intersects(PollFlags::POLLIN | broken);
            path.is_writable |= found.intersects(writable | broken);
        }
        let woken = found[0].intersects(PollFlags::POLLIN);
        if woken {
            self.waker.clear();
        }
        let other = other.is_some() && found[1].intersects(PollFlags::POLLIN | broken);
        let source = sources.is_some() && found[2].intersects(PollFlags::POLLIN);
        Ok(WaitResult { woken, endpoint_source: source, other_fd: other })
    }
}

fn invalid_ring() -> ClientError {
    ClientError::Lost("the router wrote invalid data into shared memory; restart it".into())
}

fn connection_lost(error: &io::Error) -> ClientError {
    ClientError::Lost(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use weir_base::Rng;

    use super::*;
    use crate::Client;

    /// Only a failure waits this long.
    fn in_a_minute() -> Instant {
        monotonic_now().plus_ns(60 * NS_PER_S)
    }

    #[test]
    fn idle_path_is_announced_when_it_returns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("router");
        let listener = UnixListener::bind(&path).unwrap();
        let mut client = Client::connect(&FaceUri::Unix(path)).unwrap();
        client.retry_last_path();
        drop(listener.accept().unwrap());
        let (other, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let (mut packets, mut changes) = (Vec::new(), Vec::new());
        while changes.len() < 2 {
            let deadline = in_a_minute();
            client.poll_with_fd(other.as_fd(), Some(deadline), &mut packets).unwrap();
            assert!(monotonic_now() < deadline, "{changes:?}");
            changes.extend(client.take_changes());
        }
        assert!(changes[0].error.is_some() && changes[1].error.is_none(), "{changes:?}");
    }

    #[test]
    fn returning_path_is_not_listed() {
        let folder = tempfile::tempdir().unwrap();
        let uri = FaceUri::Unix(folder.path().join("router"));
        let listener = UnixListener::bind(folder.path().join("router")).unwrap();
        let routers = [(uri.clone(), Some(connector::connect(&uri).unwrap()))];
        let mut paths = Paths::new(routers, Arc::new(Waker::new().unwrap()));
        let mut signer = CommandSigner::new(Rng::from_seed(1));
        let (mut pool, mut packets) = (Pool::new(0), Vec::new());
        paths.retry_last_path(u64::MAX);
        paths.report_sources(&mut signer);
        let mut run_until = |paths: &mut Paths, is_done: fn(&Paths) -> bool| {
            let deadline = in_a_minute();
            while !is_done(paths) {
                assert!(monotonic_now() < deadline);
                paths.wait(None, None, Some(monotonic_now().plus_ns(NS_PER_MS))).unwrap();
                paths.poll_reconnects(&mut signer).unwrap();
                paths.flush(&mut pool, &mut signer).unwrap();
                paths.read(&mut pool, &mut packets).unwrap();
            }
        };
        assert_eq!(paths.connected_paths().count(), 1);
        drop(listener.accept().unwrap());
        run_until(&mut paths, |paths| paths.all[0].connector.is_none());
        run_until(&mut paths, |paths| paths.all[0].connector.is_some());
        assert_eq!(paths.connected_paths().count(), 0, "the router has not answered");
        drop(listener.accept().unwrap());
        run_until(&mut paths, |paths| paths.all[0].connector.is_none());
        let changes = paths.take_changes();
        assert!(changes.len() == 1 && changes[0].error.is_some(), "{changes:?}");
    }
}
