//! The engine as a whole: determinism, faults, shards and invalid plans.

use crate::common;

use std::collections::BTreeMap;

use common::{MS, PlanBuilder, S, consumer, count, line, names, poisson, producer, received, run};
use weir_netem::LinkConfig;
use weir_netsim::{Network, ViolationKind};
use weir_options::StoreOptions;
use weir_plan::PlanError;
use weir_plan::event::{Event, EventKind, Observer};
use weir_plan::workload::{Demand, Popularity};
use weir_plan::{Fault, Plan, Role, RouterPlan};

/// Ignores all events.
struct Blind;

impl Observer for Blind {
    fn observe(&mut self, _event: &Event) {}
}

fn window(window: u32) -> Demand {
    Demand::Window { window, count: None }
}

fn objects(count: u64) -> Demand {
    Demand::Objects { arrivals: None, count: Some(count), controller: "cubic".into(), window: None }
}

#[test]
fn same_seed_gives_same_result() {
    let plan = Plan { sample_ns: 100 * MS, ..line(7, 4, poisson(2000.0)) };
    let (first, events) = run(&plan);
    assert_eq!(run(&plan), (first, events));
    let mut network = Network::new(&plan).unwrap();
    while !network.is_over() {
        network.run_steps(333, &mut Blind).unwrap();
    }
    assert_eq!(network.summary(), first, "slices and observers change nothing");
    let (other, _) = run(&Plan { seed: 8, ..plan });
    assert_ne!(other.event_hash, first.event_hash);
}

#[test]
fn line_answers_every_interest_in_time() {
    let (summary, events) = run(&line(1, 4, poisson(500.0)));
    let sent = count(&events, |kind| matches!(kind, EventKind::InterestSent { .. }));
    let received = received(&events);
    assert_eq!(sent, received);
    assert!((900..1100).contains(&sent), "{sent} Interests of a Poisson process at 500/s in 2 s");
    let longest = events.iter().filter_map(|event| match event.kind {
        EventKind::DataReceived { rtt_ns, .. } => Some(rtt_ns),
        _ => None,
    });
    // Three links of 1 ms each way, plus the sending time of 1 kB packets at 1 Gbit/s.
    assert!((6 * MS..7 * MS).contains(&longest.max().unwrap()));
    assert!(summary.packet_hops > 4 * sent as u64);
    assert_eq!(summary.virtual_ns, 7 * S);
}

#[test]
fn objects_survive_fragmentation_and_loss() {
    let mut builder = PlanBuilder::new(3, 20 * S);
    let lossy = LinkConfig {
        rate_bps: Some(50_000_000),
        delay_ns: 5 * MS,
        loss: weir_netem::Loss::Independent { probability: 0.01 },
        queue_bytes_max: 200_000,
        ..LinkConfig::default()
    };
    let (a, b) = (builder.router(RouterPlan::default()), builder.router(RouterPlan::default()));
    builder.link(a, b, &lossy);
    let content = names("/p", Popularity::Sequential { objects: 10 }, 100_000, 4000);
    builder.consumer(a, consumer(content.clone(), objects(10)));
    builder.producer(b, producer(content));
    let (_, events) = run(&builder.plan);
    let completed = count(&events, |kind| {
        matches!(kind, EventKind::ObjectCompleted { content_bytes: 100_000, .. })
    });
    assert_eq!(completed, 10);
}

/// Each Interest is sent once, over a link that loses one frame in a hundred. Most losses hit one
/// of the three fragments of a Data.
#[test]
fn a_reliable_link_loses_nothing() {
    let lost = [false, true].map(|reliability| {
        let mut builder = PlanBuilder::new(3, 4 * S);
        let lossy = LinkConfig {
            rate_bps: Some(50_000_000),
            delay_ns: 5 * MS,
            loss: weir_netem::Loss::Independent { probability: 0.01 },
            ..LinkConfig::default()
        };
        let (a, b) = (builder.router(RouterPlan::default()), builder.router(RouterPlan::default()));
        let link = builder.link(a, b, &lossy);
        builder.plan.links[link].reliability = reliability;
        let content = names("/p", Popularity::Sequential { objects: 10_000 }, 4000, 4000);
        builder.consumer(a, consumer(content.clone(), poisson(500.0)));
        builder.producer(b, producer(content));
        let (_, events) = run(&builder.plan);
        let sent = count(&events, |kind| matches!(kind, EventKind::InterestSent { .. }));
        sent - received(&events)
    });
    assert!(lost[0] > 30 && lost[1] == 0, "{lost:?}");
}

