//! Random numbers for workloads. Logarithms and other functions come from `libm`: unlike the
//! platform's library, it gives the same results on every machine.

use weir_base::Rng;

/// Maps any number, 0 included, to one without a pattern: one step of SplitMix64.
#[inline]
pub(crate) const fn mix(number: u64) -> u64 {
    weir_base::mix(number.wrapping_add(0x9E37_79B9_7F4A_7C15))
}

#[inline]
pub(crate) fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * libm::log1p(-rng.unit())
}

/// Uniform in `0..bound` without bias (Lemire's method); 0 if `bound` is 0.
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
