use super::*;
use crate::time::NS_PER_MS;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec;

fn wheel() -> TimerWheel {
    TimerWheel::new(NS_PER_MS, Instant::ZERO)
}

fn ms(ms: u64) -> Instant {
    Instant::from_ns(ms * NS_PER_MS)
}

fn advance(wheel: &mut TimerWheel, now: Instant) -> Vec<u32> {
    let mut expired = Vec::new();
    wheel.advance(now, &mut expired);
    expired
}

#[test]
fn a_timer_expires_once_and_not_early() {
    let mut wheel = wheel();
    wheel.schedule(3, Instant::from_ns(5 * NS_PER_MS + 1));
    assert_eq!(wheel.deadline(3), Some(Instant::from_ns(5 * NS_PER_MS + 1)));
    assert_eq!(wheel.next_wakeup(), Some(ms(6)));
    assert_eq!(advance(&mut wheel, Instant::from_ns(6 * NS_PER_MS - 1)), vec![]);
    assert_eq!(advance(&mut wheel, ms(6)), vec![3]);
    assert_eq!(advance(&mut wheel, ms(60)), vec![]);
    assert_eq!((wheel.deadline(3), wheel.next_wakeup(), wheel.len()), (None, None, 0));
}

#[test]
fn a_time_that_is_past_expires_at_once() {
    let mut wheel = TimerWheel::new(NS_PER_MS, ms(100));
    wheel.schedule(1, ms(7));
    wheel.schedule(0, ms(100));
    assert_eq!(wheel.next_wakeup(), Some(ms(100)));
    assert_eq!(advance(&mut wheel, ms(100)), vec![1, 0]);
    wheel.schedule(2, Instant::ZERO);
    assert_eq!(advance(&mut wheel, ms(50)), vec![], "time does not run backwards");
    assert_eq!(advance(&mut wheel, ms(100)), vec![2]);
}

#[test]
fn far_timers_and_ends_of_the_range() {
    let mut wheel = TimerWheel::new(1, Instant::ZERO);
    wheel.schedule(0, Instant::FAR_FUTURE);
    wheel.schedule(1, Instant::from_ns(u64::MAX / 2));
    wheel.schedule(2, Instant::from_ns(1 << 60));
    assert_eq!(advance(&mut wheel, Instant::from_ns((1 << 60) - 1)), vec![]);
    assert_eq!(advance(&mut wheel, Instant::from_ns(1 << 60)), vec![2]);
    assert_eq!(advance(&mut wheel, Instant::from_ns(u64::MAX - 1)), vec![1]);
    assert_eq!(advance(&mut wheel, Instant::FAR_FUTURE), vec![0]);
}

#[test]
fn no_memory_for_timers_of_known_keys() {
    let mut wheel = wheel();
    (0..100).for_each(|key| wheel.schedule(key, ms(1)));
    let capacity = wheel.timers.capacity();
    for round in 0..50 {
        (0..100).for_each(|key| wheel.schedule(key, ms(round * 1_000 + u64::from(key) * 77)));
        advance(&mut wheel, ms(round * 900));
    }
    assert_eq!(wheel.timers.capacity(), capacity);
}

#[derive(Clone, Debug)]
enum Step {
    Schedule(u32, u64),
    Cancel(u32),
    Advance(u64),
    Wake,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let delay = prop_oneof![0..3_000_000u64, 0..10_000_000_000u64, 0..u64::MAX / 4];
    let step = prop_oneof![
        5 => (0..40u32, delay).prop_map(|(key, delay)| Step::Schedule(key, delay)),
        1 => (0..40u32).prop_map(Step::Cancel),
        2 => prop_oneof![0..100_000_000u64, 0..10_000_000_000u64].prop_map(Step::Advance),
        2 => Just(Step::Wake),
    ];
    proptest::collection::vec(step, 0..if cfg!(miri) { 40 } else { 200 })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 256 }))]

    #[test]
    fn equals_an_ordered_map(
        steps in steps(),
        tick_ns in prop_oneof![Just(1), Just(NS_PER_MS), 1..5_000_000u64],
    ) {
        let mut now = 1_234_567_891u64;
        let mut wheel = TimerWheel::new(tick_ns, Instant::from_ns(now));
        let mut model = BTreeMap::<u32, u64>::new();
        for step in steps {
            match step {
                Step::Schedule(key, delay) => {
                    let at = (now - 1_000_000).saturating_add(delay);
                    wheel.schedule(key, Instant::from_ns(at));
                    model.insert(key, at);
                    continue;
                }
                Step::Cancel(key) => {
                    wheel.cancel(key);
                    model.remove(&key);
                    continue;
                }
                Step::Advance(ns) => now += ns,
                Step::Wake => {
                    let Some(wakeup) = wheel.next_wakeup() else {
                        prop_assert!(model.is_empty());
                        continue;
                    };
                    let first = *model.values().min().unwrap();
                    let due_tick = first.div_ceil(tick_ns).max(now / tick_ns);
                    prop_assert!(wakeup.as_ns() <= due_tick.saturating_mul(tick_ns));
                    now = now.max(wakeup.as_ns().min(u64::MAX / 2));
                }
            }
            let before = wheel.now_tick;
            let tick_now = now / tick_ns;
            let mut due: Vec<_> = model
                .iter()
                .filter(|&(_, &at)| at.div_ceil(tick_ns) <= tick_now)
                .map(|(&key, &at)| (at.div_ceil(tick_ns).max(before), at, key))
                .collect();
            due.sort_unstable();
            let due: Vec<_> = due.into_iter().map(|(_, _, key)| key).collect();
            prop_assert_eq!(advance(&mut wheel, Instant::from_ns(now)), due.clone());
            model.retain(|key, _| !due.contains(key));
            prop_assert_eq!(wheel.len(), model.len());
            for (&key, &at) in &model {
                prop_assert_eq!(wheel.deadline(key), Some(Instant::from_ns(at)));
            }
        }
    }
}
