//! Compares the adaptive bypass with every fixed threshold, over arrival rates, disk speeds and
//! distances to the next hop. For the whole grid and its table, run `cargo test --release -p
//! weir-netsim --test all sweep -- --ignored --nocapture`.

use crate::common;

use common::{
    MS, PlanBuilder, S, consumer, names, poisson, producer, run_with, with_disk, without_store,
};
use weir_base::units::Time;
use weir_forward::{Bypass, Mark};
use weir_netem::{DiskConfig, LinkConfig, ServiceTime};
use weir_options::DisksOptions;
use weir_plan::event::{Event, EventKind, Observer};
use weir_plan::workload::{Arrivals, Demand, Popularity};
use weir_plan::{DiskPlan, Plan};

/// Objects of one segment, requested in turn. There are more than can be in flight, so no two
/// Interests share a read or an answer.
const OBJECTS: u64 = 10_000;
/// Fraction of a run to skip: the first Interests pass before anything was measured.
const WARM_UP: f64 = 0.4;
/// Minimum length of a run, in round trips.
const ROUND_TRIPS: f64 = 40.0;
const SEEDS: [u64; 2] = [1, 2];

/// Fixed thresholds; `None` never bypasses.
const THRESHOLDS: [Option<u32>; 9] =
    [Some(0), Some(8), Some(16), Some(32), Some(64), Some(128), Some(256), Some(400), None];
const DEFAULT: Option<u32> = Some(64);

/// What is behind the next hop.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FarProducer {
    /// A producer that answers any number at once.
    Producer,
    /// A router with an equal disk, and the producer behind it at the same distance again.
    Disk,
}

/// One point of the grid.
#[derive(Clone, Copy, Debug)]
struct Cell {
    beyond: FarProducer,
    /// Mean time of a read, ns. The disk reads one record at a time.
    read_ns: u64,
    /// Arrival rate over read rate.
    load: f64,
    /// Round trip to the next hop, ns.
    round_trip_ns: u64,
    interests: u64,
    /// Size of arrival bursts, and the pause between them in ns.
    bursts: Option<(u32, u64)>,
    /// Arrival rate of other traffic at the next hop's disk, over its read rate.
    others: f64,
}

impl Cell {
    fn steady(
        beyond: FarProducer,
        read_ns: u64,
        load: f64,
        round_trip_ns: u64,
        interests: u64,
    ) -> Self {
        Self { beyond, read_ns, load, round_trip_ns, interests, bursts: None, others: 0.0 }
    }

    /// Interests per second from the consumer at the first router.
    fn rate_hz(&self) -> f64 {
        match self.bursts {
            Some((size, off_ns)) => f64::from(size) * 1e9 / off_ns as f64,
            None => self.load * 1e9 / self.read_ns as f64,
        }
    }
}

/// Sums up answer times.
struct Times {
    from_ns: u64,
    sum_ns: u64,
    count: u64,
}

impl Observer for Times {
    fn observe(&mut self, event: &Event) {
        if let EventKind::DataReceived { rtt_ns, .. } = event.kind
            && event.at_ns - rtt_ns >= self.from_ns
        {
            self.sum_ns += rtt_ns;
            self.count += 1;
        }
    }
}

fn plan(cell: &Cell, seed: u64, bypass: Bypass, threshold: u32) -> Plan {
    let rate_hz = cell.rate_hz();
    let asking_ns = cell.interests as f64 / rate_hz * 1e9;
    let duration_ns = asking_ns.max(ROUND_TRIPS * cell.round_trip_ns as f64);
    let mut builder = PlanBuilder::new(seed, duration_ns as u64);
    builder.plan.drain_ns = 30 * S;
    builder.local = LinkConfig::default();
    let disk = DiskPlan {
        bytes: 64 << 20,
        device: DiskConfig {
            read: ServiceTime::Exponential { mean_ns: cell.read_ns },
            ..DiskConfig::default()
        },
        filled: 1.0,
        options: DisksOptions {
            bypass,
            threshold,
            mark: Mark::Off,
            stalled_after: Time { ns: 20 * S },
            ..DiskPlan::recorded_options()
        },
        ..DiskPlan::default()
    };
    let with_disk = with_disk(disk);
    let link = LinkConfig {
        delay_ns: cell.round_trip_ns / 2,
        queue_packets_max: 1 << 20,
        ..LinkConfig::default()
    };
    let near = builder.router(with_disk.clone());
    let mut last = near;
    if cell.beyond == FarProducer::Disk {
        last = builder.router(with_disk);
        builder.link(near, last, &link);
    }
    let far = builder.router(without_store());
    builder.link(last, far, &link);
    let content = names("/p", Popularity::Sequential { objects: OBJECTS }, 100, 100);
    let arrivals = match cell.bursts {
        Some((size, off_ns)) => {
            let off_max_ns = off_ns;
            Demand::Arrivals {
                arrivals: Arrivals::Bursts { rate_hz: 5e4, size, off_ns, off_max_ns },
            }
        }
        None => poisson(rate_hz),
    };
    let mut asks = consumer(content.clone(), arrivals);
    asks.lifetime_ms = 60_000;
    builder.consumer(near, asks);
    builder.producer(far, producer(content));
    if cell.others > 0.0 {
        let content = names("/q", Popularity::Sequential { objects: OBJECTS }, 100, 100);
        let mut asks = consumer(content.clone(), poisson(cell.others * 1e9 / cell.read_ns as f64));
        asks.lifetime_ms = 60_000;
        builder.consumer(last, asks);
        builder.producer(far, producer(content));
    }
    builder.plan
}

