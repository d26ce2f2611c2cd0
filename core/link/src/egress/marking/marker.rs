use alloc::boxed::Box;
use core::fmt;

use weir_base::Instant;
use weir_wire::CongestionMark;

use crate::egress::choice::{ChoiceError, ExternalKind};

/// A packet that is about to join a queue, and the state of the queue.
pub struct QueueArrival {
    pub now: Instant,
    pub is_data: bool,
    /// Bytes on the wire that wait ahead of it, including those in the socket.
    pub queue_bytes: u64,
    /// See [`MarkingConfig::threshold_bytes`](super::MarkingConfig::threshold_bytes).
    pub threshold_bytes: u64,
    /// See [`MarkingConfig::interval_ns`](super::MarkingConfig::interval_ns).
    pub interval_ns: u64,
}

/// Decides which packets of one face are marked for congestion.
///
/// A marker decides when a packet joins the queue. Later, the link can no longer change the header.
/// Other crates may implement it; `weir-baselines` has REM, and marks at a step of the delay.
pub trait Marker: fmt::Debug + Send {
    /// The meaning of its marks for a consumer (decision 0016); constant.
    fn mark_value(&self) -> CongestionMark;

    /// Whether the packet must be marked.
    fn must_mark(&mut self, joining: &QueueArrival) -> bool;

    /// The packet has joined the queue in frames of `wire_bytes` bytes in total.
    fn joined(&mut self, _now: Instant, _wire_bytes: u64) {}
}

/// The options of a [`Marker`]. They create one for each face.
pub trait MarkerOptions: fmt::Debug + Send + Sync {
    /// Refuses options that contradict each other for a queue of `capacity_bytes`. With `None`,
    /// refuses options that contradict each other for any queue.
    ///
    /// # Errors
    /// [`ChoiceError::Order`].
    fn check(&self, _capacity_bytes: Option<u64>) -> Result<(), ChoiceError> {
        Ok(())
    }

    /// Creates a marker for a queue of `capacity_bytes`. Its random numbers, if any, are derived
    /// from `seed`.
    fn make(&self, capacity_bytes: u64, seed: u64) -> Box<dyn Marker>;
}

/// A kind of [`Marker`] that text can choose.
pub type MarkerKind = ExternalKind<dyn MarkerOptions>;

/// `floor(interval_ns / sqrt(count))` in integers, so it is the same on every machine. `count` must
/// be above 0.
pub(crate) fn interval_by_root(interval_ns: u64, count: u64) -> u64 {
    let squared = u128::from(interval_ns) * u128::from(interval_ns);
    let root = (squared / u128::from(count)).isqrt();
    u64::try_from(root).expect("not above interval_ns")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_shrink_with_root_of_count() {
        assert_eq!(interval_by_root(100_000_000, 1), 100_000_000);
        assert_eq!(interval_by_root(100_000_000, 2), 70_710_678);
        assert_eq!(interval_by_root(100_000_000, 4), 50_000_000);
        assert_eq!(interval_by_root(u64::MAX, 1), u64::MAX);
    }
}
