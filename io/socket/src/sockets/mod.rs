//! Sockets: the interface for applications (paper socket-api, sections 4 and 5).
//!
//! They are thin drivers of what `weir get` and `weir put` use. A consumer socket is a
//! [download](crate::download) into a bounded buffer. A producer socket signs with
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

/// Checks that a name is below the socket's prefix.
fn check_below(prefix: &Name, name: &Name) -> Result<(), SocketError> {
    match prefix.as_view().is_prefix_of(name.as_view()) {
        true => Ok(()),
        false => {
            let (name, prefix) = (name.clone(), prefix.clone());
            Err(SocketError::OutsidePrefix { name, prefix })
        }
    }
}

fn check_packet(packet: &[u8], packet_bytes_max: usize) -> Result<(), SocketError> {
    if packet.len() > packet_bytes_max {
        return Err(SocketError::TooLong { max_bytes: packet_bytes_max as u64 });
    }
    Ok(())
}
