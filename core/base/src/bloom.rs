use crate::prefetch::prefetch_read;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

const COUNTERS: usize = 128;
/// Counters in a word, of 4 bits each.
const COUNTERS_PER_WORD: u32 = 16;
/// The largest value of a counter. A counter that reaches it stays there.
const COUNTER_MAX: u64 = 15;
/// Most probes for a hash: eight of 7 bits each, taken from 64 bits.
const PROBES_MAX: usize = 8;

/// The factor by which another probe must reduce memory to be worth its time.
const PROBE_GAIN_MIN: f64 = 1.02;

/// A cache line of counters.
#[repr(C, align(64))]
#[derive(Copy, Clone)]
struct Block([u64; COUNTERS / COUNTERS_PER_WORD as usize]);

/// A set of hashes with false positives but no false negatives. It is a counting Bloom filter (Fan,
/// Cao, Almeida and Broder, 2000) in blocks of one cache line (Putze, Sanders and Singler, 2009).
/// Paper nb-cache, III-B puts one in front of a store.
///
/// A hash selects one block and a few of its 128 counters of 4 bits, so a query reads one cache
/// line. Hashes must be uniform. If names come from strangers, the hashes must be keyed. A hash may
/// be inserted more than once.
///
/// A counter that reaches 15 stays at 15, because the number of hashes that share it is unknown.
/// Such a counter is never decremented, so no removal makes the filter forget another hash. It only
/// adds false positives. [`CountingBloom::saturated`] counts these counters; a filter of the right
/// size has practically none.
///
/// # False positives
///
/// Blocks get unequal numbers of hashes, which costs more than the classic formula says. With `n`
/// hashes in `b` blocks of `m = 128` counters, the load of a block is Poisson distributed with mean
/// `n / b`. A hash with `k` probes misses a given set of `d` counters with probability `(1 -
/// d/m)^k`. So all hashes of the block miss it with probability
///
/// ```text
/// e(d) = exp(-n/b * (1 - (1 - d/m)^k))
/// ```
///
/// A query makes `k` probes, each uniform among the `m` counters. Let `D(i, d)` be the probability
/// that `i` probes hit `d` different counters. Then `i` given probes all hit zeros with probability
/// `sum_d D(i, d) e(d)`. By inclusion and exclusion, all `k` probes hit counters in use with
/// probability
///
/// ```text
/// f = sum_i (-1)^i C(k, i) sum_d D(i, d) e(d)
/// ```
///
/// This is exact except for the Poisson distribution in place of the binomial one. The constructor
/// chooses the `k` that needs the fewest blocks, or a smaller one that needs hardly more. For 1 %
/// that is 5, at 5.5 bytes a hash.
#[derive(Clone)]
pub struct CountingBloom {
    blocks: Vec<Block>,
    probes: u32,
    saturated: u64,
}

impl CountingBloom {
    /// An empty filter. When it holds `entries` hashes, at most `false_positives_ppm` of a million
    /// other hashes are reported as present. With more entries there are more false positives.
    ///
    /// The rate is limited to 1 to 500,000.
    pub fn new(entries: u64, false_positives_ppm: u32) -> Self {
        let wanted = f64::from(false_positives_ppm.clamp(1, 500_000)) / 1e6;
        let (mut load, mut probes) = (0.0, 1);
        for candidate in 1..=PROBES_MAX {
            let candidate_load = load_max(candidate, wanted);
            if candidate_load > load * PROBE_GAIN_MIN {
                (load, probes) = (candidate_load, candidate);
            }
        }
        // Rounded up: a cast rounds down.
        let blocks = (entries as f64 / load) as usize + 1;
        Self { blocks: vec![Block([0; 8]); blocks], probes: probes as u32, saturated: 0 }
    }

