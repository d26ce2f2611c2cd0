//! Step-by-step tests of a controller with five routers.

use crate::common;

use common::{
    MIDDLE, OWNER, config, face, file, five, name, owned, parts, report, seconds, update,
};
use weir_base::FaceId;
use weir_control::message::{Decision, FaceReport, Retention, RouterReport, UpdateNumber};
use weir_control::{
    ControlError, Controller, ControllerConfig, Event, File, FileStatus, List, Placement, Segments,
};
use weir_wire::Name;

#[test]
fn divides_file_larger_than_any_store() {
    let mut controller = five(config());
    controller.add_file(OWNER, file(12_000)).unwrap();
    let answer = controller.forward("edge", &file(1).name).unwrap();
    assert_eq!(answer.decision, Decision::Planned);
    let parts = parts(&controller);
    assert_eq!(parts.iter().map(|(_, count)| count).sum::<u64>(), 12_000);
    assert_eq!(parts.len(), 3);

    let edge = controller.configuration("edge").unwrap();
    assert_eq!(edge.generation, answer.generation);
    assert_eq!(edge.distributions[0].parts.len(), 3);
    let reached: Vec<&str> = edge.peers.iter().map(|peer| peer.router.as_str()).collect();
    assert_eq!(reached, ["one", "three", "two"]);
    // The edge keeps nothing of the file, so the file evicts nothing else there.
    assert_eq!(edge.rules[0].retention, Retention::Refuse);
    for part in &edge.distributions[0].parts {
        let keeper = controller.configuration(&part.router).unwrap();
        let rule = &keeper.rules[0];
        assert_eq!((rule.first, rule.last), (part.first, part.last));
        assert!(matches!(rule.retention, Retention::Keep { bytes_max } if bytes_max < 57_000_000));
        assert_eq!((keeper.prefetch[0].first, keeper.prefetch[0].last), (part.first, part.last));
        assert!(keeper.distributions.is_empty());
    }
}

#[test]
fn ignores_small_and_unknown_files() {
    let mut controller = five(config());
    let object = file(1).name;
    let before = controller.configuration("edge");
    assert_eq!(controller.forward("edge", &object).unwrap().decision, Decision::Unknown);
    controller.add_file(OWNER, file(80)).unwrap();
    assert_eq!(controller.forward("edge", &object).unwrap().decision, Decision::Small);
    assert_eq!(controller.configuration("edge"), before);
    assert_eq!(
        controller.forward("unknown", &object),
        Err(ControlError::UnknownRouter("unknown".into()))
    );
}

#[test]
fn leaves_excess_segments_to_routes() {
    let mut controller = five(config());
    controller.add_file(OWNER, file(60_000)).unwrap();
    controller.forward("edge", &file(1).name).unwrap();
    let kept: u64 = parts(&controller).iter().map(|(_, count)| count).sum();
    assert!((15_000..21_000).contains(&kept), "{kept}");
}

#[test]
fn spreads_requests_over_all_holders() {
    let mut controller = five(ControllerConfig { ratio: vec![5, 3, 2], ..config() });
    controller.add_file(OWNER, file(2_000)).unwrap();
    for router in ["one", "two"] {
        controller.update(seconds(1), router, update(1, 1, Segments::range(0, 1_999))).unwrap();
    }
    controller.update(seconds(1), "three", update(1, 1, Segments::range(0, 1_998))).unwrap();
    assert_eq!(controller.forward("edge", &file(1).name).unwrap().decision, Decision::Planned);
    let edge = controller.configuration("edge").unwrap();
    let spread = &edge.distributions[0].spread;
    let shares: Vec<_> = spread.iter().map(|one| (one.router.as_str(), one.weight)).collect();
    assert_eq!(shares, [("one", 5), ("two", 3)], "the nearest first, complete holders only");
    assert!(edge.distributions[0].parts.is_empty() && edge.rules.is_empty());
    assert!(controller.configuration("one").unwrap().rules.is_empty());
    let strategy = edge.distributions[0].strategy(
        |router| Some(FaceId(if router == "one" { 300 } else { 301 })),
        &[FaceId(299), FaceId(300)],
    );
    assert_eq!(
        strategy.to_string(),
        "/localhost/nfd/strategy/multipath/v=1/weight~299%3A0/weight~300%3A5/weight~301%3A3"
    );
}

