//! Changes of a shard's tables.

use alloc::vec::Vec;

use weir_base::Instant;
use weir_store::UNKNOWN_SOURCE;
use weir_wire::{Name, NameView};

use crate::input::Command;
use crate::io::{Event, NextHop, Outbox};
use crate::router::Router;
use crate::shard::Message;
use crate::strategy::Strategy;
use crate::table::prefixes::PrefixHashes;

impl Router {
    pub(crate) fn set_default_strategies(&mut self) {
        let defaults = [
            ("/localhost", Strategy::multicast()),
            ("/localhost/nfd", Strategy::best_route()),
            ("/ndn/broadcast", Strategy::multicast()),
        ];
        for (prefix, strategy) in defaults {
            let prefix = prefix.parse().expect("a valid name");
            self.strategies.insert(prefix, strategy, &self.config.hash_key);
        }
    }

    pub(crate) fn apply(&mut self, now: Instant, command: Command, out: &mut Outbox) {
        match command {
            Command::AddFace { face, attributes } => self.faces.insert(face, attributes),
            Command::RemoveFace { face } => {
                self.faces.remove(face);
                self.orphans.begin(now, self.pit.places());
            }
            Command::SetNextHops { prefix, next_hops } => {
                self.set_next_hops(now, prefix, next_hops, out);
            }
            Command::SetStrategy { prefix, strategy } => self.set_strategy(prefix, strategy),
            Command::ConfigureStore(config) => self.store.configure(now, config),
            Command::EraseStore { transaction, prefix, limit } => {
                let erased = self.erase(now, prefix.as_view(), limit, out);
                let limit_reached = erased == limit;
                out.events.push(Event::StoreErased { transaction, erased, limit_reached });
            }
            Command::FlushStore { transaction } => self.flush_store(now, transaction, out),
            Command::SetProducerRegions(regions) => self.producer_regions = regions,
            Command::Store(command) => self.on_store_command(now, command, out),
            Command::WatchMisses(watches) => self.watches_misses = watches,
        }
    }

    /// Erases what lies below a prefix, or with an implicit digest the one copy that it names. Who
    /// names a copy has found it to be false: the next hop that it came from is distrusted.
    fn erase(
        &mut self,
        now: Instant,
        prefix: NameView<'_>,
        limit: usize,
        out: &mut Outbox,
    ) -> usize {
        let digest = prefix.last().filter(|last| last.is_implicit_digest());
        if let Some(digest) = digest {
            let name = prefix.parent();
            let hash = self.config.hash_key.hash(name.value());
            let Some(source) = self.store.erase_copy(name, hash, digest.value) else { return 0 };
            if source != UNKNOWN_SOURCE {
                self.distrust(now, name, source);
                let name = name.to_name();
                self.tell_others(|| Message::Distrust { name: name.clone(), source }, out);
            }
            return 1;
        }
        let hash = self.config.hash_key.hash(prefix.value());
        self.store.erase(prefix, hash, limit)
    }

    pub(crate) fn distrust(&mut self, now: Instant, name: NameView<'_>, source: u32) {
        let key = &self.config.hash_key;
        let mut hashes = PrefixHashes::default();
        hashes.add(key, name, self.fib.lengths());
        self.fib.distrust(now, name, (key, &hashes), source);
    }

    fn set_next_hops(
        &mut self,
        now: Instant,
        prefix: Name,
        next_hops: Vec<NextHop>,
        out: &mut Outbox,
    ) {
        let key = &self.config.hash_key;
        let new = self.fib.set(now, prefix.clone(), &next_hops, key, &mut self.measurements);
        if new.is_empty() || !self.may_want_new_next_hops(prefix.as_view()) {
            return;
        }
        for hop in new {
            self.offer_new_next_hop(now, &prefix, hop, out);
        }
    }

    /// Whether Interests under `prefix` can have a strategy that wants to know of new next hops.
    fn may_want_new_next_hops(&self, prefix: NameView<'_>) -> bool {
        let lengths = self.strategies.lengths();
        let mut hashes = PrefixHashes::default();
        hashes.add(&self.config.hash_key, prefix, lengths);
        self.strategies
            .longest_match(prefix, &hashes)
            .unwrap_or(&self.default_strategy)
            .wants_new_next_hops()
            || self.strategies.iter().any(|(below, strategy)| {
                strategy.wants_new_next_hops() && prefix.is_prefix_of(below.as_view())
            })
    }

    fn set_strategy(&mut self, prefix: Name, strategy: Option<Strategy>) {
        let key = &self.config.hash_key;
        match strategy {
            Some(strategy) => {
                self.strategies.insert(prefix, strategy, key);
            }
            None => {
                self.strategies.remove(prefix.as_view(), key);
            }
        }
    }
}
