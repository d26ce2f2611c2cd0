//! What a router knows of its store's disks.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use weir_base::{FaceId, Packet};
use weir_store::disk::{DiskTierConfig, ReadId};
use weir_wire::LpHeader;

use crate::content::adaptive::Adaptive;
use crate::content::busy::{BusyPolicy, StoreIo};
use crate::content::bypass::BypassTimings;
use crate::content::neighbours::Neighbours;
use crate::content::reads::{Reads, Waiter};
use crate::io::NextHop;
use crate::packet::QueueState;

/// What a router knows of its store's disks and of who waits for them. A router without disks has
/// an empty one.
pub(crate) struct DiskState {
    pub(crate) reads: Reads,
    pub(crate) neighbours: Neighbours,
    pub(crate) timings: BypassTimings,
    pub(crate) adaptive: Adaptive,
    /// Reads before a disk from which on Interests go elsewhere if they can.
    pub(crate) threshold: u32,
    /// Scratch: next hops that an Interest may go to instead of waiting.
    pub(crate) hops: Vec<NextHop>,
    /// With [`StoreIo::Blocking`]: Interests that wait for their turn.
    pub(crate) queue: VecDeque<QueuedInterest>,
    /// With [`StoreIo::Blocking`]: the read that everything waits for.
    pub(crate) blocked_on: Option<ReadId>,
    /// Commands to flush that have not been answered.
    pub(crate) flushes: Vec<u64>,
    /// Scratch: who waited for a read that has ended.
    pub(crate) finished: Vec<Waiter>,
}

impl DiskState {
    pub(crate) fn new(busy: &BusyPolicy, disk: Option<&DiskTierConfig>, seed: u64) -> Self {
        Self {
            reads: Reads::new(),
            neighbours: Neighbours::new(busy.announce_period_ns),
            timings: BypassTimings::default(),
            adaptive: Adaptive::new(seed),
            threshold: disk.map_or(0, |disk| disk.threshold),
            hops: Vec::new(),
            queue: VecDeque::new(),
            blocked_on: None,
            flushes: Vec::new(),
            finished: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked_on.is_some()
    }

    /// What the threshold is compared with where no single disk is meant: Interests before a store
    /// that blocks, reads before the busiest disk of one that does not.
    pub(crate) fn queue_len(&self, io: StoreIo) -> u32 {
        match io {
            StoreIo::Blocking => u32::try_from(self.queue.len()).unwrap_or(u32::MAX),
            StoreIo::Async => self.reads.longest_queue(),
        }
    }
}

/// An Interest that waits before the store.
pub(crate) struct QueuedInterest {
    pub(crate) face: FaceId,
    pub(crate) header: LpHeader,
    pub(crate) packet: Packet,
    pub(crate) queue_state: QueueState,
}