#[test]
fn spreads_requests_over_all_paths() {
    let mut controller = Controller::new(config());
    for router in ["edge", "origin", "one", "two", "three"] {
        controller.report(seconds(0), router, report(router, 0)).unwrap();
    }
    controller.add_file(OWNER, file(2_000)).unwrap();
    assert_eq!(controller.forward("edge", &file(1).name).unwrap().decision, Decision::Planned);
    let edge = controller.configuration("edge").unwrap();
    let spread = &edge.distributions[0].spread;
    assert_eq!(
        spread.iter().map(|one| one.router.as_str()).collect::<Vec<_>>(),
        ["one", "three", "two"]
    );
    // The plan is for the edge only: over `two` and `three`, paths of `one` would lead back to it.
    assert_eq!(controller.forward("one", &file(1).name).unwrap().decision, Decision::NoRoom);
    assert!(controller.configuration("one").unwrap().distributions.is_empty());
    let plan = controller.plans().next().unwrap();
    assert_eq!(plan.consumers, ["edge"]);
}

#[test]
fn skips_stores_beyond_the_producer() {
    let kept_by = |placement, far_ms| {
        let mut controller = five(ControllerConfig { placement, ..ControllerConfig::default() });
        let far = RouterReport {
            faces: vec![face("edge", far_ms), face("origin", 10)],
            ..report("three", 64_000_000)
        };
        controller.report(seconds(1), "three", far).unwrap();
        let edge = RouterReport {
            faces: vec![face("one", 1), face("two", 2), face("three", far_ms)],
            ..report("edge", 1_000_000)
        };
        controller.report(seconds(1), "edge", edge).unwrap();
        controller.add_file(OWNER, file(16_000)).unwrap();
        controller.forward("edge", &file(1).name).unwrap();
        parts(&controller).into_iter().map(|(router, _)| router).collect::<Vec<_>>()
    };
    assert_eq!(kept_by(Placement::Nearest, 40), ["one", "two"]);
    assert_eq!(kept_by(Placement::LargestFree, 40).len(), 3);
    // The producer is at 11 ms. Smaller differences than the tolerance do not count.
    assert_eq!(kept_by(Placement::Nearest, 14).len(), 3);
}

#[test]
fn near_producer_bypasses_keepers() {
    let requested_parts = |placement| {
        let mut controller = five(ControllerConfig { placement, ..ControllerConfig::default() });
        controller.add_file(OWNER, file(16_000)).unwrap();
        ["edge", "one", "origin"].map(|router| {
            let answer = controller.forward(router, &file(1).name).unwrap();
            assert_eq!(answer.decision, Decision::Planned);
            let distributions = controller.configuration(router).unwrap().distributions;
            distributions.iter().map(|one| one.parts.len()).sum::<usize>()
        })
    };
    // All three keep a part. `one` is 2 and 3 ms from the other two, and 10 ms from the origin.
    assert_eq!(requested_parts(Placement::LargestFree), [3, 2, 3]);
    assert_eq!(requested_parts(Placement::Nearest), [3, 2, 0]);
    assert_eq!(requested_parts(Placement::ByDemand), [3, 2, 0]);
}

#[test]
fn two_files_share_the_stores_evenly() {
    let mut controller = five(config());
    controller.add_file(OWNER, file(12_000)).unwrap();
    controller.forward("edge", &file(1).name).unwrap();
    let other = File { name: name("/data/other/v=1"), ..file(12_000) };
    controller.add_file(OWNER, other.clone()).unwrap();
    controller.forward("edge", &other.name).unwrap();
    let mut kept = std::collections::BTreeMap::<String, u64>::new();
    for plan in controller.plans() {
        for part in &plan.parts {
            *kept.entry(part.router.clone()).or_default() += part.last - part.first + 1;
        }
    }
    assert_eq!(kept.len(), 3);
    // A segment takes 8,200 bytes and the overhead of a store.
    assert!(kept.values().all(|count| count * 9_700 <= 56_000_000), "{kept:?}");
}

#[test]
fn second_consumer_joins_the_plan() {
    let mut controller = five(config());
    controller.add_file(OWNER, file(12_000)).unwrap();
    controller.forward("edge", &file(1).name).unwrap();
    let plan = parts(&controller);
    controller.forward("one", &file(1).name).unwrap();
    assert_eq!(parts(&controller), plan);
    let one = controller.configuration("one").unwrap();
    assert_eq!(one.distributions[0].parts.len(), 2, "it needs no next hop for its own part");
}

