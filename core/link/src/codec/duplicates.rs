use alloc::vec;
use alloc::vec::Vec;

use weir_base::Instant;

use super::config::LOST_FOR_GOOD_NS;

const SLOTS_MIN: usize = 64;
/// Bound on the Sequences remembered of one sender (256 KiB): more than a second at 16,000 frames a
/// second. A duplicate of an older one passes, as it would without reliability.
const SLOTS_MAX: usize = 1 << 14;

/// The Sequences that came lately. They count up, so that one of which the low bits are the same is
/// the oldest that there can be: a table indexed by these bits forgets in the right order, whatever
/// number a sender begins with, or begins anew with.
#[derive(Debug, Default)]
pub(super) struct Duplicates {
    slots: Vec<Slot>,
}

#[derive(Copy, Clone, Debug, Default)]
struct Slot {
    sequence: u64,
    forgotten_at: Instant,
}

impl Duplicates {
    /// Whether `sequence` came before; it has from now on.
    pub(super) fn is_duplicate(&mut self, now: Instant, sequence: u64) -> bool {
        loop {
            let at = self.place_of(sequence);
            if let Some(slot) = self.slots.get_mut(at) {
                let is_known = now < slot.forgotten_at;
                let is_same = slot.sequence == sequence;
                if !is_known || is_same || self.slots.len() == SLOTS_MAX {
                    let forgotten_at = now.plus_ns(LOST_FOR_GOOD_NS);
                    self.slots[at] = Slot { sequence, forgotten_at };
                    return is_known && is_same;
                }
            }
            self.grow(now);
        }
    }

    /// Octets of memory.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.slots = Vec::new();
    }

    fn place_of(&self, sequence: u64) -> usize {
        sequence as usize & self.slots.len().wrapping_sub(1)
    }

    #[cold]
    fn grow(&mut self, now: Instant) {
        let slots = vec![Slot::default(); (2 * self.slots.len()).max(SLOTS_MIN)];
        let before = core::mem::replace(&mut self.slots, slots);
        for slot in before.into_iter().filter(|slot| now < slot.forgotten_at) {
            let at = self.place_of(slot.sequence);
            self.slots[at] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_latest_and_is_bounded() {
        let mut seen = Duplicates::default();
        let now = Instant::from_ns(1);
        let count = 3 * SLOTS_MAX as u64;
        let first = u64::MAX - count / 2;
        for place in 0..count {
            assert!(!seen.is_duplicate(now, first.wrapping_add(place)));
        }
        assert_eq!(seen.bytes(), SLOTS_MAX * size_of::<Slot>());
        for place in count - SLOTS_MAX as u64..count {
            assert!(seen.is_duplicate(now, first.wrapping_add(place)));
        }
        assert!(!seen.is_duplicate(now, first), "older than the table is long");
    }

    #[test]
    fn forgets_in_time() {
        let mut seen = Duplicates::default();
        let at = Instant::from_ns;
        assert!(!seen.is_duplicate(at(5), 7));
        assert!(seen.is_duplicate(at(4 + LOST_FOR_GOOD_NS), 7));
        assert!(!seen.is_duplicate(at(4 + 2 * LOST_FOR_GOOD_NS), 7));
        // A peer that begins anew, with the numbers of a first life that was long ago.
        let mut seen = Duplicates::default();
        (0..1000).for_each(|number| assert!(!seen.is_duplicate(at(9), number)));
        let later = at(9 + LOST_FOR_GOOD_NS);
        let bytes = seen.bytes();
        (0..1000).for_each(|number| assert!(!seen.is_duplicate(later, number)));
        assert_eq!(seen.bytes(), bytes);
    }
}
