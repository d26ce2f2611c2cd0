//! The face table of a shard.

use weir_base::{FaceId, Slab, Table};

use crate::endpoints::TokenCarrier;
use crate::io::{FaceAttributes, FaceScope, LinkType, PitTokens};

/// The part of a face that nearly every packet needs.
#[derive(Clone, Copy)]
pub(crate) struct Face {
    id: FaceId,
    scope: FaceScope,
    link_type: LinkType,
    tokens: PitTokens,
    /// The slot of the face in the table, until the face is removed.
    slot: u32,
    /// Number of PIT entries that the face waits for.
    pending: u32,
}

impl Face {
    pub(crate) fn id(&self) -> FaceId {
        self.id
    }

    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    pub(crate) fn pending_count(&self) -> usize {
        self.pending as usize
    }

    pub(crate) fn is_local(&self) -> bool {
        self.scope == FaceScope::Local
    }

    pub(crate) fn tokens(&self) -> PitTokens {
        self.tokens
    }

    /// Whether Data from the face must carry the secret token of its Interest.
    pub(crate) fn has_secret_tokens(&self) -> bool {
        self.tokens.are_secret()
    }

    pub(crate) fn is_ad_hoc(&self) -> bool {
        self.link_type == LinkType::AdHoc
    }

    pub(crate) fn is_point_to_point(&self) -> bool {
        self.link_type == LinkType::PointToPoint
    }
}

/// A face with its rarely used fields.
struct FaceEntry {
    face: Face,
    /// A number that all faces of one host share.
    host: u64,
    /// Whether the peer has returned PIT tokens with Data, and with Nacks. No other host can do so.
    returns_tokens: [bool; 2],
}

/// Face identifiers are assigned in sequence, so this many low bits rarely collide.
const SLOT_CACHE_LEN: usize = 256;

pub(crate) struct FaceTable {
    /// The slot of the newest face for each value of the low bits.
    slot_cache: [u32; SLOT_CACHE_LEN],
    table: Table,
    faces: Slab<FaceEntry>,
    /// Number of faces whose tokens differ from the default.
    with_own_tokens: usize,
}

impl FaceTable {
    pub(crate) fn new() -> Self {
        let (table, faces) = (Table::with_capacity(64), Slab::new());
        Self { slot_cache: [0; SLOT_CACHE_LEN], table, faces, with_own_tokens: 0 }
    }

    /// Identifiers are assigned by this router in sequence, so a multiplicative hash is enough.
    fn hash(id: FaceId) -> u64 {
        id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    #[inline(never)]
    fn index(&self, id: FaceId) -> Option<u32> {
        self.table.find(Self::hash(id), |index| self.faces[index].face.id == id)
    }

    #[inline]
    pub(crate) fn find(&self, id: FaceId) -> Option<&Face> {
        let cached = self.slot_cache[id.0 as usize % SLOT_CACHE_LEN];
        match self.faces.get(cached) {
            Some(known) if known.face.id == id => Some(&known.face),
            _ => self.index(id).map(|index| &self.faces[index].face),
        }
    }

    /// All faces, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Face> {
        self.faces.iter().map(|(_, known)| &known.face)
    }

    pub(crate) fn insert(&mut self, id: FaceId, attributes: FaceAttributes) {
        let FaceAttributes { scope, link_type, tokens, host } = attributes;
        self.with_own_tokens += usize::from(tokens != PitTokens::default());
        // Without a host number, the face is its own host. The highest bit separates both kinds,
        // because face identifiers never reach it.
        let host = host.map_or(id.0, |host| host | 1 << 63);
        match self.index(id) {
            Some(index) => {
                let known = &mut self.faces[index];
                self.with_own_tokens -= usize::from(known.face.tokens != PitTokens::default());
                known.face = Face { scope, link_type, tokens, ..known.face };
                known.host = host;
            }
            None => {
                let (slot, pending) = (0, 0);
                let face = Face { id, scope, link_type, tokens, slot, pending };
                let slot = self.faces.insert(FaceEntry { face, host, returns_tokens: [false; 2] });
                self.faces[slot].face.slot = slot;
                self.slot_cache[id.0 as usize % SLOT_CACHE_LEN] = slot;
                self.table.insert(Self::hash(id), slot);
            }
        }
    }

    /// The PIT tokens of Interests to a face.
    #[inline]
    pub(crate) fn tokens_of(&self, id: FaceId) -> PitTokens {
        match self.with_own_tokens {
            0 => PitTokens::default(),
            _ => self.find(id).map_or(PitTokens::default(), Face::tokens),
        }
    }

    /// Whether the peer of a face is known to return PIT tokens.
    pub(crate) fn returns_tokens(&self, id: FaceId, carrier: TokenCarrier) -> bool {
        self.index(id).is_some_and(|index| self.faces[index].returns_tokens[carrier as usize])
    }

    /// Records that the peer of a face returns PIT tokens.
    pub(crate) fn set_returns_tokens(&mut self, id: FaceId, carrier: TokenCarrier) {
        if let Some(index) = self.index(id) {
            self.faces[index].returns_tokens[carrier as usize] = true;
        }
    }

    /// The face in `slot` and the number of its host, if the slot still has face `id`.
    pub(crate) fn get(&self, slot: u32, id: FaceId) -> Option<(Face, u64)> {
        let known = self.faces.get(slot).filter(|known| known.face.id == id)?;
        Some((known.face, known.host))
    }

    /// The face waits for one more PIT entry.
    pub(crate) fn add_pending(&mut self, slot: u32) {
        self.faces[slot].face.pending += 1;
    }

    /// The face in `slot`, if it is still `id`, waits for one PIT entry fewer.
    pub(crate) fn remove_pending(&mut self, slot: u32, id: FaceId) {
        if let Some(known) = self.faces.get_mut(slot).filter(|known| known.face.id == id) {
            known.face.pending -= 1;
        }
    }

    pub(crate) fn remove(&mut self, id: FaceId) {
        if let Some(index) = self.index(id) {
            self.table.remove(Self::hash(id), index);
            let known = self.faces.remove(index);
            self.with_own_tokens -= usize::from(known.face.tokens != PitTokens::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn distinguishes_faces_with_same_low_bits() {
        let mut table = FaceTable::new();
        let ids =
            [7, 7 + SLOT_CACHE_LEN as u64, 7 + 2 * SLOT_CACHE_LEN as u64, u64::MAX].map(FaceId);
        let attributes = FaceAttributes::point_to_point(FaceScope::Local);
        let found = |table: &FaceTable| ids.map(|id| table.find(id).map(|face| face.id()));
        assert_eq!(found(&table), [None; 4]);
        for (count, id) in (1..).zip(ids) {
            table.insert(id, attributes);
            assert_eq!(found(&table).into_iter().flatten().collect::<Vec<_>>(), ids[..count]);
        }
        // A new face uses the slot of a removed one.
        table.remove(ids[2]);
        table.insert(FaceId(8), attributes);
        assert_eq!(found(&table), [Some(ids[0]), Some(ids[1]), None, Some(ids[3])]);
    }
}