#[test]
fn replaces_only_a_lost_router() {
    let mut controller = five(config());
    controller.add_file(OWNER, file(8_000)).unwrap();
    controller.forward("edge", &file(1).name).unwrap();
    let before = parts(&controller);
    assert_eq!(before.len(), 2);
    let lost = before[0].0.clone();
    for router in ["edge", "origin", "one", "two", "three"].iter().filter(|one| **one != lost) {
        let store_bytes = if MIDDLE.contains(router) { 64_000_000 } else { 1_000_000 };
        controller.report(seconds(20), router, report(router, store_bytes)).unwrap();
    }
    controller.take_events();
    controller.tick(seconds(20));
    let events = controller.take_events();
    assert_eq!(events[0], Event::RouterLost { router: lost.clone() });
    let after = parts(&controller);
    assert!(after.iter().all(|(router, _)| *router != lost));
    assert!(after.contains(&before[1]), "{before:?} {after:?}");
    assert_eq!(after.iter().map(|(_, count)| count).sum::<u64>(), 8_000);
    let edge = controller.configuration("edge").unwrap();
    assert!(edge.distributions[0].parts.iter().all(|part| part.router != lost));
}

#[test]
fn routes_follow_shortest_paths() {
    let mut controller = five(config());
    let routes = |controller: &Controller, router: &str| -> Vec<String> {
        let routes = controller.configuration(router).unwrap().routes;
        routes.into_iter().map(|route| route.router).collect()
    };
    assert_eq!(routes(&controller, "edge"), ["one", "two", "three"], "the shortest first");
    assert_eq!(routes(&controller, "two"), ["origin"]);
    assert!(routes(&controller, "origin").is_empty());
    let quiet = RouterReport { prefixes: vec![], ..report("origin", 1_000_000) };
    let before = controller.generation_of("edge");
    controller.report(seconds(1), "origin", quiet).unwrap();
    assert!(routes(&controller, "edge").is_empty());
    assert!(controller.generation_of("edge") > before);
}

#[test]
fn one_sided_links_count_both_ways() {
    let mut controller = Controller::new(config());
    let alone = |router: &str, faces| RouterReport {
        uris: vec![format!("udp4://{router}")],
        faces,
        ..RouterReport::default()
    };
    controller.report(seconds(0), "a", alone("a", vec![face("b", 1), face("x", 1)])).unwrap();
    controller.report(seconds(0), "b", alone("b", vec![])).unwrap();
    let links = controller.links();
    let ends: Vec<_> = links.iter().map(|link| (link.from.as_str(), link.to.as_str())).collect();
    assert_eq!(ends, [("a", "b"), ("b", "a")]);
}

#[test]
fn rejects_out_of_order_updates() {
    let mut controller = five(config());
    let at = |generation, number| UpdateNumber { generation, number };
    controller.update(seconds(1), "one", update(7, 1, Segments::range(0, 99))).unwrap();
    controller.update(seconds(1), "one", update(7, 2, Segments::range(100, 199))).unwrap();
    let holdings = controller.holdings(&file(1).name);
    assert_eq!(holdings, [("one", Segments::range(0, 199))]);
    assert_eq!(
        controller.update(seconds(1), "one", update(7, 4, Segments::range(200, 299))),
        Err(ControlError::OutOfOrder { expected: at(7, 3) })
    );
    controller.update(seconds(1), "one", update(8, 1, Segments::range(5, 6))).unwrap();
    assert_eq!(controller.holdings(&file(1).name), [("one", Segments::range(5, 6))]);
}

#[test]
fn withdrawal_ends_the_plan() {
    let mut controller = five(config());
    controller.add_file(OWNER, file(12_000)).unwrap();
    controller.forward("edge", &file(1).name).unwrap();
    assert!(controller.remove_file(&file(1).name));
    assert!(!controller.remove_file(&file(1).name));
    assert!(parts(&controller).is_empty());
    for router in ["edge", "one", "two", "three"] {
        let configuration = controller.configuration(router).unwrap();
        assert!(configuration.rules.is_empty() && configuration.distributions.is_empty());
    }
}

