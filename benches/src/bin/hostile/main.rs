//! Attacks on a real `weir router`, and the service of an honest user during each attack and 5 s
//! after.
//!
//! `cargo run --release -p weir-benches --bin hostile` builds the program; `WEIR_BIN` names another
//! one, such as an older version. Each attack has a new router. The report has the goodput of an
//! honest `weir get` over the Unix socket and over UDP, and the router's resident memory. It also
//! has the time that 99 % of management commands stay below, each over a new connection.
//!
//! The last attack is on a `weir controller`.
//!
//! Attackers use other loopback addresses. With `--isolated`, everything runs in a network
//! namespace with addresses that are not loopback, so TCP peers are other hosts as well.

mod controller;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command as Program;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Parser;
use serde_json::{Value, json};
use weir_benches::{register, tlv};
use weir_tests::{Host, Process, Router, TEST_TIMEOUT, random_file, sha256_hex};
use weir_wire::{LpFraming, LpHeader, LpView, Name, peek_frame};

#[derive(Parser)]
struct Args {
    /// Duration of each attack in seconds.
    #[arg(long, default_value_t = 6)]
    seconds: u64,
    /// Attacks to run; by default all.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Additional arguments for `weir router`.
    #[arg(long, allow_hyphen_values = true, default_value = "")]
    router: String,
    /// Runs in a network namespace of this user, where the addresses are not loopback.
    #[arg(long)]
    isolated: bool,
    /// The namespace exists: set by `--isolated`.
    #[arg(long, hide = true)]
    in_namespace: bool,
    /// Prints one JSON object for each attack.
    #[arg(long)]
    json: bool,
}

/// An attack: what is sent, from where and how fast.
struct Attack {
    name: &'static str,
    sends: Sends,
    /// Number of addresses that it comes from.
    hosts: u16,
    /// Number of ports or connections, for all addresses together.
    sources: u32,
    /// Packets per second; 0 sends none.
    rate: u64,
    /// Additional arguments for `weir router`.
    router: &'static str,
}

/// What an attack sends or requests.
#[derive(Clone, Copy)]
enum Sends {
    /// Datagrams with Interests without a route.
    Datagrams,
    /// Only connections.
    Connections,
    /// Interests of about this size for a producer that never answers.
    Interests { lifetime_ms: u32, bytes: usize },
    /// Interests for large Data that is never read, by peers with small receive buffers.
    Deaf,
    /// First fragments of packets of 400 fragments.
    Fragments,
    /// Forged Data with names of the honest file. The store holds half of that file.
    Forgeries,
    /// Data with 4,000 components, while Interests for prefixes of all lengths are pending.
    LongNames,
}

const ATTACKS: [Attack; 8] = [
    Attack {
        name: "source-ports",
        sends: Sends::Datagrams,
        hosts: 1,
        sources: 16_400,
        rate: 20_000,
        router: "",
    },
    Attack {
        name: "connections",
        sends: Sends::Connections,
        hosts: 1,
        sources: 16_390,
        rate: 0,
        router: "",
    },
    Attack {
        name: "long-lifetimes",
        sends: Sends::Interests { lifetime_ms: 600_000, bytes: 60 },
        hosts: 4,
        sources: 4,
        rate: 200_000,
        router: "",
    },
    Attack {
        name: "large-interests",
        sends: Sends::Interests { lifetime_ms: 600_000, bytes: 8600 },
        hosts: 4,
        sources: 4,
        rate: 50_000,
        router: "",
    },
    Attack {
        name: "deaf-peers",
        sends: Sends::Deaf,
        hosts: 4,
        sources: 150,
        rate: 50_000,
        router: "--store 16MiB",
    },
    Attack {
        name: "fragments",
        sends: Sends::Fragments,
        hosts: 4,
        sources: 1000,
        rate: 50_000,
        router: "",
    },
    Attack {
        name: "forged-data",
        sends: Sends::Forgeries,
        hosts: 1,
        sources: 1,
        rate: 50_000,
        router: "--store 4MiB",
    },
    Attack {
        name: "long-names",
        sends: Sends::LongNames,
        hosts: 1,
        sources: 1,
        rate: 5_000,
        router: "",
    },
];

