//! Measures how a real router scales: Data per second by number of worker threads.
//!
//! `cargo run --release -p weir-benches --bin cores -- --threads 1,2,4,8` builds the program and
//! starts a router for each number of threads. Consumers request Data over real sockets. Each has
//! its own socket, thread and window, and all names share one prefix:
//!
//! - `warm`: Data in the router's memory
//! - `forwarded`: new Data from producers on Unix sockets
//! - `disk`: Data on two disks (files in `--folder`), at random
//!
//! The results are medians over rounds, in which all conditions take turns: Data per second and the
//! ratio to the first number of threads; the router's processor time for each Data; the load of its
//! busiest and idlest worker thread; and the mean load of the consumers. If worker threads are not
//! busy, something else is the limit. The same run measures two limits. With `--apart`, as many
//! routers with one worker thread each share the consumers and producers: that is linear scaling on
//! this machine. In `kernel`, as many pairs of threads only move such bytes through Unix sockets.
//!
//! It needs about as many additional idle processors as there are worker threads.

mod args;
mod host;
mod load;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant as Clock};

use anyhow::{Context, ensure};
use clap::Parser as _;
use serde_json::json;
use weir_base::Rng;
use weir_benches::{NAMES_PER_PARENT, data, median, threads_ns};
use weir_face::Socket;

use args::{Args, Condition, Faces, Mode, label};
use host::{Host, Part};
use load::{End, Interests, Names, Shared, StopWhenDropped, consume, produce};

/// The result of one measurement.
#[derive(Clone, Copy, Default)]
struct Measured {
    data_per_s: f64,
    /// Processor time of all router threads for each Data, in us.
    router_us: f64,
    /// Fraction of time that worker threads ran: the busiest and the idlest.
    busiest: f64,
    idlest: f64,
    /// Mean fraction of time that consumers ran.
    consumers: f64,
    /// Number of Interests that got a Nack or no answer.
    lost: f64,
}

/// How long consumers run before the measurement starts.
const WARM_UP: Duration = Duration::from_millis(300);
/// Number of objects that a consumer of `forwarded` may request.
const OBJECTS_PER_CONSUMER: u64 = 1 << 20;
fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    args.check()?;
    weir_face::raise_file_limit()?;
    let mut conditions = Vec::new();
    for &payload in &args.payload {
        for &mode in &args.modes {
            // Without a router, the kind of face does not matter.
            let of_mode = if mode == Mode::Kernel { &[Faces::Unix] } else { &args.faces[..] };
            for &faces in of_mode {
                let together = Condition { mode, faces, payload, is_apart: false };
                conditions.push(together);
                if args.apart && mode != Mode::Kernel {
                    conditions.push(Condition { is_apart: true, ..together });
                }
            }
        }
    }
    let runs = conditions.iter().flat_map(|&condition| {
        args.threads.iter().map(move |&threads| (condition, threads, Vec::new()))
    });
    let mut runs: Vec<(Condition, usize, Vec<Measured>)> = runs.collect();
    for _ in 0..args.rounds {
        for (condition, threads, measured) in &mut runs {
            measured.push(match condition.mode {
                Mode::Kernel => measure_kernel(&args, *threads, condition.payload)?,
                _ => measure(&args, *condition, *threads)?,
            });
        }
    }
    for of_condition in runs.chunks(args.threads.len()) {
        report(&args, of_condition);
    }
    Ok(())
}

