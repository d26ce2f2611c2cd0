//! The load of links and the hits of stores in the last hour, for the dashboard. They are in memory
//! only: a controller that restarts begins again.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use weir_control::Controller;

/// Time between two samples, in milliseconds.
const INTERVAL_MS: u64 = 30_000;
/// One hour.
const SAMPLES_MAX: usize = 120;

/// The network at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct Sample {
    /// Milliseconds since 1970.
    at_ms: u64,
    /// Traffic of all links between routers, in bits per second.
    load_bps: u64,
    /// Interests that stores answered since the sample before.
    hits: u64,
    /// Interests that stores did not answer since then.
    misses: u64,
}

/// Samples, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct History {
    samples: VecDeque<Sample>,
    /// Hits and misses of each present router at the last sample.
    before: BTreeMap<String, (u64, u64)>,
}

impl History {
    /// Adds a sample, if the last one is old enough or if the clock went back.
    pub(crate) fn sample(&mut self, now_ms: u64, controller: &Controller) {
        let last_ms = self.samples.back().map(|sample| sample.at_ms);
        if last_ms.is_some_and(|last_ms| (last_ms..last_ms + INTERVAL_MS).contains(&now_ms)) {
            return;
        }
        // Both ends report the load of a link.
        let mut loads: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        let links = controller.links();
        for link in &links {
            let (one, other) = (link.from.as_str(), link.to.as_str());
            let load = loads.entry((one.min(other), one.max(other))).or_default();
            *load = link.load_bps.max(*load);
        }
        let reports = controller.routers().filter_map(|(name, report)| {
            let store = report.store_use?;
            Some((name.to_owned(), (store.hits, store.misses)))
        });
        let now: BTreeMap<String, (u64, u64)> = reports.collect();
        let since = |pick: fn(&(u64, u64)) -> u64| {
            // A router that has just appeared or restarted counts from the next sample on.
            let known = now.iter().filter_map(|(name, counts)| {
                pick(counts).checked_sub(pick(self.before.get(name)?))
            });
            known.fold(0, u64::saturating_add)
        };
        let (hits, misses) = (since(|counts| counts.0), since(|counts| counts.1));
        let load_bps = loads.values().fold(0, |sum: u64, load| sum.saturating_add(*load));
        self.samples.push_back(Sample { at_ms: now_ms, load_bps, hits, misses });
        if self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.before = now;
    }

    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.samples.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::Instant;
    use weir_control::message::{FaceReport, RouterReport, StoreUse};

    fn report(controller: &mut Controller, name: &str, remote: &str, load_bps: u64, hits: u64) {
        let uri = |name: &str| format!("udp4://{name}:6363");
        let face = FaceReport { remote: uri(remote), load_bps, ..FaceReport::default() };
        let store_use = Some(StoreUse { hits, misses: 7, ..StoreUse::default() });
        let (uris, faces) = (vec![uri(name)], vec![face]);
        let report = RouterReport { uris, faces, store_use, ..RouterReport::default() };
        controller.report(Instant::default(), name, report).unwrap();
    }

    #[test]
    fn history_keeps_one_hour_of_differences() {
        let mut controller = Controller::new(weir_control::ControllerConfig::default());
        let mut history = History::default();
        for step in 0..300_u64 {
            report(&mut controller, "a", "b", 5_000, 10 * step);
            report(&mut controller, "b", "a", 4_000, 10 * step);
            let at_ms = 1_000_000 + step * INTERVAL_MS;
            history.sample(at_ms, &controller);
            history.sample(at_ms + 1, &controller);
        }
        let samples = history.samples();
        assert_eq!(samples.len(), SAMPLES_MAX);
        // Both ends report 4,000 or 5,000: the link counts once. Two routers had 10 hits each.
        let last = samples.last().unwrap();
        assert_eq!((last.load_bps, last.hits, last.misses), (5_000, 20, 0));
        // A router that restarts counts from 0: no negative difference.
        report(&mut controller, "a", "b", 0, 3);
        history.sample(1_000_000 + 300 * INTERVAL_MS, &controller);
        assert_eq!(history.samples().last().unwrap().hits, 0);
    }
}
