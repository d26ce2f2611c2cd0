//! Interests with CanBePrefix on a router of several shards (decision 0014).
//!
//! The home of the Interest's name asks the other shards' stores while the PIT entry waits, and has
//! them watch for Data until the entry ends. None of this is on the path of other Interests.

use alloc::boxed::Box;
use alloc::vec::Vec;

use weir_base::{FaceId, Instant, Packet};
use weir_store::PartAnswer;
use weir_store::disk::{OnDisk, ReadId, ReadOutcome};
use weir_wire::{DataView, InterestView, LpHeader, NackReason, PacketView};

use crate::content::adaptive::DiskQueue;
use crate::content::decision::{BypassReason, DiskRead, QueueDecision, StoreDecision, StoredData};
use crate::content::queries::{PrefixQuery, RemoteRead, RemoteWaiters};
use crate::content::reads::Waiter;
use crate::egress::OutNack;
use crate::io::Outbox;
use crate::packet::{Asked, Origin, QueueState, ReceivedPacket, query_of};
use crate::router::Router;
use crate::shard::{Candidate, Judgement, Message, QueryId, ShardMessage, Shown, shard_of_name};
use crate::stats::DropReason;
use crate::table::pit::AwaitedSource;
use crate::table::prefixes::hash_proper_prefixes;

/// A disk that has what an Interest asks for.
enum DiskCandidate {
    /// Of this shard.
    Own(OnDisk),
    Other {
        shard: u16,
        queue: DiskQueue,
        is_stalled: bool,
    },
}

impl Router {
    pub(crate) fn is_sharded(&self) -> bool {
        self.config.shard_count > 1
    }

    /// The other shards, a bit each.
    fn other_shards(&self) -> u64 {
        (u64::MAX >> (64 - self.config.shard_count)) & !(1 << self.config.shard)
    }

    fn tell(&self, shard: u16, message: Message, out: &mut Outbox) {
        out.shard_messages.push((shard, ShardMessage(message)));
    }

    pub(crate) fn tell_others(&mut self, message: impl Fn() -> Message, out: &mut Outbox) {
        if !self.is_sharded() {
            return;
        }
        for shard in bits(self.other_shards()) {
            self.tell(shard, message(), out);
        }
    }

    /// What other shards say.
    pub(crate) fn on_shard_message(
        &mut self,
        now: Instant,
        from: u16,
        message: ShardMessage,
        out: &mut Outbox,
    ) {
        match message.0 {
            Message::Watch { entry, hash, components, until } => {
                self.watches.set((from, entry), (hash, components), until);
            }
            Message::Unwatch { entry, hash } => self.watches.end(from, entry, hash),
            Message::Ask { id, interest } => {
                let found = self.look_up_for_other(now, &interest);
                let found = found.map_or(Candidate::Nothing, |found| candidate(&found));
                self.tell(from, Message::Answer { id, found }, out);
            }
            Message::Answer { id, found } => self.on_answer(now, from, id, found, out),
            Message::Read { id, interest, is_marked } => {
                self.read_for_other(now, (from, id, is_marked), interest, out);
            }
            Message::ReadRefused { id } => {
                if let Some(query) = self.end_query(id) {
                    self.refuse_waiting(now, query.waiter.entry, out);
                }
            }
            Message::Show(shown) => self.on_shown(now, *shown, out),
            Message::Echoes { face, echo } => self.faces.set_echoes(face, echo),
            Message::Distrust { name, source } => self.distrust(now, name.as_view(), source),
            Message::Judged { face, packet, judgement } => {
                self.take_judged(now, face, &packet, judgement);
            }
            Message::Misled { face, header, packet } => {
                self.take_misled(now, face, &header, &packet, out);
            }
        }
    }

    /// An Interest with CanBePrefix that is not pending: Data of its very name answers it here and
    /// now, what other Data is best is asked.
    #[cold]
    #[inline(never)]
    pub(crate) fn look_up_prefix(
        &mut self,
        now: Instant,
        received: &ReceivedPacket<'_>,
        asked: &Asked<'_>,
        out: &mut Outbox,
    ) -> StoreDecision {
        let answer = self.store.look_up_part(now, &asked.query);
        let has_room = self.make_room(now, received, asked, out);
        if let PartAnswer::Memory { packet, is_whole_name, .. } = answer
            && (is_whole_name || !has_room)
        {
            self.store.count_lookup(true);
            let is_marked = received.queue_state == QueueState::QueuedToBeMarked;
            return StoreDecision::Answer(StoredData { packet, is_marked });
        }
        StoreDecision::AskShards
    }

