//! `weir link` as a process: forwarding, counters and errors.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Upper bound of the time that any step needs.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

struct Link {
    child: Child,
    a: SocketAddr,
    b: SocketAddr,
}

impl Link {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["link", "--a", "127.0.0.1:0", "--b", "127.0.0.1:0"]).args(arguments);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("weir");
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let ports: Vec<SocketAddr> =
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [a, b] = ports[..] else { panic!("not ready: {line}") };
        Self { child, a, b }
    }

    fn stop(mut self, signal: Signal) -> String {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
        let mut text = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success(), "{text}");
        text
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    socket
}

#[test]
fn forwards_and_counts_both_directions() {
    let (near, far) = (socket(), socket());
    let peer = far.local_addr().unwrap().to_string();
    let link = Link::start(&[
        "--peer-b",
        &peer,
        "--rate",
        "40Mbit",
        "--delay",
        "2ms",
        "--b-to-a-loss",
        "100%",
        "--json",
        "--seed",
        "9",
    ]);
    let mut octets = [0; 2_000];
    for number in 0..20u8 {
        near.send_to(&[number; 1_000], link.a).unwrap();
        assert_eq!(far.recv_from(&mut octets).unwrap(), (1_000, link.b));
        assert_eq!(octets[..1_000], [number; 1_000]);
    }
    far.send_to(b"lost", link.b).unwrap();
    // A later datagram in the other direction proves that the emulator has run since.
    for _ in 0..2 {
        near.send_to(b"after", link.a).unwrap();
        assert_eq!(far.recv_from(&mut octets).unwrap().0, 5);
    }
    let text = link.stop(Signal::SIGTERM);
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["a_to_b"]["sent_frames"], 22);
    assert_eq!(report["a_to_b"]["sent_bytes"], 20_010);
    assert_eq!(report["b_to_a"]["dropped_loss"], 1);
    assert_eq!(report["b_to_a"]["sent_frames"], 0);
    assert_eq!(report["seed"], 9);
    assert_eq!(report["link"]["a_to_b"]["rate_bps"], 40_000_000);
    assert!(report["a_to_b"]["lateness"]["p99_ns"].as_u64().unwrap() > 0);
    assert!(report["duration_ns"].as_u64().unwrap() >= 40_000_000);
}

#[test]
fn prints_a_table_on_interrupt() {
    let text = Link::start(&["--loss", "1%"]).stop(Signal::SIGINT);
    for words in ["A TO B", "datagrams sent", "lateness, 99 %", "seed 1"] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn refuses_impossible_links_with_advice() {
    for (arguments, needle) in [
        (&["link", "--a", "127.0.0.1:0"][..], "--b 127.0.0.1:7002"),
        (&["link", "--a", "127.0.0.1:0", "--b", "127.0.0.1:0", "--rate", "1"], "1Mbit/s"),
        (&["link", "--a", "127.0.0.1:0", "--b", "127.0.0.1:0", "--peer-a", "[::1]:5"], "IPv6"),
        (&["link", "--config", "/nowhere/link.toml"], "/nowhere/link.toml"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(needle), "{error}");
    }
}
