//! Connectors: how a client uses a router (paper socket-api, section 5.2). Sockets and everything
//! above them see only [`Client`](crate::Client), and never the kind of the router.
//!
//! | paper | here |
//! |---|---|
//! | `connectConsumer` | [`Connector::connect_consumer`] |
//! | `connectProducer` | [`Connector::connect_producer`] |
//! | `sendPacket` | [`Connector::send_packet`] |
//! | `recvPacket` | [`Connector::recv_packets`] |
//!
//! [`connect`] selects a connector by the router's address, and by nothing else. What differs
//! between Weir and other NDN routers is decided elsewhere, by what the router answers: shared
//! memory and runs when a connection begins (`weir-face`, `weir-link`), holdings and erasures by
//! each command.

mod hicn_light;
mod ndn;
mod pending_commands;

use std::io;

use weir_base::{Instant, Packet, Pool};
use weir_face::{FaceUri, RecvStatus};
use weir_link::LinkDrop;
use weir_manage::ControlResponse;
use weir_transport::PathId;
use weir_wire::{LpHeader, NackReason, Name};

pub(crate) use self::hicn_light::HicnLightConnector;
pub(crate) use self::ndn::NdnConnector;
use crate::command_signer::CommandSigner;
use crate::connection::{Connection, Received};

/// Why a router does not send Interests below a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    /// The management of an NDN router refuses.
    #[error("{} {}", .0.code, .0.text)]
    Refused(ControlResponse),
    /// The router has no management, or it is starting.
    #[error("its management is not reachable: {0:?}")]
    Unreachable(NackReason),
    #[error("its answer cannot be decoded")]
    Malformed,
    /// hicn-light, or a router that answers as it does, refuses. It gives no reasons.
    #[error("it answers NACK")]
    Negative,
    /// Over hICN, only names of hICN can be registered.
    #[error("the prefix is not an hICN name; choose one with the option `mapping`")]
    NotHicn,
}

/// The router's answer to a registration, or to the end of one.
#[derive(Clone, Debug)]
pub struct RegistrationAnswer {
    pub prefix: Name,
    pub result: Result<(), RegistrationError>,
}

/// Whether longer prefixes get the route as well.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Inheritance {
    /// As NFD does by default.
    Inherited,
    /// A longer prefix, even one of another program, is the only one that answers below it.
    /// hicn-light knows no other way.
    Longest,
}

/// The connection to a router of one kind.
pub(crate) trait Connector: Send {
    /// Opens an application face at the router.
    fn connect_consumer(uri: &FaceUri) -> io::Result<Self>
    where
        Self: Sized;

    /// Requests that the router send Interests below `prefix`. [`Connector::take_answers`] returns
    /// the answer. A later request for the same prefix replaces an earlier one.
    fn connect_producer(
        &mut self,
        now: Instant,
        signer: &mut CommandSigner,
        prefix: &Name,
        inheritance: Inheritance,
    );

    /// Reverses [`Connector::connect_producer`]. `wants_answer`: the caller takes the answer.
    fn disconnect_producer(
        &mut self,
        now: Instant,
        signer: &mut CommandSigner,
        prefix: &Name,
        wants_answer: bool,
    );

    /// No answer about this prefix is awaited any more. If the answer to its registration has not
    /// arrived, the registration is not repeated.
    fn forget_answer(&mut self, prefix: &Name);

    /// Moves all answers to `answers`.
    fn take_answers(&mut self, answers: &mut Vec<RegistrationAnswer>);

    fn has_answers(&self) -> bool;

    /// Requests that the router report the face that each packet came from. The request is repeated
    /// while the router's management is starting. Some routers do not report sources.
    fn report_sources(&mut self, now: Instant, signer: &mut CommandSigner);

    /// Whether users of this connection should wait for the answer to such a request. Ends soon.
    fn awaits_sources(&self) -> bool;

    /// Queues a packet. [`Connector::flush`] sends it.
    ///
    /// # Errors
    /// The queue is full, or the packet cannot be sent over this link.
    fn send_packet(
        &mut self,
        now: Instant,
        header: LpHeader,
        packet: Packet,
    ) -> Result<(), LinkDrop> {
        self.connection_mut().link.enqueue(now, header, packet)
    }

    /// Reads once, and appends the packets to those of `received`.
    fn recv_packets(
        &mut self,
        now: Instant,
        path: PathId,
        pool: &mut Pool,
        received: &mut Received<'_>,
    ) -> io::Result<RecvStatus>;

    /// Runs the timers that are due.
    fn run_timers(&mut self, now: Instant, signer: &mut CommandSigner);

    fn next_wakeup(&self) -> Option<Instant>;

    /// Whether the router has NFD's management protocol.
    fn has_management(&self) -> bool;

    fn connection(&self) -> &Connection;

    fn connection_mut(&mut self) -> &mut Connection;
}

/// Connects to the router at `uri`, whose kind selects the connector.
pub(crate) fn connect(uri: &FaceUri) -> io::Result<Box<dyn Connector>> {
    Ok(match uri {
        FaceUri::HicnUdp(_) => Box::new(HicnLightConnector::connect_consumer(uri)?),
        FaceUri::HicnTun { .. } => {
            let message = "a TUN device is a face of a router; give the address of the router";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        _ => Box::new(NdnConnector::connect_consumer(uri)?),
    })
}

#[cfg(test)]
mod tests;