    /// A PIT entry with CanBePrefix is new, or waits until another time: so do the watches for it.
    #[cold]
    #[inline(never)]
    pub(crate) fn watch_elsewhere(&mut self, index: u32, out: &mut Outbox) {
        // An entry that ended before may have had this index.
        self.end_watches(out);
        let entry = self.pit.entry(index);
        let Some(until) = entry.last_expiry() else { return };
        let (hash, components) = (entry.hash, entry.component_count);
        self.tell_others(|| Message::Watch { entry: index, hash, components, until }, out);
    }

    /// Ends the watches for entries that have ended.
    pub(crate) fn end_watches(&mut self, out: &mut Outbox) {
        while let Some((entry, hash)) = self.pit.take_ended() {
            self.tell_others(|| Message::Unwatch { entry, hash }, out);
        }
    }

    /// The entry waits for what the other shards have.
    #[cold]
    pub(crate) fn ask_shards(
        &mut self,
        now: Instant,
        index: u32,
        received: &ReceivedPacket<'_>,
        out: &mut Outbox,
    ) {
        self.detach_wait_state(now, index, None);
        let waiter = Waiter {
            entry: index,
            since: now,
            ingress: received.face,
            next_hop_face: received.header.next_hop_face,
            is_marked: false,
            disk: 0,
            ahead: 0,
        };
        let interest = received.packet.clone();
        let id = self.queries.open(now, waiter, interest.clone(), self.other_shards());
        self.pit.entry_mut(index).awaits = AwaitedSource::Shards(id.place);
        self.tell_others(|| Message::Ask { id, interest: interest.clone() }, out);
    }

    /// What this shard's store has for an Interest of another.
    fn look_up_for_other(&mut self, now: Instant, interest: &Packet) -> Option<PartAnswer> {
        let interest = InterestView::decode(interest).ok()?;
        let hashes = self.hash_name(&PacketView::Interest(interest));
        Some(self.store.look_up_part(now, &query_of(&interest, &hashes)))
    }

    fn on_answer(
        &mut self,
        now: Instant,
        from: u16,
        id: QueryId,
        found: Candidate,
        out: &mut Outbox,
    ) {
        let Some(query) = self.queries.get(id) else { return };
        query.awaited &= !(1 << from);
        let is_better = match &query.best {
            None => true,
            Some((_, best)) => is_better(&self.store, &found, best),
        };
        if is_better {
            query.best = Some((from, found));
        }
        if query.awaited == 0 {
            self.conclude(now, id, out);
        }
    }

    /// Goes on with what is known by now.
    pub(crate) fn handle_shard_timeouts(&mut self, now: Instant, out: &mut Outbox) {
        self.watches.expire(now);
        while let Some(id) = self.queries.take_due(now) {
            self.stats.shard_timeouts += 1;
            self.conclude(now, id, out);
        }
    }

    /// The entry waits for other shards no longer.
    fn end_query(&mut self, id: QueryId) -> Option<PrefixQuery> {
        self.queries.get(id)?;
        let query = self.queries.remove(id.place);
        self.pit.entry_mut(query.waiter.entry).awaits = AwaitedSource::Upstream;
        Some(query)
    }

    /// Every answer is here: the best of them and of what this shard has itself.
    fn conclude(&mut self, now: Instant, id: QueryId, out: &mut Outbox) {
        let Some(mut query) = self.end_query(id) else { return };
        let entry = query.waiter.entry;
        if query.is_reading {
            return self.end_reading(now, query, out);
        }
        let own = self.look_up_for_other(now, &query.interest).unwrap_or(PartAnswer::Nothing);
        let best = query.best.take();
        let own_candidate = candidate(&own);
        let best = best.filter(|(_, best)| is_better(&self.store, best, &own_candidate));
        match (best, own) {
            (None, PartAnswer::Memory { packet, .. } | PartAnswer::Unwritten(packet))
            | (Some((_, Candidate::Memory { packet, .. })), _)
            | (Some((_, Candidate::Unwritten { packet })), _) => {
                self.answer_waiting(now, entry, &packet, out);
            }
            (None, PartAnswer::OnDisk(found)) => {
                self.decide_waiting(now, query, DiskCandidate::Own(found), out);
            }
            (Some((shard, Candidate::OnDisk { disk, reads_waiting, is_stalled })), _) => {
                let queue = DiskQueue { disk, queue: reads_waiting };
                let found = DiskCandidate::Other { shard, queue, is_stalled };
                self.decide_waiting(now, query, found, out);
            }
            (None | Some((_, Candidate::Nothing)), _) => {
                self.store.count_lookup(false);
                self.forward_waiting(now, &query.waiter, false, out);
            }
        }
    }

