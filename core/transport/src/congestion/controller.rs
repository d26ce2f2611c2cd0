//! A controller by name, and its constructor.

use alloc::boxed::Box;
use core::fmt;

use super::CongestionControl;
use super::constants::{Constants, ControllerConstants};

/// The initial and the largest window of a controller, in chunks.
#[derive(Copy, Clone, Debug)]
pub struct WindowBounds {
    /// The initial window, at least 1; for `fixed` the only one. `None`: the controller's own.
    pub initial: Option<u32>,
    pub max: u32,
}

impl WindowBounds {
    /// The initial window: `default` unless the user or the scenario set another.
    pub fn initial_or(self, default: f64) -> f64 {
        self.initial.map_or(default, |window| f64::from(window.max(1)))
    }

    pub fn max(self) -> f64 {
        f64::from(self.max.max(1))
    }
}

/// A controller that is built from named constants.
pub trait FromConfig: CongestionControl + Sized + 'static {
    type Config: Constants;

    /// The controller of one path. Its window must stay within `bounds`.
    fn from_config(config: Self::Config, bounds: WindowBounds) -> Self;
}

/// Selects a congestion controller: its name, and how to build it for a path. Two are equal if
/// their names are equal.
#[derive(Copy, Clone)]
pub struct Controller {
    name: &'static str,
    functions: &'static Functions,
}

/// Two constants by name and value: the first must not exceed the second, but does.
type ConstantConflict = [(&'static str, f64); 2];

/// The functions of the type behind a [`Controller`].
struct Functions {
    make: fn(&ControllerConstants, WindowBounds) -> Box<dyn CongestionControl>,
    constants: &'static [&'static str],
    constant: fn(&str, f64) -> Option<&'static str>,
    out_of_order: fn(&ControllerConstants) -> Option<ConstantConflict>,
}

impl Controller {
    /// Names the controller `C`. A name must be unique among the controllers of a program.
    pub const fn of<C: FromConfig>(name: &'static str) -> Self {
        let functions = const {
            &Functions {
                make: make::<C>,
                constants: C::Config::KEYS,
                constant: constant::<C::Config>,
                out_of_order: |constants| config::<C::Config>(constants).out_of_order(),
            }
        };
        Self { name, functions }
    }

    pub const fn name(self) -> &'static str {
        self.name
    }

    /// The names of the constants that a [`ControllerConfig`](super::ControllerConfig) may set.
    pub fn constants(self) -> &'static [&'static str] {
        self.functions.constants
    }

    /// Builds the controller of one path.
    pub fn make(
        self,
        constants: &ControllerConstants,
        bounds: WindowBounds,
    ) -> Box<dyn CongestionControl> {
        (self.functions.make)(constants, bounds)
    }

    /// The name of a constant, if it exists and may have this value.
    pub(super) fn constant(self, key: &str, value: f64) -> Option<&'static str> {
        (self.functions.constant)(key, value)
    }

    pub(super) fn out_of_order(self, constants: &ControllerConstants) -> Option<ConstantConflict> {
        (self.functions.out_of_order)(constants)
    }
}

impl PartialEq for Controller {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Controller {}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

fn make<C: FromConfig>(
    constants: &ControllerConstants,
    bounds: WindowBounds,
) -> Box<dyn CongestionControl> {
    Box::new(C::from_config(config(constants), bounds))
}

fn config<C: Constants>(constants: &ControllerConstants) -> C {
    let mut config = C::default();
    for (key, value) in constants.iter() {
        let is_known = config.set(key, value);
        debug_assert!(is_known, "{key}");
    }
    config
}

fn constant<C: Constants>(key: &str, value: f64) -> Option<&'static str> {
    let key = C::KEYS.iter().find(|known| **known == key)?;
    C::default().set(key, value).then_some(key)
}
