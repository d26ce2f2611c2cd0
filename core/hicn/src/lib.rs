#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod ah;
mod checksum;
mod convert;
mod error;
mod header;
pub mod manifest;
mod name;
mod native;
mod packet;
mod payload;
mod signing;

pub use ah::{AhView, Algorithm};
pub use convert::{Hop, from_tlv, to_tlv};
pub use error::HicnError;
pub use header::{Flags, HEADER_SIZE, Header, updated_label};
pub use name::{HicnName, HicnUriError};
pub use native::{NativeData, SignedOctets};
pub use packet::HicnView;
pub use payload::{PayloadError, RequestPayload};
pub use signing::NativeSigning;