    /// The disk of another shard has not helped, unless the Data is in its memory by now.
    fn end_reading(&mut self, now: Instant, query: PrefixQuery, out: &mut Outbox) {
        match query.best {
            Some((_, Candidate::Memory { packet, .. } | Candidate::Unwritten { packet })) => {
                self.answer_waiting(now, query.waiter.entry, &packet, out);
            }
            _ => {
                self.stats.busy.went_on += 1;
                self.forward_waiting(now, &query.waiter, false, out);
            }
        }
    }

    /// Answers a waiting entry from the store, as if it had not had to wait.
    fn answer_waiting(&mut self, now: Instant, index: u32, packet: &Packet, out: &mut Outbox) {
        self.store.count_lookup(true);
        let data = DataView::decode(packet).expect("stores hold valid Data");
        let source = (FaceId::CONTENT_STORE, 0);
        self.send_down(now, source, false, packet.clone(), &data, &[index], out);
    }

    /// As [`Router::decide`] does for an Interest that does not wait yet.
    fn decide_waiting(
        &mut self,
        now: Instant,
        query: PrefixQuery,
        found: DiskCandidate,
        out: &mut Outbox,
    ) {
        let Waiter { entry, ingress, next_hop_face, .. } = query.waiter;
        let packet = query.interest.clone();
        let Ok(interest) = InterestView::decode(&packet) else { return };
        let origin = Origin { face: ingress, next_hop_face, head: 0 };
        if let Some(face) = self.faces.find(ingress) {
            self.disk.neighbours.note_asked(now, face);
        }
        let (queue, is_stalled) = match &found {
            DiskCandidate::Own(found) => {
                let OnDisk { disk, reads_waiting: queue, is_stalled, .. } = *found;
                (DiskQueue { disk, queue }, is_stalled)
            }
            DiskCandidate::Other { queue, is_stalled, .. } => (*queue, *is_stalled),
        };
        if is_stalled {
            self.store.decline_read();
            if self.has_next_hop(now, origin, &interest) {
                self.count_bypass(BypassReason::Stalled);
            }
            return self.forward_waiting(now, &query.waiter, true, out);
        }
        let decision = self.decide_before_queue(now, origin, &interest, queue);
        let (is_over_threshold, is_marked) = match decision {
            QueueDecision::Bypass(bypass) => {
                self.store.decline_read();
                self.count_bypass(bypass.reason);
                return self.pass_by_disk(now, entry, origin, &bypass, &interest, out);
            }
            QueueDecision::Wait { is_over_threshold, is_marked } => (is_over_threshold, is_marked),
        };
        self.stats.busy.waited_over_threshold += u64::from(is_over_threshold);
        match found {
            DiskCandidate::Own(found) => match self.begin_read(&found) {
                Some(begun) => {
                    let read = DiskRead { found, is_over_threshold, is_marked };
                    self.wait_for_disk(now, entry, origin, (&read, begun));
                }
                None => self.refuse_waiting(now, entry, out),
            },
            DiskCandidate::Other { shard, .. } => {
                let id = self.queries.wait_for_read(now, query, shard);
                self.pit.entry_mut(entry).awaits = AwaitedSource::Shards(id.place);
                self.tell(shard, Message::Read { id, interest: packet, is_marked }, out);
            }
        }
    }

    /// The queue of a disk is full: there is a way to the Data, only not now.
    fn refuse_waiting(&mut self, now: Instant, index: u32, out: &mut Outbox) {
        self.stats.drop_packet(DropReason::DiskBusy);
        self.end_with_nack(now, index, OutNack::own(NackReason::Congestion), out);
    }

    /// Has this shard's disk read what it has told a home of.
    fn read_for_other(
        &mut self,
        now: Instant,
        (home, id, is_marked): (u16, QueryId, bool),
        interest: Packet,
        out: &mut Outbox,
    ) {
        let answer = self.look_up_for_other(now, &interest).unwrap_or(PartAnswer::Nothing);
        let PartAnswer::OnDisk(found) = answer else {
            // It has come into memory meanwhile, or is gone.
            return self.tell(home, Message::Answer { id, found: candidate(&answer) }, out);
        };
        if !self.queries.has_room_for_read() {
            self.store.decline_read();
            self.stats.busy.reads_refused += 1;
            return self.tell(home, Message::ReadRefused { id }, out);
        }
        let Some(read) = self.begin_read(&found) else {
            return self.tell(home, Message::ReadRefused { id }, out);
        };
        self.stats.busy.reads_begun += 1;
        let remote = RemoteRead { read, home, id, interest, since: now, is_marked };
        self.queries.note_remote_read(remote);
    }

