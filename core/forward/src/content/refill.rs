//! Segments that the store lost although it holds most of their object: what to fetch again, and
//! when.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_MS, NS_PER_S};
use weir_store::LostSegment;
use weir_wire::Name;

/// Holes that are remembered; further ones are left to whoever asks for them.
const HOLES_MAX: usize = 1 << 16;
/// An object is filled if at most one segment in this number is missing.
const HELD_PARTS: u64 = 10;
/// How long after a loss, and after each Interest that brought nothing, a segment is requested, ns.
const DELAYS_NS: [u64; 3] = [NS_PER_S / 2, 5 * NS_PER_S, 30 * NS_PER_S];
/// Interests that leave together, and how long after the last ones, ns: some 6 MB/s of Data.
const BURST: usize = 8;
const INTERVAL_NS: u64 = 10 * NS_PER_MS;
/// How long a busy disk is left alone, ns.
const BUSY_NS: u64 = 50 * NS_PER_MS;

/// What is known of an object with holes.
#[derive(Default)]
struct Object {
    missing: u64,
    /// Segments that it has, as far as known.
    segments: u64,
    /// Too many of them are missing.
    is_lacking: bool,
}

/// A segment that is missing.
#[derive(Clone)]
pub(crate) struct Hole {
    pub(crate) object: Arc<Name>,
    pub(crate) segment: u64,
    attempts: usize,
}

/// Holes by the time when they are next looked at.
#[derive(Default)]
pub(crate) struct Refill {
    holes: BTreeMap<(Instant, u64), Hole>,
    objects: BTreeMap<Arc<Name>, Object>,
    serial: u64,
    not_before: Instant,
}

impl Refill {
    pub(crate) fn is_empty(&self) -> bool {
        self.holes.is_empty()
    }

    /// When [`Refill::take_due`] has something.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        let (&(due, _), _) = self.holes.first_key_value()?;
        Some(due.max(self.not_before))
    }

    /// A segment was lost.
    pub(crate) fn note(&mut self, now: Instant, lost: LostSegment) {
        if self.holes.len() >= HOLES_MAX {
            return;
        }
        let LostSegment { object, segment, last_segment } = lost;
        let known = self.objects.get_key_value(&object).map(|(name, _)| Arc::clone(name));
        let object = known.unwrap_or_else(|| Arc::new(object));
        let state = self.objects.entry(Arc::clone(&object)).or_default();
        state.missing += 1;
        let segments = last_segment.unwrap_or(segment).saturating_add(1);
        state.segments = state.segments.max(segments);
        state.is_lacking |= state.missing > state.segments.div_ceil(HELD_PARTS);
        self.schedule(now, Hole { object, segment, attempts: 0 });
    }

    fn schedule(&mut self, now: Instant, hole: Hole) {
        self.serial += 1;
        self.holes.insert((now.plus_ns(DELAYS_NS[hole.attempts]), self.serial), hole);
    }

    /// The holes that may be filled now, which the caller gives to [`Refill::asked`] or
    /// [`Refill::forget`].
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<Hole> {
        let mut due = Vec::new();
        while due.len() < BURST && self.next_wakeup().is_some_and(|at| at <= now) {
            let Some((_, hole)) = self.holes.pop_first() else { break };
            let object = self.objects.get(&hole.object);
            match object.is_some_and(|object| !object.is_lacking) {
                true => due.push(hole),
                false => self.forget(&hole),
            }
        }
        self.not_before = now.plus_ns(INTERVAL_NS);
        due
    }

    /// The disks have other work.
    pub(crate) fn wait(&mut self, now: Instant) {
        self.not_before = now.plus_ns(BUSY_NS);
    }

    /// An Interest for a hole has left.
    pub(crate) fn asked(&mut self, now: Instant, mut hole: Hole) {
        hole.attempts += 1;
        if hole.attempts < DELAYS_NS.len() {
            self.schedule(now, hole);
        } else {
            self.forget(&hole);
        }
    }

    /// A hole is filled, or will not be.
    pub(crate) fn forget(&mut self, hole: &Hole) {
        let Some(object) = self.objects.get_mut(&hole.object) else { return };
        object.missing -= 1;
        if object.missing == 0 {
            self.objects.remove(&hole.object);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    fn lost(object: &str, segment: u64, last_segment: Option<u64>) -> LostSegment {
        LostSegment { object: object.parse().unwrap(), segment, last_segment }
    }

    #[test]
    fn fills_objects_that_are_mostly_held() {
        let mut refill = Refill::default();
        let mut now = Instant::from_ns(1);
        (0..10).for_each(|segment| refill.note(now, lost("/held", segment, Some(99))));
        (0..11).for_each(|segment| refill.note(now, lost("/lacking", segment, Some(99))));
        assert!(refill.take_due(now).is_empty());
        let mut asked = Vec::new();
        while let Some(at) = refill.next_wakeup() {
            now = at;
            for hole in refill.take_due(now) {
                asked.push((hole.object.to_string(), hole.segment));
                refill.asked(now, hole);
            }
        }
        assert!(asked.iter().all(|(object, _)| object == "/held"));
        assert_eq!(
            asked.len(),
            10 * DELAYS_NS.len(),
            "each is requested a bounded number of times"
        );
        assert!(refill.is_empty() && refill.objects.is_empty());
    }
}
