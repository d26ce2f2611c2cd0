//! The second bypass (paper nb-cache, III-C): an Interest goes on although a disk has its Data.

use alloc::vec::Vec;

use weir_base::{FaceId, Instant, Slab};
use weir_store::disk::OnDisk;
use weir_wire::{InterestView, NackReason};

use crate::adaptive::{Choice, Home, Trip};
use crate::blocking::Turn;
use crate::busy::{Bypass, Mark, StoreIo};
use crate::interest::{Asked, Course, Origin, fib_entry};
use crate::io::{NextHop, Outbox};
use crate::pit::Way;
use crate::prefix_table::PrefixHashes;
use crate::router::{From, Router};
use crate::stats::DropReason;
use crate::strategy::is_eligible;

/// An Interest that passes the store by. Where it may go is in
/// [`DiskState::hops`](crate::disk::DiskState::hops).
pub(crate) struct PastStore {
    /// How the time until its answer is measured, if it is.
    trip: Option<Trip>,
}

/// What is to be done with an Interest whose Data is on a disk.
pub(crate) enum Verdict {
    PassBy(PastStore),
    Wait {
        /// Its Data is to be marked.
        is_marked: bool,
    },
}

struct Detour {
    since: Instant,
    trip: Option<Trip>,
}

/// PIT entries that have passed the store by.
#[derive(Default)]
pub(crate) struct Detours {
    detours: Slab<Detour>,
    /// From a PIT entry's index to its detour.
    by_entry: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Detours {
    fn insert(&mut self, entry: u32, detour: Detour) {
        let entry = entry as usize;
        if self.by_entry.len() <= entry {
            self.by_entry.resize(entry + 1, NONE);
        }
        assert_eq!(self.by_entry[entry], NONE, "an entry is on one way");
        self.by_entry[entry] = self.detours.insert(detour);
    }

    fn remove(&mut self, entry: u32) -> Option<Detour> {
        let slot = self.by_entry.get_mut(entry as usize)?;
        let index = core::mem::replace(slot, NONE);
        (index != NONE).then(|| self.detours.remove(index))
    }
}

impl Router {
    /// A disk has what an Interest asks for: wait for it, or pass by?
    pub(crate) fn decide(
        &mut self,
        now: Instant,
        from: &From<'_>,
        interest: &InterestView<'_>,
        asked: &Asked<'_>,
        found: &OnDisk,
        out: &mut Outbox,
    ) -> Option<Course> {
        self.disk.neighbours.note_asked(now, &asked.face);
        if found.is_stalled {
            if !self.has_next_hop(now, Origin::of(from), interest) {
                // There is a way to it, only not now.
                self.refuse(from, asked.face, NackReason::Congestion, DropReason::DiskBusy, out);
                return None;
            }
            self.stats.busy.bypassed_stalled += 1;
            return Some(Course::Upstream);
        }
        // Before a read or a measured detour, which would be in vain.
        if !self.has_pit_room(from, asked) {
            self.refuse(from, asked.face, NackReason::Congestion, DropReason::PitFull, out);
            return None;
        }
        let verdict = match from.turn {
            Turn::Arrives => {
                let queue = found.reads_waiting;
                let home =
                    Home { disk: found.disk, queue, expected_wait_ns: found.expected_wait_ns };
                self.judge(now, from, interest, home)
            }
            // That was decided when it came.
            Turn::Comes => Verdict::Wait { is_marked: false },
            Turn::ComesToBeMarked => Verdict::Wait { is_marked: true },
        };
        match verdict {
            Verdict::PassBy(past) => Some(Course::PastStore(past)),
            Verdict::Wait { is_marked } => self.begin_read(now, from, asked, found, is_marked, out),
        }
    }

