//! Consumers with several links (paper chopcop, 4): bandwidths add up, and paths fail and recover.

use crate::common;

use common::{MS, PlanBuilder, S, consumer, names, producer, run};
use weir_netem::LinkConfig;
use weir_netsim::Network;
use weir_plan::event::{Event, EventKind};
use weir_plan::workload::{ConsumerPlan, Demand, Popularity};
use weir_plan::{Fault, PlanError, Role, RouterPlan};

const DURATION_NS: u64 = 6 * S;
/// Measurements exclude the time before this.
const WARM_UP_NS: u64 = S;
/// Links as [`builder`] numbers them: the consumer's two, one behind the second, and the producer's
/// link behind the first.
const SECOND: usize = 1;
const AFTER_SECOND: usize = 2;
const PRODUCER: usize = 3;

/// A consumer with two links. The link of 40 Mbit/s leads to a router with a producer. The link of
/// 80 Mbit/s leads to a router whose producer is one router further away.
fn builder(schedule: &str, links: &[usize]) -> PlanBuilder {
    let mut builder = PlanBuilder::new(1, DURATION_NS);
    builder.plan.sample_ns = 100 * MS;
    let content = names("/p", Popularity::Sequential { objects: 1 }, 4_000_000_000, 1000);
    let demand = Demand::Controlled { controller: "cubic".into(), window: None, count: None };
    let plan = consumer(content.clone(), demand);
    let plan = ConsumerPlan { schedule: schedule.parse().unwrap(), chunk_units: 8, ..plan };
    let [a, b, c] = [(); 3].map(|()| builder.router(RouterPlan::default()));
    let node = weir_plan::NodePlan { name: "e".into(), role: Role::Consumer(plan) };
    builder.plan.nodes.push(node);
    let link = |rate_bps, delay_ms: u64| LinkConfig {
        rate_bps: Some(rate_bps),
        delay_ns: delay_ms * MS,
        queue_bytes_max: 500_000,
        ..LinkConfig::default()
    };
    for (index, (router, rate_bps)) in [(a, 40_000_000), (b, 80_000_000)].into_iter().enumerate() {
        if links.contains(&index) {
            builder.link(3, router, &link(rate_bps, 10));
        }
    }
    builder.link(b, c, &link(1_000_000_000, 5));
    builder.producer(a, producer(content.clone()));
    builder.producer(c, producer(content));
    builder
}

/// Content bytes received in a time span.
fn received_in(events: &[Event], from_ns: u64, to_ns: u64) -> f64 {
    let bytes = events.iter().filter_map(|event| match event.kind {
        EventKind::DataReceived { content_bytes, .. }
            if (from_ns..to_ns).contains(&event.at_ns) =>
        {
            Some(u64::from(content_bytes))
        }
        _ => None,
    });
    bytes.sum::<u64>() as f64
}

/// Content bytes received from the warm-up to the end.
fn received(events: &[Event]) -> f64 {
    received_in(events, WARM_UP_NS, DURATION_NS)
}

/// Events of a run with a single link.
fn alone(link: usize) -> Vec<Event> {
    run(&builder("single", &[link]).plan).1
}

#[test]
fn the_bandwidths_of_two_links_add_up() {
    let sum = received(&alone(0)) + received(&alone(1));
    let (_, events) = run(&builder("parallel", &[0, 1]).plan);
    let share = received(&events) / sum;
    assert!((0.97..1.01).contains(&share), "{share}");
    // The link samples agree.
    let mut by_path = [0; 2];
    for event in &events {
        if let EventKind::PathSample { path, content_bytes, window } = event.kind {
            by_path[path as usize] = content_bytes;
            assert!(window >= 1.0 || !(MS..DURATION_NS).contains(&event.at_ns), "{event:?}");
        }
    }
    let ratio = by_path[1] as f64 / by_path[0] as f64;
    assert!((1.9..2.1).contains(&ratio), "{by_path:?}");
    // One link carries everything while it is up.
    let share = received(&run(&builder("single", &[0, 1]).plan).1) / sum;
    assert!(share < 0.35, "{share}");
}

#[test]
fn down_link_is_avoided_then_reused() {
    let (slow, fast) = (alone(0), alone(1));
    let mut builder = builder("parallel", &[0, 1]);
    builder.fault(2 * S, Fault::LinkDown { link: SECOND, for_ns: 2 * S });
    // From 4 to 6 s the flow restarts.
    let of_fast = received_in(&fast, S, 2 * S) + received_in(&fast, 0, 2 * S);
    let share = received(&run(&builder.plan).1) / (received(&slow) + of_fast);
    assert!((0.97..1.02).contains(&share), "{share}");

    // Both links are down; the transfer resumes when one is up again.
    builder.fault(3 * S, Fault::LinkDown { link: 0, for_ns: S / 2 });
    let of_slow = received_in(&slow, S, 3 * S) + received_in(&slow, 4 * S, 6 * S);
    let share = received(&run(&builder.plan).1) / (of_slow + of_fast);
    assert!(share > 0.95, "{share}");
}

/// The host cannot see this failure: nothing arrives on its second link for a second.
#[test]
fn remote_link_failure_does_not_block() {
    let (slow, fast) = (received(&alone(0)), received(&alone(1)));
    let mut builder = builder("parallel", &[0, 1]);
    builder.fault(2 * S, Fault::LinkDown { link: AFTER_SECOND, for_ns: S });
    // Retries have growing intervals, so the path is found after twice the outage at most.
    let measured_s = ((DURATION_NS - WARM_UP_NS) / S) as f64;
    let share = received(&run(&builder.plan).1) / (slow + fast * (1.0 - 2.0 / measured_s));
    assert!(share > 0.95, "{share}");
}

