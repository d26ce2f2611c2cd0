//! The Interest path (NFD, incoming Interest, content store hit and miss pipelines).

use alloc::vec::Vec;

use weir_base::{FaceId, Instant, Packet};
use weir_store::{Lookup, NameHashes, Query};
use weir_wire::{InterestView, LpHeader, NackReason, PacketView, rewrite_interest, tlv};

use crate::content::decision::StoreDecision;
use crate::io::{NextHop, Outbox};
use crate::packet::{Asked, Origin, QueueState, ReceivedPacket, lifetime_ns};
use crate::router::Router;
use crate::scope::is_localhost;
use crate::stats::DropReason;
use crate::strategy::context::Context;
use crate::table::faces::Face;
use crate::table::fib::fib_entry;
use crate::table::pit::{AwaitedSource, InRecord, PitKey};
use crate::table::prefixes::PrefixHashes;

/// Octets that an Interest may grow by when a nonce is added: the element and longer outer lengths.
const REWRITE_GROWTH: usize = 16;

/// A part of the path of Interests, see [`Router::handle_interest_stage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterestStage {
    /// Scope, hop limit and loop check.
    Arrival,
    /// Look-up in the content store.
    Store,
    /// Insertion into the PIT, or joining of what waits there.
    Pit,
    /// Longest prefix in the FIB, strategy, egress.
    Fib,
}

impl Router {
    /// parse -> **scope, hop limit, loop -> store -> PIT -> FIB, strategy** -> egress.
    #[inline(always)]
    fn on_interest(
        &mut self,
        now: Instant,
        from: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        hashes: NameHashes,
        out: &mut Outbox,
    ) {
        let Some(asked) = self.check(from, interest, hashes, out) else { return };
        let course = self.ask_store(now, from, interest, &asked, hashes, out);
        let Some(course) = course else { return };
        let Some(index) = self.enter_pit(now, from, interest, &asked, out) else { return };
        self.follow(now, course, index, from, interest, out);
    }

    /// A new Interest: to its path, or before it the queue of a store that blocks.
    #[inline(always)]
    pub(crate) fn take_interest(
        &mut self,
        now: Instant,
        from: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        hashes: NameHashes,
        out: &mut Outbox,
    ) {
        self.stats.in_interests += 1;
        match self.disk.is_blocked() {
            true => self.meet_blocked_store(now, from, interest, hashes, out),
            false => self.on_interest(now, from, interest, hashes, out),
        }
    }

    /// The path of an Interest that does not take the usual way to it.
    #[cold]
    #[inline(never)]
    pub(crate) fn resume_interest(
        &mut self,
        now: Instant,
        from: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        hashes: NameHashes,
        out: &mut Outbox,
    ) {
        self.on_interest(now, from, interest, hashes, out);
    }

    /// One stage of the path of Interests alone, for a driver that has them wait between stages.
    /// Begin with [`InterestStage::Arrival`]. Returns the stage that the same Interest is to be
    /// given to next; nothing when it has come to its end.
    ///
    /// An Interest that waits for a disk has come to its end here: it goes on by itself if the disk
    /// cannot help. An Interest that passes the store by is given to [`InterestStage::Pit`]
    /// instead. While it waits for the FIB its entry may be answered or expire; then nothing is
    /// left to do.
    ///
    /// A store that blocks ([`StoreIo::Blocking`](crate::StoreIo)) has a queue of its own and no
    /// stages.
    ///
    /// # Panics
    /// When `packet` is no valid Interest, or `header` bears a Nack: those have no stages.
    pub fn handle_interest_stage(
        &mut self,
        now: Instant,
        stage: InterestStage,
        (face, header, packet): (FaceId, &LpHeader, &Packet),
        out: &mut Outbox,
    ) -> Option<InterestStage> {
        assert!(header.nack.is_none(), "a Nack does not pass the stages of Interests");
        let view = PacketView::decode(packet).expect("who keeps an Interest has decoded it");
        let hashes = self.hash_name(&view);
        let PacketView::Interest(interest) = &view else { panic!("Data has no such stages") };
        let from = &ReceivedPacket { face, header, packet, queue_state: QueueState::NotQueued };
        self.expire(now);
        self.handle_disk_timeout(now, out);
        let next = self.do_stage(now, stage, from, interest, hashes, out);
        self.finish_batch(now, out);
        next
    }

