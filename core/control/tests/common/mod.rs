//! Five routers: `edge`, where files are read, `one`, `two` and `three` next to each other, and
//! `origin`, where files are produced (paper multipath-cache-management, Fig. 4).
use weir_base::{Instant, NS_PER_S};
use weir_control::message::{Change, FaceReport, RouterReport, Tier, Update, UpdateNumber};
use weir_control::{Controller, ControllerConfig, File, Placement, Segments};
use weir_wire::Name;

pub(crate) const MIDDLE: [&str; 3] = ["one", "two", "three"];

/// The owner of files where it does not matter.
pub(crate) const OWNER: &str = "producer p";

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) fn seconds(seconds: u64) -> Instant {
    Instant::from_ns(seconds * NS_PER_S)
}

pub(crate) fn face(router: &str, milliseconds: u64) -> FaceReport {
    FaceReport {
        remote: format!("udp4://{router}"),
        round_trip_ns: Some(milliseconds * 1_000_000),
        ..FaceReport::default()
    }
}

pub(crate) fn report(router: &str, store_bytes: u64) -> RouterReport {
    let faces = match router {
        "edge" => vec![face("one", 1), face("two", 2), face("three", 3)],
        "origin" => vec![face("one", 10), face("two", 10), face("three", 10)],
        _ => vec![face("edge", 1), face("origin", 10)],
    };
    let prefixes = if router == "origin" { vec![name("/data")] } else { vec![] };
    let uris = vec![format!("udp4://{router}")];
    RouterReport { uris, store_bytes, faces, prefixes, ..RouterReport::default() }
}

pub(crate) fn config() -> ControllerConfig {
    ControllerConfig { placement: Placement::LargestFree, ..ControllerConfig::default() }
}

/// Five routers: stores of 64 MB in the middle, 1 MB at both ends.
pub(crate) fn five(config: ControllerConfig) -> Controller {
    let mut controller = Controller::new(config);
    for router in ["edge", "origin"] {
        controller.report(seconds(0), router, report(router, 1_000_000)).unwrap();
    }
    for router in MIDDLE {
        controller.report(seconds(0), router, report(router, 64_000_000)).unwrap();
    }
    controller
}

pub(crate) fn file(segments: u64) -> File {
    let size_bytes = segments * 8000;
    let (name, manifest) = (name("/data/file/v=1"), Vec::new());
    File { name, segments, size_bytes, packet_bytes: 8200, manifest }
}

pub(crate) fn owned(file: File) -> (String, File) {
    (OWNER.to_owned(), file)
}

pub(crate) fn update(generation: u64, number: u64, added: Segments) -> Update {
    let object = file(1).name;
    let removed = Segments::default();
    let changes = vec![Change { object, tier: Tier::Memory, added, removed }];
    Update { at: UpdateNumber { generation, number }, changes }
}

/// The routers of the plan in force, with the number of segments of each.
pub(crate) fn parts(controller: &Controller) -> Vec<(String, u64)> {
    let plans: Vec<_> = controller.plans().collect();
    assert!(plans.len() < 2);
    let parts = plans.into_iter().flat_map(|plan| &plan.parts);
    parts.map(|part| (part.router.clone(), part.last - part.first + 1)).collect()
}

/// The store of `one`, `two` and `three`.
pub(crate) const STORE_BYTES: u64 = 64_000_000;

/// All five routers report at this time, and a tick follows.
pub(crate) fn alive(controller: &mut Controller, at: Instant) {
    for router in ["edge", "origin", "one", "two", "three"] {
        let store_bytes = if MIDDLE.contains(&router) { STORE_BYTES } else { 1_000_000 };
        controller.report(at, router, report(router, store_bytes)).unwrap();
    }
    controller.tick(at);
}
