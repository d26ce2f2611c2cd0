//! The tables of one shard, and queries that they answer without the store.

use alloc::vec::Vec;

use weir_base::{HashKey, Instant, Rng};
use weir_wire::{DataView, InterestView, Name, NameView, tlv};

use crate::config::RouterConfig;
use crate::incoming::IncomingInterest;
use crate::strategy::Strategy;
use crate::strategy::choice::StrategyChoice;
use crate::table::closed_faces::ClosedFaceSweep;
use crate::table::dead_nonces::DeadNonceList;
use crate::table::faces::{Face, FaceTable};
use crate::table::fib::{DELEGATIONS_MAX, Fib};
use crate::table::measurements::Measurements;
use crate::table::pit::Pit;
use crate::table::prefixes::{PrefixHashes, hash_proper_prefixes};
use crate::table::refusals::RecentRefusals;

pub(crate) struct Tables {
    pub(crate) hash_key: HashKey,
    pub(crate) faces: FaceTable,
    pub(crate) pit: Pit,
    pub(crate) dead_nonces: DeadNonceList,
    pub(crate) fib: Fib,
    pub(crate) strategies: StrategyChoice,
    pub(crate) measurements: Measurements,
    pub(crate) producer_regions: Vec<Name>,
    /// Finds the PIT entries whose faces have all closed.
    pub(crate) closed_face_sweep: ClosedFaceSweep,
    /// Holders whose Interests a full PIT has refused within the last millisecond.
    pub(crate) refusals: RecentRefusals,
    pub(crate) rng: Rng,
    /// Scratch buffers.
    full_name: Vec<u8>,
    prefix_hashes: Vec<u64>,
}

impl Tables {
    pub(crate) fn new(now: Instant, config: &RouterConfig) -> Self {
        let is_sharded = config.shard_count > 1;
        Self {
            hash_key: config.hash_key,
            faces: FaceTable::new(),
            pit: Pit::new(now, config.pit_entries_max, config.pit_bytes_max, is_sharded),
            dead_nonces: DeadNonceList::new(config.dead_nonce_lifetime_ns, config.dead_nonces_max),
            fib: Fib::new(),
            strategies: StrategyChoice::new(&config.hash_key),
            measurements: Measurements::default(),
            producer_regions: Vec::new(),
            closed_face_sweep: ClosedFaceSweep::default(),
            refusals: RecentRefusals::default(),
            rng: Rng::from_seed(config.seed),
            full_name: Vec::new(),
            prefix_hashes: Vec::new(),
        }
    }

    /// Whether the sender of this Interest is a downstream of a PIT entry.
    #[inline]
    pub(crate) fn is_waiting(&self, entry: u32, incoming: &IncomingInterest<'_>) -> bool {
        let (downstream, face) = (incoming.received.downstream(), &incoming.face);
        let mut records = self.pit.entry(entry).downstreams();
        records.any(|record| record.is_of(&downstream, face.is_point_to_point()))
    }

    /// Whether an Interest loops: its nonce is on the dead nonce list, or the pending entry has
    /// another record with this nonce. The same nonce from the same point-to-point face is a
    /// retransmission.
    #[inline(always)]
    pub(crate) fn is_loop(&self, hash: u64, nonce: u32, pending: Option<u32>, face: &Face) -> bool {
        if self.dead_nonces.contains(hash, nonce) {
            return true;
        }
        let Some(index) = pending else { return false };
        let entry = self.pit.entry(index);
        let is_repeated = face.is_point_to_point()
            && entry.downstreams().any(|record| record.face == face.id() && record.nonce == nonce);
        !is_repeated
            && (entry.downstreams().any(|record| record.nonce == nonce)
                || entry.upstreams().any(|record| record.nonce == nonce))
    }

    /// Whether the forwarding hint of the Interest names this network. The Interest is then
    /// forwarded by its own name.
    pub(crate) fn is_in_producer_region(&self, interest: &InterestView<'_>) -> bool {
        let is_region = |delegation: &NameView<'_>| {
            self.producer_regions.iter().any(|region| delegation.is_prefix_of(region.as_view()))
        };
        !self.producer_regions.is_empty()
            && interest.forwarding_hint.iter().take(DELEGATIONS_MAX).any(|it| is_region(&it))
    }

    pub(crate) fn strategy(&self, name: NameView<'_>) -> &Strategy {
        let mut hashes = PrefixHashes::default();
        hashes.add(&self.hash_key, name, self.strategies.lengths());
        self.strategies.find(name, &hashes)
    }

    /// A number that identifies the longest FIB prefix of a name.
    pub(crate) fn prefix_number(&self, name: NameView<'_>) -> usize {
        let mut hashes = PrefixHashes::default();
        hashes.add(&self.hash_key, name, self.fib.lengths());
        self.fib.prefix_number(name, &hashes)
    }

    /// Records that the next hop `source` sent false Data of this name.
    pub(crate) fn distrust(&mut self, now: Instant, name: NameView<'_>, source: u32) {
        let key = &self.hash_key;
        let mut hashes = PrefixHashes::default();
        hashes.add(key, name, self.fib.lengths());
        self.fib.distrust(now, name, key, &hashes, source);
    }

    /// Appends the PIT entries that `data` matches by name. Freshness is not checked.
    #[inline(always)]
    pub(crate) fn find_pending(&mut self, data: &DataView<'_>, hash: u64, matched: &mut Vec<u32>) {
        self.pit.matches(data.name, hash, matched);
        if self.pit.has_prefixes() {
            self.prefix_hashes.clear();
            hash_proper_prefixes(&self.hash_key, data.name, &mut self.prefix_hashes);
            self.pit.matches_by_prefix(data.name, &self.prefix_hashes, matched);
        }
        if self.pit.wants_digest(data.name.component_count()) {
            self.find_by_digest(data, matched);
        }
    }

    #[inline(never)]
    fn find_by_digest(&mut self, data: &DataView<'_>, matched: &mut Vec<u32>) {
        let digest = data.implicit_digest();
        self.full_name.clear();
        self.full_name.extend_from_slice(data.name.value());
        self.full_name
            .extend_from_slice(&[tlv::IMPLICIT_SHA256_DIGEST_COMPONENT as u8, digest.len() as u8]);
        self.full_name.extend_from_slice(&digest);
        let hash = self.hash_key.hash(&self.full_name);
        let full_name = NameView::from_value(&self.full_name).expect("a name and one component");
        self.pit.matches(full_name, hash, matched);
    }

    /// The hashes of all proper prefixes of a name, shortest first.
    pub(crate) fn hash_prefixes(&mut self, name: NameView<'_>) -> &[u64] {
        self.prefix_hashes.clear();
        hash_proper_prefixes(&self.hash_key, name, &mut self.prefix_hashes);
        &self.prefix_hashes
    }
}