    /// The number of the hash's block, and 64 bits whose upper bits are its probes, 7 bits each.
    ///
    /// The hash is read as a fraction of 1. Multiplied by the number of blocks, the integer part is
    /// the block, and the remainder is independent of it.
    #[inline(always)]
    fn block_and_probes(&self, hash: u64) -> (usize, u64) {
        let product = u128::from(hash) * self.blocks.len() as u128;
        let rest = product as u64;
        // The lowest bits of the remainder are zeros if the number of blocks is even.
        let probes = (rest ^ rest >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((product >> 64) as usize, probes)
    }

    #[inline]
    pub fn insert(&mut self, hash: u64) {
        let (block, mut bits) = self.block_and_probes(hash);
        for _ in 0..self.probes {
            bits = bits.rotate_left(7);
            let (word, shift) = counter(bits);
            let word = &mut self.blocks[block].0[word];
            let count = *word >> shift & COUNTER_MAX;
            if count != COUNTER_MAX {
                *word += 1 << shift;
                self.saturated += u64::from(count == COUNTER_MAX - 1);
            }
        }
    }

    /// Removes a hash that was inserted before.
    ///
    /// Never call it for a hash that is not in the filter: the filter would forget others.
    #[inline]
    pub fn remove(&mut self, hash: u64) {
        debug_assert!(self.contains(hash), "only what was added can be removed");
        let (block, mut bits) = self.block_and_probes(hash);
        for _ in 0..self.probes {
            bits = bits.rotate_left(7);
            let (word, shift) = counter(bits);
            let word = &mut self.blocks[block].0[word];
            let count = *word >> shift & COUNTER_MAX;
            if count != COUNTER_MAX && count != 0 {
                *word -= 1 << shift;
            }
        }
    }

    /// Whether the hash may be in the filter. If this returns false, it is certainly not.
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        let (block, mut bits) = self.block_and_probes(hash);
        let block = &self.blocks[block].0;
        for _ in 0..self.probes {
            bits = bits.rotate_left(7);
            let (word, shift) = counter(bits);
            if block[word] >> shift & COUNTER_MAX == 0 {
                return false;
            }
        }
        true
    }

    /// Prefetches the line of `hash` for a later call.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch_read(&self.blocks[self.block_and_probes(hash).0]);
    }

    pub fn memory_bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>()
    }

    /// Counters that have reached 15 and stay there.
    #[inline]
    pub fn saturated(&self) -> u64 {
        self.saturated
    }

    /// The probability, 0 to 1, of a false positive when the filter holds `entries`, by the formula
    /// above.
    #[cfg(test)]
    fn false_positive_rate(&self, entries: u64) -> f64 {
        rate(self.probes as usize, entries as f64 / self.blocks.len() as f64)
    }
}

impl fmt::Debug for CountingBloom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountingBloom")
            .field("blocks", &self.blocks.len())
            .field("probes", &self.probes)
            .field("saturated", &self.saturated)
            .finish()
    }
}

/// The word and the bit offset of the counter that the lowest 7 bits select.
#[inline(always)]
fn counter(bits: u64) -> (usize, u64) {
    ((bits & 7) as usize, bits >> 1 & 0x3C)
}

/// The highest mean load of a block, in hashes, at which the rate of false positives is at most
/// `wanted`.
fn load_max(probes: usize, wanted: f64) -> f64 {
    let (mut low, mut high) = (0.0, COUNTERS as f64 * 4.0);
    for _ in 0..48 {
        let middle = (low + high) / 2.0;
        if rate(probes, middle) <= wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// The probability of a false positive at this mean load of a block: `f` above.
fn rate(probes: usize, load: f64) -> f64 {
    let counters = COUNTERS as f64;
    let mut untouched = [1.0; PROBES_MAX + 1]; // e(d)
    for (different, untouched) in untouched.iter_mut().enumerate() {
        let miss = 1.0 - different as f64 / counters;
        let all_miss = (0..probes).fold(1.0, |product, _| product * miss);
        *untouched = libm::exp(-load * (1.0 - all_miss));
    }
    let mut meets = [0.0; PROBES_MAX + 1]; // D(i, d)
    meets[0] = 1.0;
    let (mut sum, mut choices) = (0.0, 1.0); // (-1)^i C(k, i)
    for taken in 0..=probes {
        let all_zero: f64 = meets.iter().zip(&untouched).map(|(meets, all)| meets * all).sum();
        sum += choices * all_zero;
        choices *= -((probes - taken) as f64) / (taken + 1) as f64;
        for different in (0..=PROBES_MAX).rev() {
            let stays = meets[different] * different as f64 / counters;
            let grows = match different {
                0 => 0.0,
                _ => meets[different - 1] * (counters - (different - 1) as f64) / counters,
            };
            meets[different] = stays + grows;
        }
    }
    sum.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests;
