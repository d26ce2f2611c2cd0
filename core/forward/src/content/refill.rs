//! Decides which lost segments the router requests again, and when. The router refills only objects
//! that are nearly complete in the store.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_MS, NS_PER_S};
use weir_store::disk::LostSegment;
use weir_wire::Name;

/// Maximum number of missing segments that are remembered. Consumers refill further ones.
const HOLES_MAX: usize = 1 << 16;
/// An object is refilled if at most one in this many of its segments is missing.
const MISSING_ONE_IN: u64 = 10;
/// Delay before a segment is requested: after its loss, and after each unanswered Interest, ns.
const DELAYS_NS: [u64; 3] = [NS_PER_S / 2, 5 * NS_PER_S, 30 * NS_PER_S];
/// Interests that leave together, and the interval between such bursts: about 6 MB/s of Data.
const BURST: usize = 8;
/// Maximum number of missing segments that one call visits.
const STEPS_MAX: usize = 64;
const INTERVAL_NS: u64 = 10 * NS_PER_MS;
/// How long requests pause for a busy disk, ns.
const BUSY_NS: u64 = 50 * NS_PER_MS;

/// An object with missing segments.
#[derive(Default)]
struct Object {
    missing: BTreeSet<u64>,
    /// The number of its segments, as far as known.
    segments: u64,
    /// Too many segments are missing. The object is not refilled, even if some arrive later.
    is_too_sparse: bool,
}

/// A missing segment.
#[derive(Clone)]
pub(crate) struct Hole {
    pub(crate) object: Arc<Name>,
    pub(crate) segment: u64,
    attempts: usize,
}

/// Missing segments, ordered by the time of their next request.
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

    /// When [`Refill::take_due`] may return segments.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        let (&(due, _), _) = self.holes.first_key_value()?;
        Some(due.max(self.not_before))
    }

    pub(crate) fn on_lost(&mut self, now: Instant, lost: LostSegment) {
        if self.holes.len() >= HOLES_MAX {
            return;
        }
        let LostSegment { object, segment, last_segment } = lost;
        let known = self.objects.get_key_value(&object).map(|(name, _)| Arc::clone(name));
        let object = known.unwrap_or_else(|| Arc::new(object));
        let state = self.objects.entry(Arc::clone(&object)).or_default();
        let segments = last_segment.unwrap_or(segment).saturating_add(1);
        state.segments = state.segments.max(segments);
        if state.is_too_sparse || !state.missing.insert(segment) {
            return;
        }
        self.schedule(now, Hole { object, segment, attempts: 0 });
    }

    fn schedule(&mut self, now: Instant, hole: Hole) {
        self.serial += 1;
        self.holes.insert((now.plus_ns(DELAYS_NS[hole.attempts]), self.serial), hole);
    }

    /// Takes the segments that may be requested now. The caller passes each to
    /// [`Refill::on_requested`] or [`Refill::remove`].
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<Hole> {
        let mut due = Vec::new();
        for _ in 0..STEPS_MAX {
            if due.len() == BURST || self.next_wakeup().is_none_or(|at| at > now) {
                break;
            }
            let Some((_, hole)) = self.holes.pop_first() else { break };
            let Some(object) = self.objects.get_mut(&hole.object) else { continue };
            object.is_too_sparse |= object.missing.len() as u64 * MISSING_ONE_IN > object.segments;
            if object.is_too_sparse {
                self.remove(&hole);
            } else {
                due.push(hole);
            }
        }
        self.not_before = now.plus_ns(INTERVAL_NS);
        due
    }

    /// Pauses because the disks have other work.
    pub(crate) fn back_off(&mut self, now: Instant) {
        self.not_before = now.plus_ns(BUSY_NS);
    }

    /// An Interest for this segment was sent.
    pub(crate) fn on_requested(&mut self, now: Instant, mut hole: Hole) {
        hole.attempts += 1;
        if hole.attempts < DELAYS_NS.len() {
            self.schedule(now, hole);
        } else {
            self.remove(&hole);
        }
    }

    /// The segment is no longer missing, or is given up.
    pub(crate) fn remove(&mut self, hole: &Hole) {
        let Some(object) = self.objects.get_mut(&hole.object) else { return };
        object.missing.remove(&hole.segment);
        if object.missing.is_empty() {
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
    fn refills_mostly_stored_objects() {
        let mut refill = Refill::default();
        let mut now = Instant::from_ns(1);
        (0..10).for_each(|segment| refill.on_lost(now, lost("/held", segment, Some(99))));
        (0..11).for_each(|segment| refill.on_lost(now, lost("/lacking", segment, Some(99))));
        assert!(refill.take_due(now).is_empty());
        let mut requested = Vec::new();
        while let Some(at) = refill.next_wakeup() {
            now = at;
            for hole in refill.take_due(now) {
                requested.push((hole.object.to_string(), hole.segment));
                refill.on_requested(now, hole);
            }
        }
        assert!(requested.iter().all(|(object, _)| object == "/held"));
        assert_eq!(
            requested.len(),
            10 * DELAYS_NS.len(),
            "each is requested a bounded number of times"
        );
        assert!(refill.is_empty() && refill.objects.is_empty());
    }
}
