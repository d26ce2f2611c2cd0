//! Constants of controllers by name, and the text that chooses a controller with them.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString as _};
use core::fmt;
use core::str::FromStr;

use super::Controller;

/// Constants of a controller that a text may change.
pub(crate) trait Constants: Default {
    /// Their names.
    const KEYS: &'static [&'static str];

    /// Changes one; whether there is one of this name that may have this value.
    fn set(&mut self, key: &str, value: f64) -> bool;

    /// Two that contradict each other, the first of which must not be above the second.
    fn out_of_order(&self) -> Option<[(&'static str, f64); 2]>;
}

/// Which fields of a configuration a text may change, within which bounds, and which of two must
/// not be above the other.
macro_rules! constants {
    ($config:ty { $($key:ident in $range:expr,)* } $($low:ident <= $high:ident)?) => {
        impl $crate::congestion::constants::Constants for $config {
            const KEYS: &'static [&'static str] = &[$(stringify!($key)),*];

            fn set(&mut self, key: &str, value: f64) -> bool {
                match (key, value) {
                    $((key, value) if key == stringify!($key) && ($range).contains(&value) => {
                        self.$key = value;
                        true
                    })*
                    _ => false,
                }
            }

            fn out_of_order(&self) -> Option<[(&'static str, f64); 2]> {
                $(if self.$low > self.$high {
                    return Some([
                        (stringify!($low), self.$low),
                        (stringify!($high), self.$high),
                    ]);
                })?
                None
            }
        }
    };
}
pub(super) use constants;

/// Constants that one text may change at most.
const CHANGES_MAX: usize = 8;

/// Constants of a controller that are other than its defaults.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct ControllerConstants([Option<(&'static str, f64)>; CHANGES_MAX]);

impl ControllerConstants {
    /// Names and values, in the order in which they were given.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        self.0.iter().copied().flatten()
    }
}

/// A controller and its constants. As text: its name, then constants as `key=value`, for example
/// `chopcop beta_2=0.9 delta=4`.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct ControllerConfig {
    pub controller: Controller,
    /// What is other than its defaults.
    pub constants: ControllerConstants,
}

impl FromStr for ControllerConfig {
    type Err = ControllerError;

    fn from_str(text: &str) -> Result<Self, ControllerError> {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or("");
        let controller: Controller =
            name.parse().map_err(|_| ControllerError::Unknown(name.to_owned()))?;
        let mut constants = ControllerConstants::default();
        for (place, word) in words.enumerate() {
            let known = word.split_once('=').and_then(|(key, value)| {
                let value = value.parse().ok()?;
                Some((controller.constant(key, value)?, value))
            });
            let error = || ControllerError::Constant { controller, word: word.to_owned() };
            *constants.0.get_mut(place).ok_or_else(error)? = Some(known.ok_or_else(error)?);
        }
        if let Some([(low, low_value), (high, high_value)]) = controller.out_of_order(&constants) {
            let (low_value, high_value) = (low_value.to_string(), high_value.to_string());
            return Err(ControllerError::Order { controller, low, low_value, high, high_value });
        }
        Ok(Self { controller, constants })
    }
}

impl fmt::Display for ControllerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.controller)?;
        self.constants.iter().try_for_each(|(key, value)| write!(f, " {key}={value}"))
    }
}

fn names() -> String {
    Controller::WORDS.join(", ")
}

fn keys(controller: Controller) -> String {
    match controller.constants() {
        [] => "none".to_owned(),
        keys => keys.join(", "),
    }
}

/// Why a text chooses no controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControllerError {
    /// There is none of this name.
    #[error("there is no controller `{0}`; choose one of {names}", names = names())]
    Unknown(String),
    /// The controller has no such constant, or it cannot have this value.
    #[error(
        "`{word}` is no constant of `{controller}` or out of its bounds; it has {keys}",
        keys = keys(*controller)
    )]
    Constant {
        controller: Controller,
        /// As given.
        word: String,
    },
    /// Two constants contradict each other.
    #[error(
        "`{controller}` cannot have {low}={low_value} and {high}={high_value}: `{low}` must not be \
         above `{high}`; lower it, or raise the other"
    )]
    Order {
        controller: Controller,
        /// The one that must not be above the other.
        low: &'static str,
        low_value: String,
        high: &'static str,
        high_value: String,
    },
}
