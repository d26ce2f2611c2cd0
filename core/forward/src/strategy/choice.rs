//! The strategy choice table: the strategy of each name prefix.

use weir_base::HashKey;
use weir_wire::{Name, NameView};

use crate::strategy::Strategy;
use crate::table::prefixes::{PrefixHashes, PrefixTable};

/// Strategies by name prefix, with NFD's defaults.
pub(crate) struct StrategyChoice {
    by_prefix: PrefixTable<Strategy>,
    /// The strategy of names that no prefix covers.
    default: Strategy,
    /// Whether any of them learns routes.
    may_learn: bool,
}

impl StrategyChoice {
    pub(crate) fn new(key: &HashKey) -> Self {
        let (by_prefix, default) = (PrefixTable::new(), Strategy::best_route());
        let mut choice = Self { by_prefix, default, may_learn: false };
        let defaults = [
            ("/localhost", Strategy::multicast()),
            ("/localhost/nfd", Strategy::best_route()),
            ("/ndn/broadcast", Strategy::multicast()),
        ];
        for (prefix, strategy) in defaults {
            choice.set(prefix.parse().expect("a valid name"), Some(strategy), key);
        }
        choice
    }

    /// Sets the strategy of a prefix, or removes it.
    pub(crate) fn set(&mut self, prefix: Name, strategy: Option<Strategy>, key: &HashKey) {
        if let Some(strategy) = strategy {
            self.by_prefix.insert(prefix, strategy, key);
        } else {
            self.by_prefix.remove(prefix.as_view(), key);
        }
        let mut strategies = self.by_prefix.iter().map(|(_, strategy)| strategy);
        self.may_learn = strategies.any(Strategy::learns_routes)
            || self.by_prefix.root().is_some_and(Strategy::learns_routes);
    }

    /// Whether some Interests have a strategy that learns routes.
    pub(crate) fn may_learn(&self) -> bool {
        self.may_learn
    }

    /// Bit `n` is set if a lookup needs the hash of the first `n` components.
    #[inline]
    pub(crate) fn lengths(&self) -> u64 {
        self.by_prefix.lengths()
    }

    /// Like [`Self::lengths`], for a lookup of `name`. It is 0 for most names: few have a prefix
    /// with its own strategy, and most others are recognised without a hash.
    #[inline(always)]
    pub(crate) fn lengths_for(&self, name: NameView<'_>) -> u64 {
        if self.by_prefix.may_match(name) { self.by_prefix.lengths() } else { 0 }
    }

    /// The strategy of `name`; `hashes` must cover [`Self::lengths`].
    pub(crate) fn find(&self, name: NameView<'_>, hashes: &PrefixHashes) -> &Strategy {
        self.by_prefix.longest_match(name, hashes).unwrap_or(&self.default)
    }

    /// Like [`Self::find`], with the result of [`Self::lengths_for`].
    #[inline(always)]
    pub(crate) fn find_hashed(
        &self,
        name: NameView<'_>,
        hashes: &PrefixHashes,
        lengths: u64,
    ) -> &Strategy {
        let found = match lengths {
            0 => self.by_prefix.root(),
            _ => self.by_prefix.longest_match(name, hashes),
        };
        found.unwrap_or(&self.default)
    }

    /// Whether Interests under `prefix` may have a strategy that handles new next hops.
    pub(crate) fn may_want_new_next_hops(&self, prefix: NameView<'_>, key: &HashKey) -> bool {
        let mut hashes = PrefixHashes::default();
        hashes.add(key, prefix, self.lengths());
        self.find(prefix, &hashes).wants_new_next_hops()
            || self.by_prefix.iter().any(|(below, strategy)| {
                strategy.wants_new_next_hops() && prefix.is_prefix_of(below.as_view())
            })
    }
}
