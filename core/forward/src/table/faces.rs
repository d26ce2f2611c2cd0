//! Faces as a shard knows them.

use weir_base::{FaceId, Slab, Table};

use crate::io::{FaceScope, LinkType};

/// What a shard knows of a face.
#[derive(Clone, Copy)]
pub(crate) struct Face {
    id: FaceId,
    scope: FaceScope,
    link_type: LinkType,
    /// Its place in the table, until it is removed.
    slot: u32,
    /// PIT entries that it waits for.
    waits_for: u32,
}

impl Face {
    pub(crate) fn id(&self) -> FaceId {
        self.id
    }

    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    pub(crate) fn waits_for(&self) -> usize {
        self.waits_for as usize
    }

    pub(crate) fn is_local(&self) -> bool {
        self.scope == FaceScope::Local
    }

    pub(crate) fn is_ad_hoc(&self) -> bool {
        self.link_type == LinkType::AdHoc
    }

    pub(crate) fn is_point_to_point(&self) -> bool {
        self.link_type == LinkType::PointToPoint
    }
}

/// Faces by identifier.
pub(crate) struct FaceTable {
    table: Table,
    faces: Slab<Face>,
}

impl FaceTable {
    pub(crate) fn new() -> Self {
        Self { table: Table::with_capacity(64), faces: Slab::new() }
    }

    /// Identifiers are ours and dense: spreading them is enough.
    fn hash(id: FaceId) -> u64 {
        id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    #[inline]
    fn index(&self, id: FaceId) -> Option<u32> {
        self.table.find(Self::hash(id), |index| self.faces[index].id == id)
    }

    #[inline]
    pub(crate) fn find(&self, id: FaceId) -> Option<Face> {
        self.index(id).map(|index| self.faces[index])
    }

    pub(crate) fn insert(&mut self, id: FaceId, scope: FaceScope, link_type: LinkType) {
        match self.index(id) {
            Some(index) => {
                self.faces[index].scope = scope;
                self.faces[index].link_type = link_type;
            }
            None => {
                let face = Face { id, scope, link_type, slot: 0, waits_for: 0 };
                let slot = self.faces.insert(face);
                self.faces[slot].slot = slot;
                self.table.insert(Self::hash(id), slot);
            }
        }
    }

    /// The face waits for one more PIT entry.
    pub(crate) fn begin_wait(&mut self, slot: u32) {
        self.faces[slot].waits_for += 1;
    }

    /// The face in `slot`, if it is still `id`, waits for one less.
    pub(crate) fn end_wait(&mut self, slot: u32, id: FaceId) {
        if let Some(face) = self.faces.get_mut(slot).filter(|face| face.id == id) {
            face.waits_for -= 1;
        }
    }

    pub(crate) fn remove(&mut self, id: FaceId) {
        if let Some(index) = self.index(id) {
            self.table.remove(Self::hash(id), index);
            self.faces.remove(index);
        }
    }
}
