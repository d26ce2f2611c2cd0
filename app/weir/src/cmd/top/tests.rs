//! Rates of two readings, and what the screen shows at several sizes.

use std::sync::Arc;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use weir_base::{FaceId, Instant};
use weir_manage::{
    CsDevice, CsDiskInfo, CsInfo, FaceCounters, FaceInfo, FaceStatus, GeneralStatus,
};
use weir_store::disk::DiskTierStats;
use weir_store::{ObjectList, ObjectUses, StoredObject, TierShare};

use super::reader::{ObjectLists, Reading, Timed};
use super::report::{Report, Sort, rate};
use super::screen::{View, draw};

const MIB: u64 = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

fn general(uptime_s: u64, interests: u64) -> GeneralStatus {
    GeneralStatus {
        version: "weir 0.1.0".to_owned(),
        start_unix_ms: 1_700_000_000_000,
        current_unix_ms: 1_700_000_000_000 + 1000 * uptime_s,
        pit_entries: 312,
        in_interests: interests,
        out_interests: interests / 4,
        in_data: interests / 4,
        out_data: interests,
        ..GeneralStatus::default()
    }
}

fn face(id: u64, uri: &str, packets: u64) -> FaceStatus {
    let info = FaceInfo { face_id: FaceId(id), uri: uri.to_owned(), ..FaceInfo::default() };
    let counters = FaceCounters {
        in_interests: packets,
        out_data: packets,
        in_bytes: 60 * packets,
        out_bytes: 8000 * packets,
        ..FaceCounters::default()
    };
    FaceStatus { info, counters, ..FaceStatus::default() }
}

fn store(packets: u64) -> CsInfo {
    let mut disk = CsDiskInfo::new(2, 200 << 30);
    disk.add(&DiskTierStats { bytes: 61 << 30, ..DiskTierStats::default() });
    disk.set_read_latency(packets * 1_200_000, packets);
    let device = |path: &str| CsDevice {
        path: path.to_owned(),
        capacity_bytes: 100 << 30,
        read_bytes: packets * 9000,
        written_bytes: packets * 3000,
        ..CsDevice::default()
    };
    CsInfo {
        bytes: Some(212 * MIB),
        capacity_bytes: Some(256 * MIB),
        disk: Some(disk),
        served_memory_bytes: Some(6 * packets),
        served_disk_bytes: Some(packets),
        served_next_hop_bytes: Some(3 * packets),
        devices: vec![device("/srv/cache/one"), device("/srv/cache/two")],
        ..CsInfo::default()
    }
}

fn object(name: &str, hits: u64) -> StoredObject {
    StoredObject {
        name: name.parse().unwrap(),
        memory: TierShare { packets: 100, bytes: 40 * MIB },
        uses: ObjectUses { hits, served_bytes: hits * 8000, last_use: Instant::ZERO },
        ..StoredObject::default()
    }
}

fn list(objects: Vec<StoredObject>) -> ObjectList {
    ObjectList { total: objects.len() as u64, objects, ..ObjectList::default() }
}

/// A reading `at_s` seconds after the start of the program, of a router that started 99 s before.
fn reading(at_s: u64, packets: u64) -> Reading {
    let at = Duration::from_secs(at_s);
    let objects = |packets: u64| {
        let objects = vec![
            object("/example/climate/2026/ocean-temperature.nc/v=1700000000000", packets),
            object("/example/weather/v=3", packets / 10),
            object("/video/live/v=9", 7),
        ];
        list(objects)
    };
    let before = Timed { at: at.saturating_sub(SECOND), value: objects(packets / 2) };
    Reading {
        general: Timed { at, value: general(99 + at_s, packets) },
        faces: Timed {
            at,
            value: vec![
                face(1, "internal://", 5),
                face(262, "udp4://192.0.2.17:6363", packets / 100),
                face(263, "fd://31", packets),
                face(270, "tcp6://[2001:db8:1:2:3:4:5:6]:6363", packets / 2),
            ],
        },
        store: Some(Timed { at, value: store(packets) }),
        objects: Some(ObjectLists {
            before: Some(Arc::new(before)),
            latest: Arc::new(Timed { at, value: objects(packets) }),
        }),
    }
}

fn report() -> Report {
    Report::between(Some(&reading(10, 50_000)), &reading(12, 75_000))
}

