//! Controllers over a bottleneck: real scoreboards and paths, a queue of octets and propagation,
//! under virtual time.

extern crate std;

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use weir_base::{NS_PER_MS, Rng, RttConfig};

use super::path::Answer;
use super::schedule::Single;
use super::scoreboard::{Scoreboard, ScoreboardConfig};
use super::*;
use crate::congestion::{ControllerConfig, Controllers, WindowBounds};

const MS: u64 = NS_PER_MS;
const S: u64 = 1000 * MS;

/// Where the content of a segment is.
#[derive(Copy, Clone, Debug)]
struct Source {
    /// One way, without the queue, ns.
    delay_ns: u64,
    /// Its Data passes the bottleneck.
    is_behind: bool,
}

#[derive(Copy, Clone, Debug, PartialEq)]
enum Marking {
    Off,
    /// NFD's schedule, above 64 KiB for 100 ms.
    Sparse,
    /// REM of paper chopcop with its parameters, of a buffer.
    Rem,
}

#[derive(Copy, Clone, Debug)]
struct Link {
    rate_bps: f64,
    buffer_bytes: u64,
    packet_bytes: u64,
    marking: Marking,
    /// Of Data, in thousandths.
    loss_permille: f64,
    jitter_ns: u64,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The Interest of a flow has met its content; Data joins the queue.
    Queue {
        flow: usize,
        index: u64,
    },
    /// The bottleneck has sent a packet.
    Departed,
    Arrive {
        flow: usize,
        index: u64,
        is_marked: bool,
    },
    Wake {
        flow: usize,
    },
}

struct Flow {
    scoreboard: Scoreboard,
    source: fn(u64, Instant) -> Source,
    starts: Instant,
    wakes: Instant,
}

#[derive(Clone, Debug, Default)]
struct Measured {
    /// Of each flow, bits a second.
    rates: Vec<f64>,
    queue_bytes: f64,
    queue_max: u64,
    dropped: u64,
}

struct Net {
    link: Link,
    now: Instant,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    serial: u64,
    queue: VecDeque<(usize, u64)>,
    flows: Vec<Flow>,
    rng: Rng,
    /// State of the marking.
    smoothed: f64,
    mark_at: Option<Instant>,
    marks: u64,
    delivered: Vec<u64>,
    integral: f64,
    integral_at: Instant,
    queue_max: u64,
    dropped: u64,
}

impl Net {
    fn new(link: Link) -> Self {
        Self {
            link,
            now: Instant::ZERO,
            events: BinaryHeap::new(),
            serial: 0,
            queue: VecDeque::new(),
            flows: Vec::new(),
            rng: Rng::from_seed(7),
            smoothed: 0.0,
            mark_at: None,
            marks: 0,
            delivered: Vec::new(),
            integral: 0.0,
            integral_at: Instant::ZERO,
            queue_max: 0,
            dropped: 0,
        }
    }

    fn flow(&mut self, text: &str, starts_ns: u64, source: fn(u64, Instant) -> Source) {
        let ControllerConfig { controller, constants } = Controllers::BUILT_IN.parse(text).unwrap();
        let config = ScoreboardConfig {
            lifetime_ns: 4 * S,
            retries_max: 1000,
            asks_once: false,
            rtt: RttConfig::default(),
            controller,
            constants,
            chunk_segments: 1,
            window: WindowBounds { initial: None, max: 1 << 16 },
            decrease_interval_ns: None,
            waits_for_lifetime: false,
            trace: false,
        };
        let mut scoreboard = Scoreboard::new(config, Box::new(Single));
        scoreboard.add_path(PathId(0), None);
        let starts = Instant::from_ns(starts_ns);
        self.push(starts, Event::Wake { flow: self.flows.len() });
        self.flows.push(Flow { scoreboard, source, starts, wakes: starts });
        self.delivered.push(0);
    }

    fn push(&mut self, at: Instant, event: Event) {
        self.serial += 1;
        self.events.push(Reverse((at, self.serial, event)));
    }

    fn queue_bytes(&self) -> u64 {
        self.queue.len() as u64 * self.link.packet_bytes
    }

    fn note_queue(&mut self) {
        let span = self.now.ns_since(self.integral_at) as f64;
        self.integral += span * self.queue_bytes() as f64;
        self.integral_at = self.now;
        self.queue_max = self.queue_max.max(self.queue_bytes());
    }

    fn serve(&mut self) {
        let bits = 8.0 * self.link.packet_bytes as f64;
        let ns = (bits / self.link.rate_bps * S as f64) as u64;
        self.push(self.now.plus_ns(ns), Event::Departed);
    }

