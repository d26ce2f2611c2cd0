//! Run Interests change frames and nothing else: routers, stores and applications behave as
//! without.

use crate::common;

use std::collections::BTreeMap;

use common::{MS, PlanBuilder, S, consumer, names, producer};
use weir_netem::{LinkConfig, Loss};
use weir_options::StoreOptions;
use weir_plan::event::EventKind;
use weir_plan::workload::{Demand, Popularity};
use weir_plan::{Plan, RouterPlan, Transport};

/// Deliveries to consumers: time, consumer, object and segment.
type Deliveries = Vec<(u64, u32, u64, u64)>;

/// Runs the plan with run Interests on all links or on none. Returns the deliveries, the completed
/// objects and the frames sent.
fn run(mut plan: Plan, runs: bool) -> (Deliveries, usize, u64) {
    plan.sample_ns = 10 * MS;
    for link in &mut plan.links {
        link.runs = runs;
    }
    let (_, events) = common::run(&plan);
    let mut frames = BTreeMap::new();
    let mut deliveries = Vec::new();
    let mut completed = 0;
    for event in &events {
        match event.kind {
            EventKind::DataReceived { object, segment, .. } => {
                deliveries.push((event.at_ns, event.node, object, segment));
            }
            EventKind::ObjectCompleted { .. } => completed += 1,
            EventKind::LinkSample { link, frames: sent, .. } => {
                frames.insert((event.node, link), sent);
            }
            _ => {}
        }
    }
    deliveries.sort_unstable();
    (deliveries, completed, frames.values().sum())
}

/// Three routers in a line, and consumers that request the same objects in chunks of different
/// sizes. Their Interests meet pending ones with other bitmaps, and stores that hold part of a run.
fn three_routers(link: &LinkConfig, shards: u16, transport: Transport, store_bytes: u64) -> Plan {
    let mut builder = PlanBuilder::new(5, 20 * S);
    let router = || RouterPlan {
        shards,
        strategy: if shards > 1 { "multicast".into() } else { "best-route".into() },
        store: StoreOptions {
            size: weir_base::units::Size { bytes: store_bytes },
            ..StoreOptions::default()
        },
        ..RouterPlan::default()
    };
    let routers = [0; 3].map(|_| builder.router(router()));
    for pair in routers.windows(2) {
        let number = builder.link(pair[0], pair[1], link);
        builder.plan.links[number].transport = transport;
    }
    let content = names("/p", Popularity::Sequential { objects: 3 }, 1_200_000, 3000);
    for (at, chunk_units, start_ns) in [(0, 32, 0), (1, 8, 4_003_000), (0, 5, 9_001_000)] {
        let demand = Demand::Objects {
            arrivals: None,
            count: Some(3),
            controller: "cubic".into(),
            window: None,
        };
        let mut plan = consumer(content.clone(), demand);
        (plan.chunk_units, plan.start_ns) = (chunk_units, start_ns);
        builder.consumer(routers[at], plan);
    }
    builder.producer(routers[2], producer(content));
    builder.plan
}

#[test]
fn run_interests_deliver_like_single_ones() {
    for (shards, transport, store_bytes) in [
        (1, Transport::Tcp, 64 << 20),
        (1, Transport::Udp, 200_000),
        (3, Transport::Udp, 64 << 20),
        (3, Transport::Tcp, 0),
    ] {
        // Without a rate limit, frame sizes do not matter.
        let link = LinkConfig { delay_ns: 3 * MS, ..LinkConfig::default() };
        let plan = three_routers(&link, shards, transport, store_bytes);
        let (single, completed, frames) = run(plan.clone(), false);
        let (in_runs, completed_in_runs, frames_in_runs) = run(plan, true);
        assert_eq!((completed, completed_in_runs), (9, 9));
        assert_eq!(single.len(), 3600);
        assert_eq!(single, in_runs, "{shards} shards");
        assert!(frames_in_runs < 3 * frames / 4, "{frames} frames, {frames_in_runs} with runs");
    }
}

#[test]
fn lost_run_interests_are_retransmitted() {
    let link = LinkConfig {
        rate_bps: Some(100_000_000),
        delay_ns: 3 * MS,
        loss: Loss::Independent { probability: 0.02 },
        queue_bytes_max: 300_000,
        ..LinkConfig::default()
    };
    for shards in [1, 2] {
        let plan = three_routers(&link, shards, Transport::Udp, 1 << 20);
        let (_, completed, frames) = run(plan.clone(), false);
        let (_, completed_in_runs, frames_in_runs) = run(plan, true);
        assert_eq!((completed, completed_in_runs), (9, 9));
        assert!(frames_in_runs < frames, "{frames} frames, {frames_in_runs} with runs");
    }
}
