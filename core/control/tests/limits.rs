//! Limits on reports and requests of one router, with events for the operator.

use crate::common;

use common::{OWNER, STORE_BYTES, alive, config, file, five, report, seconds, update};
use weir_control::message::{Change, Decision, RouterReport, Tier, Update, UpdateNumber};
use weir_control::{ControlError, Controller, ControllerConfig, Event, File, LimitKind, Segments};

fn bounded(router: &str, bound: LimitKind, count: u64) -> Event {
    Event::LimitExceeded { router: router.to_owned(), bound, count }
}

fn count(controller: &Controller, bound: LimitKind) -> u64 {
    controller.limit_counts().find(|(other, _)| *other == bound).unwrap().1
}

#[test]
fn impossible_holdings_make_one_event_a_minute() {
    let mut controller = five(config());
    controller.add_file(OWNER, file(100)).unwrap();
    controller.take_events();
    controller.update(seconds(1), "one", update(1, 1, Segments::range(90, 999))).unwrap();
    assert_eq!(controller.holdings(&file(1).name), [("one", Segments::range(90, 99))]);
    assert_eq!(controller.take_events(), [bounded("one", LimitKind::BeyondFile, 900)]);
    for number in 2..1_000 {
        controller.update(seconds(2), "one", update(1, number, Segments::range(100, 100))).unwrap();
    }
    controller.update(seconds(2), "two", update(1, 1, Segments::range(100, 100))).unwrap();
    assert_eq!(controller.take_events(), [bounded("two", LimitKind::BeyondFile, 1)]);
    alive(&mut controller, seconds(10));
    assert!(controller.take_events().is_empty());
    for at in (20..=70).step_by(10) {
        alive(&mut controller, seconds(at));
    }
    assert_eq!(controller.take_events(), [bounded("one", LimitKind::BeyondFile, 998)]);
    assert_eq!(count(&controller, LimitKind::BeyondFile), 1_899);
}

/// An update that reports one segment of each of many objects.
fn many(number: u64, objects: std::ops::Range<u64>) -> Update {
    let change = |object: u64| Change {
        object: format!("/x/{object}").parse().unwrap(),
        tier: Tier::Memory,
        added: Segments::range(0, 0),
        removed: Segments::default(),
    };
    let at = UpdateNumber { generation: 1, number };
    Update { at, changes: objects.map(change).collect() }
}

#[test]
fn limits_unregistered_objects() {
    let mut controller = five(ControllerConfig { unregistered_max: 10, ..config() });
    controller.take_events();
    controller.update(seconds(1), "one", many(1, 0..25)).unwrap();
    assert_eq!(controller.take_events(), [bounded("one", LimitKind::Unregistered, 1)]);
    assert_eq!(count(&controller, LimitKind::Unregistered), 15);
    // Further updates are accepted, and other routers and files are not affected.
    controller.update(seconds(1), "two", many(1, 20..25)).unwrap();
    controller.add_file(OWNER, file(100)).unwrap();
    controller.update(seconds(1), "one", update(1, 2, Segments::range(0, 99))).unwrap();
    assert_eq!(controller.holdings(&file(1).name).len(), 1);
    assert_eq!(controller.holdings(&"/x/3".parse().unwrap()).len(), 1);
    assert_eq!(controller.holdings(&"/x/24".parse().unwrap()), [("two", Segments::range(0, 0))]);
}

#[test]
fn rejects_holdings_beyond_store_size() {
    let mut controller = five(config());
    // Nine files of 32 MB. A store of 64 MB with several workers may report four times its size.
    for number in 0..9 {
        let name = format!("/data/{number}").parse().unwrap();
        controller.add_file(OWNER, File { name, ..file(4_000) }).unwrap();
    }
    controller.take_events();
    for number in 0..9 {
        let object = format!("/data/{number}").parse().unwrap();
        let (added, removed) = (Segments::range(0, 3_999), Segments::default());
        let changes = vec![Change { object, tier: Tier::Memory, added, removed }];
        let at = UpdateNumber { generation: 1, number: number + 1 };
        controller.update(seconds(1), "one", Update { at, changes }).unwrap();
    }
    assert_eq!(controller.take_events(), [bounded("one", LimitKind::BeyondStore, 4_000)]);
    assert_eq!(
        controller.forward("edge", &"/data/7".parse().unwrap()).unwrap().decision,
        Decision::Planned
    );
    let held = |number: u64| controller.holdings(&format!("/data/{number}").parse().unwrap()).len();
    assert_eq!((held(7), held(8)), (1, 0));
}

