//! The output of a shard: packets with their headers, messages to other shards, and counters.

use alloc::vec::Vec;
use core::mem;

use weir_base::{FaceId, HashKey, Instant, Packet};
use weir_wire::{InterestView, LpHeader, NackReason, NameView, PitToken};

use crate::endpoints::{DataOrigin, Downstream};
use crate::incoming::ReceivedPacket;
use crate::io::{Event, OutPacket, Outbox, PitTokens};
use crate::scope::is_localhost;
use crate::shard::{self, Message, ShardMessage};
use crate::stats::{DropReason, RouterStats};
use crate::table::faces::{Face, FaceTable};
use crate::table::pit::PitEntry;

/// Maximum number of Nacks that the end of one PIT entry sends.
const NACKS_MAX: u32 = 32;

/// Fills the outbox of a turn and counts the packets that leave.
pub(crate) struct Egress {
    /// The driver's outbox during a turn; empty between turns.
    pub(crate) out: Outbox,
    pub(crate) stats: RouterStats,
    /// The token of Interests to peers whose packets cannot be forged; empty with one shard.
    token: PitToken,
    /// The token of Interests with CanBePrefix. Their Data goes to the shard of its own name.
    prefix_token: PitToken,
    shard: u16,
    shard_count: u16,
    /// The key of secret tokens.
    key: HashKey,
}

#[derive(Clone, Copy)]
pub(crate) struct OutNack {
    pub(crate) reason: NackReason,
    /// The upstream whose Nack ended the Interest; `None` if this router ended it.
    pub(crate) from: Option<FaceId>,
}

impl OutNack {
    /// A Nack that this router originates.
    pub(crate) fn own(reason: NackReason) -> Self {
        Self { reason, from: None }
    }
}

impl Egress {
    pub(crate) fn new(shard: u16, shard_count: u16, key: &HashKey) -> Self {
        let (token, prefix_token) = if shard_count == 1 {
            Default::default()
        } else {
            let token = |shard| shard::token_of_shard(shard, shard_count);
            (token(shard), token(shard::name_routed_shard(shard_count)))
        };
        // `key` itself hashes names, so tokens need a key of their own.
        let key = HashKey::new([key.hash(b"PIT token 0"), key.hash(b"PIT token 1")]);
        let (out, stats) = (Outbox::default(), RouterStats::default());
        Self { out, stats, token, prefix_token, shard, shard_count, key }
    }

    #[inline]
    pub(crate) fn drop_packet(&mut self, reason: DropReason) {
        self.stats.drop_packet(reason);
    }

    pub(crate) fn push_event(&mut self, event: Event) {
        self.out.events.push(event);
    }

    /// The token of an entry's Interest to a peer whose address can be forged. Only the receiver of
    /// the Interest can return it.
    #[inline(never)]
    pub(crate) fn secret_token(
        &self,
        face: FaceId,
        tokens: PitTokens,
        entry: &PitEntry,
    ) -> PitToken {
        let mut octets = [0; 16];
        octets[..8].copy_from_slice(&entry.hash.to_le_bytes());
        octets[8..].copy_from_slice(&face.0.to_le_bytes());
        let by_name = shard::name_routed_shard(self.shard_count);
        let shard = if entry.can_be_prefix { by_name } else { self.shard };
        let is_long = tokens == PitTokens::LongSecret;
        shard::secret_token(shard, self.shard_count, self.key.hash(&octets), is_long)
    }

    /// Sends the Interest of a PIT entry to `face`.
    #[inline(always)]
    pub(crate) fn interest(
        &mut self,
        face: FaceId,
        tokens: PitTokens,
        ingress: FaceId,
        entry: &PitEntry,
    ) {
        self.interest_as(face, tokens, ingress, entry, entry.interest.clone());
    }

    /// Sends the Interest of a PIT entry to `face` as `packet`, a copy with another nonce.
    #[inline(always)]
    pub(crate) fn interest_as(
        &mut self,
        face: FaceId,
        tokens: PitTokens,
        ingress: FaceId,
        entry: &PitEntry,
        packet: Packet,
    ) {
        self.stats.out_interests += 1;
        let pit_token = match tokens {
            PitTokens::Shard if entry.can_be_prefix => self.prefix_token,
            PitTokens::Shard => self.token,
            PitTokens::Off => PitToken::EMPTY,
            PitTokens::Secret | PitTokens::LongSecret => self.secret_token(face, tokens, entry),
        };
        let header = LpHeader { pit_token, incoming_face: Some(ingress.0), ..LpHeader::default() };
        self.out.packets.push(OutPacket { face, header, packet });
    }

    /// Marks the Interest that was sent last as NonDiscovery.
    pub(crate) fn mark_non_discovery(&mut self) {
        if let Some(last) = self.out.packets.last_mut() {
            last.header.non_discovery = true;
        }
    }

