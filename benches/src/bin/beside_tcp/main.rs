//! NDN's transfers beside TCP of the kernel, over one emulated bottleneck.
//!
//! `cargo run --release -p weir-benches --bin beside_tcp` makes two hosts, network namespaces of
//! its own, and joins their TUN devices by the link emulator: IP packets of UDP and of TCP wait in
//! one queue. At the server run `weir router`, `weir put` and senders of TCP, at the client
//! `weir get` and receivers of TCP. Two transfers go the same way, the second a while after the
//! first; what each of them gets of the link is counted where the packets leave it, in octets of IP
//! packets.
//!
//! A run in which the emulator was late, or lost packets that it should have seen, is not judged.

mod bottleneck;
mod host;
mod transfer;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Parser;
use serde_json::{Value, json};
use weir_base::units::{Rate, Time};
use weir_harness::emulator::{Emulator, EmulatorConfig, EmulatorStats};
use weir_netem::LinkConfig;
use weir_tests::{Site, weir_binary};

use crate::bottleneck::Bottleneck;
use crate::host::{Host, MTU};
use crate::transfer::{CLIENT, Kind, Offer, Producer, SERVER, Transfer};

/// A hundredth of the frames may leave this share of the link's delay late, and no more.
const LATE_SHARE_MAX: f64 = 0.1;
/// Exit status where the system lets nobody make hosts.
const EXIT_NOT_ALLOWED: i32 = 3;

#[derive(Parser, Clone)]
struct Args {
    /// Values of `weir get --pipeline`. What begins with chopcop gets a router that marks by REM.
    #[arg(long, value_delimiter = ',', default_value = "weir,cubic,chopcop,aimd")]
    pipelines: Vec<String>,
    /// Congestion controls of the kernel, as net.ipv4.tcp_available_congestion_control lists them.
    #[arg(long, value_delimiter = ',', default_value = "cubic,bbr")]
    tcp: Vec<String>,
    /// Octets that may wait, in products of the link's rate and its delay there and back.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    buffers: Vec<f64>,
    /// Rate of the link.
    #[arg(long, default_value = "40Mbit")]
    rate: Rate,
    /// Delay of the link, each way.
    #[arg(long, default_value = "20ms")]
    delay: Time,
    /// How much later the second transfer starts.
    #[arg(long, default_value = "2s")]
    offset: Time,
    /// Time from the start of the second transfer that is not measured.
    #[arg(long, default_value = "6s")]
    warm_up: Time,
    /// Time that is measured.
    #[arg(long, default_value = "10s")]
    time: Time,
    /// Runs of each pair; medians of those that can be judged are told.
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
    /// Runs at once, each on a link of its own.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Octets of content in a segment: by default a Data fits one packet.
    #[arg(long, default_value_t = 1200)]
    segment_size: usize,
    /// A minute: `weir` alone, one run of each pair, 2 s measured after 2 s.
    #[arg(long)]
    quick: bool,
    /// Prints one JSON object with all runs.
    #[arg(long)]
    json: bool,
}

/// Two transfers and the buffer that they share.
#[derive(Clone, Debug)]
struct Pair {
    buffer: f64,
    kinds: [Kind; 2],
}

/// What one run showed.
struct Measured {
    mbps: [f64; 2],
    /// Share of the packets offered that was dropped.
    dropped: [f64; 2],
    queue_bytes: f64,
    late_p99_ns: u64,
    late_max_ns: u64,
    /// Packets lost before the emulator saw them.
    unseen: u64,
    is_judged: bool,
}

/// Two hosts, and what serves NDN at one of them.
struct Laboratory {
    server: Host,
    client: Host,
    site: Site,
    plain: Producer,
    /// For pipelines that need its marks, if there are any.
    rem: Option<Producer>,
}

