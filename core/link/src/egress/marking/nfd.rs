use weir_base::Instant;
use weir_wire::CongestionMark;

use super::marker::{Marker, QueueArrival, interval_by_root};

/// NFD's marking schedule. The queue must stay above the threshold for one interval. Then packets
/// are marked at ever shorter intervals: `interval / sqrt(n + 1)` after the n-th mark.
#[derive(Debug, Default)]
pub(crate) struct Nfd {
    next_mark: Option<Instant>,
    marks: u64,
}

impl Marker for Nfd {
    #[inline]
    fn mark_value(&self) -> CongestionMark {
        CongestionMark::SPARSE
    }

    #[inline]
    fn must_mark(&mut self, joining: &QueueArrival) -> bool {
        let &QueueArrival { now, queue_bytes, threshold_bytes, interval_ns, .. } = joining;
        if queue_bytes <= threshold_bytes {
            *self = Self::default();
            return false;
        }
        let Some(next_mark) = self.next_mark else {
            self.next_mark = Some(now.plus_ns(interval_ns));
            return false;
        };
        if now < next_mark {
            return false;
        }
        self.marks += 1;
        self.next_mark = Some(next_mark.plus_ns(interval_by_root(interval_ns, self.marks + 1)));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        /// Compares with a direct model of the schedule: when the queue rose above the threshold,
        /// and the times of the following marks, summed in floating point.
        #[test]
        fn follows_the_plain_model(
            packets in prop::collection::vec((0u64..40_000_000, 0u64..2000), 1..400),
        ) {
            const INTERVAL_NS: u64 = 100_000_000;
            let mut marking = Nfd::default();
            let mut now_ns = 0;
            let mut due_ns: Vec<f64> = Vec::new();
            for (gap_ns, queue_bytes) in packets {
                now_ns += gap_ns;
                let marked = marking.must_mark(&QueueArrival {
                    now: Instant::from_ns(now_ns),
                    is_data: true,
                    queue_bytes,
                    threshold_bytes: 40,
                    interval_ns: INTERVAL_NS,
                });
                if queue_bytes <= 40 {
                    due_ns.clear();
                    prop_assert!(!marked);
                    continue;
                }
                let Some(&last_ns) = due_ns.last() else {
                    due_ns.push((now_ns + INTERVAL_NS) as f64);
                    prop_assert!(!marked);
                    continue;
                };
                if (now_ns as f64 - last_ns).abs() > 1000.0 {
                    prop_assert_eq!(marked, now_ns as f64 > last_ns);
                }
                if marked {
                    due_ns.push(last_ns + INTERVAL_NS as f64 / ((due_ns.len() + 1) as f64).sqrt());
                }
            }
        }
    }
}
