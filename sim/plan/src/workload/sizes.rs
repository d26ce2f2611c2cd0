//! Object sizes.

use std::f64::consts::{PI, SQRT_2};
use std::sync::Arc;

use super::random::mix;
use super::{Sizes, WorkloadError};

/// Sizes of objects, computed from a key and the object's number.
#[derive(Clone, Debug)]
pub(crate) struct SizeLaw {
    key: u64,
    kind: SizeKind,
}

#[derive(Clone, Debug)]
enum SizeKind {
    Fixed(u64),
    LogNormal(LogNormal),
    List(Arc<[u64]>),
}

impl SizeLaw {
    pub(crate) fn new(plan: &Sizes, key: u64) -> Result<Self, WorkloadError> {
        let kind = match plan {
            Sizes::Fixed { bytes } => SizeKind::Fixed(*bytes),
            Sizes::LogNormal { mean_bytes, sigma, min_bytes, max_bytes } => {
                match LogNormal::new(*mean_bytes, *sigma, *min_bytes, *max_bytes)? {
                    Some(law) => SizeKind::LogNormal(law),
                    None => SizeKind::Fixed(*mean_bytes),
                }
            }
            Sizes::List { bytes } if bytes.is_empty() => {
                return Err(WorkloadError::value(
                    "sizes",
                    "is an empty list; write at least one size",
                ));
            }
            Sizes::List { bytes } => SizeKind::List(bytes.clone()),
        };
        Ok(Self { key, kind })
    }

    #[inline]
    pub(crate) fn bytes(&self, object: u64) -> u64 {
        match &self.kind {
            SizeKind::Fixed(bytes) => *bytes,
            SizeKind::LogNormal(law) => law.quantile(weir_base::unit(mix(self.key ^ mix(object)))),
            SizeKind::List(bytes) => bytes[(object % bytes.len() as u64) as usize],
        }
    }
}

/// A truncated log-normal distribution. The mean is that of the truncated distribution.
#[derive(Clone, Copy, Debug)]
struct LogNormal {
    /// Mean and standard deviation of the logarithm before truncation.
    mu: f64,
    sigma: f64,
    min: f64,
    max: f64,
    /// The normal distribution function at the standardised bounds. Bounds are mirrored if that
    /// moves them to the more precise lower tail.
    low: f64,
    high: f64,
    sign: f64,
}

impl LogNormal {
    /// `None` if all sizes equal the mean.
    fn new(mean: u64, sigma: f64, min: u64, max: u64) -> Result<Option<Self>, WorkloadError> {
        if !(0.0..=10.0).contains(&sigma) {
            let problem = format!("is {sigma}; write a number from 0 to 10");
            return Err(WorkloadError::value("sigma", problem));
        }
        if mean < min || mean > max {
            let problem =
                format!("is {mean}; write a size from min_bytes {min} to max_bytes {max}");
            return Err(WorkloadError::value("mean_bytes", problem));
        }
        if sigma == 0.0 || min == max {
            return Ok(None);
        }
        let (min, max) = (min as f64, max as f64);
        let far = 30.0 * sigma;
        let (mut below, mut above) = (libm::log(min.max(1.0)) - far, libm::log(max) + far);
        let target = mean as f64;
        let is_within =
            mean_of(below, sigma, min, max) <= target && mean_of(above, sigma, min, max) >= target;
        if !is_within {
            let problem =
                format!("is {target}, too close to a bound; change min_bytes or max_bytes");
            return Err(WorkloadError::value("mean_bytes", problem));
        }
        // Bisection works, because the mean increases with mu.
        for _ in 0..200 {
            let middle = (below + above) / 2.0;
            if mean_of(middle, sigma, min, max) < target {
                below = middle;
            } else {
                above = middle;
            }
        }
        let mu = (below + above) / 2.0;
        let (low, high) = standardised(mu, sigma, min, max);
        let sign = if low + high > 0.0 { -1.0 } else { 1.0 };
        let (low, high) = if sign < 0.0 { (-high, -low) } else { (low, high) };
        Ok(Some(Self { mu, sigma, min, max, low: cumulative(low), high: cumulative(high), sign }))
    }

    /// The size below which a fraction `u` of all sizes lies.
    fn quantile(&self, u: f64) -> u64 {
        let z = self.sign * normal_quantile(self.low + u * (self.high - self.low));
        let size = libm::exp(self.mu + self.sigma * z);
        libm::round(size.clamp(self.min, self.max)) as u64
    }
}

fn standardised(mu: f64, sigma: f64, min: f64, max: f64) -> (f64, f64) {
    ((libm::log(min) - mu) / sigma, (libm::log(max) - mu) / sigma)
}

/// Mean of a log-normal distribution truncated to `min..=max`.
fn mean_of(mu: f64, sigma: f64, min: f64, max: f64) -> f64 {
    let (low, high) = standardised(mu, sigma, min, max);
    let mean = libm::exp(mu + sigma * sigma / 2.0);
    mean * normal_between(low - sigma, high - sigma) / normal_between(low, high)
}

