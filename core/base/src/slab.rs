use crate::prefetch::prefetch_pointer;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Index, IndexMut};

/// Dense storage that identifies its entries by small integers. A new entry reuses the index of the
/// entry that was removed last.
///
/// Memory grows like that of a `Vec` and is never given back, so a slab at its working size
/// allocates nothing. An entry takes `size_of::<Option<T>>()` bytes. That is the size of `T` itself
/// if `T` has an unused value, for instance because it contains a [`Packet`](crate::Packet) or a
/// reference.
#[derive(Clone)]
pub struct Slab<T> {
    entries: Vec<Option<T>>,
    /// Vacant indices below `entries.len()`. Always has capacity for all of them.
    vacant: Vec<u32>,
}

impl<T> Slab<T> {
    pub const fn new() -> Self {
        Self { entries: Vec::new(), vacant: Vec::new() }
    }

    /// Reserves memory for `entries` in all, so that no insertion up to that number allocates.
    #[inline]
    pub fn reserve(&mut self, entries: usize) {
        if entries > self.entries.capacity() {
            self.entries.reserve(entries - self.entries.len());
            self.vacant.reserve_exact(self.entries.capacity() - self.vacant.len());
        }
    }

    /// Inserts `value` and returns its index.
    ///
    /// # Panics
    /// If there are 2^32 - 1 entries.
    #[inline]
    pub fn insert(&mut self, value: T) -> u32 {
        self.insert_with(|| value)
    }

    /// Like [`Slab::insert`], but constructs the value in place. `make` should not panic.
    #[inline(always)]
    pub fn insert_with(&mut self, make: impl FnOnce() -> T) -> u32 {
        let index = self.vacant.pop().unwrap_or_else(|| self.extend());
        let entry = &raw mut self.entries[index as usize];
        // SAFETY: a slot within the vector. It is vacant, so nothing there needs to be dropped.
        unsafe { entry.write(Some(make())) };
        index
    }

    #[cold]
    fn extend(&mut self) -> u32 {
        let index = self.entries.len();
        assert!(index < u32::MAX as usize, "a slab holds fewer than 2^32 entries");
        self.entries.push(None);
        if self.vacant.capacity() < self.entries.capacity() {
            self.vacant.reserve_exact(self.entries.capacity());
        }
        index as u32
    }

    /// Removes and returns the entry `index`.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    #[track_caller]
    pub fn remove(&mut self, index: u32) -> T {
        let Some(entry @ Some(_)) = self.entries.get_mut(index as usize) else { vacant(index) };
        self.vacant.push(index);
        entry.take().unwrap_or_else(|| vacant(index))
    }

    /// Drops the entry `index` in place.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    #[track_caller]
    pub fn discard(&mut self, index: u32) {
        let Some(entry @ Some(_)) = self.entries.get_mut(index as usize) else { vacant(index) };
        *entry = None;
        self.vacant.push(index);
    }

    /// The entry `index`, if there is one.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize)?.as_ref()
    }

    /// The entry `index`, if there is one.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    /// Whether there is an entry `index`.
    #[inline]
    pub fn contains(&self, index: u32) -> bool {
        self.get(index).is_some()
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len() - self.vacant.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of slots that have ever held an entry: every index is below it.
    #[inline]
    pub fn slots(&self) -> u32 {
        self.entries.len() as u32
    }

    pub fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Option<T>>() + self.vacant.capacity() * size_of::<u32>()
    }

    /// Prefetches entry `index` without touching it. At most 4 cache lines.
    #[inline(always)]
    pub fn prefetch(&self, index: u32) {
        let size = size_of::<Option<T>>();
        let entry = self.entries.as_ptr().cast::<u8>().wrapping_add(index as usize * size);
        let mut offset = 0;
        while offset < size.min(256) {
            prefetch_pointer(entry.wrapping_add(offset));
            offset += 64;
        }
        // An entry that is not aligned to cache lines may extend into one more.
        if size > 8 && !size.is_multiple_of(64) {
            prefetch_pointer(entry.wrapping_add(size - 1));
        }
    }

    /// All entries with their indices, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().enumerate().filter_map(|(at, entry)| Some((at as u32, entry.as_ref()?)))
    }

    /// All entries with their indices, in ascending order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.entries
            .iter_mut()
            .enumerate()
            .filter_map(|(at, entry)| Some((at as u32, entry.as_mut()?)))
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn vacant(index: u32) -> ! {
    panic!("no entry {index} in the slab")
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    #[track_caller]
    fn index(&self, index: u32) -> &T {
        match self.get(index) {
            Some(value) => value,
            None => vacant(index),
        }
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    #[track_caller]
    fn index_mut(&mut self, index: u32) -> &mut T {
        match self.get_mut(index) {
            Some(value) => value,
            None => vacant(index),
        }
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    #[should_panic(expected = "no entry 3 in the slab")]
    fn a_vacant_index_panics() {
        let slab = Slab::<u8>::new();
        let _ = slab[3];
    }

    #[test]
    fn working_size_is_kept_without_growth() {
        let mut slab = Slab::new();
        let indices: Vec<u32> = (0..100u8).map(|value| slab.insert(value)).collect();
        let memory = slab.memory_bytes();
        for _ in 0..3 {
            assert!(indices.iter().all(|&index| slab.remove(index) < 100));
            assert!((0..100u8).all(|value| slab.insert(value) < 100));
        }
        assert_eq!(slab.memory_bytes(), memory);
        assert_eq!(slab.len(), 100);
        slab.prefetch(5);
        slab.prefetch(u32::MAX);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 128 }))]

        #[test]
        fn equals_a_map(steps in proptest::collection::vec((any::<bool>(), any::<u16>()), 0..200)) {
            let mut slab = Slab::new();
            let mut model = BTreeMap::new();
            for (add, value) in steps {
                if add || model.is_empty() {
                    let index = slab.insert(value);
                    prop_assert_eq!(model.insert(index, value), None);
                } else {
                    let at = usize::from(value) % model.len();
                    let index = *model.keys().nth(at).unwrap();
                    prop_assert_eq!(Some(slab.remove(index)), model.remove(&index));
                    prop_assert!(!slab.contains(index));
                }
                prop_assert_eq!(slab.len(), model.len());
                prop_assert!(slab.iter().map(|(index, &value)| (index, value)).eq(model.clone()));
                for (index, value) in slab.iter_mut() {
                    *value ^= index as u16;
                }
                for (&index, value) in &mut model {
                    *value ^= index as u16;
                    prop_assert_eq!(slab[index], *value);
                }
            }
        }
    }
}
