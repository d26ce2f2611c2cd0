//! The second bypass (paper nb-cache, III-C): an Interest goes on although a disk has its Data.

use weir_base::{FaceId, HashKey, Instant};
use weir_store::disk::OnDisk;
use weir_wire::InterestView;

use crate::content::adaptive::DiskQueue;
use crate::content::busy::{Labels, Mark};
use crate::content::decision::{
    BypassReason, DiskBypass, DiskRead, QueueDecision, Refusal, StoreDecision,
};
use crate::content::disk::DiskState;
use crate::io::Outbox;
use crate::packet::{Asked, Origin, QueueState, ReceivedPacket};
use crate::router::Router;
use crate::stats::DropReason;
use crate::strategy::context::is_eligible;
use crate::table::faces::{Face, FaceTable};
use crate::table::fib::{Fib, HopSet, NextHops};
use crate::table::pit::AwaitedSource;
use crate::table::prefixes::PrefixHashes;

/// An Interest that looks for a way around a disk.
struct WantedHops<'a> {
    now: Instant,
    key: &'a HashKey,
    origin: Origin,
    interest: &'a InterestView<'a>,
    is_home: bool,
}

impl WantedHops<'_> {
    /// The next hops of the Interest, and those of them that it may go to now and whose store has
    /// room.
    fn find<'a>(
        &self,
        fib: &'a Fib,
        faces: &FaceTable,
        disk: &DiskState,
    ) -> (NextHops<'a>, HopSet) {
        let Self { now, key, origin, interest, is_home } = *self;
        let mut hashes = PrefixHashes::default();
        hashes.add(key, interest.name, fib.lengths());
        let next_hops = fib.next_hops(key, interest, &hashes, origin, is_home);
        let has_labels = disk.policy.mark == Mark::NbCc;
        let is_last_hop = interest.hop_limit == Some(1);
        let name = interest.name.value();
        let mut available = fib.no_hops();
        for (place, hop) in next_hops.as_slice().iter().enumerate() {
            let Some(egress) = is_eligible(faces, origin.face, name, hop.face) else { continue };
            let has_room = match disk.policy.labels {
                _ if !has_labels => true,
                Labels::Neighbour => disk.neighbours.is_available(now, egress),
                Labels::Path => disk.neighbours.has_window(egress),
            };
            if has_room && (!is_last_hop || egress.is_local()) {
                available.insert(place);
            }
        }
        (next_hops, available)
    }
}

impl Router {
    /// A disk has what an Interest asks for: wait for it, or pass by?
    pub(crate) fn decide(
        &mut self,
        now: Instant,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        asked: &Asked<'_>,
        found: OnDisk,
        out: &mut Outbox,
    ) -> StoreDecision {
        let origin = Origin::of(received);
        if found.is_stalled {
            let hops = self.available_hops(now, origin, interest);
            // Without a next hop: there is a way to the Data, only not now.
            return match hops.is_empty() {
                true => StoreDecision::Refuse(Refusal(DropReason::DiskBusy)),
                false => {
                    let reason = BypassReason::Stalled;
                    StoreDecision::Bypass(DiskBypass { reason, hops, is_marked: false })
                }
            };
        }
        // Before a read or a measured bypass, which would be in vain.
        if !self.make_room(now, received, asked, out) {
            return StoreDecision::Refuse(Refusal(DropReason::PitFull));
        }
        let decision = match received.queue_state {
            QueueState::NotQueued => {
                let queue = DiskQueue { disk: found.disk, queue: found.reads_waiting };
                self.decide_before_queue(now, origin, interest, queue)
            }
            // That was decided when it came.
            QueueState::Queued => {
                QueueDecision::Wait { is_over_threshold: false, is_marked: false }
            }
            QueueState::QueuedToBeMarked => {
                QueueDecision::Wait { is_over_threshold: false, is_marked: true }
            }
        };
        match decision {
            QueueDecision::Bypass(bypass) => StoreDecision::Bypass(bypass),
            QueueDecision::Wait { is_over_threshold, is_marked } => {
                StoreDecision::ReadDisk(DiskRead { found, is_over_threshold, is_marked })
            }
        }
    }

