//! The Interest path (NFD, incoming Interest, content store hit and miss pipelines).

use alloc::vec::Vec;
use core::mem;

use weir_base::{FaceId, Instant, Packet};
use weir_store::{Lookup, NameHashes, Query};
use weir_wire::{InterestView, LpHeader, NackReason, NameView, PacketView, rewrite_interest, tlv};

use crate::content::decision::{Refusal, StoreDecision, StoredData};
use crate::egress::OutNack;
use crate::input::MissWatch;
use crate::io::{Event, Outbox};
use crate::packet::{Asked, Origin, QueueState, ReceivedPacket, lifetime_ns, query_of};
use crate::router::Router;
use crate::scope::is_localhost;
use crate::stats::DropReason;
use crate::strategy::Strategy;
use crate::strategy::context::Context;
use crate::table::faces::Face;
use crate::table::fib::{DELEGATIONS_MAX, FibNextHop, HopSet};
use crate::table::pit::{AwaitedSource, REWRITE_GROWTH};
use crate::table::prefixes::PrefixHashes;
use crate::table::records::InRecord;

/// Of the misses of an object's segments the share that is told.
const MISS_PERIOD: u64 = 64;

/// The next part of the path of an Interest, with what the parts before it have found.
#[derive(Clone, Debug)]
pub enum InterestStep {
    /// Scope, hop limit and loop check.
    Arrival,
    /// Look-up in the content store.
    Store,
    /// Insertion into the PIT, or aggregation with the entry that is there.
    Pit(StoreDecision),
    /// Longest prefix in the FIB, strategy, egress.
    Fib(StoreDecision),
}

impl Router {
    /// parse -> **scope, hop limit, loop -> store -> PIT -> FIB, strategy** -> egress.
    #[inline(always)]
    pub(crate) fn on_interest(
        &mut self,
        now: Instant,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        hashes: &NameHashes,
        out: &mut Outbox,
    ) {
        let Some(asked) = self.check(received, interest, hashes, out) else { return };
        let mut decision = self.ask_store(now, received, interest, &asked, out);
        if !self.ends_at_store(now, &mut decision, received, interest, &asked, out)
            && let Some(index) = self.enter_pit(now, received, interest, &asked, out)
        {
            self.send_on(now, &decision, index, received, interest, &asked.query, out);
        }
    }

    /// The path of an Interest that does not take the usual way to it.
    #[cold]
    #[inline(never)]
    pub(crate) fn resume_interest(
        &mut self,
        now: Instant,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        hashes: &NameHashes,
        out: &mut Outbox,
    ) {
        self.on_interest(now, received, interest, hashes, out);
    }

    /// One step of the path of an Interest alone, for a driver that has Interests wait between
    /// steps. Begin with [`InterestStep::Arrival`]. Returns the step that the same Interest is to
    /// be given to next; `None` when it has come to its end.
    ///
    /// An Interest that waits for a disk has come to its end here: it goes on by itself if the disk
    /// cannot help. While an Interest waits for the FIB its entry may be answered or expire; then
    /// nothing is left to do.
    ///
    /// # Panics
    /// When `packet` is no valid Interest, or `header` bears a Nack: those have no steps.
    pub fn handle_interest_step(
        &mut self,
        now: Instant,
        step: InterestStep,
        (face, header, packet): (FaceId, &LpHeader, &Packet),
        out: &mut Outbox,
    ) -> Option<InterestStep> {
        assert!(header.nack.is_none(), "a Nack does not pass the steps of Interests");
        let view = PacketView::decode(packet).expect("who keeps an Interest has decoded it");
        let hashes = &self.hash_name(&view);
        let PacketView::Interest(interest) = &view else { panic!("Data has no such steps") };
        let received = &ReceivedPacket::new(face, header, packet);
        self.expire(now, out);
        self.handle_disk_timeout(now, out);
        let next = self.do_step(now, step, received, interest, hashes, out);
        self.finish_batch(now, out);
        next
    }

