//! When the scoreboard gives up segments that get no answer although others do, so that they do not
//! hold the window. [`Holes`](crate::consumer::holes::Holes) requests them again outside the
//! window.

/// Nacks `NoRoute` to one segment before it is given up: 100 + 200 + 400 + 800 + 1000 ms, for a
/// producer or a route that is just coming up.
pub(super) const NO_ROUTE_MAX: u32 = 5;
/// Retransmissions of a segment in the window before it is set aside. Five losses in a row of one
/// segment are no chance: at a loss of 5 % one segment in 60 million meets them.
const RETRIES_IN_WINDOW: u32 = 5;
/// As long as no hole is known, all paths must have been silent for this many lifetimes of an
/// Interest before silence counts as a hole: a link that fails for seconds is none.
const SILENT_LIFETIMES: u64 = 2;

/// When a segment that gets no answer is set aside.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum HoleRules {
    /// Never: it is given up after all its retries.
    #[default]
    Off,
    /// After [`RETRIES_IN_WINDOW`], and after [`SILENT_LIFETIMES`] without any answer.
    Watch,
    /// A hole has been met: after one retry, one Nack, or one timeout without any answer.
    Known,
}

impl HoleRules {
    /// How often a segment that gets no answer is sent again, of `retries_max` times.
    pub(super) fn tries_max(self, retries_max: u32) -> u32 {
        match self {
            Self::Off => retries_max,
            Self::Watch => retries_max.min(RETRIES_IN_WINDOW),
            Self::Known => retries_max.min(1),
        }
    }

    /// How many Nacks for want of a route a segment takes.
    pub(super) fn no_routes_max(self) -> u32 {
        if self == Self::Known { 0 } else { NO_ROUTE_MAX }
    }

    /// For how many lifetimes all paths must have been silent; `None`: silence does not count.
    pub(super) fn silent_lifetimes(self) -> Option<u64> {
        match self {
            Self::Off => None,
            Self::Watch => Some(SILENT_LIFETIMES),
            Self::Known => Some(0),
        }
    }
}
