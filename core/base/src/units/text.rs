//! Parsing and formatting of quantities with a unit: `"10ms"`, `"1.5us"`, `"100Mbit"`, `"2Gbit/s"`,
//! `"256KiB"`, `"1%"`.
//!
//! A number without a unit is rejected, because only the author of a file knows what `delay = "10"`
//! means. The exception is a size, which may be a plain number of bytes. Decimal fractions are
//! exact: no floating point is involved. A value that is finer than the stored unit (1 ns, 1 bit/s,
//! 1 byte) is rejected.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::Write as _;

/// Why a quantity was rejected. The text says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("empty {quantity}; write for example {example:?}")]
    Empty {
        /// What was expected, for example "duration".
        quantity: &'static str,
        example: &'static str,
    },
    /// The text does not start with a number.
    #[error("{text:?} is not a {quantity}; write a number and its unit, for example {example:?}")]
    NoNumber { text: String, quantity: &'static str, example: &'static str },
    #[error("{text:?} has no unit; write {suggestion}")]
    NoUnit {
        text: String,
        /// Ways to write it with a unit.
        suggestion: String,
    },
    /// The unit does not belong to this quantity.
    #[error("{unit:?} in {text:?} is no unit of {quantity}; use one of {accepted}")]
    UnknownUnit { text: String, unit: String, quantity: &'static str, accepted: &'static str },
    /// Finer than the stored unit.
    #[error("{text:?} is not a whole number of {base}; round it")]
    TooFine { text: String, base: &'static str },
    /// Parsed, but not allowed here.
    #[error("{text:?} is not {expected}")]
    Refused { text: String, expected: &'static str },
    /// Larger than the stored number.
    #[error("{text:?} is too large; the most is {max}")]
    TooLarge { text: String, max: &'static str },
}

struct Quantity {
    name: &'static str,
    example: &'static str,
    base: &'static str,
    accepted: &'static str,
    max: &'static str,
    /// The multiplier of a unit, or `None` if the unit is unknown.
    scale: fn(&str) -> Option<u128>,
    suggest: fn(&str) -> String,
}

const DURATION: Quantity = Quantity {
    name: "duration",
    example: "10ms",
    base: "nanoseconds",
    accepted: "ns, us, ms, s, m or min, h",
    max: "18446744073s",
    scale: duration_scale,
    suggest: |number| format!("\"{number}ms\" or \"{number}s\""),
};

const RATE: Quantity = Quantity {
    name: "rate",
    example: "40Mbit/s",
    base: "bits a second",
    accepted: "bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s (\"/s\" may be left out, bps and b/s mean the \
               same), B/s, kB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s",
    max: "18446744Tbit/s",
    scale: rate_scale,
    suggest: |number| format!("\"{number}Mbit/s\" or \"{number}kbit/s\""),
};

const BYTES: Quantity = Quantity {
    name: "size",
    example: "256KiB",
    base: "bytes",
    accepted: "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB (in capital letters or small ones; k, M, G \
               and T mean KiB, MiB, GiB and TiB)",
    max: "16777215TiB",
    scale: bytes_scale,
    suggest: |_| String::new(),
};

fn duration_scale(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" | "sec" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

fn prefix_scale(prefix: &str) -> Option<u128> {
    Some(match prefix {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    })
}

fn rate_scale(unit: &str) -> Option<u128> {
    for (ending, bits) in
        [("bit/s", 1), ("bits/s", 1), ("bit", 1), ("b/s", 1), ("bps", 1), ("B/s", 8), ("Bps", 8)]
    {
        if let Some(scale) = unit.strip_suffix(ending).and_then(prefix_scale) {
            return Some(scale * bits);
        }
    }
    // The kernel's traffic control writes these in small letters.
    match unit {
        "mbit" | "mbit/s" => Some(1_000_000),
        "gbit" | "gbit/s" => Some(1_000_000_000),
        _ => None,
    }
}

fn bytes_scale(unit: &str) -> Option<u128> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    })
}

