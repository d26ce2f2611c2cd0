//! A minimal HTTP server for scrapers: one request per connection, and one thread with a deadline
//! for each connection. Above [`CONNECTIONS_MAX`], the server closes the oldest connection of the
//! host with the most connections. A client that is slow to send or read therefore does not block
//! others.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token, Waker};

use crate::face_quota::Network;

const CONNECTIONS_MAX: usize = 16;
/// How long a connection may take, from the first byte of its request to the last of its answer.
const DEADLINE: Duration = Duration::from_secs(10);
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Pause when the system has no descriptor or thread left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

const WAKER_TOKEN: Token = Token(0);
const LISTENER_TOKEN: Token = Token(1);

pub(super) struct Answer {
    pub(super) status: &'static str,
    pub(super) content_type: &'static str,
    pub(super) body: String,
}

pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    /// What follows `?` in the URL.
    pub(super) query: &'a str,
    /// The header `Accept`; empty if there is none.
    pub(super) accept: &'a str,
}

pub(super) type Handler = dyn Fn(&Request<'_>) -> Answer + Send + Sync;

pub(super) struct HttpServer {
    is_stopping: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    open: OpenConnections,
    pub(super) address: SocketAddr,
}

/// The open connections, oldest first.
#[derive(Clone, Default)]
struct OpenConnections(Arc<Mutex<VecDeque<Connection>>>);

struct Connection {
    number: u64,
    host: Network,
    stream: TcpStream,
}

/// The index of the oldest connection of the host with the most connections.
fn oldest_of_busiest_host(open: &VecDeque<Connection>) -> Option<usize> {
    let count = |host| open.iter().filter(|other| other.host == host).count();
    // `max_by_key` returns the last maximum: reversed, that is the oldest.
    let most = open.iter().enumerate().rev().max_by_key(|(_, one)| count(one.host))?.1.host;
    open.iter().position(|one| one.host == most)
}

impl OpenConnections {
    fn with<T>(&self, act: impl FnOnce(&mut VecDeque<Connection>) -> T) -> T {
        // A thread that panicked cannot have left the list half changed.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a connection. At the limit, closes another one.
    fn add(&self, connection: Connection) {
        self.with(|open| {
            if open.len() >= CONNECTIONS_MAX
                && let Some(displaced) = oldest_of_busiest_host(open).and_then(|at| open.remove(at))
            {
                let _ = displaced.stream.shutdown(Shutdown::Both);
            }
            open.push_back(connection);
        });
    }

    fn remove(&self, number: u64) {
        self.with(|open| open.retain(|other| other.number != number));
    }

    fn close_all(&self) {
        self.with(|open| {
            for connection in open.drain(..) {
                let _ = connection.stream.shutdown(Shutdown::Both);
            }
        });
    }
}

impl HttpServer {
    pub(super) fn start(address: SocketAddr, handler: Box<Handler>) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let mut listener = mio::net::TcpListener::from_std(listener);
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER_TOKEN)?;
        poll.registry().register(&mut listener, LISTENER_TOKEN, Interest::READABLE)?;
        let is_stopping = Arc::new(AtomicBool::new(false));
        let open = OpenConnections::default();
        let mut acceptor = Acceptor {
            listener,
            poll,
            handler: handler.into(),
            open: open.clone(),
            is_stopping: Arc::clone(&is_stopping),
            next_number: 0,
        };
        let thread = std::thread::Builder::new()
            .name("weir-metrics".into())
            .spawn(move || acceptor.run())?;
        Ok(Self { is_stopping, waker, thread: Some(thread), open, address })
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        let _ = self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Each connection's thread ends by itself after its connection is closed.
        self.open.close_all();
    }
}

struct Acceptor {
    listener: mio::net::TcpListener,
    poll: Poll,
    handler: Arc<Handler>,
    open: OpenConnections,
    is_stopping: Arc<AtomicBool>,
    next_number: u64,
}

impl Acceptor {
    fn run(&mut self) {
        let mut events = Events::with_capacity(4);
        while !self.is_stopping.load(Ordering::Acquire) {
            let pause = self.accept_all().is_err().then_some(ACCEPT_PAUSE);
            if let Err(error) = self.poll.poll(&mut events, pause) {
                assert!(error.kind() == io::ErrorKind::Interrupted, "epoll failed: {error}");
            }
        }
    }

    fn accept_all(&mut self) -> io::Result<()> {
        loop {
            let (stream, peer) = match self.listener.accept() {
                Ok((stream, peer)) => (TcpStream::from(OwnedFd::from(stream)), peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(false)?;
            let number = self.next_number;
            self.next_number += 1;
            let host = Network::host(peer.ip());
            self.open.add(Connection { number, host, stream: stream.try_clone()? });
            let (handler, open) = (Arc::clone(&self.handler), self.open.clone());
            let thread = std::thread::Builder::new().name("weir-scrape".into()).spawn(move || {
                // Fails if the client has disconnected, which needs no action.
                let _ = serve(&stream, &*handler);
                open.remove(number);
            });
            if let Err(error) = thread {
                self.open.remove(number);
                return Err(error);
            }
        }
    }
}

/// Reads one request and answers it.
fn serve(stream: &TcpStream, handler: &Handler) -> io::Result<()> {
    let deadline = Instant::now() + DEADLINE;
    let Some(request) = read_request(stream, deadline)? else { return Ok(()) };
    let head = String::from_utf8_lossy(&request);
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split_ascii_whitespace();
    let (method, url) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let accept = lines.filter_map(|line| line.split_once(':'));
    let accept = accept.filter(|(name, _)| name.eq_ignore_ascii_case("accept"));
    let accept: Vec<&str> = accept.map(|(_, value)| value.trim()).collect();
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let Answer { status, content_type, body } =
        handler(&Request { method, path, query, accept: &accept.join(",") });
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    write_all(stream, head.as_bytes(), deadline)?;
    write_all(stream, body.as_bytes(), deadline)?;
    stream.shutdown(Shutdown::Write)?;
    // Unread bytes would make the kernel reset the connection and discard the answer.
    let mut rest = [0; 4096];
    while read(stream, &mut rest, deadline)? > 0 {}
    Ok(())
}

/// Reads up to the empty line. `None` if the client closes before that or sends too much.
fn read_request(stream: &TcpStream, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
    let mut request = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let count = read(stream, &mut chunk, deadline)?;
        request.extend_from_slice(&chunk[..count]);
        if request.windows(4).any(|four| four == b"\r\n\r\n") {
            return Ok(Some(request));
        }
        if count == 0 || request.len() > REQUEST_BYTES_MAX {
            return Ok(None);
        }
    }
}

fn left(deadline: Instant) -> io::Result<Option<Duration>> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
}

fn read(mut stream: &TcpStream, octets: &mut [u8], deadline: Instant) -> io::Result<usize> {
    stream.set_read_timeout(left(deadline)?)?;
    stream.read(octets)
}

fn write_all(mut stream: &TcpStream, mut octets: &[u8], deadline: Instant) -> io::Result<()> {
    while !octets.is_empty() {
        stream.set_write_timeout(left(deadline)?)?;
        let written = stream.write(octets)?;
        octets = &octets[written..];
    }
    Ok(())
}
