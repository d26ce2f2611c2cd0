//! Transfers over several paths.

use super::*;
use crate::PathSchedule;
use crate::consumer::path::Path;
use crate::consumer::schedule::{Next, Schedule};

struct InTurn(usize);

impl Schedule for InTurn {
    fn choose(&mut self, paths: &[Path], _next: Next, now: Instant) -> Option<usize> {
        let turns = (0..paths.len()).map(|step| (self.0 + step) % paths.len());
        let chosen = turns.into_iter().find(|&at| paths[at].may_send(now))?;
        self.0 = chosen + 1;
        Some(chosen)
    }
}

/// Fetches over several paths in turn; the path of each number in `removed` goes at that time.
fn over_paths(
    channels: Vec<Channel>,
    removed: &[(PathId, u64)],
    config: ConsumerConfig,
    seed: u64,
) -> Outcome {
    let content = random_octets(&mut Rng::from_seed(seed), 60_000);
    let mut producer = Producer::new(content.clone(), 100, seed.is_multiple_of(2).then_some(FLAT));
    let schedule = Box::new(InTurn(0));
    let consumer = Consumer::with_schedule(latest(), config, seed, Instant::ZERO, schedule);
    let mut simulation = Simulation::with_paths(Some(&mut producer), channels, consumer, seed);
    for &(path, at_ns) in removed {
        simulation.arrive(Instant::from_ns(at_ns), Arrival::Removed(path));
    }
    let outcome = simulation.run(&SegmentSet::new());
    assert_eq!(outcome.result, Ok(()), "seed {seed}");
    assert!(outcome.content == content, "seed {seed}");
    outcome
}

#[test]
fn two_paths_share_the_work() {
    let outcome = over_paths(vec![CLEAN, CLEAN], &[], ConsumerConfig::default(), 1);
    assert_eq!(outcome.stats.retransmissions, 0, "{:?}", outcome.stats);
    let (one, other) = (outcome.sent[&PathId(0)], outcome.sent[&PathId(1)]);
    assert!(one.abs_diff(other) <= 2, "{one} {other}");
}

/// Content of 100 octets in each segment.
const SEGMENTS: usize = 30_000;
/// 40 and 80 Mbit/s of packets of 1000 octets, with queues of 20 ms.
pub(super) const SLOW: Channel = Channel { data_ns: 200 * NS_PER_US, queue_max: 100, ..CLEAN };
const FAST: Channel = Channel { data_ns: 100 * NS_PER_US, queue_max: 200, ..CLEAN };

/// Fetches over all paths at once; what befalls them when is in `mishaps`.
fn in_parallel(
    channels: &[Channel],
    mishaps: impl IntoIterator<Item = (u64, Arrival)>,
    config: ConsumerConfig,
) -> Outcome {
    let content = vec![7; 100 * SEGMENTS];
    let mut producer = Producer::new(content, 100, None);
    let config = ConsumerConfig { schedule: PathSchedule::Parallel, ..config };
    let consumer = Consumer::new(latest(), config, 1, Instant::ZERO);
    let channels = channels.to_vec();
    let mut simulation = Simulation::with_paths(Some(&mut producer), channels, consumer, 1);
    for (at_ms, mishap) in mishaps {
        simulation.arrive(Instant::from_ns(at_ms * NS_PER_MS), mishap);
    }
    let outcome = simulation.run(&SegmentSet::new());
    assert_eq!(outcome.result, Ok(()));
    assert_eq!(outcome.content.len(), 100 * SEGMENTS);
    outcome
}

/// The part of what the paths can carry, given as segments in all the time that it took, that was
/// used.
fn used(outcome: &Outcome, capacity: impl Fn(f64) -> f64) -> f64 {
    SEGMENTS as f64 / capacity(outcome.took.as_ns() as f64 / 1e9)
}

#[test]
fn two_paths_in_parallel_carry_what_both_can() {
    let outcome = in_parallel(&[SLOW, FAST], [], ConsumerConfig::default());
    let share = used(&outcome, |seconds| 15_000.0 * seconds);
    assert!(share > 0.97, "{share} {:?}", outcome.stats);
}

/// Nothing tells that the fast path is dead; it comes back after half a second.
#[test]
fn a_path_that_dies_does_not_hold_the_others_up() {
    let dead = Channel { lost: 1000, ..FAST };
    let mishaps =
        [(1000, Arrival::Changed(PathId(1), dead)), (1500, Arrival::Changed(PathId(1), FAST))];
    let outcome = in_parallel(&[SLOW, FAST], mishaps, ConsumerConfig::default());
    // Timeouts of 200 and 400 ms pass; it is tried in vain at 1.4 s, and with success at 1.8 s.
    let share = used(&outcome, |seconds| 15_000.0 * seconds - 0.8 * 10_000.0);
    assert!(share > 0.93, "{share} {:?}", outcome.stats);

    let mishaps = [(1000, Arrival::Removed(PathId(1))), (2000, Arrival::Added(PathId(1)))];
    let outcome = in_parallel(&[SLOW, FAST], mishaps, ConsumerConfig::default());
    let share = used(&outcome, |seconds| 15_000.0 * seconds - 10_000.0);
    // It begins anew.
    assert!(share > 0.95, "{share} {:?}", outcome.stats);
}

