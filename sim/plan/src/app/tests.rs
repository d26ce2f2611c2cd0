//! Consumers and producers over a channel in memory with loss, delay, reordering and damage.

mod live;

use std::collections::{BTreeMap, HashMap, HashSet};

use weir_base::{Instant, NS_PER_MS, NS_PER_S, Packet, Rng};
use weir_wire::{DataView, LpHeader, NackReason};

use super::*;
use crate::workload::{
    Arrivals, Collection, ConsumerPlan, Demand, Names, Popularity, ProducerPlan, Sizes,
};

const MS: u64 = NS_PER_MS;

pub(super) fn names(sizes: Sizes, segment_bytes: u32) -> Names {
    Names {
        prefix: "/lab/p7".into(),
        components: 0,
        popularity: Popularity::Sequential { objects: u64::MAX },
        sizes,
        segment_bytes,
        live: None,
    }
}

/// Objects of 0 to 30 segments of 500 bytes.
fn varied() -> Names {
    names(Sizes::List { bytes: [7_000, 1, 500, 15_000, 0, 2_501].into() }, 500)
}

fn consumer(names: Names, demand: Demand) -> ConsumerPlan {
    ConsumerPlan { lifetime_ms: 400, ..ConsumerPlan::new(names, demand) }
}

fn objects(count: u64, controller: &str) -> Demand {
    let controller = controller.into();
    Demand::Objects { arrivals: None, count: Some(count), controller, window: None }
}

/// Packets per million that each fault affects.
#[derive(Clone, Copy, Default)]
struct Channel {
    lost: u32,
    damaged: u32,
    nacked: u32,
    delay_ns: u64,
    /// Additional delay of up to this, so that packets overtake each other.
    jitter_ns: u64,
}

impl Channel {
    const BAD: Self =
        Self { lost: 50_000, damaged: 0, nacked: 0, delay_ns: 2 * MS, jitter_ns: 5 * MS };
}

/// A consumer, a producer, and the channel between them.
struct Run {
    apps: [App; 2],
    channel: Channel,
    rng: Rng,
    /// Packets in flight by arrival time, each with its destination. The number keeps the order.
    under_way: BTreeMap<(u64, u64), (usize, AppInput)>,
    sent: u64,
    events: Vec<(u64, EventKind)>,
    violations: Vec<String>,
    /// Flipped content bytes.
    damaged: u64,
}

impl Run {
    fn new(plan: &ConsumerPlan, duration_ns: u64, channel: Channel, seed: u64) -> Self {
        let producer =
            ProducerPlan { names: plan.names.clone(), freshness_ms: 10_000, delay_ns: MS / 2 };
        let role = [Role::Consumer(plan.clone()), Role::Producer(producer)];
        Self {
            apps: role.map(|role| {
                App::new(&role, Controllers::BUILT_IN, duration_ns, seed).unwrap().unwrap()
            }),
            channel,
            rng: Rng::from_seed(seed),
            under_way: BTreeMap::new(),
            sent: 0,
            events: Vec::new(),
            violations: Vec::new(),
            damaged: 0,
        }
    }

    fn consumer(&self) -> &Consumer {
        let App::Consumer(consumer) = &self.apps[0] else { unreachable!() };
        consumer
    }

    /// Runs until nothing is left to do.
    fn run(mut self) -> Self {
        let mut now_ns = 0;
        loop {
            self.step(0, now_ns, Vec::new());
            self.step(1, now_ns, Vec::new());
            while let Some(entry) = self.under_way.first_entry() {
                if entry.key().0 > now_ns {
                    break;
                }
                let (at, input) = entry.remove();
                self.step(at, now_ns, vec![input]);
            }
            let arrival = self.under_way.first_key_value().map(|((at_ns, _), _)| *at_ns);
            let wakeups = self.apps.iter().filter_map(|app| app.next_wakeup()).map(Instant::as_ns);
            let Some(next_ns) = wakeups.chain(arrival).min() else { break };
            assert!(next_ns > now_ns, "it requests immediate wake-ups forever");
            now_ns = next_ns;
        }
        assert!(self.apps.iter().all(App::is_done));
        self
    }

