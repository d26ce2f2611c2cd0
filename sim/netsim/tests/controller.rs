//! A controller distributes the ranges of a file that fits no single store (paper
//! multipath-cache-management, 3.3 and 5). A second read needs no Data from the producer, and
//! routers keep forwarding while the controller does not respond.

use crate::common;

use common::{MS, PlanBuilder, S, consumer, names, producer, run};
use weir_control::Placement;
use weir_netem::LinkConfig;
use weir_options::StoreOptions;
use weir_plan::event::{Event, EventKind};
use weir_plan::workload::{ConsumerPlan, Demand, Names, Popularity};
use weir_plan::{ControllerPlan, Fault, Plan, RouterPlan};

const SEGMENTS: u64 = 1_500;
/// The second read starts.
const SECOND_NS: u64 = 10 * S;

fn content(prefix: &str, segments: u64) -> Names {
    names(prefix, Popularity::Sequential { objects: 1 }, segments * 8000, 8000)
}

fn reader(names: Names, segments: u64, start_ns: u64) -> ConsumerPlan {
    let demand = Demand::Window { window: 20, count: Some(segments) };
    ConsumerPlan { start_ns, ..consumer(names, demand) }
}

/// An edge router with two readers that start one after the other, three parallel routers, and an
/// origin. The stores of the three hold 6 MB in total, and the file has 12 MB.
fn plan(controller: Option<ControllerPlan>) -> Plan {
    let mut builder = PlanBuilder::new(3, 30 * S);
    let store =
        |bytes| RouterPlan { store: StoreOptions::with_bytes(bytes), ..RouterPlan::default() };
    let edge = builder.router(store(0));
    let middle = [(); 3].map(|()| builder.router(store(6 << 20)));
    let origin = builder.router(store(0));
    let link = |delay_ms: u64| LinkConfig { delay_ns: delay_ms * MS, ..LinkConfig::default() };
    for (place, router) in middle.into_iter().enumerate() {
        builder.link(edge, router, &link(2 + place as u64));
        builder.link(router, origin, &link(20));
    }
    let file = content("/f", SEGMENTS);
    builder.consumer(edge, reader(file.clone(), SEGMENTS, 0));
    builder.consumer(edge, reader(file.clone(), SEGMENTS, SECOND_NS));
    for router in middle {
        let plan = ConsumerPlan { prefetches: true, ..reader(file.clone(), 1, 0) };
        builder.consumer(router, plan);
    }
    builder.producer(origin, producer(file));
    builder.plan.controller = controller;
    builder.plan.sample_ns = S;
    builder.plan
}

fn with_controller(prefetch: bool) -> Option<ControllerPlan> {
    let placement = Placement::LargestFree;
    Some(ControllerPlan {
        delay_ns: 5 * MS,
        placement,
        prefetch,
        prefetch_first: true,
        ratio: vec![],
        agents: false,
        routes: None,
    })
}

/// Data that a consumer received in a time span, and the time of the last one.
fn received(events: &[Event], node: usize, from_ns: u64) -> (u64, u64) {
    let received = events.iter().filter(|event| {
        let is_data = matches!(event.kind, EventKind::DataReceived { .. });
        is_data && event.node as usize == node && event.at_ns >= from_ns
    });
    received.fold((0, 0), |(count, _), event| (count + 1, event.at_ns))
}

/// Data that the producer's router sent until a time.
fn produced(events: &[Event], node: u32, until_ns: u64) -> u64 {
    let mut samples = events.iter().filter_map(|event| match &event.kind {
        EventKind::RouterSample(sample) if event.node == node && event.at_ns <= until_ns => {
            Some(sample.out_data)
        }
        _ => None,
    });
    samples.next_back().unwrap_or(0)
}

const ORIGIN: u32 = 4;
const FIRST: usize = 5;
const SECOND: usize = 6;

#[test]
fn second_read_needs_no_producer() {
    for prefetch in [false, true] {
        let (_, events) = run(&plan(with_controller(prefetch)));
        assert_eq!(received(&events, FIRST, 0).0, SEGMENTS);
        assert_eq!(received(&events, SECOND, 0).0, SEGMENTS);
        let before = produced(&events, ORIGIN, SECOND_NS);
        assert_eq!(produced(&events, ORIGIN, u64::MAX), before, "prefetch: {prefetch}");
        // Until the controller replied, segments of other ranges took the normal routes.
        assert!((SEGMENTS..SEGMENTS + 100).contains(&before), "{before}");
    }
    let (_, events) = run(&plan(None));
    let before = produced(&events, ORIGIN, SECOND_NS);
    assert!(
        produced(&events, ORIGIN, u64::MAX) > before + 500,
        "without the controller most Data comes from the producer"
    );
}

