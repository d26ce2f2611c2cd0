//! Effects of one path: loss, reordering, queues, marks, rejections and damage.

use weir_base::{Instant, NS_PER_MS, NS_PER_S, NS_PER_US, Rng};
use weir_link::MarkingPolicy;
use weir_netem::{Jitter, LinkConfig, Loss, Reorder};
use weir_plan::{Fault, RouterPlan};
use weir_security::manifest::ManifestShape;
use weir_transport::{ConsumerConfig, ConsumerError, Controller, MissPolicy, SegmentSet, Target};

use super::object::{FLAT, Object, version};
use super::{CLEAN, Done, Plan, TestNetwork, fetch_over, latest, object};
use crate::common::{MS, S, without_store};

/// Controllers of random cases. The list is fixed, so that a new controller does not change the
/// cases.
const CONTROLLERS: [Controller; 3] = [Controller::CUBIC, Controller::AIMD, Controller::FIXED];
/// Segments of a chunk, in random cases.
const CHUNKS: [u32; 5] = [1, 1, 3, 32, 100];

/// Each delay is either of the order of `scale_ns` or 0.
pub(super) fn random_link(rng: &mut Rng, delay_ns: u64) -> LinkConfig {
    let extra_ns = delay_ns * u64::from(rng.below(4)) / 2;
    let queue_ns_of_packet = u64::from(rng.below(200)) * NS_PER_US;
    LinkConfig {
        delay_ns: delay_ns / 2,
        jitter: Jitter::Uniform { max_ns: extra_ns / 2 },
        reorder: Some(Reorder { probability: 0.3, extra_ns }),
        loss: Loss::Independent { probability: f64::from(rng.below(100)) / 1000.0 },
        // Packets of about 250 bytes.
        rate_bps: (2000 * NS_PER_S).checked_div(queue_ns_of_packet),
        queue_packets_max: 1 + rng.below(500),
        ..CLEAN
    }
}

pub(super) fn random_config(rng: &mut Rng, seed: u64) -> ConsumerConfig {
    ConsumerConfig {
        controller: CONTROLLERS[seed as usize % CONTROLLERS.len()],
        window_max: 1 + rng.below(1000),
        reader_segments_max: 1 + rng.below(1000),
        retries_max: 100,
        chunk_segments: CHUNKS[seed as usize % CHUNKS.len()],
        ..ConsumerConfig::default()
    }
}

/// Routers that mark at short queues, with or without a store.
pub(super) fn random_router(rng: &mut Rng, may_store: bool) -> RouterPlan {
    let marking = ["nfd", "codel target=100us interval=1ms"][rng.below(2) as usize];
    let marking = MarkingPolicy::read(marking, &[]).expect("a policy of core/link");
    let plan = if may_store && rng.below(2) == 0 { RouterPlan::default() } else { without_store() };
    RouterPlan { marking, ..plan }
}

fn random_case(seed: u64) -> (Done, Vec<u8>) {
    let mut rng = Rng::from_seed(seed);
    let segment_size = 1 + rng.below(200) as usize;
    let mut content = vec![0; rng.below(60_000) as usize];
    rng.fill(&mut content);
    let levels = 1 + (seed / 2 % 2) as u8;
    let manifest = (rng.below(2) == 0).then_some(ManifestShape { levels, ..FLAT });
    let mut source = Object::new(content.clone(), segment_size, manifest);
    source.unanswered = [MissPolicy::Ignore, MissPolicy::Nack][rng.below(2) as usize];
    let mut origin = source.origin();
    origin.refuses = f64::from(rng.below(20)) / 1000.0;
    let delay_ns =
        u64::from(1 + rng.below(100)) * if rng.below(2) == 0 { NS_PER_US } else { NS_PER_MS };
    let link = random_link(&mut rng, delay_ns);
    let damaged = f64::from(rng.below(10)) / 1000.0;
    // A store would keep damaged packets.
    let mut site = TestNetwork::with_routers(&[link], &random_router(&mut rng, damaged == 0.0));
    site.builder.plan.seed = seed;
    site.builder.plan.duration_ns = 3600 * S;
    let for_ns = site.builder.plan.duration_ns;
    site.builder.fault(0, Fault::WrongBytes { link: 0, for_ns, probability: damaged });
    let target = match rng.below(3) {
        0 => Target::Version { versioned: version() },
        1 => Target::Prefix { name: object() },
        _ => latest(),
    };
    let plan = Plan::new(target, random_config(&mut rng, seed));
    let verify_ns = u64::from(rng.below(3)) * NS_PER_MS;
    site.produce(origin);
    site.consume(Plan { verify_ns, seed, ..plan }, &[0]);
    (site.run(), content)
}

