//! The index of the disk tier: the address of each record, in a few bytes.

mod cells;
mod nodes;
mod segments;

use super::address::{Key, RecordAddress, WHOLE};
use alloc::vec::Vec;
use core::fmt;
use nodes::{NONE, Nodes, ROOT, list_growth_bytes};
use segments::{EMPTY, Segments};

/// Marks a node's content that is the number of a cell with two words: the address of Data with
/// exactly the node's name, and the word of its segments.
const BOTH: u64 = 1 << 63;

/// The addresses of all Data on the disks, by name and by prefix.
///
/// Each prefix of a name, including the object's name, has a node of 32 bytes, plus its share of
/// the hash table. The addresses of an object's segments are in a radix tree, at 8.4 bytes a
/// segment where segments are consecutive. Data without a segment number, and a segment 0 that is
/// alone, is stored in the node itself.
///
/// Names are not stored, so the caller must compare the name of a record after reading it. If two
/// prefixes have the same hash, they share a node. A prefix lookup may then find Data that is not
/// below the prefix, or miss some.
pub(crate) struct DiskIndex {
    nodes: Nodes,
    segments: Segments,
    len: usize,
    bytes_max: usize,
    cursor: Cursor,
    /// Scratch: the hashes of a name's prefixes.
    path: Vec<u64>,
}

/// The position of a sweep or walk: a node, and an entry of it.
#[derive(Copy, Clone, Default)]
pub(super) struct Cursor {
    node: u32,
    at: NodeEntry,
}

/// A position among the Data of a node, in the order in which they are visited.
#[derive(Copy, Clone, Default)]
enum NodeEntry {
    /// The Data with exactly the node's name.
    #[default]
    Whole,
    /// The first segment from this number on.
    From(u64),
}

impl NodeEntry {
    fn after(key: Key) -> Self {
        match key.segment {
            WHOLE => Self::From(0),
            segment => Self::From(segment + 1),
        }
    }

    /// Whether a walk from here enters the cell of this segment. A cell holds 64 segments.
    fn is_first_of_cell(self, key: Key) -> bool {
        match self {
            Self::Whole => true,
            Self::From(from) => from % 64 == 0 || from / 64 != key.segment / 64,
        }
    }
}

impl DiskIndex {
    /// An empty index without a memory limit.
    pub(crate) fn new() -> Self {
        Self::with_bytes_max(usize::MAX)
    }

