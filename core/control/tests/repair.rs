//! Plans adapt when stores, routers or holdings change.

use crate::common;

use std::collections::BTreeSet;

use common::{
    MIDDLE, OWNER, STORE_BYTES, alive, config, file, five, parts, report, seconds, update,
};
use weir_control::message::{Change, Tier, Update, UpdateNumber};
use weir_control::{Controller, ControllerConfig, Event, File, Segments};

fn kept(controller: &Controller) -> u64 {
    parts(controller).iter().map(|(_, count)| count).sum()
}

#[test]
fn fills_new_store_space() {
    let mut controller = five(config());
    controller.add_file(OWNER, file(30_000)).unwrap();
    controller.forward("edge", &file(1).name).unwrap();
    let before = parts(&controller);
    assert!(kept(&controller) < 21_000);
    controller.report(seconds(1), "two", report("two", 9 * STORE_BYTES)).unwrap();
    controller.tick(seconds(1));
    assert_eq!(kept(&controller), 30_000);
    let after = parts(&controller);
    assert!(before.iter().all(|part| after.contains(part)), "{before:?} {after:?}");
    let edge = controller.configuration("edge").unwrap();
    assert_eq!(edge.distributions[0].parts.len(), 4);
    assert!(edge.distributions[0].parts.is_sorted_by_key(|part| part.first));
}

#[test]
fn fills_space_of_a_withdrawn_file() {
    let mut controller = five(config());
    let other = File { name: "/data/other/v=1".parse().unwrap(), ..file(12_000) };
    controller.add_file(OWNER, other.clone()).unwrap();
    controller.forward("edge", &other.name).unwrap();
    controller.add_file(OWNER, file(12_000)).unwrap();
    controller.forward("edge", &file(1).name).unwrap();
    controller.remove_file(&other.name);
    assert!(kept(&controller) < 12_000);
    controller.tick(seconds(1));
    assert_eq!(kept(&controller), 12_000);
}

fn spread(controller: &Controller) -> Vec<String> {
    let edge = controller.configuration("edge").unwrap();
    let spread = edge.distributions.into_iter().flat_map(|one| one.spread);
    let mut routers: Vec<String> = spread.map(|share| share.router).collect();
    routers.sort();
    routers
}

/// An update that reports segments of the file as removed.
fn evicted(number: u64, segments: Segments) -> Update {
    let (object, added) = (file(1).name, Segments::default());
    let changes = vec![Change { object, tier: Tier::Memory, added, removed: segments }];
    Update { at: UpdateNumber { generation: 1, number }, changes }
}

#[test]
fn spread_follows_current_holders() {
    let mut controller = five(config());
    controller.add_file(OWNER, file(2_000)).unwrap();
    let all = || Segments::range(0, 1_999);
    controller.update(seconds(1), "one", update(1, 1, all())).unwrap();
    controller.forward("edge", &file(1).name).unwrap();
    assert_eq!(spread(&controller), ["one"]);
    controller.update(seconds(2), "two", update(1, 1, Segments::range(0, 999))).unwrap();
    controller.tick(seconds(2));
    assert_eq!(spread(&controller), ["one"], "`two` holds only half");
    controller.update(seconds(3), "two", update(1, 2, Segments::range(1_000, 1_999))).unwrap();
    controller.tick(seconds(3));
    assert_eq!(spread(&controller), ["one", "two"]);
    controller.update(seconds(4), "one", evicted(2, Segments::range(7, 7))).unwrap();
    controller.tick(seconds(4));
    assert_eq!(spread(&controller), ["two"]);
    // A new generation without the file.
    controller.update(seconds(5), "two", update(2, 1, Segments::default())).unwrap();
    controller.tick(seconds(5));
    assert_eq!(
        (spread(&controller), kept(&controller)),
        (vec![], 2_000),
        "parts replace the lost holder"
    );
}

#[test]
fn multipath_becomes_parts_with_stores() {
    let mut controller = Controller::new(config());
    for router in ["edge", "origin", "one", "two", "three"] {
        controller.report(seconds(0), router, report(router, 0)).unwrap();
    }
    controller.add_file(OWNER, file(2_000)).unwrap();
    controller.forward("edge", &file(1).name).unwrap();
    assert_eq!(spread(&controller), ["one", "three", "two"]);
    alive(&mut controller, seconds(1));
    assert_eq!((spread(&controller), kept(&controller)), (vec![], 2_000));
}

#[test]
fn stalled_parts_move_to_other_routers() {
    let mut controller = five(config());
    controller.add_file(OWNER, file(8_000)).unwrap();
    controller.forward("edge", &file(1).name).unwrap();
    let before = parts(&controller);
    let (idle, count) = before[1].clone();
    let first = controller.plans().next().unwrap().parts[0].clone();
    let held = Segments::range(first.first, first.last);
    controller.update(seconds(5), &first.router, update(1, 1, held.clone())).unwrap();
    controller.take_events();
    for at in (10..=60).step_by(10) {
        alive(&mut controller, seconds(at));
        assert_eq!(parts(&controller), before, "not stalled yet at {at} s");
    }
    alive(&mut controller, seconds(66));
    let keeps_not =
        Event::PartNotKept { router: idle.clone(), object: file(1).name, segments: count };
    assert!(controller.take_events().contains(&keeps_not));
    let after = parts(&controller);
    assert!(after.contains(&before[0]) && after.iter().all(|(router, _)| *router != idle));
    assert_eq!(kept(&controller), 8_000);
    // A router that had its part and has evicted some of it has not kept it either.
    controller.update(seconds(70), &first.router, evicted(2, Segments::range(0, 9))).unwrap();
    let third = MIDDLE.iter().find(|one| **one != idle && **one != first.router).unwrap();
    let rest = Segments::range(first.last + 1, 7_999);
    controller.update(seconds(70), third, update(1, 1, rest)).unwrap();
    for at in (70..=140).step_by(10) {
        alive(&mut controller, seconds(at));
    }
    let object = file(1).name;
    let keeps_not = Event::PartNotKept { router: first.router.clone(), object, segments: 10 };
    assert!(controller.take_events().contains(&keeps_not));
    // After ten minutes they may get parts again.
    let used = |controller: &Controller| -> BTreeSet<String> {
        parts(controller).into_iter().map(|(router, _)| router).collect()
    };
    assert_eq!(used(&controller), BTreeSet::from([third.to_string()]));
    for at in (150..=690).step_by(10) {
        alive(&mut controller, seconds(at));
    }
    assert!(used(&controller).len() > 1);
}

#[test]
fn parts_without_prefetch_do_not_stall() {
    let mut controller = five(ControllerConfig { prefetch: false, ..config() });
    controller.add_file(OWNER, file(8_000)).unwrap();
    controller.forward("edge", &file(1).name).unwrap();
    let before = parts(&controller);
    for at in (10..=200).step_by(10) {
        alive(&mut controller, seconds(at));
    }
    assert_eq!(parts(&controller), before);
}
