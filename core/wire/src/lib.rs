#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod tlv;

mod builder;
mod data;
mod data_builder;
mod error;
mod frame;
mod interest;
mod interest_builder;
mod limits;
pub mod lp;
mod name;
mod packet;
mod padding;
mod rewrite;
mod run;
mod signature;
mod timestamp;
mod types;

pub use data::{DataView, content_type};
pub use data_builder::Data;
pub use error::DecodeError;
pub use frame::{FrameError, peek_frame};
pub use interest::{ForwardingHint, InterestView, SignatureView};
pub use interest_builder::Interest;
pub use limits::{DEFAULT_INTEREST_LIFETIME_MS, NAME_COMPONENTS_MAX, PACKET_SIZE_MAX};
pub use lp::{
    CongestionMark, HopSignal, LP_PREFIX_MAX, LpFraming, LpHeader, LpView, NackReason, PitToken,
    ShortToken,
};
pub use name::{
    Component, ComponentView, DIGEST_SIZE, Name, NameHead, NameUriError, NameView, UriStyle,
};
pub use packet::PacketView;
pub use padding::{PADDING_MAX, PADDING_MIN, pad_prefix};
pub use rewrite::rewrite_interest;
pub use run::{RUN_PREFIX_MAX, RUN_SPAN_MAX, RunFields, RunOffer, RunPattern};
pub use signature::{
    KeyLocator, KeyLocatorView, SignatureInfo, SignatureInfoView, ValidityPeriod,
    ValidityPeriodView, signature_type,
};
pub use timestamp::{format_timestamp, parse_timestamp};
