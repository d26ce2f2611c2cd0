//! Quantities as people write them: `"40Mbit"`, `"10ms"`, `"256KiB"`, `"1%"`, `"4700/s"`.
//!
//! Each type holds an integer (or a fraction), reads itself from text with a unit, and says in its
//! error what would have been right. In files, a bare key (`delay`) takes such a text, and the key
//! with the unit in its name (`delay_ns`) a plain integer.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Why a text is no quantity: what was read, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct UnitError {
    text: String,
    expected: &'static str,
}

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
const TIME: &str = "a time; write a number with ns, us, ms, s, m or h, for example \"10ms\"";
const SIZE: &str = "a size; write a number with B, KiB, MiB, GiB, TiB, kB, MB, GB or TB, for \
                    example \"256KiB\"";
const FRACTION: &str = "a fraction; write a number from 0 to 1, or a percentage such as \"1%\"";
const SERVICE: &str = "a service time; write a time such as \"213us\", or a rate of service such \
                       as \"4700/s\"";

/// Digits after the point that are read.
const DECIMALS_MAX: usize = 18;

/// `number` times `scale`, rounded to the nearest; exact, since the number is read as decimal
/// digits.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let is_digits = |text: &str| text.bytes().all(|octet| octet.is_ascii_digit());
    let is_number = is_digits(whole) && is_digits(decimals);
    if !is_number || (whole.is_empty() && decimals.is_empty()) || decimals.len() > DECIMALS_MAX {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { u128::from(whole.parse::<u64>().ok()?) };
    let divisor = 10u128.pow(decimals.len() as u32);
    let part: u128 = if decimals.is_empty() { 0 } else { decimals.parse().ok()? };
    let scale = u128::from(scale);
    let total = whole.checked_mul(scale)? + (part * scale + divisor / 2) / divisor;
    u64::try_from(total).ok()
}

/// The number and the unit of a text.
fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

fn parse(text: &str, expected: &'static str, scale_of: fn(&str) -> Option<u64>) -> Parsed {
    let (number, unit) = split_unit(text);
    scale_of(unit)
        .and_then(|scale| scaled(number, scale))
        .ok_or_else(|| UnitError { text: text.to_owned(), expected })
}

type Parsed = Result<u64, UnitError>;

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let scale_of = |unit: &str| {
            let unit = unit.strip_suffix("/s").or(unit.strip_suffix("ps")).unwrap_or(unit);
            match unit {
                "bit" | "b" => Some(1),
                "kbit" | "kb" | "Kbit" => Some(1_000),
                "Mbit" | "Mb" | "mbit" => Some(1_000_000),
                "Gbit" | "Gb" | "gbit" => Some(1_000_000_000),
                "Tbit" | "Tb" | "tbit" => Some(1_000_000_000_000),
                _ => None,
            }
        };
        let bps = parse(text, RATE, scale_of)?;
        if bps == 0 {
            return Err(UnitError {
                text: text.to_owned(),
                expected: "a rate above 0; a link that is to carry nothing is one that is down",
            });
        }
        Ok(Self { bps })
    }
}

impl FromStr for Time {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let scale_of = |unit: &str| match unit {
            "ns" => Some(1),
            "us" | "µs" => Some(1_000),
            "ms" => Some(1_000_000),
            "s" => Some(1_000_000_000),
            "m" | "min" => Some(60_000_000_000),
            "h" => Some(3_600_000_000_000),
            _ => None,
        };
        match parse(text, TIME, scale_of) {
            // The one number that needs no unit.
            Err(_) if text.trim() == "0" => Ok(Self { ns: 0 }),
            parsed => parsed.map(|ns| Self { ns }),
        }
    }
}

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let scale_of = |unit: &str| match unit.to_ascii_lowercase().as_str() {
            "" | "b" => Some(1),
            "k" | "kib" => Some(1 << 10),
            "m" | "mib" => Some(1 << 20),
            "g" | "gib" => Some(1 << 30),
            "t" | "tib" => Some(1 << 40),
            "kb" => Some(1_000),
            "mb" => Some(1_000_000),
            "gb" => Some(1_000_000_000),
            "tb" => Some(1_000_000_000_000),
            _ => None,
        };
        parse(text, SIZE, scale_of).map(|bytes| Self { bytes })
    }
}

impl FromStr for Fraction {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let trimmed = text.trim();
        let (number, divisor) = match trimmed.strip_suffix('%') {
            Some(percent) => (percent.trim_end(), 100.0),
            None => (trimmed, 1.0),
        };
        let value = number.parse::<f64>().ok().map(|number| number / divisor);
        match value {
            Some(value) if (0.0..=1.0).contains(&value) => Ok(Self { value }),
            _ => Err(UnitError { text: text.to_owned(), expected: FRACTION }),
        }
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
        let error = || UnitError { text: text.to_owned(), expected: SERVICE };
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

/// The largest unit that gives a whole number, or a plain count of the smallest.
fn write_whole(f: &mut fmt::Formatter<'_>, value: u64, units: &[(u64, &str)]) -> fmt::Result {
    let fits = |&&(scale, _): &&(u64, &str)| value >= scale && value.is_multiple_of(scale);
    let (scale, unit) = units.iter().find(fits).or(units.last()).copied().unwrap_or((1, ""));
    write!(f, "{}{unit}", value / scale)
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (1_000_000_000_000, "Tbit"),
            (1_000_000_000, "Gbit"),
            (1_000_000, "Mbit"),
            (1_000, "kbit"),
            (1, "bit"),
        ];
        write_whole(f, self.bps, &units)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
        write_whole(f, self.ns, &units)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units =
            [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")];
        write_whole(f, self.bytes, &units)
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
            Err(E::custom(UnitError { text: value.to_string(), expected: FRACTION }))
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
