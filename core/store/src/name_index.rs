//! Seam for experiments: an index of names that works in front of the table of hashes.

use weir_base::Slab;

use crate::entry::Entry;

/// The names and packets in memory, by the numbers of their entries.
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

/// How names are compared, and the order in which Data below a prefix answers. Without one, names
/// are compared in place and the Data that came last answers.
pub trait NameIndex: Send {
    /// The name of an entry, to compare with.
    fn name<'a>(&self, stored: StoredNames<'a>, entry: u32) -> &'a [u8];

    /// Bytes of memory for each entry.
    fn entry_bytes(&self) -> u64 {
        0
    }

    /// A new entry.
    fn insert(&mut self, _stored: StoredNames<'_>, _entry: u32) {}

    /// An entry is about to be removed.
    fn remove(&mut self, _stored: StoredNames<'_>, _entry: u32) {}

    /// Whether entries have an order, by which [`NameIndex::first_from`] answers.
    fn is_ordered(&self) -> bool {
        false
    }

    /// The first entry whose name is not before `name`.
    fn first_at_or_after(&self, _stored: StoredNames<'_>, _name: &[u8]) -> Option<u32> {
        None
    }

    /// The entry after another one.
    fn next(&self, _entry: u32) -> Option<u32> {
        None
    }
}
