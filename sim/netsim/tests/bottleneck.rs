//! Congestion controllers at a bottleneck between two routers: rates, queues and fairness.

use crate::common;

use std::ops::Range;

use common::{MS, PlanBuilder, S, consumer, names, producer, run_with, without_store};
use weir_link::MarkingPolicy;
use weir_netem::{LinkConfig, Loss, Reorder};
use weir_plan::event::{Event, EventKind, Observer};
use weir_plan::workload::{ConsumerPlan, Demand, Names, Popularity, Sizes};
use weir_plan::{Fault, RoutePlan, RouterPlan};

/// Nodes and links as [`Path::builder`] numbers them.
const EDGE: usize = 0;
const CORE: usize = 1;
const BOTTLENECK: usize = 0;
const SAMPLE_NS: u64 = 5 * MS;
/// CoDel with a target that no queue reaches, so nothing is marked.
const UNMARKED: &str = "codel target=1000s interval=1000s";

/// Consumers at the first router, producers at the second, and the link between them. The store of
/// one router may hold a random half of each object.
#[derive(Clone, Debug)]
struct Path {
    rate_bps: u64,
    buffer_bytes: u64,
    segment_bytes: u32,
    marking: &'static str,
    /// Loss of Data at the bottleneck.
    loss: f64,
    reorder: Option<Reorder>,
    /// One-way delays: consumers to the first router, first to second router, second router to
    /// producers.
    delays_ns: [u64; 3],
    /// The router that stores half of the content, if any.
    stored_at: Option<usize>,
    seed: u64,
}

/// The three nodes of paper chopcop, 6.1: 40 Mbit/s, 55 ms one way, 1500 kB.
const THREE_NODES: Path = Path {
    rate_bps: 40_000_000,
    buffer_bytes: 1_500_000,
    segment_bytes: 1000,
    marking: UNMARKED,
    loss: 0.0,
    reorder: None,
    delays_ns: [MS, 5 * MS, 49 * MS],
    stored_at: None,
    seed: 7,
};

