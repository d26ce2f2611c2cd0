#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod tlv;

mod data;
mod data_builder;
mod error;
mod frame;
mod interest;
mod interest_builder;
pub mod lp;
pub mod name;
mod rewrite;
mod signature;
pub mod timestamp;

pub use data::DataView;
pub use data_builder::Data;
pub use error::DecodeError;
pub use frame::{FrameError, peek_frame};
pub use interest::{ForwardingHint, InterestView, SignatureView};
pub use interest_builder::Interest;
pub use lp::{HopSignal, LP_PREFIX_MAX, LpHeader, LpView, NackReason, PitToken};
pub use name::{Component, ComponentView, Name, NameUriError, NameView, UriStyle};
pub use rewrite::rewrite_interest;
pub use signature::{
    KeyLocator, KeyLocatorView, SignatureInfo, SignatureInfoView, ValidityPeriod,
    ValidityPeriodView, signature_type,
};

/// Largest Interest, Data or reassembled packet, in octets (NDN packet 0.3, practical maximum).
pub const PACKET_SIZE_MAX: usize = 8800;

/// InterestLifetime of an Interest that states none, in milliseconds.
pub const DEFAULT_INTEREST_LIFETIME_MS: u64 = 4000;

/// A network packet of either kind.
#[derive(Clone, Copy, Debug)]
pub enum PacketView<'a> {
    /// An Interest.
    Interest(InterestView<'a>),
    /// A Data.
    Data(DataView<'a>),
}

impl<'a> PacketView<'a> {
    /// Decodes exactly one Interest or Data TLV.
    ///
    /// # Errors
    /// What [`InterestView::decode`] and [`DataView::decode`] refuse, and any other outer type.
    #[inline]
    pub fn decode(wire: &'a [u8]) -> Result<Self, DecodeError> {
        match wire.first() {
            Some(&DATA_OCTET) => DataView::decode(wire).map(Self::Data),
            _ => InterestView::decode(wire).map(Self::Interest),
        }
    }

    /// The name of the packet.
    #[inline]
    pub fn name(&self) -> NameView<'a> {
        match self {
            Self::Interest(interest) => interest.name,
            Self::Data(data) => data.name,
        }
    }
}

const DATA_OCTET: u8 = tlv::DATA as u8;
