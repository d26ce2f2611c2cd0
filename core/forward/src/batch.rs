//! Parses and hashes a batch of packets, and prefetches the memory that they will touch.
//!
//! A lookup touches three cache lines that depend on each other: the hash table, the entry, and the
//! packet whose name is compared. Each line is prefetched for the whole batch before any packet
//! needs it.

use arrayvec::ArrayVec;
use weir_base::{HashKey, PrefixHasher};
use weir_store::NameHashes;
use weir_wire::{DecodeError, NameHead, NameView, PacketView, tlv};

use crate::incoming::{Arrival, BATCH, ReceivedPacket};
use crate::input::Input;
use crate::router::Router;
use crate::stats::DropReason;

/// The name of the previous packet without its last component, and its hashes. The next name often
/// has the same prefix.
struct NameHeadCache<'a> {
    name: NameHead<'a>,
    /// A hasher that has absorbed the prefix. It is created when a second packet has the same
    /// prefix.
    hasher: Option<PrefixHasher<'a>>,
    /// The hash of the whole prefix, once it was needed.
    hash: Option<u64>,
    /// See [`ReceivedPacket::prefix_run`].
    prefix_run: u64,
}

/// The table entries that the name of a packet most likely leads to.
#[derive(Clone, Copy, Default)]
struct PrefetchTargets {
    pending: Option<u32>,
    stored: Option<u32>,
    /// The store's node for the parent name, under which new Data is stored.
    parent: Option<u32>,
}

