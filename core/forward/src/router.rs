//! One shard of the content router.

use alloc::vec::Vec;
use core::mem;

use arrayvec::ArrayVec;
use weir_base::{FaceId, HashKey, Instant, NS_PER_S, Packet, Pool, Rng, Slab, Table};
use weir_store::disk::DiskTierConfig;
use weir_store::{NameHashes, Store, StoreConfig};
use weir_wire::{InterestView, LpHeader, NackReason, Name, NameView, PacketView, PitToken, tlv};

use crate::blocking::Turn;
use crate::busy::BusyPolicy;
use crate::dead_nonce::DeadNonceList;
use crate::disk::DiskState;
use crate::io::{
    FaceScope, Input, LinkType, NextHop, OutPacket, Outbox, PacketKind, UnsolicitedPolicy,
};
use crate::pit::{Pit, PitEntry};
use crate::prefix_table::PrefixTable;
use crate::shard;
use crate::stats::{BusyStats, DropReason, RouterStats};
use crate::strategy::Strategy;

/// Bounds and policies of a shard.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// This shard's number, below `shard_count`.
    pub shard: u16,
    /// Shards of the router. With more than one, Interests leave with a PIT token.
    pub shard_count: u16,
    /// Key of name hashes: secret, drawn anew for each run, the same for all shards.
    pub hash_key: HashKey,
    /// Seed of nonces given to Interests without one.
    pub seed: u64,
    /// This shard's content store.
    pub store: StoreConfig,
    /// Its disk tier.
    pub disk: Option<DiskTierConfig>,
    /// What to do when its disks are busy.
    pub busy: BusyPolicy,
    /// Pending Interests held at most; beyond it, a Nack for congestion.
    pub pit_entries_max: usize,
    /// Pending Interests that one face waits for at most; beyond it, a Nack for congestion.
    pub pit_entries_per_face_max: usize,
    /// Dead nonces held at most; beyond it the oldest is forgotten.
    pub dead_nonces_max: usize,
    /// How long a dead nonce is known, ns (NFD: 6 s).
    pub dead_nonce_lifetime_ns: u64,
    /// What to do with Data nobody asked for.
    pub unsolicited: UnsolicitedPolicy,
    /// Octets of free packet blocks kept for reuse.
    pub pool_bytes_max: usize,
}

impl Default for RouterConfig {
    fn default() -> Self {
        Self {
            shard: 0,
            shard_count: 1,
            hash_key: HashKey::new([0, 0]),
            seed: 0,
            store: StoreConfig::default(),
            disk: None,
            busy: BusyPolicy::default(),
            pit_entries_max: 1 << 20,
            pit_entries_per_face_max: 250_000,
            dead_nonces_max: 1 << 18,
            dead_nonce_lifetime_ns: 6 * NS_PER_S,
            unsolicited: UnsolicitedPolicy::DropAll,
            pool_bytes_max: 16 << 20,
        }
    }
}

/// What a shard knows of a face.
#[derive(Clone, Copy)]
pub(crate) struct Face {
    id: FaceId,
    scope: FaceScope,
    link_type: LinkType,
    /// Its place in the table, until it is removed.
    slot: u32,
    /// PIT entries that it waits for.
    waits_for: u32,
}

impl Face {
    pub(crate) fn id(&self) -> FaceId {
        self.id
    }

    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    pub(crate) fn waits_for(&self) -> usize {
        self.waits_for as usize
    }

    pub(crate) fn is_local(&self) -> bool {
        self.scope == FaceScope::Local
    }

    pub(crate) fn is_ad_hoc(&self) -> bool {
        self.link_type == LinkType::AdHoc
    }

    pub(crate) fn is_point_to_point(&self) -> bool {
        self.link_type == LinkType::PointToPoint
    }
}

/// Faces by identifier.
pub(crate) struct FaceTable {
    table: Table,
    faces: Slab<Face>,
}

impl FaceTable {
    fn new() -> Self {
        Self { table: Table::with_capacity(64), faces: Slab::new() }
    }

