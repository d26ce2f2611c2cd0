//! Versions that are served for a while after later ones have replaced them.
//!
//! A consumer first learns the name of a version, and then requests its segments. A file may be
//! replaced in between. Its old content can be read while a descriptor is open.

use std::collections::VecDeque;

use weir_base::Instant;
use weir_transport::ObjectId;

/// Upper bound of replaced versions that are still served.
const LINGERING_MAX: usize = 4096;

/// Replaced versions, in the order of their deadlines.
#[derive(Debug, Default)]
pub(crate) struct ReplacedVersions {
    deadlines: VecDeque<(Instant, ObjectId)>,
}

impl ReplacedVersions {
    pub(crate) fn add(&mut self, end: Instant, id: ObjectId) {
        self.deadlines.push_back((end, id));
    }

    /// A version whose time is over, or for which there is no room.
    pub(crate) fn pop_expired(&mut self, now: Instant) -> Option<ObjectId> {
        let is_full = self.deadlines.len() > LINGERING_MAX;
        self.deadlines.pop_front_if(|(end, _)| is_full || *end <= now).map(|(_, id)| id)
    }

    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.deadlines.front().map(|&(end, _)| end)
    }

    pub(crate) fn contains(&self, id: ObjectId) -> bool {
        self.deadlines.iter().any(|&(_, other)| other == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expires_in_order_and_early_when_full() {
        let mut lingering = ReplacedVersions::default();
        for number in 0..=LINGERING_MAX as u64 {
            lingering.add(Instant::from_ns(100 + number), ObjectId(number));
        }
        assert_eq!(lingering.pop_expired(Instant::ZERO), Some(ObjectId(0)));
        assert_eq!(lingering.pop_expired(Instant::ZERO), None);
        assert_eq!(lingering.pop_expired(Instant::from_ns(101)), Some(ObjectId(1)));
        assert_eq!(lingering.pop_expired(Instant::from_ns(101)), None);
        assert_eq!(lingering.next_wakeup(), Some(Instant::from_ns(102)));
    }
}
