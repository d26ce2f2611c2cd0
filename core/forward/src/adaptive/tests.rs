//! A closed model of one router with a disk, and of what lies behind it: the measure by which the
//! choice was tuned, and that it stays so.

extern crate std;

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::*;

/// How long a service takes.
#[derive(Clone, Copy, Debug)]
enum Service {
    Exponential,
    Constant,
}

/// Servers with one queue.
#[derive(Clone, Copy, Debug)]
struct Station {
    /// 0: as many as there are requests.
    servers: u32,
    mean_ns: f64,
    service: Service,
}

/// Poisson arrivals at a disk; who does not wait takes a fixed delay and another station.
#[derive(Clone, Copy, Debug)]
struct Scene {
    gap_ns: f64,
    disk: Station,
    delay_ns: f64,
    upstream: Station,
}

struct Queue {
    station: Station,
    busy: u32,
    waiting: VecDeque<usize>,
}

impl Queue {
    fn new(station: Station) -> Self {
        Self { station, busy: 0, waiting: VecDeque::new() }
    }

    fn len(&self) -> u32 {
        self.busy + self.waiting.len() as u32
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Arrival,
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
    ahead: u32,
    trip: Option<Trip>,
}

struct Model {
    scene: Scene,
    rng: Rng,
    now_ns: u64,
    events: BinaryHeap<Reverse<(u64, u64, What)>>,
    order: u64,
    requests: Vec<Request>,
    disk: Queue,
    upstream: Queue,
    adaptive: Adaptive,
    total_ns: f64,
    counted: u64,
    skip: usize,
}

const HOP: FaceId = FaceId(300);

impl Model {
    fn run(scene: Scene, policy: Policy, count: usize, seed: u64) -> f64 {
        let mut model = Self {
            scene,
            rng: Rng::from_seed(seed),
            now_ns: 0,
            events: BinaryHeap::new(),
            order: 0,
            requests: Vec::new(),
            disk: Queue::new(scene.disk),
            upstream: Queue::new(scene.upstream),
            adaptive: Adaptive::new(seed),
            total_ns: 0.0,
            counted: 0,
            skip: count / 10,
        };
        model.push(1, What::Arrival);
        while let Some(Reverse((at_ns, _, what))) = model.events.pop() {
            model.now_ns = at_ns;
            match what {
                What::Arrival => model.arrive(policy, count),
                What::ReadDone(request) => model.read_done(request),
                What::Upstream(request) => model.enter(true, request),
                What::UpstreamDone(request) => model.upstream_done(request),
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
        if queue.station.servers != 0 && queue.busy >= queue.station.servers {
            queue.waiting.push_back(request);
            return;
        }
        queue.busy += 1;
        self.serve(is_upstream, request);
    }

    fn serve(&mut self, is_upstream: bool, request: usize) {
        let station = if is_upstream { self.upstream.station } else { self.disk.station };
        let took_ns = match station.service {
            Service::Exponential => self.exponential(station.mean_ns),
            Service::Constant => station.mean_ns as u64,
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
            Policy::Threshold(threshold) if queue < threshold => Choice::Home,
            Policy::Threshold(_) => Choice::Away { hop: 0, is_trial: false, trip: None },
            Policy::Adaptive => {
                let station = self.scene.disk;
                let interval_ns = station.mean_ns / f64::from(station.servers.max(1));
                let expected_wait_ns = ((f64::from(queue) + 1.0) * interval_ns) as u64;
                let home = Home { disk: 0, queue, expected_wait_ns };
                let now = Instant::from_ns(self.now_ns);
                self.adaptive.choose(now, home, 64, 1, [HOP].into_iter())
            }
        };
        let request = self.requests.len();
        let trip = match choice {
            Choice::Home => None,
            Choice::Away { trip, .. } => trip,
        };
        self.requests.push(Request { at_ns: self.now_ns, ahead: queue, trip });
        match choice {
            Choice::Home => self.enter(false, request),
            Choice::Away { .. } => self.push(self.scene.delay_ns as u64, What::Upstream(request)),
        }
        if self.requests.len() < count {
            let gap_ns = self.exponential(self.scene.gap_ns);
            self.push(gap_ns, What::Arrival);
        }
    }

    fn count(&mut self, request: usize) -> u64 {
        let took_ns = self.now_ns - self.requests[request].at_ns;
        if request >= self.skip {
            self.total_ns += took_ns as f64;
            self.counted += 1;
        }
        took_ns
    }

    fn read_done(&mut self, request: usize) {
        let took_ns = self.count(request);
        let now = Instant::from_ns(self.now_ns);
        let ahead = self.requests[request].ahead;
        self.adaptive.on_read(now, 0, (ahead, self.disk.len() - 1), took_ns);
        self.leave(false);
    }

    fn upstream_done(&mut self, request: usize) {
        let took_ns = self.count(request);
        if let Some(trip) = self.requests[request].trip {
            let now = Instant::from_ns(self.now_ns);
            self.adaptive.end_trip(now, &trip, took_ns, Some(HOP));
        }
        self.leave(true);
    }
}

const THRESHOLDS: [u32; 22] = [
    0,
    1,
    2,
    3,
    4,
    6,
    8,
    12,
    16,
    24,
    32,
    48,
    64,
    96,
    128,
    192,
    256,
    384,
    512,
    1024,
    2048,
    u32::MAX,
];

fn sweep(count: usize) -> Vec<(Scene, f64, u32, f64, f64)> {
    let mut results = Vec::new();
    for service in [Service::Exponential, Service::Constant] {
        for (servers, mean_ns) in [(1, 200_000.0), (32, 3_200_000.0), (1, 2_400_000.0)] {
            let disk = Station { servers, mean_ns, service };
            let interval_ns = mean_ns / f64::from(servers);
            for delay in [0.5, 4.0, 32.0, 256.0] {
                for upstream in [0.0, 1.0, 4.0] {
                    for load in [0.3, 0.7, 0.9, 1.0, 1.2, 1.8, 4.0] {
                        if upstream > 0.0 && load > 0.93 * (1.0 + upstream) {
                            continue;
                        }
                        let upstream = match upstream {
                            0.0 => Station { servers: 0, mean_ns: 0.1 * interval_ns, service },
                            times => Station { servers: 1, mean_ns: interval_ns / times, service },
                        };
                        let delay_ns = delay * interval_ns;
                        let scene = Scene { gap_ns: interval_ns / load, disk, delay_ns, upstream };
                        results.push(measure(scene, count));
                    }
                }
            }
        }
    }
    results
}

/// Adaptive, the best threshold and its number, and 64, in services.
fn measure(scene: Scene, count: usize) -> (Scene, f64, u32, f64, f64) {
    let unit = scene.disk.mean_ns / f64::from(scene.disk.servers);
    let run = |policy| Model::run(scene, policy, count, 1) / unit;
    let (best, threshold) = THRESHOLDS
        .into_iter()
        .map(|threshold| (run(Policy::Threshold(threshold)), threshold))
        .min_by(|one, other| one.0.total_cmp(&other.0))
        .unwrap();
    (scene, run(Policy::Adaptive), threshold, best, run(Policy::Threshold(64)))
}

#[test]
#[ignore = "a sweep of minutes; prints what it finds"]
fn sweeps() {
    let mut results = sweep(60_000);
    results.sort_by(|one, other| (other.1 / other.3).total_cmp(&(one.1 / one.3)));
    for (scene, adaptive, threshold, best, default) in &results {
        std::println!(
            "{:.3} of best ({threshold}: {best:.2}), {:.3} of 64: {adaptive:.2} {:?} x{} {} up x{} {} delay {} load {:.1}",
            adaptive / best,
            adaptive / default,
            scene.disk.service,
            scene.disk.servers,
            scene.disk.mean_ns,
            scene.upstream.servers,
            scene.upstream.mean_ns,
            scene.delay_ns,
            scene.disk.mean_ns / f64::from(scene.disk.servers) / scene.gap_ns,
        );
    }
    let _ = vec![0];
}
