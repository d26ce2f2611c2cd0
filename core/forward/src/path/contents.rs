//! What the store holds, told to those who ask, and what they say it is to hold.

use weir_base::Instant;

use crate::contents::{StoreCommand, StoreEvent};
use crate::io::{Event, Outbox};
use crate::router::Router;

/// Data that a batch looks at while the index of the store's contents is built.
const BUILD_STEPS: u32 = 256;

impl Router {
    pub(crate) fn on_store_command(
        &mut self,
        now: Instant,
        command: StoreCommand,
        out: &mut Outbox,
    ) {
        let key = &self.config.hash_key;
        let event = match command {
            StoreCommand::Track(config) => {
                match config {
                    Some(config) => self.store.track_holdings(config),
                    None => self.store.stop_tracking_holdings(),
                }
                self.building_since = Some(now);
                return;
            }
            StoreCommand::RestartChanges => {
                self.store.restart_changes();
                self.go_on_building(now);
                return;
            }
            StoreCommand::StopChanges => return self.store.stop_changes(),
            StoreCommand::List { transaction, prefix, from, visits_max } => {
                let page = self.store.holdings(prefix.as_view(), from, visits_max);
                StoreEvent::Listed { transaction, page }
            }
            StoreCommand::ListOne { transaction, object } => {
                let hash = key.hash(object.value());
                let page = self.store.holdings_of(object.as_view(), hash);
                StoreEvent::Listed { transaction, page }
            }
            StoreCommand::TakeChanges { transaction, blocks_max } => {
                let changes = self.store.take_changes(blocks_max);
                self.go_on_building(now);
                StoreEvent::Changed { transaction, changes }
            }
            StoreCommand::SetRules { transaction, rules } => {
                let refused = self.store.set_rules(rules, |prefix| key.hash(prefix.value())).err();
                StoreEvent::RulesSet { transaction, refused }
            }
        };
        out.events.push(Event::Store(event));
    }

    /// What begins anew may look for what the index had no room for before.
    fn go_on_building(&mut self, now: Instant) {
        if self.building_since.is_none() && self.store.has_holdings_to_build() {
            self.building_since = Some(now);
        }
    }

    /// Goes on building the index of the store's contents, if there is one to be built.
    #[inline]
    pub(crate) fn build_holdings(&mut self) {
        if self.building_since.is_some() && !self.store.build_holdings(BUILD_STEPS) {
            self.building_since = None;
        }
    }
}
