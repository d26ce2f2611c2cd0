//! Interests that wait for a disk, and what comes of it (paper nb-cache, III-D).

use alloc::vec::Vec;

use weir_base::{FaceId, Instant, Packet};
use weir_store::disk::{FinishedRead, OnDisk, ReadId, ReadOutcome};
use weir_store::{Lookup, Query};
use weir_wire::{DataView, InterestView, NackReason, PacketView};

use crate::content::busy::{Labels, Mark};
use crate::content::decision::{DiskRead, StoreDecision};
use crate::content::queries::RemoteWaiters;
use crate::content::reads::Waiter;
use crate::egress::OutNack;
use crate::input::Input;
use crate::io::{Event, Outbox};
use crate::packet::{Origin, ReceivedPacket};
use crate::router::Router;
use crate::strategy::nacks::{NackVerdict, judge_nacks};
use crate::table::pit::AwaitedSource;
use crate::table::prefixes::{PrefixHashes, hash_proper_prefixes};
use crate::table::records::OutRecord;

impl Router {
    /// An input that is no packet.
    pub(crate) fn handle_other(&mut self, now: Instant, input: Input, out: &mut Outbox) {
        match input {
            Input::Command(command) => self.apply(now, command, out),
            Input::DiskDone { id, outcome } => {
                self.store.on_disk_done(now, id, outcome);
                self.take_finished_reads(now, out);
            }
            Input::Signal { face, signal } => {
                let is_heard = self.config.busy.labels == Labels::Neighbour;
                if let Some(face) = self.faces.find(face).filter(|_| is_heard) {
                    let stats = &mut self.stats.busy;
                    self.disk.neighbours.on_signal(now, face, signal, stats);
                }
            }
            Input::Shard { from, message } => self.on_shard_message(now, from, message, out),
            Input::Packet { .. } | Input::Wakeup => {}
        }
    }

    /// What the store's disks want by this time.
    #[inline]
    pub(crate) fn handle_disk_timeout(&mut self, now: Instant, out: &mut Outbox) {
        if self.store.has_disk() && self.store.next_wakeup().is_some_and(|at| at <= now) {
            self.store.handle_timeout(now);
            self.take_finished_reads(now, out);
        }
    }

    /// What is to be done on disks after a batch, and what neighbours are to be told.
    #[inline]
    pub(crate) fn finish_batch(&mut self, now: Instant, out: &mut Outbox) {
        if self.store.has_disk() {
            self.finish_batch_with_disk(now, out);
        }
        if self.is_sharded() {
            self.end_watches(out);
        }
    }

    #[inline(never)]
    fn finish_batch_with_disk(&mut self, now: Instant, out: &mut Outbox) {
        self.take_finished_reads(now, out);
        if self.config.busy.mark == Mark::NbCc && self.config.busy.labels == Labels::Neighbour {
            let is_over = self.disk.is_over_threshold();
            self.disk.neighbours.announce(now, is_over, &mut self.stats.busy, out);
        }
        if !self.disk.flushes.is_empty() && !self.store.flush(now) {
            let done = self.disk.flushes.drain(..);
            out.events.extend(done.map(|transaction| Event::StoreFlushed { transaction }));
        }
        if !self.disk.refill.is_empty() || self.store.has_lost() {
            self.refill_holes(now, out);
        }
        self.drop_own_packets(out);
        self.store.take_disk_ops(now, &mut out.disk_ops);
    }

    pub(crate) fn flush_store(&mut self, now: Instant, transaction: u64, out: &mut Outbox) {
        match self.store.flush(now) {
            true => self.disk.flushes.push(transaction),
            false => out.events.push(Event::StoreFlushed { transaction }),
        }
    }

    /// Has the store read what it has found. `None` past the bound of reads.
    pub(crate) fn begin_read(&mut self, found: &OnDisk) -> Option<ReadId> {
        let read = self.store.begin_read(found).ok();
        self.stats.busy.reads_refused += u64::from(read.is_none());
        read
    }

    /// The entry waits for a read that was begun, or joined.
    pub(crate) fn wait_for_disk(
        &mut self,
        now: Instant,
        index: u32,
        origin: Origin,
        (read, begun): (&DiskRead, ReadId),
    ) {
        self.stats.busy.reads_begun += 1;
        if matches!(self.pit.entry(index).awaits, AwaitedSource::Disk(_)) {
            return;
        }
        self.detach_wait_state(now, index, None);
        let waiter = Waiter {
            entry: index,
            since: now,
            ingress: origin.face,
            next_hop_face: origin.next_hop_face,
            is_marked: read.is_marked,
            disk: read.found.disk,
            ahead: read.found.reads_waiting,
        };
        let at = self.disk.reads.wait(begun, read.found.disk, waiter);
        self.pit.entry_mut(index).awaits = AwaitedSource::Disk(at);
    }

