//! Whether traffic that needs no disk notices what becomes of the disks.
//!
//! One router with two disks. Two kinds of traffic that need none: Interests that memory answers,
//! and Interests that a producer answers, over UDP. Each is measured twice a round: its p50 and p99
//! at a fixed rate, and its rate with a fixed number under way. Meanwhile the disks are idle, or
//! saturated by another consumer with as many Interests under way as `--depth`, or so and one of
//! them stalled. That consumer takes processor time of the router and of the machine whatever the
//! disks do. Therefore the condition to compare with is "as much from memory": disks idle, and the
//! other consumer served as many Data of the same size each second from memory. Conditions take
//! turns in one run; ratios are to that one within a round.
//!
//! `cargo build --release --features lab && WEIR_BIN=target/release/weir cargo run --release -p
//! weir-benches --bin beside_disk -- --folder FOLDER`

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Parser;
use serde_json::{Value, json};
use weir_base::Rng;
use weir_benches::median;
use weir_tests::{DiskStore, Router, Site};
use weir_wire::tlv;

#[derive(Parser)]
struct Args {
    /// Where the files of the disks are made; by default where temporary files are.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Data on disk, of 8,000 octets.
    #[arg(long, default_value_t = 60_000)]
    objects: u64,
    /// Interests under way of the consumer that saturates the disks.
    #[arg(long, default_value_t = 256)]
    depth: usize,
    /// Interests a second where latency is measured.
    #[arg(long, default_value_t = 4000)]
    rate: u64,
    /// How long each measurement takes, s.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// How long one disk is stalled before it is measured beside, s; with it measured all along.
    #[arg(long, default_value_t = 1.0)]
    stalled_before: f64,
    /// Rounds; medians are reported.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Operations a second to which each disk is paced, so that it takes no processor from the
    /// router on a machine with few; 0 does not pace.
    #[arg(long, default_value_t = 4700.0)]
    pace: f64,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Idle,
    Saturated,
    /// As many Data a second as the disks gave when they were saturated last.
    FromMemory,
    OneStalled,
}

const CONDITIONS: [(Condition, &str); 4] = [
    (Condition::Idle, "idle"),
    (Condition::Saturated, "saturated"),
    (Condition::FromMemory, "as much from memory"),
    (Condition::OneStalled, "one stalled"),
];
/// The place of what ratios are to.
const REFERENCE: usize = 2;
/// How long the other consumer waits after a Nack before it asks again: a stalled disk has what it
/// holds Nacked at once.
const NACK_PAUSE: Duration = Duration::from_millis(50);
const KINDS: [&str; 2] = ["memory", "forwarded"];
/// Data in memory: few enough to stay there, and enough that none is asked for twice at a time.
const MEMORY_OBJECTS: u64 = 1000;
/// What the other consumer asks for: Data on disk, and as large in memory.
const ON_DISK: &str = "disk";
const AS_LARGE: &str = "as-large";
/// Interests under way where a rate is measured.
const WINDOW: usize = 32;

fn tlv_of(typ: u32, value: &[u8], out: &mut Vec<u8>) {
    let mut writer = tlv::Writer::with_capacity(value.len() + 8);
    writer.tlv(typ, value);
    out.extend_from_slice(writer.as_slice());
}

/// `/b/KIND/NUMBER`, as a Name TLV.
fn name(kind: &str, number: u64) -> Vec<u8> {
    let (mut value, mut whole) = (Vec::new(), Vec::new());
    tlv_of(8, b"b", &mut value);
    tlv_of(8, kind.as_bytes(), &mut value);
    tlv_of(8, &number.to_be_bytes(), &mut value);
    tlv_of(7, &value, &mut whole);
    whole
}

fn interest(kind: &str, number: u64, nonce: u32) -> Vec<u8> {
    let mut value = name(kind, number);
    tlv_of(10, &nonce.to_be_bytes(), &mut value);
    let mut whole = Vec::new();
    tlv_of(5, &value, &mut whole);
    whole
}

