#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod ah;
mod checksum;
pub mod control;
mod convert;
mod error;
mod header;
mod interest_manifest;
pub mod manifest;
mod name;
mod native;
mod packet;
mod payload;
mod prefix;
mod signing;

pub use ah::{AhView, Algorithm};
pub use convert::{Hop, from_tlv, hicn_parts, tlv_parts, to_tlv};
pub use error::HicnError;
pub use header::{Flags, HEADER_SIZE, Header, updated_label};
pub use interest_manifest::{INTEREST_MANIFEST_HEADER_SIZE, InterestManifest, SUFFIXES_MAX};
pub use name::HicnName;
pub use native::{NativeData, SignedOctets, path_label};
pub use packet::HicnView;
pub use payload::{PayloadError, RequestPayload};
pub use prefix::{HicnPrefix, HicnUriError};
pub use signing::NativeSigning;
