//! Data for other shards. A shard offers it to shards that watch for it because of Interests with
//! CanBePrefix. It passes misrouted Data to the shard that it belongs to (decision 0014).

use alloc::boxed::Box;
use alloc::vec::Vec;

use weir_base::{Instant, Packet};
use weir_store::disk::{ReadId, ReadOutcome};
use weir_wire::{DataView, InterestView, LpHeader};

use crate::content::queries::RemoteWaiters;
use crate::endpoints::DataOrigin;
use crate::incoming::{IncomingData, ReceivedPacket};
use crate::router::Router;
use crate::shard::{self, Candidate, Message, OfferedData, UnsolicitedVerdict, shard_of_name};

impl Router {
    /// The shards that watch for this Data, as a bit set.
    #[cold]
    #[inline(never)]
    pub(crate) fn home_shards_of(&mut self, data: &DataView<'_>) -> u64 {
        self.content.watches.home_shards_of(data.name, self.tables.hash_prefixes(data.name))
    }

    /// Offers Data to the first of its home shards, which passes it on to the next.
    #[cold]
    #[inline(never)]
    pub(crate) fn offer(&mut self, mut offered: OfferedData) {
        if let Some(home) = shard::shards_in(offered.homes).next() {
            offered.homes &= !(1 << home);
            self.egress.send_to_shard(home, Message::Offer(Box::new(offered)));
        } else if let Some(verdict) = offered.verdict {
            let OfferedData { origin, packet, .. } = offered;
            let decided = Message::Verdict { face: origin.face, packet, verdict };
            self.egress.send_to_shard(verdict.shard, decided);
        }
    }

    /// Offers Data that no entry of this shard has requested. The shard stores it later if one of
    /// the home shards had sent an Interest for it to its source.
    #[cold]
    #[inline(never)]
    pub(crate) fn query_home_shards(&mut self, received: &ReceivedPacket<'_>, homes: u64) {
        let LpHeader { pit_token, no_cache, congestion_mark, .. } = *received.header;
        let face = self.tables.faces.find(received.face);
        let is_ad_hoc = face.is_some_and(|face| face.is_ad_hoc());
        let shard = self.config.shard;
        self.offer(OfferedData {
            origin: DataOrigin { face: received.face, mark: congestion_mark, is_ad_hoc },
            token: Some(pit_token),
            verdict: Some(UnsolicitedVerdict { shard, no_cache, is_requested: false }),
            is_stale: false,
            packet: received.packet.clone(),
            announcement: None,
            served: Vec::new(),
            homes,
        });
    }

    /// Passes Data to the shard of its name, if a wrong PIT token has led it to this shard. Returns
    /// whether it did.
    #[cold]
    #[inline(never)]
    pub(crate) fn hand_over_misrouted(&mut self, incoming: &IncomingData<'_>) -> bool {
        let name = incoming.data.name;
        let shard = shard_of_name(&self.tables.hash_key, name, self.config.shard_count);
        if shard == self.config.shard {
            return false;
        }
        // The other shard counts this packet when it receives it.
        self.egress.stats.in_data -= 1;
        let header = Box::new(incoming.received.header.clone());
        let (face, packet) = (incoming.received.face, incoming.received.packet.clone());
        self.egress.send_to_shard(shard, Message::Misrouted { face, header, packet });
        true
    }

    /// Handles the end of a read for other shards. If the read does not answer the Interest of a
    /// shard, replies to this shard. Returns the other shards. The caller must offer them the Data.
    pub(crate) fn end_remote_reads(
        &mut self,
        read: ReadId,
        outcome: &ReadOutcome,
    ) -> RemoteWaiters {
        let mut waiters = RemoteWaiters::default();
        while let Some(remote) = self.content.queries.take_remote_read(read) {
            let is_answer = match outcome {
                ReadOutcome::Data { packet, fresh_until } => {
                    is_answer(self.now, &remote.interest, packet, *fresh_until)
                }
                ReadOutcome::Unavailable | ReadOutcome::Stalled => false,
            };
            if is_answer {
                waiters.homes |= 1 << remote.home;
                waiters.is_marked |= remote.is_marked;
                self.egress.stats.busy.answered += 1;
                let took_ns = self.now.ns_since(remote.since);
                self.egress.stats.busy.read_latency.record(took_ns);
            } else {
                let answer = Message::QueryReply { id: remote.id, found: Candidate::Nothing };
                self.egress.send_to_shard(remote.home, answer);
            }
        }
        waiters
    }
}

/// Whether Data from a disk answers the Interest that requested the read.
fn is_answer(now: Instant, interest: &Packet, data: &Packet, fresh_until: Instant) -> bool {
    let (Ok(interest), Ok(data)) = (InterestView::decode(interest), DataView::decode(data)) else {
        return false;
    };
    let is_fresh_enough = !interest.must_be_fresh || now < fresh_until;
    is_fresh_enough && interest.name.is_prefix_of(data.name)
}
