//! What is to happen, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What is due: a kind and an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The first frame on its way from this end of a link arrives.
    Arrival(u32),
    /// A node wants to be called.
    Wake(u32),
    /// The state of the face at this end of a link wants to be polled.
    Link(u32),
    /// Fault `index / 2` begins (even) or ends (odd).
    Fault(u32),
    Sample,
    /// An operation of a shared disk has ended.
    Device(u32),
    /// A router leaves a core of a processor.
    Processor(u32),
    /// A message to or from the controller arrives.
    Control,
}

pub(crate) const INDEX_MAX: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 21;
const KIND_BITS: u32 = 3;
const SEQUENCE_MAX: u64 = 1 << (64 - INDEX_BITS - KIND_BITS);

/// A moment, unique: from the highest bits down the time, a running number, what is due. Events of
/// one time so come in the order in which they were scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u128);

impl Moment {
    /// Behind all others.
    pub(crate) const NEVER: Self = Self(u128::MAX);

    #[inline]
    pub(crate) fn at_ns(self) -> u64 {
        (self.0 >> 64) as u64
    }

    #[inline]
    pub(crate) fn due(self) -> Due {
        let low = self.0 as u64;
        let index = (low & (INDEX_MAX as u64 - 1)) as u32;
        match (low >> INDEX_BITS) & ((1 << KIND_BITS) - 1) {
            0 => Due::Arrival(index),
            1 => Due::Wake(index),
            2 => Due::Link(index),
            3 => Due::Fault(index),
            4 => Due::Sample,
            5 => Due::Device(index),
            6 => Due::Processor(index),
            _ => Due::Control,
        }
    }
}

/// The moments to come.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Reverse<Moment>>,
    sequence: u64,
}

impl EventQueue {
    /// A moment for something due at `at_ns`, behind all others of that time; not scheduled yet.
    #[inline]
    pub(crate) fn moment(&mut self, at_ns: u64, due: Due) -> Moment {
        let (kind, index) = match due {
            Due::Arrival(index) => (0, index),
            Due::Wake(index) => (1, index),
            Due::Link(index) => (2, index),
            Due::Fault(index) => (3, index),
            Due::Sample => (4, 0),
            Due::Device(index) => (5, index),
            Due::Processor(index) => (6, index),
            Due::Control => (7, 0),
        };
        assert!(self.sequence < SEQUENCE_MAX, "a run has at most 2^40 events");
        let low = (self.sequence << KIND_BITS | kind) << INDEX_BITS | u64::from(index);
        self.sequence += 1;
        Moment(u128::from(at_ns) << 64 | u128::from(low))
    }

    #[inline]
    pub(crate) fn push(&mut self, moment: Moment) {
        self.heap.push(Reverse(moment));
    }

    /// The next moment, which stays.
    #[inline]
    pub(crate) fn peek(&self) -> Option<Moment> {
        self.heap.peek().map(|Reverse(moment)| *moment)
    }

    /// The next moment, unless it is later than `until_ns`.
    #[inline]
    pub(crate) fn pop_until(&mut self, until_ns: u64) -> Option<Moment> {
        let Reverse(next) = self.heap.peek()?;
        if next.at_ns() > until_ns {
            return None;
        }
        self.heap.pop().map(|Reverse(moment)| moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_first_then_the_order_of_scheduling() {
        let mut queue = EventQueue::default();
        let dues = [
            (5, Due::Wake(9)),
            (3, Due::Sample),
            (5, Due::Arrival(INDEX_MAX as u32 - 1)),
            (3, Due::Fault(1)),
            (5, Due::Link(0)),
            (5, Due::Device(1)),
            (5, Due::Processor(2)),
            (5, Due::Control),
        ];
        for (at_ns, due) in dues {
            let moment = queue.moment(at_ns, due);
            assert_eq!((moment.at_ns(), moment.due()), (at_ns, due));
            queue.push(moment);
        }
        let mut order = Vec::new();
        while let Some(moment) = queue.pop_until(4) {
            order.push(moment.due());
        }
        assert_eq!(order, [Due::Sample, Due::Fault(1)]);
        while let Some(moment) = queue.pop_until(u64::MAX) {
            order.push(moment.due());
        }
        let expected = [Due::Wake(9), Due::Arrival(INDEX_MAX as u32 - 1), Due::Link(0)];
        assert_eq!(order[2..5], expected);
        assert_eq!(order[5..], [Due::Device(1), Due::Processor(2), Due::Control]);
    }
}
