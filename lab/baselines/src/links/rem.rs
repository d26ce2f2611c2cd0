use std::sync::Arc;

use weir_base::Rng;
use weir_base::units::{Fraction, Size};
use weir_link::{
    ChoiceError, Marker, MarkerKind, MarkerOptions, OptionOrderError, QueueArrival, read_options,
};
use weir_wire::CongestionMark;

pub(super) const KIND: MarkerKind =
    MarkerKind { name: "rem", read: |options| Ok(Arc::new(RemOptions::read(options)?)) };

const WHAT: &str = "marking policy";

/// Factor of options in millionths. Integers make options comparable.
const MILLION: f64 = 1e6;

/// The averaging and the curve of random early marking.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct RemOptions {
    /// Mean queue in bytes from which Data is marked; by default a tenth of the capacity.
    q_min_bytes: Option<u64>,
    /// Mean queue in bytes at which the curve becomes steep. At twice this value every Data is
    /// marked. By default three tenths of the capacity.
    q_max_bytes: Option<u64>,
    /// Probability of a mark at `q_max`, in millionths.
    p_max_millionths: u32,
    /// Weight of the newest sample in the mean, in millionths.
    mu_millionths: u32,
}

impl Default for RemOptions {
    /// Paper chopcop, section 5.
    fn default() -> Self {
        Self {
            q_min_bytes: None,
            q_max_bytes: None,
            p_max_millionths: 2_000,
            mu_millionths: 50_000,
        }
    }
}

impl RemOptions {
    fn read(options: &str) -> Result<Self, ChoiceError> {
        let mut chosen = Self::default();
        read_options((WHAT, KIND.name), options, |key, value| chosen.set(key, value))?;
        Ok(chosen)
    }

    /// Sets option `key` to `value`. Returns false if the option does not exist or rejects the
    /// value.
    fn set(&mut self, key: &str, value: &str) -> bool {
        let millionths = || {
            let share: Fraction = value.parse().ok()?;
            Some((share.value * MILLION + 0.5) as u32)
        };
        match key {
            "q_min" | "q_max" => {
                let bytes = value.parse().ok().map(|size: Size| size.bytes);
                let is_min = key == "q_min";
                *(if is_min { &mut self.q_min_bytes } else { &mut self.q_max_bytes }) = bytes;
                bytes.is_some()
            }
            "p_max" => millionths().inspect(|&p_max| self.p_max_millionths = p_max).is_some(),
            "mu" => {
                let mu = millionths().filter(|&mu| mu > 0);
                mu.inspect(|&mu| self.mu_millionths = mu).is_some()
            }
            _ => false,
        }
    }

    /// `q_min` and `q_max` for a queue of `capacity_bytes`.
    fn thresholds_bytes(&self, capacity_bytes: u64) -> (f64, f64) {
        let capacity = capacity_bytes as f64;
        let or = |given: Option<u64>, default| given.map_or(default, |bytes| bytes as f64);
        (or(self.q_min_bytes, 0.1 * capacity), or(self.q_max_bytes, 0.3 * capacity))
    }
}

/// Random early marking (paper chopcop, 3.1). A moving average of the queue, sampled before each
/// Data, gives the probability that this Data is marked.
#[derive(Debug)]
struct Rem {
    curve: Curve,
    mu: f64,
    mean_bytes: f64,
    rng: Rng,
}

/// The probability of a mark as a function of the mean queue (paper chopcop, Fig. 2).
#[derive(Debug)]
struct Curve {
    q_min_bytes: f64,
    q_max_bytes: f64,
    p_max: f64,
}

impl Curve {
    fn probability(&self, mean_bytes: f64) -> f64 {
        let &Self { q_min_bytes, q_max_bytes, p_max } = self;
        if mean_bytes < q_min_bytes {
            0.0
        } else if mean_bytes < q_max_bytes {
            (mean_bytes - q_min_bytes) / (q_max_bytes - q_min_bytes) * p_max
        } else if mean_bytes < 2.0 * q_max_bytes {
            p_max + (mean_bytes - q_max_bytes) / q_max_bytes * (1.0 - p_max)
        } else {
            1.0
        }
    }
}

impl Rem {
    fn new(options: &RemOptions, capacity_bytes: u64, seed: u64) -> Self {
        let (q_min_bytes, q_max_bytes) = options.thresholds_bytes(capacity_bytes);
        let p_max = f64::from(options.p_max_millionths) / MILLION;
        let curve = Curve { q_min_bytes, q_max_bytes, p_max };
        let mu = f64::from(options.mu_millionths) / MILLION;
        Self { curve, mu, mean_bytes: 0.0, rng: Rng::from_seed(seed) }
    }
}

impl MarkerOptions for RemOptions {
    fn check(&self, capacity_bytes: Option<u64>) -> Result<(), ChoiceError> {
        let is_known = self.q_min_bytes.is_some() && self.q_max_bytes.is_some();
        if capacity_bytes.is_none() && !is_known {
            return Ok(());
        }
        let (q_min_bytes, q_max_bytes) = self.thresholds_bytes(capacity_bytes.unwrap_or(0));
        let size = |bytes| Size { bytes: bytes as u64 };
        OptionOrderError::require_below(("q_min", size(q_min_bytes)), ("q_max", size(q_max_bytes)))
            .map_err(|order| ChoiceError::Order { kind: WHAT, name: KIND.name, order })
    }

    fn make(&self, capacity_bytes: u64, seed: u64) -> Box<dyn Marker> {
        Box::new(Rem::new(self, capacity_bytes, seed))
    }
}

impl Marker for Rem {
    fn mark_value(&self) -> CongestionMark {
        CongestionMark::PROPORTIONAL
    }

