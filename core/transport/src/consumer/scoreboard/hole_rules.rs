//! When the scoreboard fails a segment that gets no answer although others do. Such segments would
//! fill the window. [`Holes`](crate::consumer::holes::Holes) requests them again outside it.

/// `NoRoute` Nacks before a segment fails: 100 + 200 + 400 + 800 + 1000 ms, enough for a producer
/// or a route that is starting up.
pub(super) const NO_ROUTE_MAX: u32 = 5;
/// Retransmissions in the window before a segment is set aside. Five consecutive losses of one
/// segment are no coincidence: at a loss of 5 % they happen to one segment in 60 million.
const RETRIES_IN_WINDOW: u32 = 5;
/// While no hole is known, unresponsive paths count as a hole only after this many lifetimes. A
/// link that fails for a few seconds is not a hole.
const SILENT_LIFETIMES: u64 = 2;

/// When a segment that gets no answer is set aside.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum HoleRules {
    /// Never: it fails after all its retries.
    #[default]
    Off,
    /// After [`RETRIES_IN_WINDOW`], or after [`SILENT_LIFETIMES`] without any answer.
    Watch,
    /// A hole has been found: after one retry, one Nack, or one timeout without any answer.
    Known,
}

impl HoleRules {
    /// How often a segment without an answer is sent again, of at most `retries_max` times.
    pub(super) fn tries_max(self, retries_max: u32) -> u32 {
        match self {
            Self::Off => retries_max,
            Self::Watch => retries_max.min(RETRIES_IN_WINDOW),
            Self::Known => retries_max.min(1),
        }
    }

    /// How many "no route" Nacks a segment survives.
    pub(super) fn no_routes_max(self) -> u32 {
        if self == Self::Known { 0 } else { NO_ROUTE_MAX }
    }

    /// After how many lifetimes without a packet on any path segments fail; `None`: never.
    pub(super) fn silent_lifetimes(self) -> Option<u64> {
        match self {
            Self::Off => None,
            Self::Watch => Some(SILENT_LIFETIMES),
            Self::Known => Some(0),
        }
    }
}
