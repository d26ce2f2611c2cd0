//! The Data path (NFD: incoming Data, unsolicited Data and outgoing Data pipelines).

use alloc::vec::Vec;
use core::mem;

use weir_base::{FaceId, Packet};
use weir_store::NameHashes;
use weir_wire::{DataView, PacketView, PitToken};

use crate::content::busy::Mark;
use crate::endpoints::{DataOrigin, TokenCarrier};
use crate::incoming::{IncomingData, ReceivedPacket};
use crate::io::{DataSource, UnsolicitedPolicy};
use crate::router::Router;
use crate::scope::is_localhost;
use crate::shard::{Message, OfferedData, UnsolicitedVerdict};
use crate::stats::DropReason;
use crate::table::faces::Face;
use crate::table::pit::AwaitedSource;
use crate::table::records::OutRecord;

impl Router {
    /// The path of a Data packet: scope, PIT, content store, then every downstream that waits.
    pub(crate) fn on_data(
        &mut self,
        received: &ReceivedPacket<'_>,
        data: &DataView<'_>,
        hashes: &NameHashes,
    ) {
        self.egress.stats.in_data += 1;
        let Some(&face) = self.tables.faces.find(received.face) else {
            return self.egress.drop_packet(DropReason::UnknownFace);
        };
        if !face.is_local() && is_localhost(data.name) {
            return self.egress.drop_packet(DropReason::Scope);
        }
        let incoming = IncomingData { received, data, hashes, face };
        let mut matched = mem::take(&mut self.matched);
        matched.clear();
        self.tables.find_pending(data, hashes.whole, &mut matched);
        self.dispatch_data(&incoming, &mut matched);
        self.matched = matched;
    }

    /// Passes misrouted Data to its shard, and checks the source of other Data. Then it satisfies
    /// the entries in `matched`, or treats the Data as unsolicited.
    #[inline(always)]
    fn dispatch_data(&mut self, incoming: &IncomingData<'_>, matched: &mut Vec<u32>) {
        // Bit set of the home shards whose Interests this Data may satisfy. The home of an Interest
        // with CanBePrefix is the shard of its own name (`shards.rs`).
        let mut homes = 0;
        if self.egress.is_sharded() {
            if !self.content.watches.is_empty() {
                homes = self.home_shards_of(incoming.data);
            }
            // Data for an Interest without CanBePrefix always belongs to the shard of its own name.
            // If no such Interest waits here, a wrong PIT token may have led the Data to this
            // shard.
            let pit = &self.tables.pit;
            let is_exact = matched.iter().any(|&index| !pit.entry(index).can_be_prefix);
            if !is_exact && self.hand_over_misrouted(incoming) {
                return;
            }
        }
        // Data is accepted only from a face to which the Interest was sent.
        let token = Some(&incoming.received.header.pit_token);
        let refusal = self.retain_sent_to(&incoming.face, token, matched);
        if !matched.is_empty() {
            return self.satisfy(incoming, matched, homes);
        }
        let no_cache = incoming.received.header.no_cache;
        match homes {
            0 => self.on_unsolicited(
                &incoming.face,
                no_cache,
                refusal,
                incoming.data,
                *incoming.hashes,
            ),
            // Only the home shards know whether they requested this Data.
            homes => self.query_home_shards(incoming.received, homes),
        }
    }

    /// Keeps those PIT entries in `matched` whose Interest was sent to `face`, the source of the
    /// Data. If the face uses secret PIT tokens, Data without the token of an entry may be forged.
    /// Then [`Self::check_token`] decides whether any entry is kept. `token` is `None` if the
    /// caller has checked the source. If no entry is left, returns why the last one was removed.
    #[inline]
    pub(crate) fn retain_sent_to(
        &mut self,
        face: &Face,
        token: Option<&PitToken>,
        matched: &mut Vec<u32>,
    ) -> Option<DropReason> {
        // The usual case: one entry, whose first Interest went to this face.
        if let [index] = matched[..]
            && self.tables.pit.entry(index).is_first_upstream(face.id())
            && !face.has_secret_tokens()
        {
            return None;
        }
        self.retain_sent_to_slow(face, token, matched)
    }

    #[inline(never)]
    fn retain_sent_to_slow(
        &mut self,
        face: &Face,
        token: Option<&PitToken>,
        matched: &mut Vec<u32>,
    ) -> Option<DropReason> {
        if matched.is_empty() || self.config.data_source == DataSource::Any {
            return None;
        }
        let pit = &self.tables.pit;
        let is_sent_there = |record: OutRecord| record.face == face.id();
        matched.retain(|&index| pit.entry(index).upstreams().any(is_sent_there));
        if matched.is_empty() {
            return Some(DropReason::NotRequested);
        }
        // One matching token is enough. It proves that the sender received an Interest for this
        // Data.
        if let Some(token) = token
            && face.has_secret_tokens()
        {
            let (id, kind) = (face.id(), face.tokens());
            let secret = |&index: &u32| self.egress.secret_token(id, kind, pit.entry(index));
            let has_token = matched.iter().map(secret).any(|secret| *token == secret);
            if !self.check_token(face.id(), TokenCarrier::Data, has_token) {
                matched.clear();
                return Some(DropReason::Spoofed);
            }
        }
        None
    }

