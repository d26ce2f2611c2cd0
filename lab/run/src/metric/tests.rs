use weir_forward::BusyStats;
use weir_plan::Role;
use weir_plan::event::{Event, EventKind, Observer, Queue, RouterSample};
use weir_plan::workload::{Demand, Popularity};
use weir_plan_fixture::{MS, PlanBuilder, S, consumer, names};

use weir_scenario::metric::{Metric, Statistic};
use weir_scenario::{Arm, Experiment, Folder, Scenario, Size, WarmUp};

use super::*;

/// A scenario with two consumers, `a` and `b`, to which `[[metric]]` tables are added.
const SCENARIO: &str = r#"[scenario]
id = "s"
title = "S"
[run]
duration = "10s"
sample = "1s"
[topology]
generator = "line"
nodes = 1
[[producer]]
id = "p"
at = "first"
size = "1B"
segment = "1B"
[[consumer]]
id = "a"
at = "first"
of = "p"
window = 1
[[consumer]]
id = "b"
at = "first"
of = "p"
window = 1
"#;

fn experiment(text: &str) -> Experiment {
    let scenario = Scenario::parse("s.toml", text, Folder::Disk("/".into())).expect("TOML");
    scenario.experiment(Size::Smoke).expect("right")
}

fn metrics_of(text: &str) -> Vec<Metric> {
    experiment(&format!("{SCENARIO}{text}")).metrics
}

#[test]
fn collects_measures_of_the_arm() {
    let text = SCENARIO.replacen("[run]", "arms = [\"sim\", \"real\"]\n[run]", 1)
        + "[[metric]]\nid = \"goodput\"\nmeasure = \"goodput\"\n[[metric]]\nid = \"carried\"\n\
           measure = \"link-throughput\"\n";
    let both = experiment(&text);
    let prepared = both.prepare(&both.points[0], 1).expect("a plan");
    for (arm, metrics) in [(Arm::Sim, vec!["carried", "goodput"]), (Arm::Real, vec!["goodput"])] {
        let measured = Collector::of(&both, &prepared, arm).expect("metrics").finish();
        assert_eq!(measured.values.keys().collect::<Vec<_>>(), metrics);
    }
}

/// Two consumers (nodes 0 and 1) of one producer's names, and a router (2).
fn plan() -> weir_plan::Plan {
    let names = names("/p", Popularity::Sequential { objects: 1 }, 1, 1);
    let consumer = Role::Consumer(consumer(names, Demand::Window { window: 1, count: None }));
    let mut builder = PlanBuilder::new(1, 10 * S);
    builder.plan.sample_ns = S;
    builder.node("a", consumer.clone());
    builder.node("b", consumer);
    builder.node("r", Role::Router(Default::default()));
    builder.plan
}

fn measure(metrics: &[Metric], warm_up_ns: u64, events: &[(u64, u32, EventKind)]) -> Measured {
    let at: Vec<Option<Vec<usize>>> = metrics
        .iter()
        .map(|metric| match metric.at.as_slice() {
            [name] if name == "a" => Some(vec![0]),
            _ => None,
        })
        .collect();
    let mut collector = Collector::new(&plan(), metrics, &at, WarmUp::Fixed(warm_up_ns));
    for (at_ns, node, kind) in events {
        collector.observe(&Event { at_ns: *at_ns, node: *node, kind: kind.clone() });
    }
    collector.finish()
}

fn data(content_bytes: u32, rtt_ns: u64) -> EventKind {
    EventKind::DataReceived {
        object: 0,
        segment: 0,
        content_bytes,
        packet_bytes: content_bytes + 100,
        rtt_ns,
        is_marked: false,
    }
}

