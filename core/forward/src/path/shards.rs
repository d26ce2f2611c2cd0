//! Lookups of prefixes over shards: Interests with CanBePrefix on a router of several shards
//! (decision 0014).
//!
//! Data is spread over shards by its object and its range of 64 segments. An Interest without
//! CanBePrefix always goes to the shard of its Data. An Interest with CanBePrefix may be satisfied
//! by Data of any shard. Its **home** is the shard of its own name. The home asks the other shards
//! for stored Data, and they watch for Data that arrives. No other Interests are affected.
//!
//! 1. **Own memory.** The home looks in its own memory. Data with exactly the Interest's name
//!    answers at once. Otherwise the Interest becomes a PIT entry.
//! 2. **Watch.** The home sends `Watch` to all other shards: the hash and the length of the prefix,
//!    and the expiry of the entry (`send_watches`). Then it sends `Query` (`query_shards`).
//!    Messages between two shards keep their order, so a shard watches before it looks. No Data can
//!    slip between.
//! 3. **Reply.** Each shard replies with its best candidate: Data in memory, Data that waits for a
//!    disk, a record on a disk with its queue length, or nothing.
//! 4. **Conclude.** When all have replied, or after 50 ms, the home takes the best of the replies
//!    and of its own store (`conclude`). Memory is better than a disk. Of two candidates in memory,
//!    the home takes the one that a single store would choose.
//! 5. **Act.** Data answers the entry. A record on the home's own disk is read or bypassed, as for
//!    other Interests. For a record on another shard's disk, the home sends `Read`; that shard
//!    offers the Data, or replies that it has nothing. After 4 s, or if no shard has a candidate,
//!    the Interest is forwarded.
//! 6. **Data from upstream** may arrive at any shard. That shard finds the homes whose watches
//!    match; only hashes are compared. It sends `Offer` to the first home. Each home passes the
//!    offer on to the next. Each home satisfies its own entries. The offer lists the downstreams
//!    served so far, so each face receives the Data once for each PIT token.
//! 7. **Unwatch.** When the entry ends, the home sends `Unwatch`. Watches also expire on their own.
//!
//! A shard may receive Data that only other shards have requested. It stores the Data only if a
//! home confirms that it had sent an Interest to the source (`Verdict`).
//!
//! Example with four shards: the home of `/film` is shard 2. An Interest for `/film` arrives, and
//! shard 2 has nothing. Shards 0, 1 and 3 get `Watch` and `Query`. Shard 1 has `/film/v=3/seg=0` on
//! a disk with two reads ahead, and the others have nothing. Shard 2 sends `Read` to shard 1. Shard
//! 1 reads the record and offers its Data, and shard 2 sends it to the consumer.
//!
//! A lookup of a prefix must never do the following:
//!
//! - delay an Interest without CanBePrefix
//! - leave an entry without an outcome when a message is lost (timeouts replace the message)
//! - accept Data from a face that received no Interest
//! - send Data twice to a face with the same token

use weir_base::{FaceId, Packet};
use weir_store::disk::OnDisk;
use weir_store::{NameHashes, ShardAnswer, Store};
use weir_wire::{DataView, InterestView, LpHeader, NackReason, PacketView};

use crate::content::adaptive::DiskQueue;
use crate::content::decision::{BypassReason, DiskRead, QueueDecision};
use crate::content::queries::{PrefixQuery, RemoteRead};
use crate::content::reads::Waiter;
use crate::egress::OutNack;
use crate::endpoints::{DataOrigin, Origin};
use crate::incoming::{ReceivedPacket, query_of};
use crate::router::Router;
use crate::shard::{Candidate, Message, OfferedData, QueryId, ShardMessage};
use crate::stats::DropReason;
use crate::table::pit::AwaitedSource;

/// A disk that has Data for an Interest.
enum DiskCandidate {
    Own(OnDisk),
    Other { shard: u16, queue: DiskQueue, is_stalled: bool },
}

