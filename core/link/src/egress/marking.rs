use weir_base::Instant;

/// When packets are marked for congestion.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MarkingConfig {
    /// Whether any are.
    pub is_on: bool,
    /// Octets waiting (our queue and the socket's) above which marking is armed.
    pub threshold_bytes: u64,
    /// How long the queue must stay above the threshold before the first mark.
    pub interval_ns: u64,
}

/// NFD's marking schedule: the queue must stay above the threshold for one interval, then packets
/// are marked at times that draw closer as `interval / sqrt(n + 1)` after the n-th mark.
#[derive(Debug, Default)]
pub(crate) struct Marking {
    next_mark: Option<Instant>,
    marks: u64,
}

impl Marking {
    /// Whether the packet about to join a queue of `queue_bytes` octets is to be marked.
    pub(crate) fn on_packet(
        &mut self,
        now: Instant,
        queue_bytes: u64,
        config: &MarkingConfig,
    ) -> bool {
        let &MarkingConfig { is_on, threshold_bytes, interval_ns } = config;
        if !is_on || queue_bytes <= threshold_bytes {
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
        self.next_mark = Some(next_mark.plus_ns(shrunk_interval_ns(interval_ns, self.marks)));
        true
    }
}

/// `floor(interval_ns / sqrt(marks + 1))` in integers, the same on every machine.
fn shrunk_interval_ns(interval_ns: u64, marks: u64) -> u64 {
    let squared = u128::from(interval_ns) * u128::from(interval_ns);
    let root = (squared / (u128::from(marks) + 1)).isqrt();
    u64::try_from(root).expect("not above interval_ns")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn intervals_shrink_with_the_root_of_the_marks() {
        assert_eq!(shrunk_interval_ns(100_000_000, 0), 100_000_000);
        assert_eq!(shrunk_interval_ns(100_000_000, 1), 70_710_678);
        assert_eq!(shrunk_interval_ns(100_000_000, 3), 50_000_000);
        assert_eq!(shrunk_interval_ns(u64::MAX, 0), u64::MAX);
    }

    proptest! {
        /// Against the schedule written down directly: when the queue rose above the threshold, and
        /// the times at which marks are due from then on, summed in floating point.
        #[test]
        fn follows_the_plain_model(
            packets in prop::collection::vec((0u64..40_000_000, 0u64..2000), 1..400),
        ) {
            const INTERVAL_NS: u64 = 100_000_000;
            let config =
                MarkingConfig { is_on: true, threshold_bytes: 40, interval_ns: INTERVAL_NS };
            let mut marking = Marking::default();
            let mut now_ns = 0;
            let mut due_ns: Vec<f64> = Vec::new();
            for (gap_ns, queue_bytes) in packets {
                now_ns += gap_ns;
                let marked = marking.on_packet(Instant::from_ns(now_ns), queue_bytes, &config);
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
