use super::*;

fn draws(service: &ServiceTime, count: usize) -> Vec<u64> {
    let mut rng = Rng::from_seed(8);
    (0..count).map(|_| service.sample(&mut rng)).collect()
}

fn mean(values: &[u64]) -> f64 {
    values.iter().sum::<u64>() as f64 / values.len() as f64
}

#[test]
fn constant_and_exponential_have_their_means() {
    assert_eq!(draws(&ServiceTime::Constant { ns: 9 }, 3), [9, 9, 9]);
    let exponential = ServiceTime::Exponential { mean_ns: 1_000_000 };
    let count = 200_000;
    let values = draws(&exponential, count);
    // Five standard errors of the mean; the standard deviation equals the mean.
    assert!((mean(&values) - 1e6).abs() < 5.0 * 1e6 / (count as f64).sqrt());
    let beyond = values.iter().filter(|&&ns| ns > 2_000_000).count() as f64 / count as f64;
    assert!((beyond - (-2f64).exp()).abs() < 0.004, "{beyond}");
    assert_eq!(exponential.mean_ns(), 1e6);
}

#[test]
fn both_histogram_forms_draw_by_weight() {
    let bins = vec![(100, 3.0), (7_000, 0.0), (900, 1.0)];
    let histogram = ServiceTime::Histogram { bins };
    assert_eq!(histogram.mean_ns(), 300.0);
    let count = 100_000;
    let values = draws(&histogram, count);
    let share = values.iter().filter(|&&ns| ns == 100).count() as f64 / count as f64;
    assert!((share - 0.75).abs() < 5.0 * (0.75 * 0.25 / count as f64).sqrt(), "{share}");
    assert!(values.iter().all(|ns| [100, 900].contains(ns)));
    let sampler = Sampler::new(&histogram);
    let mut rng = Rng::from_seed(8);
    assert!(values.iter().all(|&ns| sampler.sample(&mut rng) == ns));
}

#[test]
fn histograms_without_sense_are_refused() {
    for bins in [vec![], vec![(5, 0.0)], vec![(5, -1.0), (6, 2.0)], vec![(5, f64::NAN)]] {
        let histogram = ServiceTime::Histogram { bins };
        assert_eq!(histogram.check(), Err(ConfigError::Histogram), "{histogram:?}");
        // An unchecked histogram built in code must not panic.
        draws(&histogram, 3);
        Sampler::new(&histogram).sample(&mut Rng::from_seed(1));
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct ServiceFixture {
    service: ServiceTime,
}

#[test]
fn files_have_times_or_rates() {
    for (text, expected) in [
        ("{ constant = { time = \"213us\" } }", ServiceTime::Constant { ns: 213_000 }),
        ("{ constant = { ns = 5 } }", ServiceTime::Constant { ns: 5 }),
        ("{ exponential = { mean = \"4700/s\" } }", ServiceTime::Exponential { mean_ns: 212_766 }),
        (
            "{ histogram = { bins = [[100, 0.9], [2000, 0.1]] } }",
            ServiceTime::Histogram { bins: vec![(100, 0.9), (2000, 0.1)] },
        ),
    ] {
        let holder: ServiceFixture = toml::from_str(&format!("service = {text}")).unwrap();
        assert_eq!(holder.service, expected);
        let written = toml::to_string(&holder).unwrap();
        assert_eq!(toml::from_str::<ServiceFixture>(&written).unwrap(), holder, "{written}");
    }
    for (text, needle) in [
        ("{ constant = { time = \"213\" } }", "4700/s"),
        ("{ constant = { time = \"1us\", ns = 3 } }", "remove one of them"),
        ("{ constant = { } }", "`time` is missing"),
        ("{ exponential = { mean = \"0/s\" } }", "4700/s"),
        ("{ exponential = { mean = \"-3/s\" } }", "4700/s"),
        ("{ exponential = { men = \"1ms\" } }", "unexpected keys in table: men"),
        ("{ gamma = { } }", "unknown variant `gamma`"),
        ("{ histogram = { bins = [] } }", "bins = [[100000, 0.9]"),
    ] {
        let error = toml::from_str::<ServiceFixture>(&format!("service = {text}")).unwrap_err();
        assert!(error.to_string().contains(needle), "{error}");
    }
}