    fn do_stage(
        &mut self,
        now: Instant,
        stage: InterestStage,
        from: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        hashes: NameHashes,
        out: &mut Outbox,
    ) -> Option<InterestStage> {
        match stage {
            InterestStage::Arrival => {
                self.stats.in_interests += 1;
                self.check(from, interest, hashes, out).map(|_| InterestStage::Store)
            }
            InterestStage::Store => {
                let asked = self.check(from, interest, hashes, out)?;
                match self.ask_store(now, from, interest, &asked, hashes, out)? {
                    StoreDecision::ReadDisk(read) => {
                        let index = self.enter_pit(now, from, interest, &asked, out)?;
                        self.follow(now, StoreDecision::ReadDisk(read), index, from, interest, out);
                        None
                    }
                    StoreDecision::Aggregate => {
                        self.enter_pit(now, from, interest, &asked, out);
                        None
                    }
                    StoreDecision::Bypass(past) => {
                        self.forget_sample(now, &past);
                        Some(InterestStage::Pit)
                    }
                    StoreDecision::Forward | StoreDecision::RetryDisk(_) => {
                        Some(InterestStage::Pit)
                    }
                }
            }
            InterestStage::Pit => {
                let asked = self.check(from, interest, hashes, out)?;
                let index = self.enter_pit(now, from, interest, &asked, out);
                index.map(|_| InterestStage::Fib)
            }
            InterestStage::Fib => {
                let index = self.pit.find(&pit_key(interest, hashes))?;
                self.forward(now, index, Origin::of(from), None, interest, out);
                None
            }
        }
    }