/// Size of the file that the honest user fetches repeatedly.
const FILE_BYTES: usize = 8 << 20;
const PAYLOAD_BYTES: usize = 8000;
/// Pause between commands.
const COMMAND_PAUSE: Duration = Duration::from_millis(5);
/// Maximum time of a command; slower ones count as this.
const COMMAND_LIMIT: Duration = Duration::from_secs(2);

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.isolated && !args.in_namespace {
        return Err(enter_namespace());
    }
    weir_face::raise_file_limit()?;
    let is_chosen = |name: &str| args.only.is_empty() || args.only.iter().any(|one| one == name);
    if !args.json {
        println!(
            "before, during and 5 s after: goodput in Mbit/s, p99 of a command in ms, RSS in MiB"
        );
    }
    for attack in ATTACKS.iter().filter(|attack| is_chosen(attack.name)) {
        let report =
            Trial::start(&args, attack)?.run(attack).with_context(|| attack.name.to_owned())?;
        match args.json {
            true => println!("{}", report.json(attack)),
            false => println!("{}", report.line(attack)),
        }
    }
    if is_chosen(controller::NAME) {
        controller::run(args.seconds, args.json).context(controller::NAME)?;
    }
    Ok(())
}

/// Restarts this program in a namespace. Returns only if that fails.
fn enter_namespace() -> anyhow::Error {
    let script = "ip link set lo up && ip addr add 10.1.0.1/16 dev lo && exec \"$0\" \"$@\"";
    let Ok(program) = std::env::current_exe() else {
        return anyhow::anyhow!("no path of this program");
    };
    // Built before entering the namespace.
    let weir = weir_tests::weir_binary();
    let error = Program::new("unshare")
        .args(["--user", "--map-root-user", "--net", "sh", "-c", script])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .arg("--in-namespace")
        .env("WEIR_BIN", weir)
        .exec();
    anyhow::Error::new(error).context("unshare")
}

/// A router and an honest producer.
struct Trial {
    host: Host,
    router: Router,
    _producer: Process,
    target: Target,
    expected: String,
    seconds: u64,
}

/// The router's addresses, and the file that it serves.
struct Target {
    socket: PathBuf,
    process: u32,
    /// The addresses of all hosts start with this.
    network: [u8; 2],
    port: u16,
    /// Versioned name of the honest file.
    name: String,
}

/// The service that an honest user gets in some period.
#[derive(Default)]
struct Service {
    local_mbps: f64,
    remote_mbps: f64,
    command_p99_ms: f64,
    rss_mib: f64,
}

struct Report {
    before: Service,
    during: Service,
    after: Service,
}

impl Trial {
    fn start(args: &Args, attack: &Attack) -> anyhow::Result<Self> {
        let host = Host::new();
        let network = if args.in_namespace { [10, 1] } else { [127, 0] };
        let words = args.router.split_whitespace().chain(attack.router.split_whitespace());
        let mut arguments: Vec<String> = words.map(Into::into).collect();
        let port = host.free_port();
        if args.in_namespace {
            let address = format!("10.1.0.1:{port}");
            arguments.extend(["--udp".into(), address.clone(), "--tcp".into(), address]);
        }
        let router = Router::start_with(&host, &arguments);
        let port = if args.in_namespace { port } else { router.port() };
        let source = host.path("source");
        let expected = random_file(&source, FILE_BYTES, 1);
        let words = ["put", source.to_str().context("UTF-8")?, "/honest/file", "--json"];
        let producer = router.spawn(&words);
        let name = producer.json_line()["name"].as_str().context("a name")?.to_owned();
        let (socket, process) = (router.socket().clone(), router.process.id());
        let target = Target { socket, process, network, port, name };
        Ok(Self { host, router, _producer: producer, target, expected, seconds: args.seconds })
    }

