//! The second bypass (paper nb-cache, III-C): an Interest goes on although a disk has its Data.

use alloc::vec::Vec;

use weir_base::{Instant, Slab};

use crate::content::adaptive::BypassSample;

/// An Interest that passes the store by. Where it may go is in
/// [`DiskState::hops`](crate::disk::DiskState::hops).
pub(crate) struct DiskBypass {
    /// How the time until its answer is measured, if it is.
    pub(crate) sample: Option<BypassSample>,
}

/// What is to be done with an Interest whose Data is on a disk.
pub(crate) enum Verdict {
    PassBy(DiskBypass),
    Wait {
        /// Its Data is to be marked.
        is_marked: bool,
    },
}

pub(crate) struct BypassTiming {
    pub(crate) since: Instant,
    pub(crate) sample: Option<BypassSample>,
}

/// PIT entries that have passed the store by.
#[derive(Default)]
pub(crate) struct BypassTimings {
    timings: Slab<BypassTiming>,
    /// From a PIT entry's index to its timing.
    by_entry: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl BypassTimings {
    pub(crate) fn insert(&mut self, entry: u32, timing: BypassTiming) {
        let entry = entry as usize;
        if self.by_entry.len() <= entry {
            self.by_entry.resize(entry + 1, NONE);
        }
        assert_eq!(self.by_entry[entry], NONE, "an entry is on one way");
        self.by_entry[entry] = self.timings.insert(timing);
    }

    pub(crate) fn remove(&mut self, entry: u32) -> Option<BypassTiming> {
        let slot = self.by_entry.get_mut(entry as usize)?;
        let index = core::mem::replace(slot, NONE);
        (index != NONE).then(|| self.timings.remove(index))
    }
}