/// The standard normal probability of `low..high`, precise in both tails.
fn normal_between(low: f64, high: f64) -> f64 {
    if low + high > 0.0 {
        cumulative(-low) - cumulative(-high)
    } else {
        cumulative(high) - cumulative(low)
    }
}

/// The standard normal distribution function.
fn cumulative(z: f64) -> f64 {
    libm::erfc(-z / SQRT_2) / 2.0
}

/// The inverse of [`cumulative`]: Acklam's rational approximation, refined by one step of Halley's
/// method.
fn normal_quantile(probability: f64) -> f64 {
    const EDGE: f64 = 0.02425;
    if probability <= 0.0 {
        return f64::NEG_INFINITY;
    }
    if probability >= 1.0 {
        return f64::INFINITY;
    }
    let rough = if probability < EDGE {
        quantile_in_tail(probability)
    } else if probability > 1.0 - EDGE {
        -quantile_in_tail(1.0 - probability)
    } else {
        quantile_in_middle(probability - 0.5)
    };
    let error = cumulative(rough) - probability;
    let step = error * libm::sqrt(2.0 * PI) * libm::exp(rough * rough / 2.0);
    rough - step / (1.0 + rough * step / 2.0)
}

fn quantile_in_middle(offset: f64) -> f64 {
    let r = offset * offset;
    let above = polynomial(
        &[
            -39.696_830_286_653_76,
            220.946_098_424_520_5,
            -275.928_510_446_968_7,
            138.357_751_867_269,
            -30.664_798_066_147_16,
            2.506_628_277_459_239,
        ],
        r,
    );
    let below = polynomial(
        &[
            -54.476_098_798_224_06,
            161.585_836_858_040_9,
            -155.698_979_859_886_6,
            66.801_311_887_719_72,
            -13.280_681_552_885_72,
            1.0,
        ],
        r,
    );
    offset * above / below
}

fn quantile_in_tail(probability: f64) -> f64 {
    let q = libm::sqrt(-2.0 * libm::log(probability));
    let above = polynomial(
        &[
            -0.007_784_894_002_430_293,
            -0.322_396_458_041_136_5,
            -2.400_758_277_161_838,
            -2.549_732_539_343_734,
            4.374_664_141_464_968,
            2.938_163_982_698_783,
        ],
        q,
    );
    let below = polynomial(
        &[
            0.007_784_695_709_041_462,
            0.322_467_129_070_039_8,
            2.445_134_137_142_996,
            3.754_408_661_907_416,
            1.0,
        ],
        q,
    );
    above / below
}

/// Horner's scheme, highest power first.
fn polynomial(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_inverts_the_distribution() {
        for exponent in -300..0 {
            let probability = libm::exp(f64::from(exponent));
            let relative = cumulative(normal_quantile(probability)) / probability - 1.0;
            assert!(relative.abs() < 1e-9, "{probability:e}: {relative:e}");
        }
        for percent in 1..100 {
            let probability = f64::from(percent) / 100.0;
            assert!((cumulative(normal_quantile(probability)) - probability).abs() < 1e-14);
        }
        assert!((normal_quantile(0.975) - 1.959_963_984_540_054).abs() < 1e-12);
    }

    /// Mean by Simpson's rule over the density, as an independent method.
    fn mean_by_integration(mu: f64, sigma: f64, min: f64, max: f64) -> f64 {
        let (low, high) = (libm::log(min), libm::log(max));
        let steps = 20_000;
        let width = (high - low) / f64::from(steps);
        let (mut mass, mut moment) = (0.0, 0.0);
        for step in 0..=steps {
            let x = low + f64::from(step) * width;
            let factor = match step {
                0 => 1.0,
                _ if step == steps => 1.0,
                _ if step % 2 == 1 => 4.0,
                _ => 2.0,
            };
            let density = factor * libm::exp(-(x - mu) * (x - mu) / (2.0 * sigma * sigma));
            mass += density;
            moment += density * libm::exp(x);
        }
        moment / mass
    }

    #[test]
    fn mean_is_kept_for_any_cut_offs() {
        for (mean, sigma, min, max) in [
            (10_000, 1.0, 100, 10_000_000),
            (10_000, 1.0, 9_000, 12_000),
            (10_000, 2.0, 5_000, 11_000),
            (1 << 20, 1.5, 1, 1 << 30),
            (500, 0.1, 1, 520),
        ] {
            let law = LogNormal::new(mean, sigma, min, max).unwrap().unwrap();
            let found = mean_by_integration(law.mu, sigma, min as f64, max as f64);
            assert!((found / mean as f64 - 1.0).abs() < 1e-6, "{mean} {sigma}: {found}");
        }
        assert!(LogNormal::new(100, 1.0, 200, 300).is_err());
        assert!(LogNormal::new(100, f64::NAN, 10, 300).is_err());
        assert!(LogNormal::new(200, 1.0, 200, 300).is_err());
    }
}