#[test]
fn rates_are_gains_per_second() {
    assert_eq!(rate(100, 300, 2 * SECOND), Some(100.0));
    assert_eq!(rate(100, 100, SECOND), Some(0.0));
    assert_eq!(rate(1, 2, Duration::ZERO), None);
    let report = report();
    assert_eq!(report.interests.received, Some(12_500.0));
    assert_eq!(report.faces.len(), 3, "the reserved faces are not shown");
    assert_eq!(report.bytes.sent, Some(8000.0 * (12_500.0 + 125.0 + 6_250.0)));
    assert_eq!(report.disks.as_ref().unwrap().latency_ns, Some(1_200_000));
    let now: Vec<_> = report.sources.iter().map(|source| source.now).collect();
    assert_eq!(now, [Some(0.6), Some(0.1), Some(0.3)]);
    let first = Report::between(None, &reading(0, 9));
    assert!(first.sources.iter().all(|source| source.now.is_none()));
    assert_eq!((first.interests.received, first.bytes.sent), (None, None));
}

/// The answers to the screen itself are no traffic.
#[test]
fn own_answers_are_no_traffic() {
    let (mut before, mut after) = (reading(10, 50_000), reading(12, 50_000));
    for (reading, own_bytes) in [(&mut before, 6000), (&mut after, 9000)] {
        let store = &mut reading.store.as_mut().unwrap().value;
        store.served_next_hop_bytes = Some(50_000 + own_bytes);
        reading.faces.value[0].counters.in_bytes = own_bytes;
    }
    let report = Report::between(Some(&before), &after);
    assert!(report.sources.iter().all(|source| source.now.is_none()), "{:?}", report.sources);
    assert_eq!(report.sources[2].since_start, Some(50_000.0 / 400_000.0));
}

/// A counter that wrapped below the one before would be 2^64 per second.
#[test]
fn restarted_counters_give_no_huge_rates() {
    assert_eq!(rate(1 << 40, 500, SECOND), Some(500.0));
    let before = reading(10, 1 << 40);
    let mut after = reading(15, 1 << 41);
    // 3 s after its start, the counters are already beyond those of before.
    after.general.value = general(3, 1 << 41);
    let report = Report::between(Some(&before), &after);
    assert_eq!(report.interests.received, None);
    assert!(report.faces.iter().all(|face| face.bytes.sent.is_none()));
    // A face that was closed, and another one with its number.
    let mut after = reading(15, 1 << 40);
    after.faces.value[2] = face(263, "fd://32", 100);
    let report = Report::between(Some(&before), &after);
    assert_eq!(report.faces[1].bytes.received, Some(60.0 * 100.0 / 5.0));
}

#[test]
fn new_objects_have_counted_from_zero() {
    let mut after = reading(12, 75_000);
    let lists = after.objects.as_mut().unwrap();
    let old =
        Timed { at: Duration::from_secs(10), value: list(vec![object("/video/live/v=9", 7)]) };
    lists.before = Some(Arc::new(old.clone()));
    let hits = |after: &Reading| Report::between(None, after).objects.unwrap()[0].hits;
    assert_eq!(hits(&after), Some(37_500.0));
    // The list before was cut off, so the object may have been in the store.
    let cut = ObjectList { total: 1000, ..old.value };
    after.objects.as_mut().unwrap().before = Some(Arc::new(Timed { at: old.at, value: cut }));
    assert_eq!(hits(&after), None);
}

#[test]
fn sorts_by_rate_total_and_name() {
    let report = report();
    let ids =
        |sort| -> Vec<u64> { report.sorted_faces(sort).iter().map(|face| face.id.0).collect() };
    assert_eq!(ids(Sort::Bytes), [263, 270, 262]);
    assert_eq!(ids(Sort::Name), [263, 270, 262]);
    let objects = report.sorted_objects(Sort::Total);
    assert_eq!(objects[0].total_served_bytes, 75_000 * 8000);
    // The canonical order of names: a shorter component comes first.
    assert_eq!(report.sorted_objects(Sort::Name)[0].name.to_string(), "/video/live/v=9");
    let all = [Sort::Bytes, Sort::Packets, Sort::Total, Sort::Name];
    for (sort, next) in all.iter().zip(all.iter().cycle().skip(1)) {
        assert_eq!(sort.next(), *next);
        assert_eq!(next.previous(), *sort);
    }
}