    fn step(&mut self, at: usize, now_ns: u64, mut inputs: Vec<AppInput>) {
        let mut out = AppOutbox::default();
        self.apps[at].handle(Instant::from_ns(now_ns), &mut inputs, &mut out);
        assert!(inputs.is_empty());
        self.events.extend(out.events.into_iter().map(|event| (now_ns, event)));
        self.violations.extend(out.violation);
        for (_, header, packet) in out.packets {
            self.carry(at, now_ns, header, packet);
        }
    }

    fn carry(&mut self, from: usize, now_ns: u64, mut header: LpHeader, packet: Packet) {
        let Channel { lost, damaged, nacked, delay_ns, jitter_ns } = self.channel;
        let mut is_hit = |parts| self.rng.below(1_000_000) < parts;
        let (is_lost, is_damaged, is_nacked) = (is_hit(lost), is_hit(damaged), is_hit(nacked));
        let mut to = 1 - from;
        if is_lost {
            return;
        }
        let mut octets = packet.to_vec();
        if from == 0 && is_nacked {
            header.nack = Some(NackReason::Congestion);
            to = 0;
        }
        if from == 1 && is_damaged {
            let content = DataView::decode(&packet).unwrap().content;
            if !content.is_empty() {
                let start = content.as_ptr() as usize - packet.as_ptr() as usize;
                octets[start + self.rng.below(content.len() as u32) as usize] ^= 0x40;
                self.damaged += 1;
            }
        }
        let jitter_ns = u64::from(self.rng.below(jitter_ns as u32 + 1));
        self.sent += 1;
        let input = AppInput { path: PathId(0), header, packet: octets.into() };
        self.under_way.insert((now_ns + delay_ns + jitter_ns, self.sent), (to, input));
    }

    fn count(&self, is_such: impl Fn(&EventKind) -> bool) -> u64 {
        self.events.iter().filter(|(_, event)| is_such(event)).count() as u64
    }

    fn sent(&self) -> u64 {
        self.count(|event| matches!(event, EventKind::InterestSent { .. }))
    }

    fn received(&self) -> u64 {
        self.count(|event| matches!(event, EventKind::DataReceived { .. }))
    }

    fn timed_out(&self) -> u64 {
        self.count(|event| matches!(event, EventKind::TimedOut { .. }))
    }

    fn nacked(&self) -> u64 {
        self.count(|event| matches!(event, EventKind::NackReceived { .. }))
    }

    fn completed(&self) -> u64 {
        self.count(|event| matches!(event, EventKind::ObjectCompleted { .. }))
    }

    /// Each completed object received each segment once, with all its bytes.
    fn check_objects(&self) {
        let collection = Collection::new(&varied()).unwrap();
        let mut segments: HashMap<u64, HashMap<u64, u64>> = HashMap::new();
        let mut started = HashMap::new();
        for (at_ns, event) in &self.events {
            match *event {
                EventKind::ObjectStarted { object } => {
                    started.insert(object, *at_ns);
                }
                EventKind::DataReceived { object, segment, content_bytes, .. } => {
                    let all = segments.entry(object).or_default();
                    assert_eq!(all.insert(segment, content_bytes.into()), None);
                }
                EventKind::ObjectCompleted { object, content_bytes, elapsed_ns } => {
                    let shape = collection.shape(object);
                    assert_eq!(segments[&object].len() as u64, shape.segments);
                    assert_eq!(segments[&object].values().sum::<u64>(), shape.bytes);
                    assert_eq!(content_bytes, shape.bytes);
                    assert_eq!(elapsed_ns, at_ns - started[&object]);
                }
                _ => {}
            }
        }
    }
}

#[test]
fn objects_complete_over_a_lossy_channel() {
    for seed in 0..40 {
        for controller in ["cubic", "aimd", "fixed"] {
            let plan = consumer(varied(), objects(12, controller));
            let run = Run::new(&plan, 600 * NS_PER_S, Channel::BAD, seed).run();
            assert_eq!(run.completed(), 12, "seed {seed}");
            assert!(run.violations.is_empty() && run.consumer().stats().malformed == 0);
            run.check_objects();
        }
    }
}

