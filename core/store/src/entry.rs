use core::marker::PhantomData;
use weir_base::{Instant, NS_PER_MS, Packet, Pool, Slab};
use weir_wire::NameView;

/// The index of no entry, node or list.
pub(crate) const NONE: u32 = u32::MAX;

/// Bytes that an entry costs in addition to its packet: the entry itself, its slot on the slab's
/// list of vacant slots, and its source. Table and ghost list add 20 and 16 bytes when they are
/// emptiest.
pub const ENTRY_BYTES: u64 = size_of::<Option<Entry>>() as u64 + 4 + 4 + 20 + 16;

/// A stored Data packet: one cache line, without the packet itself.
#[repr(align(64))]
pub(crate) struct Entry {
    /// The whole Data TLV.
    pub(crate) packet: Packet,
    pub(crate) fresh_until: Instant,
    pub(crate) hash: u64,
    /// FreshnessPeriod, at most 49 days. `fresh_until` lies this far after the arrival of the Data.
    pub(crate) freshness_ms: u32,
    /// The node of the name without its last component.
    pub(crate) node: u32,
    pub(crate) sibling_links: Links,
    pub(crate) policy_links: Links,
    /// State of the eviction policy, such as a use count. For a pinned entry, the number of its
    /// rule.
    pub(crate) policy_state: u32,
    /// Offset in the packet of the first name component: behind two TLV headers of at most four
    /// bytes each.
    pub(crate) name_offset: u8,
    /// [`USED`], [`PINNED`], [`UNVERIFIED`], [`NACK`] and [`EVICT_FIRST`].
    pub(crate) flags: u8,
    pub(crate) name_len: u16,
}

/// Flag: the entry was used since it was inserted.
pub(crate) const USED: u8 = 1;
/// Flag: a rule keeps the entry, so no policy may evict it. `policy_state` holds the rule's number.
pub(crate) const PINNED: u8 = 2;
/// Flag: a record of the same name on disk may hold other Data, and no fingerprint is kept to
/// compare the two. The disk must not answer for this name before the entry was written.
pub(crate) const UNVERIFIED: u8 = 4;
/// Flag: the Data is of ContentType Nack: the producer says that it has no such Data. It answers
/// only while it is fresh.
pub(crate) const NACK: u8 = 8;
/// Flag: a command has asked to evict this Data before any other. It is in a list of its own, and
/// is not written to a disk.
pub(crate) const EVICT_FIRST: u8 = 16;

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

    /// Whether the entry may answer an Interest now.
    #[inline]
    pub(crate) fn is_fresh_enough(&self, now: Instant, must_be_fresh: bool) -> bool {
        !(must_be_fresh || self.flags & NACK != 0) || self.is_fresh(now)
    }

    /// When the Data last arrived.
    #[inline]
    pub(crate) fn arrived_at(&self) -> Instant {
        let freshness_ns = u64::from(self.freshness_ms) * NS_PER_MS;
        Instant::from_ns(self.fresh_until.as_ns().saturating_sub(freshness_ns))
    }

    /// Whether `prefix` is a prefix of the name, or equal to it.
    #[inline]
    pub(crate) fn is_below(&self, prefix: NameView<'_>) -> bool {
        self.name_value().starts_with(prefix.value())
    }

    /// Bytes of memory for the entry, including its packet.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> u64 {
        entry_bytes(self.packet.len())
    }
}

/// Bytes of memory for an entry with a packet of `packet_len` bytes.
#[inline]
pub(crate) fn entry_bytes(packet_len: usize) -> u64 {
    Pool::footprint(packet_len) as u64 + ENTRY_BYTES
}

/// The neighbours of an entry in a doubly linked list.
#[derive(Copy, Clone)]
pub(crate) struct Links {
    pub(crate) next: u32,
    pub(crate) previous: u32,
}

impl Links {
    pub(crate) const NONE: Self = Self { next: NONE, previous: NONE };
}

/// Selects which of an entry's two sets of links a list uses.
pub(crate) trait LinkField {
    fn links(entry: &mut Entry) -> &mut Links;
}

/// Links of the list of Data below one node of the prefix tree.
pub(crate) struct SiblingLinks;

impl LinkField for SiblingLinks {
    #[inline(always)]
    fn links(entry: &mut Entry) -> &mut Links {
        &mut entry.sibling_links
    }
}

/// Links of a list of the eviction policy, or of the list of pinned entries.
pub(crate) struct PolicyLinks;

impl LinkField for PolicyLinks {
    #[inline(always)]
    fn links(entry: &mut Entry) -> &mut Links {
        &mut entry.policy_links
    }
}

/// A list of entries, linked through the entries themselves: it allocates nothing.
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
