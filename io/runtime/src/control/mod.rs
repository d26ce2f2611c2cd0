//! The control thread: everything that is not the path of a packet. Listeners, the face table,
//! management, connections, permanent faces, snapshots, the end.

mod anchors;
mod answers;
mod balance;
mod connect;
mod contents;
mod disks;
mod faces;
mod management;
mod operators;
mod ports;
mod recheck;
mod signals;
mod stalls;
mod start;
mod table;

pub use signals::is_kept_ignored;

use crate::arena::Preparer;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::Sender;
use mio::unix::SourceFd;
use mio::{Events, Poll, Token, Waker};
use weir_base::Instant;
use weir_manage::{Manager, ManagerInput, ManagerOutbox};

use self::connect::Connector;
pub(crate) use self::start::start;
use self::table::FaceTable;
use crate::clock::{Clock, sleep_until};
use crate::config::RuntimeConfig;
use crate::error::StopError;
use crate::face_quota::FaceQuota;
use crate::mailbox::{ControlReceiver, ControlSender};
use crate::message::{ConnectPurpose, PeerLinks, PortId, ToControl, ToWorker};
use crate::rate_limited_log::RateLimitedLog;

const WAKER_TOKEN: Token = Token(0);
const SIGNAL_TOKEN: Token = Token(1);
const LISTENER_TOKEN_FIRST: usize = 2;
/// Connections accepted on one listener before others get their turn.
const ACCEPTS_PER_TURN: usize = 64;
/// Pause when the system has no descriptor left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// How long the packet threads get for ending.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A packet thread, seen from the control thread.
struct WorkerHandle {
    commands: Sender<ToWorker>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerHandle {
    fn send(&self, command: ToWorker) {
        // A thread that has ended has said so: see `ToControl::Ended`.
        if self.commands.send(command).is_ok() {
            let _ = self.waker.wake();
        }
    }
}

impl Drop for WorkerHandle {
    /// Whatever way the control thread goes, it does not leave packet threads behind.
    fn drop(&mut self) {
        self.send(ToWorker::Stop);
    }
}

/// A shared UDP port.
struct PortRecord {
    /// The packet threads that have a socket of it.
    workers: Vec<u16>,
    local: SocketAddr,
    links: PeerLinks,
}

impl PortRecord {
    /// The packet thread that what `peer` sends comes to.
    fn worker_of(&self, peer: SocketAddr) -> u16 {
        self.workers[weir_face::steered_to(peer, self.workers.len())]
    }
}

/// The control thread's state.
struct Control {
    config: RuntimeConfig,
    clock: Clock,
    poll: Poll,
    sender: ControlSender,
    receiver: ControlReceiver,
    listeners: Vec<weir_face::Listener>,
    operators: operators::Operators,
    /// Descriptors ran out: listen again then.
    accept_again: Option<Instant>,
    signals: Option<signals::Signals>,
    workers: Vec<WorkerHandle>,
    next_worker: usize,
    balance: balance::Balance,
    quota: Arc<FaceQuota>,
    /// What applications may share.
    shared_memory: Option<Arc<weir_face::SharedMemory>>,
    shard_key: weir_base::HashKey,
    disks: Option<disks::Disks>,
    memory: Option<Preparer>,
    faces: FaceTable,
    ports: BTreeMap<PortId, PortRecord>,
    /// Attempts so far to make each face of the configuration.
    static_attempts: Vec<u32>,
    connector: Connector,
    /// Attempts to connect that wait for their time.
    retries: Vec<(Instant, ConnectPurpose)>,
    manager: Manager,
    manager_inputs: VecDeque<ManagerInput>,
    manager_outbox: ManagerOutbox,
    snapshots: HashMap<u64, answers::SnapshotJob>,
    erasures: HashMap<u64, answers::EraseJob>,
    contents: contents::State,
    next_transaction: u64,
    /// Connections refused because there are as many faces as may be.
    refused_connections: u64,
    /// Warnings of them.
    refusals: RateLimitedLog,
    /// Warnings of connections that the system cannot give.
    accept_failures: RateLimitedLog,
    /// When the next connection may be closed to make room.
    displace_at: Instant,
    is_stopping: bool,
    failure: Option<StopError>,
}

impl Control {
    /// Runs until told to stop, then ends the packet threads.
    fn run(mut self) -> Result<(), StopError> {
        let mut events = Events::with_capacity(256);
        self.perform_manager(self.clock.now());
        self.start_statics();
        self.start_contents();
        if let Some(memory) = &mut self.memory {
            memory.start();
        }
        while !self.is_stopping {
            let timeout = self.poll_timeout();
            if let Err(error) = self.poll.poll(&mut events, timeout) {
                assert!(error.kind() == io::ErrorKind::Interrupted, "epoll failed: {error}");
                continue;
            }
            let now = self.clock.now();
            for event in &events {
                match event.token() {
                    WAKER_TOKEN => {}
                    SIGNAL_TOKEN => self.on_signal(now),
                    Token(number) => self.accept(number - LISTENER_TOKEN_FIRST),
                }
            }
            self.take_messages(now);
            self.run_timers(now);
            self.perform_manager(now);
        }
        self.end()
    }

    fn poll_timeout(&self) -> Option<Duration> {
        let retry = self.retries.iter().map(|(at, _)| *at).min();
        let disks = self.disks.as_ref().and_then(disks::Disks::next_wakeup);
        let contents = self.contents.next_wakeup();
        let deadlines = [self.manager.next_wakeup(), retry, self.accept_again, disks, contents];
        let deadline = deadlines.into_iter().flatten().min()?;
        sleep_until(self.clock.now(), deadline)
    }

