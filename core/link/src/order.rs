use alloc::format;
use alloc::string::String;
use core::fmt;

/// Two options that contradict each other. The message has their names, their values and a remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionOrderError(String);

impl OptionOrderError {
    /// Refuses a first value that is not below the second one, with the names of both options.
    ///
    /// # Errors
    /// If it is not below.
    pub fn require_below<T: PartialOrd + fmt::Display>(
        low: (&str, T),
        high: (&str, T),
    ) -> Result<(), Self> {
        if low.1 < high.1 { Ok(()) } else { Err(Self::new(low, high, "be below")) }
    }

    /// Refuses a first value that is above the second one.
    pub(crate) fn require_not_above<T: PartialOrd + fmt::Display>(
        low: (&str, T),
        high: (&str, T),
    ) -> Result<(), Self> {
        if low.1 <= high.1 { Ok(()) } else { Err(Self::new(low, high, "not be above")) }
    }

    fn new<T: fmt::Display>(
        (low, low_value): (&str, T),
        (high, high_value): (&str, T),
        must: &str,
    ) -> Self {
        Self(format!(
            "{low}={low_value} and {high}={high_value} contradict each other: `{low}` must {must} \
             `{high}`"
        ))
    }
}
