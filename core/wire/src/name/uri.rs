use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::str::FromStr;

use super::{Component, ComponentView, DIGEST_SIZE, Name, NameView};
use crate::tlv;

/// How components are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum UriStyle {
    /// With aliases where they exist: `/A/v=1/seg=0/sha256digest=00..`.
    #[default]
    Alternate,
    /// With type numbers, but keywords for digests: `/A/54=%01/50=%00/sha256digest=00..`.
    Numeric,
    /// With the type number of every component: `/8=A/54=%01/50=%00/1=%00..`.
    Canonical,
}

/// Why text is not the URI form of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameUriError {
    /// An empty component, `.` or `..`: write `...`, `....` and `.....`.
    #[error("a name component cannot be empty, '.' or '..' (an empty one is written '...')")]
    Periods,
    /// The text before `=` is neither a type number from 1 to 65535 nor a known alias.
    #[error("unknown component type before '=' (a literal '=' is written '%3D')")]
    UnknownType,
    /// The text after an alias is not a decimal number below 2^64 without leading zeros.
    #[error("not a decimal number below 2^64 without leading zeros")]
    Number,
    /// A digest that does not have 32 octets (64 hexadecimal digits after a keyword).
    #[error("a digest component holds 32 octets, as 64 hexadecimal digits")]
    Digest,
}

const IMPLICIT_DIGEST_KEYWORD: &str = "sha256digest";
const PARAMETERS_DIGEST_KEYWORD: &str = "params-sha256";

const ALIASES: [(&str, u32); 5] = [
    ("seg", tlv::SEGMENT_NAME_COMPONENT),
    ("off", tlv::BYTE_OFFSET_NAME_COMPONENT),
    ("v", tlv::VERSION_NAME_COMPONENT),
    ("t", tlv::TIMESTAMP_NAME_COMPONENT),
    ("seq", tlv::SEQUENCE_NUM_NAME_COMPONENT),
];

/// A name to be displayed in a URI style.
#[derive(Clone, Copy, Debug)]
pub struct UriDisplay<'a> {
    name: NameView<'a>,
    style: UriStyle,
}

impl<'a> UriDisplay<'a> {
    pub(super) const fn new(name: NameView<'a>, style: UriStyle) -> Self {
        Self { name, style }
    }
}

impl fmt::Display for UriDisplay<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            return formatter.write_char('/');
        }
        for component in self.name.components() {
            formatter.write_char('/')?;
            component.write_uri(self.style, formatter)?;
        }
        Ok(())
    }
}

impl ComponentView<'_> {
    /// Writes the URI form in `style`.
    ///
    /// # Errors
    /// Those of the formatter.
    pub fn write_uri(&self, style: UriStyle, out: &mut dyn Write) -> fmt::Result {
        let typ = u32::from(self.typ);
        if style != UriStyle::Canonical {
            let keyword = match typ {
                tlv::GENERIC_NAME_COMPONENT => return write_escaped(self.value, out),
                tlv::IMPLICIT_SHA256_DIGEST_COMPONENT => Some(IMPLICIT_DIGEST_KEYWORD),
                tlv::PARAMETERS_SHA256_DIGEST_COMPONENT => Some(PARAMETERS_DIGEST_KEYWORD),
                _ => None,
            };
            if let Some(keyword) = keyword {
                write!(out, "{keyword}=")?;
                return self.value.iter().try_for_each(|octet| write!(out, "{octet:02x}"));
            }
        }
        if style == UriStyle::Alternate
            && let Some((alias, number)) = aliased(self)
        {
            return write!(out, "{alias}={number}");
        }
        write!(out, "{typ}=")?;
        write_escaped(self.value, out)
    }
}

impl fmt::Display for ComponentView<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_uri(UriStyle::Alternate, formatter)
    }
}

/// Alias and number of a component that has both. A number that does not have its shortest form
/// gets no alias, because the text must parse to the same octets.
fn aliased(component: &ComponentView<'_>) -> Option<(&'static str, u64)> {
    let (alias, _) = ALIASES.iter().find(|(_, typ)| *typ == u32::from(component.typ))?;
    let number = component.as_number()?;
    (tlv::nni_size(number) == component.value.len()).then_some((*alias, number))
}