#[test]
fn limits_new_plans_of_one_router() {
    let mut controller = five(config());
    controller.report(seconds(0), "one", report("one", 1 << 50)).unwrap();
    let object = |number: u64| format!("/data/{number}").parse().unwrap();
    for number in 0..5_000 {
        controller.add_file(OWNER, File { name: object(number), ..file(1_000) }).unwrap();
    }
    let ask = |controller: &mut Controller, router: &str| -> usize {
        let decisions =
            (0..5_000).map(|number| controller.forward(router, &object(number)).unwrap().decision);
        decisions.filter(|decision| *decision == Decision::Planned).count()
    };
    assert_eq!(ask(&mut controller, "edge"), 4_096);
    assert!(controller.take_events().contains(&bounded("edge", LimitKind::Plans, 1)));
    assert!(controller.forward("origin", &object(4_999)).unwrap().decision == Decision::Planned);
    alive(&mut controller, seconds(1));
    // Plans that it has already joined cost nothing.
    assert_eq!(ask(&mut controller, "edge"), 4_096 + 64);
}

#[test]
fn first_router_keeps_an_address() {
    let mut controller = five(config());
    let links = controller.links();
    controller.take_events();
    let uris = vec!["udp4://two".into(), "udp4://one".into()];
    let lies = RouterReport { uris, ..report("one", STORE_BYTES) };
    controller.report(seconds(1), "one", lies).unwrap();
    assert_eq!(controller.links(), links);
    assert_eq!(controller.take_events(), [bounded("one", LimitKind::Address, 1)]);
    // When its owner is lost, another router may take over the address.
    for router in ["edge", "origin", "three"] {
        controller.report(seconds(20), router, report(router, 1_000_000)).unwrap();
    }
    controller.tick(seconds(20));
    let heir = RouterReport { uris: vec!["udp4://two".into()], ..report("one", STORE_BYTES) };
    controller.report(seconds(21), "heir", heir).unwrap();
    assert!(controller.links().iter().any(|link| link.to == "heir"));
}

#[test]
fn limits_faces_of_a_report() {
    let mut controller = five(config());
    let faces = vec![common::face("x", 1); 5_000];
    let refused = controller.report(seconds(1), "one", RouterReport { faces, ..report("one", 1) });
    assert_eq!(refused, Err(ControlError::TooMany { what: "faces of this router", max: 4096 }));
}

#[test]
fn limits_rules_and_keeps_large_files() {
    let mut controller = five(config());
    for (router, store_bytes) in [("one", 1 << 50), ("two", 1 << 50), ("three", 0)] {
        controller.report(seconds(0), router, report(router, store_bytes)).unwrap();
    }
    let object = |number: u64| format!("/data/{number}").parse().unwrap();
    // Sizes do not follow the order of names.
    let segments = |number: u64| 1_000 + number % 3_000;
    for number in 0..6_000 {
        controller
            .add_file(OWNER, File { name: object(number), ..file(segments(number)) })
            .unwrap();
    }
    controller.take_events();
    for number in 0..6_000 {
        controller.forward(if number < 4_000 { "edge" } else { "three" }, &object(number)).unwrap();
    }
    // Data of all files passes through the producer's router.
    let rules = controller.configuration("origin").unwrap().rules;
    assert_eq!(rules.len(), 4_096);
    let kept: u64 = rules.iter().map(|rule| controller.file(&rule.object).unwrap().segments).sum();
    let mut sizes: Vec<u64> = (0..6_000).map(segments).collect();
    sizes.sort_unstable_by(|one, other| other.cmp(one));
    let planned: u64 = sizes[..4_096].iter().sum();
    assert!(kept * 100 > planned * 95, "{kept} of {planned} segments");
    let events = controller.take_events();
    assert!(events.contains(&bounded("origin", LimitKind::Rules, 1)), "{events:?}");
    // A keeper gets no more parts than its store has rules.
    for router in ["one", "two", "three"] {
        let kept = controller.plans().flat_map(|plan| &plan.parts);
        assert!(kept.filter(|part| part.router == router).count() <= 4_096);
    }
}

