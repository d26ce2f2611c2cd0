#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod check;
mod error;
mod experiments;
mod network;
mod peek;

pub use error::{Violation, ViolationKind};
pub use experiments::{Experiments, StoreExtension};
pub use network::{Network, Summary};