fn main() -> anyhow::Result<()> {
    let mut args = Args::parse();
    if args.quick {
        args.pipelines = vec!["weir".into()];
        (args.warm_up.ns, args.time.ns) = (2_000_000_000, 2_000_000_000);
        (args.buffers, args.repetitions) = (vec![1.0], 1);
    }
    ensure!(args.repetitions > 0 && args.jobs > 0, "--repetitions and --jobs are at least 1");
    // Built outside of the namespaces, if it has to be.
    weir_binary();
    let allowed = host::become_root_of_a_user_namespace().and_then(|()| {
        std::thread::scope(|scope| {
            let trial = scope.spawn(|| Host::new(SERVER, CLIENT).map(drop));
            trial.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?
        })
    });
    if let Err(error) = allowed {
        eprintln!("{error:#}\n{}", host::HELP);
        std::process::exit(EXIT_NOT_ALLOWED);
    }
    let pairs = pairs(&args);
    let runs = measure_all(&args, &pairs)?;
    if args.json {
        println!("{}", report(&args, &pairs, &runs));
    } else {
        print_table(&args, &pairs, &runs);
    }
    Ok(())
}

/// Each pipeline alone and beside each TCP in both orders, and each TCP alone and beside each, for
/// every buffer.
fn pairs(args: &Args) -> Vec<Pair> {
    let tcp: Vec<Kind> = args.tcp.iter().cloned().map(Kind::Tcp).collect();
    let ndn: Vec<Kind> = args.pipelines.iter().cloned().map(Kind::Ndn).collect();
    let alone = |kind: &Kind| [kind.clone(), Kind::Nothing];
    let mut kinds: Vec<[Kind; 2]> = ndn.iter().chain(&tcp).map(alone).collect();
    for pipeline in ndn {
        for tcp in &tcp {
            kinds.push([pipeline.clone(), tcp.clone()]);
            kinds.push([tcp.clone(), pipeline.clone()]);
        }
    }
    kinds.extend(tcp.iter().flat_map(|a| tcp.iter().map(|b| [a.clone(), b.clone()])));
    let of_buffer = |&buffer| kinds.iter().cloned().map(move |kinds| Pair { buffer, kinds });
    args.buffers.iter().flat_map(of_buffer).collect()
}

/// All runs of each pair; repetitions go round, so that what the machine does meanwhile meets all.
fn measure_all(args: &Args, pairs: &[Pair]) -> anyhow::Result<Vec<Vec<Measured>>> {
    let next = AtomicUsize::new(0);
    let total = pairs.len() * args.repetitions;
    let runs: Vec<Mutex<Vec<Measured>>> = pairs.iter().map(|_| Mutex::default()).collect();
    let work = || -> anyhow::Result<()> {
        let laboratory = Laboratory::new(args)?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= total {
                return Ok(());
            }
            let pair = &pairs[number % pairs.len()];
            let [first, second] = &pair.kinds;
            let measured = laboratory
                .measure(args, pair)
                .with_context(|| format!("{first}, then {second}, buffer {}", pair.buffer))?;
            let [a, b] = measured.mbps;
            let late = if measured.is_judged { "" } else { ", late: not judged" };
            eprintln!(
                "{} of {total}: {first}, then {second}, buffer {}: {a:.1}, {b:.1} Mbit/s{late}",
                number + 1,
                pair.buffer
            );
            runs[number % pairs.len()].lock().expect("results").push(measured);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..args.jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            let failed = |_| {
                next.store(total, Ordering::Relaxed);
                anyhow::anyhow!("a worker panicked")
            };
            worker.join().map_err(failed)?
        })
    })?;
    Ok(runs.into_iter().map(|runs| runs.into_inner().expect("results")).collect())
}

impl Laboratory {
    /// Hosts of the calling thread, which ends up in one of them.
    fn new(args: &Args) -> anyhow::Result<Self> {
        let server = Host::new(SERVER, CLIENT)?;
        let client = Host::new(CLIENT, SERVER)?;
        let site = Site::new();
        let run_ns = args.offset.ns + args.warm_up.ns + args.time.ns;
        let bdp_bytes = bdp_bytes(args);
        let mut offer = Offer {
            segment_size: args.segment_size,
            // More than the link carries in a run, even if this machine stalls for seconds.
            file_bytes: (args.rate.bps as f64 / 8e9 * (run_ns as f64 + 10e9)) as u64,
            marking: "nfd".into(),
        };
        let plain = Producer::start(&server, &site, 0, &offer)?;
        offer.marking = format!("rem q_min={} q_max={}", bdp_bytes / 10, bdp_bytes * 3 / 10);
        let rem = match args.pipelines.iter().any(|pipeline| is_marked(pipeline)) {
            true => Some(Producer::start(&server, &site, 1, &offer)?),
            false => None,
        };
        Ok(Self { server, client, site, plain, rem })
    }

