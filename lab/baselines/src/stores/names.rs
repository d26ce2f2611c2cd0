//! CCNx's lookup of Data by name (paper ccnx-measurement, 2.2.2 and 5): a list in name order that
//! decodes the stored packet for every comparison.

use weir_plan::{Compare, IndexKind, StoreExperiments};
use weir_store::{NameIndex, StoredNames};
use weir_wire::DataView;

use super::skip_list::{ENTRY_BYTES, SkipList};

/// The index of an experiment; `None` if the store's own index does the same.
pub(super) fn name_index(experiments: &StoreExperiments) -> Option<Box<dyn NameIndex>> {
    let compare = experiments.compare;
    match (experiments.index, compare) {
        (IndexKind::Hash, Compare::Stored) => None,
        (IndexKind::Hash, Compare::Decode) => Some(Box::new(Decoded)),
        (IndexKind::Ordered, _) => Some(Box::new(Ordered { list: SkipList::new(), compare })),
    }
}

/// The hash table of the store, but every comparison decodes a packet.
struct Decoded;

impl NameIndex for Decoded {
    fn name<'a>(&self, stored: StoredNames<'a>, entry: u32) -> &'a [u8] {
        decoded_name(stored, entry)
    }
}

/// Names in canonical order.
struct Ordered {
    list: SkipList,
    compare: Compare,
}

impl NameIndex for Ordered {
    fn name<'a>(&self, stored: StoredNames<'a>, entry: u32) -> &'a [u8] {
        match self.compare {
            Compare::Stored => stored.name(entry),
            Compare::Decode => decoded_name(stored, entry),
        }
    }

    fn entry_bytes(&self) -> u64 {
        ENTRY_BYTES
    }

    fn insert(&mut self, stored: StoredNames<'_>, entry: u32) {
        let name = stored.name(entry);
        let path = self.list.seek(|other| self.name(stored, other) < name);
        self.list.insert(&path, entry, stored.hash(entry));
    }

    fn remove(&mut self, stored: StoredNames<'_>, entry: u32) {
        let name = stored.name(entry);
        let path = self.list.seek(|other| self.name(stored, other) < name);
        self.list.remove(&path, entry, stored.hash(entry));
    }

    fn is_ordered(&self) -> bool {
        true
    }

    fn first_at_or_after(&self, stored: StoredNames<'_>, name: &[u8]) -> Option<u32> {
        self.list.at(&self.list.seek(|other| self.name(stored, other) < name))
    }

    fn next(&self, entry: u32) -> Option<u32> {
        self.list.next(entry)
    }
}

/// The name of a stored packet, decoded from its bytes.
fn decoded_name(stored: StoredNames<'_>, entry: u32) -> &[u8] {
    DataView::decode(stored.packet(entry)).expect("only Data is stored").name.value()
}