impl Router {
    /// Handles a message from another shard.
    pub(crate) fn on_shard_message(&mut self, from: u16, message: ShardMessage) {
        match message.0 {
            Message::Watch { entry, hash, components, until } => {
                self.content.watches.set(from, entry, hash, components, until);
            }
            Message::Unwatch { entry, hash } => self.content.watches.end(from, entry, hash),
            Message::Query { id, interest } => {
                let found = self.look_up_for_other(&interest);
                let answer = Message::QueryReply { id, found: candidate(&found) };
                self.egress.send_to_shard(from, answer);
            }
            Message::QueryReply { id, found } => self.on_answer(from, id, found),
            Message::Read { id, interest, is_marked } => {
                self.read_for_other(from, id, interest, is_marked);
            }
            Message::ReadRefused { id } => {
                if let Some(query) = self.end_query(id) {
                    self.refuse_waiting(query.waiter.entry);
                }
            }
            Message::Offer(offered) => self.on_offered(*offered),
            Message::MisroutedAnnounced(announced) => self.on_announced_data(&announced),
            Message::ReturnsTokens { face, carrier } => {
                self.tables.faces.set_returns_tokens(face, carrier)
            }
            Message::Distrust { name, source } => {
                self.tables.distrust(self.now, name.as_view(), source);
            }
            Message::Verdict { face, packet, verdict } => {
                self.on_home_shards_verdict(face, &packet, verdict);
            }
            Message::Misrouted { face, header, packet } => {
                self.on_misrouted(face, &header, &packet)
            }
        }
    }

    /// Continues without the shards that have not replied in time.
    pub(crate) fn handle_shard_timeouts(&mut self) {
        self.content.watches.expire(self.now);
        while let Some(id) = self.content.queries.take_due(self.now) {
            self.egress.stats.shard_timeouts += 1;
            self.conclude(id);
        }
    }

    /// Looks up this shard's store for an Interest of another shard.
    fn look_up_for_other(&mut self, interest: &Packet) -> ShardAnswer {
        let Ok(interest) = InterestView::decode(interest) else { return ShardAnswer::Miss };
        let hashes = self.hash_name(&PacketView::Interest(interest));
        self.content.store.lookup_shard(self.now, &query_of(&interest, &hashes))
    }

    fn on_answer(&mut self, from: u16, id: QueryId, found: Candidate) {
        let Some(query) = self.content.queries.get(id) else { return };
        // One bit for each shard that has not replied yet.
        query.awaited &= !(1 << from);
        let is_better = match &query.best {
            None => true,
            Some((_, best)) => is_better(&self.content.store, &found, best),
        };
        if is_better {
            query.best = Some((from, found));
        }
        if query.awaited == 0 {
            self.conclude(id);
        }
    }

    /// Removes a query. Its entry no longer waits for other shards.
    fn end_query(&mut self, id: QueryId) -> Option<PrefixQuery> {
        self.content.queries.get(id)?;
        let query = self.content.queries.remove(id.slot);
        self.tables.pit.entry_mut(query.waiter.entry).awaits = AwaitedSource::Upstream;
        Some(query)
    }

    /// Concludes a query when all replies have arrived or its time is up: acts on the best of them
    /// and of this shard's own store (steps 4 and 5).
    fn conclude(&mut self, id: QueryId) {
        let Some(mut query) = self.end_query(id) else { return };
        let entry = query.waiter.entry;
        // The query was already concluded once, and waited for a read of another shard.
        if query.is_reading {
            return self.end_remote_read(query);
        }
        // This shard looks up its own store again, because Data may have arrived since the query
        // began.
        let own = self.look_up_for_other(&query.interest);
        let own_candidate = candidate(&own);
        let best = query.best.take();
        let store = &self.content.store;
        // At equal rank, this shard's own candidate wins: it needs no further message.
        let best = best.filter(|(_, best)| is_better(store, best, &own_candidate));
        match (best, own) {
            (None, ShardAnswer::Memory { packet, .. } | ShardAnswer::Unwritten(packet))
            | (Some((_, Candidate::Memory { packet, .. })), _)
            | (Some((_, Candidate::Unwritten { packet })), _) => {
                self.answer_waiting(entry, &packet);
            }
            (None, ShardAnswer::OnDisk(found)) => {
                self.wait_or_bypass_pending(query, DiskCandidate::Own(found));
            }
            (Some((shard, Candidate::OnDisk { disk, reads_waiting, is_stalled })), _) => {
                let queue = DiskQueue { disk, length: reads_waiting };
                self.wait_or_bypass_pending(
                    query,
                    DiskCandidate::Other { shard, queue, is_stalled },
                );
            }
            (None | Some((_, Candidate::Nothing)), _) => {
                self.content.store.count_miss_of(&query.interest);
                self.forward_waiting(&query.waiter, false);
            }
        }
    }

