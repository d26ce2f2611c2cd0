use weir_base::Instant;
use weir_wire::CongestionMark;

use crate::order::OutOfOrder;

/// A packet that is about to join a queue, and what waits there.
pub(crate) struct Joining {
    pub(crate) now: Instant,
    pub(crate) is_data: bool,
    /// Octets on the wire that wait before it, those in the socket included.
    pub(crate) queue_bytes: u64,
    /// See [`MarkingConfig::threshold_bytes`](super::MarkingConfig::threshold_bytes).
    pub(crate) threshold_bytes: u64,
    /// See [`MarkingConfig::interval_ns`](super::MarkingConfig::interval_ns).
    pub(crate) interval_ns: u64,
}

/// Which packets of one face are marked for congestion.
///
/// It sees each packet when it joins the queue, which is the last time that the link can write into
/// its header.
pub(crate) trait Policy {
    /// What can be chosen; the default is used when a configuration names the policy alone.
    type Options: Default;

    /// What its marks mean to a consumer.
    const MARK: CongestionMark;

    /// A policy for a queue of `capacity_bytes` octets, whose draws, if it has any, follow from
    /// `seed`.
    fn new(options: &Self::Options, capacity_bytes: u64, seed: u64) -> Self;

    /// Sets option `key` of the text form to `value`. False: there is no such option, or the value
    /// is none that it may have.
    fn set(_options: &mut Self::Options, _key: &str, _value: &str) -> bool {
        false
    }

    /// Whether no two options contradict each other, before a queue that holds `capacity_bytes`,
    /// if that is known.
    fn check(_options: &Self::Options, _capacity_bytes: Option<u64>) -> Result<(), OutOfOrder> {
        Ok(())
    }

    /// Whether the packet is to be marked.
    fn marks(&mut self, joining: &Joining) -> bool;

    /// The packet has joined the queue, in frames of so many octets in all.
    fn joined(&mut self, _now: Instant, _wire_bytes: u64) {}
}

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