    /// A read has ended: whom of the other shards its Data does not answer is told. Returns the
    /// others, who must see it.
    pub(crate) fn end_remote_reads(
        &mut self,
        now: Instant,
        read: ReadId,
        outcome: &ReadOutcome,
        out: &mut Outbox,
    ) -> RemoteWaiters {
        let mut waiters = RemoteWaiters::default();
        while let Some(remote) = self.queries.take_remote_read(read) {
            let is_answer = match outcome {
                ReadOutcome::Data { packet, fresh_until } => {
                    is_answer(now, &remote.interest, packet, *fresh_until)
                }
                ReadOutcome::Unavailable | ReadOutcome::Stalled => false,
            };
            if is_answer {
                waiters.homes |= 1 << remote.home;
                waiters.is_marked |= remote.is_marked;
                self.stats.busy.answered += 1;
                self.stats.busy.read_latency.record(now.ns_since(remote.since));
            } else {
                let answer = Message::Answer { id: remote.id, found: Candidate::Nothing };
                self.tell(remote.home, answer, out);
            }
        }
        waiters
    }

    /// The shards that watch for Data of this name, a bit each.
    #[cold]
    #[inline(never)]
    pub(crate) fn homes_of(&mut self, data: &DataView<'_>) -> u64 {
        self.prefix_hashes.clear();
        hash_proper_prefixes(&self.config.hash_key, data.name, &mut self.prefix_hashes);
        self.watches.homes_of(data.name, &self.prefix_hashes)
    }

    /// Shows Data to the homes that watch for it, one after the other, after those who have waited
    /// here have got it.
    #[cold]
    #[inline(never)]
    pub(crate) fn show(
        &mut self,
        (source, is_stale): ((FaceId, u64), bool),
        packet: Packet,
        homes: u64,
        is_served: bool,
        out: &mut Outbox,
    ) {
        let served = if is_served { self.downstreams.clone() } else { Vec::new() };
        let (token, judgement) = (None, None);
        let shown = Shown { source, token, judgement, is_stale, packet, served, homes };
        self.show_next(shown, out);
    }

    /// Shows Data that is kept only if a home has asked for it where it comes from.
    #[cold]
    #[inline(never)]
    pub(crate) fn have_judged(
        &mut self,
        received: &ReceivedPacket<'_>,
        homes: u64,
        out: &mut Outbox,
    ) {
        let LpHeader { pit_token, no_cache, congestion_mark, .. } = *received.header;
        let token = Some(pit_token);
        let source = (received.face, congestion_mark);
        let judgement = Judgement { shard: self.config.shard, no_cache, is_asked: false };
        let (judgement, packet) = (Some(judgement), received.packet.clone());
        let (is_stale, served) = (false, Vec::new());
        let shown = Shown { source, token, judgement, is_stale, packet, served, homes };
        self.show_next(shown, out);
    }

    fn show_next(&self, mut shown: Shown, out: &mut Outbox) {
        let next = bits(shown.homes).next();
        if let Some(home) = next {
            shown.homes &= !(1 << home);
            self.tell(home, Message::Show(Box::new(shown)), out);
        } else if let Some(judgement) = shown.judgement {
            let Shown { source: (face, _), packet, .. } = shown;
            self.tell(judgement.shard, Message::Judged { face, packet, judgement }, out);
        }
    }

    fn take_judged(&mut self, now: Instant, face: FaceId, packet: &Packet, judgement: Judgement) {
        let Ok(data) = DataView::decode(packet) else { return };
        let hashes = self.hash_name(&PacketView::Data(data));
        let Judgement { no_cache, is_asked, .. } = judgement;
        match (is_asked, self.faces.find(face).copied()) {
            (true, _) if !no_cache => {
                self.store(now, &data, hashes, face);
            }
            (false, Some(face)) => {
                let refusal = Some(DropReason::NotAsked);
                self.on_unsolicited(now, &face, no_cache, refusal, &data, hashes);
            }
            _ => {}
        }
    }

