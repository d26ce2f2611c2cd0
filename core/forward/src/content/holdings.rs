//! The index of stored segments: its commands, and its construction in steps.

use weir_base::Instant;

use crate::content::Content;
use crate::store_commands::{StoreCommand, StoreEvent};

/// Data packets that one batch adds to the index while it is built.
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

    /// Continues to build the index until it is complete.
    #[inline]
    pub(crate) fn build_holdings(&mut self) {
        if self.building_since.is_some() && !self.store.build_holdings(BUILD_STEPS) {
            self.building_since = None;
        }
    }
}
