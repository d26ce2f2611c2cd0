use super::*;
use crate::Rng;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

const ENTRIES: u64 = if cfg!(miri) { 200 } else { 100_000 };

fn full(entries: u64, ppm: u32, rng: &mut Rng) -> (CountingBloom, Vec<u64>) {
    let mut filter = CountingBloom::new(entries, ppm);
    let hashes: Vec<u64> = (0..entries).map(|_| rng.next_u64()).collect();
    hashes.iter().for_each(|&hash| filter.insert(hash));
    (filter, hashes)
}

/// Compares with the theory, within 5 standard deviations of counting.
#[test]
fn the_rate_is_what_the_theory_says() {
    let mut rng = Rng::from_seed(11);
    for ppm in [100_000, 10_000, 1_000, 100] {
        let (filter, _) = full(ENTRIES, ppm, &mut rng);
        let theory = filter.false_positive_rate(ENTRIES);
        let wanted = f64::from(ppm) / 1e6;
        assert!(theory <= wanted && theory > wanted * 0.98, "{ppm}: {theory}");
        let queries = ENTRIES * 20;
        let yes = (0..queries).filter(|_| filter.contains(rng.next_u64())).count() as f64;
        let expected = theory * queries as f64;
        let deviation = libm::sqrt(expected);
        assert!((yes - expected).abs() < 5.0 * deviation, "{ppm}: {yes}, {expected} expected");
        assert_eq!(filter.saturated(), 0);
    }
}

/// The same theory, summed over the number of hashes in a block and of its counters in use.
#[test]
fn closed_form_equals_sum_over_loads() {
    for (probes, load) in [(1, 3.0), (4, 9.5), (6, 12.0), (8, 20.0)] {
        let mut in_use = [0.0; COUNTERS + 1];
        in_use[0] = 1.0;
        let (mut poisson, mut sum) = (libm::exp(-load), 0.0);
        for hashes in 0..100 {
            let all_met = (0..=COUNTERS).map(|used| {
                in_use[used] * libm::pow(used as f64 / COUNTERS as f64, f64::from(probes))
            });
            sum += poisson * all_met.sum::<f64>();
            poisson *= load / f64::from(hashes + 1);
            for _ in 0..probes {
                for used in (0..=COUNTERS).rev() {
                    let free = |used: usize| (COUNTERS - used) as f64 / COUNTERS as f64;
                    let grows = if used > 0 { in_use[used - 1] * free(used - 1) } else { 0.0 };
                    in_use[used] = in_use[used] * (1.0 - free(used)) + grows;
                }
            }
        }
        let closed = rate(probes as usize, load);
        assert!((closed / sum - 1.0).abs() < 1e-6, "{probes}: {closed}, {sum}");
    }
}

#[test]
fn removal_restores_empty_filter() {
    let mut rng = Rng::from_seed(12);
    let (mut filter, hashes) = full(ENTRIES, 10_000, &mut rng);
    let (gone, kept) = hashes.split_at(hashes.len() / 2);
    gone.iter().for_each(|&hash| filter.remove(hash));
    assert!(kept.iter().all(|&hash| filter.contains(hash)));
    kept.iter().for_each(|&hash| filter.remove(hash));
    assert!(filter.blocks.iter().all(|block| block.0 == [0; 8]));
}

#[test]
fn memory_is_what_the_rate_asks_for() {
    let filter = CountingBloom::new(1_000_000, 10_000);
    assert!((5_400_000..5_500_000).contains(&filter.memory_bytes()), "{filter:?}");
    assert_eq!(align_of_val(&filter.blocks[0]), 64);
    assert!(CountingBloom::new(1_000_000, 1).memory_bytes() < 50_000_000);
    assert_eq!(CountingBloom::new(0, 0).memory_bytes(), 64);
}

#[test]
fn a_counter_that_is_full_stays_and_is_counted() {
    let mut filter = CountingBloom::new(1_000, 10_000);
    let hash = 0x0123_4567_89AB_CDEF;
    for _ in 0..100 {
        filter.insert(hash);
    }
    let stuck = filter.saturated();
    assert!(stuck > 0 && stuck <= u64::from(filter.probes));
    for _ in 0..100 {
        filter.remove(hash);
        assert!(filter.contains(hash));
    }
    assert_eq!(filter.saturated(), stuck);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "only what was added can be removed")]
fn removal_of_unknown_hash_panics() {
    CountingBloom::new(1_000, 10_000).remove(5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    /// The filter is too small on purpose: counters reach their maximum.
    #[test]
    fn never_false_negative(
        entries in 0u64..60,
        ppm in 0u32..1_000_000,
        steps in vec((any::<bool>(), 0u64..40), 0..600),
    ) {
        let mut filter = CountingBloom::new(entries, ppm);
        let mut model = BTreeMap::<u64, u32>::new();
        for (is_insertion, name) in steps {
            let hash = crate::mix(name + 1);
            let count = model.entry(hash).or_default();
            if is_insertion {
                filter.insert(hash);
                *count += 1;
            } else if *count > 0 {
                filter.remove(hash);
                *count -= 1;
            }
            prop_assert!(model.iter().all(|(&hash, &count)| count == 0 || filter.contains(hash)));
        }
    }
}
