//! Whether an Interest waits for the disk that has its Data, or bypasses it (paper nb-cache,
//! section III-C). The policies are in [`content::bypass`](crate::content::bypass).

use weir_store::disk::OnDisk;
use weir_wire::InterestView;

use crate::content::adaptive::DiskQueue;
use crate::content::busy::{Labels, Mark};
use crate::content::decision::{
    BypassReason, DiskBypass, DiskRead, ForwardingAction, QueueDecision, StoreOutcome,
};
use crate::endpoints::Origin;
use crate::incoming::{IncomingInterest, QueueState};
use crate::router::Router;
use crate::stats::DropReason;
use crate::strategy::context::is_eligible;
use crate::table::fib::{FibNextHop, HopSet};

impl Router {
    /// A disk has the Data of an Interest: decides whether to wait for it or to bypass it.
    pub(crate) fn wait_or_bypass(
        &mut self,
        incoming: &IncomingInterest<'_>,
        found: OnDisk,
    ) -> StoreOutcome {
        let origin = incoming.received.origin();
        if found.is_stalled {
            let hops = self.available_hops(origin, incoming.interest);
            if hops.is_empty() {
                // The Data exists, but cannot be read now.
                return StoreOutcome::Refuse(DropReason::DiskBusy);
            }
            let reason = BypassReason::Stalled;
            let bypass = DiskBypass { reason, hops, is_marked: false };
            return StoreOutcome::Continue(ForwardingAction::Bypass(bypass));
        }
        // This comes first: a read or a measured bypass for an Interest without room would be
        // wasted.
        if !self.make_room(incoming) {
            return StoreOutcome::Refuse(DropReason::PitFull);
        }
        let decision = match incoming.received.queue_state {
            QueueState::NotQueued => {
                let queue = DiskQueue { disk: found.disk, length: found.reads_waiting };
                self.decide_for_queue(origin, incoming.interest, queue)
            }
            // The decision was made when the Interest arrived.
            QueueState::Queued => {
                QueueDecision::Wait { is_over_threshold: false, is_marked: false }
            }
            QueueState::QueuedAndMarked => {
                QueueDecision::Wait { is_over_threshold: false, is_marked: true }
            }
        };
        match decision {
            QueueDecision::Bypass(bypass) => {
                StoreOutcome::Continue(ForwardingAction::Bypass(bypass))
            }
            QueueDecision::Wait { is_over_threshold, is_marked } => {
                StoreOutcome::Read(DiskRead { found, is_over_threshold, is_marked })
            }
        }
    }

    /// Decides whether an Interest waits in a queue of the store.
    pub(crate) fn decide_for_queue(
        &mut self,
        origin: Origin<'_>,
        interest: &InterestView<'_>,
        queue: DiskQueue,
    ) -> QueueDecision {
        if !self.content.disk.may_bypass(queue) {
            return self.content.disk.wait(queue, true);
        }
        let is_home = self.tables.is_in_producer_region(interest);
        let key = &self.tables.hash_key;
        let next_hops = self.tables.fib.look_up(key, interest, origin, is_home);
        let available = self.available_of(next_hops.as_slice(), origin, interest);
        let (disk, measurements) = (&mut self.content.disk, &mut self.tables.measurements);
        disk.choose(self.now, queue, next_hops.as_slice(), available, measurements)
    }

    pub(crate) fn has_next_hop(&self, origin: Origin<'_>, interest: &InterestView<'_>) -> bool {
        !self.available_hops(origin, interest).is_empty()
    }

    fn available_hops(&self, origin: Origin<'_>, interest: &InterestView<'_>) -> HopSet {
        let is_home = self.tables.is_in_producer_region(interest);
        let next_hops = self.tables.fib.look_up(&self.tables.hash_key, interest, origin, is_home);
        self.available_of(next_hops.as_slice(), origin, interest)
    }

    /// The next hops that may receive an Interest now and whose stores have room.
    fn available_of(
        &self,
        next_hops: &[FibNextHop],
        origin: Origin<'_>,
        interest: &InterestView<'_>,
    ) -> HopSet {
        let disk = &self.content.disk;
        let has_labels = disk.policy.mark == Mark::NbCc;
        let is_last_hop = interest.hop_limit == Some(1);
        let name = interest.name.value();
        let mut available = self.tables.fib.no_hops();
        for (position, hop) in next_hops.iter().enumerate() {
            let egress = is_eligible(&self.tables.faces, origin.face, name, hop.face);
            let Some(egress) = egress else { continue };
            let has_room = match disk.policy.labels {
                _ if !has_labels => true,
                Labels::Neighbour => disk.neighbours.is_available(self.now, egress),
                Labels::Path => disk.neighbours.has_window(egress),
            };
            if has_room && (!is_last_hop || egress.is_local()) {
                available.insert(position);
            }
        }
        available
    }
}