#[test]
fn prefetching_shortens_the_first_reading() {
    let ended = |prefetch| received(&run(&plan(with_controller(prefetch))).1, FIRST, 0).1;
    let (without, with) = (ended(false), ended(true));
    assert!(with < without * 9 / 10, "{with} of {without} ns");
}

#[test]
fn survives_crash_of_a_holding_router() {
    let mut plan = plan(with_controller(false));
    let node = 1;
    plan.faults
        .push(weir_plan::FaultPlan { at_ns: 5 * S, fault: Fault::Crash { node, for_ns: 2 * S } });
    let (_, events) = run(&plan);
    assert_eq!(received(&events, SECOND, 0).0, SEGMENTS);
}

/// An edge router, a router behind it without a store, and behind that two routers with stores,
/// next to an origin.
fn behind(agents: bool) -> Plan {
    let mut builder = PlanBuilder::new(3, 30 * S);
    let store =
        |bytes| RouterPlan { store: StoreOptions::with_bytes(bytes), ..RouterPlan::default() };
    let edge = builder.router(store(0));
    let hop = builder.router(store(0));
    let keepers = [(); 2].map(|()| builder.router(store(9 << 20)));
    let origin = builder.router(store(0));
    let link = |delay_ms: u64| LinkConfig { delay_ns: delay_ms * MS, ..LinkConfig::default() };
    builder.link(edge, hop, &link(2));
    for router in keepers {
        builder.link(hop, router, &link(3));
    }
    builder.link(hop, origin, &link(20));
    let file = content("/f", SEGMENTS);
    builder.consumer(edge, reader(file.clone(), SEGMENTS, 0));
    builder.consumer(edge, reader(file.clone(), SEGMENTS, SECOND_NS));
    builder.producer(origin, producer(file));
    let placement = Placement::Nearest;
    let plan = ControllerPlan { placement, agents, ..with_controller(false).unwrap() };
    builder.plan.controller = Some(plan);
    builder.plan.sample_ns = S;
    builder.plan
}

#[test]
fn agents_reach_holders_that_are_no_neighbours() {
    let plan = behind(true);
    let (_, events) = run(&plan);
    let before = produced(&events, ORIGIN, SECOND_NS);
    assert_eq!(received(&events, FIRST, 0).0, SEGMENTS);
    let (count, last_ns) = received(&events, SECOND, SECOND_NS);
    // The segments that the first reader fetched before the controller's reply are in no store.
    let second = produced(&events, ORIGIN, u64::MAX) - before;
    assert!(second < 100, "{second}");
    // 75 rounds of 20 segments, over the 2 ms and 3 ms round trips. A few also use the 23 ms to the
    // origin, but not all of them use the 22 ms to the origin.
    let took_ns = last_ns - SECOND_NS;
    assert_eq!(count, SEGMENTS);
    assert!((750 * MS..1100 * MS).contains(&took_ns), "{took_ns}");
    let (_, events) = run(&behind(false));
    let before = produced(&events, ORIGIN, SECOND_NS);
    let after = produced(&events, ORIGIN, u64::MAX);
    assert_eq!(after - before, SEGMENTS, "without agents the edge has no face to the holders");
}

#[test]
fn faces_to_distant_holders_outlast_a_crash() {
    let mut plan = behind(true);
    let crash = |node| Fault::Crash { node, for_ns: S };
    for (node, at_ns) in [(0, 5 * S), (2, 7 * S)] {
        plan.faults.push(weir_plan::FaultPlan { at_ns, fault: crash(node) });
    }
    let (_, events) = run(&plan);
    assert_eq!(received(&events, SECOND, 0).0, SEGMENTS);
    let second = produced(&events, ORIGIN, u64::MAX) - produced(&events, ORIGIN, SECOND_NS);
    // The router that crashed lost its ranges; the other one did not.
    assert!((SEGMENTS / 4..SEGMENTS * 3 / 4).contains(&second), "{second}");
}