/// Mean answer time, ns.
fn mean_ns(cell: &Cell, bypass: Bypass, threshold: u32) -> f64 {
    let means = SEEDS.map(|seed| {
        let plan = plan(cell, seed, bypass, threshold);
        let from_ns = (plan.duration_ns as f64 * WARM_UP) as u64;
        let mut times = Times { from_ns, sum_ns: 0, count: 0 };
        run_with(&plan, &mut times);
        times.sum_ns as f64 / times.count as f64
    });
    means.iter().sum::<f64>() / means.len() as f64
}

/// Results of one point.
struct Outcome {
    cell: Cell,
    best: (Option<u32>, f64),
    default_ns: f64,
    adaptive_ns: f64,
}

impl Outcome {
    fn of(cell: Cell) -> Self {
        let fixed = THRESHOLDS.map(|threshold| {
            let bypass = if threshold.is_some() { Bypass::Threshold } else { Bypass::Off };
            (threshold, mean_ns(&cell, bypass, threshold.unwrap_or(64)))
        });
        let best = fixed.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        let default_ns = fixed.iter().find(|(threshold, _)| *threshold == DEFAULT).unwrap().1;
        let adaptive_ns = mean_ns(&cell, Bypass::Adaptive, 64);
        Self { cell, best, default_ns, adaptive_ns }
    }

    /// Extra time compared with the best threshold, as a fraction.
    fn regret(&self) -> f64 {
        self.adaptive_ns / self.best.1 - 1.0
    }

    /// Time saved compared with the default threshold, as a fraction.
    fn gain(&self) -> f64 {
        1.0 - self.adaptive_ns / self.default_ns
    }

    fn print(&self) {
        let Cell { beyond, read_ns, load, round_trip_ns, bursts, others, .. } = self.cell;
        let (threshold, best_ns) = self.best;
        let threshold = threshold.map_or("off".into(), |threshold| threshold.to_string());
        println!(
            "{beyond:>8?} read {:>5.2} ms, load {load:>4}, bursts {bursts:?}, others {others}, \
             round trip {:>6.1} ms: \
             best {threshold:>3} {:>8.3} ms, 64 {:>8.3} ms, adaptive {:>8.3} ms: \
             {:>+6.1} % of best, {:>+6.1} % of 64",
            read_ns as f64 / 1e6,
            round_trip_ns as f64 / 1e6,
            best_ns / 1e6,
            self.default_ns / 1e6,
            self.adaptive_ns / 1e6,
            100.0 * self.regret(),
            -100.0 * self.gain(),
        );
    }
}

fn sweep(cells: impl Iterator<Item = Cell>) {
    let outcomes: Vec<Outcome> = cells
        .map(|cell| {
            let outcome = Outcome::of(cell);
            outcome.print();
            outcome
        })
        .collect();
    let worst = outcomes.iter().map(Outcome::regret).fold(f64::MIN, f64::max);
    let most = outcomes.iter().map(Outcome::gain).fold(f64::MIN, f64::max);
    let better = outcomes.iter().filter(|outcome| outcome.gain() >= 0.2).count();
    println!(
        "{} cells: at worst {:+.1} % of the best threshold; 20 % better than 64 in {better}, at \
         most {:.1} %",
        outcomes.len(),
        100.0 * worst,
        100.0 * most
    );
    assert!(worst <= 0.05, "adaptive is {:.1} % worse than the best threshold", 100.0 * worst);
    assert!(most >= 0.2, "adaptive is at most {:.1} % better than 64", 100.0 * most);
}

#[test]
fn adaptive_matches_best_threshold() {
    let cells = [
        (MS / 10, 0.7, 2 * MS),
        (MS / 10, 1.5, 2 * MS),
        (2 * MS, 1.5, 10 * MS),
        (2 * MS, 3.0, 200 * MS),
    ];
    let cells = cells.into_iter().map(|(read_ns, load, round_trip_ns)| {
        Cell::steady(FarProducer::Producer, read_ns, load, round_trip_ns, 10_000)
    });
    let bursts = Some((250, 2 * S));
    let others = Cell::steady(FarProducer::Disk, MS / 5, 0.9, MS, 10_000);
    sweep(cells.chain([
        Cell { bursts, ..Cell::steady(FarProducer::Producer, MS / 5, 0.0, 50 * MS, 2500) },
        Cell { others: 0.8, ..others },
    ]));
}

fn grid(read_ns: u64) -> impl Iterator<Item = Cell> {
    let cells = |beyond, loads: &[f64], round_trips_ns: &[u64]| {
        let mut cells = Vec::new();
        for &load in loads {
            for &round_trip_ns in round_trips_ns {
                cells.push(Cell::steady(beyond, read_ns, load, round_trip_ns, 20_000));
            }
        }
        cells
    };
    let round_trips_ns = [MS / 2, 2 * MS, 10 * MS, 50 * MS, 200 * MS];
    let one = cells(FarProducer::Producer, &[0.5, 0.9, 1.1, 1.5, 3.0], &round_trips_ns);
    let two = cells(FarProducer::Disk, &[0.9, 1.5, 3.0], &[2 * MS, 10 * MS, 50 * MS]);
    one.into_iter().chain(two)
}

#[test]
#[ignore = "takes minutes"]
fn adaptive_matches_best_threshold_fast_ssd() {
    sweep(grid(MS / 10));
}

#[test]
#[ignore = "takes minutes"]
fn adaptive_matches_best_threshold_paper_ssd() {
    sweep(grid(213_000));
}

#[test]
#[ignore = "takes minutes"]
fn adaptive_matches_best_threshold_paper_hdd() {
    sweep(grid(2_415_000));
}