#[test]
fn rates_cover_the_measured_time() {
    let metrics = metrics_of(
        "[[metric]]\nid = \"all\"\nmeasure = \"goodput\"\nper_node = true\nover_time = true\n\
         [[metric]]\nid = \"a\"\nmeasure = \"goodput\"\nat = \"a\"\n",
    );
    let events = [
        (S, 0, data(999, 1)),
        (3 * S, 0, data(1000, 1)),
        (4 * S, 1, data(500, 1)),
        (11 * S, 1, data(999, 1)),
    ];
    let measured = measure(&metrics, 2 * S, &events);
    assert_eq!(measured.values["all"], Some(1500.0));
    assert_eq!(measured.values["a"], Some(1000.0));
    assert_eq!(
        measured.nodes["all"],
        [("a".to_owned(), Some(1000.0)), ("b".to_owned(), Some(500.0))]
    );
    let series = &measured.series["all"];
    assert_eq!(series.len(), 10);
    assert_eq!(series[1], (1.5, 7992.0));
    assert_eq!(series[3], (3.5, 8000.0));
    assert_eq!(series[4], (4.5, 4000.0));
}

#[test]
fn live_channels_and_their_server() {
    let metrics = metrics_of(
        "[[metric]]\nid = \"watched\"\nmeasure = \"channels-watched\"\n\
         [[metric]]\nid = \"requests\"\nmeasure = \"server-requests\"\n\
         [[metric]]\nid = \"share\"\nmeasure = \"server-share\"\n",
    );
    let watches = |channel| EventKind::ChannelWatched { channel };
    let playlist = EventKind::PlaylistReceived { stream: 0, newest: 1, packet_bytes: 500 };
    let events = [
        (S, 0, watches(3)),
        (S, 2, EventKind::ServerRequests { count: 3 }),
        (2 * S, 1, watches(3)),
        (3 * S, 2, EventKind::ServerRequests { count: 4 }),
        (3 * S, 2, EventKind::ServerSent { packet_bytes: 500 }),
        (4 * S, 0, watches(5)),
        (5 * S, 0, data(900, 1)),
        (5 * S, 1, data(900, 1)),
        (5 * S, 1, playlist),
        (6 * S, 1, watches(5)),
        (7 * S, 2, EventKind::ServerRequests { count: 4 }),
    ];
    let values = measure(&metrics, 2 * S, &events).values;
    // Two channels from 4 to 6 s, one in the other 6 of 8 s.
    assert_eq!(values["watched"], Some(1.25));
    assert_eq!(values["requests"], Some(1.0));
    assert_eq!(values["share"], Some(20.0));
}

#[test]
fn statistics_of_samples() {
    let text = |statistic: &str| {
        format!(
            "[[metric]]\nid = \"{statistic}\"\nmeasure = \"rtt\"\nstatistic = \"{statistic}\"\n"
        )
    };
    let all: String = ["mean", "min", "max", "last", "count", "median", "p90"].map(text).concat();
    let events: Vec<_> = (1..=10).map(|i| (i * S / 2, 0, data(1, i * S))).collect();
    let values = measure(&metrics_of(&all), 0, &events).values;
    for (id, expected) in [
        ("mean", 5.5),
        ("min", 1.0),
        ("max", 10.0),
        ("last", 10.0),
        ("count", 10.0),
        ("median", 5.0),
        ("p90", 9.0),
    ] {
        assert_eq!(values[id], Some(expected), "{id}");
    }
}

#[test]
fn empty_measurement_has_no_value() {
    let metrics = metrics_of(
        "[[metric]]\nid = \"rtt\"\nmeasure = \"rtt\"\n[[metric]]\nid = \"hits\"\nmeasure = \
            \"hit-ratio\"\n\
         [[metric]]\nid = \"goodput\"\nmeasure = \"goodput\"\n",
    );
    let values = measure(&metrics, 0, &[]).values;
    assert_eq!((values["rtt"], values["hits"], values["goodput"]), (None, None, Some(0.0)));
}

