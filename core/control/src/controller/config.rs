//! The configuration of a controller.

use alloc::vec::Vec;

use weir_base::NS_PER_S;

use crate::placement::Placement;

/// The configuration of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerConfig {
    /// A router that does not report for this long is lost.
    pub router_timeout_ns: u64,
    pub placement: Placement,
    /// Whether routers fetch their parts of a file while it is read for the first time.
    pub prefetch: bool,
    /// Whether this includes the part that is read first. The paper excludes it. But some of its
    /// segments have passed before there is a plan, and its keeper is nearer to the producer than
    /// the consumer is.
    pub prefetch_first: bool,
    /// Weights for routers among which Interests are spread, the nearest to the consumer first.
    /// Further routers get the last weight. Empty: equal weights.
    pub ratio: Vec<u64>,
    /// Whether routers get routes to the prefixes that producers have registered at other routers.
    pub routes: bool,
    pub routers_max: usize,
    pub files_max: usize,
    /// Maximum number of objects in the holdings of one router, and of unregistered objects among
    /// them. The excess is ignored.
    pub objects_max: usize,
    pub unregistered_max: usize,
    /// Maximum memory in bytes for the holdings of one router, and of all routers.
    pub holdings_bytes_max: u64,
    pub holdings_total_bytes_max: u64,
    /// (step, remainder): all numbers of this controller leave the remainder when divided by the
    /// step. So two controllers of a network never give the same number.
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
