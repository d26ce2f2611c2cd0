//! Quantities with units: `"40Mbit"`, `"10ms"`, `"256KiB"`, `"1%"`, `"4.7kpps"`.
//!
//! The command line, router configuration, scenarios, topologies and the link emulator all parse
//! them here. Each type holds an integer (or a fraction) and parses text with a unit. Its errors
//! say what to write instead.

use core::fmt;
use core::str::FromStr;

mod text;

pub use self::text::{
    UnitError, approximate_bytes, parse_bytes, parse_duration_ns, parse_frequency_hz,
    parse_probability, parse_rate_bps,
};
pub(crate) use self::text::{format_bytes, format_duration_ns, format_rate_bps};

/// A number for an interface whose integers are signed, such as SQL and OpenTelemetry.
pub fn saturating_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Declares a type of quantity: its number, how it is parsed, and what errors say is expected.
macro_rules! quantity {
    (
        $(#[doc = $doc:literal])*
        $type:ident { $(#[doc = $field_doc:literal])* $field:ident: $number:ty }
        $parse:expr, $expected:literal
    ) => {
        $(#[doc = $doc])*
        #[derive(Copy, Clone, Debug, PartialEq, PartialOrd)]
        pub struct $type {
            $(#[doc = $field_doc])*
            pub $field: $number,
        }

        impl FromStr for $type {
            type Err = UnitError;

            fn from_str(text: &str) -> Result<Self, UnitError> {
                $parse(text).map(|$field| Self { $field })
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                crate::text_or_number(from, $expected)
            }
        }
    };
}

quantity! {
    /// Bits a second above 0, for example `"40Mbit"` or `"1.5 Gbit/s"`. Decimal prefixes, as for
    /// links.
    Rate {
        /// Bits a second.
        bps: u64
    }
    positive_rate_bps, "a rate such as \"40Mbit\""
}
quantity! {
    /// A span of time, for example `"10ms"` or `"2.5us"`.
    Time {
        ns: u64
    }
    parse_duration_ns, "a time such as \"10ms\""
}
quantity! {
    /// Bytes: a whole number, or with a unit, for example `"256KiB"` or `"1.5MB"`.
    Size {
        bytes: u64
    }
    parse_bytes, "a size: bytes as a number, or text such as \"256KiB\""
}
quantity! {
    /// A number in 0 to 1, for example `"1%"` or `"0.01"`.
    Fraction {
        /// The number, 0 to 1.
        value: f64
    }
    parse_probability, "a number from 0 to 1, or a percentage such as \"1%\""
}
quantity! {
    /// Packets or operations a second above 0, for example `"4.7kpps"` or `"100/s"`.
    Frequency {
        /// Events a second.
        hz: f64
    }
    parse_frequency_hz, "a rate such as \"4.7kpps\" or \"100/s\""
}
quantity! {
    /// A service time, for example `"213us"`, or its rate, for example `"4700/s"`.
    Period {
        ns: u64
    }
    parse_period_ns, "a service time such as \"213us\", or a rate of service such as \"4700/s\""
}

impl Eq for Rate {}
impl Eq for Time {}
impl Eq for Size {}
impl Eq for Period {}

fn positive_rate_bps(text: &str) -> Result<u64, UnitError> {
    match parse_rate_bps(text)? {
        0 => Err(UnitError::Refused {
            text: text.into(),
            expected: "a rate above 0; to stop all traffic, take the link down",
        }),
        bps => Ok(bps),
    }
}

fn parse_period_ns(text: &str) -> Result<u64, UnitError> {
    let refused = || UnitError::Refused {
        text: text.into(),
        expected: "a service time; write a time such as \"213us\", or a rate of service such as \
                   \"4700/s\"",
    };
    match parse_frequency_hz(text) {
        Ok(hz) => Some(libm::round(1e9 / hz)).filter(|ns| (1.0..1e18).contains(ns)),
        Err(_) => return parse_duration_ns(text).map_err(|_| refused()),
    }
    .map(|ns| ns as u64)
    .ok_or_else(refused)
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_rate_bps(self.bps))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_duration_ns(self.ns))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_bytes(self.bytes))
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests;
