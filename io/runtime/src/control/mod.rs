//! The control thread. It does everything except processing packets: listeners, the face table,
//! management, outgoing connections, permanent faces, snapshots and shutdown.
//!
//! [`Control`] owns components and calls them in order: messages, timers, the manager. A component
//! commands the worker threads through its own [`Workers`] and returns inputs for the manager. It
//! calls other components only if they are passed to it.
//!
//! | component | state | returns |
//! |---|---|---|
//! | [`Acceptor`] | listening sockets, WebSocket handshakes | connections |
//! | [`Faces`] | face table, UDP ports, connections to retry, moves | notices for the manager |
//! | [`Management`] | the manager of NFD's protocol and its inputs | actions, Data |
//! | [`Snapshots`] | snapshots that some threads have not answered | the sum of all answers |
//! | [`Reloads`] | requested reloads, the parts to compare | answers for the manager |
//! | [`Service`] | status line and watchdog of systemd | |
//! | [`Erasures`] | erasures that visit one shard after the other | the answer for the manager |
//! | [`Contents`] | requests about the store, rules, index of holdings | answers for the manager |
//! | [`Store`] | settings of the store, memory preparer | |
//! | [`Disks`] | monitor, logged state, final flush | whether the router may stop |
//! | [`WorkerThreads`] | the threads | which one failed |

mod acceptor;
mod anchors;
mod contents;
mod datasets;
mod disks;
mod erasures;
mod faces;
mod handshakes;
mod management;
mod manager_config;
mod operators;
mod reload;
mod service;
mod signals;
mod snapshots;
mod stalls;
mod start;
mod store;
mod workers;

use std::io;
use std::time::Duration;

use crossbeam_channel::Sender as AnswerSender;
use mio::{Events, Poll, Token};
use weir_base::{Instant, Packet};
use weir_forward::strategy::Strategy;
use weir_forward::{Command, Event, NextHop};
use weir_manage::{Action, ManagerInput, Sender};
use weir_store::HoldingsConfig;
use weir_wire::{LpHeader, Name, PacketView};

use self::acceptor::Acceptor;
pub use self::acceptor::warn_of_certificate;
use self::contents::Contents;
use self::disks::Disks;
use self::erasures::Erasures;
use self::faces::Faces;
use self::management::Management;
use self::reload::Reloads;
use self::service::{Service, ServiceStatus};
use self::signals::Signals;
pub use self::signals::is_kept_ignored;
use self::snapshots::{SnapshotRequester, Snapshots};
pub(crate) use self::start::start;
use self::store::Store;
use self::workers::{Confirmation, WorkerThreads, Workers};
use crate::clock::{Clock, sleep_until};
use crate::error::StopError;
use crate::mailbox::ControlReceiver;
use crate::message::{ControllerSource, Readiness, ToControl, ToWorker, WorkerSnapshot};

const WAKER_TOKEN: Token = Token(0);
const SIGNAL_TOKEN: Token = Token(1);
const DEVICES_TOKEN: Token = Token(2);
const LISTENER_TOKEN_FIRST: usize = 3;
/// How long worker threads may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The control thread's state.
struct Control {
    clock: Clock,
    poll: Poll,
    receiver: ControlReceiver,
    signals: Option<Signals>,
    workers: Workers,
    confirmation: Confirmation,
    threads: WorkerThreads,
    acceptor: Acceptor,
    faces: Faces,
    management: Management,
    reloads: Reloads,
    service: Service,
    snapshots: Snapshots,
    erasures: Erasures,
    contents: Contents,
    store: Store,
    disks: Option<Disks>,
    controller: Option<ControllerSource>,
    is_stopping: bool,
    failure: Option<StopError>,
}

