use crate::prefetch::prefetch_pointer;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Enough for a tick of 64 bits.
const LEVELS: usize = 11;
const NONE: u32 = u32::MAX;
/// The slot of a key without a timer.
const IDLE: u16 = u16::MAX;

/// A key's timer, and its links in the list of its slot.
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
/// Keys are small integers, as a [`Slab`](crate::Slab) gives them. Memory is 24 bytes for each key
/// up to the largest; starting a timer of a key seen before allocates nothing. Schedule and cancel
/// take constant time.
///
/// # How it works
///
/// Time is counted in ticks. Write a tick as eleven digits of 6 bits: level 0 is the lowest digit.
/// The timer of a key lies in a list, one for each of 64 slots in each of 11 levels:
///
/// - Its *level* is that of the highest digit in which its tick differs from the present tick.
/// - Its *slot* is the value of that digit in its own tick.
///
/// So level 0 holds the timers of the present 64 ticks, in a slot for each tick. A slot of level 1
/// holds those of 64 ticks together. When the present tick reaches the start of such a slot, its
/// timers are sorted into the levels below (*cascade*). A timer moves at most ten times in its
/// life.
///
/// Example: the present tick is 100, in digits (1, 36). A timer for tick 110, (1, 46), differs in
/// the lowest digit: level 0, slot 46. A timer for tick 200, (3, 8), differs in the next one: level
/// 1, slot 3. At tick 192, (3, 0), that slot cascades, and the timer lands in level 0, slot 8,
/// where it expires at tick 200.
///
/// Slots before the present one are empty in every level, so the first occupied slot of the lowest
/// occupied level comes next. A bit mask for each level finds it without a search.
///
/// Deadlines are rounded up to a tick: a timer is never early, and late by less than a tick.
pub struct TimerWheel {
    tick_ns: u64,
    /// Timers up to this tick have expired.
    now_tick: u64,
    /// The first timer of each slot. Level 0 has a slot for each tick; a slot of a higher level
    /// spans 64 slots of the level below.
    heads: Box<[[u32; SLOTS]; LEVELS]>,
    /// A bit for each slot that is not empty.
    occupied: [u64; LEVELS],
    timers: Vec<Timer>,
    len: usize,
}

impl TimerWheel {
    /// A wheel with ticks of `tick_ns` nanoseconds, starting at `now`.
    ///
    /// # Panics
    /// If `tick_ns` is 0.
    pub fn new(tick_ns: u64, now: Instant) -> Self {
        assert!(tick_ns > 0, "a tick must be longer than 0 ns");
        Self {
            tick_ns,
            now_tick: now.as_ns() / tick_ns,
            heads: Box::new([[NONE; SLOTS]; LEVELS]),
            occupied: [0; LEVELS],
            timers: Vec::new(),
            len: 0,
        }
    }

    /// The number of running timers.
    #[inline]
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.heads) + self.timers.capacity() * size_of::<Timer>()
    }

    /// Starts the timer of `key`, or moves it. A deadline in the past expires with the next
    /// [`TimerWheel::advance`].
    ///
    /// # Panics
    /// If `key` is `u32::MAX`.
    #[inline(always)]
    pub fn schedule(&mut self, key: u32, at: Instant) {
        assert!(key != NONE, "u32::MAX is not a valid key");
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

    /// Stops the timer of `key`, if it is running.
    #[inline]
    pub fn cancel(&mut self, key: u32) {
        if self.timers.get(key as usize).is_some_and(|link| link.slot != IDLE) {
            self.remove_timer(key);
            self.timers[key as usize].slot = IDLE;
            self.len -= 1;
        }
    }

    #[inline(always)]
    pub fn prefetch(&self, key: u32) {
        prefetch_pointer(self.timers.as_ptr().wrapping_add(key as usize).cast());
    }

    /// The deadline of `key`'s timer, if it is running.
    #[inline]
    pub fn deadline(&self, key: u32) -> Option<Instant> {
        self.timers.get(key as usize).filter(|link| link.slot != IDLE).map(|link| link.deadline)
    }

    /// Stops all timers that are due at `now`, and appends their keys to `expired`. Never early,
    /// and late by less than a tick.
    ///
    /// They are ordered by tick, then by deadline, then by key. The order does not depend on how
    /// the timers were started.
    pub fn advance(&mut self, now: Instant, expired: &mut Vec<u32>) {
        let target = now.as_ns() / self.tick_ns;
        while let Some((level, slot, tick)) = self.next_slot() {
            if tick > target {
                break;
            }
            // Advance to the slot first, because `cascade` places timers relative to the present
            // tick.
            self.now_tick = tick.max(self.now_tick);
            if level == 0 {
                self.expire(slot, expired);
            } else {
                self.cascade(level, slot);
            }
        }
        self.now_tick = self.now_tick.max(target);
    }

    /// When to call [`TimerWheel::advance`] next: never later than the tick of the first deadline.
    /// It may be earlier, when distant timers must move to a finer level.
    #[inline]
    pub fn next_wakeup(&self) -> Option<Instant> {
        let (_, _, tick) = self.next_slot()?;
        Some(Instant::from_ns(tick.saturating_mul(self.tick_ns)))
    }

    /// The first slot that is not empty, and its first tick.
    #[inline]
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        // All timers of a level expire before those of the levels above.
        let level = self.occupied.iter().position(|&slots| slots != 0)?;
        // Slots before the present one are empty.
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

    /// Distributes the timers of a slot that the present tick has reached over the levels below.
    fn cascade(&mut self, level: usize, slot: usize) {
        let mut key = core::mem::replace(&mut self.heads[level][slot], NONE);
        self.occupied[level] &= !(1 << slot);
        while key != NONE {
            let Timer { deadline: at, next, .. } = self.timers[key as usize];
            self.insert_timer(key, at);
            key = next;
        }
    }

    /// The level and slot of a timer with this deadline.
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
