#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod identity;
mod router;
mod signals;
mod trust;

pub use identity::{Signing, identity};
pub use router::router_of;
pub use signals::WithoutSignals;
pub use trust::{SharedTrust, TrustSettings, read_hicn_key};