/// Splits text into its number (digits, `_`, one point) and the rest.
fn split_number(text: &str) -> (&str, &str) {
    let end =
        text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// Computes `number * scale` exactly. Returns `None` if the text is not a number, `Err(true)` if
/// the value is too large, and `Err(false)` if it is too fine.
fn scaled(number: &str, scale: u128) -> Option<Result<u128, bool>> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |part: &str| part.chars().filter(|&c| c != '_').collect::<String>();
    let (whole, fraction) = (digits(whole), digits(fraction));
    let fraction = fraction.trim_end_matches('0');
    if fraction.contains('.') || whole.is_empty() || (number.ends_with('.')) {
        return None;
    }
    // 2^64 * 10^18 fits into 128 bits. With more digits the value is too large or too fine anyway.
    if whole.trim_start_matches('0').len() > 20 {
        return Some(Err(true));
    }
    if fraction.len() > 18 {
        return Some(Err(false));
    }
    let whole: u128 = whole.parse().ok()?;
    let mut value = match whole.checked_mul(scale) {
        Some(value) => value,
        None => return Some(Err(true)),
    };
    if !fraction.is_empty() {
        let numerator = match fraction.parse::<u128>().ok()?.checked_mul(scale) {
            Some(numerator) => numerator,
            None => return Some(Err(true)),
        };
        let denominator = 10u128.pow(fraction.len() as u32);
        if numerator % denominator != 0 {
            return Some(Err(false));
        }
        value += numerator / denominator;
    }
    Some(Ok(value))
}

fn parse(text: &str, quantity: &Quantity) -> Result<u64, UnitError> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(UnitError::Empty { quantity: quantity.name, example: quantity.example });
    }
    let (number, unit) = split_number(trimmed);
    let no_number = || UnitError::NoNumber {
        text: trimmed.to_owned(),
        quantity: quantity.name,
        example: quantity.example,
    };
    if number.is_empty() || scaled(number, 1).is_none() {
        return Err(no_number());
    }
    let scale = (quantity.scale)(unit).ok_or_else(|| match unit {
        "" => {
            UnitError::NoUnit { text: trimmed.to_owned(), suggestion: (quantity.suggest)(number) }
        }
        _ => UnitError::UnknownUnit {
            text: trimmed.to_owned(),
            unit: unit.to_owned(),
            quantity: quantity.name,
            accepted: quantity.accepted,
        },
    })?;
    let too_large = || UnitError::TooLarge { text: trimmed.to_owned(), max: quantity.max };
    match scaled(number, scale).ok_or_else(no_number)? {
        Ok(value) => u64::try_from(value).map_err(|_| too_large()),
        Err(true) => Err(too_large()),
        Err(false) => Err(UnitError::TooFine { text: trimmed.to_owned(), base: quantity.base }),
    }
}

/// A duration in nanoseconds: `"10ms"`, `"1.5us"`, `"2s"`, `"5min"`.
pub fn parse_duration_ns(text: &str) -> Result<u64, UnitError> {
    parse(text, &DURATION)
}

/// A rate in bits a second: `"100Mbit"`, `"2Gbit/s"`, `"10Mbps"`, `"1.5MB/s"` (bytes).
pub fn parse_rate_bps(text: &str) -> Result<u64, UnitError> {
    parse(text, &RATE)
}

/// A size in bytes: `"1500"`, `"1500B"`, `"64kB"` (64,000), `"256KiB"` (262,144).
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    parse(text, &BYTES)
}

pub fn parse_probability(text: &str) -> Result<f64, UnitError> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(UnitError::Empty { quantity: "probability", example: "1%" });
    }
    let (number, percent) = match trimmed.strip_suffix('%') {
        Some(number) => (number.trim_end(), true),
        None => (trimmed, false),
    };
    let plain = number.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    let value: f64 = number.parse().ok().filter(|_| plain).ok_or_else(|| UnitError::NoNumber {
        text: trimmed.to_owned(),
        quantity: "probability",
        example: "1%",
    })?;
    let value = if percent { value / 100.0 } else { value };
    if value > 1.0 {
        return Err(UnitError::TooLarge {
            text: trimmed.to_owned(),
            max: "1 or 100%, for example \"1%\"",
        });
    }
    Ok(value)
}

