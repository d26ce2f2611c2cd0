//! A controller next to others that have other routers of the same network (docs/decisions/0028).

use crate::common;

use std::collections::BTreeMap;

use common::{OWNER, alive, config, file, five, name, owned, seconds, update};
use weir_control::{Controller, ControllerConfig, File, Plan, Segments};

/// For each (controller, count): `count` routers that report to this controller alone.
fn heard(by: &[(u64, usize)]) -> BTreeMap<String, u64> {
    let routers = by.iter().flat_map(|&(run, count)| {
        (0..count).map(move |router| (format!("router-{run}-{router}"), run))
    });
    routers.collect()
}

#[test]
fn waits_only_for_larger_controllers() {
    let mut controller = five(config());
    let mut waits = |by: &[(u64, usize)]| {
        controller.set_heard_elsewhere(heard(by));
        controller.tick(seconds(1));
        controller.is_waiting()
    };
    assert!(!waits(&[]));
    assert!(!waits(&[(1, 5)]));
    // Three or four controllers with equal shares: if this one waited, all would.
    assert!(!waits(&[(1, 5), (2, 5)]));
    assert!(!waits(&[(1, 5), (2, 5), (3, 5)]));
    assert!(!waits(&[(1, 1), (2, 2), (3, 3)]));
    assert!(waits(&[(1, 1), (2, 6)]));
}

#[test]
fn reported_router_counts_as_here() {
    let mut controller = five(config());
    let mut by = heard(&[(1, 3)]);
    by.extend(["edge", "one", "two", "three"].map(|router| (router.to_owned(), 1)));
    controller.set_heard_elsewhere(by);
    controller.tick(seconds(1));
    assert!(!controller.is_waiting(), "five here, three there");
}

/// Regression: it waited as long as a router may be silent, although no router was missing.
#[test]
fn wait_ends_when_all_routers_have_moved_here() {
    let mut controller = Controller::new(config());
    let moving = ["one", "two", "three"];
    let elsewhere = moving.map(|router| (router.to_owned(), 7));
    controller.set_heard_elsewhere(elsewhere.into());
    let mut come = |router: &str| {
        controller.report(seconds(1), router, common::report(router, 1_000_000)).unwrap();
        controller.tick(seconds(1));
        controller.update(seconds(1), router, update(7, 1, Segments::default())).unwrap();
        controller.is_waiting()
    };
    assert!(moving.map(&mut come).into_iter().all(|waits| waits));
    controller.tick(seconds(1));
    assert!(controller.is_waiting(), "the rest of their holdings may follow");
    controller.tick(seconds(2));
    assert!(!controller.is_waiting());
}

#[test]
fn keeps_plans_of_routers_heard_elsewhere() {
    let mut controller = Controller::new(ControllerConfig::default());
    let mut made = five(config());
    made.add_file(OWNER, file(12_000)).unwrap();
    made.forward("edge", &name("/data/file/v=1")).unwrap();
    let plan = made.plans().next().unwrap().clone();
    controller.restore(vec![owned(file(12_000))], vec![plan.clone()]);
    let keepers: BTreeMap<String, u64> =
        ["one", "two", "three"].map(|router| (router.to_owned(), 7)).into();
    controller.set_heard_elsewhere(keepers);
    for at in [1, 5, 9, 14, 16] {
        for router in ["edge", "origin", "more", "still-more"] {
            let report = common::report(router, 1_000_000);
            controller.report(seconds(at), router, report).unwrap();
        }
        controller.tick(seconds(at));
    }
    assert!(!controller.is_waiting());
    assert_eq!(controller.plans().next(), Some(&plan), "the keepers report to other controllers");
    controller.set_heard_elsewhere(BTreeMap::new());
    controller.tick(seconds(17));
    assert_ne!(controller.plans().next(), Some(&plan), "the keepers report to no controller");
    alive(&mut controller, seconds(18));
}

/// As in a database that was edited or damaged.
#[test]
fn ignores_invalid_files_and_plans() {
    let mut made = five(config());
    made.add_file(OWNER, file(12_000)).unwrap();
    made.forward("edge", &name("/data/file/v=1")).unwrap();
    let good = made.plans().next().unwrap().clone();
    let spoil = |act: fn(&mut Plan)| {
        let mut plan = Plan { number: good.number + 1000, ..good.clone() };
        act(&mut plan);
        plan
    };
    let bad = [
        spoil(|plan| plan.parts[0].first = plan.parts[0].last + 1),
        spoil(|plan| plan.parts[1].first = 0),
        spoil(|plan| plan.parts.reverse()),
        spoil(|plan| plan.parts.last_mut().unwrap().last = 12_000),
        spoil(|plan| plan.parts.last_mut().unwrap().last = u64::MAX),
    ];
    for plan in bad {
        assert!(!plan.is_valid(12_000), "{plan:?}");
        for counts in [false, true] {
            made.adopt(plan.clone(), counts);
            assert_eq!(made.plans().next(), Some(&good), "{plan:?}");
        }
        let mut controller = Controller::new(config());
        controller.restore(vec![owned(file(12_000))], vec![plan]);
        assert_eq!(controller.plans().next(), None);
    }
    let mut controller = Controller::new(config());
    let files = [file(0), File { packet_bytes: 0, ..file(9) }];
    controller.restore(files.map(owned).into(), vec![good]);
    assert_eq!((controller.files_count(), controller.plans().next()), (0, None));
}