    /// Data of another shard that an entry of this one may wait for.
    fn on_shown(&mut self, now: Instant, mut shown: Shown, out: &mut Outbox) {
        let packet = shown.packet.clone();
        let Ok(data) = DataView::decode(&packet) else { return };
        let hashes = self.hash_name(&PacketView::Data(data));
        let mut matched = core::mem::take(&mut self.matched);
        matched.clear();
        self.find_pending(&data, hashes.whole, &mut matched);
        if shown.is_stale {
            matched.retain(|&index| !self.pit.entry(index).must_be_fresh);
        }
        match self.faces.find(shown.source.0).copied() {
            _ if shown.source.0 == FaceId::CONTENT_STORE => {}
            Some(face) => {
                self.keep_asked(&face, shown.token.as_ref(), &mut matched, out);
            }
            // A face that closes behind its Data proves nothing.
            None => matched.clear(),
        }
        if let Some(judgement) = &mut shown.judgement {
            judgement.is_asked |= !matched.is_empty();
        }
        if !matched.is_empty() {
            let may_return = self.faces.find(shown.source.0).is_some_and(|face| face.is_ad_hoc());
            self.downstreams.clone_from(&shown.served);
            self.send_down_more(
                now,
                shown.source,
                may_return,
                packet.clone(),
                &data,
                &matched,
                out,
            );
            shown.served.clone_from(&self.downstreams);
        }
        self.matched = matched;
        self.show_next(shown, out);
    }

    /// Whether Data belongs to another shard, which gets it then: its PIT token was not that of an
    /// Interest of this name.
    #[cold]
    #[inline(never)]
    pub(crate) fn is_misled(
        &mut self,
        received: &ReceivedPacket<'_>,
        data: &DataView<'_>,
        out: &mut Outbox,
    ) -> bool {
        let shard = shard_of_name(&self.config.hash_key, data.name, self.config.shard_count);
        if shard == self.config.shard {
            return false;
        }
        self.stats.in_data -= 1;
        let header = Box::new(received.header.clone());
        let (face, packet) = (received.face, received.packet.clone());
        self.tell(shard, Message::Misled { face, header, packet }, out);
        true
    }

    fn take_misled(
        &mut self,
        now: Instant,
        face: FaceId,
        header: &LpHeader,
        packet: &Packet,
        out: &mut Outbox,
    ) {
        let Ok(data) = DataView::decode(packet) else { return };
        let hashes = self.hash_name(&PacketView::Data(data));
        self.on_data(now, &ReceivedPacket::new(face, header, packet), &data, &hashes, out);
    }
}

/// The members of a set of shards.
fn bits(mut set: u64) -> impl Iterator<Item = u16> {
    core::iter::from_fn(move || {
        let shard = (set != 0).then(|| set.trailing_zeros() as u16)?;
        set &= set - 1;
        Some(shard)
    })
}

fn candidate(answer: &PartAnswer) -> Candidate {
    match answer {
        PartAnswer::Memory { packet, came, .. } => {
            Candidate::Memory { packet: packet.clone(), came: *came }
        }
        PartAnswer::Unwritten(packet) => Candidate::Unwritten { packet: packet.clone() },
        PartAnswer::OnDisk(found) => {
            let OnDisk { disk, reads_waiting, is_stalled, .. } = *found;
            Candidate::OnDisk { disk, reads_waiting, is_stalled }
        }
        PartAnswer::Nothing => Candidate::Nothing,
    }
}

/// Whether one answer is before another, which came first: memory before disks, and in memory what
/// one store with both would choose.
fn is_better(store: &weir_store::Store, one: &Candidate, other: &Candidate) -> bool {
    match (one, other) {
        (
            Candidate::Memory { packet, came },
            Candidate::Memory { packet: other_packet, came: other_came },
        ) => store.is_chosen_before((*came, packet), (*other_came, other_packet)),
        (Candidate::Memory { .. }, _) => true,
        (Candidate::OnDisk { .. } | Candidate::Unwritten { .. }, Candidate::Nothing) => true,
        _ => false,
    }
}

/// Whether Data that was read answers the Interest that it was read for.
fn is_answer(now: Instant, interest: &Packet, data: &Packet, fresh_until: Instant) -> bool {
    let (Ok(interest), Ok(data)) = (InterestView::decode(interest), DataView::decode(data)) else {
        return false;
    };
    let is_fresh_enough = !interest.must_be_fresh || now < fresh_until;
    is_fresh_enough && interest.name.is_prefix_of(data.name)
}