fn report(args: &Args, runs: &[(Condition, usize, Vec<Measured>)]) {
    let middle = |measured: &[Measured], figure: fn(&Measured) -> f64| {
        median(measured.iter().map(figure).collect())
    };
    for (condition, threads, measured) in runs {
        let (mode, faces, payload) = (condition.title(), label(condition.faces), condition.payload);
        let rate = middle(measured, |it| it.data_per_s);
        // From the same round, so the machine's state is the same for both.
        let rounds = measured.iter().zip(&runs[0].2);
        let times = median(rounds.map(|(it, first)| it.data_per_s / first.data_per_s).collect());
        let router_us = middle(measured, |it| it.router_us);
        let [busiest, idlest, consumers, lost] = [
            middle(measured, |it| it.busiest),
            middle(measured, |it| it.idlest),
            middle(measured, |it| it.consumers),
            middle(measured, |it| it.lost),
        ];
        if args.json {
            let line = json!({
                "mode": mode, "faces": faces, "payload": payload, "threads": threads,
                "data_per_s": rate, "times": times, "router_us": router_us, "busiest": busiest,
                "idlest": idlest, "consumers": consumers, "lost": lost,
            });
            println!("{line}");
            continue;
        }
        print!(
            "{mode:15} {faces:4} {payload:5} bytes, {threads:2} threads {:6.3} M/s {times:5.2} \
             times",
            rate * 1e-6
        );
        match condition.mode {
            Mode::Kernel => println!(),
            _ => println!(
                ", router {router_us:5.2} us, busy {:3.0} to {:3.0} %, consumers {:3.0} %, lost \
                 {lost:.0}",
                idlest * 100.0,
                busiest * 100.0,
                consumers * 100.0
            ),
        }
    }
}

/// Pairs of threads that only move Data through Unix sockets.
fn measure_kernel(args: &Args, pairs: usize, payload: usize) -> anyhow::Result<Measured> {
    /// About as much as a router passes to the kernel at once.
    const AT_ONCE: usize = 32;
    let (moved, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let size = data(0, payload).len();
    std::thread::scope(|scope| {
        let stopping = StopWhenDropped(&stop);
        let mut threads = Vec::new();
        for _ in 0..pairs {
            let (mut near, mut far) = UnixStream::pair()?;
            let (moved, stop) = (&moved, &stop);
            threads.push(scope.spawn(move || {
                let octets = vec![1; size * AT_ONCE];
                while !stop.load(Ordering::Relaxed) && near.write_all(&octets).is_ok() {}
            }));
            threads.push(scope.spawn(move || {
                let mut octets = vec![0; 256 << 10];
                while let Ok(read @ 1..) = far.read(&mut octets) {
                    moved.fetch_add(read as u64, Ordering::Relaxed);
                }
            }));
        }
        std::thread::sleep(WARM_UP);
        let (began, before) = (Clock::now(), moved.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_secs_f64(args.seconds));
        let octets = moved.load(Ordering::Relaxed) - before;
        let data_per_s = octets as f64 / size as f64 / began.elapsed().as_secs_f64();
        drop(stopping);
        for thread in threads {
            thread.join().expect("no thread panics");
        }
        Ok(Measured { data_per_s, ..Measured::default() })
    })
}

/// Measures one number of threads under one condition, with new routers.
fn measure(args: &Args, condition: Condition, threads: usize) -> anyhow::Result<Measured> {
    let count = if condition.is_apart { threads } else { 1 };
    let part = Part {
        threads: threads / count,
        consumers: args.consumers() / count,
        producers: args.producers() / count,
        mebibytes: args.mebibytes / count,
    };
    let hosts: Vec<Host> =
        (0..count).map(|_| Host::start(args, condition, part)).collect::<anyhow::Result<_>>()?;
    let measured = if condition.mode == Mode::Forwarded {
        with_producers(&hosts, condition.payload, || run(args, condition, &hosts))?
    } else {
        let fill = || hosts.iter().try_for_each(|host| host.fill(condition));
        with_producers(&hosts, condition.payload, fill)?;
        // The producers have stopped, so all answers come from the router's store.
        let measured = run(args, condition, &hosts)?;
        let asked = measured.data_per_s * args.seconds + measured.lost;
        ensure!(measured.lost <= asked * 0.01, "{} Data were not there", measured.lost);
        measured
    };
    hosts.into_iter().for_each(Host::stop);
    Ok(measured)
}

/// Runs a function while the producers of all routers answer.
fn with_producers<T>(
    hosts: &[Host],
    payload: usize,
    what: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = StopWhenDropped(&is_over);
        let mut producing = Vec::new();
        for host in hosts {
            for producer in 0..host.part.producers {
                let mut end = End::new(Socket::of_pair(host.register(producer)?)?)?;
                let is_over = &is_over;
                producing.push(scope.spawn(move || produce(&mut end, payload, is_over)));
            }
        }
        let done = what()?;
        drop(stop);
        for producer in producing {
            producer.join().expect("no thread panics").context("a producer")?;
        }
        Ok(done)
    })
}

