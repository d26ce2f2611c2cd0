//! Runs one consumer or producer as a process: `weir lab app FILE`.
//!
//! It exchanges lines with the coordinator over standard input and output:
//!
//! | it prints | the coordinator sends |
//! |---|---|
//! | `{"bound":["udp4://..."]}`: a port for each link (none without UDP) | `connect URI` for each |
//! | `{"ready":true}`: connected and registered | `start NS`: the common start (monotonic) |
//! | `{"done":true}`: a consumer has nothing left to do | `stop` |
//! | `{"report":{...}}`, and it exits | |
//!
//! If its standard input closes, the coordinator has exited, and the process exits at once.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_base::Instant;
use weir_baselines::controllers::CONTROLLERS;
use weir_client::{Client, ClientError, ReceivedPacket, monotonic_now};
use weir_face::{FaceUri, UdpOptions, UdpPort};
use weir_link::LinkDrop;
use weir_manage::ControlParameters;
use weir_manage::commands::Command;
use weir_plan::app::{App, AppInput, AppOutbox, PathId};
use weir_plan::{Role, Transport};
use weir_wire::Name;

use super::AppReport;
use super::codec::EventWriter;
use crate::emulator::{LatenessHistogram, LatenessStats};

/// Pause between attempts to reach a router that is down.
const RECONNECT_PAUSE: Duration = Duration::from_millis(5);
/// The kernel may merge wake-ups of sleeping processes within this time.
const TIMER_SLACK_NS: u64 = 1;

/// The content of the file for `weir lab app`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(crate) struct AppSpec {
    /// Index in the plan's nodes.
    pub node: u32,
    pub name: String,
    pub role: Role,
    pub seed: u64,
    /// When consumers stop to request, ns from the start.
    pub duration_ns: u64,
    /// When the application stops to wait for answers, ns from the start.
    pub end_ns: u64,
    /// Interval between samples of its window, ns; 0 for none.
    pub sample_ns: u64,
    pub transport: Transport,
    /// Maximum datagram size on each of its links.
    pub mtus: Vec<usize>,
    /// Prefixes to register: URI and cost.
    pub register: Vec<(String, u64)>,
    pub events: PathBuf,
    /// Whether to reconnect when its router goes down.
    pub reconnect: bool,
}

/// Why an application ended early.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// Its file is invalid.
    #[error("cannot use {}: {reason}", .path.display())]
    Spec { path: PathBuf, reason: String },
    /// A system call failed.
    #[error("{what}: {source}")]
    System { what: String, source: io::Error },
    /// The router rejected a registration.
    #[error("the router rejected the registration of {prefix}: {reason}")]
    Register { prefix: String, reason: String },
    /// It received bytes that no producer made.
    #[error("wrong bytes: {0}")]
    WrongBytes(String),
    /// The coordinator has exited.
    #[error("the coordinator has exited")]
    Orphaned,
}

/// Exit code of an application that received wrong bytes.
pub const EXIT_WRONG_BYTES: u8 = 3;

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> AppError {
    let what = what.into();
    |source| AppError::System { what, source }
}

fn connection_lost(error: ClientError) -> AppError {
    system("the connection to the router is lost")(io::Error::other(error))
}

/// Runs the application described in the file at `path`.
pub fn run_app(path: &Path) -> Result<(), AppError> {
    let bad = |reason: String| AppError::Spec { path: path.to_owned(), reason };
    let text = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
    let spec: AppSpec = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
    let mut app = App::new(&spec.role, CONTROLLERS, spec.duration_ns, spec.seed)
        .map_err(|error| bad(error.to_string()))?
        .ok_or_else(|| bad("a router is not an application".into()))?;
    (1..spec.mtus.len()).for_each(|path| app.set_path(PathId(path as u16), true));
    let file = File::create(&spec.events)
        .map_err(system(format!("cannot write {}", spec.events.display())))?;
    // Without it, the process wakes up later than requested; nothing else changes.
    let _ = nix::sys::prctl::set_timerslack(TIMER_SLACK_NS);
    let mut control = CoordinatorInput::default();
    let client = connect_first(&spec, &mut control)?;
    let mut driver = Driver::new(spec, app, client, EventWriter::new(file));
    driver.register()?;
    print_line(&serde_json::json!({ "ready": true }))?;
    let start_ns = control.argument("start ")?.parse().map_err(|_| AppError::Orphaned)?;
    driver.run(start_ns, &mut control)?;
    print_line(&serde_json::json!({ "report": driver.report() }))
}