    fn run(&self, attack: &Attack) -> anyhow::Result<Report> {
        let before = self.measure(Duration::from_secs(3))?;
        let (target, stop) = (&self.target, AtomicBool::new(false));
        let during = thread::scope(|scope| {
            let attacker = scope.spawn(|| target.attack(attack, &stop));
            // The start of an attack is not measured: it takes a second to build up.
            thread::sleep(Duration::from_secs(1));
            let during = self.measure(Duration::from_secs(self.seconds));
            stop.store(true, Ordering::Relaxed);
            attacker.join().map_err(|_| anyhow::anyhow!("the attacker panicked"))??;
            during
        })?;
        thread::sleep(Duration::from_secs(5));
        let after = self.measure(Duration::from_secs(3))?;
        Ok(Report { before, during, after })
    }

    /// Measures a local `get` in the first half, and a remote one in the second.
    fn measure(&self, span: Duration) -> anyhow::Result<Service> {
        let (target, stop) = (&self.target, AtomicBool::new(false));
        let (half, remote) = (span / 2, format!("udp4://{}", target.address()));
        thread::scope(|scope| {
            let commands = scope.spawn(|| target.command_times(&stop));
            let memory = scope.spawn(|| peak_rss_mib(target.process, &stop));
            let local_mbps = self.goodput_mbps(&self.router.unix(), half);
            let remote_mbps = self.goodput_mbps(&remote, half);
            stop.store(true, Ordering::Relaxed);
            let mut times = commands.join().expect("the commander does not panic");
            times.sort_unstable();
            let p99 = times[times.len() * 99 / 100];
            Ok(Service {
                local_mbps: local_mbps?,
                remote_mbps: remote_mbps?,
                command_p99_ms: p99.as_secs_f64() * 1e3,
                rss_mib: memory.join().expect("the reader does not panic")?,
            })
        })
    }

    /// Fetches the file repeatedly. An incomplete fetch at the end does not count, but its time
    /// does.
    fn goodput_mbps(&self, transport: &str, span: Duration) -> anyhow::Result<f64> {
        let target = self.host.path("copy");
        let begun = Instant::now();
        let mut bytes = 0;
        while begun.elapsed() < span {
            let _ = std::fs::remove_file(&target);
            let words =
                ["get", &self.target.name, "-o", target.to_str().context("UTF-8")?, "--json"];
            let mut get = self.host.spawn(transport, &words);
            while get.is_running() && begun.elapsed() < span {
                thread::sleep(Duration::from_millis(2));
            }
            // A failed fetch has left no file. A running one is killed when its value is dropped.
            if !get.is_running() && target.exists() {
                ensure!(sha256_hex(&target) == self.expected, "a false copy was accepted");
                bytes += FILE_BYTES;
            }
        }
        Ok(bytes as f64 * 8e-6 / begun.elapsed().as_secs_f64())
    }
}

