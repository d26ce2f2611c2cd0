//! One shard of the content router.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use arrayvec::ArrayVec;
use weir_base::{FaceId, HashKey, Instant, NS_PER_S, Pool, PrefixHasher, Rng, SpanSource};
use weir_store::disk::DiskTierConfig;
use weir_store::{NameHashes, Store, StoreConfig};
use weir_wire::{
    DecodeError, NAME_COMPONENTS_MAX, Name, NameHead, NameView, PacketView, PitToken, tlv,
};

use crate::content::busy::BusyPolicy;
use crate::content::disk::DiskState;
use crate::content::queries::Queries;
use crate::egress::Sender;
use crate::input::{Input, MissWatch};
use crate::io::{DataSource, Outbox, UnsolicitedPolicy};
use crate::packet::ReceivedPacket;
use crate::shard::SHARDS_MAX;
use crate::stats::{BusyStats, DropReason, RouterStats};
use crate::strategy::Strategy;
use crate::table::dead_nonces::DeadNonceList;
use crate::table::faces::FaceTable;
use crate::table::fib::Fib;
use crate::table::measurements::{FlightEnd, Measurements};
use crate::table::orphans::OrphanSearch;
use crate::table::pit::Pit;
use crate::table::prefixes::PrefixTable;
use crate::table::refusals::Refusals;
use crate::table::watches::Watches;

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
    /// Pending Interests held at most. When there are as many, those of the host or prefix that has
    /// the most make room for others; there is a Nack for congestion for it.
    pub pit_entries_max: usize,
    /// Octets of memory that pending Interests take at most, likewise.
    pub pit_bytes_max: u64,
    /// How long an Interest from another host waits at most, ns.
    pub remote_lifetime_ns_max: u64,
    /// Pending Interests that one face waits for at most; beyond it, a Nack for congestion.
    pub pit_entries_per_face_max: usize,
    /// Dead nonces held at most; beyond it the oldest is forgotten.
    pub dead_nonces_max: usize,
    /// How long a dead nonce is known, ns (NFD: 6 s).
    pub dead_nonce_lifetime_ns: u64,
    /// Components that a name has at most: with CanBePrefix Interests of every length pending, Data
    /// takes a look-up for each of its components. Other packets are dropped.
    pub name_components_max: usize,
    /// Whose Data satisfies a pending Interest.
    pub data_source: DataSource,
    /// What to do with Data nobody asked for.
    pub unsolicited: UnsolicitedPolicy,
    /// Octets of free packet blocks kept for reuse.
    pub pool_bytes_max: usize,
    /// Where memory for packets that are kept comes from; the global allocator without it.
    pub memory: Option<Arc<dyn SpanSource>>,
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
            pit_bytes_max: 1 << 30,
            remote_lifetime_ns_max: 60 * NS_PER_S,
            pit_entries_per_face_max: 250_000,
            dead_nonces_max: 1 << 18,
            dead_nonce_lifetime_ns: 6 * NS_PER_S,
            name_components_max: NAME_COMPONENTS_MAX,
            data_source: DataSource::NextHops,
            unsolicited: UnsolicitedPolicy::DropAll,
            pool_bytes_max: 16 << 20,
            memory: None,
        }
    }
}

/// Packets whose tables are looked up together: enough to hide memory latency, few enough that what
/// was fetched is still there when it is used.
const BATCH: usize = 32;

/// A packet of a batch.
pub(crate) struct Arrival<'a> {
    pub(crate) received: ReceivedPacket<'a>,
    pub(crate) parsed: PacketView<'a>,
    pub(crate) hashes: NameHashes,
}

/// The head of the name of the packet before, and what was made of it.
struct Head<'a> {
    name: NameHead<'a>,
    /// Has taken it in, once a second packet had it.
    hasher: Option<PrefixHasher<'a>>,
    /// Of the head as a whole, once it was asked for.
    hash: Option<u64>,
    /// See [`ReceivedPacket::head`].
    number: u64,
}

/// Where the tables have what the name of a packet most likely leads to.
#[derive(Clone, Copy, Default)]
struct Candidates {
    pending: Option<u32>,
    stored: Option<u32>,
    /// The node of the store under which Data belongs.
    parent: Option<u32>,
}

