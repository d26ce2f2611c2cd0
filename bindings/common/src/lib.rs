#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod identity;
mod signals;
mod trust;

pub use identity::{Signing, identity};
pub use signals::WithoutSignals;
pub use trust::SharedTrust;
