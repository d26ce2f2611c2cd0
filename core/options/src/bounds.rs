//! The bounds of options.

use alloc::format;
use alloc::string::ToString;
use core::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use weir_base::text_or_number;
use weir_base::units::{Size, Time, UnitError};

/// Minimum memory of index and filter for each worker thread, in bytes.
pub const INDEX_BYTES_MIN: u64 = 1 << 20;

/// Minimum memory for Data that waits to be written: the largest Data, in bytes.
const BACKLOG_BYTES_MIN: u64 = 64 << 10;

/// A whole number from `MIN` to `MAX`.
pub(crate) fn count<'de, D, const MIN: u32, const MAX: u32>(from: D) -> Result<u32, D::Error>
where
    D: Deserializer<'de>,
{
    let number = i64::deserialize(from)?;
    let count = u32::try_from(number).ok().filter(|count| (MIN..=MAX).contains(count));
    count
        .ok_or_else(|| D::Error::custom(format!("{number} is out of range; choose {MIN} to {MAX}")))
}

/// A size in bytes from `MIN` to `MAX`.
pub(crate) fn size<'de, D, const MIN: u64, const MAX: u64>(from: D) -> Result<Size, D::Error>
where
    D: Deserializer<'de>,
{
    let size = Size::deserialize(from)?;
    if (MIN..=MAX).contains(&size.bytes) {
        return Ok(size);
    }
    let (least, most) = (Size { bytes: MIN }, Size { bytes: MAX });
    Err(D::Error::custom(format!("{size} is out of range; choose \"{least}\" to \"{most}\"")))
}

/// A time above 0, up to an hour.
pub(crate) fn positive_time<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    time(from, 1, 3_600, "choose for example \"500ms\"")
}

/// How long a record may stay in memory before it is written.
pub(crate) fn write_delay<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    let remedy = "a crash of the router loses records that are not written; choose at most \"1m\"";
    time(from, 0, 60, remedy)
}

fn time<'de, D>(from: D, ns_min: u64, s_max: u64, remedy: &str) -> Result<Time, D::Error>
where
    D: Deserializer<'de>,
{
    let time = Time::deserialize(from)?;
    if (ns_min..=s_max * 1_000_000_000).contains(&time.ns) {
        return Ok(time);
    }
    Err(D::Error::custom(format!("{time} is out of range; {remedy}")))
}

/// An option with words of its own besides numbers, in the form of `Display` and `FromStr`.
pub(crate) mod admission {
    use super::*;
    use serde::Serializer;
    use weir_store::disk::Admission;

    pub(crate) fn serialize<S: Serializer>(value: &Admission, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Admission, D::Error> {
        text_or_number(from, "\"all\", \"second-hit\" or a least size such as \"4KiB\"")
    }
}

/// A size, or `"auto"` for a size that the router chooses.
macro_rules! size_or_auto {
    ($(#[doc = $doc:literal])* $name:ident, $least:expr, $expected:literal) => {
        $(#[doc = $doc])*
        pub(crate) mod $name {
            use super::*;
            use serde::Serializer;

            struct Chosen(Option<Size>);

            impl FromStr for Chosen {
                type Err = UnitError;

                fn from_str(text: &str) -> Result<Self, UnitError> {
                    if text == "auto" {
                        return Ok(Self(None));
                    }
                    match text.parse::<Size>() {
                        Ok(size) if size.bytes >= $least => Ok(Self(Some(size))),
                        _ => {
                            let text = text.to_string();
                            Err(UnitError::Refused { text, expected: $expected })
                        }
                    }
                }
            }

            pub(crate) fn serialize<S>(size: &Option<Size>, to: S) -> Result<S::Ok, S::Error>
            where
                S: Serializer,
            {
                match size {
                    Some(size) => to.collect_str(size),
                    None => to.serialize_str("auto"),
                }
            }

            pub(crate) fn deserialize<'de, D>(from: D) -> Result<Option<Size>, D::Error>
            where
                D: Deserializer<'de>,
            {
                let chosen: Chosen = text_or_number(from, "a size such as \"1GiB\", or \"auto\"")?;
                Ok(chosen.0)
            }
        }
    };
}

size_or_auto!(
    /// Memory for an index in bytes, or `"auto"`.
    memory,
    INDEX_BYTES_MIN,
    "a valid size of index memory; choose at least \"1MiB\" for each worker thread, or \"auto\""
);
size_or_auto!(
    /// Memory for Data that waits to be written in bytes, or `"auto"`.
    backlog,
    BACKLOG_BYTES_MIN,
    "a valid size of the write backlog; choose at least \"64KiB\", or \"auto\""
);
