//! Which Data lies where on the disks, a few octets for each.

mod cells;
mod nodes;
mod segments;

use super::address::{Key, RecordAddress, WHOLE};
use alloc::vec::Vec;
use core::fmt;
use nodes::{NONE, Nodes, ROOT, list_growth_bytes};
use segments::{EMPTY, Segments};

/// Marks the number of a cell with two words: the place of the Data of the node's very name, and
/// its segments.
const BOTH: u64 = 1 << 63;

/// Where all Data on the disks is, by name and by prefix.
///
/// There is a node of 32 octets for each prefix of a name, the object's name included, beside its
/// share of the table of hashes. The places of segments are in a radix tree for each object, 8.4
/// octets a segment where segments follow one another. Data without a segment number, or with
/// number 0 alone, lies in the node itself.
///
/// Names are not kept: whoever finds something here compares the name of what is read. Two prefixes
/// of one hash share a node, and then lookups by prefix may find what is not below it, or miss
/// something.
pub(crate) struct DiskIndex {
    nodes: Nodes,
    segments: Segments,
    len: usize,
    bytes_max: usize,
    cursor: Cursor,
    /// Scratch: the hashes of a name's prefixes.
    path: Vec<u64>,
}

/// Where a sweep or a walk goes on: at what of which node.
#[derive(Copy, Clone, Default)]
pub(super) struct Cursor {
    node: u32,
    at: NodeEntry,
}

/// Data of a node. In this order they are found.
#[derive(Copy, Clone, Default)]
enum NodeEntry {
    /// That of the very name.
    #[default]
    Whole,
    /// The first from this segment on.
    From(u64),
}

impl NodeEntry {
    fn after(key: Key) -> Self {
        match key.segment {
            WHOLE => Self::From(0),
            segment => Self::From(segment + 1),
        }
    }

    /// Whether a segment is the first of 64 that was found from here on.
    fn is_first_of_cell(self, key: Key) -> bool {
        match self {
            Self::Whole => true,
            Self::From(from) => from % 64 == 0 || from / 64 != key.segment / 64,
        }
    }
}

impl DiskIndex {
    /// An empty index that may take any memory.
    pub(crate) fn new() -> Self {
        Self::with_bytes_max(usize::MAX)
    }

    /// An empty index that does not take more memory than this, unless it is asked to by an
    /// insertion that [`DiskIndex::has_room_for`] says no to.
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

    /// Whether there is none.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Prefixes in the index, names of objects included.
    pub(crate) fn prefixes(&self) -> usize {
        self.nodes.len()
    }