    /// An empty index with a memory limit. Only an insertion despite [`DiskIndex::has_room_for`]
    /// can exceed it.
    pub(crate) fn with_bytes_max(bytes_max: usize) -> Self {
        Self {
            nodes: Nodes::new(),
            segments: Segments::new(),
            len: 0,
            bytes_max,
            cursor: Cursor::default(),
            path: Vec::new(),
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Prefixes in the index, including the names of objects.
    pub(crate) fn prefixes(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes of memory that are allocated, including tables.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.nodes.memory_bytes()
            + self.segments.memory_bytes()
            + self.path.capacity() * size_of::<u64>()
    }

    /// Whether inserting `key` stays within the memory limit in the worst case. The object's name
    /// has at most `prefixes` proper prefixes, without the empty one. Memory that a growing table
    /// needs only while it moves counts, too.
    pub(crate) fn has_room_for(&self, key: Key, prefixes: usize) -> bool {
        let growth = self.growth_bytes(key, prefixes);
        self.memory_bytes().saturating_add(growth) <= self.bytes_max
    }

    /// The most bytes that an insertion may add.
    fn growth_bytes(&self, key: Key, prefixes: usize) -> usize {
        let (nodes, content) = match self.nodes.find(key.object) {
            Some(node) => (0, self.nodes.get(node).content),
            None => (prefixes + 1, EMPTY),
        };
        let cells = self.segments.cells();
        let (whole, segments) = self.unpack(content);
        let (other, mut pages) = match key.segment {
            WHOLE => (segments, 0),
            segment => (whole, self.segments.new_pages(segments, segment)),
        };
        if other != EMPTY && content & BOTH == 0 && !cells.has_open(0) {
            pages += 1;
        }
        self.nodes.growth_bytes(nodes)
            + cells.growth_bytes(pages)
            + list_growth_bytes(&self.path, nodes.saturating_sub(self.path.len()))
    }

    /// Prefetches the memory of an object for a later call.
    #[inline]
    pub(crate) fn prefetch(&self, object: u64) {
        self.nodes.prefetch_table(object);
    }

    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<RecordAddress> {
        let node = self.nodes.find(key.object)?;
        let (whole, segments) = self.unpack(self.nodes.get(node).content);
        match key.segment {
            WHOLE => RecordAddress::from_word(whole),
            segment => self.segments.find(segments, segment),
        }
    }

    /// The hashes of the proper prefixes of a Data's name, longest first and without the empty one.
    pub(crate) fn prefixes_of(&self, key: Key) -> impl Iterator<Item = u64> {
        let parent = |node: u32| Some(self.nodes.get(node).parent).filter(|&node| node != ROOT);
        let object = self.nodes.find(key.object);
        let last = match key.segment {
            WHOLE => object.and_then(parent),
            _ => object,
        };
        let path = core::iter::successors(last, move |&node| parent(node));
        path.map(|node| self.nodes.get(node).hash)
    }

    /// Sets the address of `key`'s Data. Returns the former one.
    ///
    /// `path` is called only for a new object. It appends the hashes of all proper prefixes of the
    /// object's name, shortest first and without the empty one.
    pub(crate) fn insert(
        &mut self,
        key: Key,
        address: RecordAddress,
        path: impl FnOnce(&mut Vec<u64>),
    ) -> Option<RecordAddress> {
        let node = match self.nodes.find(key.object) {
            Some(node) => node,
            None => {
                self.path.clear();
                path(&mut self.path);
                self.path.push(key.object);
                self.nodes.find_or_insert(&self.path)
            }
        };
        let content = self.nodes.get(node).content;
        let (whole, segments) = self.unpack(content);
        let (whole, segments, before) = match key.segment {
            WHOLE => (address.to_word(), segments, RecordAddress::from_word(whole)),
            segment => {
                let (segments, before) = self.segments.insert(segments, segment, address);
                (whole, segments, before)
            }
        };
        self.nodes.get_mut(node).content = self.pack(content, whole, segments);
        self.len += usize::from(before.is_none());
        before
    }

    /// Removes `key` if it has this address. Returns whether it had.
    pub(crate) fn remove(&mut self, key: Key, address: RecordAddress) -> bool {
        if self.find(key) != Some(address) {
            return false;
        }
        let Some(node) = self.nodes.find(key.object) else { return false };
        self.remove_from_node(node, key.segment);
        self.nodes.prune(node);
        true
    }

    /// The first wanted Data at or below a prefix, given by its hash; `None` is the empty prefix.
    ///
    /// The order is: Data with exactly this name, its segments in ascending order, then the Data
    /// below its children, newest child first. Takes at most `visits_max` steps, each to another
    /// node or Data.
    pub(crate) fn below(
        &self,
        prefix: Option<u64>,
        visits_max: usize,
        mut is_wanted: impl FnMut(Key, RecordAddress) -> bool,
    ) -> Option<(Key, RecordAddress)> {
        let top = self.top(prefix)?;
        let mut at = top;
        let mut visits = 0;
        loop {
            let mut entry = NodeEntry::Whole;
            while let Some((key, address)) = self.entry(at, entry) {
                visits += 1;
                if visits > visits_max {
                    return None;
                }
                if is_wanted(key, address) {
                    return Some((key, address));
                }
                entry = NodeEntry::after(key);
            }
            at = self.node_after(at, top, &mut visits)?;
            if visits > visits_max {
                return None;
            }
        }
    }

    /// Removes up to `limit` Data at or below a prefix, given by its hash. Returns how many: fewer
    /// than `limit` if none is left.
    pub(crate) fn erase_below(
        &mut self,
        prefix: Option<u64>,
        limit: usize,
        mut erased: impl FnMut(Key, RecordAddress),
    ) -> usize {
        let Some(top) = self.top(prefix) else { return 0 };
        let mut count = 0;
        let mut at = top;
        while count < limit {
            // Remove the node's own Data first, then descend into its first child.
            if let Some((key, address)) = self.entry(at, NodeEntry::Whole) {
                self.remove_from_node(at, key.segment);
                erased(key, address);
                count += 1;
                continue;
            }
            let child = self.nodes.get(at).first_child;
            if child != NONE {
                at = child;
                continue;
            }
            // An empty leaf: remove it, and restart at the top of the subtree.
            self.nodes.prune(at);
            if at == ROOT || self.nodes.get(top).is_vacant() {
                return count;
            }
            at = top;
        }
        self.nodes.prune(at);
        count
    }

    /// Visits the next `steps` Data and removes those for which `keep` returns false. Returns how
    /// many it removed. Each call continues where the last one stopped, and starts again at the
    /// end.
    ///
    /// Each round visits all Data that exists during the whole round. Data that is inserted during
    /// a round may have to wait for the next one. A round also moves cells together, so that pages
    /// of memory can be freed.
    pub(crate) fn sweep(
        &mut self,
        steps: usize,
        mut keep: impl FnMut(Key, RecordAddress) -> bool,
    ) -> usize {
        let mut removed = 0;
        for _ in 0..steps {
            let mut found = self.entry(self.cursor.node, self.cursor.at);
            if found.is_none() && matches!(self.cursor.at, NodeEntry::From(_)) {
                // The end of a node costs no step.
                self.advance();
                found = self.entry(self.cursor.node, self.cursor.at);
            }
            let Some((key, address)) = found else {
                self.advance();
                continue;
            };
            if self.cursor.at.is_first_of_cell(key) {
                self.compact(self.cursor.node, key.segment);
            }
            self.cursor.at = NodeEntry::after(key);
            if !keep(key, address) {
                self.remove_from_node(self.cursor.node, key.segment);
                self.nodes.prune(self.cursor.node);
                removed += 1;
            }
        }
        removed
    }

    /// Visits the next `steps` Data from a cursor on. Returns whether it has reached the end.
    pub(super) fn walk(
        &self,
        cursor: &mut Cursor,
        steps: u32,
        mut visit: impl FnMut(Key, RecordAddress),
    ) -> bool {
        for _ in 0..steps {
            if cursor.node >= self.nodes.slots() {
                return true;
            }
            match self.entry(cursor.node, cursor.at) {
                Some((key, address)) => {
                    visit(key, address);
                    cursor.at = NodeEntry::after(key);
                }
                None => *cursor = Cursor { node: cursor.node + 1, at: NodeEntry::Whole },
            }
        }
        false
    }

    /// Most steps that [`DiskIndex::sweep`] needs for one round: one for each Data, and one for
    /// each prefix slot.
    #[inline]
    pub(crate) fn round_steps(&self) -> usize {
        self.len + self.nodes.slots() as usize
    }

    fn advance(&mut self) {
        let next = self.cursor.node + 1;
        self.cursor =
            Cursor { node: if next < self.nodes.slots() { next } else { 0 }, at: NodeEntry::Whole };
    }

    fn top(&self, prefix: Option<u64>) -> Option<u32> {
        prefix.map_or(Some(ROOT), |hash| self.nodes.find(hash))
    }

    /// The node that follows `at` below `top`. Counts the steps.
    fn node_after(&self, mut at: u32, top: u32, visits: &mut usize) -> Option<u32> {
        *visits += 1;
        let first_child = self.nodes.get(at).first_child;
        if first_child != NONE {
            return Some(first_child);
        }
        while at != top {
            *visits += 1;
            let node = self.nodes.get(at);
            if node.next != NONE {
                return Some(node.next);
            }
            at = node.parent;
        }
        None
    }

    /// The first Data of a node, starting at `from`.
    fn entry(&self, node: u32, from: NodeEntry) -> Option<(Key, RecordAddress)> {
        let node = self.nodes.get(node);
        let (whole, segments) = self.unpack(node.content);
        let first = match from {
            NodeEntry::From(first) => first,
            NodeEntry::Whole => match RecordAddress::from_word(whole) {
                Some(address) => return Some((Key { object: node.hash, segment: WHOLE }, address)),
                None => 0,
            },
        };
        let (segment, address) = self.segments.first_from(segments, first)?;
        Some((Key { object: node.hash, segment }, address))
    }

    /// Removes existing Data from a node, but not the node itself.
    fn remove_from_node(&mut self, node: u32, segment: u64) {
        let content = self.nodes.get(node).content;
        let (whole, segments) = self.unpack(content);
        let (whole, segments) = match segment {
            WHOLE => (EMPTY, segments),
            segment => {
                // A smaller cell may need a new page. If the limit forbids that, the cell stays.
                let page_bytes = self.segments.cells().growth_bytes(1);
                let may_add_page = self.memory_bytes().saturating_add(page_bytes) <= self.bytes_max;
                (whole, self.segments.remove(segments, segment, may_add_page).0)
            }
        };
        self.nodes.get_mut(node).content = self.pack(content, whole, segments);
        self.len -= 1;
    }

    /// Moves the cells on the path to a segment to fuller pages, if there are any.
    fn compact(&mut self, node: u32, segment: u64) {
        let content = self.nodes.get(node).content;
        let (whole, segments) = self.unpack(content);
        let settled = self.segments.compact(segments, segment);
        if settled != segments {
            self.nodes.get_mut(node).content = self.pack(content, whole, settled);
        }
    }

    /// Splits a node's content: the address of Data with exactly its name, and the word of its
    /// segments. [`EMPTY`] stands for none.
    #[inline(always)]
    fn unpack(&self, content: u64) -> (u64, u64) {
        if content & BOTH != 0 {
            let words = self.segments.cells().words(content as u32);
            return (words[0], words[1]);
        }
        if Segments::has_segments(content) { (EMPTY, content) } else { (content, EMPTY) }
    }

    /// The content of a node with these two words. `content` is what the node held before.
    fn pack(&mut self, content: u64, whole: u64, segments: u64) -> u64 {
        let cells = self.segments.cells_mut();
        let has_both = whole != EMPTY && segments != EMPTY;
        if !has_both {
            if content & BOTH != 0 {
                cells.free(content as u32);
            }
            return whole | segments;
        }
        let cell = if content & BOTH != 0 { content as u32 } else { cells.allocate(0) };
        cells.words_mut(cell)[..2].copy_from_slice(&[whole, segments]);
        BOTH | u64::from(cell)
    }
}

impl Default for DiskIndex {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for DiskIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskIndex")
            .field("len", &self.len)
            .field("prefixes", &self.prefixes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
