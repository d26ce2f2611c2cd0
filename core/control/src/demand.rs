//! How often objects are asked for.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_S};
use weir_wire::Name;

use crate::objects::RouterId;

/// A question counts half as much as one of the period after it.
const PERIOD_NS: u64 = 600 * NS_PER_S;
/// Periods after which all counts are reckoned anew, so that none overflows.
const PERIODS_MAX: u64 = 32;
/// Objects that are counted at most. Beyond that the half that is asked for least is forgotten.
const OBJECTS_MAX: usize = 100_000;
/// Questions of one router about one object that count in a period: as many as an agent asks that
/// is answered, one a minute. And about all objects: fewer than an agent may ask, which is 64 a
/// second, so that a busy edge counts with the first of a period. It has its answers all the same,
/// but no router has everything moved by asking again and again.
const PER_OBJECT_MAX: u32 = 10;
const PER_ROUTER_MAX: u32 = 4096;
/// Routers and objects of which it is remembered how often the one has asked about the other.
const REQUESTERS_MAX: usize = 200_000;

/// Questions about objects, the older the less they count.
#[derive(Default)]
pub(crate) struct Demand {
    /// A question of this period counts 1, one of the period after it 2, and so on: counts need not
    /// change with time to be compared.
    base_period: u64,
    scores: BTreeMap<Name, u64>,
    /// Of the present period: what each router has asked about an object, and in all.
    period: u64,
    counts_by_router: BTreeMap<RouterId, BTreeMap<Name, u32>>,
    counts_len: usize,
    totals_by_router: BTreeMap<RouterId, u32>,
}

impl Demand {
    /// A router asks for an object. Whether that counts, or it has asked too often.
    pub(crate) fn record(&mut self, now: Instant, router: RouterId, object: &Name) -> bool {
        let period = now.as_ns() / PERIOD_NS;
        if !self.try_count(period, router, object) {
            return false;
        }
        let since = period.saturating_sub(self.base_period);
        if since >= PERIODS_MAX {
            self.scores.retain(|_, asked| {
                *asked = asked.checked_shr(since.min(64) as u32).unwrap_or(0);
                *asked > 0
            });
            self.base_period = period;
        }
        if self.scores.len() >= OBJECTS_MAX && !self.scores.contains_key(object) {
            self.drop_lower_half();
        }
        let one = 1 << period.saturating_sub(self.base_period);
        let asked = self.scores.entry(object.clone()).or_default();
        *asked = asked.saturating_add(one);
        true
    }

    /// Whether another question of a router is to count, which it then does.
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
        self.scores.retain(|_, asked| *asked > median);
    }

    /// How much an object is asked for, to compare with others.
    pub(crate) fn score(&self, object: &Name) -> u64 {
        self.scores.get(object).copied().unwrap_or(0)
    }

    /// An object is none any more.
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
        // After a long silence nothing is left but what is asked for now.
        demand.record(period(1_000), 0, &name(7));
        assert_eq!((demand.score(&name(100)), demand.score(&name(7))), (0, 1));
    }

    #[test]
    fn forgets_least_requested_objects() {
        let mut demand = Demand::default();
        (0..2).for_each(|_| assert!(demand.record(period(0), 0, &name(0))));
        // As many routers as it takes.
        let asker = |number: usize| number as RouterId / PER_ROUTER_MAX + 1;
        for number in 1..2 * OBJECTS_MAX {
            assert!(demand.record(period(0), asker(number), &name(number)));
        }
        assert!(demand.scores.len() <= OBJECTS_MAX);
        assert_eq!(demand.score(&name(0)), 2, "what is asked for more is not forgotten");
    }
    #[test]
    fn caps_what_one_router_counts() {
        let mut demand = Demand::default();
        let counted = (0..1000).filter(|_| demand.record(period(0), 1, &name(0))).count();
        assert_eq!(counted, PER_OBJECT_MAX as usize);
        let one = demand.score(&name(0));
        // Others count beside it, and it counts again in the next period.
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
