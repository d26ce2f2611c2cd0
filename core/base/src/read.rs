//! Values that files write as text or as a number.

use alloc::string::ToString;
use core::fmt::{self, Display};
use core::marker::PhantomData;
use core::str::FromStr;

use serde::Deserializer;
use serde::de::{Error, Visitor};

/// Reads a value that may be written as text or as a number, and parses it with `FromStr`.
/// `expected` describes the value in errors.
pub fn text_or_number<'de, T, D>(from: D, expected: &'static str) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    from.deserialize_any(TextOrNumberVisitor(expected, PhantomData))
}

struct TextOrNumberVisitor<T>(&'static str, PhantomData<T>);

impl<T: FromStr<Err: Display>> Visitor<'_> for TextOrNumberVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}
