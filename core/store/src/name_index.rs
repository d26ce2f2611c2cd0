//! An extension point for experiments: a name index that replaces how names are compared.

use weir_base::Slab;

use crate::entry::Entry;

/// The names and packets in memory, by entry number.
#[derive(Clone, Copy)]
pub struct StoredNames<'a>(pub(crate) &'a Slab<Entry>);

impl<'a> StoredNames<'a> {
    /// The whole Data TLV.
    #[must_use]
    pub fn packet(&self, entry: u32) -> &'a [u8] {
        &self.0[entry].packet
    }

    /// The TLV-VALUE of the name.
    #[must_use]
    pub fn name(&self, entry: u32) -> &'a [u8] {
        self.0[entry].name_value()
    }

    /// The keyed hash of the whole name.
    #[must_use]
    pub fn hash(&self, entry: u32) -> u64 {
        self.0[entry].hash
    }
}

/// Decides how names are compared, and which Data below a prefix answers. Without a name index, the
/// store compares the names in the packets, and the newest Data answers.
pub trait NameIndex: Send {
    /// The name of an entry, for comparison.
    fn name<'a>(&self, stored: StoredNames<'a>, entry: u32) -> &'a [u8];

    /// Bytes of memory for each entry.
    fn entry_bytes(&self) -> u64 {
        0
    }

    /// Called after an entry was inserted.
    fn insert(&mut self, _stored: StoredNames<'_>, _entry: u32) {}

    /// Called before an entry is removed.
    fn remove(&mut self, _stored: StoredNames<'_>, _entry: u32) {}

    /// Whether the index has an order. If so, [`NameIndex::first_at_or_after`] answers prefix
    /// lookups.
    fn is_ordered(&self) -> bool {
        false
    }

    /// The first entry whose name is not less than `name`.
    fn first_at_or_after(&self, _stored: StoredNames<'_>, _name: &[u8]) -> Option<u32> {
        None
    }

    /// The entry that follows another one in the order.
    fn next(&self, _entry: u32) -> Option<u32> {
        None
    }
}
