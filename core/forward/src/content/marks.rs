//! Congestion marks on a share of the Data that pass by.

/// The share that stands for all Data.
pub(crate) const FULL_SHARE: u32 = 1 << 16;

/// Marks a share of the Data, evenly spaced: as many as a random choice would, without its bursts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShareMarker {
    /// The shares since the last mark, added up.
    sum: u32,
}

impl ShareMarker {
    /// Whether the next Data is marked. `share` is of [`FULL_SHARE`].
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
    fn marks_the_share_it_is_given() {
        let mut marker = ShareMarker::default();
        let mut marks = |share, count| (0..count).filter(|_| marker.is_next_marked(share)).count();
        assert_eq!(marks(0, 1_000), 0);
        assert_eq!(marks(FULL_SHARE, 1_000), 1_000);
        assert_eq!(marks(2 * FULL_SHARE, 10), 10);
        assert_eq!(marks(FULL_SHARE / 100, 100_000), 999);
    }
}
