use crate::prefetch::prefetch_pointer;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Enough for every tick of 64 bits.
const LEVELS: usize = 11;
const NONE: u32 = u32::MAX;
/// The slot of a key without a timer.
const IDLE: u16 = u16::MAX;

/// A key's timer, and its place in the list of its slot.
#[derive(Copy, Clone)]
struct Timer {
    deadline: Instant,
    next: u32,
    previous: u32,
    /// `level * SLOTS + slot`, or [`IDLE`].
    slot: u16,
}

impl Timer {
    const IDLE: Self = Self { deadline: Instant::ZERO, next: NONE, previous: NONE, slot: IDLE };
}

/// A hierarchical timer wheel (Varghese and Lauck, 1987) with one timer for each key.
///
/// Keys are small integers, as a [`Slab`](crate::Slab) gives them: memory is 24 octets for each key
/// up to the largest, and nothing is allocated for a timer of a key seen before. Schedule and
/// cancel take constant time.
pub struct TimerWheel {
    tick_ns: u64,
    /// The tick up to which timers have expired.
    now_tick: u64,
    /// Level 0 has a slot for each tick; a slot of a level above spans 64 slots of the level below.
    heads: Box<[[u32; SLOTS]; LEVELS]>,
    /// A bit for each slot that is not empty.
    occupied: [u64; LEVELS],
    timers: Vec<Timer>,
    len: usize,
}

impl TimerWheel {
    /// A wheel with ticks of `tick_ns` nanoseconds, whose timers start at `now`.
    ///
    /// # Panics
    /// When `tick_ns` is 0.
    pub fn new(tick_ns: u64, now: Instant) -> Self {
        assert!(tick_ns > 0, "a tick takes time");
        Self {
            tick_ns,
            now_tick: now.as_ns() / tick_ns,
            heads: Box::new([[NONE; SLOTS]; LEVELS]),
            occupied: [0; LEVELS],
            timers: Vec::new(),
            len: 0,
        }
    }

