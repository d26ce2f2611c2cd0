//! How many Interests may be outstanding.

use std::str::FromStr;

use weir_base::Instant;
use weir_transport::congestion::{Congestion, Round, Sample, WindowBounds};
use weir_transport::{CongestionControl, Controller};

use super::pending::Entry;
use crate::workload::WorkloadError;

/// Interests outstanding at most.
const WINDOW_MAX: u32 = 1 << 16;

/// A number of Interests that may be outstanding.
pub(super) enum Limit {
    /// Always the same.
    Fixed(u32),
    /// What a controller says.
    Controlled(Box<Controlled>),
}

/// A controller and what it is told of round-trip times.
pub(super) struct Controlled {
    controller: Box<dyn CongestionControl>,
    smoothed_rtt_ns: u64,
    min_rtt_ns: u64,
    /// Signs of congestion count only of Interests sent after this many: those before were on their
    /// way when the window shrank last.
    recovered_after: u64,
}

impl Limit {
    pub(super) fn fixed(window: u32) -> Result<Self, WorkloadError> {
        check(window).map(|()| Self::Fixed(window))
    }

    pub(super) fn controlled(name: &str, window: Option<u32>) -> Result<Self, WorkloadError> {
        let Ok(controller) = Controller::from_str(name) else {
            let known: Vec<String> = Controller::ALL.iter().map(Controller::to_string).collect();
            let problem = format!("is `{name}`; it must be one of {}", known.join(", "));
            return Err(WorkloadError::value("controller", problem));
        };
        window.map_or(Ok(()), check)?;
        Ok(Self::Controlled(Box::new(Controlled {
            controller: controller.make(WindowBounds { initial: window, max: WINDOW_MAX }),
            smoothed_rtt_ns: 0,
            min_rtt_ns: 0,
            recovered_after: 0,
        })))
    }

    /// Interests.
    pub(super) fn window(&self) -> f64 {
        match self {
            Self::Fixed(window) => f64::from(*window),
            Self::Controlled(controlled) => controlled.controller.allowance().window,
        }
    }

    /// Whole Interests.
    pub(super) fn interests(&self) -> usize {
        self.window().max(1.0) as usize
    }

    /// An Interest was answered, when so many were outstanding and so many had been sent.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        entry: &Entry,
        is_marked: bool,
        outstanding: usize,
        sent: u64,
    ) {
        let is_limited = outstanding >= self.interests();
        let Self::Controlled(controlled) = self else { return };
        let rtt_ns = (entry.sends == 1).then(|| now.ns_since(entry.sent_at));
        controlled.learn(rtt_ns);
        if is_marked {
            controlled.congested(now, entry, Congestion::Mark, sent);
            return;
        }
        controlled.controller.on_data(&Sample {
            now,
            rtt_ns,
            smoothed_rtt_ns: controlled.smoothed_rtt_ns,
            min_rtt_ns: controlled.min_rtt_ns,
            sent_order: entry.sequence.saturating_sub(1),
            next_order: sent,
            window_limited: is_limited,
            is_marked: false,
            round: Round::default(),
        });
    }

    /// An Interest was refused because of congestion.
    pub(super) fn refused(&mut self, now: Instant, entry: &Entry, sent: u64) {
        if let Self::Controlled(controlled) = self {
            controlled.congested(now, entry, Congestion::Nack, sent);
        }
    }

    /// An Interest was not answered within its lifetime.
    pub(super) fn timed_out(&mut self, now: Instant, entry: &Entry, sent: u64) {
        let Self::Controlled(controlled) = self else { return };
        if entry.sequence > controlled.recovered_after {
            controlled.recovered_after = sent;
            controlled.controller.on_timeout(now);
        }
    }
}

impl Controlled {
    fn learn(&mut self, rtt_ns: Option<u64>) {
        let Some(rtt_ns) = rtt_ns else { return };
        let is_first = self.min_rtt_ns == 0;
        self.min_rtt_ns = if is_first { rtt_ns } else { self.min_rtt_ns.min(rtt_ns) };
        self.smoothed_rtt_ns =
            if is_first { rtt_ns } else { self.smoothed_rtt_ns / 8 * 7 + rtt_ns / 8 };
    }

    fn congested(&mut self, now: Instant, entry: &Entry, cause: Congestion, sent: u64) {
        if entry.sequence > self.recovered_after {
            self.recovered_after = sent;
            self.controller.on_congestion(now, cause);
        }
    }
}

impl std::fmt::Debug for Limit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Limit").field("window", &self.window()).finish_non_exhaustive()
    }
}

fn check(window: u32) -> Result<(), WorkloadError> {
    if (1..=WINDOW_MAX).contains(&window) {
        return Ok(());
    }
    let problem = format!("is {window}; it must be from 1 to {WINDOW_MAX}");
    Err(WorkloadError::value("window", problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The `sequence`th Interest, which left at the start.
    fn entry(sequence: u64) -> Entry {
        let sent_at = Instant::ZERO;
        let (object, segment, owner, nonce, sends) = (0, 0, 0, 0, 1);
        Entry { object, segment, owner, sent_at, nonce, sends, is_expired: false, sequence }
    }

    #[test]
    fn a_window_shrinks_once_a_round_trip_and_grows_only_when_it_is_used() {
        let mut limit = Limit::controlled("aimd", Some(16)).unwrap();
        let now = Instant::from_ns(1_000);
        limit.answered(now, &entry(1), false, 15, 16);
        assert_eq!(limit.window(), 16.0, "nobody used it");
        limit.answered(now, &entry(2), false, 16, 16);
        assert_eq!(limit.interests(), 17);
        for sequence in 3..=20 {
            limit.answered(now, &entry(sequence), true, 17, 20);
            assert_eq!(limit.window(), 8.5, "all were on their way");
        }
        limit.refused(now, &entry(20), 21);
        assert_eq!(limit.window(), 8.5);
        limit.answered(now, &entry(21), true, 8, 30);
        assert_eq!(limit.window(), 4.25);
        limit.timed_out(now, &entry(30), 31);
        assert_eq!(limit.window(), 4.25);
        limit.timed_out(now, &entry(31), 40);
        assert!(limit.window() < 4.25);
    }

    #[test]
    fn windows_that_cannot_be_are_refused() {
        assert!(Limit::fixed(0).is_err() && Limit::fixed(WINDOW_MAX + 1).is_err());
        assert!(Limit::controlled("aimd", Some(0)).is_err());
        let error = Limit::controlled("vegas", None).unwrap_err().to_string();
        assert!(error.contains("cubic, aimd, fixed"), "{error}");
    }
}
