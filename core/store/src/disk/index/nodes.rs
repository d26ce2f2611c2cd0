use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use weir_base::Table;

pub(super) const NONE: u32 = u32::MAX;
/// Marks a vacant slot in its `parent` field.
const VACANT: u32 = u32::MAX - 1;
/// The node of the empty name. It always exists.
pub(super) const ROOT: u32 = 0;
const PAGE_NODES: usize = 1024;

/// A prefix of stored names, identified by its keyed hash. It has Data or a child, or is the root.
#[repr(align(32))]
#[derive(Copy, Clone)]
pub(super) struct Node {
    pub(super) hash: u64,
    /// The address of its Data, or a word of `Segments` or `DiskIndex` with marks; 0 if it has no
    /// Data.
    pub(super) content: u64,
    pub(super) parent: u32,
    pub(super) first_child: u32,
    /// Neighbours among the children of `parent`, newest first. For a vacant slot, the next vacant
    /// one.
    pub(super) next: u32,
    previous: u32,
}

impl Node {
    fn new(hash: u64, parent: u32) -> Self {
        Self { hash, content: 0, parent, first_child: NONE, next: NONE, previous: NONE }
    }

    pub(super) fn is_vacant(&self) -> bool {
        self.parent == VACANT
    }
}

/// The most additional bytes that a vector may need while `entries` are added. The new buffer
/// counts in full, because the vector may copy the old one while both exist.
pub(super) fn list_growth_bytes<T>(list: &Vec<T>, entries: usize) -> usize {
    let (len, capacity) = (list.len() + entries, list.capacity());
    if len <= capacity { 0 } else { len.max(2 * capacity).max(4) * size_of::<T>() }
}

/// The tree of name prefixes, in pages that are never moved or freed.
///
/// No two nodes have the same hash. If two prefixes share a hash, they share the node, below the
/// parent of the first one. Each node is created below an existing one, so the structure remains a
/// tree.
pub(super) struct Nodes {
    pages: Vec<Box<[Node]>>,
    /// Slots that have ever held a node.
    slots: u32,
    /// The first vacant slot, or [`NONE`].
    vacant: u32,
    table: Table,
}

impl Nodes {
    pub(super) fn new() -> Self {
        let mut nodes =
            Self { pages: Vec::new(), slots: 0, vacant: NONE, table: Table::with_capacity(0) };
        nodes.allocate(Node::new(0, NONE));
        nodes
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.pages.len() * PAGE_NODES * size_of::<Node>()
            + self.pages.capacity() * size_of::<Box<[Node]>>()
            + self.table.memory_bytes()
    }

    /// The most additional bytes that adding `nodes` nodes may need.
    pub(super) fn growth_bytes(&self, nodes: usize) -> usize {
        // One slot is the root's.
        let room = self.pages.len() * PAGE_NODES - 1 - self.len();
        let pages = nodes.saturating_sub(room).div_ceil(PAGE_NODES);
        pages * PAGE_NODES * size_of::<Node>()
            + list_growth_bytes(&self.pages, pages)
            + self.table.growth_bytes(nodes)
    }

    /// The number of nodes without the root.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    #[inline(always)]
    pub(super) fn get(&self, node: u32) -> &Node {
        &self.pages[node as usize / PAGE_NODES][node as usize % PAGE_NODES]
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, node: u32) -> &mut Node {
        &mut self.pages[node as usize / PAGE_NODES][node as usize % PAGE_NODES]
    }

    #[inline]
    pub(super) fn find(&self, hash: u64) -> Option<u32> {
        self.table.find(hash, |node| self.get(node).hash == hash)
    }

    #[inline(always)]
    pub(super) fn prefetch_table(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    /// The last node on this path of hashes from the root down. Creates it and its ancestors if
    /// needed.
    pub(super) fn find_or_insert(&mut self, path: &[u64]) -> u32 {
        let known = path.iter().enumerate().rev();
        let nearest = known.filter_map(|(at, &hash)| Some((at + 1, self.find(hash)?))).next();
        let (from, mut node) = nearest.unwrap_or((0, ROOT));
        for (at, hash) in path.iter().enumerate().skip(from) {
            // A path may contain the same hash twice. Only the last occurrence counts, or the nodes
            // between would have neither Data nor children.
            if !path[at + 1..].contains(hash) {
                node = self.insert(*hash, node);
            }
        }
        node
    }

    fn insert(&mut self, hash: u64, parent: u32) -> u32 {
        let node = self.allocate(Node::new(hash, parent));
        let sibling = core::mem::replace(&mut self.get_mut(parent).first_child, node);
        if sibling != NONE {
            self.get_mut(node).next = sibling;
            self.get_mut(sibling).previous = node;
        }
        self.table.insert(hash, node);
        node
    }

    fn allocate(&mut self, node: Node) -> u32 {
        let number = self.vacant;
        if number != NONE {
            self.vacant = core::mem::replace(self.get_mut(number), node).next;
            return number;
        }
        assert!(self.slots < VACANT, "the index holds fewer than 2^32 prefixes");
        if self.slots as usize == self.pages.len() * PAGE_NODES {
            self.pages.push(vec![Node::new(0, VACANT); PAGE_NODES].into_boxed_slice());
        }
        let number = self.slots;
        self.slots += 1;
        *self.get_mut(number) = node;
        number
    }

    /// Removes a node without Data and children, then its ancestors that have become such nodes.
    pub(super) fn prune(&mut self, mut at: u32) {
        loop {
            let node = *self.get(at);
            if at == ROOT || node.content != 0 || node.first_child != NONE {
                return;
            }
            self.table.remove(node.hash, at);
            if node.next != NONE {
                self.get_mut(node.next).previous = node.previous;
            }
            match node.previous {
                NONE => self.get_mut(node.parent).first_child = node.next,
                previous => self.get_mut(previous).next = node.next,
            }
            let vacant = core::mem::replace(&mut self.vacant, at);
            *self.get_mut(at) = Node { next: vacant, ..Node::new(0, VACANT) };
            at = node.parent;
        }
    }
}
