//! Eviction policies: each a file, all over the links that entries carry, so that none allocates
//! for an entry.

mod fifo;
mod ghost;
mod lfu;
mod lru;
mod s3fifo;

use crate::config::EvictionPolicy;
use crate::entry::Entry;
use fifo::Fifo;
use lfu::Lfu;
use lru::Lru;
use s3fifo::S3Fifo;
use weir_base::Slab;

/// The order in which Data leaves.
pub(crate) enum Policy {
    Lru(Lru),
    Fifo(Fifo),
    Lfu(Lfu),
    S3Fifo(S3Fifo),
}

/// Calls the same method of whichever policy it is.
macro_rules! each {
    ($policy:expr, $inner:ident => $call:expr) => {
        match $policy {
            Policy::Lru($inner) => $call,
            Policy::Fifo($inner) => $call,
            Policy::Lfu($inner) => $call,
            Policy::S3Fifo($inner) => $call,
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
        }
    }

    /// A new entry.
    #[inline]
    pub(crate) fn on_insert(&mut self, entries: &mut Slab<Entry>, index: u32) {
        each!(self, policy => policy.on_insert(entries, index));
    }

    /// An entry was used.
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
    #[inline]
    pub(crate) fn take_victim(&mut self, entries: &mut Slab<Entry>) -> Option<u32> {
        each!(self, policy => policy.take_victim(entries))
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
        if let Self::S3Fifo(policy) = self {
            policy.prefetch(hash);
        }
    }
}

#[cfg(test)]
mod tests;
