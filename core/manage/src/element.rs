//! Encoding and decoding of the elements of management structures.

use alloc::{string::String, vec::Vec};

use weir_wire::{Name, NameView, tlv};

use crate::error::DecodeError;
use crate::numbers::types;

/// A management structure that is encoded as one TLV.
pub trait Element: Sized {
    const TYPE: u32;

    fn decode_value(value: &[u8]) -> Result<Self, DecodeError>;

    /// Appends the TLV-VALUE.
    fn encode_value(&self, writer: &mut Writer);

    /// Decodes exactly one TLV.
    fn decode(wire: &[u8]) -> Result<Self, DecodeError> {
        let (found, value) = tlv::read_single(wire)?;
        if found != Self::TYPE {
            return Err(DecodeError::Type { expected: Self::TYPE, found });
        }
        Self::decode_value(value)
    }

    /// Decodes a sequence of TLVs, such as the Content of a dataset. Skips other elements that are
    /// not critical.
    fn decode_all(content: &[u8]) -> Result<Vec<Self>, DecodeError> {
        let mut items = Vec::new();
        for element in Elements::new(content) {
            let element = element?;
            if element.typ == Self::TYPE {
                items.push(Self::decode_value(element.value)?);
            } else {
                element.skip()?;
            }
        }
        Ok(items)
    }

    /// Encodes one TLV.
    fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.element(self);
        writer.into_octets()
    }
}

/// One TLV.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawElement<'a> {
    pub(crate) typ: u32,
    pub(crate) value: &'a [u8],
    wire: &'a [u8],
}

impl<'a> RawElement<'a> {
    /// The value as a non-negative integer.
    pub(crate) fn number(self) -> Result<u64, DecodeError> {
        Ok(tlv::decode_nni(self.typ, self.value)?)
    }

    pub(crate) fn text(self, element: &'static str) -> Result<String, DecodeError> {
        core::str::from_utf8(self.value)
            .map(String::from)
            .map_err(|_| DecodeError::Value { element })
    }

    /// The whole TLV.
    pub(crate) fn wire(self) -> &'a [u8] {
        self.wire
    }

    pub(crate) fn name(self) -> Result<Name, DecodeError> {
        Ok(NameView::decode(self.wire)?.to_name())
    }

    /// The value as exactly one Name TLV, as in Strategy.
    pub(crate) fn inner_name(self) -> Result<Name, DecodeError> {
        let inner = Elements::new(self.value)
            .next()
            .ok_or(DecodeError::Missing { element: "Name in Strategy" })??;
        if inner.typ != types::NAME {
            return Err(DecodeError::Type { expected: types::NAME, found: inner.typ });
        }
        inner.name()
    }

    /// Skips an unknown element. Fails if it is critical (NDN packet 0.3, TLV evolvability).
    pub(crate) fn skip(self) -> Result<(), DecodeError> {
        if tlv::is_critical(self.typ) {
            return Err(DecodeError::Critical { found: self.typ });
        }
        Ok(())
    }
}

/// Iterates over the TLVs in a TLV-VALUE. Ends after the first malformed one.
pub(crate) struct Elements<'a>(tlv::Reader<'a>);

impl<'a> Elements<'a> {
    pub(crate) fn new(octets: &'a [u8]) -> Self {
        Self(tlv::Reader::new(octets))
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<RawElement<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let element = self.0.next()?;
        Some(match element {
            Ok(tlv::Element { typ, value, wire, .. }) => Ok(RawElement { typ, value, wire }),
            Err(error) => Err(error.into()),
        })
    }
}

/// Builds a sequence of TLVs.
#[derive(Debug, Default)]
pub struct Writer(tlv::Writer);

impl Writer {
    /// Appends a non-negative integer in its shortest form.
    pub fn number(&mut self, typ: u32, value: u64) -> &mut Self {
        self.0.nni(typ, value);
        self
    }

    pub fn text(&mut self, typ: u32, value: &str) -> &mut Self {
        self.0.tlv(typ, value.as_bytes());
        self
    }

    /// Appends a Name TLV.
    pub fn name(&mut self, name: &Name) -> &mut Self {
        self.0.tlv(types::NAME, name.as_view().value());
        self
    }

    /// Appends a TLV whose value `fill` writes.
    pub(crate) fn nested(&mut self, typ: u32, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let mut inner = Self::default();
        fill(&mut inner);
        self.0.tlv(typ, inner.0.as_slice());
        self
    }

    /// Appends a structure.
    pub(crate) fn element<E: Element>(&mut self, element: &E) -> &mut Self {
        self.nested(E::TYPE, |inner| element.encode_value(inner))
    }

    /// The encoded bytes.
    pub(crate) fn into_octets(self) -> Vec<u8> {
        self.0.into_vec()
    }
}
