use super::*;
use crate::snapshot::{FaceSnapshot, RemovedFaces, RemovedKind};
use weir_base::FaceId;
use weir_link::LinkCounters;
use weir_store::PrefixStats;

fn disk(reads: u64) -> crate::DiskSnapshot {
    crate::DiskSnapshot {
        path: "/d".into(),
        engine: "threads",
        capacity_bytes: 99,
        counters: weir_disk::DiskCounters { reads, ..Default::default() },
        is_dead: false,
    }
}

#[test]
fn text_names_faces_drops_sizes_and_latency() {
    let mut snapshot = Snapshot::default();
    let mut counters =
        LinkCounters { in_data: 7, out_bytes: 99, retransmitted: 3, ..Default::default() };
    counters.drops.count(weir_link::LinkDrop::QueueFull);
    counters.drops.count(weir_link::LinkDrop::ShapingFull);
    counters.interests_held = 3;
    snapshot.add_link_drops(counters.drops.iter().map(|(_, count)| count));
    snapshot.faces.push(FaceSnapshot {
        id: FaceId(256),
        uri: "udp4://192.0.2.1:6363".into(),
        local_uri: String::new(),
        transport: "udp4",
        is_on_demand: false,
        thread: 0,
        up: true,
        counters,
        queue_bytes: 5,
        down_drops: 0,
        expires_in_ns: None,
        heard_ns_ago: None,
    });
    snapshot.management.readvertise_failures = 2;
    (snapshot.is_ready, snapshot.anchor_expires_unix_s) = (true, Some(4_000_000_000));
    for time_ns in [300, 10_000, 12_000] {
        snapshot.router.upstream_latency.record(time_ns);
    }
    let text = encode(snapshot, &ExtraMetrics::default());
    let face = "transport=\"udp4\",remote=\"udp4://192.0.2.1:6363\"";
    for line in [
        format!("weir_face_packets_total{{{face},direction=\"in\",kind=\"data\"}} 7"),
        format!("weir_face_bytes_total{{{face},direction=\"out\"}} 99"),
        format!("weir_face_queue_bytes{{{face}}} 5"),
        "weir_link_reliability_total{transport=\"udp4\",outcome=\"retransmitted\"} 3".into(),
        "weir_link_shaped_interests_total{transport=\"udp4\",outcome=\"held\"} 3".into(),
        "weir_link_shaped_interests_total{transport=\"udp4\",outcome=\"refused\"} 1".into(),
        "weir_drops_total{layer=\"link\",reason=\"egress-queue-full\"} 1".into(),
        "weir_drops_total{layer=\"forward\",reason=\"pit-full\"} 0".into(),
        "weir_pit_entries 0".into(),
        "weir_ready 1".into(),
        "weir_trust_anchor_expiry_timestamp_seconds 4000000000".into(),
        "weir_management_commands_total 0".into(),
        "weir_readvertise_failures_total 2".into(),
        "weir_upstream_latency_seconds_bucket{le=\"0.000001023\"} 1".into(),
        "weir_upstream_latency_seconds_bucket{le=\"0.000016383\"} 3".into(),
        "weir_upstream_latency_seconds_bucket{le=\"+Inf\"} 3".into(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[test]
fn help_has_no_rustdoc_markup() {
    let mut snapshot = Snapshot::default();
    snapshot.disks.push(disk(0));
    let text = encode(snapshot, &ExtraMetrics::default());
    for line in text.lines().filter(|line| line.starts_with("# HELP")) {
        assert!(!line.contains("::") && !line.contains("]("), "{line}");
        assert!(!line.contains("bit n"), "{line}");
    }
    let linked = "Kept by [`Store`](crate::Store), not lost. More.";
    let counter = Counter { help: linked, ..weir_store::StoreStats::TABLE[0] };
    assert_eq!(help_of(&counter), "Kept by Store, not lost");
}

#[test]
fn prefixes_have_series_if_chosen() {
    assert!(!encode(Snapshot::default(), &ExtraMetrics::default()).contains("store_prefix"));
    let mut snapshot = Snapshot::default();
    let row = |uri: &str, hits| {
        let counts = PrefixCounts { hits, misses: hits + 1, served_bytes: hits + 2 };
        (uri.parse().unwrap(), counts)
    };
    snapshot.router.store_prefixes = PrefixStats(vec![row("/a/b", 7), row("/a/%22%5C", 0)]);
    let text = encode(snapshot, &ExtraMetrics::default());
    for line in [
        "weir_store_prefix_hits_total{prefix=\"/a/b\"} 7",
        "weir_store_prefix_misses_total{prefix=\"/a/b\"} 8",
        "weir_store_prefix_served_bytes_total{prefix=\"/a/b\"} 9",
        "weir_store_prefix_hits_total{prefix=\"/a/%22%5C\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[test]
fn disk_metrics_need_disks() {
    assert!(!encode(Snapshot::default(), &ExtraMetrics::default()).contains("disk_"));
    let mut snapshot = Snapshot::default();
    snapshot.disks.push(disk(4));
    snapshot.router.store.disk.damaged = 3;
    snapshot.router.store.disk.filter_saturated = 5;
    snapshot.router.busy.bypassed_stalled = 2;
    let text = encode(snapshot, &ExtraMetrics::default());
    for line in [
        "weir_disk_damaged_total 3",
        "weir_disk_filter_saturated 5",
        "weir_disk_bypassed_total{reason=\"stalled\"} 2",
        "weir_disk_device_reads_total{disk=\"/d\"} 4",
        "weir_disk_device_capacity_bytes{disk=\"/d\"} 99",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

fn face(index: u64, is_on_demand: bool) -> FaceSnapshot {
    FaceSnapshot {
        id: FaceId(256 + index),
        uri: format!("tcp4://192.0.2.1:{index}"),
        local_uri: String::new(),
        transport: "tcp4",
        is_on_demand,
        thread: 0,
        up: true,
        counters: LinkCounters { in_data: index, out_bytes: 1 << 40, ..Default::default() },
        queue_bytes: 1,
        down_drops: 0,
        expires_in_ns: None,
        heard_ns_ago: None,
    }
}

fn series(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

#[test]
fn series_stay_bounded_and_constant() {
    let scrape = |listed: u64, on_demand: std::ops::Range<u64>, removed: u64| {
        let mut snapshot = Snapshot::default();
        snapshot.faces.extend((0..listed).map(|index| face(index, false)));
        snapshot.faces.extend(on_demand.map(|index| face(10_000 + index, true)));
        snapshot.removed_faces.push(RemovedFaces {
            transport: "tcp4",
            kind: RemovedKind::OnDemand,
            counters: LinkCounters { in_data: removed, ..Default::default() },
        });
        encode(snapshot, &ExtraMetrics::default())
    };
    let before = scrape(1000, 0..5000, 0);
    let after = scrape(1000, 7000..7001, 99);
    let names = |text: &str| {
        series(text).map(|line| line.rsplit_once(' ').expect("a value").0.to_owned()).collect()
    };
    let (names_before, names_after): (Vec<String>, Vec<String>) = (names(&before), names(&after));
    assert_eq!(names_before, names_after, "peers that come and go change no series");
    assert!(names_before.len() < 20_000, "{} series", names_before.len());
    let sum = "weir_face_packets_total{transport=\"tcp4\",remote=\"on-demand\",direction=\"in\",\
               kind=\"data\"}";
    assert!(after.contains(&format!("{sum} {}\n", 99 + 17_000)), "closed faces still count");
    // Faces beyond the limit share one series.
    let many = scrape(3000, 0..0, 0);
    assert!(many.contains("weir_face_up{transport=\"tcp4\",remote=\"others\"} 1"), "{many}");
    assert!(series(&many).count() < 20_000);
    eprintln!("{} series for 1,000 faces and 5,000 peers", names_before.len());
}

/// The reasons of drops by layer, as the reference lists them.
fn reasons() -> String {
    let mut snapshot = Snapshot::default();
    snapshot.add_worker(&crate::snapshot::WorkerCounters::default());
    snapshot.add_udp(&weir_face::UdpCounters::default());
    let link = weir_link::LinkDrop::ALL.map(|reason| reason.name()).to_vec();
    let forward = DropReason::ALL.map(DropReason::label).to_vec();
    let runtime = snapshot.runtime_drops.iter().map(|&(reason, _)| reason);
    let others = ["connection-refused", "miss-untold", "shared-memory-refused"];
    let runtime = runtime.chain(others).collect();
    let mut text = String::from("\n| layer | reasons |\n|---|---|\n");
    for (layer, mut names) in [("link", link), ("forward", forward), ("runtime", runtime)] {
        names.sort_unstable();
        let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
        text += &format!("| `{layer}` | {} |\n", names.join(", "));
    }
    text + "\n"
}

#[test]
fn reference_lists_the_routers_metrics() {
    let mut snapshot = Snapshot::default();
    snapshot.faces.push(face(0, false));
    snapshot.add_link_drops([]);
    snapshot.add_runtime_drop("port-error", 0);
    snapshot.router.malformed.insert("type", 1);
    snapshot.shared_memory =
        Some(crate::SharedMemorySnapshot { faces: 0, used_bytes: 0, bytes_max: 1, taken: 0 });
    snapshot.anchor_expires_unix_s = Some(0);
    snapshot.disks.push(disk(0));
    let prefix = ("/a".parse().unwrap(), PrefixCounts::default());
    snapshot.router.store_prefixes = PrefixStats(vec![prefix]);
    let text = encode(snapshot, &ExtraMetrics::default());
    weir_metrics::reference::check("router", &text, &["process_", "weir_build_info"]);
    let text = weir_metrics::encode(&weir_metrics::new_registry());
    weir_metrics::reference::check("process", &text, &[]);
    weir_metrics::reference::compare("reasons", &reasons());
}
