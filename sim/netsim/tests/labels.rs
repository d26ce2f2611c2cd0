//! Path labels when routers beyond the next hop have capacity left, and when they have none.

use crate::common;

use common::{MS, PlanBuilder, S, consumer, names, producer, run, with_disk};
use weir_forward::{Labels, Mark};
use weir_netem::{DiskConfig, LinkConfig, ServiceTime};
use weir_options::DisksOptions;
use weir_plan::event::EventKind;
use weir_plan::workload::{Demand, Popularity};
use weir_plan::{DiskExperiments, DiskPlan, Plan, RoutePlan};

/// Reads per second of a disk.
const READ_RATE_HZ: f64 = 4000.0;
const LENGTH_NS: u64 = 2 * S;
const WARM_UP_NS: u64 = S / 2;

/// Routers in a row or a ring, each with all content on its disk. Interests may bypass a disk to
/// the next router. `consumers`: number of routers with a consumer; then the window of each.
fn plan(
    labels: Labels,
    seed: u64,
    routers: usize,
    is_ring: bool,
    consumers: usize,
    window: u32,
) -> Plan {
    let mut builder = PlanBuilder::new(seed, LENGTH_NS);
    builder.plan.sample_ns = 100 * MS;
    let read = ServiceTime::Exponential { mean_ns: (1e9 / READ_RATE_HZ) as u64 };
    let router = with_disk(DiskPlan {
        bytes: 256 << 20,
        device: DiskConfig { read, ..DiskConfig::default() },
        filled: 1.0,
        options: DisksOptions { threshold: 16, mark: Mark::NbCc, ..DiskPlan::recorded_options() },
        experiments: DiskExperiments { labels, ..DiskExperiments::default() },
        ..DiskPlan::default()
    });
    let nodes: Vec<_> = (0..routers).map(|_| builder.router(router.clone())).collect();
    let config = LinkConfig { delay_ns: MS, ..LinkConfig::default() };
    let hops = if is_ring { routers } else { routers - 1 };
    let links: Vec<_> =
        (0..hops).map(|at| builder.link(nodes[at], nodes[(at + 1) % routers], &config)).collect();
    for at in 0..consumers {
        let popularity = Popularity::Sequential { objects: 20_000 };
        let content = names(&format!("/p{at}"), popularity, 100, 100);
        let (controller, window) = ("fixed".to_owned(), Some(window));
        let demand = Demand::Controlled { controller, window, count: None };
        builder.consumer(nodes[at], consumer(content.clone(), demand));
        builder.producer(nodes[routers - 1], producer(content));
    }
    // No Interest goes to the producers, which only define the content of the disks.
    let route = |(at, &link)| RoutePlan { node: nodes[at], prefix: "/".into(), link, cost: 1 };
    builder.plan.routes = links.iter().enumerate().map(route).collect();
    builder.plan
}

/// Results of a run after its warm-up.
#[derive(Debug)]
struct Outcome {
    /// Data received by consumers, for each tenth of a second.
    data: Vec<f64>,
    /// Interests that routers forwarded, and announcements.
    passed: u64,
    announced: u64,
}

impl Outcome {
    fn of(plan: &Plan) -> Self {
        let (_, events) = run(plan);
        let bins = (LENGTH_NS - WARM_UP_NS) / (100 * MS);
        let mut data = vec![0.0; bins as usize];
        let mut last = std::collections::BTreeMap::new();
        for event in &events {
            match event.kind {
                EventKind::DataReceived { .. } if event.at_ns >= WARM_UP_NS => {
                    let bin = ((event.at_ns - WARM_UP_NS) / (100 * MS)) as usize;
                    data.get_mut(bin).into_iter().for_each(|bin| *bin += 1.0);
                }
                EventKind::RouterSample(ref sample) if event.at_ns <= LENGTH_NS => {
                    let announced = sample.busy.busy_sent + sample.busy.available_sent;
                    last.insert(event.node, (sample.out_interests, announced));
                }
                _ => {}
            }
        }
        let passed = last.values().map(|(passed, _)| passed).sum();
        let announced = last.values().map(|(_, announced)| announced).sum();
        Self { data, passed, announced }
    }

    fn total(&self) -> f64 {
        self.data.iter().sum()
    }

    /// Data per second, divided by the reads per second of `disks` disks.
    fn share(&self, disks: f64) -> f64 {
        self.total() / (LENGTH_NS - WARM_UP_NS) as f64 * 1e9 / (disks * READ_RATE_HZ)
    }
}

#[test]
fn path_labels_use_all_disks_of_a_row() {
    for seed in 1..=2 {
        let neighbour = Outcome::of(&plan(Labels::Neighbour, seed, 3, false, 1, 100));
        let path = Outcome::of(&plan(Labels::Path, seed, 3, false, 1, 100));
        assert!(path.share(3.0) > 0.88, "{path:?}");
        assert!(path.share(3.0) > 1.15 * neighbour.share(3.0), "{neighbour:?} {path:?}");
        assert_eq!(path.announced, 0);
    }
}

#[test]
fn path_labels_do_not_oscillate_in_a_ring() {
    // One consumer that requests more than its disk can read, and one at each router.
    for (consumers, window, share) in [(1, 200, 0.75), (4, 30, 0.95)] {
        for seed in 1..=2 {
            let outcome = Outcome::of(&plan(Labels::Path, seed, 4, true, consumers, window));
            let mean = outcome.total() / outcome.data.len() as f64;
            assert!(outcome.share(4.0) > share, "{outcome:?}");
            assert!(
                outcome.data.iter().all(|data| (data - mean).abs() < 0.3 * mean),
                "{outcome:?}"
            );
            // No Interest circulates: on average, each takes at most two links.
            assert!((outcome.passed as f64) < 2.5 * outcome.total(), "{outcome:?}");
            assert_eq!(outcome.announced, 0);
        }
    }
}