    fn start(&self, kind: &Kind, index: usize) -> anyhow::Result<Transfer> {
        match kind {
            Kind::Nothing => Ok(Transfer::Nothing),
            Kind::Tcp(control) => Transfer::tcp(&self.server, &self.client, control, index),
            Kind::Ndn(pipeline) => {
                let rem = self.rem.as_ref().filter(|_| is_marked(pipeline));
                let producer = rem.unwrap_or(&self.plain);
                Transfer::get(&self.client, &self.site, producer, pipeline)
            }
        }
    }

    fn measure(&self, args: &Args, pair: &Pair) -> anyhow::Result<Measured> {
        let link = LinkConfig {
            rate_bps: Some(args.rate.bps),
            delay_ns: args.delay.ns,
            queue_bytes_max: (bdp_bytes(args) as f64 * pair.buffer) as u64,
            queue_packets_max: u32::MAX,
            ..LinkConfig::default()
        };
        let from_ns = args.offset.ns + args.warm_up.ns;
        let window_ns = from_ns..from_ns + args.time.ns;
        let over_udp = pair.kinds.iter().position(|kind| matches!(kind, Kind::Ndn(_)));
        let bottleneck = Bottleneck::new(&link, window_ns.clone(), over_udp);
        let bottleneck = Arc::new(Mutex::new(bottleneck));
        let config = EmulatorConfig::symmetric(link);
        let mut emulator = Emulator::between(self.server.device()?, self.client.device()?, config)?;
        let its_bottleneck = Arc::clone(&bottleneck);
        emulator.watch_a_to_b(move |offered| {
            its_bottleneck.lock().expect("the emulator alone").see(offered);
        });
        let device_drops = || anyhow::Ok(self.server.device_drops()? + self.client.device_drops()?);
        let drops_before = device_drops()?;
        let stop = AtomicBool::new(false);
        let stats = std::thread::scope(|scope| {
            let emulating = scope.spawn(|| emulator.run(&stop));
            let result = self.transfer_both(args, pair, window_ns.end);
            stop.store(true, Ordering::Relaxed);
            let stats =
                emulating.join().map_err(|_| anyhow::anyhow!("the emulator panicked"))??;
            result.map(|()| stats)
        })?;
        let unseen = device_drops()? - drops_before;
        let bottleneck = bottleneck.lock().expect("the emulator has ended").clone();
        judge(args, &bottleneck, &stats, unseen)
    }

    fn transfer_both(&self, args: &Args, pair: &Pair, end_ns: u64) -> anyhow::Result<()> {
        let start = Instant::now();
        let sleep_until = |ns| {
            std::thread::sleep(Duration::from_nanos(ns).saturating_sub(start.elapsed()));
        };
        let mut first = self.start(&pair.kinds[0], 0)?;
        sleep_until(args.offset.ns);
        let mut second = self.start(&pair.kinds[1], 1)?;
        sleep_until(end_ns + args.delay.ns);
        first.ensure_running()?;
        second.ensure_running()?;
        drop((first, second));
        // What they left on the link is not for the next run.
        sleep_until(end_ns + 10 * args.delay.ns);
        Ok(())
    }
}

/// Whether this pipeline is meant for routers that mark by REM.
fn is_marked(pipeline: &str) -> bool {
    pipeline.starts_with("chopcop")
}

/// Octets on their way when the link is full and nothing waits.
fn bdp_bytes(args: &Args) -> u64 {
    (args.rate.bps as f64 * 2.0 * args.delay.ns as f64 / 8e9) as u64
}