/// The type of the packet in a frame, 5 (a Nack too) or 6, and its Name TLV.
fn packet_in(frame: &[u8]) -> Option<(u32, &[u8])> {
    let (typ, value) = tlv::read_single(frame).ok()?;
    match typ {
        5 | 6 => {
            let mut reader = tlv::Reader::new(value);
            let first = reader.next_element().ok()??;
            (first.typ == 7).then_some((typ, first.wire))
        }
        100 => {
            let mut reader = tlv::Reader::new(value);
            while let Ok(Some(element)) = reader.next_element() {
                if element.typ == 80 {
                    return packet_in(element.value);
                }
            }
            None
        }
        _ => None,
    }
}

/// The number at the end of a name made by [`name`].
fn number_of(name: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*name.last_chunk::<8>()?))
}

/// Answers every Interest: with large Data what the other consumer asks for, else with small, which
/// no disk takes.
fn produce(socket: &UdpSocket, stop: &AtomicBool) {
    let mut frame = [0; 9000];
    while !stop.load(Ordering::Relaxed) {
        let Ok((len, from)) = socket.recv_from(&mut frame) else { continue };
        let Some((5, name)) = packet_in(&frame[..len]) else { continue };
        let is_small = KINDS
            .iter()
            .any(|kind| name.windows(kind.len()).any(|window| window == kind.as_bytes()));
        let mut value = name.to_vec();
        tlv_of(20, &[25, 2, 0x27, 0x10], &mut value);
        tlv_of(21, &vec![b'w'; if is_small { 1000 } else { 8000 }], &mut value);
        tlv_of(22, &[27, 1, 0], &mut value);
        tlv_of(23, &[0; 32], &mut value);
        let mut data = Vec::new();
        tlv_of(6, &value, &mut data);
        let _ = socket.send_to(&data, from);
    }
}

/// A connection of an application that counts and times answers.
struct Consumer {
    stream: UnixStream,
    buffer: Vec<u8>,
    filled: usize,
    nonce: u32,
}

impl Consumer {
    fn connect(router: &Router) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(router.socket())?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        Ok(Self { stream, buffer: vec![0; 1 << 20], filled: 0, nonce: 1 })
    }

    fn send(&mut self, kind: &str, number: u64) -> anyhow::Result<()> {
        self.nonce = self.nonce.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.stream.write_all(&interest(kind, number, self.nonce))?;
        Ok(())
    }

    /// Reads once and calls `take` with the number of each answer, and whether it is Data.
    fn receive(&mut self, mut take: impl FnMut(u64, bool)) -> anyhow::Result<()> {
        let read = match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        ensure!(read > 0, "the router closed the connection");
        self.filled += read;
        let mut at = 0;
        while let Ok(Some(len)) = weir_wire::peek_frame(&self.buffer[at..self.filled]) {
            if at + len > self.filled {
                break;
            }
            if let Some((typ, name)) = packet_in(&self.buffer[at..at + len])
                && let Some(number) = number_of(name)
            {
                take(number, typ == 6);
            }
            at += len;
        }
        self.buffer.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(())
    }
}

/// Asks for all numbers, with a fixed count of Interests under way; returns how many Data came.
fn keep_asking(
    consumer: &mut Consumer,
    kind: &str,
    window: usize,
    mut next: impl FnMut() -> Option<u64>,
) -> anyhow::Result<u64> {
    let (mut under_way, mut data, mut is_over) = (0_usize, 0_u64, false);
    let mut last_answer = Instant::now();
    let mut nacked = VecDeque::new();
    loop {
        while nacked.front().is_some_and(|at: &Instant| is_over || at.elapsed() >= NACK_PAUSE) {
            nacked.pop_front();
            under_way -= 1;
        }
        while !is_over && under_way < window {
            match next() {
                Some(number) => consumer.send(kind, number)?,
                None => is_over = true,
            }
            under_way += usize::from(!is_over);
        }
        if under_way == 0 {
            return Ok(data);
        }
        let mut answered = 0;
        consumer.receive(|_, is_data| match is_data {
            true => answered += 1,
            false => nacked.push_back(Instant::now()),
        })?;
        data += answered as u64;
        under_way = under_way.saturating_sub(answered).max(nacked.len());
        if answered > 0 {
            last_answer = Instant::now();
        } else if last_answer.elapsed() > Duration::from_secs(5) {
            // What is not answered after so long is not answered.
            under_way = nacked.len();
        }
    }
}