    /// The number of timers that run.
    #[inline]
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether no timer runs.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.heads) + self.timers.capacity() * size_of::<Timer>()
    }

    /// Starts the timer of `key`, or moves it. A time that is past expires with the next
    /// [`TimerWheel::advance`].
    ///
    /// # Panics
    /// When `key` is `u32::MAX`.
    #[inline(always)]
    pub fn schedule(&mut self, key: u32, at: Instant) {
        assert!(key != NONE, "u32::MAX is no key");
        if key as usize >= self.timers.len() {
            self.timers.resize(key as usize + 1, Timer::IDLE);
        }
        if self.timers[key as usize].slot == IDLE {
            self.len += 1;
        } else {
            self.remove_timer(key);
        }
        self.insert_timer(key, at);
    }

    /// Stops the timer of `key`, if it runs.
    #[inline]
    pub fn cancel(&mut self, key: u32) {
        if self.timers.get(key as usize).is_some_and(|link| link.slot != IDLE) {
            self.remove_timer(key);
            self.timers[key as usize].slot = IDLE;
            self.len -= 1;
        }
    }

    /// Asks for the memory of the timer of `key` without waiting for it.
    #[inline(always)]
    pub fn prefetch(&self, key: u32) {
        prefetch_pointer(self.timers.as_ptr().wrapping_add(key as usize).cast());
    }

    /// When the timer of `key` is due, if it runs.
    #[inline]
    pub fn deadline(&self, key: u32) -> Option<Instant> {
        self.timers.get(key as usize).filter(|link| link.slot != IDLE).map(|link| link.deadline)
    }

    /// Appends the keys of all timers that are due at `now` to `expired` and stops them. Never
    /// early, and late by less than a tick.
    ///
    /// The order is that of the ticks, within a tick that of the deadlines, and for equal deadlines
    /// that of the keys: it does not depend on how the timers were started.
    pub fn advance(&mut self, now: Instant, expired: &mut Vec<u32>) {
        let target = now.as_ns() / self.tick_ns;
        while let Some((level, slot, tick)) = self.next_slot() {
            if tick > target {
                break;
            }
            self.now_tick = tick.max(self.now_tick);
            if level == 0 {
                self.expire(slot, expired);
            } else {
                self.cascade(level, slot);
            }
        }
        self.now_tick = self.now_tick.max(target);
    }

    /// When [`TimerWheel::advance`] should be called next: never later than the tick of the first
    /// deadline, but perhaps earlier, when timers far ahead must move to a finer level.
    #[inline]
    pub fn next_wakeup(&self) -> Option<Instant> {
        let (_, _, tick) = self.next_slot()?;
        Some(Instant::from_ns(tick.saturating_mul(self.tick_ns)))
    }

    /// The first slot that is not empty, and the tick it starts with.
    #[inline]
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        // All of a level comes before all of the level above.
        let level = self.occupied.iter().position(|&slots| slots != 0)?;
        // Slots before the present one are empty, so the first is the next.
        let slot = self.occupied[level].trailing_zeros();
        let shift = level as u32 * SLOT_BITS;
        let above = self.now_tick.checked_shr(shift + SLOT_BITS).unwrap_or(0);
        let start = above.checked_shl(shift + SLOT_BITS).unwrap_or(0) | u64::from(slot) << shift;
        Some((level, slot as usize, start))
    }

    fn expire(&mut self, slot: usize, expired: &mut Vec<u32>) {
        let first = expired.len();
        let mut key = core::mem::replace(&mut self.heads[0][slot], NONE);
        self.occupied[0] &= !(1 << slot);
        while key != NONE {
            let link = &mut self.timers[key as usize];
            expired.push(key);
            link.slot = IDLE;
            key = link.next;
            self.len -= 1;
        }
        expired[first..].sort_unstable_by_key(|&key| (self.timers[key as usize].deadline, key));
    }

    /// Spreads the timers of a slot that has begun over the levels below.
    fn cascade(&mut self, level: usize, slot: usize) {
        let mut key = core::mem::replace(&mut self.heads[level][slot], NONE);
        self.occupied[level] &= !(1 << slot);
        while key != NONE {
            let Timer { deadline: at, next, .. } = self.timers[key as usize];
            self.insert_timer(key, at);
            key = next;
        }
    }

    /// The level and slot of a timer due at `deadline`, seen from now: the level is that of the first
    /// digit in which the ticks differ.
    #[inline]
    fn slot_for(&self, at: Instant) -> (usize, usize) {
        let tick = at.as_ns().div_ceil(self.tick_ns).max(self.now_tick);
        let difference = (tick ^ self.now_tick) | (SLOTS as u64 - 1);
        let level = (63 - difference.leading_zeros()) / SLOT_BITS;
        let slot = (tick >> (level * SLOT_BITS)) as usize % SLOTS;
        (level as usize, slot)
    }

    #[inline]
    fn insert_timer(&mut self, key: u32, at: Instant) {
        let (level, slot) = self.slot_for(at);
        let next = core::mem::replace(&mut self.heads[level][slot], key);
        self.occupied[level] |= 1 << slot;
        if next != NONE {
            self.timers[next as usize].previous = key;
        }
        let slot = (level * SLOTS + slot) as u16;
        self.timers[key as usize] = Timer { deadline: at, next, previous: NONE, slot };
    }

    #[inline]
    fn remove_timer(&mut self, key: u32) {
        let Timer { next, previous, slot, .. } = self.timers[key as usize];
        if next != NONE {
            self.timers[next as usize].previous = previous;
        }
        if previous != NONE {
            self.timers[previous as usize].next = next;
            return;
        }
        let (level, slot) = (usize::from(slot) / SLOTS, usize::from(slot) % SLOTS);
        self.heads[level][slot] = next;
        if next == NONE {
            self.occupied[level] &= !(1 << slot);
        }
    }
}

impl fmt::Debug for TimerWheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerWheel")
            .field("len", &self.len)
            .field("now_tick", &self.now_tick)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
