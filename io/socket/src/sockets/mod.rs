//! Sockets: what applications hold in their hands (paper socket-api, sections 4 and 5).
//!
//! Thin drivers of what `weir get` and `weir put` use: a consumer socket is a
//! [download](crate::download) into a bounded buffer, a producer socket signs with
//! [`publish_octets`](crate::publish_octets) and answers with `weir_transport::Producer`.

mod binding;
mod consumer;
mod error;
mod express;
mod fetcher;
mod fetches;
mod inbox;
mod latest;
mod live;
mod offer;
mod options;
mod outbound;
mod output_disk;
mod pending;
mod producer;
mod producer_endpoint;
mod publication;
mod reader;
mod registrations;
mod requests;
mod session;

pub use consumer::Consumer;
pub use error::SocketError;
pub use live::LiveWriter;
pub use offer::Offer;
pub use options::{ConsumerOptions, OptionInfo, OptionKind, ProducerOptions, Word};
pub use outbound::Identity;
pub use pending::Pending;
pub use producer::{Binder, Producer};
pub use reader::Reader;
pub use requests::Request;
pub use session::{Session, SessionConfig, WeakSession};

use weir_wire::Name;

/// A socket has names below its prefix alone.
fn check_below(prefix: &Name, name: &Name) -> Result<(), SocketError> {
    match prefix.as_view().is_prefix_of(name.as_view()) {
        true => Ok(()),
        false => {
            let (name, prefix) = (name.clone(), prefix.clone());
            Err(SocketError::OutsidePrefix { name, prefix })
        }
    }
}

/// No router takes a longer one.
fn check_packet(packet: &[u8]) -> Result<(), SocketError> {
    match packet.len() <= weir_wire::PACKET_SIZE_MAX {
        true => Ok(()),
        false => Err(SocketError::TooLong { max_bytes: weir_wire::PACKET_SIZE_MAX as u64 }),
    }
}