    fn must_mark(&mut self, joining: &QueueArrival) -> bool {
        if !joining.is_data {
            return false;
        }
        self.mean_bytes = (1.0 - self.mu) * self.mean_bytes + self.mu * joining.queue_bytes as f64;
        let probability = self.curve.probability(self.mean_bytes);
        probability > 0.0 && self.rng.unit() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_base::Instant;

    const CAPACITY_BYTES: u64 = 1_500_000;

    fn rem(options: &RemOptions) -> Rem {
        Rem::new(options, CAPACITY_BYTES, 1)
    }

    fn join(rem: &mut Rem, is_data: bool, queue_bytes: u64) -> bool {
        rem.must_mark(&QueueArrival {
            now: Instant::ZERO,
            is_data,
            queue_bytes,
            threshold_bytes: 0,
            interval_ns: 0,
        })
    }

    #[test]
    fn options_are_read() {
        let chosen = RemOptions {
            q_min_bytes: Some(150_000),
            q_max_bytes: Some(450_000),
            p_max_millionths: 10_000,
            mu_millionths: 250_000,
        };
        assert_eq!(RemOptions::read("q_min=150KB  q_max=450000 p_max=1% mu=0.25"), Ok(chosen));
        assert_eq!(RemOptions::read(""), Ok(RemOptions::default()));
    }

    /// Paper chopcop, Fig. 2, with the parameters of its section 5.
    #[test]
    fn the_curve_has_its_corners() {
        let Rem { curve, mu, .. } = rem(&RemOptions::default());
        assert_eq!((curve.q_min_bytes, curve.q_max_bytes, mu), (150_000.0, 450_000.0, 0.05));
        for (mean_bytes, probability) in [
            (0.0, 0.0),
            (149_999.0, 0.0),
            (150_000.0, 0.0),
            (300_000.0, 0.001),
            (450_000.0, 0.002),
            (675_000.0, 0.501),
            (900_000.0, 1.0),
            (1_500_000.0, 1.0),
        ] {
            let found = curve.probability(mean_bytes);
            assert!((found - probability).abs() < 1e-12, "{mean_bytes}: {found}");
        }
    }

    /// A constant queue gives as many marks as the curve says, within four standard deviations of a
    /// binomial count.
    #[test]
    fn marking_rate_follows_the_curve() {
        for queue_bytes in [200_000, 400_000, 500_000, 800_000] {
            let mut rem = rem(&RemOptions::default());
            // After this many samples, the mean is within 1e-8 of the queue.
            (0..400).for_each(|_| _ = join(&mut rem, true, queue_bytes));
            let probability = rem.curve.probability(queue_bytes as f64);
            let tries = 200_000;
            let marks = (0..tries).filter(|_| join(&mut rem, true, queue_bytes)).count();
            let expected = f64::from(tries) * probability;
            let band = 4.0 * (expected * (1.0 - probability)).sqrt();
            assert!((marks as f64 - expected).abs() <= band, "{marks}, not {expected} +- {band}");
        }
    }

    #[test]
    fn marks_all_from_twice_q_max_none_below_q_min() {
        let mut rem = rem(&RemOptions { mu_millionths: 1_000_000, ..RemOptions::default() });
        assert!((0..1000).all(|_| join(&mut rem, true, 900_000)));
        assert!(!(0..1000).any(|_| join(&mut rem, true, 150_000)));
        assert!(!(0..1000).any(|_| join(&mut rem, false, 1_500_000)), "only Data is marked");
        assert_eq!(rem.mean_bytes, 150_000.0, "and sampled");
    }

    #[test]
    fn swapped_thresholds_are_a_step() {
        let options = RemOptions {
            q_min_bytes: Some(2000),
            q_max_bytes: Some(100),
            mu_millionths: 1_000_000,
            ..RemOptions::default()
        };
        let mut rem = rem(&options);
        assert!(!join(&mut rem, true, 1999));
        assert!(join(&mut rem, true, 2000));
    }

    proptest! {
        /// Eq. 1 written out: the newest sample has weight mu, and each older one 1 - mu times the
        /// next one's.
        #[test]
        fn mean_follows_equation_1(
            samples in prop::collection::vec(0u64..CAPACITY_BYTES, 1..100),
            mu_millionths in 1u32..=1_000_000,
        ) {
            let mut rem = rem(&RemOptions { mu_millionths, ..RemOptions::default() });
            for &sample in &samples {
                join(&mut rem, true, sample);
            }
            let mu = f64::from(mu_millionths) / 1e6;
            let weights = (0..).map(|age| mu * (1.0 - mu).powi(age));
            let mean: f64 =
                samples.iter().rev().zip(weights).map(|(&sample, w)| sample as f64 * w).sum();
            prop_assert!((rem.mean_bytes - mean).abs() < 1e-3, "{} {mean}", rem.mean_bytes);
        }

        /// The curve is monotone from 0 to 1 and has no jump.
        #[test]
        fn the_curve_is_monotone_and_continuous(
            q_min in 1u64..1_000_000,
            width in 1000u64..1_000_000,
            p_max_millionths in 0u32..=1_000_000,
            mean in 0.0f64..4_000_000.0,
        ) {
            let curve = rem(&RemOptions {
                q_min_bytes: Some(q_min),
                q_max_bytes: Some(q_min + width),
                p_max_millionths,
                ..RemOptions::default()
            }).curve;
            let (here, next) = (curve.probability(mean), curve.probability(mean + 1.0));
            prop_assert!((0.0..=1.0).contains(&here) && here <= next + 1e-12);
            prop_assert!(next - here <= 1.0 / width as f64 + 1.0 / q_min as f64 + 1e-9);
        }
    }
}
