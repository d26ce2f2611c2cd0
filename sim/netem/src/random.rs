//! Random draws from the workspace's seeded generator. Logarithms come from `libm`: unlike the
//! platform's library, it gives the same result on every machine.

use weir_base::{Rng, mix};

/// Exponential with mean 1.
#[inline]
pub(crate) fn exponential(rng: &mut Rng) -> f64 {
    -libm::log1p(-rng.unit())
}

/// Normal with mean 0 and standard deviation 1 (Marsaglia's polar method).
#[inline]
pub(crate) fn normal(rng: &mut Rng) -> f64 {
    loop {
        let (x, y) = (2.0 * rng.unit() - 1.0, 2.0 * rng.unit() - 1.0);
        let square = x * x + y * y;
        if square > 0.0 && square < 1.0 {
            return x * libm::sqrt(-2.0 * libm::log(square) / square);
        }
    }
}

/// Uniform from 0 to `max`, both included. The bias is below `max` / 2^64.
#[inline]
pub(crate) fn up_to(rng: &mut Rng, max: u64) -> u64 {
    let product = u128::from(rng.next_u64()) * (u128::from(max) + 1);
    (product >> 64) as u64
}

/// A generator for one of several purposes that share `seed`. Draws for one purpose do not affect
/// the others.
pub(crate) fn stream(seed: u64, purpose: u64) -> Rng {
    // Adjacent seeds and purposes give unrelated states.
    Rng::from_seed(mix(
        seed.wrapping_add(purpose.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    ))
}

/// An event with a fixed probability, decided by an integer comparison.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Chance {
    /// Probability in units of 2^-64; `None` is certainty.
    threshold: Option<u64>,
}

impl Chance {
    /// NaN counts as 0. A value outside 0 to 1 counts as the nearer end.
    pub(crate) fn new(probability: f64) -> Self {
        if probability >= 1.0 {
            return Self { threshold: None };
        }
        // The cast maps NaN and negative numbers to 0.
        Self { threshold: Some((probability * 18_446_744_073_709_551_616.0) as u64) }
    }

    /// Draws a number only if the outcome is uncertain.
    #[inline]
    pub(crate) fn happens(self, rng: &mut Rng) -> bool {
        match self.threshold {
            Some(0) => false,
            Some(threshold) => rng.next_u64() < threshold,
            None => true,
        }
    }
}