    fn is_marked(&mut self) -> bool {
        let queue = self.queue_bytes() as f64;
        match self.link.marking {
            Marking::Off => false,
            Marking::Sparse if queue <= 65_536.0 => {
                self.mark_at = None;
                self.marks = 0;
                false
            }
            Marking::Sparse => {
                let at = *self.mark_at.get_or_insert(self.now.plus_ns(100 * MS));
                let is_due = self.now >= at;
                if is_due {
                    self.marks += 1;
                    let ns = 100e6 / ((self.marks + 1) as f64).sqrt();
                    self.mark_at = Some(at.plus_ns(ns as u64));
                }
                is_due
            }
            Marking::Rem => {
                self.smoothed += 0.05 * (queue - self.smoothed);
                let (min, max) =
                    (0.1 * self.link.buffer_bytes as f64, 0.3 * self.link.buffer_bytes as f64);
                let p = if self.smoothed < max {
                    (self.smoothed - min) / (max - min) * 0.002
                } else {
                    0.002 + (self.smoothed - max) / max * 0.998
                };
                self.rng.unit() < p
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Queue { flow, index } => {
                self.note_queue();
                if self.queue_bytes() + self.link.packet_bytes > self.link.buffer_bytes {
                    self.dropped += 1;
                    return;
                }
                self.queue.push_back((flow, index));
                if self.queue.len() == 1 {
                    self.serve();
                }
            }
            Event::Departed => {
                self.note_queue();
                let is_marked = self.is_marked();
                let (flow, index) = self.queue.pop_front().unwrap();
                if !self.queue.is_empty() {
                    self.serve();
                }
                if self.rng.unit() * 1000.0 >= self.link.loss_permille {
                    let source = (self.flows[flow].source)(index, self.now);
                    let jitter = (self.rng.unit() * self.link.jitter_ns as f64) as u64;
                    let at = self.now.plus_ns(source.delay_ns / 10 + jitter);
                    self.push(at, Event::Arrive { flow, index, is_marked });
                }
            }
            Event::Arrive { flow, index, is_marked } => {
                let packet_bytes = self.link.packet_bytes as usize;
                let mark = match self.link.marking {
                    _ if !is_marked => CongestionMark::NONE,
                    Marking::Rem => CongestionMark::PROPORTIONAL,
                    _ => CongestionMark::SPARSE,
                };
                let answer = Answer { now: self.now, path: PathId(0), mark, packet_bytes };
                if self.flows[flow].scoreboard.answered(index, &answer) {
                    self.delivered[flow] += 1;
                }
                self.turn(flow);
            }
            Event::Wake { flow } => {
                if self.flows[flow].wakes <= self.now {
                    self.turn(flow);
                }
            }
        }
    }

    fn turn(&mut self, at: usize) {
        let flow = &mut self.flows[at];
        if self.now < flow.starts {
            return;
        }
        while flow.scoreboard.check(self.now).is_err() {}
        let mut sent = Vec::new();
        while let Some((index, path)) = flow.scoreboard.next_to_send(self.now, u32::MAX, |_| true) {
            flow.scoreboard.sent(index, path, 0, self.now);
            sent.push(index);
        }
        let wakes = flow.scoreboard.next_wakeup();
        let source = flow.source;
        for index in sent {
            let Source { delay_ns, is_behind } = source(index, self.now);
            let (there, back) = (2 * delay_ns - delay_ns / 10, 2 * delay_ns);
            let is_marked = false;
            let event = match is_behind {
                true => (there, Event::Queue { flow: at, index }),
                false => (back, Event::Arrive { flow: at, index, is_marked }),
            };
            self.push(self.now.plus_ns(event.0), event.1);
        }
        if let Some(wakes) = wakes {
            let wakes = wakes.max(self.now.plus_ns(1000));
            self.flows[at].wakes = wakes;
            self.push(wakes, Event::Wake { flow: at });
        }
    }

    /// Runs for a time and measures it.
    fn run(&mut self, ns: u64) -> Measured {
        let end = self.now.plus_ns(ns);
        let before = self.delivered.clone();
        self.note_queue();
        (self.integral, self.queue_max, self.dropped) = (0.0, 0, 0);
        while let Some(&Reverse((at, _, event))) = self.events.peek()
            && at <= end
        {
            self.events.pop();
            self.now = at;
            self.handle(event);
        }
        self.now = end;
        self.note_queue();
        let bits = 8.0 * self.link.packet_bytes as f64 / (ns as f64 / S as f64);
        let rate = |(now, before): (&u64, &u64)| (now - before) as f64 * bits;
        Measured {
            rates: self.delivered.iter().zip(&before).map(rate).collect(),
            queue_bytes: self.integral / ns as f64,
            queue_max: self.queue_max,
            dropped: self.dropped,
        }
    }
}

/// The three nodes of paper chopcop, 6.1: 40 Mbit/s, 55 ms one way, 1500 kB, with packets of 1 kB.
fn three_nodes() -> Link {
    Link {
        rate_bps: 40e6,
        buffer_bytes: 1_500_000,
        packet_bytes: 1000,
        marking: Marking::Off,
        loss_permille: 0.0,
        jitter_ns: 0,
    }
}

fn far(_index: u64, _now: Instant) -> Source {
    Source { delay_ns: 55 * MS, is_behind: true }
}

/// Half of the segments, drawn by their number and `SALT`, are near: in front of the bottleneck, or
/// behind it.
fn halves<const SALT: u64, const IS_BEHIND: bool>(index: u64, now: Instant) -> Source {
    match weir_base::mix(index ^ SALT << 40) & 1 {
        0 => far(index, now),
        _ => Source { delay_ns: 2 * MS, is_behind: IS_BEHIND },
    }
}

/// A flow of `text` alone: how it starts in 5 s, and the 20 s after.
fn alone(text: &str, link: Link, source: fn(u64, Instant) -> Source) -> (Measured, Measured) {
    let mut net = Net::new(link);
    net.flow(text, 0, source);
    (net.run(5 * S), net.run(20 * S))
}

fn assert_uses(measured: &Measured, link: &Link, share: f64) {
    assert!(measured.rates[0] >= share * link.rate_bps, "{link:?}: {measured:?}");
}

/// What issue and paper measure: 99 % with a mean queue below a quarter of the 236 kB that CHoPCoP
/// has, however routers mark, and no more than a bandwidth-delay product at the start.
#[test]
fn weir_fills_the_paper_s_bottleneck_with_a_short_queue() {
    for marking in [Marking::Off, Marking::Sparse, Marking::Rem] {
        let link = Link { marking, ..three_nodes() };
        let (start, rest) = alone("weir", link, far);
        assert_uses(&rest, &link, 0.99);
        assert!(rest.queue_bytes < 59_000.0, "{marking:?}: {rest:?}");
        assert!(start.queue_max < 550_000, "{marking:?}: {start:?}");
        assert_eq!(start.dropped + rest.dropped, 0, "{marking:?}");
    }
    // The bench can tell: CUBIC fills the buffer.
    let (_, rest) = alone("cubic", three_nodes(), far);
    assert!(rest.queue_bytes > 1_000_000.0, "{rest:?}");
}

#[test]
fn weir_takes_no_single_losses_and_no_jitter_for_congestion() {
    for (loss_permille, jitter_ns, share) in [(1.0, 0, 0.99), (10.0, 0, 0.97), (0.0, 5 * MS, 0.98)]
    {
        let link = Link { loss_permille, jitter_ns, ..three_nodes() };
        assert_uses(&alone("weir", link, far).1, &link, share);
    }
}

#[test]
fn weir_needs_no_tuning_for_the_path() {
    type Path = (u64, fn(u64, Instant) -> Source);
    let paths: [Path; 3] = [
        (MS, |_, _| Source { delay_ns: MS / 2, is_behind: true }),
        (20 * MS, |_, _| Source { delay_ns: 10 * MS, is_behind: true }),
        (300 * MS, |_, _| Source { delay_ns: 150 * MS, is_behind: true }),
    ];
    for rate_bps in [1e6, 10e6, 100e6, 1e9] {
        for (rtt_ns, source) in paths {
            if rate_bps * rtt_ns as f64 > 100e6 * 300e6 {
                continue; // It takes a minute.
            }
            let filled = (rate_bps / 8.0 * rtt_ns as f64 / 1e9) as u64;
            let buffer_bytes = filled.max(128_000);
            let link = Link { rate_bps, buffer_bytes, packet_bytes: 8000, ..three_nodes() };
            let (_, rest) = alone("weir", link, source);
            assert_uses(&rest, &link, 0.98);
            let queue_max = (0.06 * filled as f64).max(50_000.0);
            assert!(rest.queue_bytes < queue_max, "{link:?}: {rest:?}");
        }
    }
}

/// In front of the bottleneck or behind it: the far half is not starved by the near one's round
/// trips. A short round of near answers alone was once taken for the path: two thirds of the rate
/// in some draws, a megabyte of queue in others.
#[test]
fn weir_is_not_fooled_by_a_store_on_the_way() {
    type Draw = fn(u64, Instant) -> Source;
    let in_front: [Draw; 6] = [
        halves::<0, false>,
        halves::<1, false>,
        halves::<2, false>,
        halves::<3, false>,
        halves::<8, false>,
        halves::<13, false>,
    ];
    let behind: [Draw; 6] = [
        halves::<0, true>,
        halves::<1, true>,
        halves::<4, true>,
        halves::<5, true>,
        halves::<8, true>,
        halves::<13, true>,
    ];
    for (draws, share) in [(in_front, 1.85), (behind, 0.85)] {
        for source in draws {
            let (_, rest) = alone("weir", three_nodes(), source);
            assert_uses(&rest, &three_nodes(), share);
            assert!(rest.queue_bytes < 59_000.0, "{rest:?}");
        }
    }
}

/// From 60 to 160 ms, and from 40 to 20 and to 80 Mbit/s: the path is soon full again and the queue
/// short.
#[test]
fn weir_follows_a_change_of_the_path() {
    let mut net = Net::new(three_nodes());
    net.flow("weir", 0, |_, now| Source {
        delay_ns: if now.as_ns() < 10 * S { 30 * MS } else { 80 * MS },
        is_behind: true,
    });
    net.run(10 * S + 6 * 160 * MS);
    let after = net.run(2 * S);
    assert!(after.rates[0] > 0.8 * 40e6, "{after:?}");
    for rate_bps in [20e6, 80e6] {
        let mut net = Net::new(three_nodes());
        net.flow("weir", 0, far);
        net.run(10 * S);
        net.link.rate_bps = rate_bps;
        net.run(12 * 110 * MS);
        let after = net.run(2 * S);
        assert!(after.rates[0] > 0.95 * rate_bps && after.queue_bytes < 100_000.0, "{after:?}");
    }
}

/// Flow by flow, in megabits a second, a minute after the second one began.
fn shares(one: &str, other: &str, link: Link) -> (f64, f64) {
    let mut net = Net::new(link);
    net.flow(one, 0, far);
    net.flow(other, 5 * S, far);
    net.run(20 * S);
    let rates = net.run(60 * S).rates;
    (rates[0] / 1e6, rates[1] / 1e6)
}

/// Jain's index, bits a second, and the mean queue of as many flows as start 2 s after each other,
/// in the 40 s after the first 40 s.
fn together(text: &str, flows: u64) -> (f64, f64, f64) {
    let mut net = Net::new(three_nodes());
    for at in 0..flows {
        net.flow(text, at * 2 * S, far);
    }
    net.run(40 * S);
    let measured = net.run(40 * S);
    let (jain, sum) = jain(&measured);
    (jain, sum, measured.queue_bytes)
}

/// Jain's index and the sum of the rates.
fn jain(measured: &Measured) -> (f64, f64) {
    let sum: f64 = measured.rates.iter().sum();
    let squares: f64 = measured.rates.iter().map(|rate| rate * rate).sum();
    (sum * sum / squares / measured.rates.len() as f64, sum)
}

#[test]
fn flows_of_weir_share_evenly() {
    for marking in [Marking::Off, Marking::Sparse, Marking::Rem] {
        let (one, other) = shares("weir", "weir", Link { marking, ..three_nodes() });
        let jain = (one + other).powi(2) / (2.0 * (one.powi(2) + other.powi(2)));
        assert!(jain > 0.98 && one + other > 39.0, "{marking:?}: {one} and {other}");
    }
}

/// Flows that came later took the queue of the others for the path, and those the newcomers for
/// rivals: ten of them kept 1.3 MB waiting.
#[test]
fn many_flows_of_weir_keep_the_queue_short() {
    for flows in [3, 10] {
        let (jain, sum, queue_bytes) = together("weir", flows);
        assert!(jain > 0.95 && sum > 39e6, "{flows} flows: {jain}, {sum}");
        assert!(queue_bytes < 100_000.0, "{flows} flows: {queue_bytes}");
    }
}

/// Regression: ten flows with twelve packets each for the path keep a sixth of it waiting, which
/// each took for rivals when its own drain left it there: Jain's index was 0.44 and 0.59.
#[test]
fn flows_of_weir_with_few_packets_are_no_rivals() {
    for stagger_ns in [600 * MS, 2 * S] {
        let link = Link { rate_bps: 10e6, buffer_bytes: 125_000, ..three_nodes() };
        let mut net = Net::new(link);
        for at in 0..10 {
            net.flow("weir", at * stagger_ns, |_, _| Source { delay_ns: 50 * MS, is_behind: true });
        }
        net.run(10 * stagger_ns + 6 * S);
        let measured = net.run(16 * S);
        let (jain, sum) = jain(&measured);
        assert!(jain > 0.93 && sum > 9.9e6, "{stagger_ns} ns: {jain}, {sum}");
        assert!(measured.queue_bytes < 40_000.0, "{}", measured.queue_bytes);
    }
}

/// A tenth of a bandwidth-delay product is enough.
#[test]
fn weir_needs_no_deep_buffer() {
    let link = Link { buffer_bytes: 55_000, ..three_nodes() };
    let (_, rest) = alone("weir", link, far);
    assert_uses(&rest, &link, 0.99);
    assert_eq!(rest.dropped, 0);
}

/// One flow of `weir` in the half second after the first.
fn short(link: Link, source: fn(u64, Instant) -> Source) -> Measured {
    let mut net = Net::new(link);
    net.flow("weir", 0, source);
    net.run(S / 2);
    net.run(S / 2)
}

/// Regression: what is lost takes room in the window until routers take another Interest for it,
/// ten round trips here, which left 84, 87 and 97 %.
#[test]
fn weir_needs_no_long_path() {
    let near = |_, _| Source { delay_ns: MS / 2, is_behind: true };
    for (rate_bps, buffer_bytes, loss_permille) in
        [(1e9, 32_000, 0.0), (10e9, 125_000, 0.0), (10e9, 1_250_000, 10.0)]
    {
        let packet_bytes = 8000;
        let link = Link { rate_bps, buffer_bytes, packet_bytes, loss_permille, ..three_nodes() };
        let rest = short(link, near);
        assert_uses(&rest, &link, 0.98);
    }
}

/// Regression: startup fills the queue in one round trip, and what waited for longer than the
/// timeout was asked for again although answers came all the time, which left 66 %.
#[test]
fn a_queue_that_grows_fast_makes_no_timeouts() {
    let very_far = |_, _| Source { delay_ns: 150 * MS, is_behind: true };
    for loss_permille in [0.0, 1.0] {
        let link = Link { loss_permille, ..three_nodes() };
        for seed in 1..4 {
            let mut net = Net::new(link);
            net.rng = Rng::from_seed(seed);
            net.flow("weir", 0, very_far);
            net.run(5 * S);
            let rest = net.run(5 * S);
            assert_uses(&rest, &link, 0.98);
        }
    }
}

/// Regression: after a drain the pace made up for the time in which the window was full, up to 2 ms
/// at once, and the queue of that was taken for one of too large a window, which left 96 %.
#[test]
fn the_pace_makes_nothing_up_for_a_full_window() {
    let source = |_, _| Source { delay_ns: 15 * MS, is_behind: true };
    let link =
        Link { rate_bps: 10e9, buffer_bytes: 37_500_000, packet_bytes: 8000, ..three_nodes() };
    assert_uses(&short(link, source), &link, 0.99);
}

#[test]
fn weir_and_cubic_leave_each_other_a_share() {
    for (marking, buffer_bytes) in [
        (Marking::Off, 55_000),
        (Marking::Off, 550_000),
        (Marking::Off, 1_500_000),
        (Marking::Sparse, 1_500_000),
    ] {
        let link = Link { marking, buffer_bytes, ..three_nodes() };
        let (weir, cubic) = shares("weir", "cubic", link);
        assert!(weir.min(cubic) > 8.0, "{marking:?} {buffer_bytes}: {weir} and {cubic}");
        let (cubic, weir) = shares("cubic", "weir", link);
        assert!(weir.min(cubic) > 5.0, "{marking:?} {buffer_bytes}: {cubic} and {weir}");
    }
}

/// A flow that gets next to nothing keeps next to nothing waiting, and must not take what is left
/// of the queue for that of its own kind: 0.2 of 10 Mbit/s.
#[test]
fn cubic_does_not_starve_weir_on_a_slow_link() {
    for marking in [Marking::Off, Marking::Sparse] {
        let link = Link { rate_bps: 10e6, buffer_bytes: 125_000, marking, ..three_nodes() };
        let (first, _) = shares("weir", "cubic", link);
        let (_, late) = shares("cubic", "weir", link);
        assert!(first.min(late) > 1.2, "{marking:?}: {first} and {late}");
    }
}
