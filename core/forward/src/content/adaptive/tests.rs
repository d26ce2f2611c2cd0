//! A simulation of one router with a disk and a next hop. The policy was tuned with it, and these
//! tests keep the result.

extern crate std;

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;

use weir_base::Rng;

use super::*;
use crate::content::thresholds::THRESHOLDS;
use crate::table::measurements::{Flight, FlightEnd, MODELS_MAX};

/// The distribution of service times.
#[derive(Clone, Copy, Debug)]
enum Service {
    Exponential,
    Constant,
}

/// Servers with one queue.
#[derive(Clone, Copy, Debug)]
struct ServiceModel {
    /// 0 means as many as there are requests.
    servers: u32,
    mean_ns: f64,
    service: Service,
}

/// The arrivals of Interests.
#[derive(Clone, Copy, Debug)]
enum Arrivals {
    Steady,
    /// A number of Interests at once, and pauses of fixed length between these bursts.
    Bursts {
        size: usize,
        pause_ns: (f64, f64),
    },
    /// Poisson arrivals in periods of exponential length, with pauses of exponential length.
    OnOff {
        on_ns: f64,
        off_ns: f64,
    },
    /// A constant number of outstanding Interests.
    Window(usize),
}

/// Arrivals at a disk. An Interest that bypasses it has a fixed delay and another queue.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    arrivals: Arrivals,
    gap_ns: f64,
    /// The same for the second half.
    later_gap_ns: f64,
    /// Interval of Poisson arrivals of others at the other queue; 0 for none.
    others_gap_ns: f64,
    disk: ServiceModel,
    delay_ns: f64,
    upstream: ServiceModel,
}

impl Scenario {
    fn steady(gap_ns: f64, disk: ServiceModel, delay_ns: f64, upstream: ServiceModel) -> Self {
        let (arrivals, later_gap_ns) = (Arrivals::Steady, gap_ns);
        Self { arrivals, gap_ns, later_gap_ns, others_gap_ns: 0.0, disk, delay_ns, upstream }
    }
}

struct Queue {
    service_model: ServiceModel,
    busy: u32,
    waiting: VecDeque<usize>,
}

impl Queue {
    fn new(service_model: ServiceModel) -> Self {
        Self { service_model, busy: 0, waiting: VecDeque::new() }
    }

    fn len(&self) -> u32 {
        self.busy + self.waiting.len() as u32
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Arrival,
    OtherArrival,
    ReadDone(usize),
    Upstream(usize),
    UpstreamDone(usize),
}

#[derive(Clone, Copy)]
enum Policy {
    Threshold(u32),
    Adaptive,
}

struct Request {
    at_ns: u64,
    is_own: bool,
    ahead: u32,
    flight: Option<Flight>,
}

struct Model {
    scenario: Scenario,
    rng: Rng,
    now_ns: u64,
    events: BinaryHeap<Reverse<(u64, u64, What)>>,
    order: u64,
    requests: Vec<Request>,
    disk: Queue,
    upstream: Queue,
    adaptive: Adaptive,
    measurements: Measurements,
    hop: u32,
    total_ns: f64,
    counted: u64,
    skip: usize,
    own: usize,
    on_until_ns: f64,
}

impl Model {
    fn run(scenario: Scenario, policy: Policy, count: usize, seed: u64) -> f64 {
        let mut measurements = Measurements::default();
        let hop = measurements.insert(Instant::ZERO);
        let mut model = Self {
            scenario,
            rng: Rng::from_seed(seed),
            now_ns: 0,
            events: BinaryHeap::new(),
            order: 0,
            requests: Vec::new(),
            disk: Queue::new(scenario.disk),
            upstream: Queue::new(scenario.upstream),
            adaptive: Adaptive::default(),
            measurements,
            hop,
            total_ns: 0.0,
            counted: 0,
            skip: count / 10,
            own: 0,
            on_until_ns: 0.0,
        };
        let first = if let Arrivals::Window(window) = scenario.arrivals { window } else { 1 };
        (0..first).for_each(|_| model.push(1, What::Arrival));
        if scenario.others_gap_ns > 0.0 {
            model.push(1, What::OtherArrival);
        }
        while let Some(Reverse((at_ns, _, what))) = model.events.pop() {
            model.now_ns = at_ns;
            match what {
                What::Arrival => model.arrive(policy, count),
                What::OtherArrival => model.arrive_elsewhere(count),
                What::ReadDone(request) => model.read_done(request, count),
                What::Upstream(request) => model.enter(true, request),
                What::UpstreamDone(request) => model.upstream_done(request, count),
            }
        }
        model.total_ns / model.counted as f64
    }