    fn on_signal(&mut self, now: Instant) {
        if self.signals.as_mut().is_some_and(signals::Signals::take) {
            tracing::info!("stopping: a signal asks for it");
            self.begin_stop(now);
        }
    }

    fn run_timers(&mut self, now: Instant) {
        if self.accept_again.is_some_and(|at| at <= now) {
            self.accept_again = None;
            for index in 0..self.listeners.len() {
                self.accept(index);
            }
        }
        let mut index = 0;
        while index < self.retries.len() {
            if self.retries[index].0 <= now {
                let (_, purpose) = self.retries.swap_remove(index);
                self.connect(purpose);
            } else {
                index += 1;
            }
        }
        self.run_disk_timers(now);
        self.run_contents_timers(now);
        if self.manager.next_wakeup().is_some_and(|at| at <= now) {
            self.manager_inputs.push_back(ManagerInput::Wakeup);
        }
    }

    fn take_messages(&mut self, now: Instant) {
        // A new peer's face is announced before its first packet is passed on. What waits is
        // counted first, so that no packet is taken whose face is not known yet; for what comes
        // later, the waker has been called again.
        let waiting = self.receiver.internal.len();
        while let Ok(message) = self.receiver.messages.try_recv() {
            self.on_message(now, message);
            self.perform_manager(now);
        }
        for _ in 0..waiting {
            let Ok(internal) = self.receiver.internal.try_recv() else { break };
            self.on_internal(internal);
            self.perform_manager(now);
        }
    }

    fn on_message(&mut self, now: Instant, message: ToControl) {
        match message {
            ToControl::PeerFace { worker, id, port, path } => {
                self.on_peer_face(worker, id, port, path);
            }
            ToControl::FaceClosed { id, reason, removed } => {
                self.on_face_closed(now, id, &reason, removed);
            }
            ToControl::Work { worker, report } => self.on_work(now, worker, report),
            ToControl::FaceMoved { id, worker } => self.on_move_ended(id, worker),
            ToControl::Heard { id, at } => self.on_heard(now, id, at),
            ToControl::Disks { worker, stats } => {
                if let Some(disks) = &mut self.disks {
                    disks.on_report(now, worker, *stats);
                }
            }
            ToControl::Event { worker, event } => self.on_event(worker, event),
            ToControl::Snapshot { transaction, snapshot } => {
                self.on_snapshot(transaction, &snapshot);
            }
            ToControl::Ended { worker, panicked } => {
                if panicked || !self.is_stopping {
                    let thread = format!("packet ({worker})");
                    tracing::error!(thread, "a packet thread failed; stopping");
                    self.failure = Some(StopError::Panicked { thread });
                    self.is_stopping = true;
                }
            }
            ToControl::Query(answer) => self.start_snapshot(answers::SnapshotFor::Query(answer)),
            ToControl::Local(socket) => self.on_accepted(*socket),
            ToControl::Contents { question, within, answer } => {
                self.on_question(now, question, within, answer);
            }
            ToControl::Connected(outcome) => self.on_connected(now, *outcome),
            ToControl::Stop => self.begin_stop(now),
        }
    }

    /// Hands a connection's socket to a thread: each in turn.
    fn pick_worker(&mut self) -> u16 {
        let worker = self.next_worker % self.workers.len();
        self.next_worker = self.next_worker.wrapping_add(1);
        worker as u16
    }

    fn tell_all(&self, mut command: impl FnMut() -> ToWorker) {
        for worker in &self.workers {
            worker.send(command());
        }
    }

    /// The shard of a name.
    fn shard_of(&self, name: weir_wire::NameView<'_>) -> usize {
        let count = self.workers.len() as u16;
        usize::from(weir_forward::shard::shard_of_name(&self.shard_key, name, count))
    }

    fn end(mut self) -> Result<(), StopError> {
        notify_stopping(STOP_TIMEOUT);
        // Closes the sockets and removes the socket file: a new router may start at once.
        self.listeners.clear();
        self.tell_all(|| ToWorker::Stop);
        let deadline = std::time::Instant::now() + STOP_TIMEOUT;
        for (index, worker) in self.workers.iter_mut().enumerate() {
            let Some(thread) = worker.thread.take() else {
                continue;
            };
            while !thread.is_finished() && std::time::Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            // The kernel keeps a thread until the devices that it left something to have answered.
            let is_left = self.disks.as_ref().is_some_and(disks::Disks::are_left_busy);
            let failed = !thread.is_finished() || (!is_left && thread.join().is_err());
            if failed && self.failure.is_none() {
                self.failure = Some(StopError::Panicked { thread: format!("packet ({index})") });
            }
        }
        tracing::info!("stopped");
        self.failure.take().map_or(Ok(()), Err)
    }

    fn register_raw(&self, fd: std::os::fd::RawFd, token: Token) -> io::Result<()> {
        self.poll.registry().register(&mut SourceFd(&fd), token, mio::Interest::READABLE)
    }
}

/// Tells systemd that it may take so long, with some more for the threads to end.
fn notify_stopping(within: Duration) {
    let within_us = (within + STOP_TIMEOUT).as_micros();
    let extend = u32::try_from(within_us).unwrap_or(u32::MAX);
    let states =
        [sd_notify::NotifyState::Stopping, sd_notify::NotifyState::ExtendTimeoutUsec(extend)];
    let _ = sd_notify::notify(&states);
}