/// One shard of the router: tables, no clock, no sockets.
///
/// The driver gives it packets in batches with the present time and sends what it finds in the
/// [`Outbox`].
pub struct Router {
    pub(crate) config: RouterConfig,
    pub(crate) faces: FaceTable,
    pub(crate) pit: Pit,
    pub(crate) fib: Fib,
    pub(crate) measurements: Measurements,
    pub(crate) strategies: PrefixTable<Strategy>,
    pub(crate) default_strategy: Strategy,
    pub(crate) store: Store,
    pub(crate) disk: DiskState,
    pub(crate) dead_nonces: DeadNonceList,
    pub(crate) producer_regions: Vec<Name>,
    pub(crate) pool: Pool,
    pub(crate) rng: Rng,
    pub(crate) sender: Sender,
    pub(crate) watches: Watches,
    pub(crate) queries: Queries,
    pub(crate) stats: RouterStats,
    expired: Vec<u32>,
    /// Heads of names so far.
    heads: u64,
    pub(crate) orphans: OrphanSearch,
    /// Whose misses of large objects to tell of.
    pub(crate) watches_misses: MissWatch,
    /// While the index of the store's contents is being built.
    pub(crate) building_since: Option<Instant>,
    pub(crate) refusals: Refusals,
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
        assert!(usize::from(config.shard_count) <= SHARDS_MAX, "a set of shards is one word");
        let others = usize::from(config.shard_count) - 1;
        let mut router = Self {
            faces: FaceTable::new(),
            pit: Pit::new(now, config.pit_entries_max, config.pit_bytes_max, others > 0),
            fib: Fib::new(),
            measurements: Measurements::default(),
            strategies: PrefixTable::new(),
            default_strategy: Strategy::best_route(),
            store: match &config.disk {
                Some(disk) => Store::with_disk(config.store.clone(), disk.clone()),
                None => Store::new(config.store.clone()),
            },
            disk: DiskState::new(&config.busy, config.disk.as_ref()),
            dead_nonces: DeadNonceList::new(config.dead_nonce_lifetime_ns, config.dead_nonces_max),
            producer_regions: Vec::new(),
            pool: match &config.memory {
                Some(memory) => Pool::of_spans(config.pool_bytes_max, Arc::clone(memory)),
                None => Pool::new(config.pool_bytes_max),
            },
            rng: Rng::from_seed(config.seed),
            sender: Sender::new(config.shard, config.shard_count, &config.hash_key),
            watches: Watches::new(now, watches_max(&config)),
            queries: Queries::default(),
            stats: RouterStats::default(),
            prefix_hashes: Vec::new(),
            expired: Vec::new(),
            heads: 0,
            orphans: OrphanSearch::default(),
            watches_misses: MissWatch::Off,
            building_since: None,
            refusals: Refusals::default(),
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
        self.expire(now, out);
        self.end_orphans(now);
        self.handle_disk_timeout(now, out);
        if self.is_sharded() {
            self.handle_shard_timeouts(now, out);
        }
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
        self.build_holdings();
        self.finish_batch(now, out);
    }