/// Whichever path it is that has no route from the start, the other carries all that it can.
#[test]
fn a_path_without_a_route_does_not_hold_the_others_up() {
    let refusing = Channel { refuses: true, ..CLEAN };
    for channels in [[refusing.clone(), FAST], [FAST, refusing]] {
        let outcome = in_parallel(&channels, [], ConsumerConfig::default());
        let share = used(&outcome, |seconds| 10_000.0 * seconds);
        assert!(share > 0.95, "{share} {:?}", outcome.stats);
        // It is tried once in a second, before that some more.
        assert!(outcome.stats.nacks < 100, "{:?}", outcome.stats);
    }
}

#[test]
fn a_path_that_never_answers_does_not_hold_the_others_up() {
    let silent = Channel { lost: 1000, ..CLEAN };
    for channels in [[silent.clone(), FAST], [FAST, silent]] {
        let outcome = in_parallel(&channels, [], ConsumerConfig::default());
        // The name of the version may be asked for there first, for a second.
        let share = used(&outcome, |seconds| 10_000.0 * (seconds - 1.0).max(0.1));
        assert!(share > 0.95, "{share} {:?}", outcome.stats);
    }
}

#[test]
fn what_no_path_has_a_route_to_fails() {
    let refusing = Channel { refuses: true, ..CLEAN };
    for channels in [vec![refusing.clone()], vec![refusing; 3]] {
        let count = channels.len() as u64;
        let target = Target::Version { versioned: versioned() };
        let config =
            ConsumerConfig { schedule: PathSchedule::Parallel, ..ConsumerConfig::default() };
        let consumer = Consumer::new(target, config, 1, Instant::ZERO);
        let outcome = Simulation::with_paths(None, channels, consumer, 1).run(&SegmentSet::new());
        assert!(matches!(outcome.result, Err(ConsumerError::NoRoute(_))), "{:?}", outcome.result);
        assert_eq!(outcome.sent.len() as u64, count, "each has been asked");
    }
}

#[test]
fn a_path_that_halves_is_used_for_what_it_can() {
    let half = Channel { data_ns: 2 * FAST.data_ns, queue_max: 100, ..FAST };
    let mishaps = [(1000, Arrival::Changed(PathId(1), half))];
    let outcome = in_parallel(&[SLOW, FAST], mishaps, ConsumerConfig::default());
    let share = used(&outcome, |seconds| 10_000.0 * seconds + 5_000.0);
    assert!(share > 0.97, "{share} {:?}", outcome.stats);
}

#[test]
fn what_is_in_flight_on_a_path_that_goes_is_asked_for_on_another() {
    let window = ConsumerConfig {
        controller: Controller::FIXED,
        window: Some(20),
        ..ConsumerConfig::default()
    };
    let at_ns = 55 * NS_PER_MS;
    let outcome = over_paths(vec![CLEAN, CLEAN], &[(PathId(1), at_ns)], window.clone(), 1);
    assert!((1..=20).contains(&outcome.stats.retransmissions), "{:?}", outcome.stats);
    assert_eq!((outcome.stats.timeouts, outcome.stats.decreases), (0, 0));
    // The only path goes before the first answer; the other one stands by.
    let outcome = over_paths(vec![CLEAN, CLEAN], &[(PathId(0), NS_PER_MS)], window, 1);
    assert_eq!(outcome.sent[&PathId(0)], 1);
}

#[test]
fn a_slow_path_is_not_taken_for_a_lossy_one() {
    let slow = Channel { delay_ns: 200 * NS_PER_MS, ..CLEAN };
    let outcome = over_paths(vec![CLEAN, slow], &[], ConsumerConfig::default(), 1);
    assert_eq!(outcome.stats.losses, 0, "{:?}", outcome.stats);
    assert_eq!(outcome.stats.timeouts, 0, "{:?}", outcome.stats);
}

#[test]
fn a_path_that_loses_shrinks_its_own_window_alone() {
    let lossy = Channel { lost: 100, ..CLEAN };
    let outcome = over_paths(vec![CLEAN, lossy], &[], ConsumerConfig::default(), 1);
    let (clean, lossy) = (outcome.sent[&PathId(0)], outcome.sent[&PathId(1)]);
    assert!(lossy > 20 && clean > 2 * lossy, "{clean} {lossy}");
}

/// Every segment comes once, whatever two paths do; in-flight counts and windows are held against
/// the chunks after every step.
#[test]
fn two_random_paths_deliver_every_segment_once() {
    for seed in 0..60 {
        let mut rng = Rng::from_seed(seed);
        let mut channel = || Channel {
            delay_ns: u64::from(1 + rng.below(100)) * NS_PER_MS,
            jitter_ns: u64::from(rng.below(50)) * NS_PER_MS,
            lost: rng.below(100),
            marked: rng.below(20),
            nacked: rng.below(20),
            data_ns: u64::from(rng.below(200)) * NS_PER_US,
            queue_max: 1 + u64::from(rng.below(500)),
            no_route: None,
            refuses: false,
            damaged: rng.below(10),
        };
        let channels = vec![channel(), channel()];
        let config = ConsumerConfig {
            controller: CONTROLLERS[seed as usize % CONTROLLERS.len()],
            window_max: 1 + rng.below(1000),
            reader_segments_max: 1 + rng.below(1000),
            retries_max: 100,
            chunk_segments: CHUNKS[seed as usize % CHUNKS.len()],
            ..ConsumerConfig::default()
        };
        let gone = (PathId(rng.below(2) as u16), u64::from(rng.below(2000)) * NS_PER_MS);
        let removed = if seed % 3 == 0 { vec![gone] } else { Vec::new() };
        over_paths(channels, &removed, config, seed);
    }
}
