//! The last stage: the FIB and the strategy choose the next hops of a PIT entry.

use alloc::vec::Vec;

use weir_base::{FaceId, Instant};
use weir_store::Query;
use weir_wire::{InterestView, LpHeader, NackReason, NameView};

use crate::content::decision::{BypassReason, DiskBypass, ForwardingAction};
use crate::content::reads::Waiter;
use crate::egress::OutNack;
use crate::endpoints::Origin;
use crate::incoming::lifetime_ns;
use crate::router::Router;
use crate::stats::DropReason;
use crate::strategy::Strategy;
use crate::strategy::context::Context;
use crate::strategy::nacks::{NackVerdict, judge_nacks};
use crate::table::fib::{FibNextHop, HopSet};
use crate::table::pit::AwaitedSource;
use crate::table::prefixes::PrefixHashes;
use crate::table::records::OutRecord;

impl Router {
    /// Continues the path of an Interest that has a PIT entry, with the action that the store stage
    /// chose.
    #[inline(always)]
    pub(crate) fn forward_pending(
        &mut self,
        entry: u32,
        onward: &ForwardingAction,
        origin: Origin<'_>,
        interest: &InterestView<'_>,
        query: &Query<'_>,
    ) {
        match onward {
            ForwardingAction::Forward => {}
            ForwardingAction::Bypass(bypass) => {
                // The record that the store has found will not be read.
                self.content.store.count_miss(interest.name, interest.can_be_prefix);
                bypass.reason.count(&mut self.egress.stats.busy);
                return self.bypass_disk(entry, origin, bypass, interest);
            }
            ForwardingAction::RetryDisk => {
                if self.fall_back_to_disk(entry, query, origin) {
                    return;
                }
            }
            ForwardingAction::Hedge => self.egress.stats.busy.hedged += 1,
            ForwardingAction::Aggregate => return self.egress.stats.busy.reads_joined += 1,
            ForwardingAction::Suppress => return self.egress.drop_packet(DropReason::Suppressed),
        }
        self.forward(entry, origin, None, interest);
    }

    /// Looks up FIB and strategy and sends the Interest. `only` limits the next hops to choose
    /// from.
    ///
    /// Without a route, the usual NoRoute Nack would be wrong while the disks recover after a
    /// start, since a disk may have the Data. The entry then ends without a Nack, and a
    /// retransmission asks the store again.
    pub(crate) fn forward(
        &mut self,
        entry: u32,
        origin: Origin<'_>,
        only: Option<HopSet>,
        interest: &InterestView<'_>,
    ) {
        let may_be_found_later = self.content.store.is_recovering();
        let is_dropped = self.consult(entry, origin, only, interest, |strategy, context| {
            match (origin.header.next_hop_face, context.next_hops) {
                // No route, and a recovering disk may still have the Data.
                (_, []) if may_be_found_later => return true,
                (Some(_), &[chosen]) => {
                    context.send_interest(chosen);
                }
                _ => strategy.on_interest(context),
            }
            false
        });
        // A strategy that rejects the Interest has sent Nacks to all downstreams.
        if is_dropped || !self.tables.pit.entry(entry).has_downstreams() {
            self.end_unsatisfied(entry);
        }
    }

    /// Forwards an entry although a disk has its Data.
    pub(crate) fn bypass_disk(
        &mut self,
        entry: u32,
        origin: Origin<'_>,
        bypass: &DiskBypass,
        interest: &InterestView<'_>,
    ) {
        if bypass.reason == BypassReason::Stalled {
            return self.forward(entry, origin, None, interest);
        }
        self.end_wait(entry, None);
        let awaits = AwaitedSource::Bypass { since: self.now, is_marked: bypass.is_marked };
        self.tables.pit.entry_mut(entry).awaits = awaits;
        self.forward(entry, origin, Some(bypass.hops), interest);
        if let Some((face, _)) = self.bypass_of(entry) {
            self.content.disk.neighbours.on_bypass(&face);
        }
    }

    /// Forwards an entry that a disk or the other shards could not answer. `is_stalled` means that
    /// the disk has stopped responding.
    pub(crate) fn forward_waiting(&mut self, waiter: &Waiter, is_stalled: bool) {
        let now = self.now;
        let index = waiter.entry;
        let entry = self.tables.pit.entry_mut(index);
        let is_out = |record: OutRecord| record.nacked.is_none() && record.expiry > now;
        if entry.upstreams().any(is_out) {
            // A retransmission is already on its way upstream.
            return;
        }
        let refused = entry.upstreams().find(|record| record.nacked.is_some());
        // All next hops refused while the entry waited, so the wait was its last chance.
        if let (Some(by), NackVerdict::AllRefused(reason)) = (refused, judge_nacks(now, entry)) {
            return self.end_with_nack(index, OutNack { reason, from: Some(by.face) });
        }
        let packet = entry.interest.clone();
        let interest = InterestView::decode(&packet).expect("the PIT holds valid Interests");
        let header = &waiter.header();
        let origin = Origin { face: waiter.ingress, header, prefix_run: 0 };
        if is_stalled && !self.has_next_hop(origin, &interest) {
            // The Data exists, but cannot be read now.
            return self.end_with_nack(index, OutNack::own(NackReason::Congestion));
        }
        self.forward(index, origin, None, &interest);
    }

