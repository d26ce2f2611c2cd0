//! Next hops of namespaces that are longer than the prefixes of the FIB. A strategy that learns
//! which next hop has the Data of a namespace measures it here, instead of for the FIB entry.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_base::FaceId;
use weir_wire::NameView;

/// Maximum number of measured next hops, over all namespaces.
const HOPS_MAX: usize = 4096;
/// Maximum length of a namespace in bytes. Longer names use a shorter namespace.
const NAMESPACE_BYTES_MAX: usize = 512;

/// A next hop of a namespace, and the index of its measurements.
#[derive(Clone, Copy)]
pub(crate) struct PrefixHop {
    pub(crate) face: FaceId,
    pub(crate) measurement: u32,
}

/// The namespaces and their next hops. The key is the TLV-VALUE of the namespace.
#[derive(Default)]
pub(crate) struct PrefixHops {
    by_namespace: BTreeMap<Box<[u8]>, Vec<PrefixHop>>,
    hops: usize,
}

impl PrefixHops {
    /// The next hops of the namespaces that contain a name, the longest namespace first.
    pub(crate) fn of_name<'a>(
        &'a self,
        name_value: &'a [u8],
    ) -> impl Iterator<Item = &'a [PrefixHop]> {
        // Most routers have no namespace here.
        let name = NameView::from_value(name_value).ok().filter(|_| self.hops > 0);
        let prefixes = name.into_iter().flat_map(|name| {
            (0..=name.component_count()).rev().map(move |count| name.prefix(count).value())
        });
        prefixes.filter_map(move |prefix| Some(&self.by_namespace.get(prefix)?[..]))
    }

    /// The measurements of `face` in the namespace.
    pub(crate) fn find(&self, namespace: &[u8], face: FaceId) -> Option<u32> {
        let hops = self.by_namespace.get(namespace)?;
        Some(hops.iter().find(|hop| hop.face == face)?.measurement)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.hops >= HOPS_MAX
    }

    pub(crate) fn insert(&mut self, namespace: &[u8], hop: PrefixHop) {
        self.hops += 1;
        if let Some(hops) = self.by_namespace.get_mut(namespace) {
            hops.push(hop);
        } else {
            self.by_namespace.insert(namespace.into(), Vec::from([hop]));
        }
    }

    /// Removes the namespaces without a next hop that is in use, and returns their measurements. If
    /// that leaves more than half of them, removes all. Each insertion then costs little on
    /// average, and a removed namespace costs one more broadcast.
    pub(crate) fn make_room(&mut self, is_used: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut removed = Vec::new();
        let all_used = |hop: &PrefixHop| is_used(hop.measurement);
        for keeps_used in [true, false] {
            self.by_namespace.retain(|_, hops| {
                let is_kept = keeps_used && hops.iter().any(all_used);
                if !is_kept {
                    removed.extend(hops.iter().map(|hop| hop.measurement));
                }
                is_kept
            });
            self.hops = self.by_namespace.values().map(Vec::len).sum();
            if self.hops <= HOPS_MAX / 2 {
                break;
            }
        }
        removed
    }
}

/// The namespace of an Interest: its name without the last component. The Data of an Interest with
/// CanBePrefix has a longer name, so its whole name is the namespace.
pub(crate) fn namespace_of(name_value: &[u8], can_be_prefix: bool) -> &[u8] {
    let Ok(name) = NameView::from_value(name_value) else { return &[] };
    let mut namespace = if can_be_prefix { name } else { name.parent() };
    while namespace.value().len() > NAMESPACE_BYTES_MAX {
        namespace = namespace.parent();
    }
    namespace.value()
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use weir_wire::Name;

    use super::*;

    fn hop(number: u32) -> PrefixHop {
        PrefixHop { face: FaceId(number.into()), measurement: number }
    }

    #[test]
    fn longest_namespace_comes_first() {
        let mut table = PrefixHops::default();
        for (prefix, number) in [("/", 1), ("/a", 2), ("/a/b/c", 3)] {
            table.insert(prefix.parse::<Name>().unwrap().value(), hop(number));
        }
        let name: Name = "/a/b/c/d".parse().unwrap();
        let found: Vec<u32> = table.of_name(name.value()).map(|hops| hops[0].measurement).collect();
        assert_eq!(found, [3, 2, 1]);
    }

    #[test]
    fn namespace_has_bounded_length() {
        let name: Name = format!("/a/{}/b/c", "x".repeat(NAMESPACE_BYTES_MAX)).parse().unwrap();
        let short: Name = "/a".parse().unwrap();
        assert_eq!(namespace_of(name.value(), false), short.value());
        assert_eq!(namespace_of(short.value(), true), short.value());
        assert_eq!(namespace_of(short.value(), false), b"");
        assert_eq!(namespace_of(b"", false), b"");
    }

    #[test]
    fn full_table_removes_unused_namespaces_first() {
        let mut table = PrefixHops::default();
        let value = |number: u32| format!("/{number}").parse::<Name>().unwrap();
        (0..HOPS_MAX as u32).for_each(|number| table.insert(value(number).value(), hop(number)));
        assert!(table.is_full());
        let removed = table.make_room(|measurement| measurement.is_multiple_of(4));
        assert_eq!(removed.len(), HOPS_MAX * 3 / 4);
        assert_eq!(table.find(value(8).value(), FaceId(8)), Some(8));
        assert_eq!(table.find(value(9).value(), FaceId(9)), None);
        (0..HOPS_MAX as u32).for_each(|number| table.insert(value(number).value(), hop(number)));
        assert_eq!(table.make_room(|_| true).len(), HOPS_MAX * 5 / 4, "all, since all are in use");
        assert_eq!(table.of_name(value(8).value()).count(), 0);
    }
}