    fn do_step(
        &mut self,
        now: Instant,
        step: InterestStep,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        hashes: &NameHashes,
        out: &mut Outbox,
    ) -> Option<InterestStep> {
        if let InterestStep::Fib(decision) = step {
            let query = query_of(interest, hashes);
            let index = self.pit.find(&query)?;
            self.send_on(now, &decision, index, received, interest, &query, out);
            return None;
        }
        self.stats.in_interests += u64::from(matches!(step, InterestStep::Arrival));
        let asked = self.check(received, interest, hashes, out)?;
        match step {
            InterestStep::Arrival => Some(InterestStep::Store),
            InterestStep::Store => {
                let mut decision = self.ask_store(now, received, interest, &asked, out);
                if self.ends_at_store(now, &mut decision, received, interest, &asked, out) {
                    return None;
                }
                if matches!(decision, StoreDecision::Aggregate | StoreDecision::Suppress) {
                    // It needs neither FIB nor strategy.
                    let index = self.enter_pit(now, received, interest, &asked, out)?;
                    self.send_on(now, &decision, index, received, interest, &asked.query, out);
                    return None;
                }
                Some(InterestStep::Pit(decision))
            }
            InterestStep::Pit(decision) | InterestStep::Fib(decision) => {
                let index = self.enter_pit(now, received, interest, &asked, out);
                index.map(|_| InterestStep::Fib(decision))
            }
        }
    }