    fn push(&mut self, in_ns: u64, what: What) {
        self.order += 1;
        self.events.push(Reverse((self.now_ns + in_ns, self.order, what)));
    }

    fn exponential(&mut self, mean_ns: f64) -> u64 {
        (-(1.0 - self.rng.unit()).ln() * mean_ns) as u64
    }

    fn enter(&mut self, is_upstream: bool, request: usize) {
        let queue = if is_upstream { &mut self.upstream } else { &mut self.disk };
        if queue.service_model.servers != 0 && queue.busy >= queue.service_model.servers {
            queue.waiting.push_back(request);
            return;
        }
        queue.busy += 1;
        self.serve(is_upstream, request);
    }

    fn serve(&mut self, is_upstream: bool, request: usize) {
        let service_model =
            if is_upstream { self.upstream.service_model } else { self.disk.service_model };
        let took_ns = match service_model.service {
            Service::Exponential => self.exponential(service_model.mean_ns),
            Service::Constant => service_model.mean_ns as u64,
        };
        let what = if is_upstream { What::UpstreamDone(request) } else { What::ReadDone(request) };
        self.push(took_ns, what);
    }

    fn leave(&mut self, is_upstream: bool) {
        let queue = if is_upstream { &mut self.upstream } else { &mut self.disk };
        match queue.waiting.pop_front() {
            Some(next) => self.serve(is_upstream, next),
            None => queue.busy -= 1,
        }
    }

    fn arrive(&mut self, policy: Policy, count: usize) {
        let queue = self.disk.len();
        let choice = match policy {
            Policy::Threshold(threshold) if queue < threshold => DiskChoice::Disk,
            Policy::Threshold(_) => DiskChoice::NextHop { position: 0, is_probe: false },
            Policy::Adaptive => {
                let home = DiskQueue { disk: 0, length: queue };
                let now = Instant::from_ns(self.now_ns);
                let hops = [(0, self.hop)].into_iter();
                self.adaptive.choose(now, home, 64, &mut self.measurements, hops)
            }
        };
        let request = self.requests.len();
        let flight = match (choice, policy) {
            (DiskChoice::NextHop { .. }, Policy::Adaptive) => {
                Some(self.measurements.begin(Instant::from_ns(self.now_ns), self.hop))
            }
            _ => None,
        };
        self.own += 1;
        let at_ns = self.now_ns;
        self.requests.push(Request { at_ns, is_own: true, ahead: queue, flight });
        match choice {
            DiskChoice::Disk => self.enter(false, request),
            DiskChoice::NextHop { .. } => {
                self.push(self.scenario.delay_ns as u64, What::Upstream(request))
            }
        }
        if self.own < count && !matches!(self.scenario.arrivals, Arrivals::Window(_)) {
            let gap_ns = self.next_gap_ns(count);
            self.push(gap_ns, What::Arrival);
        }
    }

