//! An attack on a controller: clients pipeline requests and never read, while an operator with a
//! token requests health and state, each over a new connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use weir_tests::Host;

use super::{COMMAND_LIMIT, COMMAND_PAUSE, peak_rss_mib};

/// The name of this attack.
pub(super) const NAME: &str = "controller-readers";
/// More than the controller accepts at one time.
const CONNECTIONS: usize = 5000;
const ATTACKERS: usize = 8;
/// Interval at which an attacker checks its connections.
const PAUSE: Duration = Duration::from_millis(250);
/// Time for the attack to occupy all connections before the measurement.
const LEAD: Duration = Duration::from_secs(25);

/// The service that an operator gets in some period.
struct Service {
    answered_percent: f64,
    p99_ms: f64,
    rss_mib: f64,
}

impl Service {
    fn json(&self) -> Value {
        json!({
            "answered_percent": self.answered_percent,
            "p99_ms": self.p99_ms,
            "rss_mib": self.rss_mib,
        })
    }
}

/// A controller, and an operator's token.
struct Trial {
    process: u32,
    address: SocketAddr,
    token: String,
}

/// Attacks a controller, and prints the operator's service.
pub(super) fn run(seconds: u64, as_json: bool) -> anyhow::Result<()> {
    let host = Host::new();
    let database = host.path("controller.db");
    let database = database.to_str().context("UTF-8")?;
    let weir =
        |words: &[&str]| host.spawn("", &[&["controller", "--database", database], words].concat());
    let add = weir(&["token", "add", "--role", "operator", "--name", "me"]);
    let token = add.finish().success().output.trim().to_owned();
    let address = format!("127.0.0.1:{}", host.free_port());
    let process = weir(&["--listen", &address, "--json"]);
    let _ = process.json_line();
    let trial = Trial { process: process.id(), address: address.parse()?, token };
    let before = trial.measure(Duration::from_secs(3))?;
    let stop = AtomicBool::new(false);
    let during = thread::scope(|scope| {
        let attackers: Vec<_> =
            (0..ATTACKERS).map(|_| scope.spawn(|| trial.attack(&stop))).collect();
        thread::sleep(LEAD);
        let during = trial.measure(Duration::from_secs(seconds));
        stop.store(true, Ordering::Relaxed);
        let is_well = attackers.into_iter().all(|attacker| attacker.join().is_ok());
        ensure!(is_well, "an attacker panicked");
        during
    })?;
    thread::sleep(Duration::from_secs(5));
    let after = trial.measure(Duration::from_secs(3))?;
    let all = [&before, &during, &after];
    if as_json {
        let [before, during, after] = all.map(Service::json);
        println!("{}", json!({"attack": NAME, "before": before, "during": during, "after": after}));
        return Ok(());
    }
    let three = |value: fn(&Service) -> f64| {
        let values = all.map(value);
        format!("{:6.1} {:6.1} {:6.1}", values[0], values[1], values[2])
    };
    println!(
        "{NAME:16} answered {} %  p99 {}  RSS {}",
        three(|service| service.answered_percent),
        three(|service| service.p99_ms),
        three(|service| service.rss_mib),
    );
    Ok(())
}

impl Trial {
    fn measure(&self, span: Duration) -> anyhow::Result<Service> {
        let (stop, begun) = (AtomicBool::new(false), Instant::now());
        thread::scope(|scope| {
            let memory = scope.spawn(|| peak_rss_mib(self.process, &stop));
            let (mut times, mut answered) = (Vec::new(), 0_usize);
            while begun.elapsed() < span {
                for path in ["/health", "/v1/state"] {
                    let asked = Instant::now();
                    let is_answered = self.send_request(path).is_ok();
                    times.push(if is_answered { asked.elapsed() } else { COMMAND_LIMIT });
                    answered += usize::from(is_answered);
                }
                thread::sleep(COMMAND_PAUSE);
            }
            stop.store(true, Ordering::Relaxed);
            times.sort_unstable();
            Ok(Service {
                answered_percent: answered as f64 * 100.0 / times.len() as f64,
                p99_ms: times[times.len() * 99 / 100].as_secs_f64() * 1e3,
                rss_mib: memory.join().expect("the reader does not panic")?,
            })
        })
    }

    fn send_request(&self, path: &str) -> io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&self.address, COMMAND_LIMIT)?;
        stream.set_read_timeout(Some(COMMAND_LIMIT))?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: c\r\nConnection: close\r\n\
             Authorization: Bearer {}\r\n\r\n",
            self.token
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let is_good = answer.starts_with(b"HTTP/1.1 200");
        is_good.then_some(()).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// A connection with a small receive buffer, so that answers wait in the controller.
    fn connect_with_small_buffer(&self) -> anyhow::Result<TcpStream> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.set_recv_buffer_size(4096)?;
        socket.connect(&self.address.into())?;
        Ok(socket.into())
    }

    /// Keeps as many connections as possible, requests large answers on each and reads nothing.
    /// Replaces closed connections.
    fn attack(&self, stop: &AtomicBool) {
        let one = b"GET /dashboard.js HTTP/1.1\r\nHost: c\r\n\r\n";
        let many = one.repeat(500);
        let mut held: Vec<TcpStream> = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            // Keep connections whose send buffer is full. Remove closed ones.
            held.retain_mut(|stream| match stream.write(one) {
                Ok(_) => true,
                Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            });
            while held.len() < CONNECTIONS / ATTACKERS && !stop.load(Ordering::Relaxed) {
                let Ok(mut stream) = self.connect_with_small_buffer() else { break };
                if stream.set_nonblocking(true).is_err() {
                    break;
                }
                let _ = stream.write(&many);
                held.push(stream);
            }
            thread::sleep(PAUSE);
        }
    }
}