    /// When [`Router::handle`] must be called again at the latest, even with nothing to give it.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Instant> {
        let pit = self.pit.timers.next_wakeup();
        let [store, neighbours, refill] = match self.store.has_disk() {
            true => [
                self.store.next_wakeup(),
                self.disk.neighbours.next_wakeup(),
                self.disk.refill.next_wakeup(),
            ],
            false => [None; 3],
        };
        let queries = self.queries.next_wakeup();
        let others = [self.orphans.next_wakeup(), self.building_since];
        [pit, store, neighbours, refill, queries].into_iter().chain(others).flatten().min()
    }

    /// Counters and table sizes as they are now.
    #[must_use]
    pub fn stats(&self) -> RouterStats {
        RouterStats {
            pit_entries: self.pit.len() as u64,
            pit_bytes: self.pit.bytes(),
            fib_entries: self.fib.len() as u64,
            dead_nonces: self.dead_nonces.len() as u64,
            store: self.store.stats(),
            busy: BusyStats { interests_waiting: self.disk.held_up().into(), ..self.stats.busy },
            ..self.stats.clone()
        }
    }

    /// Out of line: the usual way is [`Router::arrival`].
    #[inline(never)]
    pub(crate) fn hash_name(&self, packet: &PacketView<'_>) -> NameHashes {
        hash_name(&self.config.hash_key, packet, self.store.has_disk())
    }

    pub(crate) fn expire(&mut self, now: Instant, out: &mut Outbox) {
        let mut expired = mem::take(&mut self.expired);
        self.pit.timers.advance(now, &mut expired);
        for index in expired.drain(..) {
            match self.pit.entry(index).last_expiry() {
                Some(last) if last > now => self.on_silence(now, index, last, out),
                _ => self.finish_unsatisfied(now, index),
            }
        }
        self.expired = expired;
        self.dead_nonces.expire(now);
        self.fib.forgive(now, &self.config.hash_key);
    }

    /// Ends an entry that got no Data; its nonces stay known (NFD, Interest finalize pipeline).
    pub(crate) fn finish_unsatisfied(&mut self, now: Instant, index: u32) {
        let entry = self.pit.entry(index);
        for record in entry.upstreams() {
            self.dead_nonces.insert(now, entry.hash, record.nonce);
            self.measurements.end(now, record.flight, FlightEnd::TimeOut);
        }
        for record in entry.downstreams() {
            self.faces.end_wait(record.face_slot, record.face);
        }
        self.detach_wait_state(now, index, None);
        self.stats.unsatisfied += 1;
        self.pool.recycle(self.pit.remove(index));
    }

    fn handle_packets(&mut self, now: Instant, batch: &[Input], out: &mut Outbox) {
        let mut arrivals = ArrayVec::<Arrival<'_>, BATCH>::new();
        let mut head = Head { name: NameHead::NONE, hasher: None, hash: None, number: 0 };
        for input in batch {
            let Input::Packet { face, header, packet } = input else { continue };
            match &PacketView::decode_after(packet, &mut head.name) {
                Ok(parsed) if parsed.name().component_count() > self.config.name_components_max => {
                    self.stats.drop_packet(DropReason::LongName);
                    head.name = NameHead::NONE;
                }
                Ok(parsed) => {
                    let hashes = self.hash_after(&mut head, parsed);
                    let mut received = ReceivedPacket::new(*face, header, packet);
                    received.head = head.number;
                    arrivals.push(Arrival { received, parsed: *parsed, hashes });
                }
                Err(error) => {
                    self.note_malformed(error);
                    head.name = NameHead::NONE;
                }
            }
            arrivals.last().inspect(|arrival| self.prefetch_tables(arrival));
        }
        let mut candidates = ArrayVec::<Candidates, BATCH>::new();
        candidates.extend(arrivals.iter().map(|arrival| self.prefetch_entries(arrival)));
        candidates.iter().for_each(|candidates| self.prefetch_packets(candidates));
        for arrival in &arrivals {
            self.process(now, arrival, out);
        }
    }

    /// First stage: the tables' lines.
    fn prefetch_tables(&self, arrival: &Arrival<'_>) {
        let hash = arrival.hashes.whole;
        self.pit.prefetch_table(hash);
        self.store.prefetch_table(hash);
        match &arrival.parsed {
            PacketView::Interest(interest) => {
                self.store.prefetch_filter(interest.name, &arrival.hashes);
                if let Some(nonce) = interest.nonce {
                    self.dead_nonces.prefetch(hash, nonce);
                }
            }
            PacketView::Data(_) => {
                if let Some(parent_hash) = arrival.hashes.parent {
                    self.store.prefetch_parent_table(hash, parent_hash);
                }
            }
        }
    }

    /// Second stage, with the lines here: the entries they lead to.
    #[inline(always)]
    fn prefetch_entries(&self, arrival: &Arrival<'_>) -> Candidates {
        let NameHashes { whole, parent, .. } = arrival.hashes;
        let parent = parent.filter(|_| matches!(arrival.parsed, PacketView::Data(_)));
        Candidates {
            pending: self.pit.prefetch_entry(whole),
            stored: self.store.prefetch_entry(whole),
            parent: parent.and_then(|parent_hash| self.store.prefetch_parent(parent_hash)),
        }
    }

    /// Third stage, with the entries here: the names that will be compared.
    #[inline(always)]
    fn prefetch_packets(&self, candidates: &Candidates) {
        let Candidates { pending, stored, parent } = *candidates;
        pending.inspect(|&index| self.pit.prefetch_name(index));
        stored.inspect(|&index| self.store.prefetch_packet(index));
        parent.inspect(|&node| self.store.prefetch_sibling(node));
    }

    /// The hashes that a packet needs, of whose name `head` is the head.
    #[inline(always)]
    fn hash_after<'a>(&mut self, head: &mut Head<'a>, parsed: &PacketView<'a>) -> NameHashes {
        let (key, has_disk) = (&self.config.hash_key, self.store.has_disk());
        let (name, len) = (parsed.name(), head.name.value().len());
        if !head.name.is_repeated() {
            self.heads += 1;
            let hashes = hash_name(key, parsed, has_disk);
            (head.hasher, head.hash) = (None, None);
            head.number = if len > 0 { self.heads } else { 0 };
            return hashes;
        }
        let hasher = head.hasher.get_or_insert_with(|| {
            let mut hasher = key.prefixes(head.name.value());
            hasher.pass_to(len);
            hasher
        });
        let wants_parent = matches!(parsed, PacketView::Data(_)) || has_disk;
        let parent = match wants_parent {
            true => Some(*head.hash.get_or_insert_with(|| hasher.clone().hash_to(len))),
            false => None,
        };
        let whole = hasher.resume(name.value()).hash_to(name.value().len());
        NameHashes { whole, parent, grandparent: None }
    }

    #[inline(always)]
    pub(crate) fn arrival<'a>(
        &self,
        received: ReceivedPacket<'a>,
        parsed: &PacketView<'a>,
    ) -> Arrival<'a> {
        let hashes = hash_name(&self.config.hash_key, parsed, self.store.has_disk());
        Arrival { received, parsed: *parsed, hashes }
    }

    #[cold]
    pub(crate) fn note_malformed(&mut self, error: &DecodeError) {
        self.stats.drop_packet(DropReason::Malformed);
        *self.stats.malformed.entry(error.reason()).or_default() += 1;
    }

    /// A packet that does not take the usual way here.
    #[cold]
    #[inline(never)]
    pub(crate) fn process_apart(&mut self, now: Instant, arrival: &Arrival<'_>, out: &mut Outbox) {
        self.process(now, arrival, out);
    }

    #[inline(always)]
    fn process(&mut self, now: Instant, arrival: &Arrival<'_>, out: &mut Outbox) {
        let Arrival { received, hashes, .. } = arrival;
        match &arrival.parsed {
            PacketView::Interest(interest) => match received.header.nack {
                None => {
                    self.stats.in_interests += 1;
                    self.on_interest(now, received, interest, hashes, out);
                }
                Some(reason) => self.on_nack(now, received, interest, reason, hashes, out),
            },
            PacketView::Data(data) => self.on_data(now, received, data, hashes, out),
        }
    }
}

