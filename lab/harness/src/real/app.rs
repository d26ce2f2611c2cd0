//! One consumer or producer as a process: `weir lab app FILE`.
//!
//! It speaks with the coordinator over its standard input and output, a line at a time:
//!
//! | it says | it is told |
//! |---|---|
//! | `{"bound":"udp4://..."}` (`null` without UDP) | `connect URI` |
//! | `{"ready":true}`: connected and registered | `start NS`: the common start (monotonic) |
//! | `{"done":true}`: a consumer has nothing left to do | `stop` |
//! | `{"report":{...}}`, and it ends | |
//!
//! When its standard input closes, its coordinator is gone, and it ends at once.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_base::{Instant, NS_PER_MS, Packet, Pool};
use weir_face::{FaceUri, UdpPort};
use weir_link::LinkDrop;
use weir_manage::ControlParameters;
use weir_manage::commands::{self, Command, Scope};
use weir_plan::app::{App, AppInput, AppOutbox};
use weir_plan::{Role, Transport};
use weir_security::DigestSigner;
use weir_transport::Histogram;
use weir_wire::{DataView, InterestView, LpHeader, Name};

use super::AppReport;
use super::clock::monotonic_ns;
use super::codec::EventWriter;
use super::connection::{Connection, bind_udp};

/// Memory kept for receive blocks.
const POOL_BYTES_MAX: usize = 8 << 20;
/// Blocks read before the application gets its turn.
const READS_MAX: usize = 4;
/// How long a router may take to answer a command.
const COMMAND_PATIENCE_NS: u64 = 10_000 * NS_PER_MS;
/// Pause between attempts to reach a router that is away.
const RECONNECT_PAUSE: Duration = Duration::from_millis(5);
/// Wake-ups of sleeping processes may be put together by the kernel within this time.
const TIMER_SLACK_NS: u64 = 1;

/// What `weir lab app` is told in its file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppSpec {
    /// An index into the nodes of the plan.
    pub node: u32,
    /// Its name in the plan.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Its randomness.
    pub seed: u64,
    /// When consumers stop asking, ns from the start.
    pub duration_ns: u64,
    /// When it gives up what is outstanding, ns from the start.
    pub end_ns: u64,
    /// Its window is sampled at this period, ns; 0: not at all.
    pub sample_ns: u64,
    /// What carries its link.
    pub transport: Transport,
    /// Octets of a datagram at most.
    pub mtu: usize,
    /// Prefixes that it registers: URI and cost.
    pub register: Vec<(String, u64)>,
    /// Where its events go.
    pub events: PathBuf,
    /// Its router may be away for a time: it connects again.
    pub reconnect: bool,
}

/// Why an application ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// Its file cannot be used.
    #[error("cannot use {}: {reason}", .path.display())]
    Spec {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: String,
        /// What the system says.
        source: io::Error,
    },
    /// Its router refused to send it Interests.
    #[error("the router refused to register {prefix}: {reason}")]
    Register {
        /// The prefix.
        prefix: String,
        /// Why.
        reason: String,
    },
    /// It received octets that nobody produced.
    #[error("wrong octets: {0}")]
    WrongBytes(String),
    /// The coordinator is gone.
    #[error("the coordinator is gone")]
    Orphaned,
}

/// The exit code of an application that received wrong octets.
pub const EXIT_WRONG_BYTES: u8 = 3;

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> AppError {
    let what = what.into();
    |source| AppError::System { what, source }
}

/// Runs the application that the file at `path` describes.
///
/// # Errors
/// [`AppError`].
pub fn run_app(path: &Path) -> Result<(), AppError> {
    let bad = |reason: String| AppError::Spec { path: path.to_owned(), reason };
    let text = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
    let spec: AppSpec = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
    let app = App::new(&spec.role, spec.duration_ns, spec.seed)
        .map_err(|error| bad(error.to_string()))?
        .ok_or_else(|| bad("a router is no application".into()))?;
    let file = File::create(&spec.events)
        .map_err(system(format!("cannot write {}", spec.events.display())))?;
    // Without it the process wakes up later than it asks for, and that is all.
    let _ = nix::sys::prctl::set_timerslack(TIMER_SLACK_NS);
    let mut control = Control::default();
    let (connection, uri) = connect_first(&spec, &mut control)?;
    let mut driver = Driver::new(spec, app, connection, uri, EventWriter::new(file));
    driver.register()?;
    say(&serde_json::json!({ "ready": true }))?;
    let start_ns = control.argument("start ")?.parse().map_err(|_| AppError::Orphaned)?;
    driver.run(start_ns, &mut control)?;
    say(&serde_json::json!({ "report": driver.report() }))
}

