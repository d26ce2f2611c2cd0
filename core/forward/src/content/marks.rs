//! Congestion marks on a share of Data.

/// The share that means all Data.
pub(crate) const FULL_SHARE: u32 = 1 << 16;

/// Marks a share of Data at even intervals. A random choice would mark the same share, but in
/// bursts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShareMarker {
    /// The sum of shares since the last mark.
    sum: u32,
}

impl ShareMarker {
    /// Whether the next Data is marked. `share` is in parts of [`FULL_SHARE`].
    #[inline]
    pub(crate) fn is_next_marked(&mut self, share: u32) -> bool {
        self.sum += share.min(FULL_SHARE);
        if self.sum < FULL_SHARE {
            return false;
        }
        self.sum -= FULL_SHARE;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_the_given_share() {
        let mut marker = ShareMarker::default();
        let mut marks = |share, count| (0..count).filter(|_| marker.is_next_marked(share)).count();
        assert_eq!(marks(0, 1_000), 0);
        assert_eq!(marks(FULL_SHARE, 1_000), 1_000);
        assert_eq!(marks(2 * FULL_SHARE, 10), 10);
        assert_eq!(marks(FULL_SHARE / 100, 100_000), 999);
    }
}