#[test]
fn single_interests_have_one_link() {
    let mut builder = builder("single", &[0, 1]);
    let Role::Consumer(consumer) = &mut builder.plan.nodes[3].role else { panic!("it asks") };
    consumer.demand = common::poisson(10.0);
    let error = Network::new(&builder.plan).err();
    assert!(matches!(error, Some(PlanError::AppLinks { links: 2, others: 0, .. })), "{error:?}");
}

/// A consumer with links to three routers, each with its own producer, with round trips of 5, 10
/// and 20 ms and no rate limit. Returns the packets per second from each after the warm-up.
fn in_turn(windows: [u32; 3]) -> [f64; 3] {
    let mut builder = PlanBuilder::new(1, DURATION_NS);
    builder.plan.sample_ns = 100 * MS;
    let content = names("/p", Popularity::Sequential { objects: 1 }, 4_000_000_000, 1000);
    let demand = Demand::Window { window: windows[0], count: None };
    let plan = ConsumerPlan {
        schedule: "round-robin".parse().unwrap(),
        path_windows: vec![Some(windows[1]), Some(windows[2])],
        prefetches: false,
        ..consumer(content.clone(), demand)
    };
    let routers = [(); 3].map(|()| builder.router(RouterPlan::default()));
    let node = weir_plan::NodePlan { name: "e".into(), role: Role::Consumer(plan) };
    builder.plan.nodes.push(node);
    for (router, round_trip_ms) in routers.into_iter().zip([5, 10, 20]) {
        let link = LinkConfig { delay_ns: round_trip_ms * MS / 2, ..LinkConfig::default() };
        builder.link(3, router, &link);
    }
    for router in routers {
        builder.producer(router, producer(content.clone()));
    }
    let (_, events) = run(&builder.plan);
    let mut bytes = [[0; 3]; 2];
    for event in &events {
        if let EventKind::PathSample { path, content_bytes, .. } = event.kind {
            bytes[usize::from(event.at_ns > WARM_UP_NS)][path as usize] = content_bytes;
        }
    }
    let seconds = (DURATION_NS - WARM_UP_NS) as f64 / S as f64;
    [0, 1, 2].map(|path| (bytes[1][path] - bytes[0][path]) as f64 / 1000.0 / seconds)
}

fn assert_near(rates: [f64; 3], expected: [f64; 3]) {
    for (rate, expected) in rates.into_iter().zip(expected) {
        let share = rate / expected;
        assert!((0.97..1.03).contains(&share), "{rates:?} for {expected:?}");
    }
}

/// Each link gets one window of Interests per round trip, independent of the others.
#[test]
fn round_robin_keeps_every_pipeline_full() {
    assert_near(in_turn([10, 10, 10]), [2000.0, 1000.0, 500.0]);
    assert_near(in_turn([5, 3, 2]), [1000.0, 300.0, 100.0]);
}

#[test]
fn down_link_is_skipped_in_round_robin() {
    let mut builder = builder("round-robin", &[0, 1]);
    builder.fault(2 * S, Fault::LinkDown { link: AFTER_SECOND, for_ns: 2 * S });
    let (_, events) = run(&builder.plan);
    let (before, without) = (received_in(&events, S, 2 * S), received_in(&events, 3 * S, 4 * S));
    // The other link, of 40 Mbit/s, carries as much as on its own.
    let alone = received_in(&alone(0), 3 * S, 4 * S);
    assert!(without > 0.9 * alone && before > without, "{before} {without} {alone}");
}

#[test]
fn halved_link_is_used_at_its_new_rate() {
    let (slow, fast) = (received(&alone(0)), alone(1));
    let mut builder = builder("parallel", &[0, 1]);
    builder.fault(2 * S, Fault::LinkSlow { link: SECOND, for_ns: 10 * S, share: 0.5 });
    let of_fast = received_in(&fast, S, 2 * S) + received_in(&fast, 2 * S, 6 * S) / 2.0;
    let share = received(&run(&builder.plan).1) / (slow + of_fast);
    assert!((0.97..1.02).contains(&share), "{share}");
}

/// Either link may lead to a router without a route.
#[test]
fn link_without_a_route_does_not_delay_the_other() {
    for (router, other) in [(0, 1), (1, 0)] {
        let mut builder = builder("parallel", &[0, 1]);
        builder.plan.routes.retain(|route| route.node != router);
        let (_, events) = run(&builder.plan);
        let share = received(&events) / received(&alone(other));
        assert!(share > 0.97, "{share}");
        // The link is tried once per second, and more often before that, with a chunk of eight.
        let nacks = common::count(&events, |kind| matches!(kind, EventKind::NackReceived { .. }));
        assert!((2..50).contains(&(nacks / 8)), "{nacks}");
    }
}

#[test]
fn unresponsive_link_does_not_delay_the_other() {
    for (dead, other) in [(PRODUCER, 1), (AFTER_SECOND, 0)] {
        let mut builder = builder("parallel", &[0, 1]);
        builder.fault(0, Fault::LinkDown { link: dead, for_ns: DURATION_NS });
        let share = received(&run(&builder.plan).1) / received(&alone(other));
        assert!(share > 0.95, "{share}");
    }
}