    fn next_gap_ns(&mut self, count: usize) -> u64 {
        let Scenario { arrivals, gap_ns, later_gap_ns, .. } = self.scenario;
        let mean_ns = if self.own > count / 2 { later_gap_ns } else { gap_ns };
        match arrivals {
            Arrivals::Steady | Arrivals::Window(_) => self.exponential(mean_ns),
            Arrivals::Bursts { size, .. } if !self.own.is_multiple_of(size) => 1000,
            Arrivals::Bursts { pause_ns: (least, most), .. } => {
                (least + (most - least) * self.rng.unit()) as u64
            }
            Arrivals::OnOff { on_ns, off_ns } => {
                let gap_ns = self.exponential(mean_ns);
                let left_ns = (self.on_until_ns - self.now_ns as f64).max(0.0);
                if gap_ns as f64 <= left_ns {
                    return gap_ns;
                }
                let gap_ns = left_ns as u64 + self.exponential(off_ns);
                self.on_until_ns = (self.now_ns + gap_ns + self.exponential(on_ns)) as f64;
                gap_ns
            }
        }
    }

    fn arrive_elsewhere(&mut self, count: usize) {
        let request = self.requests.len();
        let at_ns = self.now_ns;
        self.requests.push(Request { at_ns, is_own: false, ahead: 0, flight: None });
        self.enter(true, request);
        if self.own < count {
            let gap_ns = self.exponential(self.scenario.others_gap_ns);
            self.push(gap_ns, What::OtherArrival);
        }
    }

    fn count(&mut self, request: usize, count: usize) -> u64 {
        let is_windowed = matches!(self.scenario.arrivals, Arrivals::Window(_));
        if is_windowed && self.requests[request].is_own && self.own < count {
            self.push(1, What::Arrival);
        }
        let took_ns = self.now_ns - self.requests[request].at_ns;
        if request >= self.skip {
            self.total_ns += took_ns as f64;
            self.counted += 1;
        }
        took_ns
    }

    fn read_done(&mut self, request: usize, count: usize) {
        let took_ns = self.count(request, count);
        let now = Instant::from_ns(self.now_ns);
        let ahead = self.requests[request].ahead;
        self.adaptive.on_read(now, 0, ahead, self.disk.len() - 1, took_ns);
        self.leave(false);
    }

    fn upstream_done(&mut self, request: usize, count: usize) {
        self.count(request, count);
        if let Some(flight) = self.requests[request].flight {
            self.measurements.on_data(Instant::from_ns(self.now_ns), flight, true);
        }
        self.leave(true);
    }
}

/// Mean times, in units of the disk's service time.
struct Outcome {
    scenario: Scenario,
    adaptive: f64,
    best: f64,
    best_threshold: u32,
    default: f64,
}

impl fmt::Debug for Outcome {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, adaptive, best, best_threshold, default } = self;
        write!(to, "{scenario:?}: adaptive {adaptive:.3}, threshold {best_threshold} {best:.3}, ")?;
        write!(to, "default {default:.3}")
    }
}

impl Outcome {
    /// Means over `runs` runs. Near saturation, a single run has an error of about 10 %.
    fn of(scenario: Scenario, count: usize, runs: u64) -> Self {
        let unit = scenario.disk.mean_ns / f64::from(scenario.disk.servers) * runs as f64;
        let run = |policy| {
            (1..=runs).map(|seed| Model::run(scenario, policy, count, seed)).sum::<f64>() / unit
        };
        let (best, best_threshold) = THRESHOLDS
            .into_iter()
            .map(|threshold| (run(Policy::Threshold(threshold)), threshold))
            .min_by(|one, other| one.0.total_cmp(&other.0))
            .unwrap();
        let adaptive = run(Policy::Adaptive);
        Self { scenario, adaptive, best, best_threshold, default: run(Policy::Threshold(64)) }
    }

    fn against_best(&self) -> f64 {
        self.adaptive / self.best
    }
}

const LOADS: [f64; 7] = [0.3, 0.7, 0.9, 1.0, 1.2, 1.8, 4.0];

