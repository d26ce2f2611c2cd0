//! Commands that change a shard's tables and its store.

use alloc::vec::Vec;

use weir_store::UNKNOWN_SOURCE;
use weir_wire::{Name, NameView};

use crate::input::Command;
use crate::io::{Event, NextHop};
use crate::router::Router;
use crate::shard::Message;

impl Router {
    pub(crate) fn apply(&mut self, command: Command) {
        let tables = &mut self.tables;
        match command {
            Command::AddFace { face, attributes } => tables.faces.insert(face, attributes),
            Command::RemoveFace { face } => {
                tables.faces.remove(face);
                // Entries that waited only for this face end in small steps, not all in this turn.
                tables.closed_face_sweep.begin(self.now, tables.pit.slots());
            }
            Command::SetNextHops { prefix, next_hops } => self.set_next_hops(prefix, next_hops),
            Command::SetStrategy { prefix, strategy } => {
                let name = prefix.as_view();
                let before = tables.strategy(name).kind();
                tables.strategies.set(prefix.clone(), strategy, &tables.hash_key);
                if tables.strategy(name).kind() != before {
                    // The state of one strategy means something else to another.
                    for index in tables.fib.measurements_around(name) {
                        if let Some(measured) = tables.measurements.find_mut(index) {
                            measured.reset_strategy();
                        }
                    }
                }
            }
            Command::SetAnnouncement { prefix, announcement } => {
                self.set_announcement(prefix, announcement);
            }
            Command::ConfigureStore(config) => self.content.store.configure(self.now, config),
            Command::EraseStore { transaction, prefix, limit } => {
                let erased = self.erase(prefix.as_view(), limit);
                let limit_reached = erased == limit;
                self.egress.push_event(Event::StoreErased { transaction, erased, limit_reached });
            }
            Command::FlushStore { transaction } => {
                if self.content.store.flush(self.now) {
                    self.content.disk.flushes.push(transaction);
                } else {
                    self.egress.push_event(Event::StoreFlushed { transaction });
                }
            }
            Command::SetProducerRegions(regions) => tables.producer_regions = regions,
            Command::Store(command) => {
                if let Some(answer) = self.content.on_command(self.now, command) {
                    self.egress.push_event(Event::Store(answer));
                }
            }
            Command::ReportMisses(watch) => self.content.reported_misses = watch,
        }
    }

    /// Erases everything under a prefix, or the one copy that an implicit digest names. A consumer
    /// erases a copy by its digest after it has found the copy to be false. The router then
    /// distrusts the next hop that sent it.
    fn erase(&mut self, prefix: NameView<'_>, limit: usize) -> usize {
        let key = &self.tables.hash_key;
        let Some(digest) = prefix.last().filter(|last| last.is_implicit_digest()) else {
            let hash = key.hash(prefix.value());
            return self.content.store.erase(prefix, hash, limit);
        };
        let name = prefix.parent();
        let hash = key.hash(name.value());
        let Some(source) = self.content.store.erase_copy(name, hash, digest.value) else {
            return 0;
        };
        if source != UNKNOWN_SOURCE {
            self.tables.distrust(self.now, name, source);
            let name = name.to_name();
            let distrust = || Message::Distrust { name: name.clone(), source };
            self.egress.send_to_other_shards(distrust);
        }
        1
    }

    fn set_next_hops(&mut self, prefix: Name, next_hops: Vec<NextHop>) {
        self.announcements.forget(&prefix);
        let tables = &mut self.tables;
        let (key, measurements) = (&tables.hash_key, &mut tables.measurements);
        let new = tables.fib.set(self.now, prefix.clone(), &next_hops, key, measurements);
        let prefix = prefix.as_view();
        if new.is_empty() || !tables.strategies.may_want_new_next_hops(prefix, key) {
            return;
        }
        for hop in new {
            self.offer_new_next_hop(prefix, hop);
        }
    }
}