/// A controller that fetches without end, and its start time.
type Flow = (&'static str, u64);

impl Path {
    /// The same path with another round-trip time, without a queue.
    fn with_rtt(self, rtt_ns: u64) -> Self {
        let delays_ns = [rtt_ns / 100, rtt_ns / 25, rtt_ns / 2 - rtt_ns / 20];
        Self { delays_ns, ..self }
    }

    /// Bytes that fill the path without a queue.
    fn bandwidth_delay_product(&self) -> f64 {
        let rtt_ns = 2 * self.delays_ns.iter().sum::<u64>();
        self.rate_bps as f64 / 8.0 * rtt_ns as f64 / S as f64
    }

    /// The two routers and the link between them.
    fn builder(&self) -> PlanBuilder {
        let mut builder = PlanBuilder::new(self.seed, 0);
        builder.plan.sample_ns = SAMPLE_NS;
        for router in [EDGE, CORE] {
            let marking = MarkingPolicy::read(self.marking, &[]).expect("a policy of weir-link");
            let plan = RouterPlan { marking, ..without_store() };
            builder.router(match self.stored_at == Some(router) {
                true => RouterPlan {
                    store: weir_options::StoreOptions {
                        admit: false,
                        ..RouterPlan::default().store
                    },
                    store_filled: 0.5,
                    ..plan
                },
                false => plan,
            });
        }
        let data = LinkConfig {
            rate_bps: Some(self.rate_bps),
            delay_ns: self.delays_ns[1],
            queue_bytes_max: self.buffer_bytes,
            queue_packets_max: u32::MAX,
            loss: Loss::Independent { probability: self.loss },
            reorder: self.reorder,
            ..LinkConfig::default()
        };
        let link = builder.link(EDGE, CORE, &data);
        let interests = LinkConfig { delay_ns: self.delays_ns[1], ..LinkConfig::default() };
        let link = &mut builder.plan.links[link];
        (link.a_to_b, link.mtu) = (interests, 9000);
        builder
    }

    /// Names of one flow. With a store, objects are requested cyclically, and half of them fit.
    fn names(&self, flow: usize) -> Names {
        let segments = if self.stored_at.is_some() { 20_000 } else { 1 << 40 };
        let bytes = u64::from(self.segment_bytes) * segments;
        let popularity = Popularity::Sequential { objects: 1 };
        names(&format!("/f{flow}"), popularity, bytes, self.segment_bytes)
    }

    fn consumer(&self, (controller, start_ns): Flow, content: Names) -> ConsumerPlan {
        let demand =
            Demand::Controlled { controller: controller.into(), window: None, count: None };
        ConsumerPlan { start_ns, ..consumer(content, demand) }
    }

    /// Adds flows, each with its own names and producer.
    fn with_flows(&self, flows: impl IntoIterator<Item = Flow>) -> PlanBuilder {
        let mut builder = self.builder();
        for (number, flow) in flows.into_iter().enumerate() {
            let content = self.names(number);
            builder.local.delay_ns = self.delays_ns[0];
            builder.consumer(EDGE, self.consumer(flow, content.clone()));
            builder.local.delay_ns = self.delays_ns[2];
            builder.producer(CORE, producer(content));
        }
        builder
    }

    /// Measures flows in a time span.
    fn measure(&self, flows: impl IntoIterator<Item = Flow>, span: Range<u64>) -> Measured {
        let [measured] = measure(self.with_flows(flows), [span]);
        measured
    }

    /// Measures one flow: its first 5 s, and the next 20 s.
    fn alone(&self, controller: &'static str) -> [Measured; 2] {
        measure(self.with_flows([(controller, 0)]), [0..5 * S, 5 * S..25 * S])
    }

    /// Measures two flows; the second one starts after 5 s.
    fn shares(&self, one: &'static str, other: &'static str, span: Range<u64>) -> Measured {
        self.measure([(one, 0), (other, 5 * S)], span)
    }

    /// Measures one flow of `weir` from 0.5 s to 1 s.
    fn short(&self) -> Measured {
        self.measure([("weir", 0)], S / 2..S)
    }

    fn assert_used(&self, measured: &Measured, share: f64) {
        let used = measured.sum_bps() / self.rate_bps as f64;
        assert!(used >= share, "{used} of {self:?}: {measured:?}");
    }
}

/// Measurements of one time span.
#[derive(Clone, Debug, Default)]
struct Measured {
    span: Range<u64>,
    /// Packets that each flow received, in the order of the plan's consumers.
    packets: Vec<(u32, u64)>,
    /// What the bottleneck carried and dropped since the start, at the first and the last sample.
    carried: Option<[Carried; 2]>,
    samples: u64,
    /// Queue in bytes before the bottleneck: sum and maximum of all samples.
    queue_sum: u64,
    queue_max: u64,
    /// When a flow requested its second object, if it did.
    second_object_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Carried {
    frames: u64,
    bytes: u64,
    dropped: u64,
}

impl Measured {
    fn add(&mut self, event: &Event) {
        match event.kind {
            EventKind::DataReceived { .. } => {
                match self.packets.iter_mut().find(|(node, _)| *node == event.node) {
                    Some((_, count)) => *count += 1,
                    None => self.packets.push((event.node, 1)),
                }
            }
            EventKind::LinkSample { link, frames, bytes, dropped, waiting_bytes }
                if (link, event.node) == (BOTTLENECK as u32, CORE as u32) =>
            {
                let now = Carried { frames, bytes, dropped };
                self.carried = Some([self.carried.map_or(now, |[first, _]| first), now]);
                self.samples += 1;
                self.queue_sum += waiting_bytes;
                self.queue_max = self.queue_max.max(waiting_bytes);
            }
            EventKind::ObjectStarted { object: 1 } => self.second_object_ns = Some(event.at_ns),
            _ => {}
        }
    }

    /// Rate of each flow in bit/s at the bottleneck.
    fn rates_bps(&self) -> Vec<f64> {
        let [first, last] = self.carried.expect("the link was sampled");
        let frame_bytes = (last.bytes - first.bytes) as f64 / (last.frames - first.frames) as f64;
        let seconds = (self.span.end - self.span.start) as f64 / S as f64;
        let mut packets = self.packets.clone();
        packets.sort_unstable();
        packets.iter().map(|&(_, count)| count as f64 * 8.0 * frame_bytes / seconds).collect()
    }

    fn sum_bps(&self) -> f64 {
        self.rates_bps().iter().sum()
    }

    /// Jain's fairness index: 1 if all rates are equal.
    fn fairness(&self) -> f64 {
        let rates = self.rates_bps();
        let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
        self.sum_bps().powi(2) / squares / rates.len() as f64
    }

    fn mean_queue_bytes(&self) -> f64 {
        self.queue_sum as f64 / self.samples as f64
    }

    fn dropped(&self) -> u64 {
        self.carried.map_or(0, |[first, last]| last.dropped - first.dropped)
    }
}

struct Meter<const N: usize>([Measured; N]);

impl<const N: usize> Observer for Meter<N> {
    fn observe(&mut self, event: &Event) {
        let spans = self.0.iter_mut().filter(|it| it.span.contains(&event.at_ns));
        spans.for_each(|it| it.add(event));
    }
}

/// Runs a network to the end of the last span, and measures each span.
fn measure<const N: usize>(mut builder: PlanBuilder, spans: [Range<u64>; N]) -> [Measured; N] {
    builder.plan.duration_ns = spans[N - 1].end;
    let mut meter = Meter(spans.map(|span| Measured { span, ..Measured::default() }));
    run_with(&builder.plan, &mut meter);
    meter.0
}

/// The requirement: 99 % of the rate, and a mean queue below a quarter of the 236 kB of CHoPCoP,
/// for any marking. At the start the queue may reach one bandwidth-delay product.
#[test]
fn weir_fills_the_bottleneck_with_a_short_queue() {
    for marking in [UNMARKED, "nfd", "codel"] {
        let path = Path { marking, ..THREE_NODES };
        let [start, rest] = path.alone("weir");
        path.assert_used(&rest, 0.99);
        assert!(rest.mean_queue_bytes() < 59_000.0, "{marking}: {rest:?}");
        assert!(start.queue_max < 550_000, "{marking}: {start:?}");
        assert_eq!(start.dropped() + rest.dropped(), 0, "{marking}");
    }
    // The network shows a difference: CUBIC fills the buffer.
    let [_, rest] = THREE_NODES.alone("cubic");
    assert!(rest.mean_queue_bytes() > 1_000_000.0, "{rest:?}");
}

#[test]
fn weir_ignores_single_losses_and_reordering() {
    let reorder = Some(Reorder { probability: 0.5, extra_ns: 3 * MS });
    for (path, share) in [
        (Path { loss: 0.001, ..THREE_NODES }, 0.99),
        (Path { loss: 0.01, ..THREE_NODES }, 0.97),
        (Path { reorder, ..THREE_NODES }, 0.98),
    ] {
        path.assert_used(&path.alone("weir")[1], share);
    }
}

#[test]
fn weir_needs_no_tuning_for_the_path() {
    for rate_bps in [1_000_000, 10_000_000, 100_000_000, 1_000_000_000] {
        for rtt_ns in [MS, 20 * MS, 300 * MS] {
            let path = Path { rate_bps, segment_bytes: 8000, ..THREE_NODES }.with_rtt(rtt_ns);
            let filled = path.bandwidth_delay_product();
            if filled > 4e6 {
                continue; // It takes a minute.
            }
            let path = Path { buffer_bytes: (filled as u64).max(128_000), ..path };
            let [_, rest] = path.alone("weir");
            path.assert_used(&rest, 0.98);
            let queue_max = (0.06 * filled).max(50_000.0);
            assert!(rest.mean_queue_bytes() < queue_max, "{path:?}: {rest:?}");
        }
    }
}

/// The store is before or after the bottleneck. Short round trips to the near half must not starve
/// the far half. Once, a short round trip of near answers was taken for the whole path. Some seeds
/// got two thirds of the rate, others a queue of a megabyte.
#[test]
fn weir_tolerates_a_store_on_the_path() {
    for (stored_at, delays_ns, share) in
        [(EDGE, [2 * MS, 5 * MS, 48 * MS], 1.85), (CORE, [MS, MS, 53 * MS], 0.85)]
    {
        for seed in 0..4 {
            let stored_at = Some(stored_at);
            let path = Path { stored_at, delays_ns, seed, ..THREE_NODES };
            let [_, rest] = path.alone("weir");
            path.assert_used(&rest, share);
            assert!(rest.mean_queue_bytes() < 59_000.0, "{path:?}: {rest:?}");
        }
    }
}

/// From 60 to 160 ms: the second object is farther away than the first.
#[test]
fn weir_follows_a_longer_path() {
    let path = THREE_NODES.with_rtt(60 * MS);
    let mut builder = path.builder();
    let sizes = Sizes::List { bytes: [45_000_000, 1 << 50].into() };
    let popularity = Popularity::Sequential { objects: 2 };
    let content = Names { popularity, sizes, ..path.names(0) };
    builder.local.delay_ns = path.delays_ns[0];
    builder.consumer(EDGE, path.consumer(("weir", 0), content.clone()));
    builder.local.delay_ns = path.delays_ns[2];
    builder.producer(CORE, producer(content.clone()));
    builder.local.delay_ns += 50 * MS;
    let near_routes = builder.plan.routes.len();
    builder.producer(CORE, producer(content));
    builder.plan.routes.truncate(near_routes);
    let link = builder.plan.links.len() - 1;
    let prefix = "/f0/00000001".into();
    builder.plan.routes.push(RoutePlan { node: CORE, prefix, link, cost: 0 });
    let [before, after] =
        measure(builder, [9 * S..10 * S, 10 * S + 6 * 160 * MS..12 * S + 6 * 160 * MS]);
    assert!(before.second_object_ns.is_some(), "{before:?}");
    path.assert_used(&after, 0.8);
}

/// From 40 to 20 and to 80 Mbit/s: the path is soon full again, and the queue short.
#[test]
fn weir_follows_a_change_of_the_rate() {
    for (rate_bps, slow_ns) in [(40_000_000, 10 * S..u64::MAX), (80_000_000, 0..10 * S)] {
        let path = Path { rate_bps, ..THREE_NODES };
        let mut builder = path.with_flows([("weir", 0)]);
        let for_ns = slow_ns.end - slow_ns.start;
        let fault = Fault::LinkSlow { link: BOTTLENECK, for_ns, share: 0.5 };
        builder.fault(slow_ns.start, fault);
        let changed = 10 * S + 12 * 110 * MS;
        let span = changed..changed + 2 * S;
        let [after] = measure(builder, [span]);
        let rate_after = if slow_ns.start == 0 { 80e6 } else { 20e6 };
        let used = after.sum_bps() / rate_after;
        assert!(used > 0.95 && after.mean_queue_bytes() < 100_000.0, "{used}: {after:?}");
    }
}

#[test]
fn flows_of_weir_share_evenly() {
    for marking in [UNMARKED, "nfd", "codel"] {
        let rest = Path { marking, ..THREE_NODES }.shares("weir", "weir", 20 * S..80 * S);
        assert!(rest.fairness() > 0.98 && rest.sum_bps() > 39e6, "{marking}: {rest:?}");
    }
}

/// Regression: later flows took the queue of earlier ones for the path, and those took the later
/// ones for competitors. Ten flows kept a queue of 1.3 MB.
#[test]
fn many_flows_of_weir_keep_the_queue_short() {
    for flows in [3, 10] {
        let starts = (0..flows).map(|at| ("weir", at * 2 * S));
        let rest = THREE_NODES.measure(starts, 40 * S..60 * S);
        assert!(rest.fairness() > 0.95 && rest.sum_bps() > 39e6, "{flows} flows: {rest:?}");
        assert!(rest.mean_queue_bytes() < 100_000.0, "{flows} flows: {rest:?}");
    }
}

/// Regression: ten flows with twelve packets each fill a sixth of the path with their queue. Each
/// took that for competition when its own drain left it, and Jain's index was 0.44 and 0.59.
///
/// Some distances between the starts still fail: at 300, 600 and 650 ms the queue stays full and
/// the index is 0.4 to 0.8.
#[test]
fn small_weir_flows_do_not_compete() {
    for stagger_ns in [500 * MS, 800 * MS, 2 * S] {
        let path = Path { rate_bps: 10_000_000, buffer_bytes: 125_000, ..THREE_NODES };
        let starts = (0..10).map(|at| ("weir", at * stagger_ns));
        let from_ns = 10 * stagger_ns + 6 * S;
        let rest = path.with_rtt(100 * MS).measure(starts, from_ns..from_ns + 16 * S);
        assert!(rest.fairness() > 0.93 && rest.sum_bps() > 9.9e6, "{stagger_ns} ns: {rest:?}");
        assert!(rest.mean_queue_bytes() < 40_000.0, "{stagger_ns} ns: {rest:?}");
    }
}

/// A buffer of a tenth of a bandwidth-delay product suffices.
#[test]
fn weir_needs_no_deep_buffer() {
    let path = Path { buffer_bytes: 55_000, ..THREE_NODES };
    let [_, rest] = path.alone("weir");
    path.assert_used(&rest, 0.99);
    assert_eq!(rest.dropped(), 0);
}

/// Regression: lost segments occupied the window until routers accepted a second Interest for them,
/// here after ten round trips. The flows reached 84, 87 and 97 %.
#[test]
fn weir_needs_no_long_path() {
    for (rate_bps, buffer_bytes, loss) in [
        (1_000_000_000, 32_000, 0.0),
        (10_000_000_000, 125_000, 0.0),
        (10_000_000_000, 1_250_000, 0.01),
    ] {
        let path = Path { rate_bps, buffer_bytes, loss, segment_bytes: 8000, ..THREE_NODES };
        let path = path.with_rtt(MS);
        path.assert_used(&path.short(), 0.98);
    }
}

/// Regression: startup fills the queue in one round trip. Segments that waited longer than the
/// timeout were retransmitted although answers kept arriving, and the flow reached 66 %.
#[test]
fn fast_growing_queue_causes_no_timeouts() {
    for loss in [0.0, 0.001] {
        for seed in 1..4 {
            let path = Path { loss, seed, ..THREE_NODES }.with_rtt(300 * MS);
            path.assert_used(&path.measure([("weir", 0)], 5 * S..10 * S), 0.98);
        }
    }
}

/// Regression: after a drain, pacing sent up to 2 ms worth of packets at once to catch up. The
/// resulting queue looked like a window that was too large, and the flow reached 96 %.
#[test]
fn pacing_does_not_catch_up_after_full_window() {
    let path = Path {
        rate_bps: 10_000_000_000,
        buffer_bytes: 37_500_000,
        segment_bytes: 8000,
        ..THREE_NODES
    };
    let path = path.with_rtt(30 * MS);
    path.assert_used(&path.short(), 0.99);
}

/// With the deepest buffer, CUBIC's first window is so large that a later flow of Weir needs a
/// minute to reach its share.
#[test]
fn weir_and_cubic_leave_each_other_a_share() {
    for (marking, buffer_bytes, from_ns) in [
        (UNMARKED, 55_000, 20 * S),
        (UNMARKED, 550_000, 20 * S),
        (UNMARKED, 1_500_000, 80 * S),
        ("nfd", 1_500_000, 20 * S),
    ] {
        let path = Path { marking, buffer_bytes, ..THREE_NODES };
        let rates = path.shares("weir", "cubic", 20 * S..50 * S).rates_bps();
        assert!(rates.iter().all(|&rate| rate > 8e6), "{path:?}: {rates:?}");
        let rates = path.shares("cubic", "weir", from_ns..from_ns + 30 * S).rates_bps();
        assert!(rates.iter().all(|&rate| rate > 5e6), "{path:?}: {rates:?}");
    }
}

/// A flow with a very low rate has few packets in the queue. It must not conclude that the other
/// packets belong to flows like itself. When it did, it got 0.2 of 10 Mbit/s.
#[test]
fn cubic_does_not_starve_weir_on_a_slow_link() {
    for marking in [UNMARKED, "nfd"] {
        let path = Path { rate_bps: 10_000_000, buffer_bytes: 125_000, marking, ..THREE_NODES };
        let first = path.shares("weir", "cubic", 20 * S..50 * S).rates_bps()[0];
        let late = path.shares("cubic", "weir", 20 * S..50 * S).rates_bps()[1];
        assert!(first.min(late) > 1.2e6, "{marking}: {first} and {late}");
    }
}
