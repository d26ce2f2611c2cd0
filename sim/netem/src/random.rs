//! Draws from the workspace's seeded generator.

use std::convert::Infallible;

use rand_core::TryRng;
use rand_distr::{Distribution as _, Exp1, StandardNormal};
use weir_base::Rng;

/// Lets distributions draw from [`Rng`].
struct Source<'a>(&'a mut Rng);

impl TryRng for Source<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.0.next_u32())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.next_u64())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill(bytes);
        Ok(())
    }
}

/// Exponential with mean 1.
#[inline]
pub(crate) fn exponential(rng: &mut Rng) -> f64 {
    Exp1.sample(&mut Source(rng))
}

/// Normal with mean 0 and standard deviation 1.
#[inline]
pub(crate) fn normal(rng: &mut Rng) -> f64 {
    StandardNormal.sample(&mut Source(rng))
}

/// Uniform in [0, 1), of 53 bits.
#[inline]
pub(crate) fn unit(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// Uniform in 0 to `max`, both included. The bias is below `max` / 2^64.
#[inline]
pub(crate) fn up_to(rng: &mut Rng, max: u64) -> u64 {
    let product = u128::from(rng.next_u64()) * (u128::from(max) + 1);
    (product >> 64) as u64
}

/// A generator for one purpose of many that share `seed`, so that what one purpose draws changes
/// nothing for the others.
pub(crate) fn stream(seed: u64, purpose: u64) -> Rng {
    // SplitMix64's finaliser: neighbouring seeds and purposes give unrelated states.
    let mut z = seed.wrapping_add(purpose.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Rng::from_seed(z ^ (z >> 31))
}

/// An event with a fixed probability, decided by comparing integers.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Chance {
    /// Probability in units of 2^-64; `None` is certainty.
    threshold: Option<u64>,
}

impl Chance {
    /// What is no number counts as 0, what is outside 0 to 1 as the nearer end.
    pub(crate) fn new(probability: f64) -> Self {
        if probability >= 1.0 {
            return Self { threshold: None };
        }
        // The cast takes NaN and negative numbers to 0.
        Self { threshold: Some((probability * 18_446_744_073_709_551_616.0) as u64) }
    }

    /// Draws only if the answer is open.
    #[inline]
    pub(crate) fn happens(self, rng: &mut Rng) -> bool {
        match self.threshold {
            Some(0) => false,
            Some(threshold) => rng.next_u64() < threshold,
            None => true,
        }
    }
}
