//! Packets on their way out: headers, counters, the outbox.

use weir_base::{FaceId, HashKey, Instant, Packet};
use weir_wire::{InterestView, LpHeader, NackReason, NameView, PitToken};

use crate::io::{OutPacket, Outbox, PitTokens};
use crate::scope::is_localhost;
use crate::shard;
use crate::stats::{DropReason, RouterStats};
use crate::table::faces::FaceTable;
use crate::table::pit::PitEntry;

/// Nacks that the end of one entry sends at most.
const NACKS_MAX: u32 = 32;

/// Puts packets into the outbox and counts them.
pub(crate) struct Sender {
    /// The token of Interests to peers whose packets are their own; empty with one shard.
    token: PitToken,
    /// The same of those with CanBePrefix.
    prefix_token: PitToken,
    shard: u16,
    shard_count: u16,
    /// Of tokens that must not be guessed.
    key: HashKey,
}

/// A Nack that leaves.
#[derive(Clone, Copy)]
pub(crate) struct OutNack {
    pub(crate) reason: NackReason,
    /// The upstream whose Nack ended the Interest; `None` where this router ended it.
    pub(crate) from: Option<FaceId>,
}

impl OutNack {
    /// One of this router's own.
    pub(crate) fn own(reason: NackReason) -> Self {
        Self { reason, from: None }
    }
}

impl Sender {
    pub(crate) fn new(shard: u16, shard_count: u16, key: &HashKey) -> Self {
        let (token, prefix_token) = match shard_count {
            1 => Default::default(),
            _ => {
                let token = |shard| shard::token_of_shard(shard, shard_count);
                (token(shard), token(shard::by_name(shard_count)))
            }
        };
        // Names are hashed with `key` itself.
        let key = HashKey::new([key.hash(b"PIT token 0"), key.hash(b"PIT token 1")]);
        Self { token, prefix_token, shard, shard_count, key }
    }

    /// The token of an entry's Interest towards a peer that strangers can send in the name of: only
    /// who gets the Interest can return it.
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
        let by_name = shard::by_name(self.shard_count);
        let shard = if entry.can_be_prefix { by_name } else { self.shard };
        let is_long = tokens == PitTokens::LongSecret;
        shard::secret_token(shard, self.shard_count, self.key.hash(&octets), is_long)
    }

    #[inline(always)]
    pub(crate) fn interest(
        &self,
        (face, tokens): (FaceId, PitTokens),
        ingress: FaceId,
        entry: &PitEntry,
        stats: &mut RouterStats,
        out: &mut Outbox,
    ) {
        stats.out_interests += 1;
        let pit_token = match tokens {
            PitTokens::Shard if entry.can_be_prefix => self.prefix_token,
            PitTokens::Shard => self.token,
            PitTokens::Off => PitToken::EMPTY,
            PitTokens::Secret | PitTokens::LongSecret => self.secret_token(face, tokens, entry),
        };
        let header = LpHeader { pit_token, incoming_face: Some(ingress.0), ..LpHeader::default() };
        let packet = entry.interest.clone();
        out.packets.push(OutPacket { face, header, packet });
    }

    /// Sends Data to one who waits for it, whatever has it: what lies in `/localhost` leaves by
    /// local faces only. `name` is the Data's, or what of it was asked for.
    #[inline(always)]
    pub(crate) fn data(
        &self,
        (to, is_local): (&(FaceId, PitToken), bool),
        from: (FaceId, u64),
        name: NameView<'_>,
        packet: Packet,
        stats: &mut RouterStats,
        out: &mut Outbox,
    ) {
        if !is_local && is_localhost(name) {
            return stats.drop_packet(DropReason::Scope);
        }
        stats.out_data += 1;
        let header = LpHeader {
            pit_token: to.1,
            incoming_face: Some(from.0.0),
            congestion_mark: from.1,
            ..LpHeader::default()
        };
        out.packets.push(OutPacket { face: to.0, header, packet });
    }

    pub(crate) fn nack(
        &self,
        to: (FaceId, PitToken),
        nack: OutNack,
        interest: Packet,
        stats: &mut RouterStats,
        out: &mut Outbox,
    ) {
        stats.out_nacks += 1;
        let header = LpHeader {
            nack: Some(nack.reason),
            pit_token: to.1,
            incoming_face: nack.from.map(|face| face.0),
            ..LpHeader::default()
        };
        out.packets.push(OutPacket { face: to.0, header, packet: interest });
    }

    /// A Nack to every downstream that can take one and still waits; their records go. Beyond
    /// [`NACKS_MAX`] they go in silence: each may need a copy of the Interest.
    pub(crate) fn nack_all(
        &self,
        now: Instant,
        entry: &mut PitEntry,
        nack: OutNack,
        faces: &mut FaceTable,
        stats: &mut RouterStats,
        out: &mut Outbox,
    ) {
        let mut nacks = 0;
        while let Some(record) = entry.remove_downstream(|_| true) {
            faces.end_wait(record.face_slot, record.face);
            if record.expiry <= now {
                continue;
            }
            nacks += 1;
            if nacks <= NACKS_MAX
                && faces.find(record.face).is_some_and(|face| face.is_point_to_point())
            {
                let interest = with_nonce(entry, record.nonce);
                let to = (record.face, record.pit_token);
                self.nack(to, nack, interest, stats, out);
            }
        }
    }
}

/// The entry's Interest with a downstream's own nonce, by which it knows its Nack.
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