fn connect_first(spec: &AppSpec, control: &mut CoordinatorInput) -> Result<Client, AppError> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let count = if spec.transport == Transport::Udp { spec.mtus.len() } else { 0 };
    let bind = |_| UdpPort::bind(any, &UdpOptions::default());
    let ports = (0..count).map(bind).collect::<io::Result<Vec<_>>>();
    let ports = ports.map_err(system("cannot open a UDP port"))?;
    let uri_of = |port: &UdpPort| FaceUri::Udp(port.local_addr()).to_string();
    print_line(&serde_json::json!({ "bound": ports.iter().map(uri_of).collect::<Vec<_>>() }))?;
    let mut uri = || -> Result<FaceUri, AppError> {
        control.argument("connect ")?.parse().map_err(|_| AppError::Orphaned)
    };
    let failed = |error| system("cannot connect to the router")(io::Error::other(error));
    if ports.is_empty() {
        return Client::connect(&uri()?).map_err(failed);
    }
    let mut routers = Vec::new();
    for (port, &mtu) in ports.into_iter().zip(&spec.mtus) {
        let peer = uri()?.socket_addr().ok_or(AppError::Orphaned)?;
        routers.push((port, peer, mtu));
    }
    Client::from_udp_ports(routers).map_err(failed)
}

fn print_line(line: &serde_json::Value) -> Result<(), AppError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|_| AppError::Orphaned)
}

/// Reads the coordinator's lines without another thread.
#[derive(Default)]
struct CoordinatorInput {
    octets: Vec<u8>,
}

impl CoordinatorInput {
    /// Waits for the next line, and returns the text after `word`.
    fn argument(&mut self, word: &str) -> Result<String, AppError> {
        loop {
            if let Some(at) = self.octets.iter().position(|&octet| octet == b'\n') {
                let line: Vec<u8> = self.octets.drain(..=at).collect();
                let line = String::from_utf8_lossy(&line);
                return match line.trim_end().strip_prefix(word) {
                    Some(rest) => Ok(rest.to_owned()),
                    // The coordinator sent `stop` before the start.
                    None => Err(AppError::Orphaned),
                };
            }
            self.read()?;
        }
    }