impl Control {
    /// Runs until the router must stop, then stops the worker threads. `keeps_index`: starts the
    /// index of holdings at once.
    fn run(mut self, keeps_index: bool) -> Result<(), StopError> {
        let mut events = Events::with_capacity(256);
        self.run_manager(self.clock.now());
        self.faces.connect_statics();
        self.faces.start_multicast(self.clock.now(), self.poll.registry(), DEVICES_TOKEN);
        if keeps_index {
            self.contents.track(Some(HoldingsConfig::default()));
        }
        self.store.start();
        while !self.is_stopping {
            let timeout = self.poll_timeout();
            if let Err(error) = self.poll.poll(&mut events, timeout) {
                assert!(error.kind() == io::ErrorKind::Interrupted, "epoll failed: {error}");
                continue;
            }
            let now = self.clock.now();
            self.take_events(now, &events);
            self.take_messages(now);
            self.run_timers(now);
            self.run_manager(now);
        }
        self.end()
    }

    fn poll_timeout(&self) -> Option<Duration> {
        let deadlines = [
            self.management.next_wakeup(),
            self.faces.next_wakeup(),
            self.acceptor.next_wakeup(),
            self.disks.as_ref().and_then(Disks::next_wakeup),
            self.contents.next_wakeup(),
            self.service.next_wakeup(),
        ];
        let deadline = deadlines.into_iter().flatten().min()?;
        sleep_until(self.clock.now(), deadline)
    }

    fn take_events(&mut self, now: Instant, events: &Events) {
        for event in events {
            match event.token() {
                WAKER_TOKEN => {}
                SIGNAL_TOKEN => {
                    let pending = self.signals.as_mut().map(Signals::take);
                    if pending.as_ref().is_some_and(|pending| pending.has_to_stop) {
                        tracing::info!("stopping on a signal");
                        self.begin_stop(now);
                    }
                    if pending.is_some_and(|pending| pending.has_to_reload) {
                        self.request_reload(None);
                    }
                }
                DEVICES_TOKEN => self.faces.on_devices_changed(now),
                Token(number) => {
                    for socket in self.acceptor.on_readable(now, number - LISTENER_TOKEN_FIRST) {
                        self.faces.on_accepted(now, socket);
                    }
                }
            }
        }
    }

    fn take_messages(&mut self, now: Instant) {
        // A worker thread announces a new peer's face before it forwards the peer's first packet.
        // The number of waiting packets is read before the messages, so each packet's face is known
        // when the packet is handled. Packets that arrive later call the waker again.
        let waiting = self.receiver.internal.len();
        while let Ok(message) = self.receiver.messages.try_recv() {
            self.on_message(now, message);
            self.run_manager(now);
        }
        for _ in 0..waiting {
            let Ok(internal) = self.receiver.internal.try_recv() else { break };
            let face = self.faces.find(internal.ingress());
            let sender = face.map_or(Sender::Remote, |face| face.sender());
            self.pass_notices();
            self.management.on_packet(sender, internal);
            self.run_manager(now);
        }
    }

    fn run_timers(&mut self, now: Instant) {
        for socket in self.acceptor.run_timers(now) {
            self.faces.on_accepted(now, socket);
        }
        self.faces.run_timers(now);
        self.faces.run_multicast_timer(now);
        if self.disks.as_mut().is_some_and(|disks| disks.run_timers(now)) {
            self.is_stopping = true;
        }
        self.pass_notices();
        let answers = self.contents.run_timers(now);
        self.management.extend(answers);
        self.management.run_timers(now);
        let (management, store) = (&self.management, &self.store);
        self.service.run_timers(now, &self.workers, || service_status(management, store));
    }

