//! The link emulator: what it is asked for and what it does.
//!
//! `cargo run --release -p weir-benches --bin link_emulator` starts the emulator on a thread of its
//! own, sends through it from another and receives on a third, all in this process. For each link:
//!
//! - **rate**: offered 1.3 times what the link carries; the rate at which octets arrive, without
//!   the first and the last tenth;
//! - **delay error**: offered half of it; time of arrival, as the receiving socket stamped it, less
//!   the time at which the link model says that a datagram sent then arrives.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Clock, SystemTime};

use clap::Parser;
use serde_json::{Value, json};
use weir_base::units::{Rate, Time};
use weir_base::{Instant, Packet, Pool};
use weir_face::{UdpOptions, UdpPort};
use weir_harness::emulator::{Emulator, EmulatorConfig, EmulatorStats, UdpEnds};
use weir_netem::{LinkConfig, LinkModel, Loss, Transit};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Frames sent at once, at most: pacing each of them would need more processor than there is.
const BURST_FRAMES: usize = 16;
const SEED: u64 = 1;
/// Queue of the link in time at its rate, longer than a sender that gets no processor is silent.
const QUEUE_S: f64 = 0.1;

#[derive(Parser)]
struct Args {
    /// Rates of the link.
    #[arg(long, value_delimiter = ',', default_value = "40Mbit,1Gbit")]
    rates: Vec<Rate>,
    /// Octets in a datagram.
    #[arg(long, value_delimiter = ',', default_value = "1400,8000")]
    sizes: Vec<usize>,
    /// Delay of the link.
    #[arg(long, default_value = "10ms")]
    delay: Time,
    /// Loss of the link in the run for delay, in percent.
    #[arg(long, default_value_t = 1.0)]
    loss_percent: f64,
    /// Time that the emulator spins before a frame is due.
    #[arg(long, value_delimiter = ',', default_value = "0us,20us")]
    spins: Vec<Time>,
    /// Length of each run.
    #[arg(long, default_value = "3s")]
    time: Time,
    /// Prints one JSON object a row.
    #[arg(long)]
    json: bool,
}

/// One datagram as it was sent or received: its number and when.
#[derive(Copy, Clone)]
struct Stamp {
    number: u32,
    unix_ns: u64,
}

struct Exchange {
    sent: Vec<Stamp>,
    arrived: Vec<Stamp>,
    /// Datagrams that the receiver of this program lost, not the emulator.
    lost_at_receiver: u64,
    stats: EmulatorStats,
}

