//! How often routers request each object, with older requests weighted less.
//!
//! Time is divided into periods of ten minutes. A request of one period counts half as much as a
//! request of the next. Instead of halving all scores every ten minutes, the score of a new request
//! doubles: a request in period `base + n` adds 2^n. Scores can be compared at any time without an
//! update. After 32 periods all scores are shifted down by the elapsed periods, so that no score
//! overflows.
//!
//! Example: 4 requests for `/a` in period 0 give it the score 4. One request for `/b` in period 1
//! gives it the score 2, half as much. One more request for `/b` in period 2 adds 4: `/b` now leads
//! 6 to 4.
//!
//! A router could inflate an object by repeating its request. So at most 10 requests of one router
//! for one object count in a period, and at most 4,096 requests of one router in all.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_S};
use weir_wire::Name;

use crate::objects::RouterId;

/// Length of a period.
const PERIOD_NS: u64 = 600 * NS_PER_S;
/// Periods after which all scores are shifted down.
const PERIODS_MAX: u64 = 32;
/// Maximum number of objects with a score. When it is reached, the half with the lowest scores is
/// dropped.
const OBJECTS_MAX: usize = 100_000;
/// Requests of one router for one object that count in a period. An agent repeats a request once a
/// minute, so it stays within this number.
const PER_OBJECT_MAX: u32 = 10;
/// Requests of one router that count in a period. An agent may send 64 a second; beyond this number
/// only the first requests of a period count, and all of them are answered.
const PER_ROUTER_MAX: u32 = 4096;
/// Maximum number of (router, object) pairs with a count in the present period. When it is reached,
/// all counts start again from zero.
const REQUESTERS_MAX: usize = 200_000;

/// Scores of objects by demand; see the module's description.
#[derive(Default)]
pub(crate) struct Demand {
    /// The period in which a request adds 1.
    base_period: u64,
    scores: BTreeMap<Name, u64>,
    /// The period that the fields below belong to.
    period: u64,
    counts_by_router: BTreeMap<RouterId, BTreeMap<Name, u32>>,
    counts_len: usize,
    totals_by_router: BTreeMap<RouterId, u32>,
}

impl Demand {
    /// Records a request. Returns false if it does not count because the router has requested too
    /// much in this period.
    pub(crate) fn record(&mut self, now: Instant, router: RouterId, object: &Name) -> bool {
        let period = now.as_ns() / PERIOD_NS;
        if !self.try_count(period, router, object) {
            return false;
        }
        let since = period.saturating_sub(self.base_period);
        if since >= PERIODS_MAX {
            self.scores.retain(|_, score| {
                // A shift by 64 or more fails, and then the score is 0.
                *score = score.checked_shr(since.min(64) as u32).unwrap_or(0);
                *score > 0
            });
            self.base_period = period;
        }
        if self.scores.len() >= OBJECTS_MAX && !self.scores.contains_key(object) {
            self.drop_lower_half();
        }
        let one = 1 << period.saturating_sub(self.base_period);
        let score = self.scores.entry(object.clone()).or_default();
        *score = score.saturating_add(one);
        true
    }

    /// Counts a request against the router's limits of the period, unless it exceeds them.
    fn try_count(&mut self, period: u64, router: RouterId, object: &Name) -> bool {
        if self.period != period || self.counts_len >= REQUESTERS_MAX {
            self.counts_by_router.clear();
            self.counts_len = 0;
        }
        if self.period != period {
            self.totals_by_router.clear();
            self.period = period;
        }
        let all = self.totals_by_router.entry(router).or_default();
        let objects = self.counts_by_router.entry(router).or_default();
        let before = objects.get(object).copied().unwrap_or(0);
        if *all >= PER_ROUTER_MAX || before >= PER_OBJECT_MAX {
            return false;
        }
        *all += 1;
        self.counts_len += usize::from(before == 0);
        objects.insert(object.clone(), before + 1);
        true
    }