    fn read(&mut self) -> Result<(), AppError> {
        let mut block = [0; 512];
        match io::stdin().lock().read(&mut block) {
            Ok(0) => Err(AppError::Orphaned),
            Ok(count) => {
                self.octets.extend_from_slice(&block[..count]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(_) => Err(AppError::Orphaned),
        }
    }
}

/// Runs the state machine over the socket.
struct Driver {
    spec: AppSpec,
    app: App,
    client: Client,
    packets: Vec<ReceivedPacket>,
    inputs: Vec<AppInput>,
    out: AppOutbox,
    events: EventWriter<File>,
    start_ns: u64,
    sample_at_ns: u64,
    lateness: LatenessHistogram,
    report: AppReport,
}

impl Driver {
    fn new(spec: AppSpec, app: App, client: Client, events: EventWriter<File>) -> Self {
        let report = AppReport { node: spec.node, name: spec.name.clone(), ..Default::default() };
        Self {
            sample_at_ns: if spec.sample_ns == 0 { u64::MAX } else { 0 },
            spec,
            app,
            client,
            packets: Vec::new(),
            inputs: Vec::new(),
            out: AppOutbox::default(),
            events,
            start_ns: 0,
            lateness: LatenessHistogram::default(),
            report,
        }
    }

    /// Time in the run; 0 before its start.
    fn now(&self) -> Instant {
        Instant::from_ns(monotonic_now().as_ns().saturating_sub(self.start_ns))
    }

    /// Waits for the common start, then runs until the coordinator sends `stop`.
    fn run(&mut self, start_ns: u64, control: &mut CoordinatorInput) -> Result<(), AppError> {
        self.start_ns = start_ns;
        let wait_ns = start_ns.saturating_sub(monotonic_now().as_ns());
        std::thread::sleep(Duration::from_nanos(wait_ns));
        let cpu_before_ns = super::proc::own_cpu_ns();
        let is_consumer = matches!(self.app, App::Consumer(_));
        let mut is_done = false;
        self.step()?;
        loop {
            if is_consumer && !is_done && (self.app.is_done() || self.is_over()) {
                is_done = true;
                self.flush_events()?;
                self.report.cpu_ns = super::proc::own_cpu_ns() - cpu_before_ns;
                print_line(&serde_json::json!({ "done": true }))?;
            }
            if self.wait(is_done)? {
                control.argument("stop")?;
                break;
            }
            // Packets after the end do not belong to the run.
            if is_done {
                self.inputs.clear();
            } else {
                self.step()?;
            }
        }
        if !is_done {
            self.flush_events()?;
            self.report.cpu_ns = super::proc::own_cpu_ns() - cpu_before_ns;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.now().as_ns() >= self.spec.end_ns
    }

    /// Waits for packets or for the next wake-up time. Returns whether the coordinator has sent
    /// something or exited.
    fn wait(&mut self, is_done: bool) -> Result<bool, AppError> {
        // The client counts time from another origin than the run.
        let due = self.due().filter(|_| !is_done).map(|at| at.plus_ns(self.start_ns));
        match self.client.poll_with_fd(io::stdin().as_fd(), due, &mut self.packets) {
            Ok(is_control) => {
                let packets = self.packets.drain(..);
                self.inputs.extend(packets.map(|ReceivedPacket { path, header, packet }| {
                    AppInput { path, header, packet }
                }));
                Ok(is_control)
            }
            Err(error) => self.reconnect(error).map(|()| false),
        }
    }

    fn due(&self) -> Option<Instant> {
        let is_consumer = matches!(self.app, App::Consumer(_));
        let sample = self.is_sampling().then(|| Instant::from_ns(self.sample_at_ns));
        let end = is_consumer.then(|| Instant::from_ns(self.spec.end_ns));
        [self.app.next_wakeup(), sample, end].into_iter().flatten().min()
    }

    fn is_sampling(&self) -> bool {
        self.sample_at_ns <= self.spec.duration_ns
    }

    /// One step of the state machine: inputs, timers and their results.
    fn step(&mut self) -> Result<(), AppError> {
        let now = self.now();
        let due = self.app.next_wakeup().filter(|&at| at <= now);
        let now = self.before_stop(due, now);
        if let Some(due) = due {
            self.lateness.record(now.ns_since(due));
        }
        if due.is_some() || !self.inputs.is_empty() {
            self.report.turns += 1;
            self.report.packets_in += self.inputs.len() as u64;
            self.app.handle(now, &mut self.inputs, &mut self.out);
            self.inputs.clear();
            self.carry_out(now)?;
        }
        if self.is_sampling() && self.sample_at_ns <= now.as_ns() {
            self.sample_at_ns += self.spec.sample_ns;
            for kind in self.app.sample() {
                self.write_event(now, &kind)?;
            }
        }
        self.client.flush().or_else(|error| self.reconnect(error))
    }

    /// Handles what was due just before a consumer stops, even if the process woke up late. A busy
    /// machine then requests as much as an idle one.
    fn before_stop(&self, due: Option<Instant>, now: Instant) -> Instant {
        let Role::Consumer(plan) = &self.spec.role else {
            return now;
        };
        let stop_ns = plan.stop_ns.unwrap_or(u64::MAX).min(self.spec.duration_ns);
        match due {
            Some(due) if due.as_ns() < stop_ns => Instant::from_ns(now.as_ns().min(stop_ns - 1)),
            _ => now,
        }
    }

    fn carry_out(&mut self, now: Instant) -> Result<(), AppError> {
        self.report.packets_out += self.out.packets.len() as u64;
        for (path, header, packet) in self.out.packets.drain(..) {
            // The link counts packets that its queue drops.
            let _: Result<(), LinkDrop> = self.client.send(path, header, packet);
        }
        let events = std::mem::take(&mut self.out.events);
        for kind in &events {
            self.write_event(now, kind)?;
        }
        self.out.events = events;
        self.out.events.clear();
        match self.out.violation.take() {
            None => Ok(()),
            Some(what) => {
                self.flush_events()?;
                Err(AppError::WrongBytes(what))
            }
        }
    }

    fn write_event(
        &mut self,
        now: Instant,
        kind: &weir_plan::event::EventKind,
    ) -> Result<(), AppError> {
        self.events.write(now.as_ns(), kind).map_err(|source| self.write_failed(source))
    }

    fn flush_events(&mut self) -> Result<(), AppError> {
        self.events.flush().map_err(|source| self.write_failed(source))
    }

    fn write_failed(&self, source: io::Error) -> AppError {
        system(format!("cannot write {}", self.spec.events.display()))(source)
    }

    /// Reconnects to a router that is down.
    fn reconnect(&mut self, error: ClientError) -> Result<(), AppError> {
        let uri = self.client.uri().clone();
        if !self.spec.reconnect || matches!(uri, FaceUri::Udp(_)) {
            return Err(connection_lost(error));
        }
        self.report.dropped += self.client.dropped();
        loop {
            if self.is_over() {
                return Err(system("the router did not restart")(io::Error::other(error)));
            }
            std::thread::sleep(RECONNECT_PAUSE);
            if let Ok(client) = Client::connect(&uri) {
                self.client = client;
                self.report.reconnects += 1;
                return self.register();
            }
        }
    }

    fn register(&mut self) -> Result<(), AppError> {
        for (prefix, cost) in &self.spec.register {
            let refused = |reason: String| AppError::Register { prefix: prefix.clone(), reason };
            let name: Name = prefix.parse().map_err(|error| refused(format!("{error}")))?;
            let parameters =
                ControlParameters { name: Some(name), cost: Some(*cost), ..Default::default() };
            let answer = self.client.command(Command::RibRegister, &parameters);
            answer.map_err(|error| refused(error.to_string()))?;
        }
        Ok(())
    }

    fn report(&mut self) -> AppReport {
        let lateness = LatenessStats::of(&self.lateness);
        self.report.lateness_median_ns = lateness.p50_ns;
        self.report.lateness_p99_ns = lateness.p99_ns;
        self.report.lateness_max_ns = lateness.max_ns;
        self.report.dropped += self.client.dropped();
        self.report.clone()
    }
}
