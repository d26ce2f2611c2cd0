#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod config;
mod front;
mod head;
mod names;
mod origin;

pub use config::{FrontConfig, GatewayConfig, HostConfig, OriginConfig};
pub use front::{Front, FrontError};
pub use origin::{Origin, OriginError, OriginStats};