#[test]
fn every_object_arrives_identical_over_any_path() {
    for seed in 0..200 {
        let (done, content) = random_case(seed);
        assert_eq!(done.fetch(0).result(), Ok(()), "seed {seed}");
        assert!(done.fetch(0).content() == content, "seed {seed}");
    }
}

#[test]
fn same_seed_gives_same_result() {
    for seed in [3, 77, 140] {
        let (one, other) = (random_case(seed).0, random_case(seed).0);
        assert_eq!(one.fetch(0).took(), other.fetch(0).took(), "seed {seed}");
        let stats = |done: &Done| format!("{:?}", done.fetch(0).stats());
        assert_eq!(stats(&one), stats(&other), "seed {seed}");
    }
}

fn fetch(size: usize, link: LinkConfig, config: ConsumerConfig) -> Done {
    let object = Object::random(size, Some(FLAT));
    let content = object.content.clone();
    let done = fetch_over(&[link], object, Plan::new(latest(), config));
    assert_eq!(done.fetch(0).result(), Ok(()));
    assert!(done.fetch(0).content() == content);
    done
}

#[test]
fn clean_path_needs_one_interest_per_packet() {
    let done = fetch(100_000, CLEAN, ConsumerConfig::default());
    let (stats, took) = (done.fetch(0).stats(), done.fetch(0).took());
    // 1000 segments, 50 manifest packets, and the metadata.
    assert_eq!(stats.interests, 1051);
    assert_eq!(stats.retransmissions, 0);
    assert_eq!(stats.rtt_min_ns, Some(10 * NS_PER_MS));
    // Slow start from 10: discovery and seven round trips.
    assert!(took <= Instant::from_ns(90 * NS_PER_MS), "{took:?}");
}

#[test]
fn single_losses_do_not_wait_for_the_timeout() {
    let link = LinkConfig { loss: Loss::Independent { probability: 0.005 }, ..CLEAN };
    let config = ConsumerConfig {
        controller: Controller::FIXED,
        window: Some(50),
        ..ConsumerConfig::default()
    };
    let done = fetch(300_000, link, config);
    let (stats, took) = (done.fetch(0).stats(), done.fetch(0).took());
    assert!(stats.losses >= 10, "{stats:?}");
    assert!(stats.timeouts <= 2, "{stats:?}");
    // Little more than 63 windows of 10 ms; each timeout would add 200 ms.
    assert!(took < Instant::from_ns(1500 * NS_PER_MS), "{took:?}");
}

#[test]
fn reordering_is_learned() {
    let reorder = Some(Reorder { probability: 0.5, extra_ns: 30 * MS });
    let done = fetch(300_000, LinkConfig { reorder, ..CLEAN }, ConsumerConfig::default());
    let stats = done.fetch(0).stats();
    assert!(stats.retransmissions < 150, "{stats:?}");
}

#[test]
fn bottleneck_is_filled_without_many_losses() {
    for controller in [Controller::CUBIC, Controller::AIMD] {
        // 10 segments per millisecond, a queue of 100, a minimum round trip of 10 ms: the path
        // holds 200.
        let link =
            LinkConfig { rate_bps: Some(PACKET_BITS * 10_000), queue_packets_max: 100, ..CLEAN };
        let done =
            fetch(2_000_000, link, ConsumerConfig { controller, ..ConsumerConfig::default() });
        let (stats, took) = (done.fetch(0).stats(), done.fetch(0).took());
        // 20,000 segments and 1000 manifest packets take at least 2.1 s.
        assert!(took < Instant::from_ns(2700 * NS_PER_MS), "{controller}: {took:?}");
        assert!(stats.retransmissions < 800, "{controller}: {stats:?}");
    }
}

