//! The codec: packets to frames and frames to packets (NDNLPv2).

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

use weir_base::Instant;

use crate::counters::LinkCounters;

/// What one call of the codec needs: the time, the configuration and the counters of a link.
pub(crate) struct CodecContext<'a> {
    pub(crate) now: Instant,
    pub(crate) config: &'a CodecConfig,
    pub(crate) counters: &'a mut LinkCounters,
}
