//! Minimum and maximum of the recent past, in constant memory.

use weir_base::Instant;

/// Minimum and maximum over at least one span of time, and at most two. A value is forgotten when
/// its span and the following one have ended.
#[derive(Copy, Clone, Debug)]
pub struct WindowedMinMax {
    span_ns: u64,
    began: Instant,
    /// Minimum and maximum of the previous span and of this one.
    previous: Option<(u64, u64)>,
    current: Option<(u64, u64)>,
}

impl WindowedMinMax {
    pub fn new(span_ns: u64) -> Self {
        Self { span_ns, began: Instant::ZERO, previous: None, current: None }
    }

    pub fn add(&mut self, now: Instant, value: u64) {
        if now >= self.began.plus_ns(self.span_ns) {
            // After a long pause nothing is recent.
            let is_recent = now < self.began.plus_ns(2 * self.span_ns);
            self.previous = self.current.take().filter(|_| is_recent);
            self.began = now;
        }
        self.current = join(self.current, Some((value, value)));
    }

    /// Minimum and maximum; `None` before the first value.
    pub fn bounds(&self) -> Option<(u64, u64)> {
        join(self.previous, self.current)
    }
}

fn join(one: Option<(u64, u64)>, other: Option<(u64, u64)>) -> Option<(u64, u64)> {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
        (one, other) => one.or(other),
    }
}
