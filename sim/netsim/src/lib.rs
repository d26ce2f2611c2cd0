#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod check;
mod error;
mod network;
mod peek;

pub use error::{Violation, ViolationKind};
pub use network::{Network, Summary};