impl Router {
    /// Parses and hashes the packets of a batch, and prefetches everything that they will touch.
    /// Drops malformed packets.
    #[inline(always)]
    pub(crate) fn parse_batch<'a>(
        &mut self,
        batch: &'a [Input],
        arrivals: &mut ArrayVec<Arrival<'a>, BATCH>,
    ) {
        let mut head =
            NameHeadCache { name: NameHead::NONE, hasher: None, hash: None, prefix_run: 0 };
        for input in batch {
            let Input::Packet { face, header, packet } = input else { continue };
            match &PacketView::decode_after(packet, &mut head.name) {
                Ok(parsed) if parsed.name().component_count() > self.config.name_components_max => {
                    self.egress.drop_packet(DropReason::LongName);
                    // The next name must not be compared with a dropped one.
                    head.name = NameHead::NONE;
                }
                Ok(parsed) => {
                    let hashes = self.hash_after(&mut head, parsed);
                    let mut received = ReceivedPacket::new(*face, header, packet);
                    received.prefix_run = head.prefix_run;
                    arrivals.push(Arrival { received, parsed: *parsed, hashes });
                }
                Err(error) => {
                    self.count_malformed(error);
                    head.name = NameHead::NONE;
                }
            }
            if let Some(arrival) = arrivals.last() {
                self.prefetch_tables(arrival);
            }
        }
        // By now, the first lines of the hash tables have arrived.
        let mut candidates = ArrayVec::<PrefetchTargets, BATCH>::new();
        candidates.extend(arrivals.iter().map(|arrival| self.prefetch_entries(arrival)));
        for candidates in &candidates {
            self.prefetch_packets(candidates);
        }
    }

    /// Stage 1 prefetches the lines of the hash tables.
    fn prefetch_tables(&self, arrival: &Arrival<'_>) {
        let hash = arrival.hashes.whole;
        self.tables.pit.prefetch_table(hash);
        self.content.store.prefetch_table(hash);
        match &arrival.parsed {
            PacketView::Interest(interest) => {
                self.content.store.prefetch_filter(interest.name, &arrival.hashes);
                if let Some(nonce) = interest.nonce {
                    self.tables.dead_nonces.prefetch(hash, nonce);
                }
            }
            PacketView::Data(_) => {
                if let Some(parent_hash) = arrival.hashes.parent {
                    self.content.store.prefetch_parent_table(hash, parent_hash);
                }
            }
        }
    }

    /// Stage 2 prefetches the entries. Their hash table lines have arrived by now.
    #[inline(always)]
    fn prefetch_entries(&self, arrival: &Arrival<'_>) -> PrefetchTargets {
        let NameHashes { whole, parent, .. } = arrival.hashes;
        let parent = parent.filter(|_| matches!(arrival.parsed, PacketView::Data(_)));
        PrefetchTargets {
            pending: self.tables.pit.prefetch_entry(whole),
            stored: self.content.store.prefetch_entry(whole),
            parent: parent.and_then(|parent_hash| self.content.store.prefetch_parent(parent_hash)),
        }
    }

    /// Stage 3 prefetches the names that will be compared. Their entries have arrived by now.
    #[inline(always)]
    fn prefetch_packets(&self, candidates: &PrefetchTargets) {
        let PrefetchTargets { pending, stored, parent } = *candidates;
        pending.inspect(|&index| self.tables.pit.prefetch_name(index));
        stored.inspect(|&index| self.content.store.prefetch_packet(index));
        parent.inspect(|&node| self.content.store.prefetch_sibling(node));
    }

    /// Computes the hashes that a packet needs. Reuses the hash of the prefix if the previous name
    /// had the same prefix.
    #[inline(always)]
    fn hash_after<'a>(
        &mut self,
        head: &mut NameHeadCache<'a>,
        parsed: &PacketView<'a>,
    ) -> NameHashes {
        let (key, has_disk) = (&self.tables.hash_key, self.content.store.has_disk());
        let (name, len) = (parsed.name(), head.name.value().len());
        if !head.name.is_repeated() {
            self.prefix_runs += 1;
            let hashes = hash_name(key, parsed, has_disk);
            (head.hasher, head.hash) = (None, None);
            head.prefix_run = if len > 0 { self.prefix_runs } else { 0 };
            return hashes;
        }
        let hasher = head.hasher.get_or_insert_with(|| {
            let mut hasher = key.prefixes(head.name.value());
            hasher.absorb_to(len);
            hasher
        });
        let wants_parent = matches!(parsed, PacketView::Data(_)) || has_disk;
        let parent = match wants_parent {
            true => Some(*head.hash.get_or_insert_with(|| hasher.clone().hash_to(len))),
            false => None,
        };
        // Only the last component must be hashed.
        let whole = hasher.resume(name.value()).hash_to(name.value().len());
        NameHashes { whole, parent, grandparent: None }
    }

    #[inline(always)]
    pub(crate) fn arrival<'a>(
        &self,
        received: ReceivedPacket<'a>,
        parsed: &PacketView<'a>,
    ) -> Arrival<'a> {
        let hashes = hash_name(&self.tables.hash_key, parsed, self.content.store.has_disk());
        Arrival { received, parsed: *parsed, hashes }
    }

    /// [`hash_name`] out of line. The usual path is [`Router::arrival`].
    #[inline(never)]
    pub(crate) fn hash_name(&self, packet: &PacketView<'_>) -> NameHashes {
        hash_name(&self.tables.hash_key, packet, self.content.store.has_disk())
    }

    #[cold]
    pub(crate) fn count_malformed(&mut self, error: &DecodeError) {
        self.egress.drop_packet(DropReason::Malformed);
        *self.egress.stats.malformed.entry(error.reason()).or_default() += 1;
    }
}

/// The hashes that a packet needs, in one pass over its name.
///
/// - Data needs its parent's hash, because it is stored below its parent.
/// - An Interest that ends in an implicit digest needs the hash of its parent, which is the name of
///   its Data.
/// - With a disk tier, all Interests need the parent, and those with a digest also the grandparent.
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

/// Whether a name seems to end in an implicit digest. A longer component may end in the same bytes.
/// That costs one unneeded hash and changes no result.
#[inline]
fn seems_to_end_in_digest(name: NameView<'_>) -> bool {
    const DIGEST_HEADER: [u8; 2] = [tlv::IMPLICIT_SHA256_DIGEST_COMPONENT as u8, 32];
    name.value().split_last_chunk::<34>().is_some_and(|(_, last)| last.starts_with(&DIGEST_HEADER))
}