    /// Whether to accept a packet on a face whose address can be forged. Some peers return no PIT
    /// tokens, so a packet is accepted without one at first. All shards record the first token that
    /// a peer returns. From then on, a packet must carry the token of its Interest.
    pub(crate) fn check_token(
        &mut self,
        face: FaceId,
        carrier: TokenCarrier,
        has_token: bool,
    ) -> bool {
        let returns_tokens = self.tables.faces.returns_tokens(face, carrier);
        if has_token && !returns_tokens {
            self.tables.faces.set_returns_tokens(face, carrier);
            self.egress.send_to_other_shards(|| Message::ReturnsTokens { face, carrier });
        }
        has_token || !returns_tokens
    }

    /// Handles Data that no Interest requested, or that was refused because of `refusal`.
    #[cold]
    #[inline(never)]
    fn on_unsolicited(
        &mut self,
        face: &Face,
        no_cache: bool,
        refusal: Option<DropReason>,
        data: &DataView<'_>,
        hashes: NameHashes,
    ) {
        // The internal face sends notifications that may have no Interest. They are not counted as
        // drops.
        if face.id() != FaceId::INTERNAL {
            self.egress.drop_packet(refusal.unwrap_or(DropReason::Unsolicited));
        }
        let is_admitted = match self.config.unsolicited {
            UnsolicitedPolicy::DropAll => false,
            UnsolicitedPolicy::AdmitLocal => face.is_local(),
            UnsolicitedPolicy::AdmitNetwork => !face.is_local(),
            UnsolicitedPolicy::AdmitAll => true,
        };
        if is_admitted && !no_cache {
            self.content.insert(self.now, data, hashes, face.id());
        }
    }

    /// Stores Data, unless its sender forbids it, and sends it to every downstream.
    fn satisfy(&mut self, incoming: &IncomingData<'_>, matched: &[u32], homes: u64) {
        let IncomingData { received, data, hashes, face } = incoming;
        let stored = if received.header.no_cache {
            None
        } else {
            self.content.insert(self.now, data, **hashes, received.face)
        };
        let is_write_marked =
            stored.is_some() && self.content.store.has_disk() && self.draw_write_mark();
        // The stored copy is sent. A slice of the received packet would keep a whole receive block
        // in use.
        let packet = stored.unwrap_or_else(|| received.packet.clone());
        let is_marked = is_write_marked
            || self.config.busy.mark == Mark::Ecn && self.is_marked_for_bypass(matched);
        let mark = received.header.congestion_mark;
        // If the Data arrived with a larger mark than this router sets, the larger mark stays.
        let origin = DataOrigin {
            face: received.face,
            mark: if is_marked { mark.max(1) } else { mark },
            is_ad_hoc: face.is_ad_hoc(),
        };
        let sent = self.egress.stats.out_data;
        let packet_bytes = packet.len() as u64;
        // Other shards may have Interests with CanBePrefix for the same Data. They receive the Data
        // with the list of downstreams that already have it.
        let offered = if homes != 0 { Some(packet.clone()) } else { None };
        self.end_with_data(origin, packet, data, matched);
        let copies = self.egress.stats.out_data - sent;
        self.egress.stats.next_hop_bytes += copies * packet_bytes;
        // Each copy that left carries the mark.
        if is_marked {
            self.egress.stats.busy.marked += copies;
        }
        if let Some(packet) = offered {
            let served = self.downstreams.clone();
            self.offer(OfferedData::new(origin, packet, served, homes));
        }
    }

    /// Decides whether this Data is marked because Data arrives faster than the disks write it.
    /// Consumers then slow down before the memory for unwritten Data is full. Each call counts as
    /// one Data packet.
    #[inline(never)]
    fn draw_write_mark(&mut self) -> bool {
        if self.config.busy.mark == Mark::Off {
            return false;
        }
        let backlog = self.content.store.write_backlog(self.now);
        let marks = &mut self.content.disk.write_marks;
        backlog.is_some_and(|backlog| marks.is_next_marked(self.now, backlog))
    }

    /// Whether one of these Interests bypassed a disk whose queue was long enough to mark its Data.
    #[cold]
    fn is_marked_for_bypass(&self, matched: &[u32]) -> bool {
        matched.iter().any(|&index| {
            let awaits = self.tables.pit.entry(index).awaits;
            matches!(awaits, AwaitedSource::Bypass { is_marked: true, .. })
        })
    }

    /// Handles the reply of the home shards for Data that only they may have requested. The Data is
    /// stored if one of them had sent an Interest to `face`, and is unsolicited otherwise.
    pub(crate) fn on_home_shards_verdict(
        &mut self,
        face: FaceId,
        packet: &Packet,
        verdict: UnsolicitedVerdict,
    ) {
        let Ok(data) = DataView::decode(packet) else { return };
        let hashes = self.hash_name(&PacketView::Data(data));
        let UnsolicitedVerdict { no_cache, is_requested, .. } = verdict;
        if is_requested {
            if !no_cache {
                self.content.insert(self.now, &data, hashes, face);
            }
        } else if let Some(face) = self.tables.faces.find(face).copied() {
            self.on_unsolicited(&face, no_cache, Some(DropReason::NotRequested), &data, hashes);
        }
    }
}
