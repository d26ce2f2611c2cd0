//! Whose turn it is before a disk, and how long it takes.

use super::config::Contention;
use weir_base::Instant;

/// What a disk may do next.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    Read,
    Write,
}

/// Whose turn it is. Reads and writes that wait are given by the tickets of the first of each.
#[inline]
pub(super) fn turn(contention: Contention, read: Option<u64>, write: Option<u64>) -> Option<Turn> {
    match (read, write) {
        (None, None) => None,
        (Some(_), None) => Some(Turn::Read),
        (None, Some(_)) => Some(Turn::Write),
        (Some(read), Some(write)) => Some(match contention {
            Contention::Fifo if read < write => Turn::Read,
            Contention::Fifo | Contention::DataFirst => Turn::Write,
            Contention::InterestFirst => Turn::Read,
        }),
    }
}

/// Reads that the mean is taken over, at least.
const WINDOW: u64 = 128;

/// The time from one read that ends to the next while reads wait or are under way: a mean over the
/// last hundreds of them, in which several reads that end at once count one by one.
#[derive(Debug, Default)]
pub(super) struct ServiceTime {
    /// Time in the window, ns.
    busy_ns: u64,
    /// Reads that ended in it.
    done: u64,
    /// When the last one ended, or the first of a busy period began.
    since: Instant,
}

impl ServiceTime {
    /// Reads wait from now on, where none did.
    #[inline]
    pub(super) fn on_begin(&mut self, now: Instant) {
        self.since = now;
    }

    /// A read has ended.
    #[inline]
    pub(super) fn on_end(&mut self, now: Instant) {
        let interval_ns = now.ns_since(self.since);
        self.since = now;
        // Not within a burst, of which only the first one took time.
        if interval_ns > 0 && self.done >= 2 * WINDOW {
            self.busy_ns /= 2;
            self.done /= 2;
        }
        self.busy_ns = self.busy_ns.saturating_add(interval_ns);
        self.done += 1;
    }

    /// How long until a given number of reads have ended, ns; 0 as long as nothing is known. What
    /// has gone by since the last one counts as if another ended now.
    #[inline]
    pub(super) fn expected_ns(&self, now: Instant, reads: u32, is_busy: bool) -> u64 {
        let (mut busy_ns, mut done) = (self.busy_ns, self.done);
        let longer_ns = now.ns_since(self.since);
        if is_busy && (done == 0 || longer_ns > busy_ns / done) {
            busy_ns = busy_ns.saturating_add(longer_ns);
            done += 1;
        }
        if done == 0 {
            return 0;
        }
        busy_ns.saturating_mul(reads.into()) / done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    #[test]
    fn contention_says_whose_turn_it_is() {
        let of = |contention| turn(contention, Some(2), Some(1));
        assert_eq!(of(Contention::Fifo), Some(Turn::Write));
        assert_eq!(of(Contention::DataFirst), Some(Turn::Write));
        assert_eq!(of(Contention::InterestFirst), Some(Turn::Read));
        assert_eq!(turn(Contention::Fifo, Some(1), Some(2)), Some(Turn::Read));
        assert_eq!(turn(Contention::DataFirst, Some(1), None), Some(Turn::Read));
        assert_eq!(turn(Contention::InterestFirst, None, Some(1)), Some(Turn::Write));
        assert_eq!(turn(Contention::Fifo, None, None), None);
    }

    #[test]
    fn the_mean_is_the_same_one_by_one_or_in_bursts() {
        let (mut single, mut burst) = (ServiceTime::default(), ServiceTime::default());
        for read in 1..=640_u64 {
            single.on_end(at(read * 100));
            burst.on_end(at(read.next_multiple_of(64) * 100));
        }
        let now = at(64_000);
        assert!((99..=101).contains(&single.expected_ns(now, 1, true)));
        assert!((99..=101).contains(&burst.expected_ns(now, 1, true)), "{burst:?}");
        assert!((990..=1_010).contains(&single.expected_ns(now, 10, false)));
    }

    #[test]
    fn a_read_that_does_not_end_counts() {
        let mut time = ServiceTime::default();
        assert_eq!(time.expected_ns(at(5), 3, false), 0);
        time.on_begin(at(0));
        assert_eq!(time.expected_ns(at(50), 1, true), 50);
        (1..=1_000).for_each(|read| time.on_end(at(read * 10)));
        let now = at(10_000);
        assert_eq!(time.expected_ns(now, 1, true), 10);
        assert!(time.expected_ns(now.plus_ns(1_000_000), 1, true) > 3_000);
        assert_eq!(time.expected_ns(now.plus_ns(1_000_000), 1, false), 10);
    }
}
