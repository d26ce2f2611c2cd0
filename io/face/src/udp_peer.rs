use std::io;
use std::net::SocketAddr;

use weir_base::{Packet, Pool};
use weir_link::{Link, LinkConfig};

use crate::socket::socket_source;
use crate::status::{RecvStatus, SendStatus};
use crate::udp::{Datagram, UdpOptions, UdpPort, udp_mtu_default};
use crate::udp_path::udp_local_toward;
use crate::uri::FaceUri;

/// One UDP peer with a port of its own, for applications. A router's peers share a [`UdpPort`].
#[derive(Debug)]
pub struct UdpPeer {
    port: UdpPort,
    peer: SocketAddr,
    local: FaceUri,
    remote: FaceUri,
    datagrams: Vec<Datagram>,
}

impl UdpPeer {
    /// Binds any free port.
    pub(crate) fn open(peer: SocketAddr) -> io::Result<Self> {
        let any: SocketAddr = match peer {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0; 16], 0).into(),
        };
        let options = UdpOptions { local_addresses: false, ..UdpOptions::default() };
        Ok(Self::at(UdpPort::bind(any, &options)?, peer))
    }

    /// Communicates with `peer` from `port`.
    pub fn at(port: UdpPort, peer: SocketAddr) -> Self {
        let local = udp_local_toward(port.local_addr(), peer);
        Self { port, peer, local, remote: FaceUri::Udp(peer), datagrams: Vec::new() }
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
        LinkConfig::datagram(udp_mtu_default(self.peer.ip()))
    }
}

socket_source!(UdpPeer, port);
