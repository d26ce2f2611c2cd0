//! Filter and index of the disk tier: octets of RAM for each Data on disk, and what a lookup costs.
//!
//! `cargo run --release -p weir-benches --bin store_index` takes each workload in a process of its
//! own, so that what the process grew by is the index and the filter. Hashes of names are made up,
//! uniform as those of the keyed hash are. Times are of one thread's processor, lookups one after
//! another at random places, without prefetching. For instructions, which do not depend on the
//! machine's mood, see the README.

use std::hint::black_box;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use cpu_time::ThreadTime;
use weir_base::{CountingBloom, Rng, mix};
use weir_store::disk::index::DiskIndex;
use weir_store::disk::place::{Key, Place, WHOLE};

#[derive(Parser)]
struct Args {
    /// Data on disk.
    #[arg(long, default_value_t = 10_000_000)]
    segments: u64,
    /// False positives of the filter among a million.
    #[arg(long, default_value_t = 10_000)]
    false_positives_ppm: u32,
    /// Lookups measured of each kind.
    #[arg(long, default_value_t = 5_000_000)]
    operations: u64,
    /// Only this one.
    #[arg(long)]
    workload: Option<Workload>,
}

#[derive(Copy, Clone, PartialEq, ValueEnum)]
enum Workload {
    /// Objects of 1 GiB in segments of 8 KiB, admitted in order.
    Large,
    /// Objects of 26.2 MB, in order.
    Medium,
    /// Objects of 3.6 MB, in order.
    Small,
    /// Objects of 3.6 MB, all segments of all objects in random order.
    SmallShuffled,
    /// Objects of 3.6 MB of which every second segment is on disk.
    SmallHalf,
    /// Objects of 3.6 MB of which one of each two segments is on disk, whichever.
    SmallSparse,
    /// Objects of one packet, which is segment 0.
    SegmentZero,
    /// Data without a segment number.
    Whole,
}

/// Objects in one folder.
const FOLDER: u64 = 1000;
/// Components of the name of a folder.
const FOLDER_COMPONENTS: u64 = 5;

impl Workload {
    /// Segments of an object, those that are not on disk included.
    fn object_segments(self) -> u64 {
        match self {
            Self::Large => (1 << 30) / 8192,
            Self::Medium => 26_200_000_u64.div_ceil(8192),
            Self::Small | Self::SmallShuffled | Self::SmallHalf | Self::SmallSparse => {
                3_600_000_u64.div_ceil(8192)
            }
            Self::SegmentZero | Self::Whole => 1,
        }
    }

    /// The key of Data number `number` in order, and the object's number.
    fn key(self, number: u64) -> (Key, u64) {
        let (object, segment) = match self {
            Self::SmallHalf | Self::SmallSparse => {
                let kept = self.object_segments() / 2;
                let nth = number % kept * 2;
                let is_odd = self == Self::SmallSparse && mix(number) & 1 != 0;
                (number / kept, nth + u64::from(is_odd))
            }
            _ => (number / self.object_segments(), number % self.object_segments()),
        };
        let segment = if self == Self::Whole { WHOLE } else { segment };
        (Key { object: object_hash(object), segment }, object)
    }
}

fn object_hash(object: u64) -> u64 {
    mix(object.wrapping_add(1) ^ 0xC0FF_EE00_0000_0000)
}

/// Hashes of the names of the folders that the object is in, shortest first: 100 at each level.
fn path(object: u64, prefixes: &mut Vec<u64>) {
    let mut folder = object / FOLDER;
    let mut hashes = [0; FOLDER_COMPONENTS as usize];
    for (level, hash) in (0..FOLDER_COMPONENTS).zip(&mut hashes) {
        *hash = mix(folder << 8 | (level + 1));
        folder /= 100;
    }
    prefixes.extend(hashes.iter().rev());
}

/// Octets of the process in memory.
fn resident_bytes() -> anyhow::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").context("reading /proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).context("/proc/self/statm is short")?.parse()?;
    Ok(pages * 4096)
}

/// A permutation of `0..count` that takes no memory: what falls outside is permuted again.
fn shuffled(number: u64, count: u64) -> u64 {
    let bits = count.next_power_of_two().trailing_zeros().max(2);
    let mask = (1 << bits) - 1;
    let mut at = number;
    loop {
        for _ in 0..3 {
            at = at.wrapping_mul(0x9E37_79B9_7F4A_7C15 | 1) & mask;
            at ^= at >> (bits / 2);
        }
        if at < count {
            return at;
        }
    }
}