/// Entries of other shards that one watches for: as many as they have, or as take an eighth of what
/// the PIT may take.
fn watches_max(config: &RouterConfig) -> usize {
    /// A watch with its place, timer and share of the table.
    const WATCH_BYTES: u64 = 80;
    let others = usize::from(config.shard_count) - 1;
    let affordable = config.pit_bytes_max / 8 / WATCH_BYTES;
    others.saturating_mul(config.pit_entries_max).min(affordable as usize)
}

/// The hashes that a packet needs, in one pass over its name. The parent is asked for by Data,
/// which is stored below it, by Interests that end in an implicit digest, and by all Interests
/// where there is a disk tier, which also wants the grandparent of those that end in a digest.
#[inline(always)]
fn hash_name(key: &HashKey, packet: &PacketView<'_>, has_disk: bool) -> NameHashes {
    let name = packet.name();
    let mut hasher = key.prefixes(name.value());
    let (mut grandparent_len, mut parent_len) = (0, 0);
    match packet {
        PacketView::Data(data) => parent_len = data.parent_len,
        PacketView::Interest(_) => {
            let has_digest = seems_to_end_in_digest(name);
            if has_digest || has_disk {
                let parent = name.parent();
                parent_len = parent.value().len();
                if has_digest && has_disk {
                    grandparent_len = parent.parent().value().len();
                }
            }
        }
    }
    let mut hash_to = |len: usize| (len > 0).then(|| hasher.hash_to(len));
    let (grandparent, parent) = (hash_to(grandparent_len), hash_to(parent_len));
    NameHashes { whole: hasher.hash_to(name.value().len()), parent, grandparent }
}

/// Octets that look like a digest but belong to a longer component cost one hash too many.
#[inline]
fn seems_to_end_in_digest(name: NameView<'_>) -> bool {
    const DIGEST_HEADER: [u8; 2] = [tlv::IMPLICIT_SHA256_DIGEST_COMPONENT as u8, 32];
    name.value().split_last_chunk::<34>().is_some_and(|(_, last)| last.starts_with(&DIGEST_HEADER))
}
