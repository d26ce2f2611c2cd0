//! Consumers and producers over a channel in memory.

use crate::workload::{Names, Popularity, Sizes};

pub(super) fn names(sizes: Sizes, segment_bytes: u32) -> Names {
    Names {
        prefix: "/lab/p7".into(),
        components: 0,
        popularity: Popularity::Sequential { objects: u64::MAX },
        sizes,
        segment_bytes,
    }
}
