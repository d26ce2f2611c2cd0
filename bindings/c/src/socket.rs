//! A socket: consumer or producer, bound or not.

use std::os::fd::RawFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::c_int;
use nix::errno::Errno;
use weir_base::Packet;
use weir_binding::{Signing, WithoutSignals, identity};
use weir_socket::{ConsumerOptions, Producer, ProducerOptions, Request, Session, SocketError};
use weir_wire::Name;

use crate::constants::{
    AF_ICN, CONS_REL, CONS_UNREL, ICN_ANSWER, ICN_MORE, ICN_NEWEST, ICN_REFUSE, PROD_REL,
    PROD_UNREL, SOCK_CONS, SOCK_PROD,
};
use crate::consumer::{BoundConsumer, ReadResult};
use crate::errors::errno_of;
use crate::memory::ScatterBuffer;
use crate::options::{ConsumerSettings, Options, ProducerSettings, Role};
use crate::producer::BoundProducer;
use crate::readiness::{Readiness, SourcePoll, WakeSource, spawn};

/// Signing more bytes than this takes long enough to delay signal handlers.
const LONG_BYTES: usize = 1 << 16;

/// What the socket is bound to.
enum Binding {
    Unbound,
    /// A call is binding it.
    InProgress,
    Consumer(BoundConsumer),
    Producer(BoundProducer),
}

struct SocketState {
    options: Options,
    binding: Binding,
}

/// A socket. Drop values that may hold a session only after releasing the lock: a session waits for
/// its threads, and these may need the lock to wake this socket.
pub(crate) struct Socket {
    readiness: Arc<Readiness>,
    state: Mutex<SocketState>,
}

