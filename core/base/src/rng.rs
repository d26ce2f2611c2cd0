use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;

/// A bijection of 64 bits that makes neighbouring numbers unrelated; 0 stays 0 (the finaliser of
/// SplitMix64, Steele, Lea and Flood 2014).
#[inline]
pub const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// Converts 64 uniform bits to a number uniform in `0..1`, with 53 bits.
#[inline]
pub const fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// A seeded random number generator (PCG XSL RR 128/64). A seed gives the same sequence on every
/// machine.
///
/// Not for keys, or anything else that an attacker must not predict.
#[derive(Clone, Debug)]
pub struct Rng(Pcg64);

impl Rng {
    /// A generator whose sequence is determined by `seed`.
    pub fn from_seed(seed: u64) -> Self {
        Self(Pcg64::seed_from_u64(seed))
    }

    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number uniform in `0..bound` without bias (Lemire's method); 0 if `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u32) -> u32 {
        let mut product = u64::from(self.next_u32()) * u64::from(bound);
        if (product as u32) < bound {
            let threshold = bound.wrapping_neg() % bound;
            while (product as u32) < threshold {
                product = u64::from(self.next_u32()) * u64::from(bound);
            }
        }
        (product >> 32) as u32
    }

    /// A number uniform in `0..1`, with 53 bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        unit(self.next_u64())
    }

    /// Fills `bytes` with uniform bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_is_fixed() {
        let mut rng = Rng::from_seed(1);
        let first = [rng.next_u64(), rng.next_u64()];
        assert_eq!(first, [15_492_934_433_077_865_799, 319_104_231_195_455_319]);
    }

    #[test]
    fn below_is_in_range_and_uniform() {
        let mut rng = Rng::from_seed(7);
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
        let mut counts = [0u32; 6];
        for _ in 0..6_000 {
            counts[rng.below(6) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (850..1150).contains(&count)), "{counts:?}");
    }

    /// The first numbers of the published generator with seed 0.
    #[test]
    fn mix_is_the_finaliser_of_splitmix64() {
        let step = |number: u64| mix(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        assert_eq!(step(1), 0xE220_A839_7B1D_CDAF);
        assert_eq!(step(2), 0x6E78_9E6A_A1B9_65F4);
        assert_eq!(mix(0), 0);
    }

    #[test]
    fn unit_is_in_range_and_even() {
        assert_eq!(unit(0), 0.0);
        assert_eq!(unit(1 << 63), 0.5);
        assert!(unit(u64::MAX) < 1.0);
        let mut rng = Rng::from_seed(5);
        let mut counts = [0u32; 8];
        for _ in 0..8_000 {
            counts[(rng.unit() * 8.0) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (850..1150).contains(&count)), "{counts:?}");
    }

    #[test]
    fn fill_covers_every_octet() {
        let mut bytes = [0u8; 333];
        Rng::from_seed(3).fill(&mut bytes);
        assert!(bytes.chunks(16).all(|chunk| chunk.iter().any(|&octet| octet != 0)));
        let mut again = [0u8; 333];
        Rng::from_seed(3).fill(&mut again);
        assert_eq!(bytes, again);
    }
}