/// Runs the consumers and measures the routers meanwhile.
fn run(args: &Args, condition: Condition, hosts: &[Host]) -> anyhow::Result<Measured> {
    let shared = Shared::default();
    std::thread::scope(|scope| {
        let stop = StopWhenDropped(&shared.stop);
        let mut asking = Vec::new();
        for host in hosts {
            let (count, objects) = (host.part.consumers as u64, host.part.objects(condition));
            for consumer in 0..count {
                let names = match condition.mode {
                    Mode::Forwarded => Names::InOrder {
                        first: consumer * OBJECTS_PER_CONSUMER,
                        count: count * OBJECTS_PER_CONSUMER,
                    },
                    Mode::Disk => Names::AtRandom {
                        count: objects * NAMES_PER_PARENT,
                        rng: Rng::from_seed(consumer),
                    },
                    _ => Names::InOrder { first: consumer * objects / count, count: objects },
                };
                let mut interests = Interests::new(names, args.interleave);
                let mut end = End::connect(&host.uri(condition.faces))?;
                let shared = &shared;
                asking.push(scope.spawn(move || {
                    consume(&mut end, &mut interests, args.window, u64::MAX, shared)
                }));
            }
        }
        std::thread::sleep(WARM_UP);
        let before = Reading::now(&shared, hosts)?;
        std::thread::sleep(Duration::from_secs_f64(args.seconds));
        let after = Reading::now(&shared, hosts)?;
        drop(stop);
        let consumers = asking.len() as f64;
        for consumer in asking {
            consumer.join().expect("no thread panics").context("a consumer")?;
        }
        after.since(&before, consumers)
    })
}

/// Counters of consumers and routers at one time.
struct Reading {
    at: Clock,
    data: u64,
    lost: u64,
    consumers_ns: u64,
    /// Processor time of the routers' threads.
    threads: Vec<(String, u64)>,
}

impl Reading {
    fn now(shared: &Shared, hosts: &[Host]) -> anyhow::Result<Self> {
        let [data, lost, consumers_ns] = [&shared.data, &shared.lost, &shared.processor_ns]
            .map(|counter| counter.load(Ordering::Relaxed));
        let at = Clock::now();
        let mut threads = Vec::new();
        for host in hosts {
            threads.extend(threads_ns(host.router.process.id())?);
        }
        Ok(Self { at, data, lost, consumers_ns, threads })
    }

    fn since(&self, before: &Self, consumers: f64) -> anyhow::Result<Measured> {
        let took_ns = self.at.duration_since(before.at).as_nanos() as f64;
        let data = (self.data - before.data) as f64;
        ensure!(data > 0.0, "no Data came");
        let mut packet_threads = Vec::new();
        let mut router_ns = 0.0;
        for (name, ran_ns) in &self.threads {
            let earlier = before.threads.iter().find(|(before, _)| before == name);
            let ran_ns = (ran_ns - earlier.map_or(0, |(_, before)| *before)) as f64;
            router_ns += ran_ns;
            if name.starts_with("weir-packet") {
                packet_threads.push(ran_ns / took_ns);
            }
        }
        Ok(Measured {
            data_per_s: data / took_ns * 1e9,
            router_us: router_ns / data * 1e-3,
            busiest: packet_threads.iter().copied().fold(0.0, f64::max),
            idlest: packet_threads.iter().copied().fold(f64::MAX, f64::min),
            consumers: (self.consumers_ns - before.consumers_ns) as f64 / took_ns / consumers,
            lost: (self.lost - before.lost) as f64,
        })
    }
}