/// A frequency above 0, of packets or other events: `"15.94kpps"`, `"414pps"`, `"100/s"`, `"2kHz"`.
pub fn parse_frequency_hz(text: &str) -> Result<f64, UnitError> {
    let trimmed = text.trim();
    let (number, unit) = split_number(trimmed);
    let scale = match unit {
        "pps" | "/s" | "Hz" => 1.0,
        "kpps" | "k/s" | "kHz" => 1e3,
        "Mpps" | "M/s" | "MHz" => 1e6,
        "" if !number.is_empty() => {
            let suggestion = format!("\"{number}pps\" or \"{number}kpps\"");
            return Err(UnitError::NoUnit { text: trimmed.to_owned(), suggestion });
        }
        unit => {
            return Err(UnitError::UnknownUnit {
                text: trimmed.to_owned(),
                unit: unit.to_owned(),
                quantity: "packets a second",
                accepted: "pps, kpps, Mpps, /s, k/s, M/s, Hz, kHz, MHz",
            });
        }
    };
    let plain: String = number.chars().filter(|&c| c != '_').collect();
    let number = plain.parse::<f64>().ok().filter(|number| *number > 0.0 && number.is_finite());
    number.map(|number| number * scale).ok_or_else(|| UnitError::Refused {
        text: trimmed.to_owned(),
        expected: "a positive number of packets a second; write for example \"4kpps\"",
    })
}

/// Formats `value` in the largest of `units` that needs at most three decimal digits.
fn format_exact(value: u64, units: &[(u64, &str)]) -> String {
    for &(scale, unit) in units {
        if value >= scale && (value % scale).is_multiple_of((scale / 1_000).max(1)) {
            let mut text = (value / scale).to_string();
            let thousandths = value % scale / (scale / 1_000).max(1);
            if thousandths > 0 {
                let _ = write!(text, ".{thousandths:03}");
                text.truncate(text.trim_end_matches('0').len());
            }
            text.push_str(unit);
            return text;
        }
    }
    let (_, unit) = units[units.len() - 1];
    format!("{value}{unit}")
}