    /// Whether an Interest before a queue of the store is to wait there.
    pub(crate) fn judge(
        &mut self,
        now: Instant,
        from: &From<'_>,
        interest: &InterestView<'_>,
        home: Home,
    ) -> Verdict {
        let threshold = self.disk.threshold;
        let is_over = home.queue >= threshold;
        let bypass = match (self.config.busy.bypass, self.config.busy.io) {
            // What a queue before a store that blocks takes is not measured.
            (Bypass::Adaptive, StoreIo::Blocking) => Bypass::Threshold,
            (bypass, _) => bypass,
        };
        let may_pass = match bypass {
            Bypass::Off => false,
            Bypass::Threshold => is_over,
            Bypass::Adaptive => true,
        };
        self.disk.hops.clear();
        let fib =
            if may_pass { self.find_available_hops(now, Origin::of(from), interest) } else { 0 };
        let stats = &mut self.stats.busy;
        if bypass == Bypass::Adaptive {
            let hops = self.disk.hops.iter().map(|hop| hop.face);
            match self.disk.adaptive.choose(now, home, threshold, fib, hops) {
                Choice::Home => {}
                Choice::Away { hop, is_trial, trip } => {
                    match is_trial {
                        true => stats.bypassed_probe += 1,
                        false => stats.bypassed_slower += 1,
                    }
                    self.disk.hops.swap(0, hop);
                    self.disk.hops.truncate(1);
                    return Verdict::PassBy(PastStore { trip });
                }
            }
        } else if !self.disk.hops.is_empty() {
            stats.bypassed_queue_full += 1;
            return Verdict::PassBy(PastStore { trip: None });
        }
        stats.waited_over_threshold += u64::from(is_over);
        let is_last_resort = is_over && self.disk.hops.is_empty();
        Verdict::Wait { is_marked: is_last_resort && self.config.busy.mark == Mark::NbCc }
    }

    /// Whether there is anywhere an Interest could go to at this time.
    pub(crate) fn has_next_hop(
        &mut self,
        now: Instant,
        origin: Origin,
        interest: &InterestView<'_>,
    ) -> bool {
        self.disk.hops.clear();
        self.find_available_hops(now, origin, interest);
        !self.disk.hops.is_empty()
    }

    /// Fills in the next hops that an Interest may go to and whose store has room, by rising cost,
    /// and returns the number of their FIB entry.
    fn find_available_hops(
        &mut self,
        now: Instant,
        origin: Origin,
        interest: &InterestView<'_>,
    ) -> u32 {
        let chosen = origin.next_hop_face;
        let chosen = chosen.map(|face| [NextHop { face: FaceId(face), cost: 0 }]);
        let is_home = self.is_in_producer_region(interest);
        let hashes = PrefixHashes::of(&self.config.hash_key, interest.name, self.fib.lengths());
        let entry = fib_entry(&self.fib, &self.config.hash_key, interest, &hashes, is_home);
        let (fib, next_hops) = match (&chosen, entry) {
            (Some(chosen), _) => (0, chosen.as_slice()),
            (None, Some(entry)) => (entry.id, entry.next_hops.as_slice()),
            (None, None) => return 0,
        };
        let has_labels = self.config.busy.mark == Mark::NbCc;
        let is_last_hop = interest.hop_limit == Some(1);
        let name = interest.name.value();
        for hop in next_hops {
            let Some(egress) = is_eligible(&self.faces, origin.face, name, hop.face) else {
                continue;
            };
            let has_room = !has_labels || self.disk.neighbours.is_available(now, &egress);
            if has_room && (!is_last_hop || egress.is_local()) {
                self.disk.hops.push(*hop);
            }
        }
        fib
    }

    /// Sends an entry on past the store.
    pub(crate) fn pass_store(
        &mut self,
        now: Instant,
        index: u32,
        from: &From<'_>,
        past: PastStore,
        interest: &InterestView<'_>,
        out: &mut Outbox,
    ) {
        self.leave_way(now, index, None);
        self.disk.detours.insert(index, Detour { since: now, trip: past.trip });
        self.pit.entry_mut(index).way = Way::PastStore;
        let hops = core::mem::take(&mut self.disk.hops);
        self.forward(now, index, Origin::of(from), Some(&hops), interest, out);
        self.disk.hops = hops;
    }

    /// An Interest that was to pass the store by does so unmeasured.
    pub(crate) fn forget_trip(&mut self, now: Instant, past: &PastStore) {
        if let Some(trip) = &past.trip {
            self.disk.adaptive.end_trip(now, trip, 0, Some(FaceId::CONTENT_STORE));
        }
    }

    /// An entry that has passed the store by ends: by an answer of `upstream`, or without.
    #[cold]
    pub(crate) fn end_detour(&mut self, now: Instant, index: u32, upstream: Option<FaceId>) {
        self.pit.entry_mut(index).way = Way::Upstream;
        let Some(Detour { since, trip }) = self.disk.detours.remove(index) else { return };
        let took_ns = now.ns_since(since);
        if upstream.is_some_and(|face| face != FaceId::CONTENT_STORE) {
            self.stats.busy.bypass_latency.record(took_ns);
        }
        if let Some(trip) = trip {
            self.disk.adaptive.end_trip(now, &trip, took_ns, upstream);
        }
    }
}
