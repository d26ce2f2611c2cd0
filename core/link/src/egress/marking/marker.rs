use alloc::boxed::Box;
use core::fmt;

use weir_base::Instant;
use weir_wire::CongestionMark;

use crate::egress::choice::{ChoiceError, ExternalKind};

/// A packet that is about to join a queue, and the queue that it joins.
pub struct QueueArrival {
    pub now: Instant,
    pub is_data: bool,
    /// Octets on the wire that wait before it, those in the socket included.
    pub queue_bytes: u64,
    /// See [`MarkingConfig::threshold_bytes`](super::MarkingConfig::threshold_bytes).
    pub threshold_bytes: u64,
    /// See [`MarkingConfig::interval_ns`](super::MarkingConfig::interval_ns).
    pub interval_ns: u64,
}

/// Decides which packets of one face are marked for congestion.
///
/// It sees each packet when it joins the queue, which is the last time that the link can write into
/// its header. Other crates may implement it; `weir-baselines` does for REM and for marks at a step
/// of the delay.
pub trait Marker: fmt::Debug + Send {
    /// What its marks mean to a consumer (decision 0016). Always the same.
    fn mark_value(&self) -> CongestionMark;

    /// Whether the packet must be marked.
    fn must_mark(&mut self, joining: &QueueArrival) -> bool;

    /// The packet has joined the queue, in frames of `wire_bytes` octets in all.
    fn joined(&mut self, _now: Instant, _wire_bytes: u64) {}
}

/// The options of a [`Marker`]: makes one for each face.
pub trait MarkerOptions: fmt::Debug + Send + Sync {
    /// Refuses options that contradict each other before a queue that holds `capacity_bytes`; those
    /// that do so before any queue, if that is `None`.
    ///
    /// # Errors
    /// [`ChoiceError::QueuedRead`].
    fn check(&self, _capacity_bytes: Option<u64>) -> Result<(), ChoiceError> {
        Ok(())
    }

    /// A marker for a queue that holds `capacity_bytes`. Its random draws, if it has any, follow
    /// from `seed`.
    fn make(&self, capacity_bytes: u64, seed: u64) -> Box<dyn Marker>;
}

/// A kind of [`Marker`] that text may choose.
pub type MarkerKind = ExternalKind<dyn MarkerOptions>;

/// `floor(interval_ns / sqrt(count))` in integers, the same on every machine; `count` is above 0.
pub(crate) fn interval_by_root(interval_ns: u64, count: u64) -> u64 {
    let squared = u128::from(interval_ns) * u128::from(interval_ns);
    let root = (squared / u128::from(count)).isqrt();
    u64::try_from(root).expect("not above interval_ns")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_shrink_with_the_root_of_the_marks() {
        assert_eq!(interval_by_root(100_000_000, 1), 100_000_000);
        assert_eq!(interval_by_root(100_000_000, 2), 70_710_678);
        assert_eq!(interval_by_root(100_000_000, 4), 50_000_000);
        assert_eq!(interval_by_root(u64::MAX, 1), u64::MAX);
    }
}