#[inline(never)]
fn fill(args: &Args, workload: Workload, index: &mut DiskIndex, filter: &mut CountingBloom) {
    for number in 0..args.segments {
        let is_shuffled = workload == Workload::SmallShuffled;
        let number_in_order = if is_shuffled { shuffled(number, args.segments) } else { number };
        let (key, object) = workload.key(number_in_order);
        let place = Place::new(0, number * 17, 17, (number >> 13) as u8);
        filter.insert(key.filter_hash());
        let before = index.insert(key, place, |prefixes| path(object, prefixes));
        assert!(before.is_none(), "keys are different");
    }
}

#[inline(never)]
fn find_all(index: &DiskIndex, keys: &[Key]) -> u64 {
    keys.iter().filter(|&&key| black_box(index.find(key)).is_some()).count() as u64
}

#[inline(never)]
fn contains_all(filter: &CountingBloom, hashes: &[u64]) -> u64 {
    hashes.iter().filter(|&&hash| black_box(filter.contains(hash))).count() as u64
}

fn ns_each(time: Duration, operations: u64) -> f64 {
    time.as_nanos() as f64 / operations as f64
}

fn measure(args: &Args, workload: Workload) -> anyhow::Result<()> {
    let resident_before = resident_bytes()?;
    let mut filter = CountingBloom::new(args.segments, args.false_positives_ppm);
    let mut index = DiskIndex::new();
    let clock = ThreadTime::now();
    fill(args, workload, &mut index, &mut filter);
    let insert_ns = ns_each(clock.elapsed(), args.segments);
    let resident = resident_bytes()? - resident_before;
    let scattered_bytes = index.memory_bytes() as u64;
    let clock = ThreadTime::now();
    let steps = index.round_steps();
    index.sweep(steps, |_, place| black_box(place).units() > 0);
    let sweep_ns = ns_each(clock.elapsed(), steps as u64);
    let each = |bytes: u64| bytes as f64 / args.segments as f64;
    let index_bytes = index.memory_bytes() as u64;
    let filter_bytes = filter.memory_bytes() as u64;

    let mut rng = Rng::from_seed(1);
    let mut random = || rng.next_u64() % args.segments;
    let keys: Vec<Key> = (0..args.operations).map(|_| workload.key(random()).0).collect();
    let clock = ThreadTime::now();
    let found = find_all(&index, &keys);
    let find_ns = ns_each(clock.elapsed(), args.operations);
    anyhow::ensure!(found == args.operations, "{found} of {} found", args.operations);
    let hashes: Vec<u64> = keys.iter().map(|key| key.filter_hash()).collect();
    let clock = ThreadTime::now();
    let known = contains_all(&filter, &hashes);
    let yes_ns = ns_each(clock.elapsed(), args.operations);
    anyhow::ensure!(known == args.operations, "the filter denies what is in it");
    let strangers: Vec<u64> = (0..args.operations).map(|_| rng.next_u64()).collect();
    let clock = ThreadTime::now();
    let wrong = contains_all(&filter, &strangers);
    let no_ns = ns_each(clock.elapsed(), args.operations);

    let name = workload.to_possible_value().context("a workload without a name")?;
    println!(
        "{:<15} {:>6.2} {:>6.2} {:>6.2} {:>6.2} {:>8.2} {:>8} {insert_ns:>7.0} {find_ns:>6.0} \
         {yes_ns:>6.0} {no_ns:>6.0} {sweep_ns:>6.0} {:>7.4} {:>7.4}",
        name.get_name(),
        each(scattered_bytes),
        each(index_bytes),
        each(filter_bytes),
        each(index_bytes + filter_bytes),
        each(resident),
        index.prefixes(),
        wrong as f64 * 100.0 / args.operations as f64,
        filter.false_positive_rate(args.segments) * 100.0,
    );
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(workload) = args.workload {
        return measure(&args, workload);
    }
    println!(
        "Octets each: index before and after a sweep, filter, both; resident before. Prefixes.\n\
         ns each: insert, find, filter that says yes or no, step of the sweep. False positives."
    );
    println!(
        "{:<15} {:>6} {:>6} {:>6} {:>6} {:>8} {:>8} {:>7} {:>6} {:>6} {:>6} {:>6} {:>7} {:>7}",
        "",
        "before",
        "index",
        "filter",
        "sum",
        "resident",
        "nodes",
        "insert",
        "find",
        "yes",
        "no",
        "sweep",
        "wrong %",
        "theory"
    );
    for workload in Workload::value_variants() {
        let name = workload.to_possible_value().context("a workload without a name")?;
        let status = Command::new(std::env::current_exe()?)
            .args(["--workload", name.get_name()])
            .args(["--segments", &args.segments.to_string()])
            .args(["--operations", &args.operations.to_string()])
            .args(["--false-positives-ppm", &args.false_positives_ppm.to_string()])
            .status()?;
        anyhow::ensure!(status.success(), "{} failed", name.get_name());
    }
    Ok(())
}