    /// Ends a wait for the disk of another shard that offered no Data. If the Data is in that
    /// shard's memory by now, its reply holds the Data.
    fn end_remote_read(&mut self, query: PrefixQuery) {
        match query.best {
            Some((_, Candidate::Memory { packet, .. } | Candidate::Unwritten { packet })) => {
                self.answer_waiting(query.waiter.entry, &packet);
            }
            _ => {
                self.egress.stats.busy.went_on += 1;
                self.forward_waiting(&query.waiter, false);
            }
        }
    }

    /// Answers a waiting entry from the store, as if it had not waited.
    fn answer_waiting(&mut self, entry: u32, packet: &Packet) {
        self.content.store.count_hit(packet);
        let data = DataView::decode(packet).expect("stores hold valid Data");
        let sent = self.egress.stats.out_data;
        self.end_with_data(DataOrigin::store(false), packet.clone(), &data, &[entry]);
        let copies = self.egress.stats.out_data - sent;
        self.egress.stats.memory_bytes += copies * packet.len() as u64;
    }

    /// Decides whether a waiting entry waits for a disk or bypasses it; see
    /// [`Router::wait_or_bypass`].
    fn wait_or_bypass_pending(&mut self, query: PrefixQuery, found: DiskCandidate) {
        let Waiter { entry, ingress, .. } = query.waiter;
        let packet = query.interest.clone();
        let Ok(interest) = InterestView::decode(&packet) else { return };
        let header = &query.waiter.header();
        let origin = Origin { face: ingress, header, prefix_run: 0 };
        if let Some(face) = self.tables.faces.find(ingress) {
            self.content.disk.neighbours.note_interest_from(self.now, face);
        }
        let (queue, is_stalled) = match &found {
            DiskCandidate::Own(found) => {
                let OnDisk { disk, reads_waiting: queue, is_stalled, .. } = *found;
                (DiskQueue { disk, length: queue }, is_stalled)
            }
            DiskCandidate::Other { queue, is_stalled, .. } => (*queue, *is_stalled),
        };
        // A stalled disk would make the Interest wait until it expires. It goes upstream, or gets a
        // Nack if there is no next hop.
        if is_stalled {
            self.content.store.count_miss(interest.name, interest.can_be_prefix);
            if self.has_next_hop(origin, &interest) {
                BypassReason::Stalled.count(&mut self.egress.stats.busy);
            }
            return self.forward_waiting(&query.waiter, true);
        }
        let decision = self.decide_for_queue(origin, &interest, queue);
        let (is_over_threshold, is_marked) = match decision {
            QueueDecision::Bypass(bypass) => {
                self.content.store.count_miss(interest.name, interest.can_be_prefix);
                bypass.reason.count(&mut self.egress.stats.busy);
                return self.bypass_disk(entry, origin, &bypass, &interest);
            }
            QueueDecision::Wait { is_over_threshold, is_marked } => (is_over_threshold, is_marked),
        };
        self.egress.stats.busy.waited_over_threshold += u64::from(is_over_threshold);
        match found {
            DiskCandidate::Own(found) => match self.begin_read(&found) {
                Some(begun) => {
                    let read = DiskRead { found, is_over_threshold, is_marked };
                    self.wait_for_disk(entry, origin, &read, begun);
                }
                None => {
                    self.content.store.count_miss(interest.name, interest.can_be_prefix);
                    self.refuse_waiting(entry);
                }
            },
            DiskCandidate::Other { shard, .. } => {
                let id = self.content.queries.wait_for_read(self.now, query, shard);
                self.tables.pit.entry_mut(entry).awaits = AwaitedSource::Shards(id.slot);
                let read = Message::Read { id, interest: packet, is_marked };
                self.egress.send_to_shard(shard, read);
            }
        }
    }

    /// Refuses a waiting Interest because the queue of the disk is full.
    fn refuse_waiting(&mut self, entry: u32) {
        self.egress.drop_packet(DropReason::DiskBusy);
        self.end_with_nack(entry, OutNack::own(NackReason::Congestion));
    }

    /// Begins a read of this shard's disk for another shard.
    fn read_for_other(&mut self, home: u16, id: QueryId, interest: Packet, is_marked: bool) {
        let answer = self.look_up_for_other(&interest);
        let ShardAnswer::OnDisk(found) = answer else {
            // Another read has brought the Data into memory, or the disk has evicted it.
            let answer = Message::QueryReply { id, found: candidate(&answer) };
            return self.egress.send_to_shard(home, answer);
        };
        let begun = if self.content.queries.has_room_for_read() {
            self.begin_read(&found)
        } else {
            self.egress.stats.busy.reads_refused += 1;
            None
        };
        let Some(read) = begun else {
            self.content.store.count_miss_of(&interest);
            return self.egress.send_to_shard(home, Message::ReadRefused { id });
        };
        self.egress.stats.busy.reads_begun += 1;
        let remote = RemoteRead { read, home, id, interest, since: self.now, is_marked };
        self.content.queries.note_remote_read(remote);
    }

