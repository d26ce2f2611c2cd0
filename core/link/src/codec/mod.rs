//! How packets and frames turn into each other: NDNLPv2.

mod config;
mod decode;
mod encode;
mod reassembly;

pub use config::{CodecConfig, FRAGMENT_COUNT_MAX, MTU_MIN, REASSEMBLY_TIMEOUT_NS};
pub(crate) use decode::Decoder;
pub use decode::Received;
pub(crate) use encode::Encoder;
