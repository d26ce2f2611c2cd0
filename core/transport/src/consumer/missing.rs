//! What is missing of an object that could not be fetched completely.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use weir_wire::Name;

use super::chunk::FailReason;

/// At most this many ranges of missing segments are listed.
pub(super) const RANGES_MAX: usize = 8;

/// What is missing of an object after everything else has been fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingSegments {
    pub versioned: Name,
    /// Number of wanted segments: of the whole object or of the requested range.
    pub segments: u64,
    /// Number of missing segments.
    pub missing: u64,
    /// The first ranges of missing segments, at most 8.
    pub first_ranges: Vec<Range<u64>>,
    pub ranges: u64,
    /// Number of missing manifest parts. Segments that they list cannot be verified, so they count
    /// as missing even if a router has them.
    pub manifest_parts: u64,
    /// Bytes of Content received, and of the whole object, if metadata state the size and the whole
    /// object was wanted.
    pub bytes: Option<(u64, u64)>,
    /// Why they are missing.
    pub reason: FailReason,
}

impl MissingSegments {
    /// Whether they are missing because there is no route.
    pub fn has_no_route(&self) -> bool {
        self.reason == FailReason::NoRoute
    }

    /// Number of wanted segments that were received.
    pub(crate) fn received(&self) -> u64 {
        self.segments - self.missing
    }
}

/// Writes ranges of segments as `3, 17-40 and 2 more ranges`.
fn write_ranges(f: &mut fmt::Formatter<'_>, first: &[Range<u64>], count: u64) -> fmt::Result {
    for (at, range) in first.iter().enumerate() {
        let separator = if at > 0 { ", " } else { "" };
        match range.end - range.start {
            1 => write!(f, "{separator}{}", range.start)?,
            _ => write!(f, "{separator}{}-{}", range.start, range.end - 1)?,
        }
    }
    match count.saturating_sub(first.len() as u64) {
        0 => Ok(()),
        1 => f.write_str(" and 1 more range"),
        more => write!(f, " and {more} more ranges"),
    }
}

impl fmt::Display for MissingSegments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.reason {
            FailReason::Unanswered => "no answer",
            FailReason::NoRoute => "no route",
            FailReason::Nacked(_) => "refused by routers",
        };
        write!(f, "{} of {} segments", self.received(), self.segments)?;
        if let Some((held, all)) = self.bytes {
            write!(f, " ({held} of {all} bytes)")?;
        }
        write!(f, " of {} arrived, {} are missing ({why}): ", self.versioned, self.missing)?;
        write_ranges(f, &self.first_ranges, self.ranges)?;
        match self.manifest_parts {
            0 => Ok(()),
            1 => f.write_str("; 1 part of the manifest, which verifies some of them, is missing"),
            parts => {
                write!(f, "; {parts} parts of the manifest, which verify some of them, are missing")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec;

    use super::*;

    #[test]
    fn names_first_ranges_and_count() {
        let mut missing = MissingSegments {
            versioned: "/a/54=%01".parse().unwrap(),
            segments: 100,
            missing: 5,
            first_ranges: vec![3..4, 10..14],
            ranges: 2,
            manifest_parts: 0,
            bytes: Some((950, 1000)),
            reason: FailReason::Unanswered,
        };
        assert_eq!(
            format!("{missing}"),
            "95 of 100 segments (950 of 1000 bytes) of /a/v=1 arrived, 5 are missing (no answer): \
             3, 10-13"
        );
        (missing.ranges, missing.bytes, missing.reason) = (4, None, FailReason::NoRoute);
        missing.manifest_parts = 1;
        assert_eq!(
            format!("{missing}"),
            "95 of 100 segments of /a/v=1 arrived, 5 are missing (no route): 3, 10-13 and 2 more \
             ranges; 1 part of the manifest, which verifies some of them, is missing"
        );
    }
}
