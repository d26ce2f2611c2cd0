//! Eviction policies. All of them use the links inside the entries, so none allocates for an entry.

mod ghost;
mod lfu;
mod parts;
mod recency;
mod s3fifo;

use crate::config::EvictionPolicy;
use crate::disk::segment_at_end;
use crate::entry::{Entry, NONE};
use lfu::Lfu;
use parts::Parts;
use recency::{Fifo, Lru};
use s3fifo::S3Fifo;
use weir_base::Slab;

/// The policy in use, and its lists.
pub(crate) enum Policy {
    Lru(Lru),
    Fifo(Fifo),
    Lfu(Lfu),
    S3Fifo(S3Fifo),
    Parts(Parts),
}

/// Data that needs memory, for which an entry must be evicted.
#[derive(Copy, Clone)]
pub(crate) struct IncomingData<'a> {
    /// The node of its name without the last component, or `NONE`.
    pub(crate) node: u32,
    /// The hash of its whole name.
    pub(crate) hash: u64,
    /// TLV-VALUE of its name.
    pub(crate) name: &'a [u8],
}

impl IncomingData<'_> {
    /// Eviction for no Data in particular.
    pub(crate) const NONE: Self = Self { node: NONE, hash: 0, name: &[] };
}

/// Calls the same method on whichever policy is in use.
macro_rules! each {
    ($policy:expr, $inner:ident => $call:expr) => {
        match $policy {
            Policy::Lru($inner) => $call,
            Policy::Fifo($inner) => $call,
            Policy::Lfu($inner) => $call,
            Policy::S3Fifo($inner) => $call,
            Policy::Parts($inner) => $call,
        }
    };
}

impl Policy {
    pub(crate) fn new(kind: EvictionPolicy) -> Self {
        match kind {
            EvictionPolicy::Lru => Self::Lru(Lru::new()),
            EvictionPolicy::Fifo => Self::Fifo(Fifo::new()),
            EvictionPolicy::Lfu => Self::Lfu(Lfu::new()),
            EvictionPolicy::S3Fifo => Self::S3Fifo(S3Fifo::new()),
            EvictionPolicy::Parts => Self::Parts(Parts::new()),
        }
    }

    #[inline(always)]
    pub(crate) fn on_insert(&mut self, entries: &mut Slab<Entry>, index: u32) {
        each!(self, policy => policy.on_insert(entries, index));
    }

    #[inline]
    pub(crate) fn on_hit(&mut self, entries: &mut Slab<Entry>, index: u32) {
        each!(self, policy => policy.on_hit(entries, index));
    }

    /// Removes an entry for a reason other than lack of memory.
    #[inline]
    pub(crate) fn on_remove(&mut self, entries: &mut Slab<Entry>, index: u32) {
        each!(self, policy => policy.on_remove(entries, index));
    }

    /// Removes and returns the entry to evict.
    #[inline(always)]
    pub(crate) fn take_victim(
        &mut self,
        entries: &mut Slab<Entry>,
        incoming: IncomingData<'_>,
    ) -> Option<u32> {
        match self {
            Self::Lru(policy) => policy.take_victim(entries),
            Self::Fifo(policy) => policy.take_victim(entries),
            Self::Lfu(policy) => policy.take_victim(entries),
            Self::S3Fifo(policy) => policy.take_victim(entries),
            Self::Parts(policy) => policy.take_victim(entries, incoming),
        }
    }

    /// Notes that the Data for which the last victims were evicted was pinned, so `on_insert` will
    /// not be called for it.
    #[inline]
    pub(crate) fn on_insert_skipped(&mut self) {
        if let Self::Parts(policy) = self {
            policy.on_insert_skipped();
        }
    }

    /// Whether no decision for the next insertion is pending.
    #[cfg(test)]
    pub(crate) fn is_settled(&self) -> bool {
        !matches!(self, Self::Parts(policy) if !policy.is_settled())
    }

    /// Notes that a node of the prefix tree now belongs to a new object.
    #[inline]
    pub(crate) fn on_new_object(&mut self, node: u32) {
        if let Self::Parts(policy) = self {
            policy.on_new_object(node);
        }
    }

    /// The entries that are likely to be evicted next, for prefetching. `NONE` fills the array.
    #[inline]
    pub(crate) fn candidates(&self) -> [u32; 2] {
        each!(self, policy => policy.candidates())
    }

    /// Prefetches the memory that [`Policy::on_insert`] will read for a name with this hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        match self {
            Self::S3Fifo(policy) => policy.prefetch(hash),
            Self::Parts(policy) => policy.prefetch(hash),
            Self::Lru(_) | Self::Fifo(_) | Self::Lfu(_) => {}
        }
    }
}

/// The segment number at the end of an entry's name.
#[inline]
fn segment_of(entry: &Entry) -> Option<u64> {
    segment_at_end(entry.name_value())
}

#[cfg(test)]
mod tests;