/// Asks for what is in memory at a rate, and returns the rate of the answers. One thread waits for
/// them in the kernel all the time, as one that asks a disk does: waking it takes the router's
/// time.
fn ask_at_rate(
    consumer: &mut Consumer,
    kind: &'static str,
    pps: f64,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<f64> {
    let stream = consumer.stream.try_clone()?;
    let mut sender = Consumer { stream, buffer: Vec::new(), filled: 0, nonce: 1 };
    let stopped = Arc::clone(stop);
    let began = Instant::now();
    let sending = thread::spawn(move || -> anyhow::Result<()> {
        for asked in 0.. {
            let due = Duration::from_secs_f64(asked as f64 / pps);
            thread::sleep(due.saturating_sub(began.elapsed()));
            if stopped.load(Ordering::Relaxed) {
                break;
            }
            sender.send(kind, asked % MEMORY_OBJECTS)?;
        }
        Ok(())
    });
    let mut answered = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        consumer.receive(|_, is_data| answered += u64::from(is_data))?;
    }
    sending.join().expect("the sender does not panic")?;
    Ok(answered as f64 / began.elapsed().as_secs_f64())
}

/// What was measured in one condition of one round, in the order of [`KINDS`].
#[derive(Clone, Copy, Default)]
struct Measured {
    p50_us: [f64; 2],
    p99_us: [f64; 2],
    rate_kpps: [f64; 2],
}

/// Sends at a fixed rate and measures each answer; p50 and p99, us.
fn latency(args: &Args, router: &Router, kind: &str, first: u64) -> anyhow::Result<(f64, f64)> {
    let total = (args.rate as f64 * args.seconds) as u64;
    let sent_ns: Arc<Vec<AtomicU64>> = Arc::new((0..total).map(|_| AtomicU64::new(0)).collect());
    let mut receiver = Consumer::connect(router)?;
    let mut sender =
        Consumer { stream: receiver.stream.try_clone()?, ..Consumer::connect(router)? };
    let epoch = Instant::now();
    let (sent, kind, rate) = (Arc::clone(&sent_ns), kind.to_owned(), args.rate);
    let sending = thread::spawn(move || -> anyhow::Result<()> {
        for index in 0..total {
            let due = Duration::from_nanos(index * 1_000_000_000 / rate);
            if let Some(early) = due.checked_sub(epoch.elapsed()) {
                thread::sleep(early);
            }
            // From when it was due: a sender that is late must not hide what the router did.
            sent[index as usize].store(due.as_nanos() as u64, Ordering::Release);
            sender.send(&kind, number_at(&kind, first, index))?;
        }
        Ok(())
    });
    let mut latencies_ns = Vec::with_capacity(total as usize);
    let mut last = Instant::now();
    // Which of those sent a number belongs to: memory's come again after a while.
    let mut next_of = vec![0_u64; MEMORY_OBJECTS as usize];
    while latencies_ns.len() < total as usize && last.elapsed() < Duration::from_secs(3) {
        receiver.receive(|number, is_data| {
            if !is_data {
                return;
            }
            let index = index_of(number, first, total, &mut next_of);
            let Some(at_ns) = index.and_then(|index| sent_ns.get(index as usize)) else { return };
            let now_ns = epoch.elapsed().as_nanos() as u64;
            latencies_ns.push(now_ns.saturating_sub(at_ns.load(Ordering::Acquire)));
            last = Instant::now();
        })?;
    }
    sending.join().expect("the sender does not panic")?;
    ensure!(
        latencies_ns.len() as u64 * 100 >= total * 99,
        "{} of {total} answered",
        latencies_ns.len()
    );
    latencies_ns.sort_unstable();
    let quantile =
        |part: f64| latencies_ns[((latencies_ns.len() - 1) as f64 * part) as usize] as f64 / 1000.0;
    Ok((quantile(0.5), quantile(0.99)))
}

/// The number asked for at one place of a sequence.
fn number_at(kind: &str, first: u64, index: u64) -> u64 {
    if kind == KINDS[0] { index % MEMORY_OBJECTS } else { first + index }
}

/// The place in the sequence that an answer belongs to.
fn index_of(number: u64, first: u64, total: u64, next_of: &mut [u64]) -> Option<u64> {
    if number < MEMORY_OBJECTS {
        let turn = &mut next_of[number as usize];
        let index = *turn * MEMORY_OBJECTS + number;
        *turn += 1;
        return Some(index);
    }
    number.checked_sub(first).filter(|index| *index < total)
}