#[test]
fn fetches_several_objects_at_once() {
    for seed in 0..20 {
        let demand = Demand::Objects {
            arrivals: Some(Arrivals::Poisson { rate_hz: 200.0 }),
            count: Some(50),
            controller: "cubic".into(),
            window: Some(4),
        };
        let run = Run::new(&consumer(varied(), demand), 600 * NS_PER_S, Channel::BAD, seed).run();
        assert_eq!(run.completed(), 50, "seed {seed}");
        let (mut now, mut most) = (0_i32, 0);
        for (_, event) in &run.events {
            match event {
                EventKind::ObjectStarted { .. } => now += 1,
                EventKind::ObjectCompleted { .. } => now -= 1,
                _ => {}
            }
            most = most.max(now);
        }
        assert!(most > 1, "{most}");
        run.check_objects();
    }
}

#[test]
fn concurrent_repeat_of_object_completes_twice() {
    let names = Names { popularity: Popularity::Uniform { objects: 2 }, ..varied() };
    let demand = Demand::Objects {
        arrivals: Some(Arrivals::Constant { rate_hz: 500.0 }),
        count: Some(30),
        controller: "fixed".into(),
        window: Some(3),
    };
    for seed in 0..20 {
        let plan = consumer(names.clone(), demand.clone());
        let run = Run::new(&plan, 600 * NS_PER_S, Channel::BAD, seed).run();
        assert_eq!(run.completed(), 30, "seed {seed}");
        assert_eq!(run.consumer().outstanding(), 0);
    }
}

