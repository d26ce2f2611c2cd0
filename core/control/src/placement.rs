//! Placement: which routers keep which part of a file that no store holds as a whole.
//!
//! The input is a file, the segments to place, and the candidates: routers with space, each with
//! its free bytes and its distance from the consumer. [`assign_parts`] divides the segments among
//! them. Everything is counted in ranges of 64 segments, because stores list holdings and shards
//! divide objects in such ranges.
//!
//! 1. Sort the candidates. `LargestFree` takes the largest free space first, `Nearest` and
//!    `ByDemand` the smallest distance; the other property breaks ties.
//! 2. Compute how many ranges fit into each candidate, from the bytes that a segment takes in a
//!    store. Skip candidates with less than 1/32 of the file's ranges. Each part costs a face, a
//!    rule and a detour, so a file has at most about 32 parts.
//! 3. Choose candidates in order until all ranges fit together (Algorithm 4, line 3). If they never
//!    fit, all candidates are chosen, and the end of the file stays without a part.
//! 4. Go through the chosen candidates. Each gets a share of the ranges that are left, in
//!    proportion to its free ranges among the free ranges that are left, rounded up. The last one
//!    gets exactly the rest.
//!
//! Example: a file of 6,400 segments has 100 ranges, so the smallest part is 4 ranges. Three
//! candidates have space for 30, 80 and 60 ranges, the nearest first. `Nearest` chooses the first
//! two, because 30 + 80 is enough. The first gets 100 · 30 / 110 = 27.3, rounded up to 28 ranges:
//! segments 0 to 1,791. The second gets the other 72: segments 1,792 to 6,399. `LargestFree`
//! chooses those with 80 and 60. They get 100 · 80 / 140 = 57.1, rounded up to 58 ranges, and 42
//! ranges.
//!
//! The result never promises a router more than its free bytes. Parts never overlap, and they
//! follow each other without a gap from the first segment. The same input always gives the same
//! parts, so two controllers agree.
//!
//! Not decided here: who is a candidate (`plans/selection.rs`: a router within reach of the
//! producer and not farther than it), and when parts move (`plans/repair.rs`,
//! `plans/displacement.rs`).

use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use serde::{Deserialize, Serialize};
use weir_base::NS_PER_MS;

use crate::file::File;
use crate::plan::Part;

/// Segments of a range. Parts begin at multiples of it, because stores list holdings and shards
/// divide objects in ranges of 64.
const RANGE_SEGMENTS: u64 = 64;
/// Distances that differ by less than this count as equal. Routers report round-trip times to
/// within a millisecond, and the times that routes use vary by as much.
pub(crate) const DISTANCE_TOLERANCE_NS: u64 = 4 * NS_PER_MS;
/// Target for the maximum number of parts of a file. A router with space for less than this
/// fraction of the file is skipped. Each part costs a face, a rule and a detour.
const PARTS_MAX: u64 = 32;

/// The policy that chooses the routers for the parts of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// As few routers as possible: the largest free space first, and the nearest to the consumer of
    /// equal ones (paper multipath-cache-management, Algorithm 4).
    LargestFree,
    /// The nearest to the consumer first. The distance of a router is the round-trip time of the
    /// path, plus a transfer time. That is the time of half a megabyte over the path's slowest
    /// link, at the rate that its load leaves. Routers that are farther than the producer keep
    /// nothing. A later consumer that is nearer to the producer than to a keeper, by round-trip
    /// time alone, requests that part from the producer.
    #[default]
    Nearest,
    /// Like `Nearest`. In addition, an object without space may displace parts of another one near
    /// the consumer, if its demand is at least twice as high.
    ByDemand,
}

/// A router that may keep a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) router: String,
    /// Bytes of its store that no plan has promised.
    pub(crate) free_bytes: u64,
    /// Distance from the consumer in nanoseconds, including the transfer time of a range.
    pub(crate) distance: u64,
}