fn view(report: Option<&Report>) -> View<'_> {
    View {
        uri: "unix:///run/nfd/nfd.sock",
        report,
        sort: Sort::Bytes,
        is_paused: false,
        silence: None,
        problem: None,
        has_color: true,
    }
}

fn drawn(width: u16, height: u16, view: &View<'_>) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, view)).unwrap();
    terminal
}

/// The screen as lines of text.
fn screen(width: u16, height: u16, view: &View<'_>) -> String {
    let terminal = drawn(width, height, view);
    let lines = terminal.backend().buffer().content.chunks(usize::from(width).max(1));
    // The cell after a wide character is empty.
    let text = |line: &[ratatui::buffer::Cell]| -> String {
        line.iter().map(|cell| cell.symbol()).collect()
    };
    let text: Vec<_> = lines.map(|line| text(line).trim_end().to_owned()).collect();
    let text = text.join("\n");
    println!("{text}");
    text
}

#[test]
fn common_screen_shows_all_parts() {
    let report = report();
    let text = screen(80, 24, &view(Some(&report)));
    for part in [
        "weir 0.1.0, up 1 min 51 s",
        "unix:///run/nfd/nfd.sock",
        "Interests        12500        3125    memory          60.0 %       60.0 %",
        "212 MiB of 256 MiB",
        "Disks (2)",
        "/srv/cache/one",
        "1.20 ms",
        "Faces (3)",
        "263  fd://31",
        "udp4://192.0.2.17:6363",
        "Objects in the store (3)",
        "/video/live/v=9",
        "q quit",
        "sort: bytes/s",
    ] {
        assert!(text.contains(part), "{part}");
    }
}

#[test]
fn smallest_screen_shows_the_main_facts() {
    let report = report();
    let text = screen(20, 5, &view(Some(&report)));
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0].trim(), "weir  up 1 min 51 s");
    assert_eq!(lines[1], "Interests/s 12500 in");
    assert!(lines[2].starts_with("bytes/s ") && lines[3].starts_with("from memory 60.0 %"));
    assert_eq!(lines[4], "q quit");
}

#[test]
fn large_screen_has_all_columns() {
    let report = report();
    let text = screen(200, 60, &view(Some(&report)));
    for part in ["SIZE", "TOTAL", "HELD", "ocean-temperature.nc/v=1700000000000"] {
        assert!(text.contains(part), "{part}");
    }
}

#[test]
fn any_size_is_drawn() {
    let report = report();
    for width in (0..24).chain([40, 73, 74, 300]) {
        for height in 0..30 {
            drawn(width, height, &view(Some(&report)));
            drawn(width, height, &View { problem: Some("cannot connect"), ..view(None) });
        }
    }
}

#[test]
fn silent_router_keeps_the_screen() {
    let report = report();
    let silent = View {
        silence: Some(12 * SECOND),
        problem: Some("cannot connect to unix:///run/nfd/nfd.sock"),
        ..view(Some(&report))
    };
    let text = screen(80, 24, &silent);
    assert!(text.contains("no answer from the router for 12 s"), "{text}");
    assert!(text.contains("cannot connect to") && text.contains("263  fd://31"), "{text}");
    let small = screen(20, 5, &silent);
    assert!(small.contains("no answer 12 s") && small.contains("from memory"), "{small}");
    let paused = View { is_paused: true, ..view(Some(&report)) };
    assert!(screen(80, 24, &paused).contains("PAUSED"));
    assert!(screen(80, 24, &view(None)).contains("waiting for the router"));
}

#[test]
fn screen_without_colors_has_none() {
    let report = report();
    let has_color = |view: &View<'_>| {
        let terminal = drawn(80, 24, view);
        let mut cells = terminal.backend().buffer().content.iter();
        cells.any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    let silent = View { silence: Some(SECOND), problem: Some("gone"), ..view(Some(&report)) };
    assert!(has_color(&silent));
    assert!(!has_color(&View { has_color: false, ..silent }));
}

/// Names and addresses come from others.
#[test]
fn control_characters_are_escaped() {
    let mut report = report();
    report.faces[0].uri = "fd://\x1b[2J".to_owned();
    let text = screen(120, 24, &view(Some(&report)));
    assert!(text.contains(r"fd://\u{1b}[2J"), "{text}");
}
