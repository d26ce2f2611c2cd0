//! Quantities as people write them: `"40Mbit"`, `"10ms"`, `"256KiB"`, `"1%"`, `"4700/s"`.
//!
//! Each type holds an integer (or a fraction), reads itself from text with a unit, and says in its
//! error what would have been right. In files, a bare key (`delay`) takes such a text, and the key
//! with the unit in its name (`delay_ns`) a plain integer.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

mod text;

pub use self::text::{
    UnitError, bytes, duration_ns, format_bytes, format_duration_ns, format_rate_bps, parse_bytes,
    parse_duration_ns, parse_probability, parse_rate_bps, rate_bps,
};

/// Bits a second, for example `"40Mbit"` or `"1.5 Gbit/s"`. Decimal prefixes, as for links.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    /// Bits a second.
    pub bps: u64,
}

/// A span of time, for example `"10ms"` or `"2.5us"`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Nanoseconds.
    pub ns: u64,
}

/// Octets, for example `"256KiB"` or `"1.5MB"`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    /// Octets.
    pub bytes: u64,
}

/// A number in 0 to 1, for example `"1%"` or `"0.01"`.
#[derive(Copy, Clone, Debug, PartialEq, PartialOrd)]
pub struct Fraction {
    /// The number, 0 to 1.
    pub value: f64,
}

const RATE: &str = "a rate; write a number with bit, kbit, Mbit, Gbit or Tbit (a second), for \
                    example \"40Mbit\"";
const TIME: &str = "a time; write a number with ns, us, ms, s, min or h, for example \"10ms\"";
const SIZE: &str = "a size; write a number with B, KiB, MiB, GiB, TiB, kB, MB, GB or TB, for \
                    example \"256KiB\"";
const FRACTION: &str = "a fraction; write a number from 0 to 1, or a percentage such as \"1%\"";
const SERVICE: &str = "a service time; write a time such as \"213us\", or a rate of service such \
                       as \"4700/s\"";

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        match parse_rate_bps(text)? {
            0 => Err(UnitError::Refused {
                text: text.to_owned(),
                expected: "a rate above 0; a link that is to carry nothing is one that is down",
            }),
            bps => Ok(Self { bps }),
        }
    }
}

impl FromStr for Time {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse_duration_ns(text).map(|ns| Self { ns })
    }
}

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse_bytes(text).map(|bytes| Self { bytes })
    }
}

impl FromStr for Fraction {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse_probability(text).map(|value| Self { value })
    }
}

/// A service time: text such as `"213us"`, or as a rate of service, `"4700/s"`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceText {
    pub(crate) ns: u64,
}

impl FromStr for ServiceText {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = || UnitError::Refused { text: text.to_owned(), expected: SERVICE };
        if let Some(rate) = text.trim().strip_suffix("/s") {
            let per_s: f64 = rate.trim_end().parse().map_err(|_| error())?;
            let ns = 1e9 / per_s;
            return if per_s > 0.0 && (0.5..1e18).contains(&ns) {
                Ok(Self { ns: ns.round() as u64 })
            } else {
                Err(error())
            };
        }
        text.parse::<Time>().map(|time| Self { ns: time.ns }).map_err(|_| error())
    }
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

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.value)
    }
}

/// Reads a text and parses it.
struct TextOf<T>(&'static str, std::marker::PhantomData<T>);

impl<T: FromStr<Err = UnitError>> Visitor<'_> for TextOf<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

macro_rules! text_serde {
    ($type:ty, $expected:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(TextOf($expected, std::marker::PhantomData))
            }
        }
    };
}

text_serde!(Rate, RATE);
text_serde!(Time, TIME);
text_serde!(Size, SIZE);
text_serde!(ServiceText, SERVICE);

struct FractionVisitor;

impl Visitor<'_> for FractionVisitor {
    type Value = Fraction;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FRACTION)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Fraction, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Fraction, E> {
        if (0.0..=1.0).contains(&value) {
            Ok(Fraction { value })
        } else {
            Err(E::custom(UnitError::Refused { text: value.to_string(), expected: FRACTION }))
        }
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Fraction, E> {
        self.visit_f64(value as f64)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Fraction, E> {
        self.visit_f64(value as f64)
    }
}

impl<'de> Deserialize<'de> for Fraction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FractionVisitor)
    }
}

impl Serialize for Fraction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.value)
    }
}

macro_rules! serialize_display {
    ($($type:ty),*) => {
        $(impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        })*
    };
}

serialize_display!(Rate, Time, Size);

#[cfg(test)]
mod tests;