#[test]
fn counters_of_routers_are_differences() {
    let metrics = metrics_of(
        "[[metric]]\nid = \"hits\"\nmeasure = \"hit-ratio\"\n[[metric]]\nid = \"out\"\nmeasure = \
            \"out-throughput\"\n\
         [[metric]]\nid = \"cpu\"\nmeasure = \"cpu-per-packet\"\n",
    );
    let sample = |hits, misses, out_bytes, interests, cpu_ns| {
        EventKind::RouterSample(Box::new(RouterSample {
            store_hits: hits,
            store_misses: misses,
            out_bytes,
            in_interests: interests,
            cpu_ns,
            ..RouterSample::default()
        }))
    };
    let events = [
        (2 * S, 2, sample(100, 100, 1_000, 1_000, S)),
        (6 * S, 2, sample(110, 130, 2_000, 1_100, S + 1_000)),
        (8 * S, 2, sample(115, 145, 2_500, 1_200, S + 4_000)),
    ];
    let values = measure(&metrics, 2 * S, &events).values;
    assert_eq!(values["hits"], Some(100.0 * 15.0 / 60.0), "10 of 40, then 5 of 20");
    assert_eq!(values["out"], Some(1_500.0));
    assert!((values["cpu"].expect("measured") - 20e-9).abs() < 1e-18);
}

#[test]
#[should_panic(expected = "a counter decreased from 9 to 8")]
fn decreasing_counter_is_an_error() {
    let metrics = metrics_of("[[metric]]\nid = \"hits\"\nmeasure = \"hit-ratio\"\n");
    let sample = |store_hits| {
        EventKind::RouterSample(Box::new(RouterSample { store_hits, ..RouterSample::default() }))
    };
    measure(&metrics, 0, &[(S, 2, sample(9)), (2 * S, 2, sample(8))]);
}

#[test]
fn late_samples_cover_the_same_period() {
    let metrics = metrics_of(
        "[[metric]]\nid = \"out\"\nmeasure = \"out-throughput\"\nover_time = true\n\
         per_node = true\n\
         [[metric]]\nid = \"hits\"\nmeasure = \"hit-ratio\"\n\
         [[metric]]\nid = \"link\"\nmeasure = \"link-throughput\"\nover_time = true\n",
    );
    // 1,000 bytes/s until 5 s, then 3,000 bytes/s; all lookups before 5 s hit, and none after.
    let octets_at = |at_ns: u64| {
        let (early_ms, late_ms) = (at_ns.min(5 * S) / MS, at_ns.saturating_sub(5 * S) / MS);
        (early_ms + 3 * late_ms, early_ms, late_ms)
    };
    let events = |late_ns: u64| {
        let samples = (1..=11).flat_map(move |k| {
            let at_ns = k * S + late_ns;
            let (out_bytes, store_hits, store_misses) = octets_at(at_ns);
            let sample =
                RouterSample { out_bytes, store_hits, store_misses, ..RouterSample::default() };
            let (frames, bytes, dropped) = (store_hits, out_bytes, 0);
            [
                (at_ns, 2, EventKind::RouterSample(Box::new(sample))),
                (
                    at_ns,
                    2,
                    EventKind::LinkSample { link: 0, frames, bytes, dropped, waiting_bytes: 0 },
                ),
            ]
        });
        samples.collect::<Vec<_>>()
    };
    for warm_up_ns in [0, 2 * S] {
        let grid = measure(&metrics, warm_up_ns, &events(0));
        let late = measure(&metrics, warm_up_ns, &events(MS));
        let time_s = (10 * S - warm_up_ns) as f64 / 1e9;
        let octets = octets_at(10 * S).0 - octets_at(warm_up_ns).0;
        assert_eq!(grid.values["out"], Some(octets as f64 * 8.0 / time_s));
        for (id, value) in &grid.values {
            let (grid, late) = (value.expect("measured"), late.values[id].expect("measured"));
            assert!((grid / late - 1.0).abs() < 1e-3, "{id}: {grid} on the grid, {late} late");
        }
        for id in ["out", "link"] {
            let (grid, late) = (&grid.series[id], &late.series[id]);
            assert_eq!((grid.len(), late.len()), (10, 10));
            assert_eq!((grid[0].1, grid[4].1, grid[5].1), (8_000.0, 8_000.0, 24_000.0));
            for ((_, grid), (_, late)) in grid.iter().zip(late) {
                assert!((grid / late - 1.0).abs() < 3e-3, "{id}: {grid} {late}");
            }
        }
        assert_eq!(grid.nodes["out"][0].1, grid.values["out"]);
    }
}