    /// Scope, hop limit, loop.
    #[inline(always)]
    pub(crate) fn check<'a>(
        &mut self,
        from: &ReceivedPacket<'_>,
        interest: &InterestView<'a>,
        hashes: NameHashes,
        out: &mut Outbox,
    ) -> Option<Asked<'a>> {
        let Some(face) = self.faces.find(from.face) else {
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
        let key = pit_key(interest, hashes);
        let nonce = interest.nonce.unwrap_or_else(|| self.rng.next_u32());
        let pending = self.pit.find(&key);
        if self.is_loop(key.hash, nonce, pending, from.face, face) {
            self.refuse(from, face, NackReason::Duplicate, DropReason::Loop, out);
            return None;
        }
        Some(Asked { key, face, nonce, pending })
    }

    /// Insert or join; past a bound, a Nack.
    #[inline]
    pub(crate) fn enter_pit(
        &mut self,
        now: Instant,
        from: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        asked: &Asked<'_>,
        out: &mut Outbox,
    ) -> Option<u32> {
        if !self.has_pit_room(from, asked) {
            self.refuse(from, asked.face, NackReason::Congestion, DropReason::PitFull, out);
            return None;
        }
        let Asked { key, face, nonce, pending } = asked;
        let index = match *pending {
            Some(index) => self.renew_pending(index, interest, *nonce),
            None => self.insert_pending(key, interest, *nonce),
        };
        self.note_downstream(now, index, from, face.slot(), interest, *nonce);
        Some(index)
    }

    /// Whether the PIT may take what is asked.
    #[inline]
    pub(crate) fn has_pit_room(&self, from: &ReceivedPacket<'_>, asked: &Asked<'_>) -> bool {
        let Asked { face, pending, .. } = asked;
        let is_waiting = pending.is_some_and(|index| self.is_waiting(index, from.face));
        let is_over_share = !is_waiting && face.waits_for() >= self.config.pit_entries_per_face_max;
        !(is_over_share || pending.is_none() && self.pit.is_full())
    }

    /// Whether `face` waits at an entry.
    #[inline]
    pub(crate) fn is_waiting(&self, index: u32, face: FaceId) -> bool {
        self.pit.entry(index).in_records.iter().any(|record| record.face == face)
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
            && entry
                .in_records
                .iter()
                .any(|record| record.face == ingress && record.nonce == nonce);
        !is_repeated
            && (entry.in_records.iter().any(|record| record.nonce == nonce)
                || entry.out_records.iter().any(|record| record.nonce == nonce))
    }

    /// Counts the drop and, where a single peer listens, says why.
    pub(crate) fn refuse(
        &mut self,
        from: &ReceivedPacket<'_>,
        face: Face,
        nack: NackReason,
        reason: DropReason,
        out: &mut Outbox,
    ) {
        self.stats.drop_packet(reason);
        if face.is_point_to_point() {
            let interest = from.packet.clone();
            self.sender.nack(from.face, nack, interest, &mut self.stats, out);
        }
    }

    /// Answers from the store, or says where the Interest is to go. What others wait for already is
    /// not in RAM.
    #[inline(always)]
    fn ask_store(
        &mut self,
        now: Instant,
        from: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        asked: &Asked<'_>,
        hashes: NameHashes,
        out: &mut Outbox,
    ) -> Option<StoreDecision> {
        if let Some(index) = asked.pending
            && let entry = self.pit.entry(index)
            && !entry.in_records.is_empty()
        {
            return match entry.awaits {
                AwaitedSource::Disk => Some(self.join_reading(now, from, index, interest)),
                AwaitedSource::Bypass if self.is_waiting(index, from.face) => {
                    Some(StoreDecision::RetryDisk(hashes))
                }
                _ => Some(StoreDecision::Forward),
            };
        }
        let key = &asked.key;
        let query = Query {
            name: key.name,
            hashes,
            can_be_prefix: key.can_be_prefix,
            must_be_fresh: key.must_be_fresh,
        };
        match self.store.lookup(now, &query) {
            Lookup::Hit(hit) => {
                let to = (from.face, from.header.pit_token);
                let source = (FaceId::CONTENT_STORE, self.mark_of_hit(from));
                self.sender.data(to, source, hit.packet, &mut self.stats, out);
                None
            }
            Lookup::OnDisk(found) => self.decide(now, from, interest, asked, &found, out),
            Lookup::Miss => Some(StoreDecision::Forward),
        }
    }

    /// Takes the course that the store has left.
    #[inline(always)]
    pub(crate) fn follow(
        &mut self,
        now: Instant,
        course: StoreDecision,
        index: u32,
        from: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        out: &mut Outbox,
    ) {
        match course {
            StoreDecision::Forward => {
                self.forward(now, index, Origin::of(from), None, interest, out)
            }
            StoreDecision::Bypass(past) => self.pass_store(now, index, from, past, interest, out),
            StoreDecision::ReadDisk(begun) => {
                self.wait_for_disk(now, index, Origin::of(from), &begun)
            }
            StoreDecision::RetryDisk(hashes) => {
                if !self.fall_back_to_disk(now, index, interest, hashes, Origin::of(from)) {
                    self.forward(now, index, Origin::of(from), None, interest, out);
                }
            }
            StoreDecision::Aggregate => {}
        }
    }

    fn insert_pending(&mut self, key: &PitKey<'_>, interest: &InterestView<'_>, nonce: u32) -> u32 {
        let hop_limit = interest.hop_limit.map(|limit| limit - 1);
        let packet = self.rewrite(interest, nonce, hop_limit);
        let name_at = name_value_at(&packet);
        self.pit.insert(key, packet, name_at, nonce, hop_limit)
    }

    /// A retransmission goes upstream with its own nonce and HopLimit.
    fn renew_pending(&mut self, index: u32, interest: &InterestView<'_>, nonce: u32) -> u32 {
        let hop_limit = interest.hop_limit.map(|limit| limit - 1);
        let entry = self.pit.entry(index);
        if entry.nonce != nonce || entry.hop_limit != hop_limit {
            let packet = self.rewrite(interest, nonce, hop_limit);
            let name_at = name_value_at(&packet);
            let entry = self.pit.entry_mut(index);
            entry.interest = packet;
            entry.name_at = name_at;
            entry.nonce = nonce;
            entry.hop_limit = hop_limit;
        }
        index
    }

    /// The Interest as it leaves: with a nonce, the HopLimit one less, without a forwarding hint
    /// that has led it here.
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
            && interest.forwarding_hint.iter().any(|delegation| {
                self.producer_regions.iter().any(|region| delegation.is_prefix_of(region.as_view()))
            })
    }

    fn note_downstream(
        &mut self,
        now: Instant,
        index: u32,
        from: &ReceivedPacket<'_>,
        face_slot: u32,
        interest: &InterestView<'_>,
        nonce: u32,
    ) {
        let expiry = now.plus_ns(lifetime_ns(interest));
        let entry = self.pit.entry_mut(index);
        if !entry.in_records.is_empty() {
            self.stats.aggregated += 1;
        }
        match entry.in_records.find(|record| record.face == from.face) {
            Some(record) => {
                record.nonce = nonce;
                record.expiry = expiry;
                record.pit_token = from.header.pit_token;
            }
            None => {
                self.faces.begin_wait(face_slot);
                entry.in_records.push(InRecord {
                    face: from.face,
                    face_slot,
                    nonce,
                    expiry,
                    pit_token: from.header.pit_token,
                });
            }
        }
        let last = entry.last_expiry().unwrap_or(expiry);
        self.pit.timers.schedule(index, last);
    }

    /// FIB and strategy; `only` are the next hops to choose from where something else has chosen
    /// them.
    pub(crate) fn forward(
        &mut self,
        now: Instant,
        index: u32,
        origin: Origin,
        only: Option<&[NextHop]>,
        interest: &InterestView<'_>,
        out: &mut Outbox,
    ) {
        let chosen = origin.next_hop_face.map(|face| [NextHop { face: FaceId(face), cost: 0 }]);
        let is_home = self.is_in_producer_region(interest);
        let lengths = self.fib.lengths() | self.strategies.lengths();
        let hashes = PrefixHashes::of(&self.config.hash_key, interest.name, lengths);
        let next_hops = match (&chosen, only) {
            (Some(chosen), _) => chosen.as_slice(),
            (None, Some(only)) => only,
            (None, None) => {
                let entry = fib_entry(&self.fib, &self.config.hash_key, interest, &hashes, is_home);
                entry.map_or(&[][..], |entry| entry.next_hops.as_slice())
            }
        };
        let strategy =
            self.strategies.longest_match(interest.name, &hashes).unwrap_or(&self.default_strategy);
        let mut context = Context {
            now,
            pit: &mut self.pit,
            entry: index,
            ingress: origin.face,
            next_hops,
            lifetime_ns: lifetime_ns(interest),
            faces: &mut self.faces,
            sender: &mut self.sender,
            stats: &mut self.stats,
            out,
        };
        match chosen {
            Some([hop]) => {
                context.send_interest(hop.face);
            }
            None => strategy.after_interest(&mut context),
        }
        if self.pit.entry(index).in_records.is_empty() {
            self.finish_unsatisfied(now, index);
        }
    }

    /// A next hop was added where a strategy wants pending Interests to learn of it (NFD,
    /// afterNewNextHop).
    pub(crate) fn offer_new_next_hop(
        &mut self,
        now: Instant,
        prefix: &weir_wire::Name,
        hop: NextHop,
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

    fn offer_to_entry(&mut self, now: Instant, index: u32, hop: NextHop, out: &mut Outbox) {
        let entry = self.pit.entry(index);
        let packet = entry.interest.clone();
        let Ok(interest) = InterestView::decode(&packet) else { return };
        let Some(ingress) = entry.in_records.iter().next().map(|record| record.face) else {
            return;
        };
        let lengths = self.fib.lengths() | self.strategies.lengths();
        let hashes = PrefixHashes::of(&self.config.hash_key, interest.name, lengths);
        let strategy =
            self.strategies.longest_match(interest.name, &hashes).unwrap_or(&self.default_strategy);
        let is_chosen = self
            .fib
            .longest_match(interest.name, &hashes)
            .is_some_and(|entry| entry.next_hops.contains(&hop));
        if !is_chosen {
            return;
        }
        let mut context = Context {
            now,
            pit: &mut self.pit,
            entry: index,
            ingress,
            next_hops: &[hop],
            lifetime_ns: lifetime_ns(&interest),
            faces: &mut self.faces,
            sender: &mut self.sender,
            stats: &mut self.stats,
            out,
        };
        strategy.after_new_next_hop(&mut context);
    }
}

fn pit_key<'a>(interest: &InterestView<'a>, hashes: NameHashes) -> PitKey<'a> {
    PitKey {
        name: interest.name,
        hash: hashes.whole,
        can_be_prefix: interest.can_be_prefix,
        must_be_fresh: interest.must_be_fresh,
    }
}

/// Where the name's TLV-VALUE lies in an encoded Interest.
fn name_value_at(interest: &[u8]) -> (u16, u16) {
    let read = |at: usize| tlv::read_var_number(&interest[at..]).expect("we encoded it ourselves");
    let name_at = 1 + read(1).1;
    let (name_len, size) = read(name_at + 1);
    ((name_at + 1 + size) as u16, name_len as u16)
}