    /// Identifiers are ours and dense: spreading them is enough.
    fn hash(id: FaceId) -> u64 {
        id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    #[inline]
    fn index(&self, id: FaceId) -> Option<u32> {
        self.table.find(Self::hash(id), |index| self.faces[index].id == id)
    }

    #[inline]
    pub(crate) fn find(&self, id: FaceId) -> Option<Face> {
        self.index(id).map(|index| self.faces[index])
    }

    pub(crate) fn insert(&mut self, id: FaceId, scope: FaceScope, link_type: LinkType) {
        match self.index(id) {
            Some(index) => {
                self.faces[index].scope = scope;
                self.faces[index].link_type = link_type;
            }
            None => {
                let face = Face { id, scope, link_type, slot: 0, waits_for: 0 };
                let slot = self.faces.insert(face);
                self.faces[slot].slot = slot;
                self.table.insert(Self::hash(id), slot);
            }
        }
    }

    /// The face waits for one more PIT entry.
    pub(crate) fn begin_wait(&mut self, slot: u32) {
        self.faces[slot].waits_for += 1;
    }

    /// The face in `slot`, if it is still `id`, waits for one less.
    pub(crate) fn end_wait(&mut self, slot: u32, id: FaceId) {
        if let Some(face) = self.faces.get_mut(slot).filter(|face| face.id == id) {
            face.waits_for -= 1;
        }
    }

    pub(crate) fn remove(&mut self, id: FaceId) {
        if let Some(index) = self.index(id) {
            self.table.remove(Self::hash(id), index);
            self.faces.remove(index);
        }
    }
}

/// Puts packets into the outbox and counts them.
pub(crate) struct Sender {
    /// The token of our Interests; empty with one shard.
    token: PitToken,
}

impl Sender {
    pub(crate) fn interest(
        &self,
        face: FaceId,
        ingress: FaceId,
        packet: Packet,
        stats: &mut RouterStats,
        out: &mut Outbox,
    ) {
        stats.out_interests += 1;
        let header = LpHeader {
            pit_token: self.token,
            incoming_face: Some(ingress.0),
            ..LpHeader::default()
        };
        out.packets.push(OutPacket { face, header, packet, kind: PacketKind::Interest });
    }

    pub(crate) fn data(
        &self,
        to: (FaceId, PitToken),
        from: (FaceId, u64),
        packet: Packet,
        stats: &mut RouterStats,
        out: &mut Outbox,
    ) {
        stats.out_data += 1;
        let header = LpHeader {
            pit_token: to.1,
            incoming_face: Some(from.0.0),
            congestion_mark: from.1,
            ..LpHeader::default()
        };
        out.packets.push(OutPacket { face: to.0, header, packet, kind: PacketKind::Data });
    }

    pub(crate) fn nack(
        &self,
        face: FaceId,
        reason: NackReason,
        interest: Packet,
        stats: &mut RouterStats,
        out: &mut Outbox,
    ) {
        stats.out_nacks += 1;
        let header = LpHeader { nack: Some(reason), ..LpHeader::default() };
        out.packets.push(OutPacket { face, header, packet: interest, kind: PacketKind::Nack });
    }

    /// A Nack to every downstream that can take one; their records go.
    pub(crate) fn nack_all(
        &self,
        entry: &mut PitEntry,
        reason: NackReason,
        faces: &mut FaceTable,
        stats: &mut RouterStats,
        out: &mut Outbox,
    ) {
        while let Some(record) = entry.in_records.remove(|_| true) {
            faces.end_wait(record.face_slot, record.face);
            if faces.find(record.face).is_some_and(|face| face.is_point_to_point()) {
                let interest = with_nonce(entry, record.nonce);
                self.nack(record.face, reason, interest, stats, out);
            }
        }
    }
}

/// The entry's Interest with a downstream's own nonce, by which it knows its Nack.
pub(crate) fn with_nonce(entry: &PitEntry, nonce: u32) -> Packet {
    if nonce == entry.nonce {
        return entry.interest.clone();
    }
    let view = InterestView::decode(&entry.interest).expect("the PIT holds valid Interests");
    let at = view.nonce_at.expect("Interests in the PIT have a nonce");
    let mut octets = entry.interest.to_vec();
    octets[at..at + 4].copy_from_slice(&nonce.to_be_bytes());
    Packet::from(octets)
}

/// Packets whose tables are looked up together: enough to hide memory latency, few enough that what
/// was fetched is still there when it is used.
const BATCH: usize = 32;

/// A packet of a batch.
struct Arrival<'a> {
    from: From<'a>,
    /// None when it is malformed, which is counted.
    parsed: Option<PacketView<'a>>,
    hashes: NameHashes,
}

