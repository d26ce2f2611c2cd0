//! The codec: packets to frames and frames to packets, in the format of the face.

mod config;
mod context;
mod encoder;
mod hicn;
mod ndnlp;
mod received;

#[cfg(test)]
pub(crate) use config::FRAGMENT_COUNT_MAX;
pub use config::{CodecConfig, HicnConfig, MTU_MIN, PacketFormat};
pub(crate) use context::CodecContext;
pub(crate) use encoder::{Encoder, Mode};
pub(crate) use hicn::Hicn;
pub(crate) use ndnlp::{Decoder, Reliability};
pub use received::{AnnouncedData, Received};
