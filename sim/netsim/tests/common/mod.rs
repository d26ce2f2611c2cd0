//! Plans that several tests share, and the results of runs.

use std::sync::Arc;

use weir_forward::Extension;
use weir_netem::LinkConfig;
use weir_netsim::{Experiments, Network, Summary};
use weir_options::StoreOptions;
use weir_plan::event::{Event, EventKind, Observer};
use weir_plan::workload::{Demand, Popularity};
use weir_plan::{DiskPlan, Plan, RouterPlan};
pub(crate) use weir_plan_fixture::{MS, PlanBuilder, S, consumer, names, poisson, producer};

/// A line of routers with 10 ms links, a consumer at one end and a producer at the other.
pub(crate) fn line(seed: u64, routers: usize, demand: Demand) -> Plan {
    let mut builder = PlanBuilder::new(seed, 2 * S);
    let link = LinkConfig { rate_bps: Some(1_000_000_000), delay_ns: MS, ..LinkConfig::default() };
    let numbers: Vec<_> = (0..routers).map(|_| builder.router(RouterPlan::default())).collect();
    for pair in numbers.windows(2) {
        builder.link(pair[0], pair[1], &link);
    }
    let content = names("/p", Popularity::Zipf { objects: 500, exponent: 0.8 }, 4000, 1000);
    builder.consumer(numbers[0], consumer(content.clone(), demand));
    builder.producer(numbers[routers - 1], producer(content));
    builder.plan
}

pub(crate) fn without_store() -> RouterPlan {
    weir_plan_fixture::router(0)
}

/// A router that serves the content of its disk and stores nothing new.
pub(crate) fn with_disk(disk: DiskPlan) -> RouterPlan {
    let store = StoreOptions { admit: false, ..StoreOptions::with_bytes(0) };
    RouterPlan { store, disk: Some(disk), ..RouterPlan::default() }
}

fn store_of(plan: &RouterPlan) -> Option<Arc<dyn Extension>> {
    let disks = plan.disk.as_ref().map(|disk| &disk.experiments);
    crate::stores::extension(&plan.store_experiments, disks)
}

/// Runs a plan; all checks must pass.
pub(crate) fn run_with(plan: &Plan, observer: &mut dyn Observer) -> Summary {
    let seed = plan.seed;
    let experiments = Experiments { store: Some(store_of), ..Experiments::default() };
    let network = Network::with_experiments(plan, &experiments);
    let mut network = network.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    network.run(observer).unwrap_or_else(|violation| {
        panic!("seed {seed}: {violation}\n{}", violation.last_events.join("\n"))
    })
}

/// Runs a plan. Returns its summary and events.
pub(crate) fn run(plan: &Plan) -> (Summary, Vec<Event>) {
    let mut events = Vec::new();
    (run_with(plan, &mut events), events)
}

pub(crate) fn count(events: &[Event], is_counted: impl Fn(&EventKind) -> bool) -> usize {
    events.iter().filter(|event| is_counted(&event.kind)).count()
}

pub(crate) fn is_data(kind: &EventKind) -> bool {
    matches!(kind, EventKind::DataReceived { .. })
}

/// Number of Data that consumers received.
pub(crate) fn received(events: &[Event]) -> usize {
    count(events, is_data)
}