/// One shard of the router: tables, no clock, no sockets.
///
/// The driver gives it packets in batches with the present time and sends what it finds in the
/// [`Outbox`].
pub struct Router {
    pub(crate) config: RouterConfig,
    pub(crate) faces: FaceTable,
    pub(crate) pit: Pit,
    pub(crate) fib: PrefixTable<FibEntry>,
    /// The number of the next new FIB entry.
    pub(crate) fib_id_next: u32,
    pub(crate) strategies: PrefixTable<Strategy>,
    pub(crate) default_strategy: Strategy,
    pub(crate) store: Store,
    pub(crate) disk: DiskState,
    pub(crate) dead_nonces: DeadNonceList,
    pub(crate) producer_regions: Vec<Name>,
    pub(crate) pool: Pool,
    pub(crate) rng: Rng,
    pub(crate) sender: Sender,
    pub(crate) stats: RouterStats,
    expired: Vec<u32>,
    pub(crate) matched: Vec<u32>,
    pub(crate) downstreams: Vec<(FaceId, PitToken)>,
    pub(crate) full_name: Vec<u8>,
    pub(crate) prefix_hashes: Vec<u64>,
}

impl Router {
    /// An empty shard with NFD's default strategies.
    #[must_use]
    pub fn new(now: Instant, config: RouterConfig) -> Self {
        assert!(config.shard < config.shard_count, "shards are numbered from 0");
        let token = match config.shard_count {
            1 => PitToken::default(),
            _ => shard::token_of_shard(config.shard),
        };
        let mut router = Self {
            faces: FaceTable::new(),
            pit: Pit::new(now, config.pit_entries_max),
            fib: PrefixTable::new(),
            fib_id_next: 0,
            strategies: PrefixTable::new(),
            default_strategy: Strategy::best_route(),
            store: match &config.disk {
                Some(disk) => Store::with_disk(config.store.clone(), disk.clone()),
                None => Store::new(config.store.clone()),
            },
            disk: DiskState::new(&config),
            dead_nonces: DeadNonceList::new(config.dead_nonce_lifetime_ns, config.dead_nonces_max),
            producer_regions: Vec::new(),
            pool: Pool::new(config.pool_bytes_max),
            rng: Rng::from_seed(config.seed),
            sender: Sender { token },
            stats: RouterStats::default(),
            prefix_hashes: Vec::new(),
            expired: Vec::new(),
            matched: Vec::new(),
            downstreams: Vec::new(),
            full_name: Vec::new(),
            config,
        };
        router.set_default_strategies();
        router
    }

    /// Takes a batch of inputs at one moment and appends what is to be done to `out`.
    ///
    /// Packets of a batch are parsed and hashed first, then everything they will touch is
    /// prefetched, then they are processed in order.
    pub fn handle(&mut self, now: Instant, inputs: &mut [Input], out: &mut Outbox) {
        self.expire(now);
        self.tend_disk(now, out);
        let mut rest = inputs;
        while !rest.is_empty() {
            let is_packet = |input: &Input| matches!(input, Input::Packet { .. });
            let packets = rest.iter().take(BATCH).take_while(|input| is_packet(input)).count();
            let (batch, after) = rest.split_at_mut(packets.max(1));
            rest = after;
            if packets > 0 {
                self.handle_packets(now, batch, out);
            } else {
                self.handle_other(now, mem::replace(&mut batch[0], Input::Wakeup), out);
            }
        }
        self.finish_batch(now, out);
    }

