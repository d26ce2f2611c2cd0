//! Longest prefix match over names, for the FIB and the strategy choice table.

use alloc::vec::Vec;

use arrayvec::ArrayVec;
use weir_base::{HashKey, Slab, Table};
use weir_wire::{Name, NameView};

/// Maximum number of components of FIB, RIB and strategy prefixes (NFD, name tree depth).
pub const PREFIX_COMPONENTS_MAX: usize = 32;

struct PrefixEntry<T> {
    prefix: Name,
    hash: u64,
    value: T,
}

/// A map from name prefixes to values. A lookup skips lengths without a prefix.
pub(crate) struct PrefixTable<T> {
    table: Table,
    entries: Slab<PrefixEntry<T>>,
    root: Option<T>,
    /// Number of prefixes of each length; index 0 is unused.
    count_by_length: [u32; PREFIX_COMPONENTS_MAX + 1],
    /// Bit `n` is set while a prefix of `n` components exists, `n >= 1`.
    lengths: u64,
    /// Hash bits of the first components of all prefixes. The bits of removed prefixes stay.
    first_components: u64,
}

impl<T> PrefixTable<T> {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::with_capacity(64),
            entries: Slab::new(),
            root: None,
            count_by_length: [0; PREFIX_COMPONENTS_MAX + 1],
            lengths: 0,
            first_components: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() + usize::from(self.root.is_some())
    }

    /// Bit `n` is set if a lookup needs the hash of the first `n` components.
    #[inline]
    pub(crate) fn lengths(&self) -> u64 {
        self.lengths
    }

    /// The value of the empty prefix.
    #[inline]
    pub(crate) fn root(&self) -> Option<&T> {
        self.root.as_ref()
    }

    /// Whether a non-empty prefix may match `name`. `false` is certain. The check needs no hash of
    /// the name.
    #[inline]
    pub(crate) fn may_match(&self, name: NameView<'_>) -> bool {
        self.first_components & first_component_bit(name) != 0
    }

    /// The value of the longest prefix of `name`. `hashes` must cover [`PrefixTable::lengths`].
    #[inline]
    pub(crate) fn longest_match(&self, name: NameView<'_>, hashes: &PrefixHashes) -> Option<&T> {
        self.value(self.longest_slot(name, hashes))
    }

    /// The slot of the longest prefix of `name`, valid until a prefix is added or removed. `None`
    /// stands for the empty prefix.
    #[inline]
    pub(crate) fn longest_slot(&self, name: NameView<'_>, hashes: &PrefixHashes) -> Option<u32> {
        hashes.shortest_first.iter().rev().find_map(|&(length, hash)| {
            let is_length = self.lengths & (1 << length) != 0;
            if is_length { self.find(name, hash, length as usize) } else { None }
        })
    }

    /// The value in a slot from [`PrefixTable::longest_slot`].
    #[inline]
    pub(crate) fn value(&self, slot: Option<u32>) -> Option<&T> {
        match slot {
            Some(index) => Some(&self.entries[index].value),
            None => self.root.as_ref(),
        }
    }

    /// The longest prefix of `name` that has a value; `hashes` as for
    /// [`PrefixTable::longest_match`].
    pub(crate) fn longest_prefix(&self, name: NameView<'_>, hashes: &PrefixHashes) -> Option<Name> {
        let of_length = |&(length, hash): &(u32, u64)| self.find(name, hash, length as usize);
        let found = hashes.shortest_first.iter().rev().find_map(of_length);
        match found {
            Some(index) => Some(self.entries[index].prefix.clone()),
            None => self.root.as_ref().map(|_| Name::new()),
        }
    }

    /// The value of `prefix`.
    pub(crate) fn get_mut(&mut self, prefix: NameView<'_>, key: &HashKey) -> Option<&mut T> {
        if prefix.is_empty() {
            return self.root.as_mut();
        }
        let index = self.find(prefix, key.hash(prefix.value()), prefix.component_count())?;
        Some(&mut self.entries[index].value)
    }

    /// The entry of the first `length` components of `name`. Comparing bytes is enough: if the
    /// bytes of a name start with the bytes of another name, so do its components.
    fn find(&self, name: NameView<'_>, hash: u64, length: usize) -> Option<u32> {
        self.table.find(hash, |index| {
            let entry = &self.entries[index];
            entry.hash == hash
                && entry.prefix.component_count() == length
                && name.value().starts_with(entry.prefix.value())
        })
    }

    /// Sets the value of `prefix` and returns the old one.
    ///
    /// # Panics
    /// If `prefix` has more than [`PREFIX_COMPONENTS_MAX`] components, which management refuses.
    pub(crate) fn insert(&mut self, prefix: Name, value: T, key: &HashKey) -> Option<T> {
        let view = prefix.as_view();
        let length = view.component_count();
        assert!(length <= PREFIX_COMPONENTS_MAX, "prefix too long");
        if length == 0 {
            return self.root.replace(value);
        }
        let hash = key.hash(view.value());
        self.first_components |= first_component_bit(view);
        if let Some(index) = self.find(view, hash, length) {
            return Some(core::mem::replace(&mut self.entries[index].value, value));
        }
        let index = self.entries.insert(PrefixEntry { prefix, hash, value });
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

    /// All prefixes except the empty one, with their values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, &T)> {
        self.entries.iter().map(|(_, entry)| (&entry.prefix, &entry.value))
    }
}

/// A bit that depends only on the first component. All bits are set if the name is too short.
#[inline]
fn first_component_bit(name: NameView<'_>) -> u64 {
    // Type, length and the first two bytes of the value distinguish most components.
    let Some(&[typ, len, one, two]) = name.value().first_chunk::<4>() else { return u64::MAX };
    let spread = u32::from_be_bytes([typ, len, one, two]).wrapping_mul(0x9E37_79B1);
    1 << (spread >> 26)
}

/// Hashes of the prefixes of a name that the tables need.
#[derive(Default)]
pub(crate) struct PrefixHashes {
    /// Number of components of a prefix, and its hash.
    shortest_first: ArrayVec<(u32, u64), PREFIX_COMPONENTS_MAX>,
}

impl PrefixHashes {
    /// Adds the hashes of the prefixes whose lengths are set in `lengths`, in one pass. It fills
    /// `self` because a returned value of this size would be copied.
    #[inline(always)]
    pub(crate) fn add(&mut self, key: &HashKey, name: NameView<'_>, lengths: u64) {
        if lengths != 0 {
            self.add_lengths(key, name, lengths);
        }
    }

    #[inline(never)]
    fn add_lengths(&mut self, key: &HashKey, name: NameView<'_>, lengths: u64) {
        let longest = u64::BITS - lengths.leading_zeros();
        let mut hasher = key.prefixes(name.value());
        let mut end = 0;
        for (length, component) in (1..longest).zip(name.components()) {
            end += component.wire.len();
            if lengths & (1 << length) != 0 {
                self.shortest_first.push((length, hasher.hash_to(end)));
            }
        }
    }
}

/// Appends the hashes of all proper prefixes of `name`, shortest first.
pub(crate) fn hash_proper_prefixes(key: &HashKey, name: NameView<'_>, hashes: &mut Vec<u64>) {
    let mut hasher = key.prefixes(name.value());
    let mut end = 0;
    for component in name.components().take(name.component_count().saturating_sub(1)) {
        end += component.wire.len();
        hashes.push(hasher.hash_to(end));
    }
}
