pub const NS_PER_US: u64 = 1_000;
pub const NS_PER_MS: u64 = 1_000_000;
pub const NS_PER_S: u64 = 1_000_000_000;

/// A point in time: nanoseconds since an epoch that the driver chooses. It never runs backwards.
///
/// The core has no clock: wall-clock time and simulated time look the same to it.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Default)]
pub struct Instant(u64);

impl Instant {
    pub const ZERO: Self = Self(0);
    /// A time that no driver reaches (584 years after the epoch).
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// The time `ns` nanoseconds after the epoch.
    #[inline]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the epoch.
    #[inline]
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// The time `ns` nanoseconds later, at most [`Instant::FAR_FUTURE`].
    #[inline]
    pub const fn plus_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// Nanoseconds from `earlier` to `self`; 0 if `earlier` is later.
    #[inline]
    pub const fn ns_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let t = Instant::from_ns(5);
        assert_eq!(t.plus_ns(7).as_ns(), 12);
        assert_eq!(Instant::FAR_FUTURE.plus_ns(1), Instant::FAR_FUTURE);
        assert_eq!(t.ns_since(Instant::from_ns(9)), 0);
        assert_eq!(Instant::from_ns(9).ns_since(t), 4);
    }
}