    fn drop_lower_half(&mut self) {
        let mut counts: Vec<u64> = self.scores.values().copied().collect();
        let middle = counts.len() / 2;
        let median = *counts.select_nth_unstable(middle).1;
        // Entries equal to the median go too, so at least half of all entries are dropped.
        self.scores.retain(|_, score| *score > median);
    }

    /// The score of an object. Only comparisons between scores have a meaning.
    pub(crate) fn score(&self, object: &Name) -> u64 {
        self.scores.get(object).copied().unwrap_or(0)
    }

    /// Drops the score of an object that is no longer registered.
    pub(crate) fn forget(&mut self, object: &Name) {
        self.scores.remove(object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn name(number: usize) -> Name {
        format!("/o/{number}").parse().unwrap()
    }

    fn period(number: u64) -> Instant {
        Instant::from_ns(number * PERIOD_NS)
    }

    #[test]
    fn older_requests_count_half() {
        let mut demand = Demand::default();
        (0..4).for_each(|_| assert!(demand.record(period(0), 0, &name(0))));
        demand.record(period(1), 0, &name(1));
        assert_eq!(demand.score(&name(0)), 2 * demand.score(&name(1)));
        demand.record(period(2), 0, &name(1));
        assert!(demand.score(&name(1)) > demand.score(&name(0)));
        assert_eq!(demand.score(&name(2)), 0);
        demand.forget(&name(0));
        assert_eq!(demand.score(&name(0)), 0);
    }

    #[test]
    fn rebasing_keeps_the_order() {
        let mut demand = Demand::default();
        for number in 0..PERIODS_MAX {
            demand.record(period(number), 0, &name(number as usize));
        }
        demand.record(period(PERIODS_MAX), 0, &name(100));
        let late = demand.score(&name(PERIODS_MAX as usize - 1));
        assert_eq!((demand.score(&name(0)), demand.score(&name(100))), (0, 1));
        assert!(late <= 1);
        // After a long pause only the new request counts.
        demand.record(period(1_000), 0, &name(7));
        assert_eq!((demand.score(&name(100)), demand.score(&name(7))), (0, 1));
    }

    #[test]
    fn forgets_least_requested_objects() {
        let mut demand = Demand::default();
        (0..2).for_each(|_| assert!(demand.record(period(0), 0, &name(0))));
        let asker = |number: usize| number as RouterId / PER_ROUTER_MAX + 1;
        for number in 1..2 * OBJECTS_MAX {
            assert!(demand.record(period(0), asker(number), &name(number)));
        }
        assert!(demand.scores.len() <= OBJECTS_MAX);
        assert_eq!(demand.score(&name(0)), 2, "objects with more requests stay");
    }
    #[test]
    fn caps_what_one_router_counts() {
        let mut demand = Demand::default();
        let counted = (0..1000).filter(|_| demand.record(period(0), 1, &name(0))).count();
        assert_eq!(counted, PER_OBJECT_MAX as usize);
        let one = demand.score(&name(0));
        // Other routers still count, and it counts again in the next period.
        assert!(demand.record(period(0), 2, &name(0)));
        assert!(demand.score(&name(0)) > one);
        let counted = (0..1000).filter(|_| demand.record(period(1), 1, &name(0))).count();
        assert_eq!(counted, PER_OBJECT_MAX as usize);
        let more = (1..10_000).filter(|number| demand.record(period(1), 1, &name(*number))).count();
        assert_eq!(more, (PER_ROUTER_MAX - PER_OBJECT_MAX) as usize);
    }

    #[test]
    fn bounds_memory_of_requesters() {
        let mut demand = Demand::default();
        for router in 0..200 {
            (0..2000).for_each(|number| assert!(demand.record(period(0), router, &name(number))));
            let remembered: usize = demand.counts_by_router.values().map(BTreeMap::len).sum();
            assert_eq!(remembered, demand.counts_len);
            assert!(remembered <= REQUESTERS_MAX);
        }
    }
}