    fn on_message(&mut self, now: Instant, message: ToControl) {
        // No face may move during a snapshot: it would be counted twice or not at all.
        let can_move = !self.snapshots.is_in_progress();
        match message {
            ToControl::PeerFace { worker, id, port, path } => {
                self.faces.on_peer_face(worker, id, port, path);
            }
            ToControl::FaceClosed { id, reason, removed } => {
                self.faces.on_closed(now, id, &reason, removed);
            }
            ToControl::Work { worker, report } => {
                self.faces.on_work(now, worker, report, can_move);
            }
            ToControl::FaceMoved { id, worker } => {
                self.faces.on_move_ended(id, worker);
                self.snapshots.start_deferred();
            }
            ToControl::LastHeard { id, at } => self.faces.on_last_heard(now, id, at),
            ToControl::Connected(outcome) => self.faces.on_connected(now, *outcome, can_move),
            ToControl::Local(socket) => self.faces.on_accepted(now, *socket),
            ToControl::Disks { worker, stats } => {
                if let Some(disks) = &mut self.disks {
                    disks.on_report(now, worker, *stats);
                }
            }
            ToControl::Event { worker, event } => self.on_event(now, worker, event),
            ToControl::Examine { pulse, answer } => self.on_examination(&pulse, &answer),
            ToControl::Reload { config, answer } => {
                let store = self.store.settings();
                let mut report = self.apply_reload(*config);
                self.pass_notices();
                self.run_manager(now);
                self.report_store(store, &mut report);
                if !self.confirmation.wait_for_all() {
                    let late = "a packet thread does not respond, and applies this when it can";
                    report.others.push(late.into());
                }
                let _ = answer.send(report);
            }
            ToControl::ReloadEnded(outcome) => self.on_reload_ended(&outcome),
            ToControl::Query(answer) => self.start_snapshot(SnapshotRequester::Query(answer)),
            ToControl::Snapshot { transaction, snapshot } => {
                self.on_snapshot(transaction, &snapshot);
            }
            ToControl::Contents { question, within, answer } => {
                self.contents.on_request(now, question, within, answer);
            }
            ToControl::ControllerSource(source) => self.controller = Some(source),
            ToControl::Ended { worker, panicked } => self.on_ended(worker, panicked),
            ToControl::Stop => self.begin_stop(now),
        }
    }

    fn on_event(&mut self, now: Instant, worker: u16, event: Event) {
        let answer = match event {
            Event::StoreErased { transaction, erased, limit_reached } => {
                self.erasures.on_erased(transaction, erased, limit_reached)
            }
            Event::Store(event) => self.contents.on_event(now, worker, event),
            Event::StoreFlushed { transaction } => {
                if let Some(disks) = &mut self.disks {
                    disks.on_flushed(transaction);
                }
                None
            }
            // Worker threads report these through queues of their own.
            Event::Missed { .. }
            | Event::Announced { .. }
            | Event::RouteRefused { .. }
            | Event::AnnouncementNeeded { .. } => None,
        };
        self.management.extend(answer);
    }

    /// Requests a reload, for a transaction of the manager or for a signal.
    fn request_reload(&mut self, txn: Option<u64>) {
        if self.reloads.request(txn) {
            self.service.begin_reload();
        }
    }

    fn on_reload_ended(&mut self, outcome: &Result<String, String>) {
        match outcome {
            Ok(summary) => tracing::info!(summary, "reloaded the configuration"),
            Err(reason) => tracing::error!(reason, "refused the new configuration"),
        }
        let (answers, begins_next) = self.reloads.end(outcome);
        self.management.extend(answers);
        self.service.end_reload(outcome, &service_status(&self.management, &self.store));
        if begins_next {
            self.service.begin_reload();
        }
    }

    fn on_examination(&self, pulse: &AnswerSender<u16>, answer: &AnswerSender<Readiness>) {
        self.workers.send_all(|| ToWorker::Pulse(pulse.clone()));
        let _ = answer.send(self.readiness());
    }

    fn readiness(&self) -> Readiness {
        let is_final = self.disks.as_ref().is_some_and(Disks::is_stopping);
        Readiness {
            threads: self.workers.count(),
            is_stopping: self.is_stopping || is_final,
            is_recovering: self.disks.as_ref().is_some_and(Disks::is_recovering),
        }
    }