    /// Octets of memory that the index takes: all that is allocated, tables included.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.nodes.memory_bytes()
            + self.segments.memory_bytes()
            + self.path.capacity() * size_of::<u64>()
    }

    /// Whether it may grow as far as the insertion of `key` can make it, if the object's name has
    /// `prefixes` proper prefixes at most, the empty one left out. What is needed only while
    /// something is moved counts.
    pub(crate) fn has_room_for(&self, key: Key, prefixes: usize) -> bool {
        let growth = self.growth_bytes(key, prefixes);
        self.memory_bytes().saturating_add(growth) <= self.bytes_max
    }

    /// Octets beside those that it has that an insertion may need.
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

    /// Asks for the memory of an object, so that a later call does not wait for it.
    #[inline]
    pub(crate) fn prefetch(&self, object: u64) {
        self.nodes.prefetch_table(object);
    }

    /// Where `key`'s Data is.
    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<RecordAddress> {
        let node = self.nodes.find(key.object)?;
        let (whole, segments) = self.unpack(self.nodes.get(node).content);
        match key.segment {
            WHOLE => RecordAddress::from_word(whole),
            segment => self.segments.find(segments, segment),
        }
    }

    /// Says where `key`'s Data is, and returns where it was before.
    ///
    /// `path` is called only when the object is new: it appends the hashes of all proper prefixes
    /// of the object's name but the empty one, shortest first.
    pub(crate) fn insert(
        &mut self,
        key: Key,
        place: RecordAddress,
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
            WHOLE => (place.to_word(), segments, RecordAddress::from_word(whole)),
            segment => {
                let (segments, before) = self.segments.insert(segments, segment, place);
                (whole, segments, before)
            }
        };
        self.nodes.get_mut(node).content = self.pack(content, whole, segments);
        self.len += usize::from(before.is_none());
        before
    }

    /// Removes `key` if it is at `place`. Says whether it was.
    pub(crate) fn remove(&mut self, key: Key, place: RecordAddress) -> bool {
        if self.find(key) != Some(place) {
            return false;
        }
        let Some(node) = self.nodes.find(key.object) else { return false };
        self.remove_from_node(node, key.segment);
        self.nodes.prune(node);
        true
    }

    /// The first wanted Data at or below a prefix, given by its hash; none is the empty prefix.
    ///
    /// The order is: Data of the very name, its segments, lowest first, and what is below its
    /// children, the newest child first. Takes `visits_max` steps at most, from node to node or
    /// Data to Data.
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
            while let Some((key, place)) = self.entry(at, entry) {
                visits += 1;
                if visits > visits_max {
                    return None;
                }
                if is_wanted(key, place) {
                    return Some((key, place));
                }
                entry = NodeEntry::after(key);
            }
            at = self.node_after(at, top, &mut visits)?;
            if visits > visits_max {
                return None;
            }
        }
    }

    /// Removes all Data at or below a prefix, given by its hash, `truncate` at most. Says how many
    /// that were: fewer than `truncate` when none is left.
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
            if let Some((key, place)) = self.entry(at, NodeEntry::Whole) {
                self.remove_from_node(at, key.segment);
                erased(key, place);
                count += 1;
                continue;
            }
            let child = self.nodes.get(at).first_child;
            if child != NONE {
                at = child;
                continue;
            }
            self.nodes.prune(at);
            if at == ROOT || self.nodes.get(top).is_vacant() {
                return count;
            }
            at = top;
        }
        self.nodes.prune(at);
        count
    }

    /// Goes on through all Data from where it stopped, `steps` further, and removes what `keep`
    /// says no to. Behind the last it begins again with the first. Says how many it removed.
    ///
    /// Data that is there all the time comes once in each round. Whatever comes or goes between
    /// the calls does not disturb it; what is new may be left out until the next round. A round
    /// also gathers what is scattered over memory, so that the rest can be given back.
    pub(crate) fn sweep(
        &mut self,
        steps: usize,
        mut keep: impl FnMut(Key, RecordAddress) -> bool,
    ) -> usize {
        let mut removed = 0;
        for _ in 0..steps {
            let mut found = self.entry(self.cursor.node, self.cursor.at);
            if found.is_none() && matches!(self.cursor.at, NodeEntry::From(_)) {
                // What follows the last Data of a node costs no step.
                self.advance();
                found = self.entry(self.cursor.node, self.cursor.at);
            }
            let Some((key, place)) = found else {
                self.advance();
                continue;
            };
            if self.cursor.at.is_first_of_cell(key) {
                self.compact(self.cursor.node, key.segment);
            }
            self.cursor.at = NodeEntry::after(key);
            if !keep(key, place) {
                self.remove_from_node(self.cursor.node, key.segment);
                self.nodes.prune(self.cursor.node);
                removed += 1;
            }
        }
        removed
    }

    /// Goes on through all Data from a place on, `steps` further. Says whether that was the end.
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
                Some((key, place)) => {
                    visit(key, place);
                    cursor.at = NodeEntry::after(key);
                }
                None => *cursor = Cursor { node: cursor.node + 1, at: NodeEntry::Whole },
            }
        }
        false
    }

    /// Steps that [`DiskIndex::sweep`] needs at most to get once around: one for each Data, and one
    /// for each prefix there is or was at once.
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

    /// The node that follows `write_offset` below `top`. Counts its steps.
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

    /// The first Data of a node from `from` on.
    fn entry(&self, node: u32, from: NodeEntry) -> Option<(Key, RecordAddress)> {
        let node = self.nodes.get(node);
        let (whole, segments) = self.unpack(node.content);
        let first = match from {
            NodeEntry::From(first) => first,
            NodeEntry::Whole => match RecordAddress::from_word(whole) {
                Some(place) => return Some((Key { object: node.hash, segment: WHOLE }, place)),
                None => 0,
            },
        };
        let (segment, place) = self.segments.first_from(segments, first)?;
        Some((Key { object: node.hash, segment }, place))
    }

    /// Takes Data out that is there, and leaves the node.
    fn remove_from_node(&mut self, node: u32, segment: u64) {
        let content = self.nodes.get(node).content;
        let (whole, segments) = self.unpack(content);
        let (whole, segments) = match segment {
            WHOLE => (EMPTY, segments),
            segment => {
                let page_bytes = self.segments.cells().growth_bytes(1);
                let may_add_page = self.memory_bytes().saturating_add(page_bytes) <= self.bytes_max;
                (whole, self.segments.remove(segments, segment, may_add_page).0)
            }
        };
        self.nodes.get_mut(node).content = self.pack(content, whole, segments);
        self.len -= 1;
    }

    /// Gives the memory of a segment a better place, if there is one.
    fn compact(&mut self, node: u32, segment: u64) {
        let content = self.nodes.get(node).content;
        let (whole, segments) = self.unpack(content);
        let settled = self.segments.compact(segments, segment);
        if settled != segments {
            self.nodes.get_mut(node).content = self.pack(content, whole, settled);
        }
    }

    /// What a node holds: the place of the Data of its very name, and the word of its segments.
    #[inline(always)]
    fn unpack(&self, content: u64) -> (u64, u64) {
        if content & BOTH != 0 {
            let words = self.segments.cells().words(content as u32);
            return (words[0], words[1]);
        }
        if Segments::has_segments(content) { (EMPTY, content) } else { (content, EMPTY) }
    }

    /// The content of a node that holds these, and held what `content` says.
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
