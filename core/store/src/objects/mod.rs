//! The objects that a store holds, with their shares and uses, for lists that people read.
//!
//! An *object* is the name of stored Data without its last component: the segments of one version
//! of a file, or the Data of one sensor. So a million Data of one sensor are one row of the list.

mod query;
mod table;
mod wire;

pub use query::{ObjectOrder, ObjectQuery};
pub use table::ObjectTable;
pub use wire::{ObjectList, ObjectListError};

use alloc::vec::Vec;
use weir_wire::Name;

use crate::holdings::HoldingsCursor;
use crate::uses::{ObjectUses, TierShare};

/// An object with Data in the store.
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub struct StoredObject {
    /// The name of the Data without the last component.
    pub name: Name,
    pub memory: TierShare,
    pub disk: TierShare,
    /// Segments of the whole object, if the stored Data says so.
    pub segments: Option<u64>,
    pub uses: ObjectUses,
}

impl StoredObject {
    /// The packets of the tier that holds more. Disks hold copies of most packets in memory.
    pub fn packets(&self) -> u64 {
        self.memory.packets.max(self.disk.packets)
    }

    /// The percentage of the object that the store holds, if the number of segments is known.
    pub fn held_percent(&self) -> Option<f64> {
        let segments = self.segments.filter(|&segments| segments > 0)?;
        Some((self.packets() as f64 * 100.0 / segments as f64).min(100.0))
    }

    /// Bytes in both tiers.
    pub(crate) fn bytes(&self) -> u64 {
        self.memory.bytes + self.disk.bytes
    }

    /// Combines what two shards, or two tiers, know of an object.
    fn merge(&mut self, other: Self) {
        self.memory.add(other.memory);
        self.disk.add(other.disk);
        self.segments = self.segments.max(other.segments);
        self.uses.add(other.uses);
    }
}

/// Some objects of one shard.
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub struct ObjectsPage {
    /// In no particular order. An object may be listed once for each tier.
    pub objects: Vec<StoredObject>,
    /// Where the next page starts; `None` after the last one.
    pub next: Option<HoldingsCursor>,
    /// Objects on disks whose names are not known, because they arrived before the last start and
    /// have not been used since. Only the last page counts them.
    pub unnamed: u64,
    /// Whether the index of the disks is incomplete: it is being built, or is full.
    pub is_partial: bool,
}