/// Peak resident memory of a process, sampled often.
fn peak_rss_mib(id: u32, stop: &AtomicBool) -> anyhow::Result<f64> {
    let mut peak_kib = 0_u64;
    loop {
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("VmRSS")?;
        peak_kib = peak_kib.max(line.split_whitespace().nth(1).context("a number")?.parse()?);
        if stop.load(Ordering::Relaxed) {
            return Ok(peak_kib as f64 / 1024.0);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

impl Target {
    fn address(&self) -> SocketAddr {
        let [a, b] = self.network;
        SocketAddr::from((Ipv4Addr::new(a, b, 0, 1), self.port))
    }

    fn command_times(&self, stop: &AtomicBool) -> Vec<Duration> {
        let mut times = Vec::new();
        // Measure at least one command, so that there is a percentile.
        while !stop.load(Ordering::Relaxed) || times.is_empty() {
            let begun = Instant::now();
            let is_done = register(None, &self.socket, "/probe", COMMAND_LIMIT).is_ok();
            times.push(if is_done { begun.elapsed() } else { COMMAND_LIMIT });
            thread::sleep(COMMAND_PAUSE);
        }
        times
    }

    fn attack(&self, attack: &Attack, stop: &AtomicBool) -> anyhow::Result<()> {
        let Attack { sends, sources, rate, .. } = *attack;
        match sends {
            Sends::Datagrams => {
                let ports = self.ports(attack, sources)?;
                let packet = |number: u64| interest(&[b"none"], number, 4000, 0);
                pace(rate, stop, |number| send(&ports, number, &packet(number)))
            }
            Sends::Connections => {
                let mut connections = Vec::new();
                // Open 20,000 connections a second up to the limit, and hold them until the end.
                pace(20_000, stop, |number| {
                    if number < u64::from(sources) {
                        connections.extend(self.connect(attack, number));
                    }
                    Ok(())
                })
            }
            Sends::Interests { lifetime_ms, bytes } => {
                let silent = register(None, &self.socket, "/silent", TEST_TIMEOUT)?;
                let ports = self.ports(attack, sources)?;
                thread::scope(|scope| {
                    scope.spawn(|| read_and_discard(&silent, stop));
                    let more = bytes.saturating_sub(60);
                    let packet = |number| interest(&[b"silent"], number, lifetime_ms, more);
                    pace(rate, stop, |number| send(&ports, number, &packet(number)))
                })
            }
            Sends::Deaf => self.request_and_never_read(attack, stop),
            Sends::Fragments => {
                let ports = self.ports(attack, sources)?;
                pace(rate, stop, |number| send(&ports, number, &first_fragment(number)))
            }
            Sends::Forgeries => {
                let ports = self.ports(attack, sources)?;
                let name: Name = self.name.parse()?;
                let segments = (FILE_BYTES / PAYLOAD_BYTES) as u64 + 1;
                let packet = |number| forgery(&name, number % segments);
                pace(rate, stop, |number| send(&ports, number, &packet(number)))
            }
            Sends::LongNames => self.send_long_names(attack, stop),
        }
    }

    /// Address number `index` of the attack.
    fn host(&self, attack: &Attack, index: u64) -> IpAddr {
        let [a, b] = self.network;
        let [c, d] = (2 + (index % u64::from(attack.hosts)) as u16).to_be_bytes();
        Ipv4Addr::new(a, b, c, d).into()
    }

    /// One port for each source of the attack; fewer if the system has no more.
    fn ports(&self, attack: &Attack, count: u32) -> anyhow::Result<Vec<UdpSocket>> {
        let mut ports = Vec::new();
        for index in 0..count {
            let bound = UdpSocket::bind((self.host(attack, index.into()), 0));
            let Ok(socket) = bound else { break };
            socket.connect(self.address())?;
            socket.set_nonblocking(true)?;
            ports.push(socket);
        }
        ensure!(!ports.is_empty(), "no port for the attacker");
        Ok(ports)
    }

    fn connect(&self, attack: &Attack, index: u64) -> Option<TcpStream> {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).ok()?;
        socket.bind(&SocketAddr::new(self.host(attack, index), 0).into()).ok()?;
        socket.set_recv_buffer_size(4096).ok()?;
        socket.set_nonblocking(true).ok()?;
        match socket.connect(&self.address().into()) {
            Err(error) if error.raw_os_error() != Some(nix::libc::EINPROGRESS) => None,
            _ => Some(socket.into()),
        }
    }

    fn request_and_never_read(&self, attack: &Attack, stop: &AtomicBool) -> anyhow::Result<()> {
        let producer = register(None, &self.socket, "/large", TEST_TIMEOUT)?;
        let mut peers: Vec<TcpStream> =
            (0..attack.sources).filter_map(|index| self.connect(attack, index.into())).collect();
        thread::scope(|scope| {
            scope.spawn(|| produce_large(&producer, stop));
            pace(attack.rate, stop, |number| {
                let count = peers.len() as u64;
                let peer = &mut peers[(number % count) as usize];
                // Each Data is requested once, so none is both in the store and in a queue.
                ignore_full(peer.write(&interest(&[b"large"], number, 4000, 0)).map(drop))
            })
        })
    }

    fn send_long_names(&self, attack: &Attack, stop: &AtomicBool) -> anyhow::Result<()> {
        const COMPONENTS: usize = 4000;
        let silent = register(None, &self.socket, "/x", TEST_TIMEOUT)?;
        let ports = self.ports(attack, attack.sources)?;
        let prefix = [8, 1, b'x'];
        let empty = [8, 0];
        let name = |components: usize, last: &[u8]| {
            let mut name = prefix.to_vec();
            name.extend(empty.repeat(components - 1));
            name.extend_from_slice(last);
            name
        };
        let mut long = Vec::new();
        tlv(7, &name(COMPONENTS, &[]), &mut long);
        tlv(21, b"x", &mut long);
        tlv(22, &[27, 1, 0], &mut long);
        tlv(23, &[0; 32], &mut long);
        let long = wrapped(6, &long);
        thread::scope(|scope| {
            scope.spawn(|| read_and_discard(&silent, stop));
            // One Interest of each length. None matches the Data: the last component differs.
            for components in 1..COMPONENTS - 1 {
                let mut value = Vec::new();
                tlv(7, &name(components, &[8, 1, b'z']), &mut value);
                tlv(0x21, &[], &mut value);
                tlv(10, &(components as u32).to_be_bytes(), &mut value);
                tlv(12, &600_000_u32.to_be_bytes(), &mut value);
                send(&ports, 0, &wrapped(5, &value))?;
                if components % 50 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            pace(attack.rate, stop, |number| send(&ports, number, &long))
        })
    }
}

/// Calls `act` with 0, 1, 2 ..., `rate` times per second, as far as it keeps up.
fn pace(
    rate: u64,
    stop: &AtomicBool,
    mut act: impl FnMut(u64) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let due = (begun.elapsed().as_secs_f64() * rate as f64) as u64;
        // Send at most 10 ms' worth of packets before `stop` is checked. Skip packets that are more
        // than 20 ms late.
        for _ in 0..(due.saturating_sub(number)).min(rate / 100 + 1) {
            act(number)?;
            number += 1;
        }
        number = number.max(due.saturating_sub(rate / 50));
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn send(ports: &[UdpSocket], number: u64, packet: &[u8]) -> anyhow::Result<()> {
    let port = &ports[(number % ports.len() as u64) as usize];
    ignore_full(port.send(packet).map(drop))
}

/// An attacker continues even if the victim refuses its packets.
fn ignore_full(sent: io::Result<()>) -> anyhow::Result<()> {
    match sent {
        Err(error) if error.kind() == ErrorKind::InvalidInput => Err(error.into()),
        _ => Ok(()),
    }
}

/// A producer that reads and never answers.
fn read_and_discard(mut stream: &UnixStream, stop: &AtomicBool) {
    let mut octets = vec![0; 1 << 16];
    let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
    while !stop.load(Ordering::Relaxed) {
        let _ = stream.read(&mut octets);
    }
}

/// Answers each Interest for `/large`.
fn produce_large(mut stream: &UnixStream, stop: &AtomicBool) -> io::Result<()> {
    let mut octets: Vec<u8> = Vec::new();
    let mut chunk = vec![0; 1 << 16];
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    stream.set_write_timeout(Some(Duration::from_millis(100)))?;
    while !stop.load(Ordering::Relaxed) {
        if let Ok(read) = stream.read(&mut chunk) {
            octets.extend_from_slice(&chunk[..read]);
        }
        while let Ok(Some(len)) = peek_frame(&octets)
            && len <= octets.len()
        {
            let frame: Vec<u8> = octets.drain(..len).collect();
            let Ok(view) = LpView::decode(&frame) else { continue };
            let Some(Ok(asked)) = view.fragment.map(weir_wire::InterestView::decode) else {
                continue;
            };
            let mut value = Vec::new();
            tlv(7, asked.name.value(), &mut value);
            tlv(21, &vec![1; PAYLOAD_BYTES], &mut value);
            tlv(22, &[27, 1, 0], &mut value);
            tlv(23, &[0; 32], &mut value);
            // A truncated Data would break the stream, so a full socket ends the producer.
            stream.write_all(&wrapped(6, &value))?;
        }
    }
    Ok(())
}

fn wrapped(typ: u8, value: &[u8]) -> Vec<u8> {
    let mut wire = Vec::with_capacity(value.len() + 4);
    tlv(typ, value, &mut wire);
    wire
}

/// An Interest for a name of these components and a number, with `more` unnecessary bytes.
fn interest(components: &[&[u8]], number: u64, lifetime_ms: u32, more: usize) -> Vec<u8> {
    let mut name = Vec::new();
    components.iter().for_each(|component| tlv(8, component, &mut name));
    tlv(8, &number.to_be_bytes(), &mut name);
    if more > 0 {
        tlv(8, &vec![b'x'; more], &mut name);
    }
    let mut value = Vec::new();
    tlv(7, &name, &mut value);
    tlv(10, &(number as u32).to_be_bytes(), &mut value);
    tlv(12, &lifetime_ms.to_be_bytes(), &mut value);
    wrapped(5, &value)
}

/// The first of 400 fragments, as large as the largest packet allows.
fn first_fragment(number: u64) -> Vec<u8> {
    let framing = LpFraming {
        sequence: Some(number * 1000),
        frag_index: 0,
        frag_count: 400,
        ..LpFraming::BARE
    };
    LpHeader::default().encode(&framing, &[], Some(&[6; 8000]))
}

/// A segment of the honest file with other content and an invalid signature.
fn forgery(object: &Name, segment: u64) -> Vec<u8> {
    let mut name = object.value().to_vec();
    let octets = segment.to_be_bytes();
    let width = [1, 2, 4, 8].into_iter().find(|&width| segment >> (8 * width - 1) >> 1 == 0);
    tlv(50, &octets[8 - width.unwrap_or(8)..], &mut name);
    let mut value = Vec::new();
    tlv(7, &name, &mut value);
    tlv(20, &[25, 2, 0x27, 0x10], &mut value);
    tlv(21, b"forged", &mut value);
    tlv(22, &[27, 1, 0], &mut value);
    tlv(23, &[0; 32], &mut value);
    wrapped(6, &value)
}

impl Service {
    fn json(&self) -> Value {
        json!({
            "local_mbps": self.local_mbps,
            "remote_mbps": self.remote_mbps,
            "command_p99_ms": self.command_p99_ms,
            "rss_mib": self.rss_mib,
        })
    }
}

impl Report {
    fn json(&self, attack: &Attack) -> Value {
        json!({
            "attack": attack.name,
            "before": self.before.json(),
            "during": self.during.json(),
            "after": self.after.json(),
        })
    }

    fn line(&self, attack: &Attack) -> String {
        let goodput = |value: fn(&Service) -> f64| {
            let (before, during, after) =
                (value(&self.before), value(&self.during), value(&self.after));
            format!("{before:5.0} {during:5.0} ({:3.0} %) {after:5.0}", during / before * 100.0)
        };
        let three = |value: fn(&Service) -> f64| {
            let values = [&self.before, &self.during, &self.after].map(value);
            format!("{:6.1} {:6.1} {:6.1}", values[0], values[1], values[2])
        };
        format!(
            "{:16} local {}  remote {}  p99 {}  RSS {}",
            attack.name,
            goodput(|service| service.local_mbps),
            goodput(|service| service.remote_mbps),
            three(|service| service.command_p99_ms),
            three(|service| service.rss_mib),
        )
    }
}
