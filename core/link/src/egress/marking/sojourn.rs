use weir_base::Instant;

/// The span of time is divided into this many buckets.
const BUCKETS: usize = 8;

/// Whether the oldest packet of a queue has waited longer than a span of time.
///
/// A link does not learn when a frame leaves its socket; it knows only how many bytes wait there.
/// But the queue is served in order. If more bytes wait than have joined within the span, the
/// oldest byte has waited longer than the span. Otherwise it has not.
#[derive(Debug)]
pub struct Sojourn {
    bucket_ns: u64,
    /// The number of the newest bucket since time 0.
    newest: u64,
    bytes: [u64; BUCKETS],
    sum_bytes: u64,
    packet_bytes_max: u64,
}

impl Sojourn {
    /// For a span of `span_ns`. Bytes that joined up to a seventh of it earlier also count.
    pub fn new(span_ns: u64) -> Self {
        let part_ns = span_ns.div_ceil(BUCKETS as u64 - 1).max(1);
        Self {
            bucket_ns: part_ns,
            newest: 0,
            bytes: [0; BUCKETS],
            sum_bytes: 0,
            packet_bytes_max: 0,
        }
    }

    /// Whether the oldest of `queue_bytes` has waited longer than the span, and more than one
    /// packet waits. A packet in transmission is not a queue, however long that takes (RFC 8289,
    /// 5.4).
    pub fn is_late(&mut self, now: Instant, queue_bytes: u64) -> bool {
        self.advance(now);
        queue_bytes > self.sum_bytes && queue_bytes > self.packet_bytes_max
    }

    /// A packet joins the queue. Its size has the same unit as that of the queue.
    pub fn add(&mut self, now: Instant, packet_bytes: u64) {
        self.advance(now);
        self.bytes[self.newest as usize % BUCKETS] += packet_bytes;
        self.sum_bytes += packet_bytes;
        self.packet_bytes_max = self.packet_bytes_max.max(packet_bytes);
    }

    fn advance(&mut self, now: Instant) {
        let part = now.as_ns() / self.bucket_ns;
        let passed = part.saturating_sub(self.newest).min(BUCKETS as u64);
        self.newest = self.newest.max(part);
        for ago in 0..passed {
            let forgotten = &mut self.bytes[(self.newest - ago) as usize % BUCKETS];
            self.sum_bytes -= core::mem::take(forgotten);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Compares with a queue that records the arrival of each packet and is served at a
        /// changing rate.
        #[test]
        fn detects_late_oldest_byte(
            packets in prop::collection::vec((0u64..3_000, 1u64..2_000, 0u64..6_000), 1..300),
            span_us in 1u64..20_000,
        ) {
            let mut sojourn = Sojourn::new(span_us * 1000);
            let mut queue: VecDeque<(u64, u64)> = VecDeque::new();
            let (mut now_ns, mut packet_bytes_max) = (0, 0);
            for (gap_us, joining_bytes, mut served_bytes) in packets {
                now_ns += gap_us * 1000;
                while let Some((_, bytes)) = queue.front_mut().filter(|_| served_bytes > 0) {
                    let part = served_bytes.min(*bytes);
                    (*bytes, served_bytes) = (*bytes - part, served_bytes - part);
                    if *bytes == 0 {
                        queue.pop_front();
                    }
                }
                let waiting = queue.iter().map(|(_, bytes)| bytes).sum();
                let waited_ns = queue.front().map_or(0, |(since, _)| now_ns - since);
                let is_late = sojourn.is_late(Instant::from_ns(now_ns), waiting);
                sojourn.add(Instant::from_ns(now_ns), joining_bytes);
                // Between the span and a bucket more, either answer is right.
                let span_ns = span_us * 1000;
                if waited_ns <= span_ns {
                    prop_assert!(!is_late);
                } else if waited_ns > span_ns.div_ceil(7) * 8 {
                    prop_assert_eq!(is_late, waiting > packet_bytes_max);
                }
                packet_bytes_max = packet_bytes_max.max(joining_bytes);
                queue.push_back((now_ns, joining_bytes));
            }
        }
    }
}
