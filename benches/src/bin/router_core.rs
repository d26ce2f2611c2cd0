//! The router core in memory on one thread: store hits, and full exchanges that miss.
//!
//! `cargo run --release -p weir-benches --bin router_core` prints medians of several rounds in
//! processor time of the thread, which excludes other programs. For instruction counts, run
//! `valgrind --tool=callgrind --toggle-collect='*Router*handle*' <binary> ...` with `--rounds 1`
//! and divide by `--operations`.

use std::collections::VecDeque;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use cpu_time::ThreadTime as Clock;
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::SeedableRng;
use weir_base::{FaceId, HashKey, Instant, NS_PER_MS, Packet, Pool, Rng};
use weir_benches::median;
use weir_forward::{
    Command, FaceAttributes, FaceScope, Input, NAME_COMPONENTS_MAX, NextHop, Outbox, Router,
    RouterConfig, StoreCommand,
};
use weir_store::{HoldingsConfig, StoreConfig};
use weir_wire::{Data, Interest, LpHeader, Name, NameView};

#[derive(Parser)]
struct Args {
    /// Data in the store.
    #[arg(long, default_value_t = 1_000_000)]
    entries: u64,
    /// Content bytes of each Data.
    #[arg(long, default_value_t = 100)]
    payload: usize,
    /// Pending Interests at any time in the exchange measurement.
    #[arg(long, default_value_t = 100_000)]
    outstanding: usize,
    /// Packets passed to the router at once.
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Hits and exchanges measured in each round.
    #[arg(long, default_value_t = 2_000_000)]
    operations: u64,
    /// Rounds; the median is reported.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Number of objects that the exchange measurement requests in turn; by default one after the
    /// other, 128 names each.
    #[arg(long, default_value_t = 1)]
    interleave: u64,
    /// The prefixes for which the FIB has a next hop.
    #[arg(long, value_enum, default_value_t = Fib::Sites)]
    fib: Fib,
    /// Measures only rows whose name contains one of these texts.
    #[arg(long, value_delimiter = ',', default_value = "")]
    only: Vec<String>,
    /// Keeps an index of the segments in the store, whose changes are not requested.
    #[arg(long)]
    track: bool,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// The first name of the exchanges.
    fn first_name(&self) -> u64 {
        self.entries.next_multiple_of(self.interleave * weir_benches::NAMES_PER_PARENT)
    }
}

const CONSUMER: FaceId = FaceId(256);
const PRODUCER: FaceId = FaceId(257);
/// Levels of the names at which a FIB may have prefixes.
#[derive(Clone, Copy, ValueEnum)]
enum Fib {
    /// 16.
    Sites,
    /// 1,024.
    Runs,
    /// 131,072.
    Sets,
    /// 1,000,000, which the exchanges request, one for 128 names.
    Objects,
}

impl Fib {
    /// The prefixes, if exchanges request names from object `first` on.
    fn prefixes(self, first: u64) -> impl Iterator<Item = Name> {
        let (components, objects) = match self {
            Self::Sites => (2, 0..16),
            Self::Runs => (3, 0..16 * 64),
            Self::Sets => (4, 0..16 * 64 * 128),
            Self::Objects => (6, first..first + 1_000_000),
        };
        objects.map(move |object| {
            let value = weir_benches::name_value(object * weir_benches::NAMES_PER_PARENT);
            NameView::from_value(&value).expect("a valid name").prefix(components).to_name()
        })
    }
}

struct Bench {
    router: Router,
    pool: Pool,
    out: Outbox,
    now: Instant,
    rng: Rng,
    inputs: Vec<Input>,
}

impl Bench {
    fn new(args: &Args) -> Self {
        let footprint = Pool::footprint(weir_benches::data(0, args.payload).len()) as u64;
        let store = StoreConfig {
            // Capacity for all entries with their index, so that the store evicts nothing. The 320
            // bytes were measured with a larger store.
            capacity_bytes: args.entries * (footprint + 320),
            ..StoreConfig::default()
        };
        let config = RouterConfig {
            hash_key: HashKey::new([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]),
            store,
            ..RouterConfig::default()
        };
        let mut bench = Self {
            router: Router::new(Instant::ZERO, config),
            pool: Pool::new(64 << 20),
            out: Outbox::default(),
            now: Instant::from_ns(NS_PER_MS),
            rng: Rng::from_seed(1),
            inputs: Vec::new(),
        };
        bench.set_up_tables(args);
        if args.track {
            let track = StoreCommand::Track(Some(HoldingsConfig::default()));
            let mut commands = [Input::Command(Command::Store(track))];
            bench.router.handle(bench.now, &mut commands, &mut bench.out);
        }
        bench
    }

