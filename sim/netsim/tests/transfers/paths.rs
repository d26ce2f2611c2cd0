//! Objects over several paths. `tests/paths.rs` tests bandwidths and path faults.

use weir_base::{Instant, NS_PER_MS, Rng};
use weir_netem::{LinkConfig, Loss};
use weir_plan::Fault;
use weir_transport::{ConsumerConfig, ConsumerError, Controller, PathId, PathSchedule, Target};

use super::object::{FLAT, Object, version};
use super::reliability::{random_config, random_link, random_router};
use super::{CLEAN, Done, Plan, TestNetwork, latest};
use crate::common::{MS, S};

/// The link between the consumer and each path's router, if there are two paths.
const FIRST_HOPS: [usize; 2] = [3, 4];

/// A fetch that uses paths in turn, and the faults during it.
fn fetch_in_turn(
    links: &[LinkConfig],
    config: ConsumerConfig,
    faults: impl IntoIterator<Item = (u64, Fault)>,
) -> Done {
    let object = Object::random(60_000, None);
    let content = object.content.clone();
    let mut site = TestNetwork::new(links);
    site.produce(object.origin());
    let config = ConsumerConfig { schedule: PathSchedule::RoundRobin, ..config };
    let paths: Vec<usize> = (0..links.len()).collect();
    site.consume(Plan::new(latest(), config), &paths);
    faults.into_iter().for_each(|(at_ns, fault)| site.builder.fault(at_ns, fault));
    let done = site.run();
    assert_eq!(done.fetch(0).result(), Ok(()));
    assert!(done.fetch(0).content() == content);
    done
}

fn fixed_window() -> ConsumerConfig {
    ConsumerConfig { controller: Controller::FIXED, window: Some(20), ..ConsumerConfig::default() }
}

#[test]
fn two_equal_paths_share_the_work() {
    let done = fetch_in_turn(&[CLEAN; 2], fixed_window(), []);
    let fetch = done.fetch(0);
    assert_eq!(fetch.stats().retransmissions, 0, "{:?}", fetch.stats());
    let (one, other) = (fetch.sent[&PathId(0)], fetch.sent[&PathId(1)]);
    // Only the first path is used to discover the version.
    assert!(one.abs_diff(other) <= 2, "{one} {other}");
}

#[test]
fn fails_if_no_path_has_a_route() {
    for count in [1, 3] {
        let paths: Vec<usize> = (0..count).collect();
        let mut site = TestNetwork::new(&vec![CLEAN; count]);
        let target = Target::Version { versioned: version() };
        let config =
            ConsumerConfig { schedule: PathSchedule::Parallel, ..ConsumerConfig::default() };
        site.consume(Plan::new(target, config), &paths);
        let done = site.run();
        let result = done.fetch(0).result();
        assert!(matches!(result, Err(ConsumerError::NoRoute(_))), "{result:?}");
        assert_eq!(done.fetch(0).sent.len(), count, "each path was used");
    }
}

#[test]
fn interests_of_a_removed_path_go_to_another() {
    let down = |link| Fault::LinkDown { link, for_ns: 600 * S };
    let done = fetch_in_turn(&[CLEAN; 2], fixed_window(), [(55 * MS, down(FIRST_HOPS[1]))]);
    let stats = done.fetch(0).stats();
    assert!((1..=20).contains(&stats.retransmissions), "{stats:?}");
    assert_eq!((stats.timeouts, stats.decreases), (0, 0));
    // The only path fails before the first answer; the other one is available.
    let done = fetch_in_turn(&[CLEAN; 2], fixed_window(), [(MS, down(FIRST_HOPS[0]))]);
    assert_eq!(done.fetch(0).sent[&PathId(0)], 1);
}

#[test]
fn slow_path_is_not_treated_as_lossy() {
    let slow = LinkConfig { delay_ns: 100 * MS, ..CLEAN };
    let done = fetch_in_turn(&[CLEAN, slow], ConsumerConfig::default(), []);
    let stats = done.fetch(0).stats();
    assert_eq!((stats.losses, stats.timeouts), (0, 0), "{stats:?}");
}

#[test]
fn lossy_path_shrinks_its_own_window_alone() {
    let lossy = LinkConfig { loss: Loss::Independent { probability: 0.1 }, ..CLEAN };
    let done = fetch_in_turn(&[CLEAN, lossy], ConsumerConfig::default(), []);
    let sent = &done.fetch(0).sent;
    let (clean, lossy) = (sent[&PathId(0)], sent[&PathId(1)]);
    assert!(lossy > 20 && clean > 2 * lossy, "{clean} {lossy}");
}

/// Every segment arrives once, for any behaviour of two paths. After each step, counters in flight
/// and windows are compared with the chunks.
#[test]
fn two_random_paths_deliver_every_segment_once() {
    for seed in 0..60 {
        let mut rng = Rng::from_seed(seed);
        let mut link = || {
            let delay_ns = u64::from(1 + rng.below(100)) * NS_PER_MS;
            random_link(&mut rng, delay_ns)
        };
        let links = [link(), link()];
        let damaged = f64::from(rng.below(10)) / 1000.0;
        let mut site = TestNetwork::with_routers(&links, &random_router(&mut rng, damaged == 0.0));
        site.builder.plan.seed = seed;
        for link in 0..links.len() {
            let fault = Fault::WrongBytes { link, for_ns: 600 * S, probability: damaged };
            site.builder.fault(0, fault);
        }
        let object = Object::random(60_000, seed.is_multiple_of(2).then_some(FLAT));
        let content = object.content.clone();
        let mut origin = object.origin();
        origin.refuses = f64::from(rng.below(20)) / 1000.0;
        site.produce(origin);
        let schedule = PathSchedule::RoundRobin;
        let config = ConsumerConfig { schedule, ..random_config(&mut rng, seed) };
        site.consume(Plan { seed, ..Plan::new(latest(), config) }, &[0, 1]);
        if seed % 3 == 0 {
            let link = FIRST_HOPS[rng.below(2) as usize];
            let at_ns = u64::from(rng.below(2000)) * MS;
            site.builder.fault(at_ns, Fault::LinkDown { link, for_ns: 600 * S });
        }
        let done = site.run();
        assert_eq!(done.fetch(0).result(), Ok(()), "seed {seed}");
        assert!(done.fetch(0).content() == content, "seed {seed}");
        assert!(done.fetch(0).took() > Instant::ZERO);
    }
}