#[test]
fn distribution_ends_with_the_last_consumer() {
    let metrics = metrics_of(
        "[[metric]]\nid = \"cdit\"\nmeasure = \"distribution-time\"\nstatistic = \"max\"\n\
         [[metric]]\nid = \"cdot\"\nmeasure = \"download-time\"\nper_node = true\n\
         [[metric]]\nid = \"begun\"\nmeasure = \"objects-started\"\n\
         [[metric]]\nid = \"ended\"\nmeasure = \"objects-completed\"\n",
    );
    let started = |object| EventKind::ObjectStarted { object };
    let completed =
        |object, elapsed_ns| EventKind::ObjectCompleted { object, content_bytes: 1, elapsed_ns };
    let events = [
        (S, 0, started(7)),
        (2 * S, 1, started(7)),
        (3 * S, 0, completed(7, 2 * S)),
        (6 * S, 1, completed(7, 4 * S)),
        // One consumer does not have this object.
        (7 * S, 0, started(8)),
        (7 * S, 1, started(8)),
        (8 * S, 0, completed(8, S)),
    ];
    let measured = measure(&metrics, 0, &events);
    assert_eq!(measured.values["cdit"], Some(5.0));
    assert_eq!((measured.values["begun"], measured.values["ended"]), (Some(4.0), Some(3.0)));
    assert_eq!(measured.nodes["cdot"], [("a".to_owned(), Some(1.5)), ("b".to_owned(), Some(4.0))]);
}

#[test]
fn round_trips_count_by_request_time() {
    let metrics = metrics_of("[[metric]]\nid = \"rtt\"\nmeasure = \"rtt\"\n");
    // Requested before the warm-up of 2 s, within the measured time, and within it but answered
    // after the end.
    let events = [(3 * S, 0, data(1, 2 * S)), (5 * S, 0, data(1, S)), (13 * S, 0, data(1, 5 * S))];
    assert_eq!(measure(&metrics, 2 * S, &events).values["rtt"], Some(3.0));
}

#[test]
fn warm_up_is_estimated_from_the_run() {
    let metrics = metrics_of(
        "[[metric]]\nid = \"rtt\"\nmeasure = \"rtt\"\n[[metric]]\nid = \"rate\"\n\
         measure = \"data-rate\"\n",
    );
    let mut collector = Collector::new(&plan(), &metrics, &[None, None], WarmUp::Auto);
    for i in 0..1_000 {
        // Answers after 1 s in the first two seconds, and after 10 or 20 ms from then on.
        let rtt_ns = if i < 200 { S } else { 10 * MS * (1 + i % 2) };
        let at_ns = i * 10 * MS + rtt_ns;
        collector.observe(&Event { at_ns, node: 0, kind: data(1, rtt_ns) });
    }
    let measured = collector.finish();
    let settled = measured.settled.expect("auto");
    assert_eq!((settled.warm_up_s, settled.is_settled), (2.0, true));
    let rtt = measured.values["rtt"].expect("measured");
    assert!((rtt - 0.015).abs() < 1e-4, "{rtt}");
    // Data requested before 2 s and received later counts for the rate.
    let rate = measured.values["rate"].expect("measured");
    assert!((100.0..=113.0).contains(&rate), "{rate}");
}

