use alloc::vec;
use alloc::vec::Vec;

use weir_base::Instant;

use crate::codec::config::FRAME_LIFETIME_NS;

const SLOTS_MIN: usize = 64;
/// Maximum number of Sequences that are remembered for one sender (256 KiB): more than a second at
/// 16,000 frames a second. A duplicate of an older one is accepted, as without reliability.
const SLOTS_MAX: usize = 1 << 14;

/// A sender that counts up fills the slots in order. If two Sequences collide although fewer than
/// one in this many slots is used, an attacker has chosen them. A larger table would not help.
const SPARSE_DIVISOR: usize = 8;

/// The Sequences that were received recently. A sender counts up, so two Sequences with the same
/// low bits are far apart. A table indexed by the low bits therefore replaces the oldest ones
/// first. This does not depend on the first number of a sender.
#[derive(Debug, Default)]
pub(super) struct Duplicates {
    slots: Vec<Slot>,
    /// Approximate number of used slots.
    known: usize,
}

#[derive(Copy, Clone, Debug, Default)]
struct Slot {
    sequence: u64,
    forgotten_at: Instant,
}

impl Duplicates {
    /// Whether `sequence` was received before. Remembers it.
    pub(super) fn is_duplicate(&mut self, now: Instant, sequence: u64) -> bool {
        if self.slots.is_empty() {
            self.grow(now);
        }
        let mut at = self.slot_of(sequence);
        let is_known = |slot: &Slot| now < slot.forgotten_at;
        // The table grows only if it is well filled. Otherwise an attacker could make it grow with
        // two Sequences that collide.
        while is_known(&self.slots[at])
            && self.slots[at].sequence != sequence
            && SPARSE_DIVISOR * self.known >= self.slots.len()
            && self.slots.len() < SLOTS_MAX
        {
            self.grow(now);
            at = self.slot_of(sequence);
        }
        let slot = &mut self.slots[at];
        let was_known = is_known(slot);
        self.known = (self.known + usize::from(!was_known)).min(SLOTS_MAX);
        let is_duplicate = was_known && slot.sequence == sequence;
        *slot = Slot { sequence, forgotten_at: now.plus_ns(FRAME_LIFETIME_NS) };
        is_duplicate
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn slot_of(&self, sequence: u64) -> usize {
        sequence as usize & self.slots.len().wrapping_sub(1)
    }

    #[cold]
    fn grow(&mut self, now: Instant) {
        let slots = vec![Slot::default(); (2 * self.slots.len()).max(SLOTS_MIN)];
        let before = core::mem::replace(&mut self.slots, slots);
        self.known = 0;
        for slot in before.into_iter().filter(|slot| now < slot.forgotten_at) {
            let at = self.slot_of(slot.sequence);
            self.slots[at] = slot;
            self.known += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_latest_sequences() {
        let mut seen = Duplicates::default();
        let now = Instant::from_ns(1);
        let count = 3 * SLOTS_MAX as u64;
        let first = u64::MAX - count / 2;
        for number in 0..count {
            assert!(!seen.is_duplicate(now, first.wrapping_add(number)));
        }
        assert_eq!(seen.bytes(), SLOTS_MAX * size_of::<Slot>());
        for number in count - SLOTS_MAX as u64..count {
            assert!(seen.is_duplicate(now, first.wrapping_add(number)));
        }
        assert!(!seen.is_duplicate(now, first), "older than the table is long");
    }

    /// Two frames of an attacker, and few frames of a peer that has restarted with other numbers.
    #[test]
    fn grows_with_count_not_with_numbers() {
        let mut seen = Duplicates::default();
        let now = Instant::from_ns(1);
        for round in 0..10_000 {
            seen.is_duplicate(now, (round % 2) * SLOTS_MAX as u64);
        }
        assert_eq!(seen.bytes(), SLOTS_MIN * size_of::<Slot>());
        let mut seen = Duplicates::default();
        for round in 0..20 {
            (0..5).for_each(|number| _ = seen.is_duplicate(now, round * 1_000_003 + number));
        }
        assert!(seen.bytes() <= 4 * SLOTS_MIN * size_of::<Slot>(), "{} octets", seen.bytes());
    }

    #[test]
    fn forgets_after_frame_lifetime() {
        let mut seen = Duplicates::default();
        let at = Instant::from_ns;
        assert!(!seen.is_duplicate(at(5), 7));
        assert!(seen.is_duplicate(at(4 + FRAME_LIFETIME_NS), 7));
        assert!(!seen.is_duplicate(at(4 + 2 * FRAME_LIFETIME_NS), 7));
        // A peer that has restarted with numbers that it used long ago.
        let mut seen = Duplicates::default();
        (0..1000).for_each(|number| assert!(!seen.is_duplicate(at(9), number)));
        let later = at(9 + FRAME_LIFETIME_NS);
        let bytes = seen.bytes();
        (0..1000).for_each(|number| assert!(!seen.is_duplicate(later, number)));
        assert_eq!(seen.bytes(), bytes);
    }
}