#[test]
fn restores_plans_and_numbers() {
    let mut controller = five(config());
    controller.add_file(OWNER, file(12_000)).unwrap();
    controller.forward("edge", &file(1).name).unwrap();
    let plans: Vec<_> = controller.plans().cloned().collect();
    let mut again = Controller::new(config());
    again.restore(vec![owned(file(12_000))], plans);
    // Agents have configurations with higher numbers than any stored plan. Until all routers have
    // had time to report, no router gets another configuration: it would lack the paths to the
    // missing routers.
    let back = |again: &mut Controller, router: &str, store_bytes| {
        let report = RouterReport { generation: 900, ..report(router, store_bytes) };
        again.report(seconds(0), router, report).unwrap().generation
    };
    assert_eq!(back(&mut again, "edge", 1_000_000), 900);
    again.tick(seconds(10));
    assert_eq!(again.configuration("edge"), None);
    let file = file(1).name;
    assert_eq!(again.forward("edge", &file).unwrap().decision, Decision::Planned);
    for (router, store_bytes) in [("origin", 1_000_000), ("one", 64_000_000), ("two", 64_000_000)] {
        assert_eq!(back(&mut again, router, store_bytes), 900);
    }
    again.tick(seconds(15));
    let edge = again.configuration("edge").unwrap();
    assert!(edge.generation > 900 && !edge.routes.is_empty());
    // The third router has not come back, so its part moves.
    let kept: Vec<String> = parts(&again).into_iter().map(|(router, _)| router).collect();
    assert!(!kept.is_empty() && !kept.contains(&"three".to_owned()), "{kept:?}");
    assert!(!again.configuration("one").unwrap().rules.is_empty());
}

/// Regression: a router that restarted while its controller waited for all routers had no routes
/// until the end of that wait, although all routers had reported.
#[test]
fn restarted_router_gets_routes_when_all_reported() {
    let all = ["edge", "origin", "one", "two", "three"];
    let report_of = |router: &str, generation| {
        let store_bytes = if MIDDLE.contains(&router) { 64_000_000 } else { 1_000_000 };
        RouterReport { generation, ..report(router, store_bytes) }
    };
    let come = |expected: &[&str], here: &[&str], reports_holdings: bool| {
        let mut again = Controller::new(config());
        again.expect_routers(expected.iter().map(|router| (*router).to_owned()).collect());
        for router in here {
            let generation = if *router == "one" { 0 } else { 900 };
            again.report(seconds(1), router, report_of(router, generation)).unwrap();
            if reports_holdings {
                again.update(seconds(1), router, update(7, 1, Segments::default())).unwrap();
            }
        }
        // All holdings are reported by then.
        again.tick(seconds(1));
        assert!(again.is_waiting());
        again.tick(seconds(2));
        again
    };
    let mut again = come(&all, &all, true);
    assert!(!again.is_waiting());
    assert!(!again.configuration("one").unwrap().routes.is_empty());
    let lost = |again: &mut Controller| {
        let events = again.take_events().into_iter();
        let lost = events.filter(|event| matches!(event, Event::RouterLost { .. }));
        lost.collect::<Vec<_>>()
    };
    assert_eq!(lost(&mut again), []);
    // A router is missing, or has not reported its holdings, or no router was expected.
    for mut again in [come(&all, &all[..4], true), come(&all, &all, false), come(&[], &all, true)] {
        assert!(again.is_waiting());
        assert_eq!(again.configuration("one"), None);
        let here: Vec<String> = again.routers().map(|(router, _)| router.to_owned()).collect();
        again.tick(seconds(15));
        again.tick(seconds(16));
        assert!(!again.is_waiting() && again.configuration("one").is_some());
        let missing = Event::RouterLost { router: "three".to_owned() };
        let missing = if here.len() == 4 { vec![missing] } else { vec![] };
        assert_eq!(lost(&mut again), missing);
    }
}

#[test]
fn replans_parts_of_missing_routers() {
    let mut controller = five(config());
    controller.add_file(OWNER, file(12_000)).unwrap();
    controller.forward("edge", &file(1).name).unwrap();
    let plans: Vec<_> = controller.plans().cloned().collect();
    let mut again = Controller::new(config());
    again.restore(vec![owned(file(12_000))], plans);
    // Their agents have restarted as well, so no configuration can be lost.
    for (router, store_bytes) in
        [("edge", 1_000_000), ("origin", 1_000_000), ("one", 64_000_000), ("two", 64_000_000)]
    {
        again.report(seconds(1), router, report(router, store_bytes)).unwrap();
    }
    again.tick(seconds(16));
    let kept: Vec<String> = parts(&again).into_iter().map(|(router, _)| router).collect();
    assert!(!kept.is_empty() && !kept.contains(&"three".to_owned()), "{kept:?}");
    // Data of the parts passes through this router, which must not store it. No stored plan says
    // so.
    assert!(!again.configuration("origin").unwrap().rules.is_empty());
}