    /// Scope, hop limit, loop.
    #[inline(always)]
    pub(crate) fn check<'a>(
        &mut self,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'a>,
        hashes: &NameHashes,
        out: &mut Outbox,
    ) -> Option<Asked<'a>> {
        let Some(&face) = self.faces.find(received.face) else {
            self.stats.drop_packet(DropReason::UnknownFace);
            return None;
        };
        if interest.hop_limit == Some(0) {
            self.stats.drop_packet(DropReason::HopLimit);
            return None;
        }
        if !face.is_local() && is_localhost(interest.name) {
            self.stats.drop_packet(DropReason::Scope);
            return None;
        }
        let query = query_of(interest, hashes);
        let nonce = interest.nonce.unwrap_or_else(|| self.rng.next_u32());
        let pending = self.pit.find(&query);
        if self.is_loop(hashes.whole, nonce, pending, received.face, face) {
            self.refuse(received, face, NackReason::Duplicate, DropReason::Loop, out);
            return None;
        }
        Some(Asked { query, face, nonce, pending })
    }

    /// Insert or join; past a bound, a Nack.
    #[inline]
    pub(crate) fn enter_pit(
        &mut self,
        now: Instant,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        asked: &Asked<'_>,
        out: &mut Outbox,
    ) -> Option<u32> {
        if !self.make_room(now, received, asked, out) {
            self.refuse(received, asked.face, NackReason::Congestion, DropReason::PitFull, out);
            return None;
        }
        let Asked { query, face, nonce, pending } = asked;
        let record = InRecord {
            face: received.face,
            face_slot: face.slot(),
            nonce: *nonce,
            expiry: now.plus_ns(self.lifetime_ns(interest, face)),
            pit_token: received.header.pit_token,
        };
        let index = match *pending {
            Some(index) => self.join_pending(index, interest, record),
            None => self.insert_pending(query, interest, record),
        };
        if interest.can_be_prefix && self.is_sharded() {
            self.watch_elsewhere(index, out);
        }
        Some(index)
    }

    /// How long the sender of an Interest waits, ns: not longer than others may, if it is another
    /// host.
    #[inline]
    fn lifetime_ns(&self, interest: &InterestView<'_>, face: &Face) -> u64 {
        let lifetime_ns = lifetime_ns(interest);
        match face.is_local() {
            true => lifetime_ns,
            false => lifetime_ns.min(self.config.remote_lifetime_ns_max),
        }
    }

    /// Whether `face` waits at an entry.
    #[inline]
    pub(crate) fn is_waiting(&self, index: u32, face: FaceId) -> bool {
        self.pit.entry(index).downstreams().any(|record| record.face == face)
    }

    /// A nonce that is dead, or that this entry has from elsewhere. The same nonce again from the
    /// same point-to-point face is a retransmission.
    #[inline(always)]
    fn is_loop(
        &self,
        hash: u64,
        nonce: u32,
        pending: Option<u32>,
        ingress: FaceId,
        face: Face,
    ) -> bool {
        if self.dead_nonces.contains(hash, nonce) {
            return true;
        }
        let Some(index) = pending else { return false };
        let entry = self.pit.entry(index);
        let is_repeated = face.is_point_to_point()
            && entry.downstreams().any(|record| record.face == ingress && record.nonce == nonce);
        !is_repeated
            && (entry.downstreams().any(|record| record.nonce == nonce)
                || entry.upstreams().any(|record| record.nonce == nonce))
    }

    /// Counts the drop and, where a single peer listens, says why.
    pub(crate) fn refuse(
        &mut self,
        received: &ReceivedPacket<'_>,
        face: Face,
        nack: NackReason,
        reason: DropReason,
        out: &mut Outbox,
    ) {
        self.stats.drop_packet(reason);
        if face.is_point_to_point() {
            let interest = received.packet.clone();
            let to = (received.face, received.header.pit_token);
            self.sender.nack(to, OutNack::own(nack), interest, &mut self.stats, out);
        }
    }

    /// What the store makes of an Interest. A pending entry means that memory has missed already.
    #[inline(always)]
    pub(crate) fn ask_store(
        &mut self,
        now: Instant,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        asked: &Asked<'_>,
        out: &mut Outbox,
    ) -> StoreDecision {
        if let Some(index) = asked.pending
            && let entry = self.pit.entry(index)
            && !entry.is_abandoned()
        {
            return match entry.awaits {
                AwaitedSource::Disk(waiter) => {
                    let since = self.disk.reads.waiter(waiter).since;
                    self.join_reading(now, received, (index, since), interest)
                }
                AwaitedSource::Shards(query) => {
                    let since = self.queries.waiter(query).since;
                    self.join_reading(now, received, (index, since), interest)
                }
                AwaitedSource::Bypass { .. } if self.is_waiting(index, received.face) => {
                    StoreDecision::RetryDisk
                }
                AwaitedSource::Bypass { .. } | AwaitedSource::Upstream => StoreDecision::Forward,
            };
        }
        if interest.can_be_prefix && self.is_sharded() {
            return self.look_up_prefix(now, received, asked, out);
        }
        match self.store.lookup(now, &asked.query) {
            Lookup::Hit(hit) => {
                // Only an Interest that had to wait before the store can have earned a mark.
                let is_marked = received.queue_state == QueueState::QueuedToBeMarked;
                StoreDecision::Answer(StoredData { packet: hit.packet, is_marked })
            }
            Lookup::OnDisk(found) => {
                self.disk.neighbours.note_asked(now, &asked.face);
                self.decide(now, received, interest, asked, found, out)
            }
            Lookup::Miss => {
                let is_watched = match self.watches_misses {
                    MissWatch::Off => false,
                    MissWatch::Local => asked.face.is_local(),
                    MissWatch::All => true,
                };
                if is_watched {
                    tell_miss(received.face, asked.face.is_local(), interest.name, out);
                }
                StoreDecision::Forward
            }
        }
    }

    /// Carries out what the store has decided where that is the end of the Interest's way. Says
    /// whether it is.
    #[inline(always)]
    pub(crate) fn ends_at_store(
        &mut self,
        now: Instant,
        decision: &mut StoreDecision,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        asked: &Asked<'_>,
        out: &mut Outbox,
    ) -> bool {
        let congestion = NackReason::Congestion;
        match decision {
            StoreDecision::Answer(StoredData { packet, is_marked }) => {
                self.stats.busy.marked += u64::from(*is_marked);
                let to = (&(received.face, received.header.pit_token), asked.face.is_local());
                let source = (FaceId::CONTENT_STORE, u64::from(*is_marked));
                let packet = mem::take(packet);
                self.sender.data(to, source, interest.name, packet, &mut self.stats, out);
            }
            StoreDecision::ReadDisk(read) => {
                self.stats.busy.waited_over_threshold += u64::from(read.is_over_threshold);
                if let Some(begun) = self.begin_read(&read.found) {
                    if let Some(index) = self.enter_pit(now, received, interest, asked, out) {
                        self.wait_for_disk(now, index, Origin::of(received), (read, begun));
                    }
                } else {
                    self.refuse(received, asked.face, congestion, DropReason::DiskBusy, out);
                }
            }
            StoreDecision::AskShards => {
                if let Some(index) = self.enter_pit(now, received, interest, asked, out) {
                    self.ask_shards(now, index, received, out);
                }
            }
            StoreDecision::Refuse(Refusal(reason)) => {
                self.store.decline_read();
                self.refuse(received, asked.face, congestion, *reason, out);
            }
            _ => return false,
        }
        true
    }

    /// Sends an entry where the store has let it go.
    #[expect(clippy::too_many_arguments, reason = "the last stage of the path")]
    #[inline(always)]
    pub(crate) fn send_on(
        &mut self,
        now: Instant,
        decision: &StoreDecision,
        index: u32,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        query: &Query<'_>,
        out: &mut Outbox,
    ) {
        let origin = Origin::of(received);
        match decision {
            StoreDecision::Forward => {}
            StoreDecision::Bypass(bypass) => {
                self.store.decline_read();
                self.count_bypass(bypass.reason);
                return self.pass_by_disk(now, index, origin, bypass, interest, out);
            }
            StoreDecision::RetryDisk => {
                if self.fall_back_to_disk(now, index, query, origin) {
                    return;
                }
            }
            StoreDecision::Hedge => self.stats.busy.hedged += 1,
            StoreDecision::Aggregate => return self.stats.busy.reads_joined += 1,
            StoreDecision::Suppress => return self.stats.drop_packet(DropReason::Suppressed),
            StoreDecision::Answer(_)
            | StoreDecision::ReadDisk(_)
            | StoreDecision::AskShards
            | StoreDecision::Refuse(_) => {
                unreachable!("that was the end of the Interest's way")
            }
        }
        self.forward(now, index, origin, None, interest, out);
    }

    #[inline(always)]
    fn insert_pending(
        &mut self,
        query: &Query<'_>,
        interest: &InterestView<'_>,
        record: InRecord,
    ) -> u32 {
        self.faces.begin_wait(record.face_slot);
        let hop_limit = interest.hop_limit.map(|limit| limit - 1);
        let packet = self.rewrite(interest, record.nonce, hop_limit);
        let name_at = name_value_at(&packet);
        self.pit.insert(query, packet, name_at, hop_limit, &record)
    }

    /// A retransmission goes upstream with its own nonce and HopLimit, if there is room for it: it
    /// may have a longer forwarding hint.
    fn join_pending(&mut self, index: u32, interest: &InterestView<'_>, record: InRecord) -> u32 {
        let nonce = record.nonce;
        let hop_limit = interest.hop_limit.map(|limit| limit - 1);
        let entry = self.pit.entry(index);
        if entry.nonce() != nonce || entry.hop_limit != hop_limit {
            let packet = self.rewrite(interest, nonce, hop_limit);
            if self.pit.has_room_instead(index, packet.len()) {
                let name_at = name_value_at(&packet);
                let before = self.pit.replace_interest(index, packet, name_at, nonce, hop_limit);
                self.pool.recycle(before);
            }
        }
        self.note_downstream(index, record);
        index
    }

    /// The Interest as it leaves: with a nonce, the HopLimit one less, without a forwarding hint
    /// that has led it here.
    #[inline(always)]
    fn rewrite(
        &mut self,
        interest: &InterestView<'_>,
        nonce: u32,
        hop_limit: Option<u8>,
    ) -> Packet {
        let strip_hint = self.is_in_producer_region(interest);
        let mut block = self.pool.alloc(interest.wire.len() + REWRITE_GROWTH);
        let len = rewrite_interest(interest, nonce, hop_limit, strip_hint, &mut block)
            .expect("the block is longer than the Interest can grow");
        block.freeze(len)
    }

    pub(crate) fn is_in_producer_region(&self, interest: &InterestView<'_>) -> bool {
        !self.producer_regions.is_empty()
            && interest.forwarding_hint.iter().take(DELEGATIONS_MAX).any(|delegation| {
                self.producer_regions.iter().any(|region| delegation.is_prefix_of(region.as_view()))
            })
    }

    fn note_downstream(&mut self, index: u32, record: InRecord) {
        let expiry = record.expiry;
        let entry = self.pit.entry(index);
        if !entry.is_abandoned() {
            self.stats.aggregated += 1;
        }
        let known = entry.downstreams().position(|known| known.face == record.face);
        match known {
            Some(at) => {
                let known = &mut self.pit.lists_mut(index).downstreams[at];
                known.nonce = record.nonce;
                known.expiry = expiry;
                known.pit_token = record.pit_token;
            }
            None => {
                self.faces.begin_wait(record.face_slot);
                self.pit.add_downstream(index, record);
            }
        }
        let entry = self.pit.entry(index);
        let last = entry.last_expiry().unwrap_or(expiry);
        // The strategy may want to be asked before that.
        let wake_at = self.pit.timers.deadline(index).map_or(last, |at| at.min(last));
        self.pit.timers.schedule(index, wake_at);
    }

    /// FIB and strategy. `only`: the next hops to choose received, where not all.
    pub(crate) fn forward(
        &mut self,
        now: Instant,
        index: u32,
        origin: Origin,
        only: Option<HopSet>,
        interest: &InterestView<'_>,
        out: &mut Outbox,
    ) {
        self.consult(now, index, origin, only, interest, out, |strategy, context| {
            match (origin.next_hop_face, context.next_hops) {
                (Some(_), &[chosen]) => {
                    context.send_interest(chosen);
                }
                _ => strategy.on_interest(context),
            }
        });
        if self.pit.entry(index).is_abandoned() {
            self.finish_unsatisfied(now, index);
        }
    }

    /// Asks the strategy whether an Interest, which everybody who was asked has refused, goes to
    /// somebody else.
    pub(crate) fn ask_another(&mut self, now: Instant, index: u32, out: &mut Outbox) -> bool {
        self.ask_strategy(now, index, out, Strategy::on_refusal)
    }

    /// Asks the strategy about an Interest that it wanted to be asked about before it expires.
    #[cold]
    pub(crate) fn on_silence(
        &mut self,
        now: Instant,
        index: u32,
        last_expiry: Instant,
        out: &mut Outbox,
    ) {
        self.pit.timers.schedule(index, last_expiry);
        let entry = self.pit.entry(index);
        if !matches!(entry.awaits, AwaitedSource::Upstream | AwaitedSource::Bypass { .. }) {
            return;
        }
        self.ask_strategy(now, index, out, Strategy::on_silence);
    }

    /// Asks the strategy of an entry's name about an Interest that came before.
    fn ask_strategy<T: Default>(
        &mut self,
        now: Instant,
        index: u32,
        out: &mut Outbox,
        ask: impl FnOnce(&Strategy, &mut Context<'_>) -> T,
    ) -> T {
        let entry = self.pit.entry(index);
        let packet = entry.interest.clone();
        let first = entry.downstreams().next().map(|record| record.face);
        let (Ok(interest), Some(face)) = (InterestView::decode(&packet), first) else {
            return T::default();
        };
        let origin = Origin { face, next_hop_face: None, head: 0 };
        self.consult(now, index, origin, None, &interest, out, ask)
    }

    /// Asks the strategy of an entry's name.
    #[expect(clippy::too_many_arguments, reason = "the last stage of the path")]
    #[inline(always)]
    fn consult<T>(
        &mut self,
        now: Instant,
        index: u32,
        origin: Origin,
        only: Option<HopSet>,
        interest: &InterestView<'_>,
        out: &mut Outbox,
        ask: impl FnOnce(&Strategy, &mut Context<'_>) -> T,
    ) -> T {
        let is_home = self.is_in_producer_region(interest);
        let key = &self.config.hash_key;
        // Few names lie under a prefix that has a strategy of its own.
        let has_choice = self.strategies.may_match(interest.name);
        let choice_lengths = if has_choice { self.strategies.lengths() } else { 0 };
        let mut hashes = PrefixHashes::default();
        hashes.add(key, interest.name, self.fib.lengths_after(origin.head) | choice_lengths);
        let next_hops = self.fib.next_hops(key, interest, &hashes, origin, is_home);
        let mut context = Context {
            now,
            pit: &mut self.pit,
            entry: index,
            ingress: origin.face,
            next_hops: next_hops.as_slice(),
            only: only.and_then(|only| self.fib.still_valid(only)),
            lifetime_ns: lifetime_ns(interest),
            faces: &mut self.faces,
            measurements: &mut self.measurements,
            sender: &mut self.sender,
            stats: &mut self.stats,
            out,
        };
        let strategy = match has_choice {
            true => self.strategies.longest_match(interest.name, &hashes),
            false => self.strategies.root(),
        };
        ask(strategy.unwrap_or(&self.default_strategy), &mut context)
    }

    /// A next hop was added where a strategy wants pending Interests to learn of it (NFD,
    /// afterNewNextHop).
    pub(crate) fn offer_new_next_hop(
        &mut self,
        now: Instant,
        prefix: &weir_wire::Name,
        hop: FibNextHop,
        out: &mut Outbox,
    ) {
        let prefix = prefix.as_view();
        let under: Vec<u32> = self
            .pit
            .iter()
            .filter(|(_, entry)| entry.name_value().starts_with(prefix.value()))
            .map(|(index, _)| index)
            .collect();
        for index in under {
            self.offer_to_entry(now, index, hop, out);
        }
    }

    fn offer_to_entry(&mut self, now: Instant, index: u32, hop: FibNextHop, out: &mut Outbox) {
        let entry = self.pit.entry(index);
        let packet = entry.interest.clone();
        let Ok(interest) = InterestView::decode(&packet) else { return };
        let Some(ingress) = entry.downstreams().next().map(|record| record.face) else {
            return;
        };
        let lengths = self.fib.lengths() | self.strategies.lengths();
        let mut hashes = PrefixHashes::default();
        hashes.add(&self.config.hash_key, interest.name, lengths);
        let strategy =
            self.strategies.longest_match(interest.name, &hashes).unwrap_or(&self.default_strategy);
        let is_chosen = self
            .fib
            .longest_match(interest.name, &hashes)
            .is_some_and(|entry| entry.next_hops.iter().any(|known| known.face == hop.face));
        if !is_chosen {
            return;
        }
        let mut context = Context {
            now,
            pit: &mut self.pit,
            entry: index,
            ingress,
            next_hops: &[hop],
            only: None,
            lifetime_ns: lifetime_ns(&interest),
            faces: &mut self.faces,
            measurements: &mut self.measurements,
            sender: &mut self.sender,
            stats: &mut self.stats,
            out,
        };
        if strategy.wants_new_next_hops() {
            strategy.on_interest(&mut context);
        }
    }
}

/// Where the name's TLV-VALUE lies in an encoded Interest.
#[inline(always)]
fn name_value_at(interest: &[u8]) -> (u16, u16) {
    let read = |at: usize| tlv::read_var_number(&interest[at..]).expect("we encoded it ourselves");
    let name_at = 1 + read(1).1;
    let (name_len, size) = read(name_at + 1);
    ((name_at + 1 + size) as u16, name_len as u16)
}

/// Says that an object lacks a segment, if it is one of those by which large objects are noticed.
#[cold]
fn tell_miss(ingress: FaceId, is_local: bool, name: NameView<'_>, out: &mut Outbox) {
    let segment = name.last().and_then(|component| component.as_segment()).unwrap_or(0);
    if segment > 0 && segment.is_multiple_of(MISS_PERIOD) && !is_localhost(name) {
        let object = name.parent().to_name();
        out.events.push(Event::Missed { ingress, is_local, object });
    }
}
