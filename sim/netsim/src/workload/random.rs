//! Random numbers for workloads. Logarithms and the like come from `libm`, whose results are the
//! same on every machine, unlike those of the platform's library.

use weir_base::Rng;

/// A bijection of 64 bits that leaves no pattern (SplitMix64, Steele, Lea and Flood 2014).
#[inline]
pub(crate) const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// 64 uniform bits as a number of `0..1`.
#[inline]
pub(crate) fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// Exponentially distributed with this mean.
#[inline]
pub(crate) fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * libm::log1p(-unit(rng.next_u64()))
}

/// Uniform in `0..bound` without bias (Lemire's method), 0 when `bound` is 0.
#[inline]
pub(crate) fn below(rng: &mut Rng, bound: u64) -> u64 {
    let mut product = u128::from(rng.next_u64()) * u128::from(bound);
    if (product as u64) < bound {
        let threshold = bound.wrapping_neg() % bound;
        while (product as u64) < threshold {
            product = u128::from(rng.next_u64()) * u128::from(bound);
        }
    }
    (product >> 64) as u64
}
