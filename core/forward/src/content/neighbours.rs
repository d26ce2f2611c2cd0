//! Signals between neighbours about room in their stores (paper nb-cache, III-E). They are soft
//! state of a face, and expire.

use alloc::vec::Vec;

use weir_base::{FaceId, Instant, NS_PER_MS, NS_PER_S};
use weir_wire::HopSignal;

use crate::io::Outbox;
use crate::stats::BusyStats;
use crate::table::faces::Face;

/// A neighbour that has sent no Interest for this long receives no signals.
const INTERESTED_NS: u64 = NS_PER_S;
/// A label is valid for this many periods, so that one signal may be lost.
const LABEL_PERIODS: u64 = 3;
/// The longest validity of a neighbour's label, ms: three times the longest sensible period.
const LABEL_MS_MAX: u64 = 10_000;
/// Number of times that the router sends the signal about regained room, in case one is lost.
const AVAILABLE_REPEATS: u8 = 2;

/// Growth of the window of a neighbour for each bypassing Interest that finds room there, and its
/// decrease for each that does not. The share of marked Data then changes within a few round trips.
const WINDOW_INCREASE: f64 = 0.25;
const WINDOW_DECREASE: f64 = 0.5;

#[derive(Clone, Copy)]
struct Neighbour {
    id: FaceId,
    /// When it last requested Data that is on a disk.
    requested_at: Option<Instant>,
    /// Its store has no room before this time.
    unavailable_until: Instant,
    /// Number of signals about regained room that must still be sent.
    available_left: u8,
    /// Bypassing Interests in flight there, and how many may be in flight.
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

/// All neighbours with state, by slot of the face table.
pub(crate) struct Neighbours {
    period_ns: u64,
    by_slot: Vec<Neighbour>,
    /// When the next signal is due; `None` while there is nothing to send.
    next_at: Option<Instant>,
    /// When the last signal was sent.
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

    /// Records an Interest for Data on a disk from `face`. Programs of this host and faces to
    /// several peers receive no signals.
    pub(crate) fn note_interest_from(&mut self, now: Instant, face: &Face) {
        if !face.is_local() && face.is_point_to_point() {
            self.of(face).requested_at = Some(now);
        }
    }

    /// Handles the signal of the neighbour at `face` that its store has no room for some time. The
    /// time is capped at [`LABEL_MS_MAX`], because a label must expire even if its sender is
    /// malicious. A signal from a face to several peers says nothing about the others.
    pub(crate) fn on_signal(
        &mut self,
        now: Instant,
        face: &Face,
        signal: HopSignal,
        stats: &mut BusyStats,
    ) {
        if !face.is_point_to_point() {
            return;
        }
        let HopSignal::Unavailable { for_ms } = signal;
        match for_ms {
            0 => stats.available_received += 1,
            _ => stats.busy_received += 1,
        }
        let label_ns = for_ms.min(LABEL_MS_MAX) * NS_PER_MS;
        self.of(face).unavailable_until = now.plus_ns(label_ns);
    }

    /// An Interest has bypassed a disk to `face`.
    pub(crate) fn on_bypass(&mut self, face: &Face) {
        self.of(face).bypassing += 1;
    }

    /// A bypassing Interest to `face` is no longer in flight. `had_room` reports whether it found
    /// room; `None` if this is unknown.
    pub(crate) fn on_bypass_end(&mut self, face: &Face, had_room: Option<bool>) {
        let neighbour = self.of(face);
        let in_flight = f64::from(neighbour.bypassing);
        neighbour.bypassing = neighbour.bypassing.saturating_sub(1);
        match had_room {
            Some(true) => neighbour.window += WINDOW_INCREASE,
            Some(false) => {
                let window = neighbour.window.min(in_flight);
                neighbour.window = (window - WINDOW_DECREASE).max(1.0);
            }
            None => {}
        }
    }

    /// Whether the window of `face` has room for one more bypassing Interest.
    pub(crate) fn has_window(&self, face: &Face) -> bool {
        let known = self.by_slot.get(face.slot() as usize);
        known.is_none_or(|neighbour| {
            neighbour.id != face.id() || f64::from(neighbour.bypassing) < neighbour.window
        })
    }

    /// Whether the store behind `face` has room, as far as is known.
    pub(crate) fn is_available(&self, now: Instant, face: &Face) -> bool {
        let known = self.by_slot.get(face.slot() as usize);
        known
            .is_none_or(|neighbour| neighbour.id != face.id() || neighbour.unavailable_until <= now)
    }

    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.next_at
    }

    /// Sends the signals that are due. `is_over` means that the queue of the store is over its
    /// threshold. Each neighbour receives at most one signal in a period. A queue that often
    /// crosses the threshold thus causes no more signals than a queue that stays above it.
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
            // Even after a pause, the period since the last signal must be over.
            (None, Some(announced_at)) => announced_at.plus_ns(self.period_ns),
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
            let sends_interests =
                neighbour.requested_at.is_some_and(|at| now.ns_since(at) <= INTERESTED_NS);
            if is_over && sends_interests {
                stats.busy_sent += 1;
                // Only neighbours that were warned learn later that there is room again.
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
