//! The manager's copy of the FIB.

use alloc::collections::{BTreeMap, BTreeSet, btree_map};
use alloc::vec::Vec;

use weir_base::FaceId;
use weir_wire::Name;

use crate::io::Action;
use crate::status::{FibEntry, NextHopRecord};

/// The next hops of each prefix, as in every shard of the router. The RIB and the fib commands both
/// write to it. As in NFD, the last write for a prefix and a face wins.
#[derive(Clone, Debug, Default)]
pub struct Fib {
    entries: BTreeMap<Name, BTreeMap<FaceId, u64>>,
    /// The prefixes of each face. Remote faces open and close often, and the table may be large.
    faces: BTreeMap<FaceId, BTreeSet<Name>>,
    changed: BTreeSet<Name>,
}

impl Fib {
    /// Number of prefixes.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether a prefix has next hops.
    pub(crate) fn contains(&self, prefix: &Name) -> bool {
        self.entries.contains_key(prefix)
    }

    /// Adds a next hop, or changes its cost.
    pub(crate) fn add(&mut self, prefix: &Name, face: FaceId, cost: u64) {
        let old = self.entries.entry(prefix.clone()).or_default().insert(face, cost);
        if old.is_none() {
            self.faces.entry(face).or_default().insert(prefix.clone());
        }
        if old != Some(cost) {
            self.changed.insert(prefix.clone());
        }
    }

    /// Removes a next hop, if it exists.
    pub(crate) fn remove(&mut self, prefix: &Name, face: FaceId) {
        let btree_map::Entry::Occupied(mut prefixes) = self.faces.entry(face) else { return };
        if prefixes.get_mut().remove(prefix) {
            if prefixes.get().is_empty() {
                prefixes.remove();
            }
            self.remove_from_entry(prefix, face);
        }
    }

    /// Removes a closed face from every prefix.
    pub(crate) fn remove_face(&mut self, face: FaceId) {
        for prefix in self.faces.remove(&face).unwrap_or_default() {
            self.remove_from_entry(&prefix, face);
        }
    }

    fn remove_from_entry(&mut self, prefix: &Name, face: FaceId) {
        if let Some(next_hops) = self.entries.get_mut(prefix) {
            next_hops.remove(&face);
            if next_hops.is_empty() {
                self.entries.remove(prefix);
            }
        }
        self.changed.insert(prefix.clone());
    }

    /// Appends an action for every prefix that has changed since the last call.
    pub(crate) fn flush(&mut self, actions: &mut Vec<Action>) {
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

/// The next hops, the lowest cost first, as NFD lists them.
fn records(next_hops: &BTreeMap<FaceId, u64>) -> Vec<NextHopRecord> {
    let mut records: Vec<NextHopRecord> = next_hops
        .iter()
        .map(|(face, cost)| NextHopRecord { face_id: *face, cost: *cost })
        .collect();
    // Stable: equal costs stay in the order of faces.
    records.sort_by_key(|record| record.cost);
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_the_lowest_cost_first() {
        let prefix: Name = "/a".parse().unwrap();
        let mut fib = Fib::default();
        for (face, cost) in [(300, 20), (301, 5), (302, 20), (303, 0)] {
            fib.add(&prefix, FaceId(face), cost);
        }
        let entry = fib.items().next().unwrap();
        let listed: Vec<(u64, u64)> =
            entry.next_hops.iter().map(|hop| (hop.face_id.0, hop.cost)).collect();
        assert_eq!(listed, [(303, 0), (301, 5), (300, 20), (302, 20)]);
    }

    #[test]
    fn closed_face_loses_only_its_next_hops() {
        let [a, b]: [Name; 2] = ["/a", "/b"].map(|uri| uri.parse().unwrap());
        let (one, other) = (FaceId(300), FaceId(301));
        let mut fib = Fib::default();
        for (prefix, face) in [(&a, one), (&a, other), (&b, one)] {
            fib.add(prefix, face, 1);
            fib.add(prefix, face, 2);
        }
        fib.remove(&a, FaceId(302));
        fib.flush(&mut Vec::new());
        fib.remove_face(one);
        let mut actions = Vec::new();
        fib.flush(&mut actions);
        let left = alloc::vec![NextHopRecord { face_id: other, cost: 2 }];
        let expected = [(a.clone(), left), (b, Vec::new())];
        let expected =
            expected.map(|(prefix, next_hops)| Action::SetNextHops { prefix, next_hops });
        assert_eq!(actions, expected);
        fib.remove(&a, other);
        assert!(fib.entries.is_empty() && fib.faces.is_empty());
    }
}
