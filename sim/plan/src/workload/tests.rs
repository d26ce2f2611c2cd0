//! Compares generators with theory. Seeds are fixed, and one random seed in a million would exceed
//! the bounds.

use super::*;

/// Standard deviations that one random value in a million exceeds.
const SIGMAS: f64 = 5.0;

fn arrivals(plan: &Arrivals, start_ns: u64, count: usize, seed: u64) -> Vec<u64> {
    let mut process = ArrivalProcess::new(plan, start_ns, seed).unwrap();
    (0..count).map(|_| process.next_ns()).collect()
}

#[test]
fn constant_arrivals_do_not_drift() {
    for rate_hz in [3.0, 7_000.0, 1e6 / 3.0, 0.01] {
        let moments = arrivals(&Arrivals::Constant { rate_hz }, 5_000, 100_000, 1);
        assert_eq!(moments[0], 5_000);
        for (count, &at) in moments.iter().enumerate() {
            let exact = 5_000.0 + count as f64 * 1e9 / rate_hz;
            // Less than a nanosecond, plus the rounding of such a large number.
            assert!((exact - at as f64).abs() < 1.0 + exact * 1e-15, "{rate_hz} {count}");
        }
    }
}

#[test]
fn poisson_arrivals_have_exponential_distances() {
    for seed in 0..5 {
        let count = 100_000;
        let moments = arrivals(&Arrivals::Poisson { rate_hz: 2_000.0 }, 0, count, seed);
        let mut distances: Vec<f64> =
            moments.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 500_000.0).collect();
        let mean = distances.iter().sum::<f64>() / distances.len() as f64;
        assert!((mean - 1.0).abs() < SIGMAS / (count as f64).sqrt(), "{mean}");
        // Kolmogorov-Smirnov: the largest distance from the distribution function exceeds 2.6 /
        // sqrt(n) once in 750,000 cases.
        distances.sort_by(f64::total_cmp);
        let n = distances.len() as f64;
        let largest = distances.iter().zip(0..).fold(0.0_f64, |largest, (&x, place)| {
            let exact = 1.0 - (-x).exp();
            largest.max((exact - f64::from(place) / n).abs())
        });
        assert!(largest < 2.6 / n.sqrt(), "{largest}");
        // Adjacent intervals are independent.
        let raw: Vec<f64> = moments.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let (mut product, centre) = (0.0, 500_000.0);
        for pair in raw.windows(2) {
            product += (pair[0] / centre - 1.0) * (pair[1] / centre - 1.0);
        }
        assert!((product / n).abs() < SIGMAS / n.sqrt(), "{}", product / n);
    }
}

#[test]
fn on_off_has_configured_lengths_and_rate() {
    let (on_ns, off_ns, rate_hz) = (2_000_000.0_f64, 6_000_000.0, 10_000.0);
    let plan = Arrivals::OnOff { rate_hz, on_ns: on_ns as u64, off_ns: off_ns as u64 };
    let count = 1_000_000;
    let moments = arrivals(&plan, 0, count, 3);
    let span = *moments.last().unwrap() as f64;
    let share = count as f64 * 1e9 / rate_hz / span;
    let expected = on_ns / (on_ns + off_ns);
    // Fraction of time in bursts (renewal theory): variance 2 a^2 b^2 / ((a + b)^3 t).
    let variance = 2.0 * (on_ns * off_ns).powi(2) / ((on_ns + off_ns).powi(3) * span);
    assert!((share - expected).abs() < SIGMAS * variance.sqrt(), "{share}");
    // Within a burst, intervals are those of the rate; a pause makes them longer.
    let period = 1e9 / rate_hz;
    let longer: Vec<f64> = moments
        .windows(2)
        .map(|pair| (pair[1] - pair[0]) as f64 - period)
        .filter(|&extra| extra > 1.5)
        .collect();
    assert!(moments.windows(2).all(|pair| (pair[1] - pair[0]) as f64 > period - 1.5));
    // An interval contains a pause if a burst ends in its period.
    let ends = 1.0 - (-period / on_ns).exp();
    let expected = ends * count as f64;
    let found = longer.len() as f64;
    assert!((found - expected).abs() < SIGMAS * expected.sqrt(), "{found} {expected}");
}

