//! Computes metrics from the samples of a trial.

use std::collections::BTreeMap;

use weir_scenario::metric::Metric;

use super::Measured;
use super::collect::DISTRIBUTION_POINTS;
use super::histogram::Histogram;

impl Measured {
    /// The metrics of a trial with these samples, by measure.
    pub(crate) fn of_trial(metrics: &[Metric], samples: &BTreeMap<&str, Vec<f64>>) -> Self {
        let mut measured = Self::default();
        for metric in metrics {
            let samples = samples.get(metric.measure.word()).map_or(&[][..], Vec::as_slice);
            let mut histogram = Histogram::default();
            samples.iter().for_each(|sample| histogram.add(*sample));
            let value = histogram.statistic(metric.statistic);
            let value = value.map(|value| value * metric.measure.scale());
            measured.values.insert(metric.id.clone(), value);
            if metric.distribution {
                let distribution = histogram.distribution(DISTRIBUTION_POINTS);
                measured.distributions.insert(metric.id.clone(), distribution);
            }
        }
        measured
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_scenario::metric::{Measure, Statistic};

    fn metric(id: &str, measure: Measure, statistic: Statistic) -> Metric {
        Metric {
            id: id.into(),
            measure,
            label: String::new(),
            unit: String::new(),
            queue: None,
            of_path: None,
            at: Vec::new(),
            statistic,
            per_node: false,
            over_time: false,
            distribution: false,
            path: String::new(),
        }
    }

    #[test]
    fn metrics_use_trial_samples() {
        let metrics = [
            metric("goodput", Measure::Goodput, Statistic::Mean),
            metric("p50", Measure::AnswerTime, Statistic::Percentile(50.0)),
            metric("most", Measure::AnswerTime, Statistic::Max),
            metric("none", Measure::SignTime, Statistic::Mean),
        ];
        let times: Vec<f64> = (1..=99).map(f64::from).collect();
        let samples = BTreeMap::from([("goodput", vec![5.0]), ("answer-time", times)]);
        let measured = Measured::of_trial(&metrics, &samples);
        assert_eq!(measured.values["goodput"], Some(5.0));
        assert_eq!(measured.values["most"], Some(99.0));
        let median = measured.values["p50"].unwrap();
        assert!((median - 50.0).abs() < 2.0, "{median}");
        assert_eq!(measured.values["none"], None);
    }
}
