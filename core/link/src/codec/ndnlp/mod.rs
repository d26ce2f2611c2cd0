//! NDNLPv2: link headers, fragments, reliability.

mod decode;
mod duplicates;
mod encode;
mod reassembly;
mod reliability;

pub(crate) use decode::Decoder;
pub(super) use encode::NdnlpEncoder;
pub(crate) use reliability::Reliability;
