//! What neighbours and this router tell each other about room in their stores (paper nb-cache,
//! III-E): soft state of faces, which ends by itself.

use alloc::vec::Vec;

use weir_base::{FaceId, Instant, NS_PER_MS, NS_PER_S};
use weir_wire::HopSignal;

use crate::io::Outbox;
use crate::stats::BusyStats;
use crate::table::faces::Face;

/// Neighbours that have not asked for so long are told nothing.
const INTERESTED_NS: u64 = NS_PER_S;
/// Periods that a label holds, so that one may get lost.
const LABEL_PERIODS: u64 = 3;
/// A neighbour is believed for so long at most, ms: three times the longest sensible period.
const LABEL_MS_MAX: u64 = 10_000;
/// How often a neighbour is told that there is room again.
const AVAILABLE_REPEATS: u8 = 2;

/// How many more Interests may be under way to a neighbour past a disk here for each that finds
/// room there, and how many fewer for each that does not: a share that grows or shrinks within few
/// round trips, whatever it is.
const WINDOW_INCREASE: f64 = 0.25;
const WINDOW_DECREASE: f64 = 0.5;

#[derive(Clone, Copy)]
struct Neighbour {
    id: FaceId,
    /// When it last asked for Data that is on a disk.
    requested_at: Option<Instant>,
    /// Until when its store has no room.
    unavailable_until: Instant,
    /// How often it has yet to be told that there is room again.
    available_left: u8,
    /// Interests under way there that have passed by a disk here, and how many may be.
    bypassing: u32,
    window: f64,
}

impl Neighbour {
    fn new(id: FaceId) -> Self {
        Self {
            id,
            requested_at: None,
            unavailable_until: Instant::ZERO,
            available_left: 0,
            bypassing: 0,
            window: f64::INFINITY,
        }
    }
}

/// All neighbours that were heard of, by slot of the face table.
pub(crate) struct Neighbours {
    period_ns: u64,
    by_slot: Vec<Neighbour>,
    /// When neighbours are to be told again; nothing while there is nothing to tell.
    next_at: Option<Instant>,
    /// When they were told last.
    announced_at: Option<Instant>,
}

impl Neighbours {
    pub(crate) fn new(period_ns: u64) -> Self {
        let period_ns = period_ns.max(NS_PER_MS);
        Self { period_ns, by_slot: Vec::new(), next_at: None, announced_at: None }
    }

    fn of(&mut self, face: &Face) -> &mut Neighbour {
        let slot = face.slot() as usize;
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, Neighbour::new(FaceId(u64::MAX)));
        }
        let neighbour = &mut self.by_slot[slot];
        if neighbour.id != face.id() {
            *neighbour = Neighbour::new(face.id());
        }
        neighbour
    }

    /// An Interest for Data on a disk came from `face`. Programs of this host and faces that lead
    /// to several are not told anything.
    pub(crate) fn note_interest_from(&mut self, now: Instant, face: &Face) {
        if !face.is_local() && face.is_point_to_point() {
            self.of(face).requested_at = Some(now);
        }
    }

    /// The neighbour at `face` says for how long its store has no room. It is believed for
    /// [`LABEL_MS_MAX`] at most: a label has to end by itself, whoever sent it.
    pub(crate) fn on_signal(
        &mut self,
        now: Instant,
        face: &Face,
        signal: HopSignal,
        stats: &mut BusyStats,
    ) {
        let HopSignal::Unavailable { for_ms } = signal;
        match for_ms {
            0 => stats.available_received += 1,
            _ => stats.busy_received += 1,
        }
        let label_ns = for_ms.min(LABEL_MS_MAX) * NS_PER_MS;
        self.of(face).unavailable_until = now.plus_ns(label_ns);
    }

    /// An Interest has passed by to `face`.
    pub(crate) fn on_bypass(&mut self, face: &Face) {
        self.of(face).bypassing += 1;
    }

    /// An Interest that had passed by to `face` is not under way there any more. `had_room`:
    /// whether it has found room; `None` if nothing tells.
    pub(crate) fn on_bypass_end(&mut self, face: &Face, had_room: Option<bool>) {
        let neighbour = self.of(face);
        let passed = f64::from(neighbour.bypassing);
        neighbour.bypassing = neighbour.bypassing.saturating_sub(1);
        match had_room {
            Some(true) => neighbour.window += WINDOW_INCREASE,
            Some(false) => {
                let window = neighbour.window.min(passed);
                neighbour.window = (window - WINDOW_DECREASE).max(1.0);
            }
            None => {}
        }
    }

    /// Whether one more Interest may pass by to `face`, as far as those tell that have done so.
    pub(crate) fn has_window(&self, face: &Face) -> bool {
        let known = self.by_slot.get(face.slot() as usize);
        known.is_none_or(|one| one.id != face.id() || f64::from(one.bypassing) < one.window)
    }

    /// Whether the store behind `face` has room, as far as is known.
    pub(crate) fn is_available(&self, now: Instant, face: &Face) -> bool {
        let known = self.by_slot.get(face.slot() as usize);
        known.is_none_or(|one| one.id != face.id() || one.unavailable_until <= now)
    }

    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.next_at
    }

    /// Tells neighbours what is to be told now. `is_over`: the queue of the store is over its
    /// threshold. Nobody is told more than once a period, so that a queue that swings about the
    /// threshold costs no more than one that stays above.
    pub(crate) fn announce(
        &mut self,
        now: Instant,
        is_over: bool,
        stats: &mut BusyStats,
        out: &mut Outbox,
    ) {
        let due_at = match (self.next_at, self.announced_at) {
            (Some(next_at), _) => next_at,
            (None, _) if !is_over => return,
            (None, Some(told_at)) => told_at.plus_ns(self.period_ns),
            (None, None) => now,
        };
        if due_at > now {
            self.next_at = Some(due_at);
            return;
        }
        let label_ms = (LABEL_PERIODS * self.period_ns).div_ceil(NS_PER_MS);
        let mut is_more_due = is_over;
        for neighbour in &mut self.by_slot {
            let face = neighbour.id;
            let is_asking =
                neighbour.requested_at.is_some_and(|at| now.ns_since(at) <= INTERESTED_NS);
            if is_over && is_asking {
                stats.busy_sent += 1;
                neighbour.available_left = AVAILABLE_REPEATS;
                out.signals.push((face, HopSignal::Unavailable { for_ms: label_ms }));
            } else if !is_over && neighbour.available_left > 0 {
                stats.available_sent += 1;
                neighbour.available_left -= 1;
                is_more_due |= neighbour.available_left > 0;
                out.signals.push((face, HopSignal::Unavailable { for_ms: 0 }));
            }
        }
        self.announced_at = Some(now);
        self.next_at = is_more_due.then(|| now.plus_ns(self.period_ns));
    }
}