/// One disk, the delays to the next hop in service times, and the speed of the next hop relative to
/// the disk (0: no queue).
fn scenarios(disk: ServiceModel, delays: &[f64], speeds: &[f64], loads: &[f64]) -> Vec<Scenario> {
    let interval_ns = disk.mean_ns / f64::from(disk.servers);
    let service = disk.service;
    let mut scenarios = Vec::new();
    for &delay in delays {
        for &speed in speeds {
            let upstream = match speed {
                0.0 => ServiceModel { servers: 0, mean_ns: 0.1 * interval_ns, service },
                speed => ServiceModel { servers: 1, mean_ns: interval_ns / speed, service },
            };
            // If disk and hop cannot serve the load together, there is no mean time.
            let is_bearable = |load: &&f64| speed == 0.0 || **load <= 0.93 * (1.0 + speed);
            for &load in loads.iter().filter(is_bearable) {
                let (gap_ns, delay_ns) = (interval_ns / load, delay * interval_ns);
                scenarios.push(Scenario::steady(gap_ns, disk, delay_ns, upstream));
            }
        }
    }
    scenarios
}

#[test]
fn no_threshold_is_much_better() {
    let service = Service::Exponential;
    let mut outcomes = Vec::new();
    for (servers, mean_ns) in [(1, 200_000.0), (32, 3_200_000.0)] {
        let disk = ServiceModel { servers, mean_ns, service };
        for scenario in scenarios(disk, &[4.0, 32.0], &[0.0, 4.0], &[0.7, 1.0, 1.8]) {
            outcomes.push(Outcome::of(scenario, 20_000, 1));
        }
    }
    for outcome in &outcomes {
        assert!(outcome.against_best() < 1.1, "{outcome:?}");
    }
    let is_much_better = |outcome: &&Outcome| outcome.adaptive < 0.8 * outcome.default;
    assert!(outcomes.iter().filter(is_much_better).count() >= 4, "{outcomes:?}");
}

#[test]
fn follows_a_changing_load() {
    let service = Service::Exponential;
    let disk = ServiceModel { servers: 1, mean_ns: 200_000.0, service };
    for (before, after) in [(0.5, 4.0), (4.0, 0.5)] {
        let mut scenario = scenarios(disk, &[32.0], &[4.0], &[before])[0];
        scenario.later_gap_ns = disk.mean_ns / after;
        let outcome = Outcome::of(scenario, 30_000, 1);
        assert!(outcome.against_best() < 1.1, "{outcome:?}");
    }
}

/// A disk with one server.
const DISK: ServiceModel =
    ServiceModel { servers: 1, mean_ns: 200_000.0, service: Service::Exponential };
const NO_QUEUE: ServiceModel = ServiceModel { servers: 0, ..DISK };

#[test]
fn detects_empty_queue_between_bursts() {
    for (size, pauses_s, delay_ms) in [(250, (1.0, 5.0), 50.0), (1000, (2.0, 2.0), 200.0)] {
        let pause_ns = (1e9 * pauses_s.0, 1e9 * pauses_s.1);
        let mut scenario = Scenario::steady(0.0, DISK, 1e6 * delay_ms, NO_QUEUE);
        scenario.arrivals = Arrivals::Bursts { size, pause_ns };
        let outcome = Outcome::of(scenario, 30 * size, 1);
        assert!(outcome.against_best() < 1.05, "{outcome:?}");
    }
}

#[test]
fn detects_overload_despite_pauses() {
    for (load, on_ms, off_ms, delay_ms) in [(3.0, 20.0, 80.0, 10.0), (1.5, 100.0, 100.0, 10.0)] {
        let gap_ns = DISK.mean_ns / load;
        let mut scenario = Scenario::steady(gap_ns, DISK, 1e6 * delay_ms, NO_QUEUE);
        scenario.arrivals = Arrivals::OnOff { on_ns: 1e6 * on_ms, off_ns: 1e6 * off_ms };
        let outcome = Outcome::of(scenario, 20_000, 1);
        assert!(outcome.against_best() < 1.1, "{outcome:?}");
    }
}

#[test]
fn counts_extra_wait_of_others() {
    for (own, others, delay_ms) in [(0.9, 0.8, 1.0), (0.9, 0.9, 1.0), (0.95, 0.8, 10.0)] {
        let mut scenario = Scenario::steady(DISK.mean_ns / own, DISK, 1e6 * delay_ms, DISK);
        scenario.others_gap_ns = DISK.mean_ns / others;
        let outcome = Outcome::of(scenario, 30_000, 2);
        assert!(outcome.against_best() < 1.1, "{outcome:?}");
    }
}

