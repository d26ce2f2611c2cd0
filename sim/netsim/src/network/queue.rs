//! The event queue.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The component that an event concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DueEvent {
    /// The first frame in flight from this end of a link arrives.
    Arrival(u32),
    /// A node's wake-up time has come.
    Wake(u32),
    /// The face at this end of a link must be polled.
    Link(u32),
    /// Fault `index / 2` begins (even) or ends (odd).
    Fault(u32),
    Sample,
    /// A shared disk finishes an operation.
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

/// The unique key of an event, which also gives its order.
///
/// | bits | content |
/// |---|---|
/// | 127 to 64 | time, ns |
/// | 63 to 24 | running number of scheduled events |
/// | 23 to 21 | kind of event |
/// | 20 to 0 | index of the end, node, fault, disk or processor |
///
/// Comparing two keys compares time first and then the running number. Two events never have the
/// same number, so the kind and the index never decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventKey(u128);

impl EventKey {
    /// Later than any other key.
    pub(crate) const NEVER: Self = Self(u128::MAX);

    #[inline]
    pub(crate) fn at_ns(self) -> u64 {
        (self.0 >> 64) as u64
    }

    #[inline]
    pub(crate) fn due(self) -> DueEvent {
        let low = self.0 as u64;
        let index = (low & (INDEX_MAX as u64 - 1)) as u32;
        match (low >> INDEX_BITS) & ((1 << KIND_BITS) - 1) {
            0 => DueEvent::Arrival(index),
            1 => DueEvent::Wake(index),
            2 => DueEvent::Link(index),
            3 => DueEvent::Fault(index),
            4 => DueEvent::Sample,
            5 => DueEvent::Device(index),
            6 => DueEvent::Processor(index),
            _ => DueEvent::Control,
        }
    }
}

/// The future events.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Reverse<EventKey>>,
    sequence: u64,
}

impl EventQueue {
    /// Makes a key that follows all others of the same time. It does not schedule the event.
    #[inline]
    pub(crate) fn moment(&mut self, at_ns: u64, due: DueEvent) -> EventKey {
        let (kind, index) = match due {
            DueEvent::Arrival(index) => (0, index),
            DueEvent::Wake(index) => (1, index),
            DueEvent::Link(index) => (2, index),
            DueEvent::Fault(index) => (3, index),
            DueEvent::Sample => (4, 0),
            DueEvent::Device(index) => (5, index),
            DueEvent::Processor(index) => (6, index),
            DueEvent::Control => (7, 0),
        };
        assert!(self.sequence < SEQUENCE_MAX, "a run has at most 2^40 events");
        let low = (self.sequence << KIND_BITS | kind) << INDEX_BITS | u64::from(index);
        self.sequence += 1;
        EventKey(u128::from(at_ns) << 64 | u128::from(low))
    }

    #[inline]
    pub(crate) fn push(&mut self, moment: EventKey) {
        self.heap.push(Reverse(moment));
    }

    /// The next key, which stays in the queue.
    #[inline]
    pub(crate) fn peek(&self) -> Option<EventKey> {
        self.heap.peek().map(|Reverse(moment)| *moment)
    }

    /// Removes the next key, unless it is later than `until_ns`.
    #[inline]
    pub(crate) fn pop_until(&mut self, until_ns: u64) -> Option<EventKey> {
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
    fn orders_by_time_then_by_scheduling() {
        let mut queue = EventQueue::default();
        let dues = [
            (5, DueEvent::Wake(9)),
            (3, DueEvent::Sample),
            (5, DueEvent::Arrival(INDEX_MAX as u32 - 1)),
            (3, DueEvent::Fault(1)),
            (5, DueEvent::Link(0)),
            (5, DueEvent::Device(1)),
            (5, DueEvent::Processor(2)),
            (5, DueEvent::Control),
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
        assert_eq!(order, [DueEvent::Sample, DueEvent::Fault(1)]);
        while let Some(moment) = queue.pop_until(u64::MAX) {
            order.push(moment.due());
        }
        let expected =
            [DueEvent::Wake(9), DueEvent::Arrival(INDEX_MAX as u32 - 1), DueEvent::Link(0)];
        assert_eq!(order[2..5], expected);
        assert_eq!(order[5..], [DueEvent::Device(1), DueEvent::Processor(2), DueEvent::Control]);
    }
}
