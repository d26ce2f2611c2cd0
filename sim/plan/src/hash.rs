//! Fast hashes that are equal on every machine, for checks and event hashes. They are not safe
//! against attackers.

use weir_base::mix;

const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

#[inline]
pub fn of_octets(octets: &[u8]) -> u64 {
    let (words, rest) = octets.as_chunks::<8>();
    let mut hash = octets.len() as u64;
    for &word in words {
        hash = fold(hash ^ u64::from_le_bytes(word)).wrapping_add(MULTIPLIER);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(fold(hash ^ u64::from_le_bytes(last)).wrapping_add(MULTIPLIER))
}

/// Combines both halves of the product, so that every input bit affects every output bit. With the
/// lower half alone, names whose digits cross a word boundary collide.
#[inline]
fn fold(word: u64) -> u64 {
    let product = u128::from(word) * u128::from(MULTIPLIER);
    product as u64 ^ (product >> 64) as u64
}

/// Derives the seed of one of many generators from `seed`. Draws of one generator do not affect
/// others.
pub fn seed_of(seed: u64, part: SeedPurpose, index: u64) -> u64 {
    mix(mix(seed.wrapping_add((part as u64 + 1).wrapping_mul(MULTIPLIER))).wrapping_add(index))
}

/// The purpose of a random generator. Existing values must not change: they are part of every seed.
#[derive(Clone, Copy)]
pub enum SeedPurpose {
    /// Consumers and producers.
    App,
    /// Links: loss and jitter.
    Link,
    /// Routers: nonces and probes.
    Router,
    /// Keys of routers' name hashes.
    HashKey,
    /// Service times of stages.
    Stage,
    /// Initial content of stores.
    Fill,
    /// Bytes that a fault flips.
    WrongBytes,
    /// Times and faults of disks.
    Disk,
    /// Initial content of disks.
    FillDisk,
    /// Times of shared disks.
    SharedDisk,
    /// Marks and queues of faces.
    Egress,
    /// Interest shaping of faces.
    Shaping,
}

/// A digest of a stream of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(u64);

impl Digest {
    /// Adds a number.
    #[inline]
    pub fn mix(&mut self, word: u64) {
        self.0 = fold(self.0 ^ word).wrapping_add(MULTIPLIER);
    }

    /// The digest of the numbers so far.
    #[inline]
    #[must_use]
    pub fn value(self) -> u64 {
        mix(self.0)
    }
}

/// A hasher for maps whose keys are already hashes.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrehashedHasher(u64);

impl std::hash::Hasher for PrehashedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, octets: &[u8]) {
        self.0 = of_octets(octets);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

pub type HashedMap<T> =
    std::collections::HashMap<u64, T, std::hash::BuildHasherDefault<PrehashedHasher>>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that differ in a number, with any alignment of words.
    #[test]
    fn numbered_names_do_not_collide() {
        for filler in 0..8 {
            let name = |number: u32| format!("{}{number:08}/0", "x".repeat(filler));
            let mut hashes: Vec<_> =
                (0..200_000).map(|number| of_octets(name(number * 7).as_bytes())).collect();
            hashes.sort_unstable();
            assert!(hashes.windows(2).all(|pair| pair[0] != pair[1]), "{filler} bytes before");
        }
    }

    #[test]
    fn every_byte_and_their_order_count() {
        let base: Vec<u8> = (0..21).collect();
        for at in 0..base.len() {
            let mut other = base.clone();
            other[at] ^= 1;
            assert_ne!(of_octets(&base), of_octets(&other), "byte {at}");
        }
        assert_ne!(of_octets(&[0]), of_octets(&[0, 0]));
        let mut forwards = Digest::default();
        let mut backwards = Digest::default();
        for word in 0..9 {
            forwards.mix(word);
            backwards.mix(8 - word);
        }
        assert_ne!(forwards.value(), backwards.value());
    }
}