fn write_escaped(value: &[u8], out: &mut dyn Write) -> fmt::Result {
    if value.iter().all(|&octet| octet == b'.') {
        out.write_str("...")?;
    }
    for &octet in value {
        if octet.is_ascii_alphanumeric() || b"-._~".contains(&octet) {
            out.write_char(char::from(octet))?;
        } else {
            write!(out, "%{octet:02X}")?;
        }
    }
    Ok(())
}

impl FromStr for Name {
    type Err = NameUriError;

    fn from_str(text: &str) -> Result<Self, NameUriError> {
        let text = text.strip_prefix("ndn:").unwrap_or(text);
        let path = match text.strip_prefix("//") {
            // The text from two slashes to the next slash is an authority. Names have none: skip
            // it.
            Some(authority) => authority.split_once('/').map_or("", |(_, path)| path),
            None => text.strip_prefix('/').unwrap_or(text),
        };
        let mut name = Name::new();
        if path.is_empty() {
            return Ok(name);
        }
        for component in path.strip_suffix('/').unwrap_or(path).split('/') {
            name.push(&component.parse()?);
        }
        Ok(name)
    }
}

impl FromStr for Component {
    type Err = NameUriError;

    fn from_str(text: &str) -> Result<Self, NameUriError> {
        let Some((prefix, rest)) = text.split_once('=') else {
            return Ok(Component::generic(&unescape(text)?));
        };
        match prefix {
            IMPLICIT_DIGEST_KEYWORD => return parse_digest(rest).map(Component::implicit_digest),
            PARAMETERS_DIGEST_KEYWORD => {
                return parse_digest(rest).map(Component::parameters_digest);
            }
            _ => {}
        }
        if let Some((_, typ)) = ALIASES.iter().find(|(alias, _)| *alias == prefix) {
            let number = parse_decimal(rest).ok_or(NameUriError::Number)?;
            return Ok(Component::of(*typ, &tlv::encode_nni(number)));
        }
        let typ = parse_decimal(prefix)
            .and_then(|typ| u16::try_from(typ).ok())
            .filter(|typ| *typ != 0)
            .ok_or(NameUriError::UnknownType)?;
        Component::new(typ, &unescape(rest)?).map_err(|_| NameUriError::Digest)
    }
}

/// A decimal number in a component's text: only digits, no leading zero.
fn parse_decimal(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|octet| octet.is_ascii_digit());
    let has_leading_zero = text.len() > 1 && text.starts_with('0');
    if is_plain && !has_leading_zero { text.parse().ok() } else { None }
}

fn parse_digest(text: &str) -> Result<[u8; DIGEST_SIZE], NameUriError> {
    let text = text.as_bytes();
    if text.len() != 2 * DIGEST_SIZE {
        return Err(NameUriError::Digest);
    }
    let mut digest = [0; DIGEST_SIZE];
    for (octet, pair) in digest.iter_mut().zip(text.chunks_exact(2)) {
        *octet = hex_octet(pair[0], pair[1]).ok_or(NameUriError::Digest)?;
    }
    Ok(digest)
}

fn hex_octet(high: u8, low: u8) -> Option<u8> {
    let digit = |octet: u8| char::from(octet).to_digit(16);
    Some((digit(high)? << 4 | digit(low)?) as u8)
}

/// Decodes escapes. A `%` without two hexadecimal digits stands for itself.
fn unescape(text: &str) -> Result<Vec<u8>, NameUriError> {
    let mut value = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [octet, tail @ ..] = rest {
        rest = tail;
        match (*octet, tail) {
            (b'%', [high, low, after @ ..]) if hex_octet(*high, *low).is_some() => {
                value.extend(hex_octet(*high, *low));
                rest = after;
            }
            _ => value.push(*octet),
        }
    }
    // A component of periods has three more in its URI, so that it differs from `.` and `..`.
    if value.iter().all(|&octet| octet == b'.') {
        if value.len() < 3 {
            return Err(NameUriError::Periods);
        }
        value.drain(..3);
    }
    Ok(value)
}

#[cfg(feature = "serde")]
impl serde::Serialize for Name {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <alloc::string::String as serde::Deserialize>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