/// Regression: only one duplicate was remembered, so three routers with one name replaced each
/// other.
#[test]
fn refuses_all_later_duplicates() {
    let mut controller = five(config());
    let mut say = |at: u64, instance: u64| -> bool {
        let uris = vec![format!("udp4://{instance}")];
        let report = RouterReport { instance, uris, ..report("one", STORE_BYTES) };
        controller.report(seconds(at), "one", report).is_ok()
    };
    assert!(say(1, 12) && say(2, 77) && say(3, 12) && !say(4, 77));
    assert!(say(5, 88) && say(6, 12));
    assert!(!say(7, 77) && !say(8, 88) && say(9, 12));
    let twins: Vec<_> = controller.duplicates().map(|(_, uris)| uris.to_vec()).collect();
    assert_eq!(twins, [["udp4://77"], ["udp4://88"]]);
}

/// Regression: reports of two routers with one name were taken for one router. A restarted agent
/// must not be taken for a duplicate; a duplicate shows when the first agent reports again.
#[test]
fn first_router_keeps_a_duplicate_name() {
    let mut controller = five(config());
    let report_of = |instance: u64| RouterReport {
        instance,
        uris: vec![format!("udp4://{instance}")],
        ..report("one", STORE_BYTES)
    };
    let mut say = |at: u64, instance: u64| -> bool {
        let said = controller.report(seconds(at), "one", report_of(instance));
        assert!(said.is_ok() || said == Err(ControlError::NameTaken("one".to_owned())));
        said.is_ok()
    };
    // Two restarts.
    assert!(say(1, 10) && say(2, 11) && say(3, 12));
    // A duplicate appears while the present one still reports.
    assert!(say(4, 77) && say(5, 12));
    assert!(!say(6, 77) && say(7, 12) && !say(8, 77));
    // Also if the first router restarts.
    assert!(say(9, 13) && !say(10, 77) && say(11, 13));
    let duplicate_events = |controller: &mut Controller| {
        let events = controller.take_events().into_iter();
        let duplicate_events = events.filter_map(|event| match event {
            Event::DuplicateName { router, uris } => Some((router, uris)),
            _ => None,
        });
        duplicate_events.collect::<Vec<_>>()
    };
    let twin = ("one".to_owned(), vec!["udp4://77".to_owned()]);
    assert_eq!(duplicate_events(&mut controller), std::slice::from_ref(&twin));
    assert_eq!(controller.duplicates().collect::<Vec<_>>(), [("one", &twin.1[..])]);
    let uris = controller.routers().find(|(name, _)| *name == "one").unwrap().1.uris.clone();
    assert_eq!(uris, ["udp4://13"]);
    assert_eq!(count(&controller, LimitKind::Name), 3);
    controller.tick(seconds(20));
    assert!(controller.report(seconds(67), "one", report_of(77)).is_err());
    assert_eq!(duplicate_events(&mut controller), [twin]);

    // When the first router is lost, the duplicate may use the name.
    controller.tick(seconds(68));
    controller.tick(seconds(90));
    assert!(controller.report(seconds(91), "one", report_of(77)).is_ok());
    assert_eq!(controller.duplicates().count(), 0);
    // A report without an instance number is accepted as that of the router.
    assert!(controller.report(seconds(92), "one", report_of(0)).is_ok());
    assert!(controller.report(seconds(93), "one", report_of(77)).is_ok());
}
