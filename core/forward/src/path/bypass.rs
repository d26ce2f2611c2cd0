//! The second bypass (paper nb-cache, III-C): an Interest goes on although a disk has its Data.

use weir_base::{FaceId, Instant};
use weir_store::disk::OnDisk;
use weir_wire::{InterestView, NackReason};

use crate::content::adaptive::{Choice, DiskQueue};
use crate::content::busy::{Bypass, Mark, StoreIo};
use crate::content::bypass::{BypassTiming, DiskBypass, Verdict};
use crate::content::decision::StoreDecision;
use crate::io::{NextHop, Outbox};
use crate::packet::{Asked, Origin, QueueState, ReceivedPacket};
use crate::router::Router;
use crate::stats::DropReason;
use crate::strategy::context::is_eligible;
use crate::table::fib::fib_entry;
use crate::table::pit::AwaitedSource;
use crate::table::prefixes::PrefixHashes;

impl Router {
    /// A disk has what an Interest asks for: wait for it, or pass by?
    pub(crate) fn decide(
        &mut self,
        now: Instant,
        from: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        asked: &Asked<'_>,
        found: &OnDisk,
        out: &mut Outbox,
    ) -> Option<StoreDecision> {
        self.disk.neighbours.note_asked(now, &asked.face);
        if found.is_stalled {
            self.store.decline_read();
            if !self.has_next_hop(now, Origin::of(from), interest) {
                // There is a way to it, only not now.
                self.refuse(from, asked.face, NackReason::Congestion, DropReason::DiskBusy, out);
                return None;
            }
            self.stats.busy.bypassed_stalled += 1;
            return Some(StoreDecision::Forward);
        }
        // Before a read or a measured timing, which would be in vain.
        if !self.has_pit_room(from, asked) {
            self.store.decline_read();
            self.refuse(from, asked.face, NackReason::Congestion, DropReason::PitFull, out);
            return None;
        }
        let verdict = match from.queue_state {
            QueueState::NotQueued => {
                let queue = found.reads_waiting;
                let home =
                    DiskQueue { disk: found.disk, queue, expected_wait_ns: found.expected_wait_ns };
                self.judge(now, from, interest, home)
            }
            // That was decided when it came.
            QueueState::Queued => Verdict::Wait { is_marked: false },
            QueueState::QueuedToBeMarked => Verdict::Wait { is_marked: true },
        };
        match verdict {
            Verdict::PassBy(past) => {
                self.store.decline_read();
                Some(StoreDecision::Bypass(past))
            }
            Verdict::Wait { is_marked } => self.begin_read(now, from, asked, found, is_marked, out),
        }
    }

    /// Whether an Interest before a queue of the store is to wait there.
    pub(crate) fn judge(
        &mut self,
        now: Instant,
        from: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        home: DiskQueue,
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
                Choice::Disk => {}
                Choice::Away { hop, is_trial, sample } => {
                    match is_trial {
                        true => stats.bypassed_probe += 1,
                        false => stats.bypassed_slower += 1,
                    }
                    self.disk.hops.swap(0, hop);
                    self.disk.hops.truncate(1);
                    return Verdict::PassBy(DiskBypass { sample });
                }
            }
        } else if !self.disk.hops.is_empty() {
            stats.bypassed_queue_full += 1;
            return Verdict::PassBy(DiskBypass { sample: None });
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
        from: &ReceivedPacket<'_>,
        past: DiskBypass,
        interest: &InterestView<'_>,
        out: &mut Outbox,
    ) {
        self.detach_wait_state(now, index, None);
        self.disk.timings.insert(index, BypassTiming { since: now, sample: past.sample });
        self.pit.entry_mut(index).awaits = AwaitedSource::Bypass;
        let hops = core::mem::take(&mut self.disk.hops);
        self.forward(now, index, Origin::of(from), Some(&hops), interest, out);
        self.disk.hops = hops;
    }

    /// An Interest that was to pass the store by does so unmeasured.
    pub(crate) fn forget_sample(&mut self, now: Instant, past: &DiskBypass) {
        if let Some(sample) = &past.sample {
            self.disk.adaptive.end_sample(now, sample, 0, Some(FaceId::CONTENT_STORE));
        }
    }

    /// An entry that has passed the store by ends: by an answer of `upstream`, or without.
    #[cold]
    pub(crate) fn end_bypass(&mut self, now: Instant, index: u32, upstream: Option<FaceId>) {
        self.pit.entry_mut(index).awaits = AwaitedSource::Upstream;
        let Some(BypassTiming { since, sample }) = self.disk.timings.remove(index) else { return };
        let took_ns = now.ns_since(since);
        if upstream.is_some_and(|face| face != FaceId::CONTENT_STORE) {
            self.stats.busy.bypass_latency.record(took_ns);
        }
        if let Some(sample) = sample {
            self.disk.adaptive.end_sample(now, &sample, took_ns, upstream);
        }
    }
}
