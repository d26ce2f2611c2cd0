//! Finds the receivers of packets by prefix.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use weir_wire::{Name, NameView};

/// TLV-VALUE of a name.
type NameValue = Arc<[u8]>;

/// The numbers of the receivers of packets below a prefix.
pub struct PrefixMap<N> {
    /// Names come from untrusted peers, so the hash is keyed.
    by_prefix: HashMap<NameValue, BTreeSet<N>>,
    by_number: BTreeMap<N, Vec<NameValue>>,
}

impl<N> Default for PrefixMap<N> {
    fn default() -> Self {
        Self { by_prefix: HashMap::new(), by_number: BTreeMap::new() }
    }
}

impl<N: Copy + Ord> PrefixMap<N> {
    pub fn add(&mut self, prefix: &Name, number: N) {
        let value = NameValue::from(prefix.value());
        if self.by_prefix.entry(value.clone()).or_default().insert(number) {
            self.by_number.entry(number).or_default().push(value);
        }
    }

    /// Removes a number from all its prefixes.
    pub fn remove(&mut self, number: N) {
        for value in self.by_number.remove(&number).into_iter().flatten() {
            let numbers = self.by_prefix.get_mut(&value).expect("it was added");
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_prefix.remove(&value);
            }
        }
    }

    /// The numbers for all prefixes of a name, longest prefix first.
    pub fn matches<'a>(&'a self, name: NameView<'a>) -> impl Iterator<Item = N> + 'a {
        let counts = (0..=name.component_count()).rev();
        let numbers =
            counts.filter_map(move |count| self.by_prefix.get(name.prefix(count).value()));
        numbers.flatten().copied()
    }
}
