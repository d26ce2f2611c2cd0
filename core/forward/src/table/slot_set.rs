//! The set of used slots of a slab. A random used slot can be drawn even if most slots are vacant.

use alloc::vec::Vec;

use weir_base::Rng;

/// One bit for each slot, and one bit for each word that is not zero.
#[derive(Default)]
pub(crate) struct SlotSet {
    words: Vec<u64>,
    summary: Vec<u64>,
}

impl SlotSet {
    #[inline]
    pub(crate) fn insert(&mut self, slot: u32) {
        let word = slot as usize / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
            self.summary.resize(word / 64 + 1, 0);
        }
        self.words[word] |= 1 << (slot % 64);
        self.summary[word / 64] |= 1 << (word % 64);
    }

    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        let word = slot as usize / 64;
        self.words[word] &= !(1 << (slot % 64));
        if self.words[word] == 0 {
            self.summary[word / 64] &= !(1 << (word % 64));
        }
    }

    /// Draws a used slot at random, all with about the same probability; `None` if no slot is used.
    pub(crate) fn sample(&self, rng: &mut Rng) -> Option<u32> {
        let words = u32::try_from(self.words.len()).ok().filter(|&words| words > 0)?;
        let mut word = self.next_word(rng.below(words) as usize)?;
        // Without these steps, slots behind a gap would be drawn too often.
        for _ in 0..rng.below(8) {
            word = self.next_word(word + 1)?;
        }
        let bits = self.words[word];
        let mut rest = bits;
        // Clears a random number of the lowest bits. The next bit is drawn.
        for _ in 0..rng.below(bits.count_ones()) {
            rest &= rest - 1;
        }
        Some(word as u32 * 64 + rest.trailing_zeros())
    }

    /// The first non-zero word at or after `start`, wrapping around.
    fn next_word(&self, start: usize) -> Option<usize> {
        self.word_from(start).or_else(|| self.word_from(0))
    }

    fn word_from(&self, start: usize) -> Option<usize> {
        let at = start / 64;
        let first = self.summary.get(at)? & (u64::MAX << (start % 64));
        if first != 0 {
            return Some(at * 64 + first.trailing_zeros() as usize);
        }
        let found = self.summary[at + 1..].iter().position(|&bits| bits != 0)? + at + 1;
        Some(found * 64 + self.summary[found].trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn samples_all_used_slots_and_no_others() {
        let mut rng = Rng::from_seed(1);
        let mut used = SlotSet::default();
        assert_eq!(used.sample(&mut rng), None);
        (0..100_000).for_each(|slot| used.insert(slot));
        let kept: Vec<u32> =
            (0..100_000).filter(|slot| slot % 1_000 < 3 && *slot > 9_000).collect();
        (0..100_000).filter(|slot| !kept.contains(slot)).for_each(|slot| used.remove(slot));
        let mut drawn: Vec<u32> = (0..20_000).filter_map(|_| used.sample(&mut rng)).collect();
        assert_eq!(drawn.len(), 20_000);
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn, kept);
        kept.iter().for_each(|&slot| used.remove(slot));
        assert_eq!(used.sample(&mut rng), None);
    }
}
