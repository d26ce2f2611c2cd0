use crate::entry::{Entry, List, NONE, Siblings};
use alloc::vec::Vec;
use weir_base::{Slab, Table};

/// Octets a node costs: itself, its place on the slab's list of vacant ones, and its share of the
/// table at its emptiest.
pub(crate) const NODE_BYTES: u64 = size_of::<Option<Node>>() as u64 + 4 + 20;

/// A proper prefix of a stored name. Has an entry or a child, or is the root.
///
/// It is known by the keyed hash of the prefix alone. Should two prefixes ever share one, their
/// Data share a node, so whoever walks the tree compares the names of what is found.
pub(crate) struct Node {
    hash: u64,
    parent: u32,
    first_child: u32,
    /// Among the children of `parent`, which are kept newest first.
    next: u32,
    previous: u32,
    /// The Data one component below, in the order they came.
    entries: List<Siblings>,
}

/// The tree of name prefixes, for lookups and erasures by prefix.
///
/// Data of one object have one parent: to add another segment touches the parent's node and the
/// segment before.
pub(crate) struct Tree {
    nodes: Slab<Node>,
    table: Table,
    root: u32,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let mut nodes = Slab::new();
        let root = nodes.insert(Node::new(0, NONE));
        Self { nodes, table: Table::with_capacity(0), root }
    }

    /// The node of the empty name. It always exists.
    #[inline]
    pub(crate) fn root(&self) -> u32 {
        self.root
    }

    /// Nodes beside the root.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    #[inline]
    pub(crate) fn find(&self, hash: u64) -> Option<u32> {
        self.table.find(hash, |index| self.nodes[index].hash == hash)
    }

    #[inline]
    pub(crate) fn prefetch_table(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    #[inline]
    pub(crate) fn prefetch_hash(&self, hash: u64) {
        self.table.for_each_candidate(hash, |index| self.nodes.prefetch(index));
    }

    #[inline]
    pub(crate) fn prefetch_node(&self, node: u32) {
        self.nodes.prefetch(node);
    }

    /// The hash of a node's prefix; none is the empty name.
    pub(crate) fn hash(&self, node: u32) -> Option<u64> {
        (node != self.root).then(|| self.nodes[node].hash)
    }

    /// Appends the hashes of the proper prefixes of a node's prefix but the empty one, and that of
    /// the prefix itself if it is asked for, shortest first.
    pub(crate) fn path(&self, node: u32, with_itself: bool, path: &mut Vec<u64>) {
        let begin = path.len();
        let mut at = match with_itself || node == self.root {
            true => node,
            false => self.nodes[node].parent,
        };
        while at != self.root {
            path.push(self.nodes[at].hash);
            at = self.nodes[at].parent;
        }
        path[begin..].reverse();
    }

    /// The Data of `hash`'s node that came last, or [`NONE`].
    #[inline]
    pub(crate) fn last_entry(&self, hash: u64) -> u32 {
        self.find(hash).map_or(NONE, |node| self.nodes[node].entries.tail())
    }

    /// The deepest node on the path of these prefixes, shortest first, and how many prefixes are
    /// beyond it.
    #[inline]
    pub(crate) fn nearest(&self, prefixes: &[u64]) -> (u32, usize) {
        for (beyond, &hash) in prefixes.iter().rev().enumerate() {
            if let Some(node) = self.find(hash) {
                return (node, beyond);
            }
        }
        (self.root, prefixes.len())
    }

    /// Makes nodes for these prefixes, each below the one before, and returns the last.
    #[inline]
    pub(crate) fn extend(&mut self, nearest: u32, missing: &[u64]) -> u32 {
        let mut parent = nearest;
        for &hash in missing {
            let node = self.nodes.insert(Node::new(hash, parent));
            let sibling = core::mem::replace(&mut self.nodes[parent].first_child, node);
            if sibling != NONE {
                self.nodes[node].next = sibling;
                self.nodes[sibling].previous = node;
            }
            self.table.insert(hash, node);
            parent = node;
        }
        parent
    }

    /// Puts an entry last below its node.
    #[inline]
    pub(crate) fn attach(&mut self, entries: &mut Slab<Entry>, index: u32) {
        let node = entries[index].node;
        self.nodes[node].entries.push_back(entries, index);
    }

    /// Takes an entry out, and the nodes that lead nowhere without it.
    #[inline]
    pub(crate) fn detach(&mut self, entries: &mut Slab<Entry>, index: u32) {
        let mut at = entries[index].node;
        self.nodes[at].entries.unlink(entries, index);
        while at != self.root
            && self.nodes[at].entries.is_empty()
            && self.nodes[at].first_child == NONE
        {
            let node = self.nodes.remove(at);
            self.table.remove(node.hash, at);
            if node.next != NONE {
                self.nodes[node.next].previous = node.previous;
            }
            match node.previous {
                NONE => self.nodes[node.parent].first_child = node.next,
                previous => self.nodes[previous].next = node.next,
            }
            at = node.parent;
        }
    }

    /// The first Data below `top`. Counts the nodes it looks at. Only the root may have none.
    pub(crate) fn first(&self, top: u32, visits: &mut usize) -> Option<u32> {
        let mut at = top;
        loop {
            *visits += 1;
            let node = &self.nodes[at];
            if !node.entries.is_empty() {
                return Some(node.entries.head());
            }
            if node.first_child == NONE {
                return None;
            }
            at = node.first_child;
        }
    }

    /// The Data below `top` that follows `index`: first the Data of a node, then its children,
    /// newest first.
    pub(crate) fn after(
        &self,
        entries: &Slab<Entry>,
        index: u32,
        top: u32,
        visits: &mut usize,
    ) -> Option<u32> {
        let entry = &entries[index];
        *visits += 1;
        if entry.siblings.next != NONE {
            return Some(entry.siblings.next);
        }
        let mut at = entry.node;
        if self.nodes[at].first_child != NONE {
            return self.first(self.nodes[at].first_child, visits);
        }
        while at != top && at != self.root {
            *visits += 1;
            let node = &self.nodes[at];
            if node.next != NONE {
                return self.first(node.next, visits);
            }
            at = node.parent;
        }
        None
    }
}

impl Node {
    fn new(hash: u64, parent: u32) -> Self {
        Self { hash, parent, first_child: NONE, next: NONE, previous: NONE, entries: List::EMPTY }
    }
}
