//! Means and confidence intervals over seeds.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// A mean over seeds with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Estimate {
    pub mean: f64,
    /// Lower end; `None` for a single sample.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    pub count: usize,
}

impl Estimate {
    /// Estimates the mean of independent, roughly normal samples by Student's t with `n - 1`
    /// degrees of freedom. `None` without samples.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let count = samples.len();
        if count == 0 {
            return None;
        }
        let n = count as f64;
        let mean = samples.iter().sum::<f64>() / n;
        let half = (count > 1).then(|| {
            let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
            student_975(count - 1) * (squares / (n - 1.0) / n).sqrt()
        });
        let (low, high) = (half.map(|half| mean - half), half.map(|half| mean + half));
        Some(Self { mean, low, high, count })
    }

    /// An exact number.
    pub(crate) fn exact(value: f64) -> Self {
        Self { mean: value, low: Some(value), high: Some(value), count: 1 }
    }

    pub(crate) fn half_width(&self) -> Option<f64> {
        Some((self.high? - self.low?) / 2.0)
    }
}

/// The 97.5 % quantile of Student's t.
fn student_975(degrees_of_freedom: usize) -> f64 {
    StudentsT::new(0.0, 1.0, degrees_of_freedom as f64)
        .map_or(f64::INFINITY, |student| student.inverse_cdf(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (degrees, quantile) in [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042)] {
            assert!((student_975(degrees) - quantile).abs() < 5e-4, "{degrees}");
        }
    }

    #[test]
    fn interval_matches_hand_calculation() {
        // Mean 3, standard deviation sqrt(2.5), t(4) = 2.776: 3 +- 1.963.
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).expect("samples");
        assert!((estimate.mean - 3.0).abs() < 1e-12);
        let half = estimate.half_width().expect("five samples");
        assert!((half - 1.963).abs() < 1e-3, "{estimate:?}");
    }

    #[test]
    fn few_samples() {
        assert_eq!(Estimate::of(&[]), None);
        let one = Estimate::of(&[7.0]).expect("a sample");
        assert_eq!((one.mean, one.low, one.high, one.count), (7.0, None, None, 1));
        assert_eq!(one.half_width(), None);
        let json = serde_json::to_value(one).expect("JSON");
        assert_eq!(json, serde_json::json!({"mean": 7.0, "low": null, "high": null, "count": 1}));
    }

    #[test]
    fn intervals_cover_the_mean() {
        // Sums of twelve uniform numbers are nearly normal with mean 6.
        let mut rng = weir_base::Rng::from_seed(5);
        let mut uniform = || f64::from(rng.next_u32()) / f64::from(u32::MAX);
        let trials = 4_000;
        let held = (0..trials)
            .filter(|_| {
                let samples: Vec<f64> =
                    (0..5).map(|_| (0..12).map(|_| uniform()).sum::<f64>()).collect();
                let estimate = Estimate::of(&samples).expect("samples");
                let (low, high) = estimate.low.zip(estimate.high).expect("five samples");
                (low..=high).contains(&6.0)
            })
            .count();
        let share = f64::from(held as u32) / f64::from(trials);
        assert!((0.94..0.96).contains(&share), "{share}");
    }
}