    /// Lets the strategy try another next hop after all the others have refused. Returns whether it
    /// sent the Interest.
    pub(crate) fn forward_after_refusal(&mut self, entry: u32) -> bool {
        self.consult_again(entry, Strategy::on_refusal)
    }

    /// Reports a Nack to the strategy. Returns whether the entry waits for other upstreams.
    #[cold]
    pub(crate) fn report_nack(&mut self, entry: u32, from: FaceId, reason: NackReason) -> bool {
        self.consult_again(entry, |strategy, context| strategy.on_nack(context, from, reason))
    }

    /// Wakes the strategy of an entry at the time that the strategy had requested, if no next hop
    /// has answered.
    #[cold]
    pub(crate) fn wake_strategy(&mut self, index: u32, last_expiry: Instant) {
        self.tables.pit.timers.schedule(index, last_expiry);
        let entry = self.tables.pit.entry(index);
        if matches!(entry.awaits, AwaitedSource::Disk(_) | AwaitedSource::Shards(_)) {
            return;
        }
        self.consult_again(index, Strategy::on_timeout);
    }

    /// Calls the strategy of an entry without a new Interest.
    fn consult_again<T: Default>(
        &mut self,
        index: u32,
        call: impl FnOnce(&Strategy, &mut Context<'_>) -> T,
    ) -> T {
        let entry = self.tables.pit.entry(index);
        let packet = entry.interest.clone();
        let first = entry.downstreams().next().map(|record| record.face);
        let (Ok(interest), Some(face)) = (InterestView::decode(&packet), first) else {
            return T::default();
        };
        self.consult(index, Origin::of_face(face), None, &interest, call)
    }

    /// Calls the strategy of an entry's name with its next hops.
    #[inline(always)]
    fn consult<T>(
        &mut self,
        entry: u32,
        origin: Origin<'_>,
        only: Option<HopSet>,
        interest: &InterestView<'_>,
        call: impl FnOnce(&Strategy, &mut Context<'_>) -> T,
    ) -> T {
        let tables = &mut self.tables;
        let is_home = tables.is_in_producer_region(interest);
        let key = &tables.hash_key;
        let choice_lengths = tables.strategies.lengths_for(interest.name);
        let mut hashes = PrefixHashes::default();
        // One pass hashes the prefixes for both tables. Within a prefix run, the FIB reuses its
        // last lookup and needs no hash.
        hashes.add(
            key,
            interest.name,
            tables.fib.lengths_after(origin.prefix_run) | choice_lengths,
        );
        let next_hops = tables.fib.next_hops(key, interest, &hashes, origin, is_home);
        let mut context = Context {
            now: self.now,
            pit: &mut tables.pit,
            entry,
            ingress: origin.face,
            header: origin.header,
            next_hops: next_hops.as_slice(),
            only: only.and_then(|only| tables.fib.still_valid(only)),
            lifetime_ns: lifetime_ns(interest),
            faces: &mut tables.faces,
            measurements: &mut tables.measurements,
            egress: &mut self.egress,
        };
        let strategy = tables.strategies.find_hashed(interest.name, &hashes, choice_lengths);
        call(strategy, &mut context)
    }

    /// Offers a new next hop of a prefix to the entries below this prefix, if their strategies want
    /// new next hops (NFD, afterNewNextHop).
    pub(crate) fn offer_new_next_hop(&mut self, prefix: NameView<'_>, hop: FibNextHop) {
        let pit = self.tables.pit.iter();
        let below = pit.filter(|(_, entry)| entry.name_value().starts_with(prefix.value()));
        let below: Vec<u32> = below.map(|(index, _)| index).collect();
        for entry in below {
            self.offer_to_entry(entry, hop);
        }
    }

    fn offer_to_entry(&mut self, index: u32, hop: FibNextHop) {
        let tables = &mut self.tables;
        let entry = tables.pit.entry(index);
        let packet = entry.interest.clone();
        let Ok(interest) = InterestView::decode(&packet) else { return };
        let Some(ingress) = entry.downstreams().next().map(|record| record.face) else {
            return;
        };
        let lengths = tables.fib.lengths() | tables.strategies.lengths();
        let mut hashes = PrefixHashes::default();
        hashes.add(&tables.hash_key, interest.name, lengths);
        let strategy = tables.strategies.find(interest.name, &hashes);
        // The FIB may have a longer prefix for this entry, which does not include the new next hop.
        let is_chosen = tables
            .fib
            .longest_match(interest.name, &hashes)
            .is_some_and(|entry| entry.next_hops.iter().any(|known| known.face == hop.face));
        if !is_chosen || !strategy.wants_new_next_hops() {
            return;
        }
        strategy.on_interest(&mut Context {
            now: self.now,
            pit: &mut tables.pit,
            entry: index,
            ingress,
            header: &LpHeader::PLAIN,
            next_hops: &[hop],
            only: None,
            lifetime_ns: lifetime_ns(&interest),
            faces: &mut tables.faces,
            measurements: &mut tables.measurements,
            egress: &mut self.egress,
        });
    }
}