    /// When [`Router::handle`] must be called again at the latest, even with nothing to give it.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Instant> {
        let pit = self.pit.timers.next_wakeup();
        if !self.store.has_disk() {
            return pit;
        }
        [pit, self.store.next_wakeup(), self.disk.neighbours.next_wakeup()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Counters and table sizes as they are now.
    #[must_use]
    pub fn stats(&self) -> RouterStats {
        RouterStats {
            pit_entries: self.pit.len(),
            fib_entries: self.fib.len(),
            dead_nonces: self.dead_nonces.len(),
            store: self.store.stats(),
            busy: BusyStats {
                interests_waiting: self.disk.queue.len() as u64,
                ..self.stats.busy.clone()
            },
            ..self.stats.clone()
        }
    }

    /// Out of line: the usual way is [`Router::parse`].
    #[inline(never)]
    pub(crate) fn hash_name(&self, packet: &PacketView<'_>) -> NameHashes {
        hash_name(&self.config.hash_key, packet, self.store.has_disk())
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        let mut expired = mem::take(&mut self.expired);
        self.pit.timers.advance(now, &mut expired);
        for index in expired.drain(..) {
            self.finish_unsatisfied(now, index);
        }
        self.expired = expired;
        self.dead_nonces.expire(now);
    }

    /// Ends an entry that got no Data; its nonces stay known (NFD, Interest finalize pipeline).
    pub(crate) fn finish_unsatisfied(&mut self, now: Instant, index: u32) {
        let entry = self.pit.entry(index);
        for record in entry.out_records.iter() {
            self.dead_nonces.insert(now, entry.hash, record.nonce);
        }
        for record in entry.in_records.iter() {
            self.faces.end_wait(record.face_slot, record.face);
        }
        self.leave_way(now, index, None);
        self.stats.unsatisfied += 1;
        self.pit.remove(index);
    }

    fn handle_packets(&mut self, now: Instant, batch: &[Input], out: &mut Outbox) {
        let mut arrivals = ArrayVec::<Arrival<'_>, BATCH>::new();
        for input in batch {
            let Input::Packet { face, header, packet } = input else { continue };
            let arrival = self.parse(From { face: *face, header, packet, turn: Turn::Arrives });
            self.prefetch_tables(&arrival);
            arrivals.push(arrival);
        }
        for arrival in &arrivals {
            self.prefetch_entries(arrival);
        }
        for arrival in &arrivals {
            self.prefetch_packets(arrival);
        }
        for arrival in &arrivals {
            self.process(now, arrival, out);
        }
    }

    /// First stage: the tables' lines.
    fn prefetch_tables(&self, arrival: &Arrival<'_>) {
        let hash = arrival.hashes.whole;
        match &arrival.parsed {
            Some(PacketView::Interest(interest)) => {
                self.pit.prefetch_table(hash);
                self.store.prefetch_table(hash);
                self.store.prefetch_filter(interest.name, &arrival.hashes);
                if let Some(nonce) = interest.nonce {
                    self.dead_nonces.prefetch(hash, nonce);
                }
            }
            Some(PacketView::Data(_)) => {
                self.pit.prefetch_table(hash);
                self.store.prefetch_table(hash);
                if let Some(parent_hash) = arrival.hashes.parent {
                    self.store.prefetch_parent_table(hash, parent_hash);
                }
            }
            None => {}
        }
    }

    /// Second stage, with the lines here: the entries they lead to.
    fn prefetch_entries(&self, arrival: &Arrival<'_>) {
        let Some(parsed) = &arrival.parsed else { return };
        self.pit.prefetch_entry(arrival.hashes.whole);
        self.store.prefetch_entry(arrival.hashes.whole);
        if let (PacketView::Data(_), Some(parent_hash)) = (parsed, arrival.hashes.parent) {
            self.store.prefetch_parent(parent_hash);
        }
    }

    /// Third stage, with the entries here: the names that will be compared.
    fn prefetch_packets(&self, arrival: &Arrival<'_>) {
        let Some(parsed) = &arrival.parsed else { return };
        self.pit.prefetch_name(arrival.hashes.whole);
        self.store.prefetch_packet(arrival.hashes.whole);
        if let (PacketView::Data(_), Some(parent_hash)) = (parsed, arrival.hashes.parent) {
            self.store.prefetch_sibling(parent_hash);
        }
    }

    #[inline(always)]
    fn parse<'a>(&mut self, from: From<'a>) -> Arrival<'a> {
        match PacketView::decode(from.packet) {
            Ok(parsed) => {
                let has_disk = self.store.has_disk();
                let hashes = hash_name(&self.config.hash_key, &parsed, has_disk);
                Arrival { from, parsed: Some(parsed), hashes }
            }
            Err(error) => {
                self.stats.drop_packet(DropReason::Malformed);
                *self.stats.malformed.entry(error.reason()).or_default() += 1;
                Arrival {
                    from,
                    parsed: None,
                    hashes: NameHashes { whole: 0, parent: None, grandparent: None },
                }
            }
        }
    }

    fn process(&mut self, now: Instant, arrival: &Arrival<'_>, out: &mut Outbox) {
        let Arrival { from, hashes, .. } = arrival;
        match &arrival.parsed {
            Some(PacketView::Interest(interest)) => match from.header.nack {
                None => self.take_interest(now, from, interest, *hashes, out),
                Some(reason) => self.on_nack(now, from, interest, reason, *hashes, out),
            },
            Some(PacketView::Data(data)) => self.on_data(now, from, data, *hashes, out),
            None => {}
        }
    }
}

