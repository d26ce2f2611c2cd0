//! Shards of one router on threads of their own, all traffic under one prefix: exchanges a second
//! by number of threads.
//!
//! `cargo run --release -p weir-benches --bin shards` does for each number of threads what packet
//! threads do, with memory in place of sockets: a thread reads Interests and, a window later, their
//! Data, hands each packet to the shard that `shard_of_packet` says, over the router's own rings
//! when that is another thread's, and has its own shard handle what has come in batches. Time is
//! that of the wall, and processor time of the busiest thread, which other programs disturb less.
//! No thread sleeps, so that none is woken, either.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use clap::Parser;
use cpu_time::ThreadTime;
use mio::{Poll, Token, Waker};
use weir_base::{FaceId, HashKey, Instant, NS_PER_MS, Pool};
use weir_benches::median;
use weir_forward::shard::{shard_of_packet, token_of_shard};
use weir_forward::{
    Command, FaceAttributes, FaceScope, Input, NextHop, Outbox, Router, RouterConfig,
};
use weir_runtime::cross::{CrossPorts, Crossing};
use weir_store::StoreConfig;
use weir_wire::{LpHeader, Name};

#[derive(Parser)]
struct Args {
    /// Numbers of threads.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<u16>,
    /// Interests and Data, shared among the threads.
    #[arg(long, default_value_t = 600_000)]
    exchanges: u64,
    /// Octets of content of each Data.
    #[arg(long, default_value_t = 100)]
    payload: usize,
    /// Interests of a thread that are unanswered at any time.
    #[arg(long, default_value_t = 1_000)]
    window: usize,
    /// Packets given to a shard at once.
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Rounds; the median is reported.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Each thread has a router of its own, and nothing crosses: what linear is on this machine.
    #[arg(long)]
    apart: bool,
}

const CONSUMER: FaceId = FaceId(256);
const PRODUCER: FaceId = FaceId(257);
const KEY: HashKey = HashKey::new([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);
/// Octets of the stores, all shards together.
const STORE_BYTES: u64 = 64 << 20;

/// What a thread reads, encoded before the clock runs: Interests, and their Data.
struct Traffic {
    interests: Vec<Vec<u8>>,
    data: Vec<Vec<u8>>,
}

impl Traffic {
    /// The part of thread `index`: whole objects, as consumers ask for them.
    fn of(args: &Args, index: u16, count: u16) -> Self {
        const OBJECT: u64 = 128;
        let is_ours = |number: &u64| number / OBJECT % u64::from(count) == u64::from(index);
        let numbers: Vec<u64> = (0..args.exchanges).filter(is_ours).collect();
        Self {
            interests: numbers.iter().map(|&n| weir_benches::interest(n, n as u32)).collect(),
            data: numbers.iter().map(|&n| weir_benches::data(n, args.payload)).collect(),
        }
    }
}

struct Worker {
    index: u16,
    count: u16,
    router: Router,
    pool: Pool,
    now: Instant,
    inputs: Vec<Input>,
    out: Outbox,
    batch: usize,
    ports: CrossPorts,
}

impl Worker {
    fn new(args: &Args, index: u16, count: u16, store_bytes: u64, ports: CrossPorts) -> Self {
        let router = Router::new(
            Instant::ZERO,
            RouterConfig {
                shard: index,
                shard_count: count,
                hash_key: KEY,
                store: StoreConfig { capacity_bytes: store_bytes, ..StoreConfig::default() },
                ..RouterConfig::default()
            },
        );
        let mut worker = Self {
            index,
            count,
            router,
            pool: Pool::new(16 << 20),
            now: Instant::from_ns(NS_PER_MS),
            inputs: Vec::new(),
            out: Outbox::default(),
            batch: args.batch,
            ports,
        };
        let add = |face| Command::AddFace {
            face,
            attributes: FaceAttributes::point_to_point(FaceScope::NonLocal),
        };
        let prefix: Name = "/weir".parse().expect("a valid name");
        let next_hops = vec![NextHop { face: PRODUCER, cost: 0 }];
        let route = Command::SetNextHops { prefix, next_hops };
        worker.inputs.extend([add(CONSUMER), add(PRODUCER), route].map(Input::Command));
        worker.handle();
        worker
    }

    fn handle(&mut self) {
        self.now = self.now.plus_ns(1000);
        self.router.handle(self.now, &mut self.inputs, &mut self.out);
        self.inputs.clear();
        assert!(self.out.shard_messages.is_empty(), "Interests without CanBePrefix need none");
        self.out.packets.clear();
    }

    /// A packet from a socket.
    fn receive(&mut self, face: FaceId, octets: &[u8], header: LpHeader) -> u16 {
        let packet = self.pool.copy(octets);
        let shard = shard_of_packet(&KEY, &header, &packet, self.count).expect("a packet");
        if shard == self.index {
            self.inputs.push(Input::Packet { face, header, packet });
            return shard;
        }
        let mut crossing = Crossing::In { face, header, packet };
        while let Err(back) = self.ports.try_push(shard, crossing, &mut self.pool) {
            crossing = back;
            self.ports.wake_pending();
            self.take_crossings();
            std::thread::yield_now();
        }
        shard
    }

    /// Whether there were any.
    fn take_crossings(&mut self) -> bool {
        let mut had_any = false;
        self.ports.note_waiting();
        while let Some(crossing) = self.ports.next_noted(&mut self.pool) {
            let Crossing::In { face, header, packet } = crossing else { unreachable!() };
            had_any = true;
            self.inputs.push(Input::Packet { face, header, packet });
            if self.inputs.len() >= self.batch {
                self.handle();
            }
        }
        had_any
    }

    /// Reads and handles all traffic, and what others hand over until they are done.
    fn run(&mut self, traffic: &Traffic, window: usize, done: &AtomicUsize) -> Duration {
        let start = ThreadTime::now();
        let mut shards = VecDeque::new();
        let mut data = traffic.data.iter();
        for interest in &traffic.interests {
            shards.push_back(self.receive(CONSUMER, interest, LpHeader::default()));
            if shards.len() > window {
                self.answer(&mut shards, &mut data);
            }
            if self.inputs.len() >= self.batch / 2 {
                self.ports.wake_pending();
                self.take_crossings();
                self.handle();
            }
        }
        while !shards.is_empty() {
            self.answer(&mut shards, &mut data);
        }
        self.ports.wake_pending();
        self.handle();
        let took = start.elapsed();
        done.fetch_add(1, Ordering::SeqCst);
        let mut rest = Duration::ZERO;
        loop {
            let is_last_look = done.load(Ordering::SeqCst) >= usize::from(self.count);
            let start = ThreadTime::now();
            if self.take_crossings() {
                self.handle();
                rest += start.elapsed();
            } else if is_last_look {
                return took + rest;
            }
            std::thread::yield_now();
        }
    }

    /// The Data of the oldest Interest, with the token that the Interest left with.
    fn answer<'a>(
        &mut self,
        shards: &mut VecDeque<u16>,
        data: &mut impl Iterator<Item = &'a Vec<u8>>,
    ) {
        let (Some(shard), Some(data)) = (shards.pop_front(), data.next()) else { return };
        let header = match self.count {
            1 => LpHeader::default(),
            _ => LpHeader { pit_token: token_of_shard(shard, self.count), ..LpHeader::default() },
        };
        self.receive(PRODUCER, data, header);
    }
}