impl Exchange {
    /// Datagrams lost in a receive buffer, the emulator's or this program's, because its thread got
    /// no processor.
    fn unseen(&self) -> u64 {
        self.stats.a_to_b.dropped_socket + self.lost_at_receiver
    }
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

fn options() -> UdpOptions {
    UdpOptions { receive_buffer_bytes: 16 << 20, timestamps: true, ..UdpOptions::default() }
}

/// Sends `len` octets at `rate_bps` for `time`, in bursts of `burst` frames.
fn send(to: SocketAddr, len: usize, rate_bps: f64, time: Duration, burst: usize) -> Vec<Stamp> {
    let mut port = UdpPort::bind(ANY, &options()).expect("bind");
    let gap_ns = len as f64 * 8e9 / rate_bps;
    let count = (time.as_nanos() as f64 / gap_ns) as u32;
    let mut sent = Vec::with_capacity(count as usize);
    let mut pool = Pool::new(1 << 20);
    let mut frames: Vec<Packet> = Vec::with_capacity(burst);
    let start = Clock::now();
    let _ = nix::sys::prctl::set_timerslack(1);
    for first in (0..count).step_by(burst) {
        let due = Duration::from_nanos((f64::from(first) * gap_ns) as u64);
        if let Some(wait) = due.checked_sub(start.elapsed()) {
            std::thread::sleep(wait);
        }
        let numbers = first..count.min(first + burst as u32);
        frames.clear();
        for number in numbers.clone() {
            let mut block = pool.alloc(len);
            block[..len].fill(0xa5);
            block[..4].copy_from_slice(&number.to_be_bytes());
            frames.push(block.freeze(len));
        }
        let unix_ns = unix_ns();
        let done = port.send_frames(to.into(), &frames).expect("send").done;
        sent.extend(numbers.take(done).map(|number| Stamp { number, unix_ns }));
    }
    sent
}

fn receive(port: &mut UdpPort, is_done: &AtomicBool, capacity: usize) -> Vec<Stamp> {
    let mut pool = Pool::new(16 << 20);
    let mut arrived = Vec::with_capacity(capacity);
    let mut datagrams = Vec::new();
    while !is_done.load(Ordering::Relaxed) {
        port.recv(&mut pool, &mut datagrams).expect("recv");
        if datagrams.is_empty() {
            // Arrival is stamped by the system, so that this sleep delays nothing that is measured.
            std::thread::sleep(Duration::from_millis(1));
        }
        for datagram in datagrams.drain(..) {
            let number = u32::from_be_bytes(datagram.frame[..4].try_into().expect("4 octets"));
            let unix_ns = datagram.taken_in_unix_ns.unwrap_or_else(unix_ns);
            arrived.push(Stamp { number, unix_ns });
        }
    }
    arrived
}

/// Sends datagrams of `len` octets at `offered_bps` through an emulator of its own.
fn exchange(link: &LinkConfig, spin_ns: u64, len: usize, offered_bps: f64, time: Time) -> Exchange {
    // About 100 us apart, so that sleeping between them is possible.
    let burst = ((offered_bps * 1e-4 / 8.0 / len as f64) as usize).clamp(1, BURST_FRAMES);
    let mut far = UdpPort::bind(ANY, &options()).expect("bind");
    let ends = UdpEnds { peer_b: Some(far.local_addr()), ..UdpEnds::new(ANY, ANY) };
    let mut config = EmulatorConfig::symmetric(link.clone());
    config.spin_ns = spin_ns;
    config.seed = SEED;
    let emulator = Emulator::bind(ends, config).expect("bind");
    let to = emulator.local_a();
    let (stop, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
    let time = Duration::from_nanos(time.ns);
    let capacity = (offered_bps * time.as_secs_f64() / 8.0 / len as f64) as usize + 1024;
    std::thread::scope(|scope| {
        let emulating = scope.spawn(|| emulator.run(&stop).expect("run"));
        let receiving = scope.spawn(|| {
            let arrived = receive(&mut far, &is_done, capacity);
            (arrived, far.counters().receive_overflows)
        });
        let sent = send(to, len, offered_bps, time, burst);
        // Until the queue has gone and the latest frame has come.
        let rest = Duration::from_nanos(link.delay_ns) + Duration::from_secs_f64(QUEUE_S);
        std::thread::sleep(rest + Duration::from_millis(200));
        stop.store(true, Ordering::Relaxed);
        let stats = emulating.join().expect("emulator");
        is_done.store(true, Ordering::Relaxed);
        let (arrived, lost_at_receiver) = receiving.join().expect("receiver");
        Exchange { sent, arrived, lost_at_receiver, stats }
    })
}

/// Octets a second between the first and the last tenth, in bits.
fn rate_bps(arrived: &[Stamp], len: usize) -> f64 {
    let tenth = arrived.len() / 10;
    let middle = &arrived[tenth..arrived.len() - tenth];
    let (Some(first), Some(last)) = (middle.first(), middle.last()) else { return 0.0 };
    let seconds = (last.unix_ns - first.unix_ns) as f64 / 1e9;
    (middle.len() - 1) as f64 * len as f64 * 8.0 / seconds
}

/// Arrival less what the model says, in nanoseconds, sorted.
fn delay_errors(link: &LinkConfig, len: usize, exchange: &Exchange) -> Vec<i64> {
    let mut model = LinkModel::new(link.clone(), SEED);
    let mut arrived = exchange.arrived.iter().peekable();
    let mut errors = Vec::with_capacity(exchange.arrived.len());
    for sent in &exchange.sent {
        let transit = model.send(Instant::from_ns(sent.unix_ns), len as u32);
        if let Some(arrival) = arrived.next_if(|arrival| arrival.number == sent.number)
            && let Transit::Arrives(expected) = transit
        {
            errors.push(arrival.unix_ns as i64 - expected.as_ns() as i64);
        }
    }
    errors.sort_unstable();
    errors
}

fn quantile_us(sorted: &[i64], share: f64) -> f64 {
    match sorted.len() {
        0 => f64::NAN,
        len => sorted[((len - 1) as f64 * share).round() as usize] as f64 / 1e3,
    }
}

fn measure(rate: Rate, len: usize, spin: Time, args: &Args) -> Value {
    let full = LinkConfig {
        rate_bps: Some(rate.bps),
        delay_ns: args.delay.ns,
        queue_bytes_max: (rate.bps as f64 / 8.0 * QUEUE_S) as u64,
        queue_packets_max: u32::MAX,
        ..LinkConfig::default()
    };
    let lossy = LinkConfig {
        loss: Loss::Independent { probability: args.loss_percent / 100.0 },
        ..full.clone()
    };
    let flood = exchange(&full, spin.ns, len, rate.bps as f64 * 1.3, args.time);
    let paced = exchange(&lossy, spin.ns, len, rate.bps as f64 * 0.5, args.time);
    let measured_bps = rate_bps(&flood.arrived, len);
    let errors = delay_errors(&lossy, len, &paced);
    let late = &paced.stats.a_to_b.lateness;
    let core = |stats: &EmulatorStats| 100.0 * stats.processor_ns as f64 / stats.duration_ns as f64;
    let a_to_b = &paced.stats.a_to_b;
    json!({
        "rate": rate.to_string(), "size": len, "spin_us": spin.ns as f64 / 1e3,
        "rate_percent": 100.0 * measured_bps / rate.bps as f64,
        "offered_percent": 100.0 * flood.stats.a_to_b.received_bytes as f64 * 8.0
            / (args.time.ns as f64 / 1e9) / rate.bps as f64,
        "flood_core_percent": core(&flood.stats),
        "error_p1_us": quantile_us(&errors, 0.01),
        "error_p50_us": quantile_us(&errors, 0.5),
        "error_p90_us": quantile_us(&errors, 0.9),
        "error_p99_us": quantile_us(&errors, 0.99),
        "late_p50_us": late.p50_ns as f64 / 1e3, "late_p99_us": late.p99_ns as f64 / 1e3,
        "loss_percent": 100.0 * a_to_b.dropped_loss as f64 / a_to_b.received_frames.max(1) as f64,
        "paced_core_percent": core(&paced.stats),
        "unseen": flood.unseen() + paced.unseen(),
    })
}

/// Heading, key and decimals of the columns of numbers.
const COLUMNS: [(&str, &str, usize); 13] = [
    ("spin us", "spin_us", 0),
    ("rate %", "rate_percent", 2),
    ("offer %", "offered_percent", 0),
    ("core %", "flood_core_percent", 0),
    ("err p1", "error_p1_us", 1),
    ("err p50", "error_p50_us", 1),
    ("err p90", "error_p90_us", 1),
    ("err p99", "error_p99_us", 1),
    ("late p50", "late_p50_us", 1),
    ("late p99", "late_p99_us", 1),
    ("loss %", "loss_percent", 3),
    ("core %", "paced_core_percent", 0),
    ("unseen", "unseen", 0),
];

fn main() {
    let args = Args::parse();
    if !args.json {
        println!("Errors and lateness in us. `unseen`: lost in sockets, 0 in a good run.");
        print!("{:>9} {:>6}", "rate", "octets");
        for (heading, _, _) in COLUMNS {
            print!(" {heading:>8}");
        }
        println!();
    }
    for &rate in &args.rates {
        for &len in &args.sizes {
            for &spin in &args.spins {
                let row = measure(rate, len, spin, &args);
                if args.json {
                    println!("{row}");
                    continue;
                }
                print!("{:>9} {len:>6}", rate.to_string());
                for (_, key, decimals) in COLUMNS {
                    print!(" {:>8.decimals$}", row[key].as_f64().unwrap_or(f64::NAN));
                }
                println!();
            }
        }
    }
}
