//! How a real router scales over processors: Data a second by number of packet threads.
//!
//! `cargo run --release -p weir-benches --bin cores -- --threads 1,2,4,8` builds the program,
//! starts a router for each number of threads and has consumers ask it over real sockets, each with
//! a socket, a thread and a window of Interests of its own, all names under one prefix:
//!
//! - `warm`: for Data in the router's memory;
//! - `forwarded`: for Data that nobody has asked for, which producers on Unix sockets answer;
//! - `disk`: for Data on two disks (files in `--folder`), at random.
//!
//! Reported are medians over rounds, in which all conditions take turns: Data a second and how many
//! times that of the first number of threads, the router's processor time for each Data, how busy
//! its busiest and its idlest packet thread were, and the consumers on the mean. Where packet
//! threads are not busy, something else is the limit. Two limits are measured in the same run:
//! `--apart` has as many routers of one packet thread as there are packet threads otherwise, each
//! with its part of the consumers and producers, which is what linear is on the machine; in
//! `kernel`, as many pairs of threads move such octets through Unix sockets, and do nothing else.
//!
//! It needs about as many idle processors more as there are packet threads.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant as Clock};

use anyhow::{Context, bail, ensure};
use clap::{Parser, ValueEnum};
use cpu_time::ThreadTime;
use mio::{Events, Interest, Poll, Token};
use nix::sys::signal::Signal;
use serde_json::json;
use tempfile::TempDir;
use weir_base::{Instant, Packet, Pool, Rng};
use weir_benches::{NAMES_PER_PARENT, data, interest, median, register, threads_ns};
use weir_face::{FaceUri, RecvStatus, SendStatus, Socket};
use weir_link::{Link, Received};
use weir_tests::{DiskStore, Router, RouterOptions, Site};
use weir_wire::LpHeader;

#[derive(Parser, Clone)]
struct Args {
    /// Numbers of packet threads; ratios are to the first.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Where Data come from.
    #[arg(long, value_delimiter = ',', default_value = "kernel,warm,forwarded")]
    modes: Vec<Mode>,
    /// Faces of the consumers.
    #[arg(long, value_delimiter = ',', default_value = "unix")]
    faces: Vec<Faces>,
    /// Octets of content of each Data.
    #[arg(long, value_delimiter = ',', default_value = "8000,1000")]
    payload: Vec<usize>,
    /// Consumers; as many as the most packet threads, and two at least, unless given.
    #[arg(long)]
    consumers: Option<usize>,
    /// Producers, likewise, 16 at most. But for `forwarded` they only fill the routers.
    #[arg(long)]
    producers: Option<usize>,
    /// Interests of a consumer that are unanswered at any time.
    #[arg(long, default_value_t = 256)]
    window: usize,
    /// Objects of 128 Data of which a consumer asks in turn.
    #[arg(long, default_value_t = 8)]
    interleave: u64,
    /// Octets of the Data that `warm` and `disk` ask for, MiB.
    #[arg(long, default_value_t = 256)]
    mebibytes: usize,
    /// How long each is measured, s.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Rounds; medians are reported.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Measures routers of one packet thread side by side, too.
    #[arg(long)]
    apart: bool,
    /// Where the disks' files are made; by default where temporary files are.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// More arguments for `weir router`.
    #[arg(long, allow_hyphen_values = true, default_value = "")]
    router: String,
    /// Prints a JSON object for each line.
    #[arg(long)]
    json: bool,
}

impl Args {
    fn most_threads(&self) -> usize {
        self.threads.iter().copied().max().unwrap_or(1).max(2)
    }

    fn consumers(&self) -> usize {
        self.consumers.unwrap_or_else(|| self.most_threads())
    }