/// Checks the flags of a call. Returns whether it may wait.
fn may_wait(readiness: &Readiness, flags: c_int) -> Result<bool, Errno> {
    if flags & !(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(flags & libc::MSG_DONTWAIT == 0 && !readiness.is_nonblocking())
}

impl Socket {
    pub(crate) fn new(domain: c_int, kind: c_int, protocol: c_int) -> Result<Self, Errno> {
        if domain != AF_ICN {
            return Err(Errno::EAFNOSUPPORT);
        }
        let is_nonblocking = kind & libc::SOCK_NONBLOCK != 0;
        let role = match kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
            SOCK_CONS => {
                let reliable = match protocol {
                    0 | CONS_REL => true,
                    CONS_UNREL => false,
                    _ => return Err(Errno::EPROTONOSUPPORT),
                };
                let options = ConsumerOptions { reliable, ..ConsumerOptions::default() };
                Role::Consumer(ConsumerSettings::new(options))
            }
            SOCK_PROD => {
                let reliable = match protocol {
                    0 | PROD_REL => true,
                    PROD_UNREL => false,
                    _ => return Err(Errno::EPROTONOSUPPORT),
                };
                let options = ProducerOptions { reliable, ..ProducerOptions::default() };
                Role::Producer(ProducerSettings { options, signing: Signing::Default })
            }
            _ => return Err(Errno::ESOCKTNOSUPPORT),
        };
        let options = Options { router: None, role };
        let state = Mutex::new(SocketState { options, binding: Binding::Unbound });
        Ok(Self { readiness: Readiness::new(is_nonblocking)?, state })
    }

    fn state(&self) -> MutexGuard<'_, SocketState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The application's descriptor.
    pub(crate) fn number(&self) -> Option<RawFd> {
        self.readiness.number()
    }

    /// Whether it still refers to this socket, as far as can be detected.
    pub(crate) fn is_fd_ours(&self) -> bool {
        self.readiness.is_fd_ours()
    }

    /// Closes the socket: ends all waits and frees the prefix. Also closes the descriptor, if
    /// `owns_number`.
    pub(crate) fn close(&self, owns_number: bool) {
        self.readiness.close(owns_number);
        // Two statements, so that the lock is released before the session ends.
        let end = std::mem::replace(&mut self.state().binding, Binding::Unbound);
        drop(end);
    }

    pub(crate) fn bind(
        &self,
        prefix: Name,
        session: impl FnOnce(Option<String>) -> Result<Session, SocketError> + Send + 'static,
    ) -> Result<(), Errno> {
        let options = {
            let mut state = self.state();
            if !matches!(state.binding, Binding::Unbound) {
                return Err(Errno::EINVAL);
            }
            // Other calls fail with ENOTCONN while the lock is released.
            state.binding = Binding::InProgress;
            state.options.clone()
        };
        let (end, result) = match self.bound(prefix, options, session) {
            Ok(end) => (end, Ok(())),
            Err(errno) => (Binding::Unbound, Err(errno)),
        };
        let mut end = Some(end);
        let mut state = self.state();
        // The socket may have been closed meanwhile.
        if matches!(state.binding, Binding::InProgress) {
            state.binding = end.take().expect("it was put there");
        }
        drop(state);
        match end {
            Some(_) => Err(Errno::EBADF),
            None => {
                self.listen();
                result
            }
        }
    }

    fn bound(
        &self,
        prefix: Name,
        Options { router, role }: Options,
        session: impl FnOnce(Option<String>) -> Result<Session, SocketError> + Send + 'static,
    ) -> Result<Binding, Errno> {
        // Connecting may block for a long time, and closing the socket must end this call.
        let line = WakeSource::hidden(&self.readiness);
        match role {
            Role::Consumer(_) => {
                let session = line.wait_in_thread(move || session(router))?;
                let session = session.map_err(|error| errno_of(&error))?;
                Ok(Binding::Consumer(BoundConsumer::new(session, prefix)))
            }
            Role::Producer(ProducerSettings { options, signing }) => {
                let identity = identity(&signing).map_err(|_| Errno::ENOKEY)?;
                let session = line.wait_in_thread(move || {
                    let session = session(router)?;
                    session.connect_producers().map(|()| session)
                })?;
                // Start the binding in this thread, so that the prefix is free when this call
                // returns. It does not block, and the thread that it starts for a disk receives no
                // signals.
                let begun = session.and_then(|session| {
                    let _guard = WithoutSignals::new();
                    Producer::begin_bind(&session, prefix, identity, options)
                });
                let mut binder = begun.map_err(|error| errno_of(&error))?;
                let bound = line.wait(true, |context| {
                    let found = Pin::new(&mut binder).poll(context);
                    SourcePoll { found, has_more: false }
                })?;
                let producer = bound.map_err(|error| errno_of(&error))?;
                Ok(Binding::Producer(BoundProducer::new(&self.readiness, producer)))
            }
        }
    }

    /// Makes `poll` report requests from now on.
    fn listen(&self) {
        let line = match &self.state().binding {
            Binding::Producer(bound) => bound.source.clone(),
            _ => return,
        };
        // Fails if the socket is closed. Then there is nothing to report.
        let _ = line.wait(false, |context| match &mut self.state().binding {
            Binding::Producer(bound) => bound.poll_request(context),
            _ => SourcePoll::of(()),
        });
    }

    pub(crate) fn set_option(&self, text: &[u8]) -> Result<(), Errno> {
        let mut state = self.state();
        let is_bound = !matches!(state.binding, Binding::Unbound);
        state.options.set(text, is_bound)
    }

    pub(crate) fn option(&self, name: &[u8]) -> Result<String, Errno> {
        self.state().options.get(name)
    }

    /// Reads bytes of an object.
    pub(crate) fn recv(
        &self,
        name: Name,
        buffer: &mut ScatterBuffer,
        flags: c_int,
    ) -> Result<ReadResult, Errno> {
        let may_wait = may_wait(&self.readiness, flags & !ICN_NEWEST)?;
        if buffer.left() == 0 {
            // 0 bytes mean the end of the object, so an empty buffer cannot have a result.
            return Err(Errno::EINVAL);
        }
        let read = match &mut *self.state() {
            SocketState {
                options: Options { role: Role::Consumer(settings), .. },
                binding: Binding::Consumer(consumer),
            } => consumer.read(&self.readiness, name.clone(), settings, flags & ICN_NEWEST != 0)?,
            state => return Err(state.misused()),
        };
        let got = read.recv(buffer, may_wait);
        // After the end or an error, the next call starts a new read of the name.
        if !matches!(got, Ok(ReadResult { count: 1.., .. }) | Err(Errno::EAGAIN))
            && let Binding::Consumer(consumer) = &mut self.state().binding
        {
            consumer.end(&name, &read);
        }
        got
    }

    /// Sends one Interest.
    pub(crate) fn express(&self, name: Name, octets: Vec<u8>, flags: c_int) -> Result<(), Errno> {
        may_wait(&self.readiness, flags & !ICN_ANSWER)?;
        match &mut *self.state() {
            SocketState {
                options: Options { role: Role::Consumer(settings), .. },
                binding: Binding::Consumer(consumer),
            } => consumer.express(&self.readiness, name, flags & ICN_ANSWER != 0, octets, settings),
            state => Err(state.misused()),
        }
    }

    /// Receives the answer to an Interest.
    pub(crate) fn recv_answer(
        &self,
        name: &Name,
        buffer: &mut ScatterBuffer,
        flags: c_int,
    ) -> Result<usize, Errno> {
        let may_wait = may_wait(&self.readiness, flags & !ICN_ANSWER)?;
        let answers = match &*self.state() {
            SocketState { binding: Binding::Consumer(consumer), .. } => consumer.answers(name)?,
            state => return Err(state.misused()),
        };
        let got = answers.recv(buffer, may_wait);
        if let Binding::Consumer(consumer) = &mut self.state().binding {
            consumer.end_answers(name);
        }
        got
    }

    fn producer<R>(&self, then: impl FnOnce(&mut BoundProducer) -> R) -> Result<R, Errno> {
        match &mut *self.state() {
            SocketState { binding: Binding::Producer(bound), .. } => Ok(then(bound)),
            state => Err(state.misused()),
        }
    }

    /// Publishes, appends, answers or refuses.
    pub(crate) fn send(&self, name: &Name, octets: Vec<u8>, flags: c_int) -> Result<(), Errno> {
        let what = flags & (ICN_REFUSE | ICN_MORE | ICN_ANSWER);
        may_wait(&self.readiness, flags & !what)?;
        let producer = self.producer(|bound| bound.producer.clone())?;
        if !producer.prefix().as_view().is_prefix_of(name.as_view()) {
            return Err(Errno::EINVAL);
        }
        match what {
            0 if self.grow(&producer, name, &octets, true)? => {}
            0 => self.publish(producer, name.clone(), octets)?,
            ICN_MORE => drop(self.grow(&producer, name, &octets, false)?),
            ICN_ANSWER => self.answer(&producer, name, &octets)?,
            ICN_REFUSE => {
                let asked = self.answered(name).unwrap_or_default();
                let refused = asked.iter().try_for_each(|request| producer.refuse(request));
                return refused.map_err(|error| self.errno_of(&error));
            }
            _ => return Err(Errno::EINVAL),
        }
        // The socket may be closed by now; the operation has succeeded.
        let _ = self.answered(name);
        Ok(())
    }

    /// The error number of an operation that ends when the socket is closed.
    fn errno_of(&self, error: &SocketError) -> Errno {
        match error {
            SocketError::Closed | SocketError::Stopped if !self.readiness.is_open() => Errno::EBADF,
            error => errno_of(error),
        }
    }

    /// Appends to a growing object, and ends it if `is_last`. Returns whether there was such an
    /// object.
    fn grow(
        &self,
        producer: &Producer,
        name: &Name,
        octets: &[u8],
        is_last: bool,
    ) -> Result<bool, Errno> {
        let growing = match is_last {
            true => self.producer(|bound| bound.known_growing(name))?,
            false => Some(self.producer(|bound| bound.growing(name))??),
        };
        let Some(growing) = growing else { return Ok(false) };
        let goes_on = || self.readiness.is_open();
        let grown = growing.append(producer, name, octets, is_last, &goes_on);
        // Fails if the socket is closed. Then the object no longer exists.
        let _ = self.producer(|bound| bound.end_growing(name, &growing));
        grown.map_err(|error| self.errno_of(&error))
    }

    /// Answers delivered Interests for a name.
    fn answer(&self, producer: &Producer, name: &Name, octets: &[u8]) -> Result<(), Errno> {
        let asked = self.producer(|bound| bound.delivered(name))?;
        if asked.is_empty() {
            return Err(Errno::ENOMSG);
        }
        let answered = asked.iter().try_for_each(|request| producer.answer(request, octets));
        answered.map_err(|error| self.errno_of(&error))
    }

    /// The offer of an object that was published under a name.
    pub(crate) fn offer(&self, name: &Name) -> Result<Packet, Errno> {
        let producer = self.producer(|bound| bound.producer.clone())?;
        let offer = producer.offer_of(name).map_err(|error| self.errno_of(&error))?;
        offer.map(|offer| offer.packet().clone()).ok_or(Errno::ENOENT)
    }

    /// Publishes, while the socket is open.
    fn publish(&self, producer: Arc<Producer>, name: Name, octets: Vec<u8>) -> Result<(), Errno> {
        let (readiness, is_long) = (self.readiness.clone(), octets.len() > LONG_BYTES);
        let publish = move || {
            let mut goes_on = || readiness.is_open();
            producer.publish_while(&name, octets, &mut goes_on).map(drop)
        };
        // Sign long content in another thread, so that signal handlers can run in the calling
        // thread. Short content needs no other thread.
        let published = match is_long {
            true => spawn(publish)?.join().map_err(|_| Errno::EIO)?,
            false => publish(),
        };
        published.map_err(|error| self.errno_of(&error))
    }

    fn answered(&self, name: &Name) -> Result<Vec<Request>, Errno> {
        self.producer(|bound| bound.take_delivered(name))
    }

    /// Waits for a request.
    pub(crate) fn recv_request<T>(
        &self,
        flags: c_int,
        mut deliver: impl FnMut(&Request) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let may_wait = may_wait(&self.readiness, flags)?;
        let line = self.producer(|bound| bound.source.clone())?;
        line.wait(may_wait, |context| match &mut self.state().binding {
            Binding::Producer(bound) => bound.recv(context, &mut deliver),
            _ => SourcePoll::of(Err(Errno::EBADF)),
        })?
    }

    /// Whether the socket is a consumer.
    pub(crate) fn is_consumer(&self) -> bool {
        matches!(self.state().options.role, Role::Consumer(_))
    }
}

impl SocketState {
    /// The error for a call that does not fit the socket's type or state.
    fn misused(&self) -> Errno {
        match self.binding {
            Binding::Unbound | Binding::InProgress => Errno::ENOTCONN,
            _ => Errno::EOPNOTSUPP,
        }
    }
}
