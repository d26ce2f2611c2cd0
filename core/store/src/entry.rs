use core::marker::PhantomData;
use weir_base::{Instant, NS_PER_MS, Packet, Pool, Slab};
use weir_wire::NameView;

/// The index that names nothing.
pub(crate) const NONE: u32 = u32::MAX;

/// Octets that an entry costs beside its packet: itself, its place on the slab's list of vacant
/// ones, where it came from, and its share of the table and of the memory of evicted names at
/// their emptiest (20 and 16 octets).
pub const ENTRY_BYTES: u64 = size_of::<Option<Entry>>() as u64 + 4 + 4 + 20 + 16;

/// A stored Data: one cache line, without the packet.
#[repr(align(64))]
pub(crate) struct Entry {
    /// The whole Data TLV.
    pub(crate) packet: Packet,
    pub(crate) fresh_until: Instant,
    /// Hash of the whole name.
    pub(crate) hash: u64,
    /// By which `fresh_until` is after the time when the Data came; 49 days at most.
    pub(crate) freshness_ms: u32,
    /// The node of the name without its last component.
    pub(crate) node: u32,
    pub(crate) sibling_links: Links,
    pub(crate) policy_links: Links,
    /// What the eviction policy remembers.
    pub(crate) policy_state: u32,
    /// Where in the packet the components start: behind two headers of at most four octets each.
    pub(crate) name_offset: u8,
    /// What the disk tier remembers.
    pub(crate) flags: u8,
    pub(crate) name_len: u16,
}

/// In an entry's flags: it was used since it came.
pub(crate) const USED: u8 = 1;
/// In an entry's flags: a rule keeps it, whose number is in the mark.
pub(crate) const PINNED: u8 = 2;
/// In an entry's flags: a record of its name on disk may be other Data, and nothing is kept to
/// compare the two by.
pub(crate) const UNVERIFIED: u8 = 4;
/// In an entry's flags: it is of ContentType Nack, the producer's word that there is no such Data,
/// which counts only as long as it is fresh.
pub(crate) const NACK: u8 = 8;

const _: () = assert!(size_of::<Option<Entry>>() == 64);

impl Entry {
    /// The TLV-VALUE of the name.
    #[inline]
    pub(crate) fn name_value(&self) -> &[u8] {
        let start = usize::from(self.name_offset);
        &self.packet[start..start + usize::from(self.name_len)]
    }

    #[inline]
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        now < self.fresh_until
    }

    /// Whether it answers an Interest at this time.
    #[inline]
    pub(crate) fn is_fresh_enough(&self, now: Instant, must_be_fresh: bool) -> bool {
        !(must_be_fresh || self.flags & NACK != 0) || self.is_fresh(now)
    }

    /// When the Data came to this router, the last time.
    #[inline]
    pub(crate) fn arrived_at(&self) -> Instant {
        let freshness_ns = u64::from(self.freshness_ms) * NS_PER_MS;
        Instant::from_ns(self.fresh_until.as_ns().saturating_sub(freshness_ns))
    }

    /// Whether `prefix` is a prefix of the name, or the name itself.
    #[inline]
    pub(crate) fn is_below(&self, prefix: NameView<'_>) -> bool {
        self.name_value().starts_with(prefix.value())
    }

    /// Octets of memory the entry takes in all.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> u64 {
        entry_bytes(self.packet.len())
    }
}

/// Octets of memory for a Data of `packet_len` octets.
#[inline]
pub(crate) fn entry_bytes(packet_len: usize) -> u64 {
    Pool::footprint(packet_len) as u64 + ENTRY_BYTES
}

/// A place in a doubly linked list of entries.
#[derive(Copy, Clone)]
pub(crate) struct Links {
    pub(crate) next: u32,
    pub(crate) previous: u32,
}

impl Links {
    pub(crate) const NONE: Self = Self { next: NONE, previous: NONE };
}

/// Which of an entry's links a list goes through.
pub(crate) trait LinkField {
    fn links(entry: &mut Entry) -> &mut Links;
}

/// The list of the Data of one node.
pub(crate) struct SiblingLinks;

impl LinkField for SiblingLinks {
    #[inline(always)]
    fn links(entry: &mut Entry) -> &mut Links {
        &mut entry.sibling_links
    }
}

/// A list of the eviction policy.
pub(crate) struct PolicyLinks;

impl LinkField for PolicyLinks {
    #[inline(always)]
    fn links(entry: &mut Entry) -> &mut Links {
        &mut entry.policy_links
    }
}

/// A list of entries, linked through the entries themselves.
pub(crate) struct List<T> {
    head: u32,
    tail: u32,
    through: PhantomData<T>,
}

impl<T: LinkField> List<T> {
    pub(crate) const EMPTY: Self = Self { head: NONE, tail: NONE, through: PhantomData };

    /// The first entry, or [`NONE`].
    #[inline]
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    /// The last entry, or [`NONE`].
    #[inline]
    pub(crate) fn tail(&self) -> u32 {
        self.tail
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    #[inline]
    pub(crate) fn push_back(&mut self, entries: &mut Slab<Entry>, index: u32) {
        *T::links(&mut entries[index]) = Links { next: NONE, previous: self.tail };
        match self.tail {
            NONE => self.head = index,
            tail => T::links(&mut entries[tail]).next = index,
        }
        self.tail = index;
    }

    #[inline]
    pub(crate) fn unlink(&mut self, entries: &mut Slab<Entry>, index: u32) {
        let Links { next, previous } =
            core::mem::replace(T::links(&mut entries[index]), Links::NONE);
        match previous {
            NONE => self.head = next,
            previous => T::links(&mut entries[previous]).next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => T::links(&mut entries[next]).previous = previous,
        }
    }
}
