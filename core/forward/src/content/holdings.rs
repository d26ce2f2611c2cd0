//! Commands about the contents of the store, and their work that takes many steps.

use weir_base::Instant;

use crate::content::Content;
use crate::store_commands::{StoreCommand, StoreEvent};

/// Data packets that one batch adds to the index while it is built, and nodes of the prefix tree
/// that it assigns to counted prefixes.
const BUILD_STEPS: u32 = 256;

impl Content {
    /// Runs a command. Returns its answer, if it has one.
    pub(crate) fn on_command(&mut self, now: Instant, command: StoreCommand) -> Option<StoreEvent> {
        let key = &self.hash_key;
        match command {
            StoreCommand::Track(config) => {
                match config {
                    Some(config) => self.store.track_holdings(config),
                    None => self.store.stop_tracking_holdings(),
                }
                self.building_since = Some(now);
                None
            }
            StoreCommand::RestartChanges => {
                self.store.restart_changes();
                self.resume_building(now);
                None
            }
            StoreCommand::StopChanges => {
                self.store.stop_changes();
                None
            }
            StoreCommand::List { transaction, prefix, from, objects_max: visits_max } => {
                let page = self.store.holdings(prefix.as_view(), from, visits_max);
                Some(StoreEvent::Listed { transaction, page })
            }
            StoreCommand::ListObject { transaction, object } => {
                let hash = key.hash(object.value());
                let page = self.store.holdings_of(object.as_view(), hash);
                Some(StoreEvent::Listed { transaction, page })
            }
            StoreCommand::ListObjects { transaction, prefix, from, visits_max } => {
                let page = self.store.objects(prefix.as_view(), from, visits_max);
                Some(StoreEvent::Objects { transaction, page })
            }
            StoreCommand::EvictFirst { transaction, prefix, from, visits_max } => {
                let hash = key.hash(prefix.value());
                let batch = self.store.evict_first(prefix.as_view(), hash, from, visits_max);
                Some(StoreEvent::Marked { transaction, batch })
            }
            StoreCommand::TakeChanges { transaction, blocks_max } => {
                let changes = self.store.take_changes(blocks_max);
                self.resume_building(now);
                Some(StoreEvent::Changed { transaction, changes })
            }
            StoreCommand::CountPrefixes(prefixes) => {
                self.store.count_prefixes(prefixes, |prefix| key.hash(prefix.value()));
                self.building_since = Some(now);
                None
            }
            StoreCommand::SetRules { transaction, rules } => {
                let refused = self.store.set_rules(rules, |prefix| key.hash(prefix.value())).err();
                Some(StoreEvent::RulesSet { transaction, refused })
            }
        }
    }

    /// Resumes building the index for objects that had no room before.
    fn resume_building(&mut self, now: Instant) {
        if self.building_since.is_none() && self.store.has_holdings_to_build() {
            self.building_since = Some(now);
        }
    }

    /// Continues to build the index, and to assign Data to counted prefixes, until both is done.
    #[inline]
    pub(crate) fn continue_building(&mut self) {
        if self.building_since.is_some() {
            let has_more = self.store.build_holdings(BUILD_STEPS);
            if !self.store.classify(BUILD_STEPS) && !has_more {
                self.building_since = None;
            }
        }
    }
}