fn connect_first(spec: &AppSpec, control: &mut Control) -> Result<(Connection, FaceUri), AppError> {
    let port = match spec.transport {
        Transport::Udp => Some(bind_udp().map_err(system("cannot open a UDP port"))?),
        Transport::Unix | Transport::Tcp => None,
    };
    let bound = port.as_ref().map(|port: &UdpPort| FaceUri::Udp(port.local_addr()).to_string());
    say(&serde_json::json!({ "bound": bound }))?;
    let text = control.argument("connect ")?;
    let uri: FaceUri = text.parse().map_err(|_| AppError::Orphaned)?;
    let connection = Connection::open(&uri, port, spec.mtu)
        .map_err(system(format!("cannot connect to the router at {uri}")))?;
    Ok((connection, uri))
}

fn say(line: &serde_json::Value) -> Result<(), AppError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|_| AppError::Orphaned)
}

/// What the coordinator says, line by line, without a reader's thread.
#[derive(Default)]
struct Control {
    octets: Vec<u8>,
}

impl Control {
    /// Waits for the next line and gives what follows `word`.
    fn argument(&mut self, word: &str) -> Result<String, AppError> {
        loop {
            if let Some(at) = self.octets.iter().position(|&octet| octet == b'\n') {
                let line: Vec<u8> = self.octets.drain(..=at).collect();
                let line = String::from_utf8_lossy(&line);
                return match line.trim_end().strip_prefix(word) {
                    Some(rest) => Ok(rest.to_owned()),
                    // It said `stop` before the start.
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

/// Drives the state machine over the socket.
struct Driver {
    spec: AppSpec,
    app: App,
    connection: Connection,
    uri: FaceUri,
    pool: Pool,
    inputs: Vec<AppInput>,
    out: AppOutbox,
    events: EventWriter<File>,
    start_ns: u64,
    sample_at_ns: u64,
    lateness: Histogram,
    report: AppReport,
    command_time_ms: u64,
}

impl Driver {
    fn new(
        spec: AppSpec,
        app: App,
        connection: Connection,
        uri: FaceUri,
        events: EventWriter<File>,
    ) -> Self {
        let report = AppReport { node: spec.node, name: spec.name.clone(), ..Default::default() };
        Self {
            sample_at_ns: if spec.sample_ns == 0 { u64::MAX } else { 0 },
            spec,
            app,
            connection,
            uri,
            pool: Pool::new(POOL_BYTES_MAX),
            inputs: Vec::new(),
            out: AppOutbox::default(),
            events,
            start_ns: 0,
            lateness: Histogram::default(),
            report,
            command_time_ms: 0,
        }
    }

    /// The time of the run; 0 until it begins.
    fn now(&self) -> Instant {
        Instant::from_ns(monotonic_ns().saturating_sub(self.start_ns))
    }

    /// Waits for the common start, then works until it is told to stop.
    fn run(&mut self, start_ns: u64, control: &mut Control) -> Result<(), AppError> {
        self.start_ns = start_ns;
        let wait_ns = start_ns.saturating_sub(monotonic_ns());
        std::thread::sleep(Duration::from_nanos(wait_ns));
        let cpu_before_ns = super::proc::own_cpu_ns();
        let is_consumer = matches!(self.app, App::Consumer(_));
        let mut is_done = false;
        self.turn()?;
        loop {
            if is_consumer && !is_done && (self.app.is_done() || self.is_over()) {
                is_done = true;
                self.flush_events()?;
                self.report.cpu_ns = super::proc::own_cpu_ns() - cpu_before_ns;
                say(&serde_json::json!({ "done": true }))?;
            }
            let ready = self
                .connection
                .wait(io::stdin().as_fd(), self.timeout_ns(is_done))
                .map_err(system("cannot wait for packets"))?;
            if ready.control {
                control.argument("stop")?;
                break;
            }
            if ready.readable {
                self.receive()?;
            }
            // What comes after the end is no part of the run.
            if is_done {
                self.inputs.clear();
            } else {
                self.turn()?;
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

    fn timeout_ns(&self, is_done: bool) -> Option<u64> {
        if is_done {
            return None;
        }
        let is_consumer = matches!(self.app, App::Consumer(_));
        let sample = self.is_sampling().then(|| Instant::from_ns(self.sample_at_ns));
        let end = is_consumer.then(|| Instant::from_ns(self.spec.end_ns));
        [self.app.next_wakeup(), self.connection.next_wakeup(), sample, end]
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.ns_since(self.now()))
    }

    fn is_sampling(&self) -> bool {
        self.sample_at_ns <= self.spec.duration_ns
    }

    /// Reads what is there, and connects again where that is asked for.
    fn receive(&mut self) -> Result<(), AppError> {
        for _ in 0..READS_MAX {
            let start_ns = self.start_ns;
            let now = || Instant::from_ns(monotonic_ns().saturating_sub(start_ns));
            match self.connection.receive(now, &mut self.pool, &mut self.inputs) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return self.reconnect(error),
            }
        }
        Ok(())
    }

    /// One turn of the state machine: what came, what is due, and what follows from it.
    fn turn(&mut self) -> Result<(), AppError> {
        let now = self.now();
        let due = self.app.next_wakeup().filter(|&at| at <= now);
        let now = self.in_time(due, now);
        if let Some(due) = due {
            self.lateness.record(now.ns_since(due));
            self.report.lateness_max_ns = self.report.lateness_max_ns.max(now.ns_since(due));
        }
        if self.connection.next_wakeup().is_some_and(|at| at <= now) {
            self.connection.handle_timeout(now);
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
            if let Some(kind) = self.app.sample() {
                self.write_event(now, &kind)?;
            }
        }
        match self.connection.flush(&mut self.pool) {
            Ok(()) => Ok(()),
            Err(error) => self.reconnect(error),
        }
    }

    /// What was due just before a consumer stops asking is asked for although this process woke up
    /// late, so that a busy machine asks for as much as an idle one.
    fn in_time(&self, due: Option<Instant>, now: Instant) -> Instant {
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
        for (header, packet) in self.out.packets.drain(..) {
            // The link counts what its queue refuses.
            let _: Result<(), LinkDrop> = self.connection.enqueue(now, header, packet);
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

    /// The router is gone, for a time perhaps.
    fn reconnect(&mut self, error: io::Error) -> Result<(), AppError> {
        let is_stream = !matches!(self.uri, FaceUri::Udp(_));
        if !self.spec.reconnect || !is_stream {
            return Err(system("the connection to the router is lost")(error));
        }
        self.report.dropped += self.connection.dropped();
        loop {
            if self.is_over() {
                return Err(system("the router did not come back")(error));
            }
            std::thread::sleep(RECONNECT_PAUSE);
            if let Ok(connection) = Connection::open(&self.uri, None, self.spec.mtu) {
                self.connection = connection;
                self.report.reconnects += 1;
                return self.register();
            }
        }
    }

    fn register(&mut self) -> Result<(), AppError> {
        for (prefix, cost) in self.spec.register.clone() {
            let refused = |reason: String| AppError::Register { prefix: prefix.clone(), reason };
            let name: Name = prefix.parse().map_err(|error| refused(format!("{error}")))?;
            self.register_one(name, cost).map_err(refused)?;
        }
        Ok(())
    }

    fn register_one(&mut self, name: Name, cost: u64) -> Result<(), String> {
        self.command_time_ms = weir_face::unix_time_ms().max(self.command_time_ms + 1);
        let nonce = (self.command_time_ms ^ u64::from(std::process::id()) << 40).to_be_bytes();
        let parameters =
            ControlParameters { name: Some(name), cost: Some(cost), ..Default::default() };
        let interest = commands::build_command(
            Scope::Localhost,
            Command::RibRegister,
            &parameters,
            &DigestSigner,
            nonce,
            self.command_time_ms,
        )
        .expect("a digest signer does not fail");
        let answer = self.express(&interest)?;
        let data = DataView::decode(&answer).map_err(|error| error.to_string())?;
        match commands::parse_response(&data) {
            Ok(response) if response.code == 200 => Ok(()),
            Ok(response) => Err(format!("{} {}", response.code, response.text)),
            Err(_) => Err("its answer makes no sense".into()),
        }
    }

    /// Sends a command and waits for its Data.
    fn express(&mut self, interest: &[u8]) -> Result<Packet, String> {
        let view = InterestView::decode(interest).map_err(|error| error.to_string())?;
        let text = |error: io::Error| error.to_string();
        let packet = self.pool.copy(interest);
        self.connection
            .enqueue(Instant::ZERO, LpHeader::default(), packet)
            .map_err(|drop| drop.name().to_owned())?;
        let deadline_ns = monotonic_ns() + COMMAND_PATIENCE_NS;
        loop {
            self.connection.flush(&mut self.pool).map_err(text)?;
            let left_ns = deadline_ns.saturating_sub(monotonic_ns());
            if left_ns == 0 {
                return Err("it did not answer in time".into());
            }
            let ready = self.connection.wait_alone(left_ns).map_err(text)?;
            if !ready {
                continue;
            }
            let mut inputs = Vec::new();
            let now = || Instant::ZERO;
            self.connection.receive(now, &mut self.pool, &mut inputs).map_err(text)?;
            let is_answer = |input: &AppInput| {
                DataView::decode(&input.packet).is_ok_and(|data| data.satisfies(&view))
            };
            if let Some(at) = inputs.iter().position(is_answer) {
                let answer = inputs.swap_remove(at).packet;
                self.inputs.append(&mut inputs);
                return Ok(answer);
            }
            self.inputs.append(&mut inputs);
        }
    }

    fn report(&mut self) -> AppReport {
        let quantile = |share| self.lateness.quantile_ns(share).unwrap_or(0);
        self.report.lateness_median_ns = quantile(0.5);
        self.report.lateness_p99_ns = quantile(0.99);
        self.report.dropped += self.connection.dropped();
        self.report.clone()
    }
}
