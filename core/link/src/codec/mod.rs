//! How packets and frames turn into each other: NDNLPv2.

mod config;
mod decode;
mod duplicates;
mod encode;
mod reassembly;
mod reliability;

#[cfg(test)]
pub(crate) use config::FRAGMENT_COUNT_MAX;
pub use config::{CodecConfig, MTU_MIN};
pub(crate) use decode::Decoder;
pub use decode::Received;
pub(crate) use encode::Encoder;
pub(crate) use reliability::Reliability;