    fn set_up_tables(&mut self, args: &Args) {
        let mut commands = Vec::new();
        for face in [CONSUMER, PRODUCER] {
            commands.push(Input::Command(Command::AddFace {
                face,
                attributes: FaceAttributes::point_to_point(FaceScope::NonLocal),
            }));
        }
        // The store is filled with other objects than those of the exchanges, and other next hops.
        let sites = Fib::Sites.prefixes(0);
        let first = args.first_name() / weir_benches::NAMES_PER_PARENT;
        for prefix in sites.chain(args.fib.prefixes(first)) {
            let next_hops = vec![NextHop { face: PRODUCER, cost: 0 }];
            commands.push(Input::Command(Command::SetNextHops { prefix, next_hops }));
        }
        self.router.handle(self.now, &mut commands, &mut self.out);
    }

    fn receive(&mut self, face: FaceId, octets: &[u8]) {
        let packet: Packet = self.pool.copy(octets);
        self.inputs.push(Input::Packet { face, header: LpHeader::default(), packet });
    }

    /// Passes received packets to the router and drops its output. Returns the time.
    fn handle(&mut self) -> Duration {
        self.now = self.now.plus_ns(1000);
        let start = Clock::now();
        self.router.handle(self.now, &mut self.inputs, &mut self.out);
        let took = start.elapsed();
        let start = Clock::now();
        self.inputs.clear();
        self.out.packets.clear();
        took + start.elapsed()
    }

    /// Requests and answers all names, so that they are stored.
    fn fill(&mut self, args: &Args) {
        for index in 0..args.entries {
            let nonce = self.rng.next_u32();
            self.receive(CONSUMER, &weir_benches::interest(index, nonce));
            self.receive(PRODUCER, &weir_benches::data(index, args.payload));
            if self.inputs.len() >= args.batch {
                self.handle();
            }
        }
        self.handle();
    }

    fn hits(&mut self, args: &Args, mut pick: impl FnMut(&mut Rng) -> u64) -> f64 {
        let mut took = Duration::ZERO;
        let before = self.router.stats().store.hits;
        let mut done = 0;
        while done < args.operations {
            for _ in 0..args.batch {
                let mut rng = self.rng.clone();
                let index = pick(&mut rng);
                let nonce = rng.next_u32();
                self.rng = rng;
                self.receive(CONSUMER, &weir_benches::interest(index, nonce));
            }
            took += self.handle();
            done += args.batch as u64;
        }
        let hits = self.router.stats().store.hits - before;
        assert_eq!(hits, done, "every Interest of this measurement is a hit");
        took.as_secs_f64() / done as f64
    }

    fn exchanges(&mut self, args: &Args, next: &mut u64) -> f64 {
        let mut pending = VecDeque::with_capacity(args.outstanding + args.batch);
        let half = args.batch / 2;
        while pending.len() < args.outstanding {
            pending.push_back(self.request_object(next, args.interleave));
            self.handle();
        }
        let mut took = Duration::ZERO;
        let before = self.router.stats().satisfied;
        let mut done = 0;
        while done < args.operations {
            for _ in 0..half {
                pending.push_back(self.request_object(next, args.interleave));
            }
            for index in pending.drain(..half).collect::<Vec<_>>() {
                self.receive(PRODUCER, &weir_benches::data(index, args.payload));
            }
            took += self.handle();
            done += half as u64;
        }
        assert_eq!(self.router.stats().satisfied - before, done, "every Interest was answered");
        for index in pending {
            self.receive(PRODUCER, &weir_benches::data(index, args.payload));
            self.handle();
        }
        took.as_secs_f64() / done as f64
    }

