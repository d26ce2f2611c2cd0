//! The controllers that every build has.

use core::str::FromStr;

use weir_base::UnknownWord;

use super::aimd::Aimd;
use super::config::Controllers;
use super::controller::Controller;
use super::cubic::Cubic;
use super::fixed::Fixed;
use super::ledbat::Ledbat;
use super::weir::Weir;

macro_rules! built_in {
    ($($(#[$doc:meta])* $constant:ident = $name:literal => $control:ty,)+) => {
        impl Controller {
            $($(#[$doc])* pub const $constant: Self = Self::of::<$control>($name);)+
        }

        impl Controllers {
            pub const BUILT_IN: Self = Self::new(&[$(Controller::$constant),+]);
            /// Their names, in the same order.
            pub const BUILT_IN_NAMES: &'static [&'static str] = &[$($name),+];
        }
    };
}

built_in! {
    /// The controller of TCP (RFC 9438); the default.
    CUBIC = "cubic" => Cubic,
    /// The controller of ndnget.
    AIMD = "aimd" => Aimd,
    /// A window that never changes.
    FIXED = "fixed" => Fixed,
    /// For background transfers (RFC 6817).
    LEDBAT = "ledbat" => Ledbat,
    /// Weir's own: a short queue, measured by delay.
    WEIR = "weir" => Weir,
}

/// Reads one of the built-in names. [`Controllers::parse`] reads names of any table.
impl FromStr for Controller {
    type Err = UnknownWord;

    fn from_str(name: &str) -> Result<Self, UnknownWord> {
        let known = Controllers::BUILT_IN.find(name);
        known.ok_or(UnknownWord { words: Controllers::BUILT_IN_NAMES })
    }
}

impl Default for Controller {
    fn default() -> Self {
        Self::CUBIC
    }
}