    fn start_snapshot(&mut self, asked_by: SnapshotRequester) {
        self.snapshots.start(asked_by, self.faces.is_moving());
    }

    fn on_snapshot(&mut self, transaction: u64, part: &WorkerSnapshot) {
        let disks = self.disks.as_ref();
        let failed_handshakes = self.acceptor.failed_handshakes();
        let done = self.snapshots.on_worker_snapshot(transaction, part, &self.faces, disks);
        let done = done.map(|(requester, mut snapshot)| {
            snapshot.add_runtime_drop("handshake-failed", failed_handshakes);
            snapshot.management = self.management.stats();
            snapshot.is_ready = self.readiness().is_ready();
            snapshot.anchor_expires_unix_s = self.reloads.anchor_expires_unix_s();
            (requester, snapshot)
        });
        match done {
            Some((SnapshotRequester::Query(answer), snapshot)) => {
                // The requesting thread may have stopped waiting.
                let _ = answer.send(snapshot);
            }
            Some((SnapshotRequester::Manager { txn, kind }, snapshot)) => {
                let internal = self.management.counters();
                let snapshot = datasets::dataset(kind, &snapshot, &self.faces, internal);
                self.management.push(ManagerInput::Snapshot { txn, snapshot });
            }
            None => {}
        }
    }

    fn on_ended(&mut self, worker: u16, panicked: bool) {
        if panicked || !self.is_stopping {
            let thread = format!("packet ({worker})");
            tracing::error!(thread, "a worker thread has failed; stopping");
            self.failure = Some(StopError::Panicked { thread });
            self.is_stopping = true;
        }
    }

    /// Passes face events to the manager. The manager must learn of a face before it handles a
    /// command from it. Both may be waiting if this thread was busy.
    fn pass_notices(&mut self) {
        self.management.extend(self.faces.take_notices());
    }

    /// Feeds all pending inputs to the manager. Carries out its actions before sending its answers.
    fn run_manager(&mut self, now: Instant) {
        loop {
            let mut has_changed = false;
            for action in self.management.take_actions() {
                has_changed |=
                    matches!(action, Action::SetNextHops { .. } | Action::SetStrategy { .. });
                self.perform(now, action);
            }
            let answers = self.management.take_data();
            let interests = self.management.take_interests();
            let hicn_answers = self.management.take_hicn_answers();
            // A client may use a new route as soon as it has the answer.
            if has_changed && !(answers.is_empty() && hicn_answers.is_empty()) {
                self.confirmation.wait_for_all();
            }
            hicn_answers.into_iter().for_each(|answer| self.faces.answer_hicn(answer));
            for data in answers {
                let header = LpHeader { no_cache: data.no_cache, ..LpHeader::default() };
                self.send_internal(header, data.packet);
            }
            for interest in interests {
                self.send_internal(LpHeader::default(), interest);
            }
            self.pass_notices();
            if !self.management.handle_next(now) {
                return;
            }
        }
    }

    /// Passes a packet of the manager to the router.
    fn send_internal(&mut self, header: LpHeader, packet: Packet) {
        let Ok(view) = PacketView::decode(&packet) else {
            tracing::error!("the manager produced an invalid packet");
            return;
        };
        self.management.note_sent(&view);
        let shard = self.workers.shard_of(view.name());
        self.workers.send(shard, ToWorker::Internal { header, packet });
    }