    /// Takes packets out of the outbox by position. The positions of announcements change with
    /// those of their packets.
    pub(crate) fn remove_packets(
        &mut self,
        mut is_removed: impl FnMut(usize, &OutPacket) -> bool,
    ) -> Vec<OutPacket> {
        let (mut kept, mut removed, mut moved) = (Vec::new(), Vec::new(), Vec::new());
        for (position, packet) in mem::take(&mut self.out.packets).into_iter().enumerate() {
            if is_removed(position, &packet) {
                moved.push(None);
                removed.push(packet);
            } else {
                moved.push(Some(kept.len()));
                kept.push(packet);
            }
        }
        self.out.packets = kept;
        self.out.announcements.retain_mut(|(position, _)| {
            let to = moved.get(*position).copied().flatten();
            *position = to.unwrap_or(*position);
            to.is_some()
        });
        removed
    }

    /// Sends Data to one downstream. Data under `/localhost` leaves only by local faces. `name` is
    /// the name of the Data, or the prefix of it that was requested.
    #[inline(always)]
    pub(crate) fn data(
        &mut self,
        to: &Downstream,
        is_local: bool,
        origin: DataOrigin,
        name: NameView<'_>,
        packet: Packet,
    ) {
        if !is_local && is_localhost(name) {
            return self.drop_packet(DropReason::Scope);
        }
        self.stats.out_data += 1;
        let header = LpHeader {
            pit_token: to.pit_token,
            incoming_face: Some(origin.face.0),
            congestion_mark: origin.mark,
            ..LpHeader::default()
        };
        self.out.packets.push(OutPacket { face: to.face, header, packet });
    }

    pub(crate) fn nack(&mut self, to: Downstream, nack: OutNack, interest: Packet) {
        self.stats.out_nacks += 1;
        let header = LpHeader {
            nack: Some(nack.reason),
            pit_token: to.pit_token,
            incoming_face: nack.from.map(|face| face.0),
            ..LpHeader::default()
        };
        self.out.packets.push(OutPacket { face: to.face, header, packet: interest });
    }

    /// Sends a Nack to each downstream that still waits and can receive one, and removes all
    /// in-records. Downstreams beyond [`NACKS_MAX`] get none, because each Nack may need a copy of
    /// the Interest.
    pub(crate) fn nack_all(
        &mut self,
        now: Instant,
        entry: &mut PitEntry,
        nack: OutNack,
        faces: &mut FaceTable,
    ) {
        let mut nacks = 0;
        while let Some(record) = entry.remove_downstream(|_| true) {
            faces.remove_pending(record.face_slot, record.face);
            if record.expiry <= now {
                continue;
            }
            nacks += 1;
            if nacks <= NACKS_MAX
                && faces.find(record.face).is_some_and(|face| face.is_point_to_point())
            {
                let interest = with_nonce(entry, record.nonce);
                self.nack(record.downstream(), nack, interest);
            }
        }
    }

    /// Counts a dropped Interest and, on a point-to-point face, sends a Nack to its sender.
    pub(crate) fn refuse(
        &mut self,
        received: &ReceivedPacket<'_>,
        face: &Face,
        nack: NackReason,
        reason: DropReason,
    ) {
        self.drop_packet(reason);
        if face.is_point_to_point() {
            self.nack(received.downstream(), OutNack::own(nack), received.packet.clone());
        }
    }

    #[inline]
    pub(crate) fn is_sharded(&self) -> bool {
        self.shard_count > 1
    }

    /// The other shards as a bit set.
    pub(crate) fn other_shards(&self) -> u64 {
        (u64::MAX >> (64 - self.shard_count)) & !(1 << self.shard)
    }

    pub(crate) fn send_to_shard(&mut self, shard: u16, message: Message) {
        self.out.shard_messages.push((shard, ShardMessage(message)));
    }

    pub(crate) fn send_to_other_shards(&mut self, message: impl Fn() -> Message) {
        if !self.is_sharded() {
            return;
        }
        for shard in shard::shards_in(self.other_shards()) {
            self.send_to_shard(shard, message());
        }
    }
}

/// The entry's Interest with the downstream's own nonce, by which the downstream recognises its
/// Nack.
pub(crate) fn with_nonce(entry: &PitEntry, nonce: u32) -> Packet {
    if nonce == entry.nonce() {
        return entry.interest.clone();
    }
    let view = InterestView::decode(&entry.interest).expect("the PIT holds valid Interests");
    let at = view.nonce_at().expect("Interests in the PIT have a nonce");
    let mut octets = entry.interest.to_vec();
    octets[at..at + 4].copy_from_slice(&nonce.to_be_bytes());
    Packet::from(octets)
}