/// With a fixed number under way: thousands of answers a second.
fn rate(args: &Args, router: &Router, kind: &str, first: u64) -> anyhow::Result<f64> {
    let mut consumer = Consumer::connect(router)?;
    let began = Instant::now();
    let until = Duration::from_secs_f64(args.seconds);
    let mut index = 0;
    let answered = keep_asking(&mut consumer, kind, WINDOW, || {
        index += 1;
        (began.elapsed() < until).then(|| number_at(kind, first, index - 1))
    })?;
    Ok(answered as f64 / began.elapsed().as_secs_f64() / 1000.0)
}

struct Bench {
    args: Args,
    site: Site,
    store: DiskStore,
    router: Router,
    /// Of names that were never asked for.
    fresh: u64,
    /// What the disks gave when they were saturated last.
    disk_pps: f64,
}

impl Bench {
    fn start(args: Args, producer_port: u16) -> anyhow::Result<Self> {
        let site = Site::new();
        let disk_mib = args.objects * 8704 / 2 / (1 << 20) * 5 / 4 + 64;
        let store = DiskStore {
            disks: 2,
            size: format!("{disk_mib}MiB"),
            memory: "96MiB".into(),
            // Forwarded Data is smaller than what goes to disk, and nothing passes the disks by.
            settings:
                "offer = \"arrival\"\nadmission = \"4KiB\"\nbypass = \"off\"\nmark = \"off\"\n"
                    .into(),
            can_stall: true,
            folder: args.folder.clone(),
            ..DiskStore::new("router")
        };
        let router = store.start(&site);
        let producer = format!("udp4://127.0.0.1:{producer_port}");
        let _ = router.weir(&site, &["route", "add", "/b", &producer]).success();
        let mut consumer = Consumer::connect(&router)?;
        let mut numbers = 0..args.objects;
        let filled = keep_asking(&mut consumer, ON_DISK, 32, || numbers.next())?;
        ensure!(filled * 100 >= args.objects * 99, "{filled} of {} stored", args.objects);
        router.disks_settle(&site);
        // Paced from here on: filling is not what is measured.
        let store = match args.pace {
            pace if pace > 0.0 => {
                DiskStore { each: format!("pace = {{ ops_per_s = {pace:.1} }}\n"), ..store }
            }
            _ => store,
        };
        let mut router = router;
        router.process.signal(nix::sys::signal::Signal::SIGTERM);
        let _ = router.process.finish().success();
        let router = store.start(&site);
        router.disks_settle(&site);
        for kind in [KINDS[0], KINDS[1], AS_LARGE] {
            let words = ["route", "add", &format!("/b/{kind}"), &producer];
            let _ = router.weir(&site, &words).success();
        }
        let mut bench = Self { args, site, store, router, fresh: 1 << 40, disk_pps: 0.0 };
        bench.warm_memory()?;
        Ok(bench)
    }

    /// Brings what memory is to answer into it, and keeps it there by asking twice.
    fn warm_memory(&mut self) -> anyhow::Result<()> {
        let mut consumer = Consumer::connect(&self.router)?;
        for kind in [KINDS[0], AS_LARGE].repeat(3) {
            let mut numbers = 0..MEMORY_OBJECTS;
            keep_asking(&mut consumer, kind, 32, || numbers.next())?;
        }
        Ok(())
    }

    fn measure(&mut self) -> anyhow::Result<Measured> {
        let mut measured = Measured::default();
        for (at, kind) in KINDS.into_iter().enumerate() {
            self.warm_memory()?;
            let (p50, p99) = latency(&self.args, &self.router, kind, self.fresh)?;
            self.fresh += 1 << 24;
            measured.p50_us[at] = p50;
            measured.p99_us[at] = p99;
            measured.rate_kpps[at] = rate(&self.args, &self.router, kind, self.fresh)?;
            self.fresh += 1 << 24;
        }
        Ok(measured)
    }