    /// An Interest finds its entry waiting for a disk since then. A retransmission goes upstream as
    /// well, but not before its time, and not where there is no next hop; one from elsewhere waits
    /// with the others.
    pub(crate) fn join_reading(
        &self,
        now: Instant,
        received: &ReceivedPacket<'_>,
        (index, since): (u32, Instant),
        interest: &InterestView<'_>,
    ) -> StoreDecision {
        let entry = self.pit.entry(index);
        if entry.is_asked() {
            return StoreDecision::Forward;
        }
        if !self.is_waiting(index, received.face) {
            return StoreDecision::Aggregate;
        }
        let mut hashes = PrefixHashes::default();
        hashes.add(&self.config.hash_key, interest.name, self.strategies.lengths());
        let strategy =
            self.strategies.longest_match(interest.name, &hashes).unwrap_or(&self.default_strategy);
        let is_early = now.ns_since(since) < strategy.retransmission_ns(entry);
        match is_early || !self.has_next_hop(now, Origin::of(received), interest) {
            true => StoreDecision::Suppress,
            false => StoreDecision::Hedge,
        }
    }

    /// Has a disk read after all for an entry that has passed by: the next hop does not answer, or
    /// has refused. Not where a driver holds Interests up before the store.
    #[cold]
    pub(crate) fn fall_back_to_disk(
        &mut self,
        now: Instant,
        index: u32,
        query: &Query<'_>,
        origin: Origin,
    ) -> bool {
        if self.disk.is_held_up() {
            return false;
        }
        let Lookup::OnDisk(found) = self.store.lookup(now, query) else { return false };
        if found.is_stalled {
            self.store.decline_read();
            return false;
        }
        let Ok(begun) = self.store.begin_read(&found) else { return false };
        self.stats.busy.came_back += 1;
        if self.disk.is_adaptive() {
            self.disk.adaptive.on_return(found.disk);
        }
        let is_marked = self.disk.is_marked_by_queue(found.reads_waiting);
        let read = DiskRead { found, is_over_threshold: false, is_marked };
        self.wait_for_disk(now, index, origin, (&read, begun));
        true
    }

    /// An entry that is about to end, or to wait for something else, waits no longer for what it
    /// does. `source`: who has answered it, and the congestion mark.
    #[inline(always)]
    pub(crate) fn detach_wait_state(
        &mut self,
        now: Instant,
        index: u32,
        source: Option<(FaceId, u64)>,
    ) {
        if self.pit.entry(index).awaits != AwaitedSource::Upstream {
            self.detach_from(now, index, source);
        }
    }

    #[inline(never)]
    fn detach_from(&mut self, now: Instant, index: u32, source: Option<(FaceId, u64)>) {
        if matches!(self.pit.entry(index).awaits, AwaitedSource::Bypass { .. }) {
            self.end_bypass(index, source);
        }
        match core::mem::take(&mut self.pit.entry_mut(index).awaits) {
            AwaitedSource::Upstream => {}
            AwaitedSource::Disk(waiter) => {
                self.disk.reads.leave(waiter);
                self.stats.busy.overtaken += 1;
            }
            AwaitedSource::Shards(query) => drop(self.queries.remove(query)),
            AwaitedSource::Bypass { since, .. } => {
                if source.is_some_and(|(face, _)| face != FaceId::CONTENT_STORE) {
                    self.stats.busy.bypass_latency.record(now.ns_since(since));
                }
            }
        }
    }

    /// Answers or sends on the Interests whose reads have ended.
    pub(crate) fn take_finished_reads(&mut self, now: Instant, out: &mut Outbox) {
        while let Some(FinishedRead { read, outcome }) = self.store.next_finished() {
            let mut waiters = core::mem::take(&mut self.disk.finished);
            waiters.clear();
            self.disk.reads.finish(read, &mut waiters);
            for waiter in &waiters {
                self.pit.entry_mut(waiter.entry).awaits = AwaitedSource::Upstream;
            }
            let is_stalled = matches!(outcome, ReadOutcome::Stalled);
            let elsewhere = self.end_remote_reads(now, read, &outcome, out);
            let is_timed = self.disk.times_reads() && !(is_stalled && self.disk.is_late());
            if let Some(first) = waiters.first().filter(|_| is_timed) {
                let left = self.disk.reads.queue_of(first.disk);
                let took_ns = now.ns_since(first.since);
                self.disk.adaptive.on_read(now, first.disk, (first.ahead, left), took_ns);
            }
            if let ReadOutcome::Data { packet, fresh_until } = outcome {
                let is_late = waiters.is_empty() && elsewhere.homes == 0;
                self.stats.busy.reads_late += u64::from(is_late);
                let read = (&packet, fresh_until);
                self.answer_from_disk(now, read, &mut waiters, elsewhere, out);
            }
            for waiter in waiters.drain(..) {
                self.forward_after_failed_read(now, &waiter, is_stalled, out);
            }
            self.disk.finished = waiters;
        }
    }

