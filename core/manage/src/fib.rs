//! The manager's copy of the FIB.

use alloc::collections::{BTreeMap, BTreeSet, btree_map};
use alloc::vec::Vec;

use weir_base::FaceId;
use weir_wire::Name;

use crate::io::Action;
use crate::status::{FibEntry, NextHopRecord};

/// Next hops by prefix, as every shard of the router has them. Both the RIB and the fib commands
/// write to it, and the last one to speak of a prefix and face is right, as in NFD.
#[derive(Clone, Debug, Default)]
pub struct Fib {
    entries: BTreeMap<Name, BTreeMap<FaceId, u64>>,
    changed: BTreeSet<Name>,
}

impl Fib {
    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no prefixes.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether a prefix has next hops.
    pub fn contains(&self, prefix: &Name) -> bool {
        self.entries.contains_key(prefix)
    }

    /// Adds a next hop, or changes its cost.
    pub fn add(&mut self, prefix: &Name, face: FaceId, cost: u64) {
        let old = self.entries.entry(prefix.clone()).or_default().insert(face, cost);
        if old != Some(cost) {
            self.changed.insert(prefix.clone());
        }
    }

    /// Removes a next hop if it is there.
    pub fn remove(&mut self, prefix: &Name, face: FaceId) {
        let btree_map::Entry::Occupied(mut entry) = self.entries.entry(prefix.clone()) else {
            return;
        };
        if entry.get_mut().remove(&face).is_some() {
            self.changed.insert(prefix.clone());
            if entry.get().is_empty() {
                entry.remove();
            }
        }
    }

    /// Removes a face that is gone from every prefix.
    pub fn remove_face(&mut self, face: FaceId) {
        let changed = &mut self.changed;
        self.entries.retain(|prefix, next_hops| {
            if next_hops.remove(&face).is_some() {
                changed.insert(prefix.clone());
            }
            !next_hops.is_empty()
        });
    }

    /// Appends an action for every prefix that changed since the last call.
    pub fn flush(&mut self, actions: &mut Vec<Action>) {
        for prefix in core::mem::take(&mut self.changed) {
            let next_hops = self.entries.get(&prefix).map(records).unwrap_or_default();
            actions.push(Action::SetNextHops { prefix, next_hops });
        }
    }

    /// The items of fib/list, in canonical order.
    pub fn items(&self) -> impl Iterator<Item = FibEntry> {
        self.entries
            .iter()
            .map(|(name, next_hops)| FibEntry { name: name.clone(), next_hops: records(next_hops) })
    }
}

fn records(next_hops: &BTreeMap<FaceId, u64>) -> Vec<NextHopRecord> {
    next_hops.iter().map(|(face, cost)| NextHopRecord { face_id: *face, cost: *cost }).collect()
}
