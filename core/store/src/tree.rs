use crate::entry::{Entry, List, NONE, SiblingLinks};
use crate::uses::ObjectUses;
use alloc::vec::Vec;
use core::num::NonZeroU8;
use core::ops::Range;
use weir_base::{Instant, Slab, Table};

/// Bytes that a node costs: itself, its slot on the slab's list of vacant slots, and its share of
/// the table when that is emptiest.
pub(crate) const NODE_BYTES: u64 = size_of::<Option<Node>>() as u64 + 4 + 20;

/// A proper prefix of a stored name. It has an entry or a child, or is the root.
///
/// A node knows only the keyed hash of its prefix. If two prefixes share a hash, their Data share a
/// node. So users of the tree must compare names. Only classes do not: such Data counts for the
/// wrong prefix.
///
/// It fills one cache line. Besides the links, the line has counters of the Data directly below, so
/// that a list of objects needs no index of its own.
#[repr(align(64))]
pub(crate) struct Node {
    hash: u64,
    /// An upper bound: no Data below arrived later than this.
    newest_arrival: Instant,
    parent: u32,
    first_child: u32,
    /// Neighbours among the children of `parent`, which are ordered by falling `newest_arrival`.
    next: u32,
    previous: u32,
    /// The Data one component below, in order of arrival.
    entries: List<SiblingLinks>,
    /// The number of these Data.
    packets: u32,
    /// How often memory has answered with these Data, including some that it has evicted since.
    hits: u32,
    /// The bytes of these answers.
    served_bytes: u64,
    /// The time of the last answer, in ticks of 2^[`TICK_BITS`] ns.
    last_hit_ticks: u32,
    /// The class of these Data, see [`Tree::set_classes`].
    class: u8,
    /// Always 1. An `Option<Node>` stores its tag in the other values.
    _tag: NonZeroU8,
}

const _: () = assert!(size_of::<Option<Node>>() == 64);

/// A tick of 134 ms. 32 bits of ticks last 18 years.
const TICK_BITS: u32 = 27;

