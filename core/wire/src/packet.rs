use crate::data::DataView;
use crate::error::DecodeError;
use crate::interest::InterestView;
use crate::name::{NameHead, NameView};
use crate::tlv;

/// An Interest or a Data.
#[derive(Clone, Copy, Debug)]
pub enum PacketView<'a> {
    Interest(InterestView<'a>),
    Data(DataView<'a>),
}

impl<'a> PacketView<'a> {
    /// Decodes exactly one Interest or Data TLV.
    ///
    /// # Errors
    /// Those of [`InterestView::decode`] and [`DataView::decode`], and any other outer type.
    #[inline(always)]
    pub fn decode(wire: &'a [u8]) -> Result<Self, DecodeError> {
        Self::decode_after(wire, &mut NameHead::default())
    }

    /// Like [`PacketView::decode`], for one of several packets in a row. `head` holds the head of
    /// the previous packet's name, and receives that of this packet's name.
    ///
    /// # Errors
    /// Those of [`PacketView::decode`]. Afterwards `head` must not be used any more.
    #[inline(always)]
    pub fn decode_after(wire: &'a [u8], head: &mut NameHead<'a>) -> Result<Self, DecodeError> {
        match wire.first() {
            Some(&DATA_OCTET) => DataView::read(wire, head).map(Self::Data),
            _ => InterestView::read(wire, head).map(Self::Interest),
        }
    }

    #[inline]
    pub fn name(&self) -> NameView<'a> {
        match self {
            Self::Interest(interest) => interest.name,
            Self::Data(data) => data.name,
        }
    }
}

const DATA_OCTET: u8 = tlv::DATA as u8;
