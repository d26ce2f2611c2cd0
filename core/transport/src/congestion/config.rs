//! The text that chooses a controller and sets its constants.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;

use super::constants::ControllerConstants;
use super::controller::Controller;

/// The controllers that a program knows by name.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Controllers(&'static [Controller]);

impl Default for Controllers {
    fn default() -> Self {
        Self::BUILT_IN
    }
}

impl Controllers {
    pub const fn new(all: &'static [Controller]) -> Self {
        Self(all)
    }

    pub fn iter(self) -> impl Iterator<Item = Controller> {
        self.0.iter().copied()
    }

    pub fn names(self) -> Vec<&'static str> {
        self.iter().map(Controller::name).collect()
    }

    pub fn find(self, name: &str) -> Option<Controller> {
        self.iter().find(|controller| controller.name() == name)
    }

    /// Parses the text of a [`ControllerConfig`].
    ///
    /// # Errors
    /// The table has no such controller, the controller has no such constant, or a value is out of
    /// its bounds.
    pub fn parse(self, text: &str) -> Result<ControllerConfig, ControllerError> {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or("");
        let controller = self
            .find(name)
            .ok_or_else(|| ControllerError::Unknown { name: name.to_owned(), known: self })?;
        let mut constants = ControllerConstants::default();
        for word in words {
            let known = word.split_once('=').and_then(|(key, value)| {
                let value = value.parse().ok()?;
                Some((controller.constant(key, value)?, value))
            });
            if !known.is_some_and(|(key, value)| constants.push(key, value)) {
                return Err(ControllerError::Constant { controller, word: word.to_owned() });
            }
        }
        if let Some([(low, low_value), (high, high_value)]) = controller.out_of_order(&constants) {
            let (low_value, high_value) = (low_value.to_string(), high_value.to_string());
            return Err(ControllerError::Order { controller, low, low_value, high, high_value });
        }
        Ok(ControllerConfig { controller, constants })
    }
}

/// A controller and its constants. As text: its name, then constants as `key=value`, for example
/// `cubic beta=0.8 steepness=1`.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct ControllerConfig {
    pub controller: Controller,
    pub constants: ControllerConstants,
}

impl fmt::Display for ControllerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.controller)?;
        self.constants.iter().try_for_each(|(key, value)| write!(f, " {key}={value}"))
    }
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
    /// The table has no controller of this name.
    #[error(
        "there is no controller `{name}`; choose one of {names}",
        names = known.names().join(", ")
    )]
    Unknown { name: String, known: Controllers },
    /// The controller has no such constant, or the value is out of its bounds.
    #[error(
        "`{word}` is not a constant of `{controller}`, or is out of bounds; it has {keys}",
        keys = keys(*controller)
    )]
    Constant {
        controller: Controller,
        /// The word as given.
        word: String,
    },
    /// Two constants contradict each other.
    #[error(
        "`{controller}` cannot have {low}={low_value} and {high}={high_value}: `{low}` must not be \
         above `{high}`; lower it, or raise the other"
    )]
    Order {
        controller: Controller,
        /// The constant that must not exceed the other.
        low: &'static str,
        low_value: String,
        high: &'static str,
        high_value: String,
    },
}
