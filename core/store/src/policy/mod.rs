//! Eviction policies. All go through the links that entries carry, so that none allocates for an
//! entry.

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

/// The order in which Data leaves.
pub(crate) enum Policy {
    Lru(Lru),
    Fifo(Fifo),
    Lfu(Lfu),
    S3Fifo(S3Fifo),
    Parts(Parts),
}

/// Data that needs room.
#[derive(Copy, Clone)]
pub(crate) struct IncomingData<'a> {
    /// The node of the name without its last component, or `NONE`.
    pub(crate) node: u32,
    /// Hash of the whole name.
    pub(crate) hash: u64,
    /// TLV-VALUE of the name.
    pub(crate) name: &'a [u8],
}

impl IncomingData<'_> {
    /// The room is for nothing that is known.
    pub(crate) const NONE: Self = Self { node: NONE, hash: 0, name: &[] };
}

/// Calls the same method of whichever policy it is.
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

    /// An entry leaves for another reason than room.
    #[inline]
    pub(crate) fn on_remove(&mut self, entries: &mut Slab<Entry>, index: u32) {
        each!(self, policy => policy.on_remove(entries, index));
    }

    /// The entry that makes room. The policy knows it no more.
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

    /// The Data that the last victims made room for is none of the policy's.
    #[inline]
    pub(crate) fn on_insert_skipped(&mut self) {
        if let Self::Parts(policy) = self {
            policy.on_insert_skipped();
        }
    }

    /// Whether nothing is left over from room that was made before.
    #[cfg(test)]
    pub(crate) fn is_settled(&self) -> bool {
        !matches!(self, Self::Parts(policy) if !policy.is_settled())
    }

    /// A node begins to stand for an object.
    #[inline]
    pub(crate) fn on_new_object(&mut self, node: u32) {
        if let Self::Parts(policy) = self {
            policy.on_new_object(node);
        }
    }

    /// The entries of which the next victim is likely one, to be prefetched. `NONE` where there is
    /// none.
    #[inline]
    pub(crate) fn candidates(&self) -> [u32; 2] {
        each!(self, policy => policy.candidates())
    }

    /// Asks for the memory that [`Policy::on_insert`] will look at for a name of this hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        match self {
            Self::S3Fifo(policy) => policy.prefetch(hash),
            Self::Parts(policy) => policy.prefetch(hash),
            Self::Lru(_) | Self::Fifo(_) | Self::Lfu(_) => {}
        }
    }
}

/// The number of the segment that an entry's name ends with.
#[inline]
fn segment_of(entry: &Entry) -> Option<u64> {
    segment_at_end(entry.name_value())
}

#[cfg(test)]
mod tests;