    /// Sends Data that was read to all who wait for its name, and puts it into RAM. Who is not
    /// answered by it stays in `waiters`.
    #[inline(never)]
    fn answer_from_disk(
        &mut self,
        now: Instant,
        (packet, fresh_until): (&Packet, Instant),
        waiters: &mut Vec<Waiter>,
        elsewhere: RemoteWaiters,
        out: &mut Outbox,
    ) {
        let Ok(data) = DataView::decode(packet) else {
            self.stats.busy.reads_malformed += 1;
            return;
        };
        let hashes = self.hash_name(&PacketView::Data(data));
        let mut matched = core::mem::take(&mut self.matched);
        matched.clear();
        self.find_pending(&data, hashes.whole, &mut matched);
        let is_asked = waiters.iter().any(|waiter| matched.contains(&waiter.entry));
        if !waiters.is_empty() && !is_asked {
            self.stats.busy.reads_malformed += 1;
        }
        let is_stale = fresh_until <= now;
        if is_stale {
            matched.retain(|&index| !self.pit.entry(index).must_be_fresh);
        }
        let mut is_marked = elsewhere.is_marked;
        waiters.retain(|waiter| {
            let is_answered = matched.contains(&waiter.entry);
            if is_answered {
                is_marked |= waiter.is_marked;
                let took_ns = now.ns_since(waiter.since);
                self.stats.busy.answered += 1;
                self.stats.busy.read_latency.record(took_ns);
            }
            !is_answered
        });
        let key = &self.config.hash_key;
        let prefixes = |path: &mut Vec<u64>| hash_proper_prefixes(key, data.name, path);
        self.store.promote(now, (packet, &data), fresh_until, hashes, prefixes, &mut self.pool);
        let source = (FaceId::CONTENT_STORE, u64::from(is_marked));
        if !matched.is_empty() {
            let sent = self.stats.out_data;
            self.send_down(now, source, false, packet.clone(), &data, &matched, out);
            if is_marked {
                self.stats.busy.marked += self.stats.out_data - sent;
            }
        }
        // A home that has had it read may have missed the watch.
        let watching = if self.watches.is_empty() { 0 } else { self.homes_of(&data) };
        let homes = watching | elsewhere.homes;
        if homes != 0 {
            self.show((source, is_stale), packet.clone(), homes, !matched.is_empty(), out);
        }
        self.matched = matched;
    }

    /// The disk did not help: on to FIB and strategy, unless a retransmission has gone there.
    fn forward_after_failed_read(
        &mut self,
        now: Instant,
        waiter: &Waiter,
        is_stalled: bool,
        out: &mut Outbox,
    ) {
        self.stats.busy.went_on += 1;
        self.forward_waiting(now, waiter, is_stalled, out);
    }

    /// On to FIB and strategy with an entry that waited for a disk or for other shards.
    pub(crate) fn forward_waiting(
        &mut self,
        now: Instant,
        waiter: &Waiter,
        is_stalled: bool,
        out: &mut Outbox,
    ) {
        let index = waiter.entry;
        let entry = self.pit.entry_mut(index);
        let is_out = |record: OutRecord| record.nacked.is_none() && record.expiry > now;
        if entry.upstreams().any(is_out) {
            return;
        }
        let refused = entry.upstreams().find(|record| record.nacked.is_some());
        if let (Some(by), NackVerdict::AllRefused(reason)) = (refused, judge_nacks(now, entry)) {
            let nack = OutNack { reason, from: Some(by.face) };
            self.sender.nack_all(now, entry, nack, &mut self.faces, &mut self.stats, out);
            return self.finish_unsatisfied(now, index);
        }
        let packet = entry.interest.clone();
        let interest = InterestView::decode(&packet).expect("the PIT holds valid Interests");
        let origin = Origin { face: waiter.ingress, next_hop_face: waiter.next_hop_face, head: 0 };
        if is_stalled && !self.has_next_hop(now, origin, &interest) {
            // There is a way to it, only not now.
            return self.end_with_nack(now, index, OutNack::own(NackReason::Congestion), out);
        }
        self.forward(now, index, origin, None, &interest, out);
    }
}