#[test]
fn bursts_have_configured_size_and_gaps() {
    let (off_ns, off_max_ns) = (1_000_000, 5_000_000);
    let plan = Arrivals::Bursts { rate_hz: 1e6, size: 10, off_ns, off_max_ns };
    let moments = arrivals(&plan, 7, 100_000, 3);
    assert_eq!(moments[0], 7);
    let mut silences_ns = 0;
    for (place, pair) in moments.windows(2).enumerate() {
        let gap_ns = pair[1] - pair[0];
        match (place + 1) % 10 {
            0 => {
                assert!((off_ns - 1..=off_max_ns + 1).contains(&gap_ns), "{gap_ns}");
                silences_ns += gap_ns;
            }
            _ => assert!((999..=1001).contains(&gap_ns), "{gap_ns}"),
        }
    }
    let (mean_ns, sigma_ns) = (3e6, 4e6 / 12_f64.sqrt());
    let count = 9_999.0_f64;
    let found_ns = silences_ns as f64 / count;
    assert!((found_ns - mean_ns).abs() < SIGMAS * sigma_ns / count.sqrt(), "{found_ns}");
}

#[test]
fn invalid_rates_are_rejected() {
    for rate_hz in [0.0, -1.0, f64::NAN, f64::INFINITY, 2e9] {
        let error = ArrivalProcess::new(&Arrivals::Poisson { rate_hz }, 0, 1).unwrap_err();
        assert!(error.to_string().contains("rate_hz"), "{error}");
    }
    let plan = Arrivals::OnOff { rate_hz: 1.0, on_ns: 0, off_ns: 1 };
    assert!(ArrivalProcess::new(&plan, 0, 1).is_err());
    for (size, off_max_ns) in [(0, 9), (1, 8)] {
        let plan = Arrivals::Bursts { rate_hz: 1.0, size, off_ns: 9, off_max_ns };
        assert!(ArrivalProcess::new(&plan, 0, 1).is_err());
    }
}

/// Draws objects and compares them with the exact probabilities `weight(rank) / sum` by chi-square.
fn check_popularity(plan: &Popularity, weight: impl Fn(f64) -> f64, draws: u64, seed: u64) {
    let objects = plan.object_count();
    let mut chooser = ObjectChooser::new(plan, seed).unwrap();
    let mut counts = vec![0_u64; objects as usize];
    for _ in 0..draws {
        let (object, segment) = chooser.next_request();
        assert_eq!(segment, None);
        counts[object as usize] += 1;
    }
    let sum: f64 = (1..=objects).rev().map(|rank| weight(rank as f64)).sum();
    let (mut chi_square, mut bins) = (0.0, 0);
    let (mut expected, mut found) = (0.0, 0);
    for rank in 1..=objects {
        expected += draws as f64 * weight(rank as f64) / sum;
        found += counts[rank as usize - 1];
        // Each bin needs enough draws for chi-square; the last bin takes the rest.
        if expected >= 20.0 || rank == objects {
            if expected > 0.0 {
                chi_square += (found as f64 - expected).powi(2) / expected;
                bins += 1;
            }
            (expected, found) = (0.0, 0);
        }
    }
    let freedom = f64::from(bins - 1);
    let bound = SIGMAS * (2.0 * freedom).sqrt() + SIGMAS * SIGMAS;
    assert!(
        (chi_square - freedom).abs() < bound,
        "{plan:?}: {chi_square} with {freedom} degrees of freedom"
    );
}

#[test]
fn popularity_follows_the_exact_probabilities() {
    let draws = 400_000;
    for objects in [1, 2, 10, 1_000] {
        for exponent in [0.0, 0.5, 0.8, 1.0, 1.000_000_1, 1.2, 2.5] {
            let plan = Popularity::Zipf { objects, exponent };
            check_popularity(&plan, |rank| rank.powf(-exponent), draws, objects);
            for shift in [0.3, 5.0, 200.0] {
                let plan = Popularity::ZipfMandelbrot { objects, exponent, shift };
                check_popularity(&plan, |rank| (rank + shift).powf(-exponent), draws, objects);
            }
        }
        check_popularity(&Popularity::Uniform { objects }, |_| 1.0, draws, objects);
    }
}

#[test]
fn popularity_is_exact_for_a_million_objects() {
    let (objects, draws) = (1_000_000, 4_000_000);
    let plan = Popularity::Zipf { objects, exponent: 0.8 };
    check_popularity(&plan, |rank| rank.powf(-0.8), draws, 1);
    let plan = Popularity::ZipfMandelbrot { objects, exponent: 1.1, shift: 50.0 };
    check_popularity(&plan, |rank| (rank + 50.0).powf(-1.1), draws, 2);
}

#[test]
fn the_test_rejects_a_wrong_law() {
    let plan = Popularity::Zipf { objects: 1_000, exponent: 0.8 };
    let result = std::panic::catch_unwind(|| {
        check_popularity(&plan, |rank| rank.powf(-0.82), 400_000, 1);
    });
    assert!(result.is_err());
}