    fn producers(&self) -> usize {
        self.producers.unwrap_or_else(|| self.most_threads().min(SITES as usize))
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.rounds > 0 && self.interleave > 0, "--rounds, --interleave: one at least");
        ensure!(!self.threads.contains(&0), "--threads: one at least");
        ensure!((1..=SITES as usize).contains(&self.producers()), "--producers: 1 to {SITES}");
        ensure!(self.consumers() > 0, "--consumers: one at least");
        if self.apart {
            let divides =
                |count: usize| self.threads.iter().all(|&threads| count.is_multiple_of(threads));
            ensure!(
                divides(self.consumers()) && divides(self.producers()),
                "--apart: give --consumers and --producers that each of --threads divides"
            );
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    Kernel,
    Warm,
    Forwarded,
    Disk,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Faces {
    Unix,
    Shm,
    Udp,
    Tcp,
}

fn label(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// What is measured of each number of threads.
#[derive(Clone, Copy)]
struct Condition {
    mode: Mode,
    faces: Faces,
    payload: usize,
    /// Routers of one thread each.
    is_apart: bool,
}

impl Condition {
    fn title(&self) -> String {
        let apart = if self.is_apart { " apart" } else { "" };
        format!("{}{apart}", label(self.mode))
    }
}

/// What was measured once.
#[derive(Clone, Copy, Default)]
struct Measured {
    data_per_s: f64,
    /// Processor time of all threads of the router for each Data, us.
    router_us: f64,
    /// Parts of the time that packet threads ran: the busiest, the idlest.
    busiest: f64,
    idlest: f64,
    /// Of the consumers, on the mean.
    consumers: f64,
    /// Interests that were given up.
    lost: f64,
}

/// Links need to be told some time.
const START: Instant = Instant::ZERO;
/// How long a consumer waits for an answer before it gives all up that it has asked for.
const GIVE_UP: Duration = Duration::from_millis(500);
/// How long a router may take to give a producer its prefix.
const REPLY_WITHIN: Duration = Duration::from_secs(5);
/// How long consumers ask before it is measured.
const WARM_UP: Duration = Duration::from_millis(300);
/// Objects that a consumer of `forwarded` may ask for.
const OBJECTS_PER_CONSUMER: u64 = 1 << 20;
/// Data of an object that a consumer asks for before it turns to another's.
const PART: u64 = 32;
/// Interests of a consumer under way while it fills a store: no more than its disks keep up with.
const FILL_WINDOW: usize = 32;
/// Octets that a producer has in the queue of its link at most: more would be dropped.
const QUEUE_BYTES_MAX: u64 = 1 << 20;
/// How many first components names have, the parts of producers.
const SITES: u64 = 16;

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    args.check()?;
    weir_face::raise_file_limit()?;
    let mut conditions = Vec::new();
    for &payload in &args.payload {
        for &mode in &args.modes {
            // Without a router there are no kinds of faces.
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
        // Of the same round: the machine's mood is the same for both.
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
            "{mode:15} {faces:4} {payload:5} octets, {threads:2} threads {:6.3} M/s {times:5.2} \
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

/// Pairs of threads that move Data through Unix sockets and do nothing else.
fn measure_kernel(args: &Args, pairs: usize, payload: usize) -> anyhow::Result<Measured> {
    /// About what a router gives the system at once.
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

/// Which names a consumer asks for.
enum Names {
    /// Objects in order, from the first, a few of them in turn; again from 0 after `count`.
    InOrder { first: u64, count: u64 },
    /// Any of so many Data.
    AtRandom { count: u64, rng: Rng },
}

/// Makes Interests quickly: an object's differ in an octet of the name and in the nonce.
struct Interests {
    names: Names,
    interleave: u64,
    asked: u64,
    /// Of the objects that take turns.
    templates: Vec<Vec<u8>>,
}

impl Interests {
    fn new(names: Names, interleave: u64) -> Self {
        Self { names, interleave, asked: 0, templates: vec![Vec::new(); interleave as usize] }
    }

    fn next(&mut self) -> Packet {
        let number = self.asked;
        self.asked += 1;
        let nonce = (number as u32).wrapping_mul(0x9e37_79b9);
        let (first, count) = match &mut self.names {
            Names::AtRandom { count, rng } => {
                return interest(rng.next_u64() % *count, nonce).into();
            }
            Names::InOrder { first, count } => (*first, *count),
        };
        let (part, lane) = (number / PART / self.interleave, number / PART % self.interleave);
        let object = part / (NAMES_PER_PARENT / PART) * self.interleave + lane;
        let segment = part % (NAMES_PER_PARENT / PART) * PART + number % PART;
        let template = &mut self.templates[lane as usize];
        if segment == 0 {
            *template = interest((first + object) % count * NAMES_PER_PARENT, 0);
        }
        // The last octet of the name, then type, length and value of the nonce.
        let len = template.len();
        template[len - 7] = segment as u8;
        template[len - 4..].copy_from_slice(&nonce.to_be_bytes());
        Packet::from(template.clone())
    }
}

/// A socket with its link, and what wakes its thread.
struct End {
    socket: Socket,
    link: Link,
    pool: Pool,
    poll: Poll,
    events: Events,
    frames: Vec<Packet>,
    is_drained: bool,
}

impl End {
    fn new(mut socket: Socket) -> anyhow::Result<Self> {
        let poll = Poll::new()?;
        poll.registry().register(&mut socket, Token(0), Interest::READABLE | Interest::WRITABLE)?;
        let link = Link::new(socket.link_config());
        let (pool, events) = (Pool::new(16 << 20), Events::with_capacity(8));
        let frames = Vec::new();
        Ok(Self { socket, link, pool, poll, events, frames, is_drained: false })
    }

    fn connect(uri: &str, faces: Faces) -> anyhow::Result<Self> {
        let uri = FaceUri::resolve(uri)?;
        let socket = Socket::connect(&uri, Duration::from_secs(5))
            .with_context(|| format!("{} {uri}", label(faces)))?;
        Self::new(socket)
    }

    fn send(&mut self) -> anyhow::Result<()> {
        // What finds no room is sent in the next turn, which input or room begins.
        let _: SendStatus = self.socket.send(&mut self.link)?;
        Ok(())
    }

    /// Receives what is there; waits for it if there was nothing the last time.
    fn receive(&mut self, mut take: impl FnMut(&mut Link, LpHeader, Packet)) -> anyhow::Result<()> {
        if self.is_drained && !self.socket.has_room_again() {
            self.poll.poll(&mut self.events, Some(Duration::from_millis(20)))?;
        }
        let status = self.socket.recv(&mut self.pool, &mut self.frames)?;
        ensure!(status != RecvStatus::Closed, "the router closes");
        self.is_drained = status == RecvStatus::Drained;
        for frame in self.frames.drain(..) {
            match self.link.receive(START, frame, &mut self.pool) {
                Received::Packet { header, packet } => take(&mut self.link, header, packet),
                Received::Run => {
                    while let Some((header, packet)) = self.link.next_in_run(START, &mut self.pool)
                    {
                        take(&mut self.link, header, packet);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// What all consumers of a run share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    data: AtomicU64,
    lost: AtomicU64,
    processor_ns: AtomicU64,
}

/// Asks for `count` Data, or until it is stopped.
fn consume(
    end: &mut End,
    interests: &mut Interests,
    window: usize,
    count: u64,
    shared: &Shared,
) -> anyhow::Result<()> {
    let (mut under_way, mut answered) = (0_u64, 0_u64);
    let (mut last, mut given_up) = (Clock::now(), 0);
    let mut processor = ThreadTime::now();
    while answered + given_up < count && !shared.stop.load(Ordering::Relaxed) {
        while under_way < window as u64 && answered + given_up + under_way < count {
            if end.link.enqueue(START, LpHeader::default(), interests.next()).is_err() {
                break;
            }
            under_way += 1;
        }
        end.send()?;
        let (mut came, mut nacked) = (0, 0);
        end.receive(|_, header, _| match header.nack {
            None => came += 1,
            Some(_) => nacked += 1,
        })?;
        answered += came;
        given_up += nacked;
        under_way = under_way.saturating_sub(came + nacked);
        shared.data.fetch_add(came, Ordering::Relaxed);
        if nacked > 0 {
            shared.lost.fetch_add(nacked, Ordering::Relaxed);
        }
        if came > 0 {
            last = Clock::now();
            let now = ThreadTime::now();
            let ran = now.duration_since(processor).as_nanos() as u64;
            shared.processor_ns.fetch_add(ran, Ordering::Relaxed);
            processor = now;
        } else if last.elapsed() > GIVE_UP {
            shared.lost.fetch_add(under_way, Ordering::Relaxed);
            given_up += under_way;
            under_way = 0;
            last = Clock::now();
        }
    }
    Ok(())
}

/// Answers every Interest until it is stopped.
fn produce(end: &mut End, payload: usize, stop: &AtomicBool) -> anyhow::Result<()> {
    // The Data of one name; another's has the same length, and its name in the same place.
    let template = data(0, payload);
    let name_len = weir_benches::name_value(0).len() + 2;
    let name_at = if template.len() < 255 { 2 } else { 4 };
    let mut asked = VecDeque::new();
    while !stop.load(Ordering::Relaxed) {
        if asked.is_empty() {
            end.receive(|_, header, packet| asked.push_back((header.pit_token, packet)))?;
        } else if end.link.queue_bytes() > 0 {
            end.poll.poll(&mut end.events, Some(Duration::from_millis(20)))?;
        }
        while end.link.queue_bytes() < QUEUE_BYTES_MAX
            && let Some((pit_token, packet)) = asked.pop_front()
        {
            // An Interest made here: two octets of type and length, then the name.
            let name = packet.get(2..2 + name_len).context("a foreign Interest")?;
            let mut answer = template.clone();
            answer[name_at..name_at + name_len].copy_from_slice(name);
            let header = LpHeader { pit_token, ..LpHeader::default() };
            if let Err(reason) = end.link.enqueue(START, header, answer.into()) {
                bail!("a producer's link drops: {reason:?}");
            }
        }
        end.send()?;
    }
    Ok(())
}

/// One number of threads under one condition: routers of its own.
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
        beside_producers(&hosts, condition.payload, || run(args, condition, &hosts))?
    } else {
        let fill = || hosts.iter().try_for_each(|host| host.fill(condition));
        beside_producers(&hosts, condition.payload, fill)?;
        // The producers are gone: what the router does not have is not answered.
        let measured = run(args, condition, &hosts)?;
        let asked = measured.data_per_s * args.seconds + measured.lost;
        ensure!(measured.lost <= asked * 0.01, "{} Data were not there", measured.lost);
        measured
    };
    hosts.into_iter().for_each(Host::stop);
    Ok(measured)
}

/// Sets a flag when it is dropped, whatever ends a run: threads wait for it.
struct StopWhenDropped<'a>(&'a AtomicBool);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does something while the producers of all routers answer.
fn beside_producers<T>(
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

/// What one router has of a run.
#[derive(Clone, Copy)]
struct Part {
    threads: usize,
    consumers: usize,
    producers: usize,
    mebibytes: usize,
}

impl Part {
    /// Objects of `warm` and `disk`.
    fn objects(&self, condition: Condition) -> u64 {
        ((self.mebibytes << 20) / condition.payload) as u64 / NAMES_PER_PARENT
    }
}

struct Host {
    site: Site,
    router: Router,
    /// Of its disks; it goes with this.
    _folder: Option<TempDir>,
    part: Part,
}

impl Host {
    fn start(args: &Args, condition: Condition, part: Part) -> anyhow::Result<Self> {
        ensure!(
            part.objects(condition) >= args.interleave,
            "--mebibytes: more for so many objects"
        );
        let site = Site::new();
        let (threads, mebibytes) = (part.threads, part.mebibytes);
        let settings = format!(
            "[router]\nthreads = {threads}\n[faces]\nshared_memory = {}\n",
            condition.faces == Faces::Shm
        );
        let mut arguments: Vec<String> =
            args.router.split_whitespace().map(str::to_owned).collect();
        if condition.mode == Mode::Disk {
            let folder = args.folder.as_ref().map(TempDir::new_in).transpose()?;
            let disks = DiskStore {
                disks: 2,
                size: format!("{}MiB", mebibytes + 64),
                // An eighth of the Data, whatever the number of threads.
                memory: format!("{}MiB", (mebibytes / 8).max(1)),
                settings: format!(
                    "offer = \"arrival\"\nbypass = \"off\"\nmark = \"off\"\n{settings}"
                ),
                folder: folder.as_ref().map(|folder| folder.path().to_owned()),
                arguments,
                ..DiskStore::new("router")
            };
            let router = disks.start(&site);
            return Ok(Self { site, router, _folder: folder, part });
        }
        // Names and signatures take room too, and no shard may get more than it has room for.
        let size = mebibytes * (condition.payload + 400) / condition.payload * 2;
        let text = format!("{settings}[store]\nsize = \"{size}MiB\"\n");
        let config = site.write("router.toml", text.as_bytes());
        arguments.extend(["-c".into(), config.to_str().context("UTF-8")?.into()]);
        let options = RouterOptions { arguments, ..RouterOptions::default() };
        let router = Router::start_with(&site, &options);
        Ok(Self { site, router, _folder: None, part })
    }

    /// A connection of one of the producers, which has its part of the names.
    fn register(&self, producer: usize) -> anyhow::Result<UnixStream> {
        let mut stream = None;
        for part in (producer as u64..SITES).step_by(self.part.producers) {
            let prefix = format!("/weir/site{part:02}");
            stream = Some(register(stream, self.router.socket(), &prefix, REPLY_WITHIN)?);
        }
        let stream = stream.context("a producer without names")?;
        stream.set_read_timeout(None)?;
        Ok(stream)
    }

    /// Has the router get all Data of `warm` and `disk` once.
    fn fill(&self, condition: Condition) -> anyhow::Result<()> {
        let (consumers, objects) = (self.part.consumers as u64, self.part.objects(condition));
        let shared = Shared::default();
        std::thread::scope(|scope| {
            let _stop = StopWhenDropped(&shared.stop);
            let mut asking = Vec::new();
            for consumer in 0..consumers {
                let [first, end] = [consumer, consumer + 1].map(|at| at * objects / consumers);
                let names = Names::InOrder { first, count: objects };
                // One object after the other: what is left of a part is no whole turn of several.
                let mut interests = Interests::new(names, 1);
                let count = (end - first) * NAMES_PER_PARENT;
                let mut end = End::connect(&self.router.unix(), Faces::Unix)?;
                let shared = &shared;
                asking.push(
                    scope.spawn(move || {
                        consume(&mut end, &mut interests, FILL_WINDOW, count, shared)
                    }),
                );
            }
            asking.into_iter().try_for_each(|consumer| {
                consumer.join().expect("no thread panics").context("a consumer")
            })
        })?;
        let (asked, came) = (objects * NAMES_PER_PARENT, shared.data.load(Ordering::Relaxed));
        ensure!(came * 100 >= asked * 99, "{came} of {asked} Data came when the store was filled");
        if condition.mode == Mode::Disk {
            self.router.disks_settle(&self.site);
        }
        Ok(())
    }

    fn uri(&self, faces: Faces) -> String {
        match faces {
            Faces::Unix | Faces::Shm => self.router.unix(),
            Faces::Udp => self.router.udp(),
            Faces::Tcp => self.router.tcp(),
        }
    }

    /// Ends the router as an operator does, so that it writes what it was asked to write.
    fn stop(mut self) {
        self.router.process.signal(Signal::SIGTERM);
        let _ = self.router.process.finish().success();
    }
}

/// Has consumers ask, and looks at the routers meanwhile.
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
                let mut end = End::connect(&host.uri(condition.faces), condition.faces)?;
                let shared = &shared;
                asking.push(scope.spawn(move || {
                    consume(&mut end, &mut interests, args.window, u64::MAX, shared)
                }));
            }
        }
        std::thread::sleep(WARM_UP);
        let before = Look::now(&shared, hosts)?;
        std::thread::sleep(Duration::from_secs_f64(args.seconds));
        let after = Look::now(&shared, hosts)?;
        drop(stop);
        let consumers = asking.len() as f64;
        for consumer in asking {
            consumer.join().expect("no thread panics").context("a consumer")?;
        }
        after.since(&before, consumers)
    })
}

/// How far consumers and routers were at one time.
struct Look {
    at: Clock,
    data: u64,
    lost: u64,
    consumers_ns: u64,
    /// Of the routers' threads.
    threads: Vec<(String, u64)>,
}

impl Look {
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
            let of_it = before.threads.iter().find(|(before, _)| before == name);
            let ran_ns = (ran_ns - of_it.map_or(0, |(_, before)| *before)) as f64;
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