/// Seconds of the wall, and of the busiest thread.
fn measure(args: &Args, traffic: &[Arc<Traffic>]) -> (f64, f64) {
    let count = traffic.len() as u16;
    let polls: Vec<Poll> = (0..count).map(|_| Poll::new().expect("a poll")).collect();
    let waker = |poll: &Poll| Arc::new(Waker::new(poll.registry(), Token(0)).expect("a waker"));
    let wakers: Vec<_> = polls.iter().map(waker).collect();
    let store_bytes = STORE_BYTES / u64::from(count);
    let workers: Vec<Worker> = if args.apart {
        let alone = wakers.chunks(1).flat_map(CrossPorts::connect_all);
        alone.map(|ports| Worker::new(args, 0, 1, store_bytes, ports)).collect()
    } else {
        let ports = (0..count).zip(CrossPorts::connect_all(&wakers));
        ports.map(|(index, ports)| Worker::new(args, index, count, store_bytes, ports)).collect()
    };
    let done = Arc::new(AtomicUsize::new(0));
    let barrier = Arc::new(Barrier::new(workers.len() + 1));
    let threads: Vec<_> = workers
        .into_iter()
        .zip(traffic)
        .map(|(mut worker, traffic)| {
            let (done, barrier) = (Arc::clone(&done), Arc::clone(&barrier));
            let (traffic, window) = (Arc::clone(traffic), args.window);
            std::thread::spawn(move || {
                barrier.wait();
                let took = worker.run(&traffic, window, &done);
                (took, worker.router.stats().satisfied)
            })
        })
        .collect();
    barrier.wait();
    let start = std::time::Instant::now();
    let results: Vec<(Duration, u64)> =
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect();
    let wall = start.elapsed().as_secs_f64();
    let satisfied: u64 = results.iter().map(|(_, satisfied)| satisfied).sum();
    assert_eq!(satisfied, args.exchanges, "every Interest was answered");
    let busiest = results.iter().map(|(took, _)| took.as_secs_f64()).fold(0.0, f64::max);
    (wall, busiest)
}

fn main() {
    let args = Args::parse();
    let mut first = None;
    for &count in &args.threads {
        let traffic: Vec<_> =
            (0..count).map(|index| Arc::new(Traffic::of(&args, index, count))).collect();
        let (walls, busiest) = (0..args.rounds).map(|_| measure(&args, &traffic)).unzip();
        let (wall, busiest) = (median(walls), median(busiest));
        let exchanges = args.exchanges as f64;
        let (first_wall, first_busiest) = *first.get_or_insert((wall, busiest));
        println!(
            "{count:2} threads{} {:6.3} M/s, {:5.2} times; by processor time of the busiest thread \
             {:6.3} M/s, {:5.2} times",
            if args.apart { " apart" } else { "" },
            exchanges / wall * 1e-6,
            first_wall / wall,
            exchanges / busiest * 1e-6,
            first_busiest / busiest,
        );
    }
}