/// Bits of a 100-byte segment on a link.
pub(super) const PACKET_BITS: u64 = 8 * 215;

#[test]
fn missing_producer_is_reported_in_time() {
    let plan = || Plan::new(latest(), ConsumerConfig::default());
    let mut site = TestNetwork::new(&[CLEAN]);
    site.produce(Object::random(100, None).origin());
    let target = Target::Latest { object: "/test/other".parse().unwrap(), allow_stored: true };
    site.consume(Plan { target, ..plan() }, &[0]);
    let done = site.run();
    let other = "/test/other".parse().unwrap();
    assert_eq!(done.fetch(0).result(), Err(ConsumerError::Unanswered(other)));
    let took = done.fetch(0).took();
    assert!(took <= Instant::from_ns(14 * NS_PER_S), "{took:?}");

    // Without a route, the fetch fails at once.
    let mut site = TestNetwork::new(&[CLEAN]);
    site.consume(plan(), &[0]);
    let done = site.run();
    assert_eq!(done.fetch(0).result(), Err(ConsumerError::NoRoute(object())));
    let took = done.fetch(0).took();
    assert!(took <= Instant::from_ns(100 * NS_PER_MS), "{took:?}");

    // A producer that rejects everything, for different reasons.
    for seed in 0..20 {
        let mut origin = Object::random(100, None).origin();
        (origin.refuses, origin.rng) = (1.0, Rng::from_seed(seed));
        let mut site = TestNetwork::new(&[CLEAN]);
        site.produce(origin);
        let target = Target::Version { versioned: version() };
        site.consume(Plan { target, seed, ..plan() }, &[0]);
        let done = site.run();
        assert!(done.fetch(0).result().is_err());
        let took = done.fetch(0).took();
        assert!(took <= Instant::from_ns(14 * NS_PER_S), "{took:?}");
    }
}

#[test]
fn present_segments_are_not_refetched() {
    let mut have = SegmentSet::new();
    for segment in (0..40).chain(60..80) {
        have.insert(segment);
    }
    for (target, extra) in [(latest(), 1), (Target::Version { versioned: version() }, 2)] {
        let object = Object::random(10_000, Some(FLAT));
        let plan = Plan { have: have.clone(), ..Plan::new(target, ConsumerConfig::default()) };
        let done = fetch_over(&[CLEAN], object, plan);
        assert_eq!(done.fetch(0).result(), Ok(()));
        assert_eq!(done.fetch(0).content().len(), 4000);
        // 40 segments and the two manifest packets that list them; a version alone costs one probe
        // each of segment 0 and manifest packet 0.
        assert_eq!(done.fetch(0).stats().interests, 42 + extra);
    }
}

/// One consumer fetched the object before. When the producer no longer responds, the next consumer
/// gets all of it from the router's store, stale metadata included.
#[test]
fn store_answers_when_the_producer_does_not() {
    let object = Object::random(10_000, Some(FLAT));
    let content = object.content.clone();
    let mut site = TestNetwork::with_routers(&[CLEAN], &RouterPlan::default());
    site.produce(object.origin());
    let plan = Plan::new(latest(), ConsumerConfig::default());
    site.consume(plan.clone(), &[0]);
    site.consume(Plan { starts: Instant::from_ns(20 * NS_PER_S), ..plan }, &[0]);
    site.builder.fault(15 * S, Fault::LinkDown { link: 0, for_ns: 100 * S });
    let done = site.run();
    let (first, second) = (done.fetch(0), done.fetch(1));
    assert_eq!((first.result(), first.is_stored), (Ok(()), false));
    assert_eq!((second.result(), second.is_stored), (Ok(()), true));
    assert!(second.content() == content);
    // It requests fresh metadata first, for three seconds.
    let took = Instant::from_ns(3 * NS_PER_S)..Instant::from_ns(4 * NS_PER_S);
    assert!(took.contains(&second.took()), "{:?}", second.took());
}