    /// Whether an Interest before a queue of the store is to wait there.
    pub(crate) fn decide_before_queue(
        &mut self,
        now: Instant,
        origin: Origin,
        interest: &InterestView<'_>,
        queue: DiskQueue,
    ) -> QueueDecision {
        if !self.disk.may_bypass(queue) {
            return self.disk.wait(queue, true);
        }
        let is_home = self.is_in_producer_region(interest);
        let key = &self.config.hash_key;
        let wanted = WantedHops { now, key, origin, interest, is_home };
        let (next_hops, available) = wanted.find(&self.fib, &self.faces, &self.disk);
        self.disk.choose(now, queue, next_hops.as_slice(), available, &mut self.measurements)
    }

    /// Whether there is anywhere an Interest could go to at this time.
    pub(crate) fn has_next_hop(
        &self,
        now: Instant,
        origin: Origin,
        interest: &InterestView<'_>,
    ) -> bool {
        !self.available_hops(now, origin, interest).is_empty()
    }

    fn available_hops(&self, now: Instant, origin: Origin, interest: &InterestView<'_>) -> HopSet {
        let is_home = self.is_in_producer_region(interest);
        let key = &self.config.hash_key;
        let wanted = WantedHops { now, key, origin, interest, is_home };
        wanted.find(&self.fib, &self.faces, &self.disk).1
    }

    /// Counts an Interest that passes by a disk.
    pub(crate) fn count_bypass(&mut self, reason: BypassReason) {
        let stats = &mut self.stats.busy;
        match reason {
            BypassReason::QueueFull => stats.bypassed_queue_full += 1,
            BypassReason::Slower => stats.bypassed_slower += 1,
            BypassReason::Probe => stats.bypassed_probe += 1,
            BypassReason::Stalled => stats.bypassed_stalled += 1,
        }
    }

    /// Sends an entry on past the disk that has its Data.
    pub(crate) fn pass_by_disk(
        &mut self,
        now: Instant,
        index: u32,
        origin: Origin,
        bypass: &DiskBypass,
        interest: &InterestView<'_>,
        out: &mut Outbox,
    ) {
        if bypass.reason == BypassReason::Stalled {
            return self.forward(now, index, origin, None, interest, out);
        }
        self.detach_wait_state(now, index, None);
        let is_marked = bypass.is_marked;
        self.pit.entry_mut(index).awaits = AwaitedSource::Bypass { since: now, is_marked };
        self.forward(now, index, origin, Some(bypass.hops), interest, out);
        if let Some((face, _)) = self.bypass_of(index) {
            self.disk.neighbours.on_passed(&face);
        }
    }

    /// With labels of paths: the next hop to which the entry has passed by a disk, and whether it
    /// has refused.
    fn bypass_of(&self, index: u32) -> Option<(Face, bool)> {
        let entry = self.pit.get(index).filter(|_| self.config.busy.labels == Labels::Path)?;
        let is_bypass = matches!(entry.awaits, AwaitedSource::Bypass { .. });
        let first = entry.upstreams().next().filter(|_| is_bypass)?;
        Some((*self.faces.find(first.face)?, first.nacked.is_some()))
    }

    /// An entry that has passed by a disk is answered, or to end or to wait elsewhere. `source`:
    /// who has answered it, and the congestion mark.
    pub(crate) fn end_bypass(&mut self, index: u32, source: Option<(FaceId, u64)>) {
        let Some((face, is_refused)) = self.bypass_of(index) else { return };
        let is_unmarked = |source: (FaceId, u64)| (source.0 == face.id()).then_some(source.1 == 0);
        let had_room = if is_refused { Some(false) } else { source.and_then(is_unmarked) };
        self.disk.neighbours.on_passed_end(&face, had_room);
    }
}
