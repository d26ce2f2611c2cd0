use std::io;
use std::net::SocketAddr;

use weir_base::{Packet, Pool};
use weir_link::{Link, LinkConfig};

use crate::socket::socket_source;
use crate::status::{RecvStatus, SendStatus};
use crate::udp::{Datagram, UdpOptions, UdpPort};
use crate::udp_format::UdpFormat;
use crate::udp_path::udp_local_toward;
use crate::uri::FaceUri;

/// One UDP peer with a port of its own, for applications. A router's peers share a [`UdpPort`].
#[derive(Debug)]
pub struct UdpPeer {
    port: UdpPort,
    format: UdpFormat,
    peer: SocketAddr,
    local: FaceUri,
    remote: FaceUri,
    datagrams: Vec<Datagram>,
}

impl UdpPeer {
    /// Binds any free port.
    pub(crate) fn open(format: UdpFormat, peer: SocketAddr) -> io::Result<Self> {
        let any: SocketAddr = match peer {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0; 16], 0).into(),
        };
        let options = UdpOptions { local_addresses: false, ..UdpOptions::default() };
        Ok(Self::at(UdpPort::bind(any, &options)?, format, peer))
    }

    /// Communicates with `peer` from `port`.
    pub fn at(port: UdpPort, format: UdpFormat, peer: SocketAddr) -> Self {
        let local = format.uri(udp_local_toward(port.local_addr(), peer));
        Self { port, format, peer, local, remote: format.uri(peer), datagrams: Vec::new() }
    }

    pub(crate) fn recv(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Packet>,
    ) -> io::Result<RecvStatus> {
        let status = self.port.recv(pool, &mut self.datagrams)?;
        // The port is not connected, so other hosts can send to it as well.
        let peer = self.peer;
        let ours = self.datagrams.drain(..).filter(|datagram| datagram.path.remote == peer);
        frames.extend(ours.map(|datagram| datagram.frame));
        Ok(status)
    }

    pub(crate) fn send(&mut self, link: &mut Link) -> io::Result<SendStatus> {
        self.port.send(self.peer.into(), link)
    }

    pub(crate) fn tell_backlog(&mut self, link: &mut Link) {
        self.port.tell_backlog(link);
    }

    pub(crate) fn local_uri(&self) -> &FaceUri {
        &self.local
    }

    pub(crate) fn remote_uri(&self) -> &FaceUri {
        &self.remote
    }

    /// NFD gives no UDP face local scope.
    pub(crate) fn is_local(&self) -> bool {
        false
    }

    /// Datagrams are always complete.
    #[allow(clippy::unused_self, reason = "same signature for sockets of all kinds")]
    pub(crate) fn held_bytes(&self) -> usize {
        0
    }

    pub(crate) fn link_config(&self) -> LinkConfig {
        self.format.link_config_toward(self.peer)
    }
}

socket_source!(UdpPeer, port);