#[test]
fn rejects_absurd_generations() {
    let mut controller = five(config());
    let mut lies = |generation| {
        let report = RouterReport { generation, ..report("one", 64_000_000) };
        controller.report(seconds(1), "one", report)
    };
    assert_eq!(lies(u64::MAX), Err(ControlError::UnknownGeneration(u64::MAX)));
    assert!(lies(1 << 40).is_ok());
    assert!(lies(1 << 51).is_err());
}

fn list(text: &str, packets: u64) -> List {
    List { name: name(text), packets }
}

/// Otherwise a second reader would request from the producer what the first one fetched before
/// there was a plan.
#[test]
fn manifest_parts_follow_segment_parts() {
    let mut controller = five(config());
    let manifest = list("/data/file/v=1/32=manifest", 4_000);
    let file = File { manifest: vec![manifest.clone()], ..file(5_000) };
    controller.add_file(OWNER, file.clone()).unwrap();
    controller.forward("edge", &file.name).unwrap();
    let plan = controller.plans().next().unwrap().clone();
    assert_eq!(plan.parts.len(), 3);
    let mut kept = Segments::default();
    for part in &plan.parts {
        let keeper = controller.configuration(&part.router).unwrap();
        let rules = keeper.rules.iter().filter(|rule| rule.object == manifest.name);
        let rules: Vec<(u64, u64)> = rules.map(|rule| (rule.first, rule.last)).collect();
        let orders = keeper.prefetch.iter().filter(|order| order.object == manifest.name);
        assert!(orders.map(|order| (order.first, order.last)).eq(rules.iter().copied()));
        for (first, last) in rules {
            assert_eq!((first, last), (part.first, part.last.min(3_999)));
            kept.insert(first..=last);
        }
    }
    assert_eq!(kept.count(), 4_000);

    // The manifest needs space as well, so less of a large file is kept.
    controller.remove_file(&file.name);
    controller.add_file(OWNER, File { segments: 20_000, ..file.clone() }).unwrap();
    controller.forward("edge", &file.name).unwrap();
    for router in MIDDLE {
        let keeper = controller.configuration(router).unwrap();
        let bytes = keeper.rules.iter().map(|rule| match rule.retention {
            Retention::Keep { bytes_max } => bytes_max,
            _ => 0,
        });
        assert!((1..60_000_000).contains(&bytes.sum::<u64>()), "{router}");
    }
}

/// A producer that registered a file without a manifest need not withdraw it.
#[test]
fn accepts_a_manifest_later() {
    let mut controller = five(config());
    let bare = file(5_000);
    let manifest = list("/data/file/v=1/32=manifest", 4_000);
    let whole = File { manifest: vec![manifest.clone()], ..bare.clone() };
    controller.add_file(OWNER, bare.clone()).unwrap();
    controller.forward("edge", &bare.name).unwrap();
    let plan = controller.plans().next().unwrap().clone();
    let before = controller.generation_of(&plan.parts[0].router);
    assert_eq!(controller.file_status(&whole, 0), Ok(FileStatus::AddsManifest));
    controller.add_file(OWNER, whole.clone()).unwrap();
    assert_eq!(controller.file_status(&whole, 0), Ok(FileStatus::Unchanged));
    assert_eq!(controller.file(&whole.name), Some(&whole));
    assert!(
        controller.generation_of(&plan.parts[0].router) > before,
        "keepers get a new configuration"
    );
    let mut kept = Segments::default();
    for part in &plan.parts {
        let keeper = controller.configuration(&part.router).unwrap();
        let rules = keeper.rules.iter().filter(|rule| rule.object == manifest.name);
        rules.for_each(|rule| kept.insert(rule.first..=rule.last));
    }
    assert_eq!(kept.count(), 4_000);
    assert_eq!(controller.plans().next(), Some(&plan), "the parts stay");
    // Another manifest is refused, and so is a registration without one.
    let other = File { manifest: vec![list("/data/file/v=1/32=manifest", 3_000)], ..bare.clone() };
    for file in [other, bare] {
        assert_eq!(
            controller.add_file(OWNER, file.clone()),
            Err(ControlError::FileConflict(file.name))
        );
    }
}