/// The segments that a consumer received, in order.
fn segments_received(events: &[Event]) -> Vec<(u32, u64, u64)> {
    let data = events.iter().filter_map(|event| match event.kind {
        EventKind::DataReceived { object, segment, .. } => Some((event.node, object, segment)),
        _ => None,
    });
    data.collect()
}

#[test]
fn several_shards_deliver_like_one() {
    let plan_with = |shards| {
        let mut builder = PlanBuilder::new(5, 2 * S);
        builder.local.delay_ns = MS;
        let link =
            LinkConfig { rate_bps: Some(100_000_000), delay_ns: 2 * MS, ..LinkConfig::default() };
        let plan = || RouterPlan {
            shards,
            store: StoreOptions::with_bytes(1 << 30),
            ..RouterPlan::default()
        };
        let (a, b) = (builder.router(plan()), builder.router(plan()));
        builder.link(a, b, &link);
        for number in 0..6 {
            let popularity = Popularity::Zipf { objects: 200, exponent: 0.9 };
            let content = names(&format!("/p{number}"), popularity, 3000, 1000);
            let demand = if number % 2 == 0 { poisson(300.0) } else { window(8) };
            builder.consumer(a, consumer(content.clone(), demand));
            builder.producer(b, producer(content));
        }
        builder.plan
    };
    let (_, one) = run(&plan_with(1));
    let (_, two) = run(&plan_with(2));
    let (_, five) = run(&plan_with(5));
    let sorted = |events: &[Event], node| {
        let mut data = segments_received(events);
        data.retain(|it| it.0 == node);
        // Tokens make packets longer with several shards, so nearly simultaneous packets may swap.
        data.sort_unstable();
        data
    };
    assert!(segments_received(&one).len() > 1000);
    let mut openly = 0;
    for node in 0..one.iter().map(|event| event.node).max().unwrap() {
        // Closed loops send more Interests if answers arrive sooner; open loops do not.
        let ours = sorted(&one, node);
        let is_open = node % 4 == 2;
        if is_open {
            openly += ours.len();
            assert_eq!(ours, sorted(&two, node), "node {node}");
            assert_eq!(ours, sorted(&five, node), "node {node}");
        }
    }
    assert!(openly > 1000);
}

fn without_stores(mut plan: Plan) -> Plan {
    for node in &mut plan.nodes {
        if let Role::Router(router) = &mut node.role {
            router.store = StoreOptions::with_bytes(0);
        }
    }
    plan
}

#[test]
fn survives_and_reports_faults() {
    let mut plan = without_stores(line(11, 4, window(16)));
    plan.duration_ns = 10 * S;
    let fault = |at_ns, fault| weir_plan::FaultPlan { at_ns, fault };
    plan.faults = vec![
        fault(S, Fault::LinkDown { link: 1, for_ns: S / 2 }),
        fault(5 * S / 4, Fault::LinkDown { link: 1, for_ns: S }),
        fault(3 * S, Fault::Crash { node: 1, for_ns: S / 2 }),
        fault(5 * S, Fault::StoreStall { node: 0, for_ns: S }),
        fault(5 * S, Fault::Crash { node: 2, for_ns: S / 10 }),
    ];
    let (_, events) = run(&plan);
    let begun = count(&events, |kind| matches!(kind, EventKind::FaultChanged { .. }));
    assert_eq!(begun, 10);
    let between = |from_ns, to_ns| {
        let data = events.iter().filter(|event| {
            (from_ns..to_ns).contains(&event.at_ns)
                && matches!(event.kind, EventKind::DataReceived { .. })
        });
        data.count()
    };
    assert!(between(0, S) > 100);
    assert!(between(8 * S, 10 * S) > 100, "everything works again");
    assert_eq!(between(S + 100 * MS, 9 * S / 4), 0, "the only path is down");
    assert_eq!(between(3 * S + 100 * MS, 7 * S / 2), 0, "the router is down");
}

/// Regression: frames were counted when sent, and the counter decreased when a link went down.
#[test]
fn link_cut_never_decreases_counters() {
    let mut plan = without_stores(line(7, 10, window(64)));
    plan.sample_ns = 10 * MS;
    for at in 1..5 {
        plan.faults.push(weir_plan::FaultPlan {
            at_ns: at * S / 2 + MS,
            fault: Fault::LinkDown { link: 1, for_ns: S / 4 },
        });
    }
    let (_, events) = run(&plan);
    let mut last = BTreeMap::new();
    for event in &events {
        let EventKind::LinkSample { link, frames, bytes, dropped, .. } = event.kind else {
            continue;
        };
        let now = [frames, bytes, dropped];
        let before: [u64; 3] = last.insert((event.node, link), now).unwrap_or_default();
        assert!(before.iter().zip(now).all(|(before, now)| *before <= now), "{event:?}");
    }
    assert!(last.values().any(|[_, _, dropped]| *dropped > 0), "frames were in flight");
}

