//! Which routers keep which part of a file.

use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use serde::{Deserialize, Serialize};
use weir_base::NS_PER_MS;

use crate::file::File;
use crate::plan::Part;

/// Parts begin at multiples of this many segments: stores list what they hold, and shards divide
/// objects, in blocks of 64.
const RANGE_SEGMENTS: u64 = 64;
/// A router that is farther than the producer by less than this is as near: routers tell the round
/// trips of links to within a millisecond, and what routes are computed from swings as much.
pub(crate) const DISTANCE_TOLERANCE_NS: u64 = 4 * NS_PER_MS;
/// Parts of a file at most. Who has no room for its share of so many is passed over, but for what
/// is less than that: each part costs a face, a rule and a detour.
const PARTS_MAX: u64 = 32;

/// By what routers are chosen to keep parts of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// As few as possible: those with the largest free space first (paper
    /// multipath-cache-management, Algorithm 4). Of equal ones the nearest to who asks.
    LargestFree,
    /// The nearest to who asks first, by round-trip time, by hops where it is unknown, and by what
    /// the loads of links leave of their rates, where these are known: a router is as far as half a
    /// megabyte takes from there. None that is farther than the producer. Who asks later and is
    /// nearer to the producer than to a keeper, by round-trip time alone, does not ask that one.
    #[default]
    Nearest,
    /// As `Nearest`; and where there is no room, an object that is asked for twice as much as
    /// another has the parts of that one moved away from the routers nearest to who asks.
    ByDemand,
}

/// A router that may keep a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) router: String,
    /// Octets of memory that are not promised yet.
    pub(crate) free_bytes: u64,
    /// From who asks, and how long a block takes from there, in nanoseconds.
    pub(crate) distance: u64,
}

/// Divides segments `first` to `last` of a file among the candidates: in proportion to what each
/// has free of those that are needed, or as much as fits if all together are too small. Parts
/// come in order and side by side from `first`.
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
    // Algorithm 4, line 3: how many routers are needed.
    let mut room = 0;
    let mut chosen = Vec::new();
    for candidate in candidates {
        let fits = candidate.free_bytes / each;
        if fits >= min_ranges && room < ranges {
            room += fits;
            chosen.push((candidate.router, fits));
        }
    }
    let mut parts = Vec::new();
    let (mut at, mut ranges_left, mut room_left) = (first, ranges.min(room), room);
    for (router, fits) in chosen {
        // What is left is divided by what room is left, so that rounding leaves nothing over.
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
        // 100 blocks in proportion 80 to 60.
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