#[test]
fn a_window_fetches_all_segments_in_order() {
    for seed in 0..40 {
        let demand = Demand::Window { window: 6, count: Some(150) };
        let plan = consumer(varied(), demand);
        let run = Run::new(&plan, 600 * NS_PER_S, Channel::BAD, seed).run();
        assert_eq!(run.received(), 150);
        assert_eq!(run.consumer().stats().objects_failed, 0);
        run.check_objects();
        assert!(run.completed() >= 10, "{}", run.completed());
        // First transmissions go through each object and then to the next.
        let first = run.events.iter().filter_map(|(_, event)| match *event {
            EventKind::InterestSent { object, segment, is_repeated: false } => {
                Some((object, segment))
            }
            _ => None,
        });
        let first: Vec<_> = first.collect();
        let mut sorted = first.clone();
        sorted.sort_unstable();
        assert_eq!(first, sorted);
        // Interests in flight never exceed the window, for any order of simultaneous events.
        let (mut in_flight, mut last_ns) = (HashSet::new(), 0);
        for &(at_ns, ref event) in &run.events {
            assert!(in_flight.len() <= 6 || at_ns == last_ns);
            last_ns = at_ns;
            match *event {
                EventKind::InterestSent { object, segment, .. } => {
                    in_flight.insert((object, segment));
                }
                EventKind::DataReceived { object, segment, .. }
                | EventKind::TimedOut { object, segment } => {
                    in_flight.remove(&(object, segment));
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_window_survives_nacks_and_popular_objects() {
    let popularity = Popularity::Zipf { objects: 5, exponent: 1.0 };
    let names = Names { popularity, ..varied() };
    let channel = Channel { nacked: 100_000, ..Channel::BAD };
    for seed in 0..20 {
        let demand = Demand::Window { window: 8, count: Some(200) };
        let plan = consumer(names.clone(), demand);
        let run = Run::new(&plan, 600 * NS_PER_S, channel, seed).run();
        assert!(run.received() >= 200 && run.nacked() > 5 && run.violations.is_empty());
        assert_eq!(run.consumer().stats().objects_failed, 0);
    }
}

#[test]
fn open_loop_keeps_times_and_ends_each_interest() {
    for seed in 0..20 {
        let popularity = Popularity::Zipf { objects: 1_000, exponent: 0.7 };
        let names = Names { popularity, ..varied() };
        let demand = Demand::Arrivals { arrivals: Arrivals::Constant { rate_hz: 1000.0 } };
        let plan = ConsumerPlan { start_ns: 5 * MS, ..consumer(names, demand) };
        let channel = Channel { nacked: 20_000, lost: 300_000, ..Channel::BAD };
        let run = Run::new(&plan, NS_PER_S, channel, seed).run();
        let moments = run.events.iter().filter_map(|(at_ns, event)| {
            matches!(event, EventKind::InterestSent { .. }).then_some(*at_ns)
        });
        assert!(moments.eq((5..1000).map(|ms| ms * MS)));
        assert_eq!(run.sent(), run.received() + run.timed_out() + run.nacked());
        assert!(run.timed_out() > 100 && run.nacked() > 2);
        // A lifetime has the planned length, and no Interest is left at its end.
        let mut moments: HashMap<(u64, u64), Vec<u64>> = HashMap::new();
        for (at_ns, event) in &run.events {
            match *event {
                EventKind::InterestSent { object, segment, .. } => {
                    moments.entry((object, segment)).or_default().push(*at_ns);
                }
                EventKind::TimedOut { object, segment } => {
                    assert!(moments[&(object, segment)].contains(&(at_ns - 400 * MS)));
                }
                _ => {}
            }
        }
        let last_ns = run.events.last().unwrap().0;
        assert!(last_ns <= NS_PER_S - MS + 400 * MS);
        assert_eq!(run.consumer().outstanding(), 0);
    }
}

#[test]
fn trace_is_requested_in_order() {
    let requests = [(2, 1), (0, 0), (2, 0), (1, 4), (2, 1)];
    let mut names = names(Sizes::Fixed { bytes: 2_500 }, 500);
    names.popularity = Popularity::Trace { requests: requests.into() };
    let window = Demand::Window { window: 2, count: Some(12) };
    let arrivals = Demand::Arrivals { arrivals: Arrivals::Poisson { rate_hz: 600.0 } };
    let controlled =
        Demand::Controlled { controller: "aimd".into(), window: None, count: Some(40) };
    for demand in [window, arrivals, controlled] {
        let run = Run::new(&consumer(names.clone(), demand), NS_PER_S, Channel::default(), 1).run();
        let asked = run.events.iter().filter_map(|(_, event)| match *event {
            EventKind::InterestSent { object, segment, .. } => Some((object, segment)),
            _ => None,
        });
        assert!(asked.eq(requests.into_iter().cycle().take(run.sent() as usize)));
        assert!(run.sent() >= 12 && run.received() == run.sent());
        assert_eq!(run.count(|event| matches!(event, EventKind::ObjectStarted { .. })), 0);
    }
    let short = Names { sizes: Sizes::Fixed { bytes: 2_000 }, ..names };
    let demand = Demand::Window { window: 2, count: None };
    let error =
        Consumer::new(&consumer(short, demand), Controllers::BUILT_IN, NS_PER_S, 1).unwrap_err();
    assert!(error.to_string().contains("segment 4 of object 1"), "{error}");
}

#[test]
fn wrong_bytes_are_detected_and_requested_again() {
    let channel = Channel { damaged: 200_000, ..Channel::BAD };
    for seed in 0..20 {
        let plan = consumer(varied(), objects(12, "cubic"));
        let run = Run::new(&plan, 600 * NS_PER_S, channel, seed).run();
        assert_eq!(run.completed(), 12, "seed {seed}");
        run.check_objects();
        assert!(run.damaged > 5 && !run.violations.is_empty());
        let stats = run.consumer().stats();
        let told = run.count(|event| matches!(event, EventKind::DamagedData { .. }));
        // A duplicate is not checked.
        assert!(stats.damaged == told && told <= run.damaged && 2 * told > run.damaged);

        let plan = consumer(varied(), Demand::Window { window: 6, count: Some(100) });
        let run = Run::new(&plan, 600 * NS_PER_S, channel, seed).run();
        assert_eq!(run.received(), 100);
        assert!(run.consumer().stats().damaged > 5);
        run.check_objects();
        assert!(run.violations.iter().all(|text| text.starts_with("/lab/p7/0000")));
    }
}

#[test]
fn verification_takes_configured_time() {
    for demand in [Demand::Window { window: 6, count: Some(100) }, objects(12, "cubic")] {
        let plan = consumer(varied(), demand);
        let plan = ConsumerPlan { verify_ns: 5 * MS, ..plan };
        let run = Run::new(&plan, 600 * NS_PER_S, Channel::BAD, 1).run();
        assert!(run.received() > 50);
        let received = run.events.iter().filter_map(|(at_ns, event)| {
            matches!(event, EventKind::DataReceived { .. }).then_some(*at_ns)
        });
        let received: Vec<_> = received.collect();
        assert!(received.windows(2).all(|pair| pair[1] >= pair[0] + 5 * MS));
        run.check_objects();
    }
}

#[test]
fn same_seed_gives_same_result() {
    let arrivals = Arrivals::OnOff { rate_hz: 900.0, on_ns: 20 * MS, off_ns: 20 * MS };
    let many = Demand::Objects {
        arrivals: Some(Arrivals::Poisson { rate_hz: 60.0 }),
        count: None,
        controller: "aimd".into(),
        window: None,
    };
    for demand in [Demand::Arrivals { arrivals }, Demand::Window { window: 5, count: None }, many] {
        let names = Names { popularity: Popularity::Uniform { objects: 50 }, ..varied() };
        let plan = consumer(names, demand);
        let run = |seed| Run::new(&plan, NS_PER_S, Channel::BAD, seed).run().events;
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }
}

#[test]
fn nothing_is_sent_after_the_end() {
    let many = Demand::Objects {
        arrivals: Some(Arrivals::Poisson { rate_hz: 500.0 }),
        count: None,
        controller: "cubic".into(),
        window: None,
    };
    for demand in [
        Demand::Arrivals { arrivals: Arrivals::Poisson { rate_hz: 5_000.0 } },
        Demand::Window { window: 50, count: None },
        objects(u64::MAX, "fixed"),
        many,
    ] {
        for stop_ns in [None, Some(200 * MS)] {
            let plan = ConsumerPlan { stop_ns, ..consumer(varied(), demand.clone()) };
            let channel = Channel { nacked: 20_000, lost: 0, ..Channel::BAD };
            let run = Run::new(&plan, 300 * MS, channel, 1).run();
            let last = run.events.iter().rev().find_map(|(at_ns, event)| {
                matches!(event, EventKind::InterestSent { .. }).then_some(*at_ns)
            });
            let last_ns = last.unwrap();
            assert!(last_ns < 300 * MS && last_ns > 150 * MS, "{last_ns}");
            assert!(run.events.last().unwrap().0 <= last_ns + 400 * MS);
            let begun = run.events.iter().rev().find_map(|(at_ns, event)| {
                matches!(event, EventKind::ObjectStarted { .. }).then_some(*at_ns)
            });
            assert!(begun.is_none_or(|at_ns| at_ns < stop_ns.unwrap_or(300 * MS)));
        }
    }
}

#[test]
fn unresponsive_producer_fails_objects() {
    let channel = Channel { lost: 1_000_000, ..Channel::default() };
    for demand in [Demand::Window { window: 3, count: None }, objects(u64::MAX, "cubic")] {
        let plan = consumer(varied(), demand);
        let run = Run::new(&plan, 400 * NS_PER_S, channel, 1).run();
        let stats = run.consumer().stats();
        assert!(stats.objects_failed > 1 && stats.answered == 0, "{stats:?}");
        assert!(stats.interests < 5_000, "{stats:?}");
    }
}

#[test]
fn refused_requests_back_off() {
    let channel = Channel { nacked: 1_000_000, delay_ns: MS, ..Channel::default() };
    for demand in [Demand::Window { window: 1, count: None }, objects(u64::MAX, "fixed")] {
        let run = Run::new(&consumer(varied(), demand), NS_PER_S, channel, 1).run();
        // 100, 200, 400 ms: at most four transmissions fit into a second.
        let mut sendings: HashMap<(u64, u64), u64> = HashMap::new();
        for (_, event) in &run.events {
            if let EventKind::InterestSent { object, segment, .. } = *event {
                *sendings.entry((object, segment)).or_default() += 1;
            }
        }
        assert_eq!(sendings.values().max(), Some(&4));
        // Nacks of the last moment arrive after the end.
        assert!(run.sent() - run.nacked() <= 14);
    }
}

#[test]
fn an_idle_plan_is_done_at_once() {
    for demand in [
        Demand::Window { window: 3, count: Some(0) },
        objects(0, "cubic"),
        Demand::Window { window: 3, count: None },
        Demand::Arrivals { arrivals: Arrivals::Constant { rate_hz: 1.0 } },
    ] {
        let plan = ConsumerPlan { start_ns: NS_PER_S, ..consumer(varied(), demand) };
        let run = Run::new(&plan, NS_PER_S, Channel::default(), 1).run();
        assert!(run.events.is_empty() && run.sent == 0);
    }
}

#[test]
fn producer_ignores_foreign_packets() {
    let plan = ProducerPlan { names: varied(), freshness_ms: 1, delay_ns: 0 };
    let mut producer = Producer::new(&plan, 1).unwrap();
    let wire = |uri: &str| weir_wire::Interest::new(uri.parse().unwrap()).encode();
    let ask = |octets: Vec<u8>| AppInput {
        path: PathId(0),
        header: LpHeader::default(),
        packet: octets.into(),
    };
    let mut full = varied_name(3, 2);
    let right = producer.segment(3, 2);
    full.append_implicit_digest(DataView::decode(&right).unwrap().implicit_digest());
    let mut wrong = varied_name(3, 2);
    wrong.append_implicit_digest([1; 32]);
    let mut inputs = vec![
        ask(wire("/lab/p7/00000000/seg=13")),
        ask(wire("/lab/p7/00000000/seg=14")),
        ask(wire("/lab/p7/00000000")),
        ask(wire("/else/00000000/seg=0")),
        ask(vec![5, 9, 1]),
        ask(right.to_vec()),
        ask(weir_wire::Interest::new(full).encode()),
        ask(weir_wire::Interest::new(wrong).encode()),
    ];
    let token = weir_wire::PitToken::new(&[1, 2, 3]).unwrap();
    inputs[0].header.pit_token = token;
    let mut out = AppOutbox::default();
    producer.handle(Instant::ZERO, &mut inputs, &mut out);
    let found =
        out.packets.iter().map(|(_, _, data)| DataView::decode(data).unwrap().name.to_name());
    let found: Vec<_> = found.collect();
    assert_eq!(found, [varied_name(0, 13), varied_name(3, 2)]);
    assert_eq!(out.packets[0].1.pit_token, token);
    assert_eq!(out.packets[1].2, right);
    let stats = producer.stats();
    assert_eq!((stats.interests, stats.data, stats.unknown, stats.malformed), (6, 2, 4, 2));
}

fn varied_name(object: u64, segment: u64) -> weir_wire::Name {
    Collection::new(&varied()).unwrap().naming().segment_name(object, segment)
}

#[test]
fn invalid_plans_are_rejected() {
    let good = consumer(varied(), objects(1, "cubic"));
    assert!(Consumer::new(&good, Controllers::BUILT_IN, NS_PER_S, 1).is_ok());
    let with = |demand| ConsumerPlan { demand, ..good.clone() };
    let arrivals = Some(Arrivals::Constant { rate_hz: 0.0 });
    for plan in [
        ConsumerPlan { lifetime_ms: 0, ..good.clone() },
        ConsumerPlan { names: Names { segment_bytes: 0, ..varied() }, ..good.clone() },
        ConsumerPlan { names: Names { prefix: "/0=x".into(), ..varied() }, ..good.clone() },
        with(objects(1, "bbr")),
        with(Demand::Window { window: 0, count: None }),
        with(Demand::Arrivals { arrivals: Arrivals::Constant { rate_hz: 1e9 } }),
        with(Demand::Objects { arrivals, count: None, controller: "cubic".into(), window: None }),
    ] {
        assert!(Consumer::new(&plan, Controllers::BUILT_IN, NS_PER_S, 1).is_err(), "{plan:?}");
    }
}
