//! The store and the index of what it holds.

use super::Store;
use crate::disk::segment_at_end;
use crate::entry::Entry;
use crate::holdings::{
    Holding, HoldingChanges, Holdings, HoldingsConfig, HoldingsCursor, HoldingsPage, Tier,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use weir_wire::NameView;

/// The index of what memory holds, and what belongs to those of both tiers.
pub(super) struct Tracking {
    config: HoldingsConfig,
    memory: Holdings,
    /// The entries before this place are in the index.
    built_to: u32,
    is_memory_built: bool,
    is_disk_built: bool,
    is_watched: bool,
    sequence: u64,
    /// The generations of memory and disk when this one began.
    began: (u32, u32),
}

/// What an entry is known by here.
#[inline]
fn segment_of(entry: &Entry) -> Option<u64> {
    segment_at_end(entry.name_value())
}

fn object_name(entry: &Entry) -> Vec<u8> {
    let name = NameView::from_value(entry.name_value());
    name.map_or_else(|_| Vec::new(), |name| name.parent().value().to_vec())
}

impl Store {
    /// Begins to keep an index of the segments that are held, by object, of which
    /// [`Store::holdings`] tells. It is built by [`Store::build_holdings`], so that no single
    /// call takes long, and kept from then on. Nothing happens if this configuration is in force.
    /// The numbers of generations go on from those of an index before.
    pub fn track_holdings(&mut self, config: HoldingsConfig) {
        if self.tracking.as_ref().is_some_and(|tracking| tracking.config == config) {
            return;
        }
        self.tracking = Some(Box::new(Tracking {
            config,
            memory: Holdings::new(config),
            built_to: 0,
            is_memory_built: false,
            is_disk_built: false,
            is_watched: false,
            sequence: 0,
            began: (0, 0),
        }));
        self.track_disk(Some(config));
    }

    /// Gives the index up, and its memory.
    pub fn stop_tracking_holdings(&mut self) {
        self.tracking = None;
        self.track_disk(None);
    }

    /// Takes so many steps in the building of the index, from one Data to the next. Says whether
    /// there is more to do; never again once it was built, unless changes are told anew.
    pub fn build_holdings(&mut self, steps: u32) -> bool {
        let Some(tracking) = &mut self.tracking else { return false };
        if !tracking.is_memory_built {
            let to = tracking.built_to.saturating_add(steps).min(self.entries.places());
            for at in tracking.built_to..to {
                let Some(entry) = self.entries.get(at) else { continue };
                if let (Some(segment), Some(object)) =
                    (segment_of(entry), self.tree.hash(entry.node))
                {
                    tracking.memory.add(object, segment, || object_name(entry));
                }
            }
            tracking.built_to = to;
            tracking.is_memory_built = to == self.entries.places();
            return true;
        }
        if !tracking.is_disk_built {
            let is_built = self.build_disk_holdings(steps);
            if let Some(tracking) = &mut self.tracking {
                tracking.is_disk_built = is_built;
            }
            return !is_built;
        }
        false
    }

    /// Whether [`Store::build_holdings`] has more to do.
    pub fn has_holdings_to_build(&self) -> bool {
        let is_built = |tracking: &Tracking| tracking.is_memory_built && tracking.is_disk_built;
        self.tracking.as_ref().is_some_and(|tracking| !is_built(tracking))
    }

    /// Octets of memory that the index takes, beside the capacity of the store.
    pub(super) fn holdings_bytes(&self) -> u64 {
        let memory = self.tracking.as_ref().map_or(0, |tracking| tracking.memory.memory_bytes());
        memory + self.disk_holdings().map_or(0, Holdings::memory_bytes)
    }

    /// The segments that are held of objects whose names start with `prefix`, from a place on, of
    /// at most `visits_max` objects that are looked at. Nothing where no index is kept.
    ///
    /// What a disk has made room for is listed until the index of the disks has noticed, an eighth
    /// of the log later at most.
    pub fn holdings(
        &self,
        prefix: NameView<'_>,
        from: HoldingsCursor,
        visits_max: u32,
    ) -> Option<HoldingsPage> {
        let tracking = self.tracking.as_ref()?;
        let mut holdings = Vec::new();
        let next = match from.is_on_disk {
            false => {
                let list = &tracking.memory;
                list.list(Tier::Memory, prefix, from.object, visits_max, &mut holdings)
            }
            true => self.disk_holdings().and_then(|disk| {
                disk.list(Tier::Disk, prefix, from.object, visits_max, &mut holdings)
            }),
        };
        let next = match next {
            Some(object) => Some(HoldingsCursor { object, ..from }),
            None if !from.is_on_disk && self.disk_holdings().is_some() => {
                Some(HoldingsCursor { is_on_disk: true, object: 0 })
            }
            None => None,
        };
        Some(HoldingsPage { holdings, next, is_partial: self.is_listing_partial() })
    }

    /// The segments that are held of the object of this name, whose keyed hash is `hash`. Also
    /// finds what is on a disk since before a start.
    pub fn holdings_of(&self, object: NameView<'_>, hash: u64) -> Option<HoldingsPage> {
        let tracking = self.tracking.as_ref()?;
        let disk = self.disk_holdings().map(|disk| (Tier::Disk, disk));
        let holdings = [(Tier::Memory, &tracking.memory)].into_iter().chain(disk);
        let holdings = holdings.map(|(tier, holdings)| Holding {
            name: object.to_name(),
            tier,
            ranges: holdings.of(hash),
        });
        Some(HoldingsPage {
            holdings: holdings.filter(|holding| !holding.ranges.is_empty()).collect(),
            next: None,
            is_partial: self.is_listing_partial(),
        })
    }

    fn is_listing_partial(&self) -> bool {
        let Some(tracking) = &self.tracking else { return true };
        !tracking.is_memory_built
            || !tracking.is_disk_built
            || tracking.memory.is_partial()
            || self.disk_holdings().is_some_and(Holdings::is_partial)
    }

    /// From now on [`Store::take_changes`] tells all that is held anew, in a new generation. What
    /// the index had no room for is looked for by [`Store::build_holdings`], if an eighth of it is
    /// free.
    pub fn restart_changes(&mut self) {
        let Some(mut tracking) = self.tracking.take() else { return };
        tracking.is_watched = true;
        tracking.memory.begin_generation();
        if tracking.is_memory_built && tracking.memory.forget_missed() {
            (tracking.built_to, tracking.is_memory_built) = (0, false);
        }
        let mut disk = 0;
        if let Some(holdings) = self.disk_holdings_mut() {
            holdings.begin_generation();
            disk = holdings.generation();
            if tracking.is_disk_built && holdings.forget_missed() {
                tracking.is_disk_built = false;
                self.restart_disk_holdings();
            }
        }
        tracking.began = (tracking.memory.generation(), disk);
        self.generation += 1;
        tracking.sequence = 0;
        self.tracking = Some(tracking);
    }

    /// Nobody asks for changes any more: none are kept.
    pub fn stop_changes(&mut self) {
        if let Some(tracking) = &mut self.tracking {
            tracking.is_watched = false;
            tracking.memory.stop_watching();
        }
        if let Some(holdings) = self.disk_holdings_mut() {
            holdings.stop_watching();
        }
    }

    /// What has changed since the last call, of at most `blocks_max` times 64 segments in each
    /// tier; nothing where no index is kept. The first call begins a generation. So does one after
    /// more was forgotten than the index has room for.
    pub fn take_changes(&mut self, blocks_max: usize) -> Option<HoldingChanges> {
        let tracking = self.tracking.as_ref()?;
        let disk = self.disk_holdings().map_or(0, Holdings::generation);
        if !tracking.is_watched || tracking.began != (tracking.memory.generation(), disk) {
            self.restart_changes();
        }
        let mut changes = Vec::new();
        let mut has_more = false;
        if let Some(holdings) = self.disk_holdings_mut() {
            has_more |= holdings.take_changes(Tier::Disk, blocks_max, &mut changes);
        }
        let tracking = self.tracking.as_mut()?;
        has_more |= tracking.memory.take_changes(Tier::Memory, blocks_max, &mut changes);
        tracking.sequence += 1;
        let (generation, sequence) = (self.generation, tracking.sequence);
        Some(HoldingChanges { generation, sequence, changes, has_more })
    }

    /// Data has come into memory.
    #[inline(always)]
    pub(super) fn track_entry(&mut self, index: u32) {
        if let Some(tracking) = &mut self.tracking {
            let entry = &self.entries[index];
            if let (Some(segment), Some(object)) = (segment_of(entry), self.tree.hash(entry.node)) {
                tracking.memory.add(object, segment, || object_name(entry));
            }
        }
    }

    /// Data leaves memory. Its node is still there.
    #[inline]
    pub(super) fn untrack_entry(&mut self, index: u32) {
        if let Some(tracking) = &mut self.tracking {
            let entry = &self.entries[index];
            if let (Some(segment), Some(object)) = (segment_of(entry), self.tree.hash(entry.node)) {
                tracking.memory.remove(object, segment);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn check_holdings(&self) {
        use alloc::collections::BTreeSet;
        let Some(tracking) = &self.tracking else { return };
        tracking.memory.check();
        if !tracking.is_memory_built || tracking.memory.is_partial() {
            return;
        }
        let held = self
            .entries
            .iter()
            .filter_map(|(_, entry)| Some((self.tree.hash(entry.node)?, segment_of(entry)?)));
        let held: BTreeSet<_> = held.collect();
        let objects: BTreeSet<_> = held.iter().map(|&(object, _)| object).collect();
        let listed: BTreeSet<_> = objects
            .into_iter()
            .flat_map(|object| {
                let ranges = tracking.memory.of(object);
                ranges.into_iter().flat_map(move |range| {
                    (range.first..=range.last).map(move |segment| (object, segment))
                })
            })
            .collect();
        assert_eq!(listed, held);
    }
}

#[cfg(test)]
mod tests;