#[test]
fn rejects_invalid_files() {
    let mut controller = five(ControllerConfig { files_max: 1, ..config() });
    for bad in [
        File { segments: 0, ..file(1) },
        File { segments: u64::MAX, ..file(1) },
        File { packet_bytes: 9000, ..file(1) },
        File { name: Name::new(), ..file(1) },
        File { name: name(&format!("/{}", "n".repeat(2000))), ..file(1) },
        // Packets of another file, the file itself, and more packets than the file has.
        File { manifest: vec![list("/data/other/manifest", 1)], ..file(9) },
        File { manifest: vec![list("/data/file/v=1", 1)], ..file(9) },
        File { manifest: vec![list("/data/file/v=1/manifest", 10)], ..file(9) },
        File { manifest: vec![list("/data/file/v=1/manifest", 1); 5], ..file(9) },
    ] {
        assert_eq!(controller.add_file(OWNER, bad), Err(ControlError::InvalidFile));
    }
    controller.add_file(OWNER, file(5)).unwrap();
    controller.add_file(OWNER, file(5)).unwrap();
    assert_eq!(controller.add_file(OWNER, file(6)), Err(ControlError::FileConflict(file(6).name)));
    let other = File { name: name("/data/other"), ..file(1) };
    assert_eq!(controller.file_status(&file(5), 1), Ok(FileStatus::Unchanged));
    assert_eq!(
        controller.add_file(OWNER, other),
        Err(ControlError::TooMany { what: "files", max: 1 })
    );
}

#[test]
fn one_round_trip_time_serves_both_ends() {
    // Only the edge knows the round trip to middle, and only middle knows that to the origin.
    let mut controller = Controller::new(ControllerConfig::default());
    let report = |router: &str, faces, store_bytes| RouterReport {
        uris: vec![format!("udp4://{router}")],
        prefixes: if router == "origin" { vec![name("/data")] } else { vec![] },
        faces,
        store_bytes,
        ..RouterReport::default()
    };
    let unknown = |router: &str| FaceReport { round_trip_ns: None, ..face(router, 0) };
    let middle = vec![unknown("edge"), face("origin", 1)];
    controller.report(seconds(0), "origin", report("origin", vec![], 0)).unwrap();
    controller.report(seconds(0), "middle", report("middle", middle, 12 << 20)).unwrap();
    let edge = report("edge", vec![face("middle", 1)], 12 << 20);
    controller.report(seconds(0), "edge", edge).unwrap();
    controller.add_file(OWNER, file(2_000)).unwrap();
    controller.forward("edge", &file(1).name).unwrap();
    let kept: Vec<String> = parts(&controller).into_iter().map(|(router, _)| router).collect();
    assert_eq!(kept, ["edge", "middle"]);
}

/// The keepers of a file that fits into one store. The edge reports these rates and loads of its
/// links to `one`, `two` and `three`, in Mbit/s.
fn keepers_by_rates(rates: [Option<u64>; 3], loads: [u64; 3]) -> Vec<String> {
    let mut controller = five(ControllerConfig { placement: Placement::Nearest, ..config() });
    let mut report = report("edge", 0);
    for ((face, rate), load) in report.faces.iter_mut().zip(rates).zip(loads) {
        face.rate_bps = rate.map(|rate| rate * 1_000_000);
        face.load_bps = load * 1_000_000;
    }
    controller.report(seconds(0), "edge", report).unwrap();
    controller.add_file(OWNER, file(2_000)).unwrap();
    controller.forward("edge", &file(1).name).unwrap();
    parts(&controller).into_iter().map(|(router, _)| router).collect()
}

#[test]
fn slow_or_busy_links_add_distance() {
    assert_eq!(
        keepers_by_rates([None; 3], [900; 3]),
        ["one"],
        "a load without a rate does not count"
    );
    let fast = [Some(1000); 3];
    assert_eq!(keepers_by_rates(fast, [0; 3]), ["one"]);
    assert_eq!(keepers_by_rates(fast, [990, 0, 900]), ["two"]);
    assert_eq!(keepers_by_rates(fast, [990, 900, 0]), ["three"]);
    assert_eq!(keepers_by_rates([Some(10), Some(1000), Some(100)], [0; 3]), ["two"]);
}