    /// The most expensive exchange: its name has the maximum number of components. Other Data share
    /// at most two of them. Interests with CanBePrefix of nearly every length wait for other Data.
    fn worst_exchanges(&mut self, args: &Args) -> f64 {
        let site: Name = "/weir/site00".parse().expect("a valid name");
        let mut waiting = site.clone();
        while waiting.component_count() < NAME_COMPONENTS_MAX - 1 {
            waiting.append_str("waiting");
            let nonce = self.rng.next_u32();
            let interest = Interest::new(waiting.clone()).can_be_prefix(true).nonce(nonce);
            self.receive(CONSUMER, &interest.lifetime_ms(60_000).encode());
        }
        self.handle();
        let mut took = Duration::ZERO;
        let before = self.router.stats().satisfied;
        let mut done = 0;
        while done < args.operations / 10 {
            let names: Vec<Name> = (0..args.batch / 2).map(|_| self.long_name(&site)).collect();
            for name in &names {
                let nonce = self.rng.next_u32();
                self.receive(CONSUMER, &Interest::new(name.clone()).nonce(nonce).encode());
            }
            took += self.handle();
            for name in names {
                self.receive(PRODUCER, &Data::new(name).encode_with_digest());
                done += 1;
            }
            took += self.handle();
        }
        assert_eq!(self.router.stats().satisfied - before, done, "every Interest was answered");
        took.as_secs_f64() / done as f64
    }

    fn long_name(&mut self, prefix: &Name) -> Name {
        let mut name = prefix.clone();
        name.append_str(&self.rng.next_u64().to_string());
        while name.component_count() < NAME_COMPONENTS_MAX {
            name.append_str("long");
        }
        name
    }

    /// Requests the next name, from `objects` objects in turn.
    fn request_object(&mut self, next: &mut u64, objects: u64) -> u64 {
        let names = weir_benches::NAMES_PER_PARENT;
        let (round, at) = (*next / (objects * names), *next % (objects * names));
        let index = (round * objects + at % objects) * names + at / objects;
        *next += 1;
        let nonce = self.rng.next_u32();
        self.receive(CONSUMER, &weir_benches::interest(index, nonce));
        index
    }

    /// Only hashes and parses names, for comparison: no table can avoid that.
    fn parse(&mut self, args: &Args) -> f64 {
        let key = HashKey::new([1, 2]);
        let mut took = Duration::ZERO;
        let mut sum = 0_u64;
        let mut done = 0;
        while done < args.operations {
            let index = u64::from(self.rng.below(args.entries as u32));
            let value = weir_benches::name_value(index);
            let start = Clock::now();
            for _ in 0..64 {
                let name = NameView::from_value(std::hint::black_box(&value)).expect("valid");
                let mut hasher = key.prefixes(name.value());
                let mut end = 0;
                for component in name.components() {
                    end += component.wire.len();
                    sum ^= hasher.hash_to(end);
                }
            }
            took += start.elapsed();
            done += 64;
        }
        std::hint::black_box(sum);
        took.as_secs_f64() / done as f64
    }
}

fn main() {
    let args = Args::parse();
    let mut bench = Bench::new(&args);
    eprintln!("filling the store with {} Data of {} bytes", args.entries, args.payload);
    bench.fill(&args);
    let stored = bench.router.stats().store.entries;
    assert_eq!(stored, args.entries, "the store holds all of them");
    let mut zipf_source = Pcg64::seed_from_u64(2);
    let zipf = Zipf::new(args.entries as f64, 0.8).expect("valid parameters");
    let mut next = args.first_name();
    let mut results = serde_json::Map::new();
    type Measure<'a> = (&'a str, Box<dyn FnMut(&mut Bench) -> f64 + 'a>);
    let measures: Vec<Measure<'_>> = vec![
        ("parse_and_hash", Box::new(|bench| bench.parse(&args))),
        (
            "hit_uniform",
            Box::new(|bench| bench.hits(&args, |rng| u64::from(rng.below(args.entries as u32)))),
        ),
        (
            "hit_zipf_0.8",
            Box::new(|bench| {
                // Spread the ranks over the names: in practice, popular names are not neighbours.
                bench.hits(&args, |_| {
                    let rank = zipf.sample(&mut zipf_source) as u64 - 1;
                    rank.wrapping_mul(0x9E37_79B9) % args.entries
                })
            }),
        ),
        ("worst", Box::new(|bench| bench.worst_exchanges(&args))),
        ("exchange", Box::new(|bench| bench.exchanges(&args, &mut next))),
    ];
    for (name, mut measure) in measures {
        if !args.only.iter().any(|word| name.contains(word)) {
            continue;
        }
        let seconds = median((0..args.rounds).map(|_| measure(&mut bench)).collect());
        if !args.json {
            println!("{name:16} {:7.1} ns  {:6.2} M/s", seconds * 1e9, 1e-6 / seconds);
        }
        results.insert(name.into(), serde_json::json!({ "ns": seconds * 1e9 }));
    }
    if args.json {
        println!("{}", serde_json::Value::Object(results));
    }
}
