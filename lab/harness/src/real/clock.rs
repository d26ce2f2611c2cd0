//! The clock that all processes of a run share.

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of the machine's monotonic clock, the same in every process.
pub(super) fn monotonic_ns() -> u64 {
    // The clock exists on every system that this runs on.
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a monotonic clock");
    time.tv_sec() as u64 * weir_base::NS_PER_S + time.tv_nsec() as u64
}
