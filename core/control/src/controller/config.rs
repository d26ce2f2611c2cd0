//! What a controller is started with.

use alloc::vec::Vec;

use weir_base::NS_PER_S;

use crate::placement::Placement;

/// What a controller is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerConfig {
    /// A router that says nothing for this long is gone.
    pub router_timeout_ns: u64,
    pub placement: Placement,
    /// Whether routers fetch their parts of a file while it is read for the first time.
    pub prefetch: bool,
    /// Whether that is so of the part that is read first, too. In the paper it is not; but some of
    /// it has passed before there is a plan, and its keeper is nearer to the producer.
    pub prefetch_first: bool,
    /// In what proportion routers share what several hold, or lead to, the nearest to who asks
    /// first; all further ones as the last. Empty: alike.
    pub ratio: Vec<u64>,
    /// Whether routers get routes to the prefixes that producers have registered at others.
    pub routes: bool,
    pub routers_max: usize,
    pub files_max: usize,
    /// Objects of which one router may tell that it holds something, at most, and of them those
    /// that no producer has registered. What is beyond does not count.
    pub objects_max: usize,
    pub unregistered_max: usize,
    /// Octets of memory that what one router holds may take here, at most, and what all hold.
    pub holdings_bytes_max: u64,
    pub holdings_total_bytes_max: u64,
    /// Its numbers are those that leave the second when divided by the first, so that no two
    /// controllers of a network give one number twice.
    pub numbers: (u64, u64),
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self {
            router_timeout_ns: 15 * NS_PER_S,
            placement: Placement::default(),
            prefetch: true,
            prefetch_first: true,
            ratio: Vec::new(),
            routes: true,
            routers_max: 10_000,
            files_max: 10_000_000,
            objects_max: 1_000_000,
            unregistered_max: 10_000,
            holdings_bytes_max: 64 << 20,
            holdings_total_bytes_max: 1 << 30,
            numbers: (1, 0),
        }
    }
}
