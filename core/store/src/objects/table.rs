//! Gathers the objects of all shards within a limit of memory.

use alloc::vec::Vec;

use weir_base::{HashKey, Instant, Table};

use super::wire::ObjectList;
use super::{ObjectQuery, ObjectsPage, StoredObject};

/// Bytes that an object costs in addition to its name: the object twice, because a vector that
/// grows has up to twice the capacity, its place in the index, and the allocator's overhead.
const OBJECT_BYTES: u64 = 2 * size_of::<StoredObject>() as u64 + 48;

/// Bytes of an encoded object in addition to its name, at most.
const ROW_BYTES: u64 = 112;
/// Bytes of an encoded list. A longer one is cut off, because the router keeps its latest answers
/// for the requests of their later segments.
const LIST_BYTES_MAX: u64 = 32 << 20;

/// The objects found so far. Shards hold different segments of an object, so their pages are
/// merged before the first objects of the order are chosen.
///
/// At the limit of memory, the table drops the last half of the order. An object that it has
/// dropped may come back with the share of another shard only, so the list is then partial.
#[derive(Debug)]
pub struct ObjectTable {
    query: ObjectQuery,
    objects: Vec<StoredObject>,
    /// Positions in `objects` by the hash of the name. Names have long common prefixes, which a
    /// sorted map would compare again and again.
    index: Table,
    key: HashKey,
    bytes: u64,
    bytes_max: u64,
    list: ObjectList,
}

impl ObjectTable {
    /// An empty table for the answer to a query of this time. It takes at most `bytes_max` bytes.
    pub fn new(now: Instant, query: ObjectQuery, bytes_max: u64, key: HashKey) -> Self {
        let list = ObjectList { listed_at: now, ..ObjectList::default() };
        let (objects, index) = (Vec::new(), Table::with_capacity(0));
        Self { query, objects, index, key, bytes: 0, bytes_max, list }
    }

    pub fn query(&self) -> &ObjectQuery {
        &self.query
    }

    /// Not all that the store holds is known.
    pub fn set_partial(&mut self) {
        self.list.is_partial = true;
    }

    /// Adds a page of a shard.
    pub fn add(&mut self, page: ObjectsPage) {
        self.list.is_partial |= page.is_partial;
        self.list.unnamed += page.unnamed;
        for object in page.objects {
            self.list.memory.add(object.memory);
            self.list.disk.add(object.disk);
            self.add_object(object);
        }
    }

    fn add_object(&mut self, object: StoredObject) {
        let hash = self.key.hash(object.name.value());
        let is_same = |at: u32| self.objects[at as usize].name == object.name;
        if let Some(at) = self.index.find(hash, is_same) {
            self.objects[at as usize].merge(object);
            return;
        }
        self.list.total += 1;
        self.bytes += object_bytes(&object);
        self.index.insert(hash, self.objects.len() as u32);
        self.objects.push(object);
        if self.bytes > self.bytes_max {
            self.drop_half();
        }
    }

    fn drop_half(&mut self) {
        let before = self.objects.len();
        let kept = self.sorted(before / 2);
        self.bytes = kept.iter().map(object_bytes).sum();
        self.list.dropped += (before - kept.len()) as u64;
        self.list.is_partial = true;
        self.index = Table::with_capacity(0);
        for (at, object) in (0..).zip(&kept) {
            self.index.insert(self.key.hash(object.name.value()), at);
        }
        self.objects = kept;
    }

    /// Takes the first objects of the order.
    fn sorted(&mut self, count: usize) -> Vec<StoredObject> {
        let order = self.query.order;
        let mut objects = core::mem::take(&mut self.objects);
        if count < objects.len() && count > 0 {
            objects.select_nth_unstable_by(count - 1, |one, other| order.compare(one, other));
        }
        objects.truncate(count);
        objects.sort_unstable_by(|one, other| order.compare(one, other));
        objects
    }

