use alloc::vec;
use alloc::vec::Vec;
use weir_base::{equal_words, prefetch_read};

const WAYS: usize = 8;

/// One cache line of remembered names.
#[repr(C, align(64))]
#[derive(Copy, Clone)]
struct Set {
    /// The upper half of the hash with the lowest bit set; 0: vacant.
    tags: [u32; WAYS],
    /// The list's insertion count when the name was inserted.
    times: [u32; WAYS],
}

impl Set {
    const EMPTY: Self = Self { tags: [0; WAYS], times: [0; WAYS] };

    /// Inserts a name in place of a vacant way, or of the oldest name.
    #[inline]
    fn put(&mut self, tag: u32, time: u32, clock: u32) {
        let way = match equal_words(&self.tags, 0).checked_ilog2() {
            Some(vacant) => vacant as usize,
            None => (0..WAYS).max_by_key(|&way| clock.wrapping_sub(self.times[way])).unwrap_or(0),
        };
        self.tags[way] = tag;
        self.times[way] = time;
    }
}

/// The names of recently evicted entries, by 31 bits of their hash.
///
/// Each operation touches one cache line. A full line forgets its oldest name too early, and two
/// names with the same tag are confused. Both only make the eviction policy slightly worse.
pub(super) struct GhostList {
    /// A power of two.
    sets: Vec<Set>,
    clock: u32,
}

impl GhostList {
    pub(super) fn new() -> Self {
        Self { sets: vec![Set::EMPTY; 1], clock: 0 }
    }

    #[inline]
    fn set_of(&self, tag: u32) -> usize {
        let shift = 32 - self.sets.len().trailing_zeros();
        (u64::from(tag) >> shift) as usize
    }

    #[inline]
    fn tag(hash: u64) -> u32 {
        (hash >> 32) as u32 | 1
    }

    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch_read(&self.sets[self.set_of(Self::tag(hash))]);
    }

    /// Remembers a name, for the next `window` insertions at most.
    #[inline]
    pub(super) fn insert(&mut self, hash: u64, window: u32) {
        if window as usize > self.sets.len() * WAYS {
            self.grow(window);
        }
        self.clock = self.clock.wrapping_add(1);
        let tag = Self::tag(hash);
        let set = self.set_of(tag);
        self.sets[set].put(tag, self.clock, self.clock);
    }

    /// Whether the name was remembered. Forgets it.
    #[inline]
    pub(super) fn take(&mut self, hash: u64, window: u32) -> bool {
        let tag = Self::tag(hash);
        let set = self.set_of(tag);
        let set = &mut self.sets[set];
        let mut found = false;
        let mut bits = equal_words(&set.tags, tag);
        while bits != 0 {
            let way = bits.trailing_zeros() as usize % WAYS;
            found |= self.clock.wrapping_sub(set.times[way]) < window;
            set.tags[way] = 0;
            bits &= bits - 1;
        }
        found
    }

    #[cold]
    fn grow(&mut self, window: u32) {
        let sets = (window as usize).div_ceil(WAYS).next_power_of_two();
        let old = core::mem::replace(&mut self.sets, vec![Set::EMPTY; sets]);
        for set in &old {
            for (&tag, &time) in set.tags.iter().zip(&set.times).filter(|&(&tag, _)| tag != 0) {
                let at = self.set_of(tag);
                self.sets[at].put(tag, time, self.clock);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> u64 {
        number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn remembers_latest_names_once() {
        let mut ghost = GhostList::new();
        for number in 0..1_000 {
            ghost.insert(hash(number), 100);
        }
        let remembered = (0..1_000).filter(|&number| ghost.take(hash(number), 100)).count();
        assert!((80..=100).contains(&remembered), "{remembered}");
        assert!((900..1_000).all(|number| !ghost.take(hash(number), 100)));
    }

    /// Compares with a set that looks at one way after the other.
    #[test]
    fn full_set_forgets_oldest() {
        let mut ghost = GhostList::new();
        let mut known: [Option<(u32, u32)>; WAYS] = [None; WAYS];
        let mut rng = weir_base::Rng::from_seed(4);
        for _ in 0..5_000 {
            let number = hash(rng.below(12).into());
            let tag = GhostList::tag(number);
            if rng.below(3) > 0 {
                ghost.insert(number, 8);
                let age = |way: &usize| known[*way].map_or(u32::MAX, |(_, at)| ghost.clock - at);
                let way = (0..WAYS).max_by_key(age).unwrap();
                known[way] = Some((tag, ghost.clock));
            } else {
                let is_known = |(of, at): (u32, u32)| of == tag && ghost.clock - at < 8;
                let expected = known.iter().flatten().any(|&one| is_known(one));
                assert_eq!(ghost.take(number, 8), expected);
                known
                    .iter_mut()
                    .filter(|one| one.is_some_and(|(of, _)| of == tag))
                    .for_each(|one| *one = None);
            }
            let tags = known.map(|one| one.map_or(0, |(tag, _)| tag));
            assert_eq!(
                ghost.sets[0].tags, tags,
                "in the very places: they decide what is forgotten"
            );
        }
    }

    #[test]
    fn growth_keeps_what_fits() {
        let mut ghost = GhostList::new();
        for number in 0..8 {
            ghost.insert(hash(number), 8);
        }
        ghost.insert(hash(8), 4_000);
        assert_eq!(ghost.sets.len(), 512);
        assert!((0..=8).all(|number| ghost.take(hash(number), 4_000)));
    }
}