    /// Handles Data of another shard that an entry of this shard may wait for.
    fn on_offered(&mut self, offered: OfferedData) {
        let packet = offered.packet.clone();
        let Ok(data) = DataView::decode(&packet) else { return };
        let hashes = self.hash_name(&PacketView::Data(data));
        match offered.announcement.clone() {
            None => self.take_offer(offered, &data, hashes),
            Some(announcement) => {
                let source = (offered.origin.face, &announcement);
                self.with_announcement(source, &data, hashes.whole, |router| {
                    router.take_offer(offered, &data, hashes);
                });
            }
        }
    }

    fn take_offer(&mut self, mut offered: OfferedData, data: &DataView<'_>, hashes: NameHashes) {
        let packet = offered.packet.clone();
        let mut matched = core::mem::take(&mut self.matched);
        matched.clear();
        self.tables.find_pending(data, hashes.whole, &mut matched);
        if offered.is_stale {
            matched.retain(|&index| !self.tables.pit.entry(index).must_be_fresh);
        }
        match self.tables.faces.find(offered.origin.face).copied() {
            _ if offered.origin.face == FaceId::CONTENT_STORE => {}
            Some(face) => {
                self.retain_sent_to(&face, offered.token.as_ref(), &mut matched);
            }
            // A face that closed after it sent the Data cannot be checked, so the Data is not
            // accepted.
            None => matched.clear(),
        }
        if let Some(verdict) = &mut offered.verdict {
            verdict.is_requested |= !matched.is_empty();
        }
        if !matched.is_empty() {
            // Consumers that another shard has served are skipped.
            self.downstreams.clone_from(&offered.served);
            let (sent, packet_bytes) = (self.egress.stats.out_data, packet.len() as u64);
            self.end_with_data_for_others(offered.origin, packet, data, &matched);
            let bytes = (self.egress.stats.out_data - sent) * packet_bytes;
            // A shard offers Data of its store only after it has read it from a disk.
            if offered.origin.face == FaceId::CONTENT_STORE {
                self.egress.stats.disk_bytes += bytes;
                self.content.store.count_read_bytes(data.name, bytes);
            } else {
                self.egress.stats.next_hop_bytes += bytes;
            }
            offered.served.clone_from(&self.downstreams);
        }
        self.matched = matched;
        self.offer(offered);
    }

    /// Handles Data that a wrong PIT token has led to another shard.
    fn on_misrouted(&mut self, face: FaceId, header: &LpHeader, packet: &Packet) {
        let Ok(data) = DataView::decode(packet) else { return };
        let hashes = self.hash_name(&PacketView::Data(data));
        self.on_data(&ReceivedPacket::new(face, header, packet), &data, &hashes);
    }
}

fn candidate(answer: &ShardAnswer) -> Candidate {
    match answer {
        ShardAnswer::Memory { packet, arrived_at, .. } => {
            Candidate::Memory { packet: packet.clone(), arrived_at: *arrived_at }
        }
        ShardAnswer::Unwritten(packet) => Candidate::Unwritten { packet: packet.clone() },
        ShardAnswer::OnDisk(found) => {
            let OnDisk { disk, reads_waiting, is_stalled, .. } = *found;
            Candidate::OnDisk { disk, reads_waiting, is_stalled }
        }
        ShardAnswer::Miss => Candidate::Nothing,
    }
}

/// Whether an answer is better than an earlier one: memory before disks, and in memory the Data
/// that a single store with both would choose.
fn is_better(store: &Store, answer: &Candidate, other: &Candidate) -> bool {
    match (answer, other) {
        (
            Candidate::Memory { packet, arrived_at },
            Candidate::Memory { packet: other_packet, arrived_at: other_arrived_at },
        ) => store.is_preferred((*arrived_at, packet), (*other_arrived_at, other_packet)),
        (Candidate::Memory { .. }, _) => true,
        (Candidate::OnDisk { .. } | Candidate::Unwritten { .. }, Candidate::Nothing) => true,
        _ => false,
    }
}