#[test]
fn window_does_not_fill_next_hops_disk() {
    for window in [16, 64, 256] {
        let mut scenario = Scenario::steady(0.0, DISK, 1e6, DISK);
        scenario.arrivals = Arrivals::Window(window);
        scenario.others_gap_ns = DISK.mean_ns / 0.5;
        let outcome = Outcome::of(scenario, 60_000, 1);
        assert!(outcome.against_best() < 1.05, "{outcome:?}");
    }
}

#[test]
#[ignore = "thousands of runs"]
fn no_threshold_is_5_percent_better() {
    let mut outcomes = Vec::new();
    for service in [Service::Exponential, Service::Constant] {
        for (servers, mean_ns) in [(1, 200_000.0), (32, 3_200_000.0), (1, 2_400_000.0)] {
            let disk = ServiceModel { servers, mean_ns, service };
            for scenario in scenarios(disk, &[0.5, 4.0, 32.0, 256.0], &[0.0, 1.0, 4.0], &LOADS) {
                outcomes.push(Outcome::of(scenario, 60_000, 3));
            }
        }
    }
    outcomes.sort_by(|one, other| other.against_best().total_cmp(&one.against_best()));
    for outcome in &outcomes[..20] {
        std::println!("{:.3} of the best: {outcome:?}", outcome.against_best());
    }
    let count = outcomes.len() as f64;
    let mean = outcomes.iter().map(Outcome::against_best).sum::<f64>() / count;
    let is_much_better = |outcome: &&Outcome| outcome.adaptive < 0.8 * outcome.default;
    let much_better = outcomes.iter().filter(is_much_better).count();
    std::println!(
        "{count} scenarios, {mean:.3} of the best in the mean; {much_better} below 0.8 of 64"
    );
    // Three runs still have an error of about 3 % near saturation.
    assert!(outcomes[5].against_best() < 1.05);
    assert!(outcomes[0].against_best() < 1.07 && mean < 1.0 && much_better > 300);
}

#[test]
fn leaves_next_hop_that_stops_responding() {
    let mut adaptive = Adaptive::default();
    let mut measurements = Measurements::default();
    let hops = [0, 1].map(|place| (place, measurements.insert(Instant::ZERO)));
    let home = DiskQueue { disk: 0, length: 1000 };
    let mut went = [0; 2];
    for step in 0..4000_u64 {
        let now = Instant::from_ns(step * 100_000);
        let choice = adaptive.choose(now, home, 64, &mut measurements, hops.into_iter());
        let DiskChoice::NextHop { position: place, .. } = choice else { continue };
        let flight = measurements.begin(now, hops[place].1);
        // The first hop answers at once until it stops responding. The second takes 1 ms.
        let is_silent = place == 0 && step >= 2000;
        if step >= 2100 {
            went[place] += 1;
        }
        let took_ns = if place == 0 { 10_000 } else { 1_000_000 };
        if !is_silent {
            measurements.on_data(now.plus_ns(took_ns), flight, true);
        }
    }
    assert!(went[0] < 20 && went[1] > 1500, "{went:?}");
}

#[test]
fn models_are_bounded() {
    let mut adaptive = Adaptive::default();
    let mut measurements = Measurements::default();
    let home = DiskQueue { disk: 3, length: 100 };
    for step in 0..3 * MODELS_MAX as u64 {
        let now = Instant::from_ns(step * 1000);
        let hop = measurements.insert(now);
        let hops = [(0, hop)].into_iter();
        let choice = adaptive.choose(now, home, 64, &mut measurements, hops);
        assert!(matches!(choice, DiskChoice::NextHop { .. }), "nothing is known");
        let flight = measurements.begin(now, hop);
        measurements.end(now, flight, FlightEnd::TimeOut);
    }
    assert_eq!(measurements.models(), MODELS_MAX);
}