    fn perform(&mut self, now: Instant, action: Action) {
        match action {
            Action::CreateFace { txn, request } => self.faces.create(txn, request),
            Action::UpdateFace { txn, face, changes } => {
                let result = self.faces.update(face, &changes);
                self.pass_notices();
                self.management.push(ManagerInput::FaceUpdated { txn, result });
            }
            Action::DestroyFace { face } => self.faces.destroy(face),
            Action::SetNextHops { prefix, next_hops } => {
                let hops = next_hops.iter();
                let hops: Vec<NextHop> =
                    hops.map(|hop| NextHop { face: hop.face_id, cost: hop.cost }).collect();
                self.workers.send_all_shards(|| {
                    let (prefix, next_hops) = (prefix.clone(), hops.clone());
                    Command::SetNextHops { prefix, next_hops }
                });
            }
            Action::SetStrategy { prefix, strategy } => self.set_strategy(&prefix, strategy),
            Action::SetAnnouncement { prefix, announcement } => {
                self.workers.send_all_shards(|| {
                    let (prefix, announcement) = (prefix.clone(), announcement.clone());
                    Command::SetAnnouncement { prefix, announcement }
                });
            }
            Action::ConfigureStore(settings) => {
                self.store.configure(&settings);
                self.contents.set_capacity(settings.capacity_bytes);
            }
            Action::EraseStore { txn, prefix, limit } => self.erasures.start(txn, prefix, limit),
            Action::ListHoldings { txn, object } => {
                let answer = self.contents.list_holdings(now, txn, object);
                self.management.extend(answer);
            }
            Action::Contents { txn, task } => {
                let answer = self.contents.run_task(now, txn, task);
                self.management.extend(answer);
            }
            Action::ReportController { txn } => {
                let status = self.controller.as_ref().map(|source| source.0());
                self.management.push(ManagerInput::Controller { txn, status });
            }
            Action::Reload { txn } => self.request_reload(Some(txn)),
            Action::Snapshot { txn, kind } => {
                self.start_snapshot(SnapshotRequester::Manager { txn, kind });
            }
        }
    }

    fn set_strategy(&self, prefix: &Name, name: Option<Name>) {
        let strategy = match name {
            None => None,
            Some(name) => match Strategy::from_name(name.as_view()) {
                Ok(strategy) => Some(strategy),
                // The manager has checked the name, so the two lists of strategies disagree.
                Err(error) => {
                    tracing::error!(%prefix, strategy = %name, %error, "unknown strategy");
                    return;
                }
            },
        };
        self.workers.send_all_shards(|| {
            let (prefix, strategy) = (prefix.clone(), strategy.clone());
            Command::SetStrategy { prefix, strategy }
        });
    }

    /// Stops the router. With disks, memory is written to them first.
    fn begin_stop(&mut self, now: Instant) {
        let workers = &self.workers;
        let stops_now = self.disks.as_mut().is_none_or(|disks| disks.begin_stop(now, workers));
        self.is_stopping |= stops_now;
    }

    fn end(mut self) -> Result<(), StopError> {
        notify_stopping(STOP_TIMEOUT);
        self.acceptor.close();
        let is_disk_busy = || self.disks.as_ref().is_some_and(Disks::has_unresponsive);
        let failed = self.threads.stop(STOP_TIMEOUT, is_disk_busy);
        let failure =
            failed.map(|index| StopError::Panicked { thread: format!("packet ({index})") });
        tracing::info!("stopped");
        self.failure.or(failure).map_or(Ok(()), Err)
    }
}

fn service_status(management: &Management, store: &Store) -> ServiceStatus {
    let (faces, routes) = management.sizes();
    ServiceStatus { faces, routes, store_bytes: store.capacity_bytes() }
}

/// A random number from the system. Without it, attackers could predict the keys of hash tables.
fn random_u64() -> u64 {
    getrandom::u64().expect("the system's random numbers do not fail after start-up")
}

/// Reports to systemd how long stopping may take, plus time for the threads to end.
fn notify_stopping(within: Duration) {
    let within_us = (within + STOP_TIMEOUT).as_micros();
    let extend = u32::try_from(within_us).unwrap_or(u32::MAX);
    let states =
        [sd_notify::NotifyState::Stopping, sd_notify::NotifyState::ExtendTimeoutUsec(extend)];
    let _ = sd_notify::notify(&states);
}
