use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;

use super::{DIGEST_SIZE, NameScan};
use crate::error::DecodeError;
use crate::tlv;

/// A name component, borrowed. Its order is the canonical one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ComponentView<'a> {
    /// TLV-TYPE, from 1.
    pub typ: u16,
    pub value: &'a [u8],
    pub wire: &'a [u8],
}

impl<'a> ComponentView<'a> {
    /// Decodes a whole component TLV.
    ///
    /// # Errors
    /// The octets are no name component.
    pub(crate) fn decode(wire: &'a [u8]) -> Result<Self, DecodeError> {
        NameScan::of(wire)?;
        let component = Self::take(wire).ok_or(DecodeError::Truncated)?;
        match wire.len() - component.wire.len() {
            0 => Ok(component),
            more => Err(DecodeError::TrailingOctets(more)),
        }
    }

    /// The component at the start of validated octets; `None` if there are none.
    #[inline]
    pub(crate) fn take(octets: &'a [u8]) -> Option<Self> {
        if let [typ @ 1..=252, length @ 0..=252, rest @ ..] = octets {
            let length = usize::from(*length);
            let value = rest.get(..length)?;
            return Some(Self { typ: u16::from(*typ), value, wire: &octets[..length + 2] });
        }
        let element = tlv::Reader::new(octets).next_element().ok().flatten()?;
        Some(Self { typ: element.typ as u16, value: element.value, wire: element.wire })
    }

    #[inline]
    pub const fn is_generic(&self) -> bool {
        self.typ as u32 == tlv::GENERIC_NAME_COMPONENT
    }

    /// Whether this is a KeywordNameComponent with this value.
    #[inline]
    pub fn is_keyword(&self, keyword: &[u8]) -> bool {
        u32::from(self.typ) == tlv::KEYWORD_NAME_COMPONENT && self.value == keyword
    }

    #[inline]
    pub const fn is_implicit_digest(&self) -> bool {
        self.typ as u32 == tlv::IMPLICIT_SHA256_DIGEST_COMPONENT
    }

    #[inline]
    pub const fn is_parameters_digest(&self) -> bool {
        self.typ as u32 == tlv::PARAMETERS_SHA256_DIGEST_COMPONENT
    }

    /// The value as a non-negative integer, for any type of component; `None` if its length does
    /// not fit.
    #[inline]
    pub fn as_number(&self) -> Option<u64> {
        tlv::nni(self.value)
    }

    fn number_of(&self, typ: u32) -> Option<u64> {
        if u32::from(self.typ) == typ { self.as_number() } else { None }
    }

    #[inline]
    pub fn as_segment(&self) -> Option<u64> {
        self.number_of(tlv::SEGMENT_NAME_COMPONENT)
    }

    #[inline]
    pub fn as_version(&self) -> Option<u64> {
        self.number_of(tlv::VERSION_NAME_COMPONENT)
    }

    #[inline]
    pub fn as_sequence(&self) -> Option<u64> {
        self.number_of(tlv::SEQUENCE_NUM_NAME_COMPONENT)
    }

    pub fn to_component(&self) -> Component {
        Component { typ: self.typ, wire: self.wire.to_vec() }
    }
}

impl PartialOrd for ComponentView<'_> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ComponentView<'_> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.wire.cmp(other.wire)
    }
}

impl fmt::Debug for ComponentView<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// A name component, owned. Its order is the canonical one.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Component {
    typ: u16,
    wire: Vec<u8>,
}

impl Component {
    /// A component of any type.
    ///
    /// # Errors
    /// [`DecodeError::ComponentType`] for type 0, [`DecodeError::DigestComponentLength`] for a
    /// digest component that does not have 32 octets.
    pub fn new(typ: u16, value: &[u8]) -> Result<Self, DecodeError> {
        if typ == 0 {
            return Err(DecodeError::ComponentType(0));
        }
        let is_digest = u32::from(typ) <= tlv::PARAMETERS_SHA256_DIGEST_COMPONENT;
        if is_digest && value.len() != DIGEST_SIZE {
            return Err(DecodeError::DigestComponentLength(value.len()));
        }
        Ok(Self::of(u32::from(typ), value))
    }

    /// A component whose type and value are known to be valid.
    pub(super) fn of(typ: u32, value: &[u8]) -> Self {
        let mut writer = tlv::Writer::with_capacity(value.len() + 8);
        writer.tlv(typ, value);
        Self { typ: typ as u16, wire: writer.into_vec() }
    }

    pub fn generic(value: &[u8]) -> Self {
        Self::of(tlv::GENERIC_NAME_COMPONENT, value)
    }

    pub(crate) fn keyword(value: &[u8]) -> Self {
        Self::of(tlv::KEYWORD_NAME_COMPONENT, value)
    }

    pub fn segment(number: u64) -> Self {
        Self::of(tlv::SEGMENT_NAME_COMPONENT, &tlv::encode_nni(number))
    }

    pub fn version(number: u64) -> Self {
        Self::of(tlv::VERSION_NAME_COMPONENT, &tlv::encode_nni(number))
    }

    pub fn sequence(number: u64) -> Self {
        Self::of(tlv::SEQUENCE_NUM_NAME_COMPONENT, &tlv::encode_nni(number))
    }

    pub fn implicit_digest(digest: [u8; DIGEST_SIZE]) -> Self {
        Self::of(tlv::IMPLICIT_SHA256_DIGEST_COMPONENT, &digest)
    }

    pub(crate) fn parameters_digest(digest: [u8; DIGEST_SIZE]) -> Self {
        Self::of(tlv::PARAMETERS_SHA256_DIGEST_COMPONENT, &digest)
    }

    pub(crate) fn wire(&self) -> &[u8] {
        &self.wire
    }

    pub fn as_view(&self) -> ComponentView<'_> {
        ComponentView::take(&self.wire).expect("an owned component holds one component")
    }
}

impl From<ComponentView<'_>> for Component {
    fn from(view: ComponentView<'_>) -> Self {
        view.to_component()
    }
}

impl PartialOrd for Component {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Component {
    fn cmp(&self, other: &Self) -> Ordering {
        self.wire.cmp(&other.wire)
    }
}

impl fmt::Display for Component {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.as_view(), formatter)
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}
