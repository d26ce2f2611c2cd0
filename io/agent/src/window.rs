//! How many Interests may be under way that nobody waits for: fewer as soon as others wait behind
//! them (as LEDBAT, RFC 6817).

use std::time::Duration;

/// Delay beyond the shortest that is caused at most.
const TARGET: Duration = Duration::from_millis(15);
const FIRST: f64 = 4.0;
const MAX: f64 = 64.0;

/// A window that gives way.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    size: f64,
    shortest: Option<Duration>,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self { size: FIRST, shortest: None }
    }

    /// Interests that may be under way.
    pub(crate) fn size(&self) -> usize {
        self.size as usize
    }

    /// An answer took so long.
    pub(crate) fn on_answer(&mut self, round_trip: Duration) {
        let shortest = self.shortest.map_or(round_trip, |shortest| shortest.min(round_trip));
        self.shortest = Some(shortest);
        let waited = (round_trip - shortest).as_secs_f64() / TARGET.as_secs_f64();
        // Down at most as fast as up.
        let step = (1.0 - waited).max(-1.0) / self.size;
        self.size = (self.size + step).clamp(1.0, MAX);
    }

    /// Something was lost or refused.
    pub(crate) fn on_loss(&mut self) {
        self.size = (self.size / 2.0).max(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_while_nobody_waits_and_gives_way() {
        let mut window = Window::new();
        for _ in 0..5000 {
            window.on_answer(Duration::from_millis(20));
        }
        assert_eq!(window.size(), MAX as usize);
        // Others fill the queue: 100 ms more.
        for _ in 0..5000 {
            window.on_answer(Duration::from_millis(120));
        }
        assert_eq!(window.size(), 1);
        let mut window = Window::new();
        window.on_loss();
        assert_eq!(window.size(), 2);
        (0..9).for_each(|_| window.on_loss());
        assert_eq!(window.size(), 1);
    }
}