/// A duration that [`parse_duration_ns`] parses exactly: 1,500,000 is `"1.5ms"`.
pub(crate) fn format_duration_ns(ns: u64) -> String {
    format_exact(ns, &[(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")])
}

/// A rate that [`parse_rate_bps`] parses exactly: 100,000,000 is `"100Mbit/s"`.
pub(crate) fn format_rate_bps(bps: u64) -> String {
    const UNITS: [(u64, &str); 5] = [
        (1_000_000_000_000, "Tbit/s"),
        (1_000_000_000, "Gbit/s"),
        (1_000_000, "Mbit/s"),
        (1_000, "kbit/s"),
        (1, "bit/s"),
    ];
    format_exact(bps, &UNITS)
}

/// A size that [`parse_bytes`] parses exactly: 262,144 is `"256KiB"`, 64,000 is `"64kB"`.
pub(crate) fn format_bytes(bytes: u64) -> String {
    let binary = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (scale, unit) in binary {
        if bytes >= scale && bytes.is_multiple_of(scale) {
            return format!("{}{unit}", bytes / scale);
        }
    }
    let decimal =
        [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    for (scale, unit) in decimal {
        if bytes >= scale && bytes.is_multiple_of(scale) {
            return format!("{}{unit}", bytes / scale);
        }
    }
    format!("{bytes}B")
}

/// A size for people, in the largest binary unit and with about three digits: `1.50 KiB`.
pub fn approximate_bytes(count: u64) -> String {
    let (mut value, mut unit) = (count as f64, "");
    for larger in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    match unit {
        "" => count.to_string() + " B",
        _ if value < 10.0 => format!("{value:.2} {unit}"),
        _ if value < 100.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_with_units_are_exact() {
        assert_eq!(parse_duration_ns("10ms"), Ok(10_000_000));
        assert_eq!(parse_duration_ns(" 1.5 us "), Ok(1_500));
        assert_eq!(parse_duration_ns("0.000000001s"), Ok(1));
        assert_eq!(parse_duration_ns("2min"), Ok(120_000_000_000));
        assert_eq!(parse_rate_bps("100Mbit"), Ok(100_000_000));
        assert_eq!(parse_rate_bps("2Gbit/s"), Ok(2_000_000_000));
        assert_eq!(parse_rate_bps("1Mbps"), Ok(1_000_000));
        assert_eq!(parse_rate_bps("1.5MB/s"), Ok(12_000_000));
        assert_eq!(parse_rate_bps("10mbit"), Ok(10_000_000));
        assert_eq!(parse_bytes("256KiB"), Ok(262_144));
        assert_eq!(parse_bytes("64kB"), Ok(64_000));
        assert_eq!(parse_bytes("1_500B"), Ok(1_500));
        assert_eq!(parse_bytes("4096"), Ok(4_096));
        assert_eq!(parse_bytes("2 k"), Ok(2_048));
        assert_eq!(parse_bytes("3mib"), Ok(3 << 20));
        assert_eq!(parse_duration_ns("5m"), Ok(300_000_000_000));
        assert_eq!(parse_frequency_hz("15.94kpps"), Ok(15_940.0));
        assert_eq!(parse_frequency_hz("100/s"), Ok(100.0));
        assert_eq!(parse_frequency_hz("2 kHz"), Ok(2_000.0));
        assert_eq!(parse_probability("1%"), Ok(0.01));
        assert_eq!(parse_probability("0.25"), Ok(0.25));
    }

    #[test]
    fn what_is_refused_says_what_to_write() {
        let text = parse_duration_ns("10").unwrap_err().to_string();
        assert_eq!(text, r#""10" has no unit; write "10ms" or "10s""#);
        let text = parse_rate_bps("10MB").unwrap_err().to_string();
        assert!(text.contains(r#""MB" in "10MB" is no unit of rate"#), "{text}");
        assert!(text.contains("MB/s"), "{text}");
        let text = parse_frequency_hz("100").unwrap_err().to_string();
        assert_eq!(text, r#""100" has no unit; write "100pps" or "100kpps""#);
        assert!(parse_frequency_hz("4kbit").unwrap_err().to_string().contains("kpps"));
        assert!(matches!(parse_frequency_hz("0pps"), Err(UnitError::Refused { .. })));
        assert!(matches!(parse_duration_ns("0.5ns"), Err(UnitError::TooFine { .. })));
        assert!(matches!(parse_duration_ns("99999999999h"), Err(UnitError::TooLarge { .. })));
        assert!(matches!(parse_bytes("fast"), Err(UnitError::NoNumber { .. })));
        assert!(matches!(parse_bytes("1.2.3B"), Err(UnitError::NoNumber { .. })));
        assert!(matches!(parse_bytes("-1B"), Err(UnitError::NoNumber { .. })));
        assert!(matches!(parse_bytes("  "), Err(UnitError::Empty { .. })));
        assert!(matches!(parse_probability("101%"), Err(UnitError::TooLarge { .. })));
        assert!(matches!(parse_probability("nan"), Err(UnitError::NoNumber { .. })));
    }

    #[test]
    fn octets_have_a_unit() {
        assert_eq!(approximate_bytes(0), "0 B");
        assert_eq!(approximate_bytes(1023), "1023 B");
        assert_eq!(approximate_bytes(1536), "1.50 KiB");
        assert_eq!(approximate_bytes(512 << 20), "512 MiB");
        assert_eq!(approximate_bytes(u64::MAX), "16.0 EiB");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(value: u64, shift in 0u32..64) {
            let value = value >> shift;
            prop_assert_eq!(parse_duration_ns(&format_duration_ns(value)), Ok(value));
            prop_assert_eq!(parse_rate_bps(&format_rate_bps(value)), Ok(value));
            prop_assert_eq!(parse_bytes(&format_bytes(value)), Ok(value));
        }

        #[test]
        fn round_values_read_back(value in 0u64..10_000, digits in 0u32..12) {
            let value = value * 10u64.pow(digits);
            prop_assert_eq!(parse_duration_ns(&format_duration_ns(value)), Ok(value));
            prop_assert_eq!(parse_rate_bps(&format_rate_bps(value)), Ok(value));
            prop_assert_eq!(parse_bytes(&format_bytes(value)), Ok(value));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,24}", number in "[0-9._]{0,40}[a-zA-Z/%]{0,6}") {
            for text in [&text, &number] {
                let _ = (parse_duration_ns(text), parse_rate_bps(text));
                let _ = (parse_bytes(text), parse_probability(text), parse_frequency_hz(text));
            }
        }
    }
}
