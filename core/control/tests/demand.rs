//! Objects with high demand displace objects with low demand.

use crate::common;

use common::{OWNER, alive, five, name, seconds};
use weir_control::message::Decision;
use weir_control::{Controller, ControllerConfig, Event, File, Placement};

/// A file that needs two of the three stores.
fn file(name_of: &str) -> File {
    File { name: name(&format!("/data/{name_of}/v=1")), ..common::file(11_000) }
}

fn controller(placement: Placement) -> Controller {
    // Without prefetching, parts do not stall: no router fetches anything in this test.
    let config = ControllerConfig { placement, prefetch: false, ..ControllerConfig::default() };
    let mut controller = five(config);
    for name in ["a", "b"] {
        controller.add_file(OWNER, file(name)).unwrap();
    }
    controller
}

fn ask(controller: &mut Controller, what: &str, times: usize) {
    for _ in 0..times {
        let answer = controller.forward("edge", &file(what).name).unwrap();
        assert_eq!(answer.decision, Decision::Planned);
    }
}

/// Segments of a file that are kept, and how many of them at the router nearest to the edge.
fn kept(controller: &Controller, what: &str) -> (u64, u64) {
    let object = file(what).name;
    let plans = controller.plans().filter(|plan| plan.object == object);
    let parts: Vec<_> = plans.flat_map(|plan| &plan.parts).collect();
    let all = parts.iter().map(|part| part.last - part.first + 1).sum();
    let near = parts.iter().filter(|part| part.router == "one");
    (all, near.map(|part| part.last - part.first + 1).sum())
}

#[test]
fn double_demand_takes_nearest_routers() {
    let mut controller = controller(Placement::ByDemand);
    ask(&mut controller, "a", 1);
    assert_eq!(kept(&controller, "a").0, 11_000);
    ask(&mut controller, "b", 1);
    let before = kept(&controller, "b").0;
    assert!(before < 7_000, "{before}");
    ask(&mut controller, "b", 1);
    let (after, near) = kept(&controller, "b");
    assert!(after == 11_000 && near > 5_000, "{after} {near}");
    // The other file gets the remaining space, and no store is promised more than it has.
    let (left, near) = kept(&controller, "a");
    assert!(left < 7_000 && near < 1_000, "{left} {near}");
    assert!((after + left) * 9_700 <= 3 * 56_000_000);
}

#[test]
fn other_policies_ignore_demand() {
    for placement in [Placement::Nearest, Placement::LargestFree] {
        let mut controller = controller(placement);
        ask(&mut controller, "a", 1);
        let before = kept(&controller, "a");
        ask(&mut controller, "b", 20);
        assert_eq!(kept(&controller, "a"), before, "{placement:?}");
    }
}

#[test]
fn equal_demand_moves_nothing() {
    let mut controller = controller(Placement::ByDemand);
    ask(&mut controller, "a", 1);
    ask(&mut controller, "b", 1);
    let _ = controller.take_events();
    for _ in 0..50 {
        ask(&mut controller, "a", 1);
        ask(&mut controller, "b", 1);
    }
    let planned = controller.take_events();
    let planned = planned.iter().filter(|event| matches!(event, Event::Planned(_)));
    assert_eq!(planned.count(), 0);
    assert_eq!(kept(&controller, "a").0, 11_000);
}

#[test]
fn old_demand_counts_less() {
    let mut controller = controller(Placement::ByDemand);
    ask(&mut controller, "a", 8);
    ask(&mut controller, "b", 2);
    assert_eq!(kept(&controller, "a").0, 11_000);
    alive(&mut controller, seconds(3 * 600));
    ask(&mut controller, "b", 2);
    assert_eq!(kept(&controller, "b").0, 11_000);
}

#[test]
fn decisions_are_deterministic() {
    let run = || {
        let mut controller = controller(Placement::ByDemand);
        for times in [1, 3, 2, 9, 4] {
            ask(&mut controller, "a", times);
            ask(&mut controller, "b", 2 * times);
        }
        controller.take_events()
    };
    assert_eq!(run(), run());
}