/// Divides segments `first` to `last` of a file among the candidates. The module's description has
/// the steps and an example.
pub(crate) fn assign_parts(
    policy: Placement,
    file: &File,
    (first, last): (u64, u64),
    mut candidates: Vec<Candidate>,
) -> Vec<Part> {
    match policy {
        Placement::LargestFree => {
            candidates.sort_by_key(|one| (Reverse(one.free_bytes), one.distance));
        }
        Placement::Nearest | Placement::ByDemand => {
            candidates.sort_by_key(|one| (one.distance, Reverse(one.free_bytes)));
        }
    }
    let ranges = (last - first + 1).div_ceil(RANGE_SEGMENTS);
    let each = file.stored_bytes_per_segment() * RANGE_SEGMENTS;
    let min_ranges = ranges.min(file.segments.div_ceil(RANGE_SEGMENTS).div_ceil(PARTS_MAX));
    // Algorithm 4, line 3: choose as many routers as are needed.
    let mut room = 0;
    let mut chosen = Vec::new();
    for candidate in candidates {
        let fits = candidate.free_bytes / each;
        if fits >= min_ranges && room < ranges {
            room += fits;
            chosen.push((candidate.router, fits));
        }
    }
    // Step 4: divide the ranges in proportion to the free space.
    let mut parts = Vec::new();
    let (mut at, mut ranges_left, mut room_left) = (first, ranges.min(room), room);
    for (router, fits) in chosen {
        // Dividing the rest by the space that is left, rounded up, leaves nothing over at the end.
        let share = u128::from(ranges_left) * u128::from(fits);
        let share = share.div_ceil(u128::from(room_left)) as u64;
        let share = share.min(fits);
        room_left -= fits;
        ranges_left -= share;
        if share > 0 {
            let end = (at + share * RANGE_SEGMENTS - 1).min(last);
            parts.push(Part { router, first: at, last: end });
            at = end + 1;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn file(segments: u64) -> File {
        File {
            name: "/f".parse().unwrap(),
            segments,
            size_bytes: segments * 8000,
            packet_bytes: 8200,
            manifest: Vec::new(),
        }
    }

    fn candidates(free: &[u64]) -> Vec<Candidate> {
        let each = file(1).stored_bytes_per_segment() * RANGE_SEGMENTS;
        let candidate = |(at, free): (usize, &u64)| Candidate {
            router: at.to_string(),
            free_bytes: free * each + 1,
            distance: at as u64,
        };
        free.iter().enumerate().map(candidate).collect()
    }

    #[test]
    fn picks_fewest_largest_stores() {
        let parts =
            assign_parts(Placement::LargestFree, &file(6400), (0, 6399), candidates(&[30, 80, 60]));
        let routers: Vec<&str> = parts.iter().map(|part| part.router.as_str()).collect();
        assert_eq!(routers, ["1", "2"]);
        assert_eq!((parts[0].first, parts[1].last), (0, 6399));
        // 100 ranges in proportion 80 to 60.
        assert_eq!(parts[0].last, 58 * 64 - 1);
    }

    #[test]
    fn picks_nearest_stores_first() {
        let parts =
            assign_parts(Placement::Nearest, &file(6400), (0, 6399), candidates(&[30, 80, 60]));
        let routers: Vec<&str> = parts.iter().map(|part| part.router.as_str()).collect();
        assert_eq!(routers, ["0", "1"]);
    }

    #[test]
    fn leaves_out_segments_without_space() {
        let parts = assign_parts(Placement::Nearest, &file(6400), (0, 6399), candidates(&[30, 20]));
        assert_eq!(parts.last().unwrap().last, 50 * 64 - 1);
        assert_eq!(assign_parts(Placement::Nearest, &file(6400), (0, 6399), candidates(&[0])), []);
    }

    proptest! {
        #[test]
        fn parts_are_contiguous_and_fit(
            segments in 1_u64..5000,
            first in 0_u64..40,
            free in proptest::collection::vec(0_u64..60, 0..6),
        ) {
            let file = file(segments + first * RANGE_SEGMENTS);
            let range = (first * RANGE_SEGMENTS, first * RANGE_SEGMENTS + segments - 1);
            for policy in [Placement::LargestFree, Placement::Nearest] {
                let parts = assign_parts(policy, &file, range, candidates(&free));
                let mut at = range.0;
                for part in &parts {
                    prop_assert_eq!(part.first, at);
                    prop_assert!(part.first <= part.last && part.last <= range.1);
                    let bytes = (part.last - part.first + 1) * file.stored_bytes_per_segment();
                    let room = &candidates(&free)[part.router.parse::<usize>().unwrap()];
                    prop_assert!(bytes <= room.free_bytes);
                    at = part.last + 1;
                }
                let all = file.segments.div_ceil(RANGE_SEGMENTS).div_ceil(PARTS_MAX);
                let least = segments.div_ceil(RANGE_SEGMENTS).min(all);
                let fits: u64 = free.iter().filter(|fits| **fits >= least).sum();
                prop_assert_eq!(at - range.0, segments.min(fits * RANGE_SEGMENTS));
            }
        }
    }
}