    /// The answer.
    pub fn into_list(mut self) -> ObjectList {
        // At most 100,000, which any `usize` holds.
        let limit = self.query.limit.min(ObjectQuery::LIMIT_MAX) as usize;
        let mut objects = self.sorted(limit);
        let mut bytes = 0;
        let mut fits = |object: &StoredObject| {
            bytes += ROW_BYTES + object.name.value().len() as u64;
            bytes <= LIST_BYTES_MAX
        };
        let count = objects.iter().take_while(|object| fits(object)).count();
        if count < objects.len() {
            self.list.dropped += (objects.len() - count) as u64;
            self.list.is_partial = true;
            objects.truncate(count);
        }
        self.list.objects = objects;
        self.list
    }
}

fn object_bytes(object: &StoredObject) -> u64 {
    OBJECT_BYTES + object.name.value().len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::KEY;
    use crate::objects::ObjectOrder;
    use crate::uses::{ObjectUses, TierShare};
    use alloc::format;

    fn object(name: &str, bytes: u64, hits: u64) -> StoredObject {
        StoredObject {
            name: name.parse().unwrap(),
            memory: TierShare { packets: 1, bytes },
            uses: ObjectUses { hits, ..ObjectUses::default() },
            ..StoredObject::default()
        }
    }

    fn page(objects: Vec<StoredObject>) -> ObjectsPage {
        ObjectsPage { objects, ..ObjectsPage::default() }
    }

    fn names(order: ObjectOrder, limit: u64) -> Vec<alloc::string::String> {
        let query = ObjectQuery { order, limit, ..ObjectQuery::default() };
        let mut table = ObjectTable::new(Instant::ZERO, query, 1 << 20, KEY);
        table.add(page(alloc::vec![object("/a", 10, 1), object("/b", 30, 1)]));
        table.add(page(alloc::vec![object("/c", 20, 9), object("/a", 40, 0)]));
        let list = table.into_list();
        assert_eq!((list.total, list.memory.bytes, list.is_partial), (3, 100, false));
        list.objects.iter().map(|object| format!("{}", object.name)).collect()
    }

    #[test]
    fn merges_shards_before_it_sorts() {
        assert_eq!(names(ObjectOrder::Size, 10), ["/a", "/b", "/c"]);
        assert_eq!(names(ObjectOrder::Hits, 10), ["/c", "/a", "/b"]);
        assert_eq!(names(ObjectOrder::Hits, 1), ["/c"]);
        assert_eq!(names(ObjectOrder::Name, 2), ["/a", "/b"]);
        assert!(names(ObjectOrder::Name, 0).is_empty());
    }

    #[test]
    fn list_is_bounded_in_objects_and_bytes() {
        let listed = |objects: u64, name_len: usize| {
            let query = ObjectQuery { limit: u64::MAX, ..ObjectQuery::default() };
            let mut table = ObjectTable::new(Instant::ZERO, query, u64::MAX, KEY);
            let long = "x".repeat(name_len);
            for number in 0..objects {
                table.add(page(alloc::vec![object(&format!("/{long}/{number}"), 1, number)]));
            }
            let list = table.into_list();
            assert!(list.encode().len() as u64 <= LIST_BYTES_MAX + 1000);
            (list.objects.len() as u64, list.dropped, list.is_partial)
        };
        assert_eq!(listed(ObjectQuery::LIMIT_MAX + 5, 1).0, ObjectQuery::LIMIT_MAX);
        let (count, dropped, is_partial) = listed(9000, 4000);
        assert!(count > 8000 && is_partial, "{count}");
        assert_eq!(count + dropped, 9000);
    }

    #[test]
    fn keeps_the_best_within_its_memory() {
        let query = ObjectQuery { limit: 10, ..ObjectQuery::default() };
        let mut table = ObjectTable::new(Instant::ZERO, query, 100_000, KEY);
        for number in 0..100_000 {
            table.add(page(alloc::vec![object(&format!("/many/{number}"), 1, number)]));
            assert!(table.bytes <= 100_000);
        }
        let list = table.into_list();
        assert_eq!((list.total, list.is_partial), (100_000, true));
        assert!(list.dropped > 90_000, "{}", list.dropped);
        let hits: Vec<u64> = list.objects.iter().map(|object| object.uses.hits).collect();
        assert_eq!(hits, (99_990..100_000).rev().collect::<Vec<_>>());
    }
}
