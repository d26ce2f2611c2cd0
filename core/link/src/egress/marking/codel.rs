use core::fmt;

use weir_base::units::Time;
use weir_base::{Instant, NS_PER_MS};
use weir_wire::CongestionMark;

use super::marker::{Marker, QueueArrival, interval_by_root};
use super::sojourn::Sojourn;
use crate::order::OptionOrderError;

/// A new series of marks continues the last series if the last one ended at most this many
/// intervals ago.
const MEMORY_INTERVALS: u64 = 16;

/// The two times of CoDel.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CoDelOptions {
    /// How long packets may wait without marks, ns.
    pub target_ns: u64,
    /// How long packets must exceed the target before the first mark, ns. It should be about the
    /// longest round trip of the consumers that share the queue.
    pub interval_ns: u64,
}

impl Default for CoDelOptions {
    /// RFC 8289, 4.2 and 4.3.
    fn default() -> Self {
        Self { target_ns: 5 * NS_PER_MS, interval_ns: 100 * NS_PER_MS }
    }
}

impl CoDelOptions {
    /// Sets option `key` of the text form to `value`. Returns false if there is no such option, or
    /// if it cannot have this value.
    pub(super) fn set(&mut self, key: &str, value: &str) -> bool {
        let field = match key {
            "target" => &mut self.target_ns,
            "interval" => &mut self.interval_ns,
            _ => return false,
        };
        // With an interval of 0, every Data packet of a late queue would be marked.
        let time = value.parse().ok().filter(|time: &Time| time.ns > 0);
        time.inspect(|time| *field = time.ns).is_some()
    }

    /// RFC 8289, 4.3: the target must not exceed the interval.
    pub(super) fn check(&self) -> Result<(), OptionOrderError> {
        let time = |ns| Time { ns };
        let &Self { target_ns, interval_ns } = self;
        OptionOrderError::require_not_above(
            ("target", time(target_ns)),
            ("interval", time(interval_ns)),
        )
    }
}

impl fmt::Display for CoDelOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self { target_ns, interval_ns } = self;
        write!(f, "target={} interval={}", Time { ns: target_ns }, Time { ns: interval_ns })
    }
}

/// CoDel (RFC 8289) with marks instead of drops. RFC 8289 checks the queue when a packet leaves. A
/// link does not learn when packets leave, so this type checks when one joins. The criterion is the
/// same: the oldest packet has waited longer than the target.
#[derive(Debug)]
pub(crate) struct CoDel {
    options: CoDelOptions,
    sojourn: Sojourn,
    /// When packets will have been late for a whole interval.
    first_above: Option<Instant>,
    /// Whether a series of marks is in progress. Its marks follow at ever shorter intervals.
    is_marking: bool,
    next_mark: Instant,
    /// Marks of this series, and their number when it began.
    count: u64,
    count_before: u64,
}

impl CoDel {
    pub(super) fn new(options: &CoDelOptions) -> Self {
        Self {
            options: *options,
            sojourn: Sojourn::new(options.target_ns),
            first_above: None,
            is_marking: false,
            next_mark: Instant::ZERO,
            count: 0,
            count_before: 0,
        }
    }

    /// Whether packets have been late for a whole interval.
    fn is_congested(&mut self, now: Instant, is_late: bool) -> bool {
        if !is_late {
            self.first_above = None;
            return false;
        }
        let first_above =
            *self.first_above.get_or_insert_with(|| now.plus_ns(self.options.interval_ns));
        now >= first_above
    }

    fn after(&self, from: Instant) -> Instant {
        from.plus_ns(interval_by_root(self.options.interval_ns, self.count))
    }

    /// Whether Data that joins a congested queue must be marked.
    fn must_mark_data(&mut self, now: Instant) -> bool {
        if self.is_marking {
            if now < self.next_mark {
                return false;
            }
            self.count += 1;
            self.next_mark = self.after(self.next_mark);
            return true;
        }
        self.is_marking = true;
        // A series that soon follows another one begins with its rate (RFC 8289, 5.4).
        let lately = self.count - self.count_before;
        let memory_ns = MEMORY_INTERVALS.saturating_mul(self.options.interval_ns);
        let continues = lately > 1 && now < self.next_mark.plus_ns(memory_ns);
        self.count = if continues { lately } else { 1 };
        self.count_before = self.count;
        self.next_mark = self.after(now);
        true
    }
}

impl Marker for CoDel {
    #[inline]
    fn mark_value(&self) -> CongestionMark {
        CongestionMark::SPARSE
    }

    fn must_mark(&mut self, joining: &QueueArrival) -> bool {
        let &QueueArrival { now, is_data, queue_bytes, .. } = joining;
        let is_late = self.sojourn.is_late(now, queue_bytes);
        if !self.is_congested(now, is_late) {
            self.is_marking = false;
            return false;
        }
        is_data && self.must_mark_data(now)
    }

    fn joined(&mut self, now: Instant, wire_bytes: u64) {
        self.sojourn.add(now, wire_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const MS: u64 = NS_PER_MS;

    fn codel() -> CoDel {
        CoDel::new(&CoDelOptions::default())
    }

    /// A packet of 1,000 bytes joins a queue of `queue_bytes` in each millisecond of
    /// `from_ms..to_ms`. Returns when Data was marked.
    fn offer(codel: &mut CoDel, from_ms: u64, to_ms: u64, queue_bytes: u64) -> Vec<u64> {
        let join = |&ms: &u64| {
            let now = Instant::from_ns(ms * MS);
            let is_data = ms % 2 == 0;
            let joining =
                QueueArrival { now, is_data, queue_bytes, threshold_bytes: 0, interval_ns: 0 };
            let is_marked = codel.must_mark(&joining);
            codel.joined(now, 1000);
            is_marked
        };
        (from_ms..to_ms).filter(join).collect()
    }

    #[test]
    fn marks_start_after_interval_and_accelerate() {
        let mut codel = codel();
        // 5,000 to 6,000 bytes join within the target and a seventh more, so these packets are in
        // time.
        assert_eq!(offer(&mut codel, 0, 1000, 5000), []);
        // Late: the first mark comes after 100 ms, then each `100 ms / sqrt(n)` at the next Data.
        let marks = offer(&mut codel, 1000, 1400, 20_000);
        assert_eq!(marks, [1100, 1200, 1272, 1330, 1380]);
        // In time for a moment: a whole interval must pass again, and the series continues.
        assert_eq!(offer(&mut codel, 1400, 1402, 100), []);
        assert_eq!(offer(&mut codel, 1402, 1600, 20_000), [1502, 1552, 1598]);
        // Long after, a new series begins.
        assert_eq!(offer(&mut codel, 1600, 9000, 100), []);
        assert_eq!(offer(&mut codel, 9000, 9300, 20_000), [9100, 9200, 9272]);
    }

    /// RFC 8289, 5.4: a queue of one packet is never late, however long its transmission takes.
    #[test]
    fn queue_of_one_packet_is_never_late() {
        let mut codel = codel();
        let marks = (0..100).any(|second| {
            let now = Instant::from_ns(second * 1000 * MS);
            codel.joined(now, 8000);
            codel.must_mark(&QueueArrival {
                now,
                is_data: true,
                queue_bytes: 8000,
                threshold_bytes: 0,
                interval_ns: 0,
            })
        });
        assert!(!marks);
    }
}
