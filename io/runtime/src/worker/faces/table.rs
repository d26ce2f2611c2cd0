//! Faces in slots that never move, indexed by identifier.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use weir_base::{FaceId, Slab};

use crate::face::{Face, FaceIdHasher};

/// The faces that one worker thread owns.
#[derive(Debug, Default)]
pub(in crate::worker) struct FaceTable {
    slots: Slab<Face>,
    by_id: HashMap<FaceId, u32, BuildHasherDefault<FaceIdHasher>>,
}

impl FaceTable {
    pub(super) fn insert(&mut self, face: Face) -> u32 {
        let id = face.id;
        let slot = self.slots.insert(face);
        let previous = self.by_id.insert(id, slot);
        assert!(previous.is_none(), "identifiers are never given twice");
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) -> Face {
        let face = self.slots.remove(slot);
        self.by_id.remove(&face.id);
        face
    }

    #[inline]
    pub(in crate::worker) fn slot_of(&self, id: FaceId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    pub(in crate::worker) fn get(&self, slot: u32) -> Option<&Face> {
        self.slots.get(slot)
    }

    #[inline]
    pub(super) fn at(&mut self, slot: u32) -> Option<&mut Face> {
        self.slots.get_mut(slot)
    }

    pub(in crate::worker) fn find_mut(&mut self, id: FaceId) -> Option<&mut Face> {
        self.at(self.slot_of(id)?)
    }

    pub(in crate::worker) fn iter(&self) -> impl Iterator<Item = (u32, &Face)> {
        self.slots.iter()
    }

    pub(in crate::worker) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Face> {
        self.slots.iter_mut().map(|(_, face)| face)
    }
}