#[test]
fn wrong_bytes_are_detected_and_not_delivered() {
    let mut plan = without_stores(line(13, 3, window(32)));
    plan.duration_ns = 10 * S;
    for at in [1, 4] {
        plan.faults.push(weir_plan::FaultPlan {
            at_ns: at * S,
            fault: Fault::WrongBytes { link: 1, for_ns: 2 * S, probability: 0.2 },
        });
    }
    let (summary, events) = run(&plan);
    assert!(summary.damaged_frames > 20, "{summary:?}");
    assert!(summary.damage_noticed > 10, "{summary:?}");
    let reported = count(&events, |kind| matches!(kind, EventKind::DamagedData { .. }));
    assert!(reported > 10, "{reported}");
}

#[test]
fn unanswered_consumer_is_a_violation() {
    let mut plan = line(2, 3, poisson(50.0));
    plan.duration_ns = 100 * S;
    let Role::Producer(producer) = &mut plan.nodes[4].role else { panic!("the producer") };
    producer.delay_ns = 60 * S;
    let violation = Network::new(&plan).unwrap().run(&mut Blind).unwrap_err();
    assert_eq!(violation.kind, ViolationKind::Liveness, "{violation}");
    assert_eq!((violation.node.as_str(), violation.seed), ("c3", 2));
    assert_eq!(violation.last_events.len(), 64);
    assert!(violation.at_ns > 40 * S && violation.at_ns < 61 * S);
}

#[test]
fn zero_delay_answers_are_a_violation() {
    let mut plan = line(2, 1, window(4));
    for link in &mut plan.links {
        (link.a_to_b, link.b_to_a) = (LinkConfig::default(), LinkConfig::default());
    }
    let violation = Network::new(&plan).unwrap().run(&mut Blind).unwrap_err();
    assert_eq!(violation.kind, ViolationKind::Liveness);
    assert!(violation.what.contains("stands still"), "{violation}");
}

#[test]
fn invalid_plans_are_rejected_by_name() {
    let good = line(1, 2, window(1));
    let refused = |change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        match Network::new(&plan) {
            Ok(_) => panic!("accepted"),
            Err(error) => error,
        }
    };
    let router = |plan: &mut Plan, change: &dyn Fn(&mut RouterPlan)| match &mut plan.nodes[0].role {
        Role::Router(router) => change(router),
        _ => panic!("node 0 is a router"),
    };
    let named = |error: PlanError, words: &[&str]| {
        let text = error.to_string();
        for word in words {
            assert!(text.contains(word), "{text}: no {word}");
        }
    };
    named(refused(&|plan| plan.nodes[1].name = "r0".into()), &["`r0`", "unique"]);
    named(refused(&|plan| plan.links[0].b = 9), &["link 0", "node 9", "4"]);
    named(refused(&|plan| plan.links[0].b = plan.links[0].a), &["link 0", "r0"]);
    named(refused(&|plan| plan.links[1].b = 3), &["c2", "0 links"]);
    named(refused(&|plan| plan.routes[0].link = 7), &["route 0", "link 7"]);
    named(refused(&|plan| plan.routes[0].node = 2), &["route 0", "c2", "router"]);
    named(refused(&|plan| plan.routes[0].prefix = "a//%zz".into()), &["route 0", "prefix"]);
    named(refused(&|plan| plan.links[0].mtu = 3), &["link 0", "mtu"]);
    let bad_fault = Fault::Crash { node: 3, for_ns: 1 };
    named(
        refused(&|plan| {
            let fault = bad_fault.clone();
            plan.faults.push(weir_plan::FaultPlan { at_ns: 0, fault });
        }),
        &["fault 0", "p3"],
    );
    named(refused(&|plan| router(plan, &|r| r.strategy = "x".into())), &["r0", "best-route"]);
    named(refused(&|plan| router(plan, &|r| r.store_filled = 1.5)), &["r0", "1.5"]);
    named(refused(&|plan| router(plan, &|r| r.store_filled = f64::NAN)), &["r0", "NaN"]);
    named(refused(&|plan| router(plan, &|r| r.shards = 0)), &["r0", "shards"]);
    named(refused(&|plan| plan.routes[0].link = 1), &["route", "r1", "link 1"]);
}