/// The hashes that a packet needs, in one pass over its name. The parent is asked for by Data,
/// which is stored below it, by Interests that end in an implicit digest, and by all Interests
/// where there is a disk tier, which also wants the grandparent of those that end in a digest.
#[inline(always)]
fn hash_name(key: &HashKey, packet: &PacketView<'_>, has_disk: bool) -> NameHashes {
    let name = packet.name();
    let mut hasher = key.prefixes(name.value());
    let is_data = matches!(packet, PacketView::Data(_));
    let has_digest = !is_data && seems_to_end_in_digest(name);
    let mut hashes = NameHashes { whole: 0, parent: None, grandparent: None };
    if is_data || has_digest || has_disk {
        let (mut grandparent_end, mut parent_end, mut end) = (0, 0, 0);
        for component in name.components() {
            (grandparent_end, parent_end) = (parent_end, end);
            end += component.wire.len();
        }
        if has_disk && has_digest && grandparent_end > 0 {
            hashes.grandparent = Some(hasher.hash_to(grandparent_end));
        }
        hashes.parent = (parent_end > 0).then(|| hasher.hash_to(parent_end));
    }
    hashes.whole = hasher.hash_to(name.value().len());
    hashes
}

/// Octets that look like a digest but belong to a longer component cost one hash too many.
#[inline]
fn seems_to_end_in_digest(name: NameView<'_>) -> bool {
    const DIGEST_HEADER: [u8; 2] = [tlv::IMPLICIT_SHA256_DIGEST_COMPONENT as u8, 32];
    name.value().split_last_chunk::<34>().is_some_and(|(_, last)| last.starts_with(&DIGEST_HEADER))
}

/// The next hops of a prefix.
#[derive(Clone, Debug)]
pub(crate) struct FibEntry {
    /// Stays when the next hops change.
    pub(crate) id: u32,
    /// By rising cost.
    pub(crate) next_hops: Vec<NextHop>,
}

/// Where a packet came from, and the packet as it came.
pub(crate) struct From<'a> {
    pub(crate) face: FaceId,
    pub(crate) header: &'a LpHeader,
    pub(crate) packet: &'a Packet,
    /// Whether it is an Interest that has waited before a store that blocks.
    pub(crate) turn: Turn,
}