#[test]
fn loss_counts_samples_after_the_end() {
    let metrics = metrics_of("[[metric]]\nid = \"loss\"\nmeasure = \"loss\"\n");
    let sent = EventKind::InterestSent { object: 0, segment: 0, is_repeated: false };
    let lost = EventKind::TimedOut { object: 0, segment: 0 };
    let events = [
        (S, 0, sent.clone()),
        (2 * S, 0, data(100, S)),
        (9 * S, 0, sent),
        (11 * S - 1, 0, lost.clone()),
    ];
    assert_eq!(measure(&metrics, 0, &events).values["loss"], Some(50.0));
    // Interests sent before the warm-up that end in the measured time do not exceed the total.
    let lost_only = [(2 * S, 0, lost.clone()), (3 * S, 0, lost)];
    assert_eq!(measure(&metrics, S, &lost_only).values["loss"], Some(100.0));
}

#[test]
fn percentiles_are_those_of_sorted_samples() {
    let mut histogram = Histogram::default();
    let mut samples: Vec<f64> = Vec::new();
    let mut rng = weir_base::Rng::from_seed(3);
    for _ in 0..10_000 {
        let sample = f64::from(rng.next_u32()) * 1e-3;
        histogram.add(sample);
        samples.push(sample);
    }
    samples.sort_by(f64::total_cmp);
    for percent in [0.0, 1.0, 50.0, 90.0, 99.9, 100.0] {
        let exact = samples[((percent / 100.0 * 10_000.0) as usize).clamp(1, 10_000) - 1];
        let found = histogram.statistic(Statistic::Percentile(percent)).expect("samples");
        assert!((found - exact).abs() <= exact * 3e-4, "{percent}: {found} {exact}");
    }
    let curve = histogram.distribution(100);
    assert!(curve.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
    assert_eq!(curve.last().map(|place| place.1), Some(1.0));
}

#[test]
fn measures_disk_counters_and_queues() {
    let metrics = metrics_of(
        "[[metric]]\nid = \"queue\"\nmeasure = \"disk-queue\"\nstatistic = \"max\"\n\
         [[metric]]\nid = \"reads\"\nmeasure = \"queue-length\"\nqueue = \"disk-reads\"\n\
         statistic = \"max\"\n\
         [[metric]]\nid = \"time\"\nmeasure = \"disk-read-time\"\n\
         [[metric]]\nid = \"bypasses\"\nmeasure = \"bypasses\"\n\
         [[metric]]\nid = \"rate\"\nmeasure = \"delivery-rate\"\n\
         [[metric]]\nid = \"last\"\nmeasure = \"delivery-time\"\nstatistic = \"max\"\n",
    );
    let length = |queue, packets| EventKind::QueueLength { queue, packets };
    let sample = |answered, disk_answer_ns, bypassed_queue_full, bypassed_stalled| {
        let busy =
            BusyStats { answered, bypassed_queue_full, bypassed_stalled, ..BusyStats::default() };
        let sample = RouterSample { disk_answer_ns, busy, ..RouterSample::default() };
        EventKind::RouterSample(Box::new(sample))
    };
    let events = [
        (S, 2, length(Queue::DiskReads, 7)),
        (S, 2, length(Queue::DiskWrites, 100)),
        (S, 2, length(Queue::DiskBlocked, 3)),
        (S, 2, sample(10, 5 * S, 0, 0)),
        (2 * S, 0, data(1, 1)),
        (3 * S, 0, data(1, 1)),
        (4 * S, 0, data(1, 1)),
        (5 * S, 2, sample(14, 7 * S, 30, 10)),
    ];
    let values = measure(&metrics, 0, &events).values;
    assert_eq!((values["queue"], values["reads"]), (Some(10.0), Some(7.0)));
    assert_eq!(values["time"], Some(0.5));
    assert_eq!(values["bypasses"], Some(4.0), "40 in 10 s");
    assert_eq!((values["rate"], values["last"]), (Some(1.5), Some(4.0)), "3 within 2 s");
    let none = measure(&metrics, 0, &[(2 * S, 0, data(1, 1))]).values;
    assert_eq!((none["rate"], none["time"]), (None, None));
}
