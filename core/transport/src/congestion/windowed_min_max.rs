//! The least and the greatest value of the recent past, in constant memory.

use weir_base::Instant;

/// Least and greatest value of at least the last span of time, and of two spans at most. A value is
/// forgotten when its span and the one after it have ended.
#[derive(Copy, Clone, Debug)]
pub struct WindowedMinMax {
    span_ns: u64,
    began: Instant,
    /// Least and greatest of the span before this one, and of this one.
    previous: Option<(u64, u64)>,
    current: Option<(u64, u64)>,
}

impl WindowedMinMax {
    pub fn new(span_ns: u64) -> Self {
        Self { span_ns, began: Instant::ZERO, previous: None, current: None }
    }

    pub fn add(&mut self, now: Instant, value: u64) {
        if now >= self.began.plus_ns(self.span_ns) {
            // After a long silence nothing of the past is recent.
            let is_recent = now < self.began.plus_ns(2 * self.span_ns);
            self.previous = self.current.take().filter(|_| is_recent);
            self.began = now;
        }
        self.current = join(self.current, Some((value, value)));
    }

    /// Least and greatest; `None` before the first value.
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
