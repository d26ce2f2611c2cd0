//! Longest prefix match over names: the FIB and the strategy choice table.

use weir_base::{HashKey, Slab, Table};
use weir_wire::{Name, NameView};

/// FIB, RIB and strategy prefixes have at most this many components (NFD, name tree depth).
pub const PREFIX_COMPONENTS_MAX: usize = 32;

struct Entry<T> {
    prefix: Name,
    hash: u64,
    value: T,
}

/// Values by name prefix. Lengths that hold no prefix cost nothing at lookup.
pub(crate) struct PrefixTable<T> {
    table: Table,
    entries: Slab<Entry<T>>,
    root: Option<T>,
    /// Prefixes of each length; index 0 is unused.
    count_by_length: [u32; PREFIX_COMPONENTS_MAX + 1],
    /// Bit `n` is set while a prefix of `n` components exists, `n >= 1`.
    lengths: u64,
}

impl<T> PrefixTable<T> {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::with_capacity(64),
            entries: Slab::new(),
            root: None,
            count_by_length: [0; PREFIX_COMPONENTS_MAX + 1],
            lengths: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() + usize::from(self.root.is_some())
    }

    /// The value of the longest prefix of `name`; `hashes[i]` is the hash of its first `i + 1`
    /// components.
    #[inline]
    pub(crate) fn longest_match(&self, name: NameView<'_>, hashes: &[u64]) -> Option<&T> {
        let deepest = hashes.len().min(PREFIX_COMPONENTS_MAX);
        let mut lengths = self.lengths & ((2_u64 << deepest) - 1);
        while lengths != 0 {
            let length = 63 - lengths.leading_zeros() as usize;
            lengths &= !(1 << length);
            if let Some(index) = self.find(name, hashes[length - 1], length) {
                return Some(&self.entries[index].value);
            }
        }
        self.root.as_ref()
    }

    /// The entry of the first `length` components of `name`, whose hash is `hash`. Octets that start
    /// with those of another name start with its components.
    fn find(&self, name: NameView<'_>, hash: u64, length: usize) -> Option<u32> {
        self.table.find(hash, |index| {
            let entry = &self.entries[index];
            entry.hash == hash
                && entry.prefix.component_count() == length
                && name.value().starts_with(entry.prefix.value())
        })
    }

    /// Sets the value of `prefix` and returns the one before.
    ///
    /// # Panics
    /// When `prefix` has more than [`PREFIX_COMPONENTS_MAX`] components: management refuses those.
    pub(crate) fn insert(&mut self, prefix: Name, value: T, key: &HashKey) -> Option<T> {
        let view = prefix.as_view();
        let length = view.component_count();
        assert!(length <= PREFIX_COMPONENTS_MAX, "prefix too long");
        if length == 0 {
            return self.root.replace(value);
        }
        let hash = key.hash(view.value());
        if let Some(index) = self.find(view, hash, length) {
            return Some(core::mem::replace(&mut self.entries[index].value, value));
        }
        let index = self.entries.insert(Entry { prefix, hash, value });
        self.table.insert(hash, index);
        self.count_by_length[length] += 1;
        self.lengths |= 1 << length;
        None
    }

    pub(crate) fn remove(&mut self, prefix: NameView<'_>, key: &HashKey) -> Option<T> {
        let length = prefix.component_count();
        if length == 0 {
            return self.root.take();
        }
        let hash = key.hash(prefix.value());
        let index = self.find(prefix, hash, length)?;
        self.table.remove(hash, index);
        let entry = self.entries.remove(index);
        self.count_by_length[length] -= 1;
        if self.count_by_length[length] == 0 {
            self.lengths &= !(1 << length);
        }
        Some(entry.value)
    }

    /// Every prefix but the root with its value.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, &T)> {
        self.entries.iter().map(|(_, entry)| (&entry.prefix, &entry.value))
    }

    pub(crate) fn root(&self) -> Option<&T> {
        self.root.as_ref()
    }
}

/// Hashes of a name's first prefixes, as many as a table can hold.
pub(crate) struct PrefixHashes {
    hashes: [u64; PREFIX_COMPONENTS_MAX],
    len: usize,
}

impl core::ops::Deref for PrefixHashes {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.hashes[..self.len]
    }
}

pub(crate) fn prefix_hashes(key: &HashKey, name: NameView<'_>) -> PrefixHashes {
    let mut result = PrefixHashes { hashes: [0; PREFIX_COMPONENTS_MAX], len: 0 };
    let mut hasher = key.prefixes(name.value());
    let mut end = 0;
    for (hash, component) in result.hashes.iter_mut().zip(name.components()) {
        end += component.wire.len();
        *hash = hasher.hash_to(end);
        result.len += 1;
    }
    result
}