fn judge(
    args: &Args,
    bottleneck: &Bottleneck,
    stats: &EmulatorStats,
    unseen: u64,
) -> anyhow::Result<Measured> {
    let longest = bottleneck.packet_bytes_max;
    ensure!(
        longest <= usize::from(MTU),
        "a packet of {longest} octets came out of a device whose MTU is {MTU}: the system did not \
         cut what TCP handed over"
    );
    let lateness = [stats.a_to_b.lateness, stats.b_to_a.lateness];
    let late_p99_ns = lateness.iter().map(|lateness| lateness.p99_ns).max().unwrap_or(0);
    let late_max_ns = lateness.iter().map(|lateness| lateness.max_ns).max().unwrap_or(0);
    let is_late = late_p99_ns as f64 > args.delay.ns as f64 * LATE_SHARE_MAX;
    let window_s = args.time.ns as f64 / 1e9;
    let transfers = &bottleneck.transfers;
    Ok(Measured {
        mbps: transfers.map(|transfer| transfer.delivered_bytes as f64 * 8e-6 / window_s),
        dropped: transfers.map(|transfer| transfer.dropped as f64 / transfer.offered.max(1) as f64),
        queue_bytes: bottleneck.queue_bytes(),
        late_p99_ns,
        late_max_ns,
        unseen,
        is_judged: !is_late && unseen == 0,
    })
}

/// The median over the runs that can be judged.
fn median(runs: &[Measured], value: impl Fn(&Measured) -> f64) -> Option<f64> {
    let mut values: Vec<f64> = runs.iter().filter(|run| run.is_judged).map(value).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len().checked_sub(1)? / 2;
    Some(f64::midpoint(values[middle], values[values.len() / 2]))
}

fn print_table(args: &Args, pairs: &[Pair], runs: &[Vec<Measured>]) {
    println!(
        "{:.3} Mbit/s, {:.1} ms each way; IP packets, of which TCP and UDP, Mbit/s; medians; the \
         second starts {:.1} s later",
        args.rate.bps as f64 / 1e6,
        args.delay.ns as f64 / 1e6,
        args.offset.ns as f64 / 1e9
    );
    println!(
        "{:>6}  {:12}{:12}{:>7}{:>8}{:>10}{:>12}{:>14}",
        "BUFFER", "FIRST", "SECOND", "FIRST", "SECOND", "QUEUE KB", "LATE 99% US", "RUNS JUDGED"
    );
    for (pair, runs) in pairs.iter().zip(runs) {
        let figure = |value: &dyn Fn(&Measured) -> f64| {
            median(runs, value).map_or_else(|| "-".into(), |value| format!("{value:.1}"))
        };
        let late_us = runs.iter().map(|run| run.late_p99_ns / 1000).max().unwrap_or(0);
        println!(
            "{:>6}  {:12}{:12}{:>7}{:>8}{:>10}{:>12}{:>14}",
            pair.buffer,
            pair.kinds[0].to_string(),
            pair.kinds[1].to_string(),
            figure(&|run| run.mbps[0]),
            figure(&|run| run.mbps[1]),
            figure(&|run| run.queue_bytes / 1e3),
            late_us,
            format!("{} of {}", runs.iter().filter(|run| run.is_judged).count(), runs.len())
        );
    }
}

fn report(args: &Args, pairs: &[Pair], runs: &[Vec<Measured>]) -> Value {
    let rows: Vec<Value> = pairs
        .iter()
        .zip(runs)
        .map(|(pair, runs)| {
            let all: Vec<Value> = runs.iter().map(run_json).collect();
            json!({
                "buffer": pair.buffer,
                "first": pair.kinds[0].to_string(),
                "second": pair.kinds[1].to_string(),
                "first_mbps": median(runs, |run| run.mbps[0]),
                "second_mbps": median(runs, |run| run.mbps[1]),
                "queue_bytes": median(runs, |run| run.queue_bytes),
                "runs": all,
            })
        })
        .collect();
    json!({
        "rate_bps": args.rate.bps,
        "delay_ns": args.delay.ns,
        "offset_ns": args.offset.ns,
        "warm_up_ns": args.warm_up.ns,
        "time_ns": args.time.ns,
        "segment_size": args.segment_size,
        "pairs": rows,
    })
}

fn run_json(run: &Measured) -> Value {
    json!({
        "is_judged": run.is_judged,
        "mbps": run.mbps,
        "dropped": run.dropped,
        "queue_bytes": run.queue_bytes,
        "late_p99_ns": run.late_p99_ns,
        "late_max_ns": run.late_max_ns,
        "unseen_packets": run.unseen,
    })
}