    /// What was measured, and what the other consumer got, Data a second.
    fn run(&mut self, condition: Condition, seed: u64) -> anyhow::Result<(Measured, f64)> {
        if condition == Condition::Idle {
            return Ok((self.measure()?, 0.0));
        }
        let stall = self.store.stall_file(&self.site, 1);
        if condition == Condition::OneStalled {
            std::fs::write(&stall, b"")?;
            thread::sleep(Duration::from_secs_f64(self.args.stalled_before));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let mut consumer = Consumer::connect(&self.router)?;
        let (stopped, depth, objects) = (Arc::clone(&stop), self.args.depth, self.args.objects);
        let memory_pps = (condition == Condition::FromMemory).then_some(self.disk_pps);
        let other = thread::spawn(move || {
            if let Some(pps) = memory_pps {
                return ask_at_rate(&mut consumer, AS_LARGE, pps, &stopped);
            }
            let mut rng = Rng::from_seed(seed);
            let began = Instant::now();
            let answered = keep_asking(&mut consumer, ON_DISK, depth, || {
                (!stopped.load(Ordering::Relaxed)).then(|| rng.next_u64() % objects)
            });
            answered.map(|answered| answered as f64 / began.elapsed().as_secs_f64())
        });
        thread::sleep(Duration::from_millis(300));
        let measured = self.measure();
        stop.store(true, Ordering::Relaxed);
        let other_pps = other.join().expect("the consumer does not panic")?;
        match condition {
            Condition::Saturated => self.disk_pps = other_pps,
            Condition::OneStalled => {
                std::fs::remove_file(&stall)?;
                self.router
                    .disks_become(&self.site, "an end of the stall", |disk| disk["stalled"] == 0);
            }
            Condition::Idle | Condition::FromMemory => {}
        }
        Ok((measured?, other_pps))
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let producer = UdpSocket::bind("127.0.0.1:0")?;
    producer.set_read_timeout(Some(Duration::from_millis(200)))?;
    let port = producer.local_addr()?.port();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let producing = thread::spawn(move || produce(&producer, &stopped));
    let (rounds, is_json) = (args.rounds, args.json);
    let mut bench = Bench::start(args, port)?;
    let mut results = Results::default();
    for round in 0..rounds {
        for (at, (condition, name)) in CONDITIONS.into_iter().enumerate() {
            let result = bench.run(condition, round as u64).with_context(|| name.to_owned())?;
            results[at].push(result);
        }
    }
    report(&results, is_json);
    stop.store(true, Ordering::Relaxed);
    for disk in 0..2 {
        let _ = std::fs::remove_file(bench.store.file(&bench.site, disk));
    }
    producing.join().expect("the producer does not panic");
    Ok(())
}

/// Of each condition, by round: what was measured, and what the other consumer got.
type Results = [Vec<(Measured, f64)>; CONDITIONS.len()];

fn report(results: &Results, is_json: bool) {
    type Value_ = fn(&Measured, usize) -> f64;
    let measures: [(&str, Value_); 3] = [
        ("p50_us", |measured, kind| measured.p50_us[kind]),
        ("p99_us", |measured, kind| measured.p99_us[kind]),
        ("rate_kpps", |measured, kind| measured.rate_kpps[kind]),
    ];
    let mut object = serde_json::Map::new();
    for (kind, kind_name) in KINDS.into_iter().enumerate() {
        for (measure, value) in measures {
            let rows = CONDITIONS.iter().zip(results).map(|((_, name), rounds)| {
                let values = rounds.iter().map(|(measured, _)| value(measured, kind));
                // Of neighbours in time: the machine's mood is the same for both.
                let pairs = rounds.iter().zip(&results[REFERENCE]);
                let ratios = pairs.map(|(it, with)| value(&it.0, kind) / value(&with.0, kind));
                (*name, median(values.collect()), median(ratios.collect()))
            });
            let rows: Vec<_> = rows.collect();
            if !is_json {
                print!("{kind_name:10} {measure:10}");
                for (name, value, ratio) in &rows {
                    print!("  {name} {value:.1} ({ratio:.3} x)");
                }
                println!();
            }
            let rows = rows.into_iter().map(|(name, value, ratio)| {
                (name.to_owned(), json!({ "value": value, "ratio": ratio }))
            });
            object.insert(format!("{kind_name}_{measure}"), Value::Object(rows.collect()));
        }
    }
    let other = results.iter().map(|rounds| median(rounds.iter().map(|(_, pps)| *pps).collect()));
    let other: Vec<f64> = other.collect();
    if is_json {
        object.insert("other_consumer_pps".into(), json!(other));
        println!("{}", Value::Object(object));
    } else {
        println!("the other consumer, Data/s: {other:.0?}, in the order of the columns");
    }
}
