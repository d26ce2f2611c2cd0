//! How often objects are asked for.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_S};
use weir_wire::Name;

/// A question counts half as much as one of the period after it.
const PERIOD_NS: u64 = 600 * NS_PER_S;
/// Periods after which all counts are reckoned anew, so that none overflows.
const PERIODS_MAX: u64 = 32;
/// Objects that are counted at most. Beyond that the half that is asked for least is forgotten.
const OBJECTS_MAX: usize = 100_000;

/// Questions about objects, the older the less they count.
#[derive(Default)]
pub(crate) struct Demand {
    /// A question of this period counts 1, one of the period after it 2, and so on: counts need not
    /// change with time to be compared.
    base: u64,
    asked: BTreeMap<Name, u64>,
}

impl Demand {
    /// An object is asked for.
    pub(crate) fn note(&mut self, now: Instant, object: &Name) {
        let period = now.as_ns() / PERIOD_NS;
        let since = period.saturating_sub(self.base);
        if since >= PERIODS_MAX {
            self.asked.retain(|_, asked| {
                *asked = asked.checked_shr(since.min(64) as u32).unwrap_or(0);
                *asked > 0
            });
            self.base = period;
        }
        if self.asked.len() >= OBJECTS_MAX && !self.asked.contains_key(object) {
            self.forget_half();
        }
        let one = 1 << period.saturating_sub(self.base);
        let asked = self.asked.entry(object.clone()).or_default();
        *asked = asked.saturating_add(one);
    }

    fn forget_half(&mut self) {
        let mut counts: Vec<u64> = self.asked.values().copied().collect();
        let middle = counts.len() / 2;
        let median = *counts.select_nth_unstable(middle).1;
        self.asked.retain(|_, asked| *asked > median);
    }

    /// How much an object is asked for, to compare with others.
    pub(crate) fn of(&self, object: &Name) -> u64 {
        self.asked.get(object).copied().unwrap_or(0)
    }

    /// An object is none any more.
    pub(crate) fn forget(&mut self, object: &Name) {
        self.asked.remove(object);
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
    fn a_question_counts_half_a_period_later() {
        let mut demand = Demand::default();
        (0..4).for_each(|_| demand.note(period(0), &name(0)));
        demand.note(period(1), &name(1));
        assert_eq!(demand.of(&name(0)), 2 * demand.of(&name(1)));
        demand.note(period(2), &name(1));
        assert!(demand.of(&name(1)) > demand.of(&name(0)));
        assert_eq!(demand.of(&name(2)), 0);
        demand.forget(&name(0));
        assert_eq!(demand.of(&name(0)), 0);
    }

    #[test]
    fn the_order_stays_when_counts_are_reckoned_anew() {
        let mut demand = Demand::default();
        for number in 0..PERIODS_MAX {
            demand.note(period(number), &name(number as usize));
        }
        demand.note(period(PERIODS_MAX), &name(100));
        let late = demand.of(&name(PERIODS_MAX as usize - 1));
        assert_eq!((demand.of(&name(0)), demand.of(&name(100))), (0, 1));
        assert!(late <= 1);
        // After a long silence nothing is left but what is asked for now.
        demand.note(period(1_000), &name(7));
        assert_eq!((demand.of(&name(100)), demand.of(&name(7))), (0, 1));
    }

    #[test]
    fn no_more_objects_are_counted_than_may_be() {
        let mut demand = Demand::default();
        (0..2).for_each(|_| demand.note(period(0), &name(0)));
        (1..2 * OBJECTS_MAX).for_each(|number| demand.note(period(0), &name(number)));
        assert!(demand.asked.len() <= OBJECTS_MAX);
        assert_eq!(demand.of(&name(0)), 2, "what is asked for more is not forgotten");
    }
}