#[test]
fn sequences_and_traces_go_round() {
    let mut chooser = ObjectChooser::new(&Popularity::Sequential { objects: 3 }, 1).unwrap();
    let drawn: Vec<_> = (0..7).map(|_| chooser.next_request().0).collect();
    assert_eq!(drawn, [0, 1, 2, 0, 1, 2, 0]);
    let requests = [(4, 1), (0, 0)].into();
    let plan = Popularity::Trace { requests };
    assert_eq!(plan.object_count(), 5);
    let mut chooser = ObjectChooser::new(&plan, 1).unwrap();
    let drawn: Vec<_> = (0..3).map(|_| chooser.next_request()).collect();
    assert_eq!(drawn, [(4, Some(1)), (0, Some(0)), (4, Some(1))]);
}

#[test]
fn invalid_popularity_is_rejected() {
    for plan in [
        Popularity::Uniform { objects: 0 },
        Popularity::Trace { requests: [].into() },
        Popularity::Zipf { objects: 5, exponent: -0.1 },
        Popularity::Zipf { objects: 5, exponent: f64::NAN },
        Popularity::ZipfMandelbrot { objects: 5, exponent: 1.0, shift: -1.0 },
    ] {
        assert!(ObjectChooser::new(&plan, 1).is_err(), "{plan:?}");
    }
}

fn collection(sizes: Sizes) -> Collection {
    let names = Names {
        prefix: "/lab/p1".into(),
        components: 0,
        popularity: Popularity::Uniform { objects: 10 },
        sizes,
        segment_bytes: 1000,
        live: None,
    };
    Collection::new(&names).unwrap()
}

#[test]
fn log_normal_keeps_its_mean_and_cut_offs() {
    for (mean_bytes, sigma, min_bytes, max_bytes) in
        [(50_000, 1.0, 1_000, 1_000_000), (50_000, 2.0, 10_000, 60_000), (50_000, 0.5, 0, 1 << 40)]
    {
        let objects = collection(Sizes::LogNormal { mean_bytes, sigma, min_bytes, max_bytes });
        let count = 200_000;
        let sizes: Vec<f64> = (0..count).map(|it| objects.shape(it).bytes as f64).collect();
        assert!(sizes.iter().all(|&it| it >= min_bytes as f64 && it <= max_bytes as f64));
        let mean = sizes.iter().sum::<f64>() / count as f64;
        let variance = sizes.iter().map(|size| (size - mean).powi(2)).sum::<f64>() / count as f64;
        let deviation = (variance / count as f64).sqrt();
        assert!((mean - mean_bytes as f64).abs() < SIGMAS * deviation + 0.5, "{mean}");
    }
}

#[test]
fn sizes_depend_on_the_prefix_alone() {
    let law = Sizes::LogNormal { mean_bytes: 5_000, sigma: 1.0, min_bytes: 1, max_bytes: 90_000 };
    let (here, there) = (collection(law.clone()), collection(law));
    assert!((0..100).all(|object| here.shape(object) == there.shape(object)));
    let sizes: std::collections::BTreeSet<_> = (0..100).map(|it| here.shape(it).bytes).collect();
    assert!(sizes.len() > 90);
    let list = collection(Sizes::List { bytes: [0, 1, 1000, 1001].into() });
    let segments: Vec<_> = (0..5).map(|object| list.shape(object).segments).collect();
    assert_eq!(segments, [1, 1, 1, 2, 1]);
}

#[test]
fn traces_are_read() {
    let trace = Trace::from_csv("site,segment\na.org,3\nb.org,0\n\na.org,4\r\n").unwrap();
    assert_eq!(*trace.requests, [(0, 3), (1, 0), (0, 4)]);
    assert_eq!(trace.names, ["a.org", "b.org"]);
    let trace = Trace::from_csv("name,segment\na,3\nb,0\na,3\na,1\na,3\nb,0\n").unwrap();
    let apart = [(0, 3), (1, 0), (0, 4), (0, 1), (0, 5), (1, 1)];
    assert_eq!(*trace.with_repeats_apart(), apart, "each requests a different segment");
    for (text, line) in [
        ("", 1),
        ("a.org,3\n", 1),
        ("name,segment\n", 1),
        ("name,segment\na.org,3\nb.org\n", 3),
        ("name,segment\n\na.org,-3\n", 3),
        ("name,segment\na.org,1,2\n", 2),
        ("name,segment\n,1\n", 2),
        ("name,segment\na.org,99999999999999999999\n", 2),
    ] {
        match Trace::from_csv(text) {
            Err(WorkloadError::TraceLine { line: found, problem }) => {
                assert_eq!(found, line, "{text:?}: {problem}");
                assert!(problem.contains("write"), "no remedy: {problem}");
            }
            other => panic!("{text:?}: {other:?}"),
        }
    }
}