/// The tree of name prefixes, for lookups and erasures by prefix.
///
/// All segments of an object have the same parent. Adding another one touches only the parent's
/// node and the segment before.
pub(crate) struct Tree {
    nodes: Slab<Node>,
    table: Table,
    root: u32,
    /// The classes of prefixes, by hash.
    classes: Vec<(u64, u8)>,
    /// Nodes in these slots may have the classes of earlier prefixes. All others, and new nodes in
    /// any slot, have their present class.
    unclassified: Range<u32>,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let mut nodes = Slab::new();
        let root = nodes.insert(Node::new(0, NONE, 0));
        let table = Table::with_capacity(0);
        Self { nodes, table, root, classes: Vec::new(), unclassified: 0..0 }
    }

    /// The node of the empty name. It always exists.
    #[inline]
    pub(crate) fn root(&self) -> u32 {
        self.root
    }

    /// The number of nodes without the root.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    #[inline(always)]
    pub(crate) fn find(&self, hash: u64) -> Option<u32> {
        self.table.find(hash, |index| self.nodes[index].hash == hash)
    }

    #[inline]
    pub(crate) fn prefetch_table(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    #[inline]
    pub(crate) fn prefetch_hash(&self, hash: u64) -> Option<u32> {
        let first = self.table.find(hash, |_| true)?;
        self.nodes.prefetch(first);
        Some(first)
    }

    #[inline]
    pub(crate) fn prefetch_node(&self, node: u32) {
        self.nodes.prefetch(node);
    }

    /// The hash of a node's prefix; `None` for the root.
    pub(crate) fn hash(&self, node: u32) -> Option<u64> {
        (node != self.root).then(|| self.nodes[node].hash)
    }

    /// Appends the hashes of the proper prefixes of a node's prefix, shortest first and without the
    /// empty one. Appends that of the prefix itself if `with_itself`.
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

    /// The newest Data of a node, or [`NONE`].
    #[inline]
    pub(crate) fn last_entry(&self, node: u32) -> u32 {
        self.nodes[node].entries.tail()
    }

    /// Finds the deepest existing node among these prefixes, which come shortest first. Also
    /// returns how many of the prefixes lie below it.
    #[inline]
    pub(crate) fn nearest(&self, prefixes: &[u64]) -> (u32, usize) {
        for (beyond, &hash) in prefixes.iter().rev().enumerate() {
            if let Some(node) = self.find(hash) {
                return (node, beyond);
            }
        }
        (self.root, prefixes.len())
    }

    /// Creates a node for each of these prefixes, one below the other. Returns the last.
    #[inline]
    pub(crate) fn extend(&mut self, nearest: u32, missing: &[u64]) -> u32 {
        let mut parent = nearest;
        let mut class = self.present_class(nearest);
        for &hash in missing {
            class = self.own_class(hash).unwrap_or(class);
            let node = self.nodes.insert(Node::new(hash, parent, class));
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

    /// Appends an entry to the list of its node.
    #[inline(always)]
    pub(crate) fn attach(&mut self, entries: &mut Slab<Entry>, index: u32, now: Instant) {
        let node = entries[index].node;
        let parent = &mut self.nodes[node];
        parent.entries.push_back(entries, index);
        parent.packets += 1;
        self.touch(node, now);
    }

    /// Counts an answer with Data of a node. Returns the class of the Data.
    #[inline(always)]
    pub(crate) fn count_hit(&mut self, node: u32, bytes: usize, now: Instant) -> u8 {
        let node = &mut self.nodes[node];
        node.hits = node.hits.saturating_add(1);
        node.served_bytes += bytes as u64;
        node.last_hit_ticks = (now.as_ns() >> TICK_BITS) as u32;
        node.class
    }

    /// Sets the classes of prefixes, given by their hashes, and of Data below none of them. The
    /// class of Data is that of its longest proper prefix with a class.
    ///
    /// The caller must then call [`Tree::classify`] until it returns `false`, and only then this
    /// method again. Until then, existing nodes may have their earlier class. New ones have the
    /// right one.
    pub(crate) fn set_classes(&mut self, others: u8, classes: Vec<(u64, u8)>) {
        self.nodes[self.root].class = others;
        self.classes = classes;
        // The root is in the first slot.
        self.unclassified = self.root + 1..self.nodes.slots();
    }

    /// Gives the nodes in the next `steps` slots their present class. Returns whether any are left.
    pub(crate) fn classify(&mut self, steps: u32) -> bool {
        let to = self.unclassified.start.saturating_add(steps).min(self.unclassified.end);
        while self.unclassified.start < to {
            let node = self.unclassified.start;
            if self.nodes.contains(node) {
                self.nodes[node].class = self.present_class(node);
            }
            self.unclassified.start += 1;
        }
        !self.unclassified.is_empty()
    }

    /// The class of a node according to the prefixes in force. Looks upwards until it finds a node
    /// that is a prefix with a class, or that has its present class.
    #[inline]
    fn present_class(&self, node: u32) -> u8 {
        let mut at = node;
        while self.unclassified.contains(&at) {
            if let Some(class) = self.own_class(self.nodes[at].hash) {
                return class;
            }
            at = self.nodes[at].parent;
        }
        self.nodes[at].class
    }

    #[inline]
    fn own_class(&self, hash: u64) -> Option<u8> {
        self.classes.iter().find(|(prefix, _)| *prefix == hash).map(|&(_, class)| class)
    }

    /// What was counted for the Data of a node.
    pub(crate) fn uses(&self, node: u32) -> ObjectUses {
        let node = &self.nodes[node];
        let last_hit = Instant::from_ns(u64::from(node.last_hit_ticks) << TICK_BITS);
        ObjectUses {
            hits: node.hits.into(),
            served_bytes: node.served_bytes,
            last_use: if node.hits > 0 { last_hit } else { Instant::ZERO },
        }
    }

    /// Counts from zero again.
    pub(crate) fn restart_uses(&mut self, node: u32) {
        let node = &mut self.nodes[node];
        (node.hits, node.served_bytes) = (0, 0);
    }

    /// The number of node slots: every node lies below.
    pub(crate) fn slots(&self) -> u32 {
        self.nodes.slots()
    }

    /// The number of Data directly below the node in a slot; 0 for a vacant slot.
    #[inline]
    pub(crate) fn packets(&self, node: u32) -> u32 {
        self.nodes.get(node).map_or(0, |node| node.packets)
    }

    /// An upper bound: no Data below the node arrived later than this.
    pub(crate) fn newest_arrival(&self, node: u32) -> Instant {
        self.nodes[node].newest_arrival
    }

    /// Makes an entry the newest of its node, since its Data arrived again.
    #[inline]
    pub(crate) fn renew(&mut self, entries: &mut Slab<Entry>, index: u32, now: Instant) {
        let node = entries[index].node;
        let list = &mut self.nodes[node].entries;
        if list.tail() != index {
            list.unlink(entries, index);
            list.push_back(entries, index);
        }
        self.touch(node, now);
    }

    /// Removes an entry, and then each node that has neither an entry nor a child any more.
    #[inline(always)]
    pub(crate) fn detach(&mut self, entries: &mut Slab<Entry>, index: u32) {
        let mut at = entries[index].node;
        self.nodes[at].entries.unlink(entries, index);
        self.nodes[at].packets -= 1;
        // An ancestor may become empty in turn, so continue upwards.
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

    /// Notes that Data below `node` arrived now. Moves the node and its ancestors in front of their
    /// siblings. All packets of a batch have the same time, so all but the first stop immediately.
    #[inline(always)]
    pub(crate) fn touch(&mut self, node: u32, now: Instant) {
        let mut at = node;
        while at != self.root && self.nodes[at].newest_arrival < now {
            self.nodes[at].newest_arrival = now;
            self.move_to_front(at);
            at = self.nodes[at].parent;
        }
    }

    fn move_to_front(&mut self, at: u32) {
        let Node { parent, next, previous, .. } = self.nodes[at];
        if previous == NONE {
            return;
        }
        self.nodes[previous].next = next;
        if next != NONE {
            self.nodes[next].previous = previous;
        }
        let first = core::mem::replace(&mut self.nodes[parent].first_child, at);
        self.nodes[first].previous = at;
        self.nodes[at].next = first;
        self.nodes[at].previous = NONE;
    }

    /// The newest wanted Data below `top`. If several arrived at the same time, the last in name
    /// order. Visits at most `visits_max` nodes and entries.
    ///
    /// Among any Data, the choice depends only on arrival and name. So the best of the answers of
    /// several shards is the answer that one store with all the Data would give.
    pub(crate) fn last_below(
        &self,
        entries: &Slab<Entry>,
        top: u32,
        visits_max: usize,
        is_wanted: impl Fn(&Entry) -> bool,
    ) -> Option<u32> {
        let mut best: Option<(Instant, u32)> = None;
        let mut at = top;
        let mut visits = 0;
        while visits < visits_max {
            visits += 1;
            // Once the best is as new as anything below this node, its older entries need no visit.
            let bound = self.nodes[at].newest_arrival;
            let mut next = self.nodes[at].entries.tail();
            while next != NONE && visits < visits_max {
                let entry = &entries[next];
                let arrived = entry.arrived_at();
                // Entries promoted from a disk may stand behind newer ones, so the list is not
                // strictly in order.
                if best.is_some_and(|(last, _)| arrived < last && last >= bound) {
                    break;
                }
                visits += 1;
                let is_later = best.is_none_or(|(last, index)| {
                    (arrived, entry.name_value()) > (last, entries[index].name_value())
                });
                if is_later && is_wanted(entry) {
                    best = Some((arrived, next));
                }
                next = entry.sibling_links.previous;
            }
            let last = best.map(|(last, _)| last);
            match self.next_of_interest(at, top, last) {
                Some(next) => at = next,
                None => break,
            }
        }
        best.map(|(_, index)| index)
    }

    /// The next node in depth-first order whose Data may have arrived at `last` or later. `None`
    /// for `last` accepts every node.
    fn next_of_interest(&self, at: u32, top: u32, last: Option<Instant>) -> Option<u32> {
        let may_have = |node: u32| {
            node != NONE && last.is_none_or(|last| self.nodes[node].newest_arrival >= last)
        };
        if may_have(self.nodes[at].first_child) {
            return Some(self.nodes[at].first_child);
        }
        let mut at = at;
        while at != top && at != self.root {
            // Siblings are ordered: if this one has nothing new enough, none behind it has.
            if may_have(self.nodes[at].next) {
                return Some(self.nodes[at].next);
            }
            at = self.nodes[at].parent;
        }
        None
    }

    /// The first entry below `top`. Only the root may have none.
    pub(crate) fn first(&self, top: u32) -> Option<u32> {
        let mut at = top;
        loop {
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

    /// The entry after `index` below `top`: first the entries of a node, then its children, newest
    /// first.
    pub(crate) fn after(&self, entries: &Slab<Entry>, index: u32, top: u32) -> Option<u32> {
        let entry = &entries[index];
        if entry.sibling_links.next != NONE {
            return Some(entry.sibling_links.next);
        }
        let mut at = entry.node;
        if self.nodes[at].first_child != NONE {
            return self.first(self.nodes[at].first_child);
        }
        while at != top && at != self.root {
            let node = &self.nodes[at];
            if node.next != NONE {
                return self.first(node.next);
            }
            at = node.parent;
        }
        None
    }
}

impl Node {
    fn new(hash: u64, parent: u32, class: u8) -> Self {
        Self {
            hash,
            newest_arrival: Instant::ZERO,
            parent,
            first_child: NONE,
            next: NONE,
            previous: NONE,
            entries: List::EMPTY,
            packets: 0,
            hits: 0,
            served_bytes: 0,
            last_hit_ticks: 0,
            class,
            _tag: NonZeroU8::MIN,
        }
    }
}
