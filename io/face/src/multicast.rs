//! Multicast UDP faces: all nodes of a network link behind one socket. Group addresses and rules
//! are those of NFD (fe044ce, `multicast-udp-transport.cpp` and `udp-factory.cpp`).
//!
//! NFD uses one socket to receive and one to send. Here one socket does both: Linux sends from the
//! address of the network device if a socket is bound to a group.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use socket2::{InterfaceIndexOrAddress, Socket};
use weir_base::{Packet, Pool};
use weir_link::{Link, LinkConfig};
use weir_wire::PACKET_SIZE_MAX;

use crate::interfaces::NetworkInterface;
use crate::socket::{set_multicast_device, socket_source};
use crate::status::{RecvStatus, SendStatus};
use crate::udp::{Datagram, UdpCounters, UdpOptions, UdpPort};
use crate::uri::FaceUri;

/// The groups of NDN (NFD, `mcast_group` and `mcast_group_v6`).
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 23, 170);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x1234);
/// The port of both groups.
const GROUP_PORT: u16 = 56363;
/// Datagrams do not leave the link.
const HOPS_MAX: u32 = 1;

/// A socket in the group of NDN on one network device.
#[derive(Debug)]
pub(crate) struct MulticastSocket {
    port: UdpPort,
    group: SocketAddr,
    /// The source of our own datagrams.
    source: SocketAddr,
    local: FaceUri,
    remote: FaceUri,
    datagrams: Vec<Datagram>,
}

impl MulticastSocket {
    /// Joins the group of the address's family on its device.
    ///
    /// # Errors
    /// The device or its address does not exist any longer, or a limit of the system is reached.
    pub(crate) fn open(interface: &NetworkInterface) -> io::Result<Self> {
        let NetworkInterface { index, address, .. } = *interface;
        let (group, source): (SocketAddr, SocketAddr) = match address {
            IpAddr::V4(address) => ((GROUP_V4, GROUP_PORT).into(), (address, GROUP_PORT).into()),
            IpAddr::V6(address) => {
                let on_device = |ip| SocketAddrV6::new(ip, GROUP_PORT, 0, index).into();
                (on_device(GROUP_V6), on_device(address))
            }
        };
        let socket = UdpPort::unbound(group)?;
        // Other programs of this host may be in the group, such as NFD.
        socket.set_reuse_address(true)?;
        match address {
            IpAddr::V4(address) => join_v4(&socket, index, address)?,
            IpAddr::V6(_) => join_v6(&socket, index)?,
        }
        // Multicast is for discovery, not for bulk transfer: runs of datagrams would overflow the
        // default receive buffers of other nodes.
        let options =
            UdpOptions { offload: false, local_addresses: false, ..UdpOptions::default() };
        let port = UdpPort::bind_socket(socket, group, &options)?;
        Ok(Self {
            port,
            group,
            source,
            local: FaceUri::Udp(source),
            remote: FaceUri::Udp(group),
            datagrams: Vec::new(),
        })
    }

    pub(crate) fn recv(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Packet>,
    ) -> io::Result<RecvStatus> {
        let status = self.port.recv(pool, &mut self.datagrams)?;
        // The kernel does not return our datagrams to this host, but a bridge may.
        let source = self.source;
        let foreign = self.datagrams.drain(..).filter(|datagram| {
            let remote = datagram.path.remote;
            (remote.ip(), remote.port()) != (source.ip(), source.port())
        });
        frames.extend(foreign.map(|datagram| datagram.frame));
        Ok(status)
    }

    pub(crate) fn send(&mut self, link: &mut Link) -> io::Result<SendStatus> {
        self.port.send(self.group.into(), link)
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

    #[allow(clippy::unused_self, reason = "same signature for sockets of all kinds")]
    pub(crate) fn is_local(&self) -> bool {
        false
    }

    /// Datagrams are always complete.
    #[allow(clippy::unused_self, reason = "same signature for sockets of all kinds")]
    pub(crate) fn held_bytes(&self) -> usize {
        0
    }

    pub(crate) fn counters(&self) -> UdpCounters {
        self.port.counters()
    }

    /// Packets are never NDNLPv2 fragments, as in NFD: their numbers are unique for one sender
    /// only. The kernel splits datagrams that are longer than the device's MTU.
    pub(crate) fn link_config() -> LinkConfig {
        let mut config = LinkConfig::stream();
        config.codec.mtu = PACKET_SIZE_MAX;
        config
    }
}

socket_source!(MulticastSocket, port);

fn join_v4(socket: &Socket, index: u32, address: Ipv4Addr) -> io::Result<()> {
    // Otherwise the socket receives what arrives at any device on which any program of this host
    // has joined the group.
    socket.set_multicast_all_v4(false)?;
    socket.join_multicast_v4_n(&GROUP_V4, &InterfaceIndexOrAddress::Index(index))?;
    set_multicast_device(socket, index, address)?;
    socket.set_multicast_loop_v4(false)?;
    socket.set_multicast_ttl_v4(HOPS_MAX)
}

/// The zone of the group's address binds the socket to the device.
fn join_v6(socket: &Socket, index: u32) -> io::Result<()> {
    socket.join_multicast_v6(&GROUP_V6, index)?;
    socket.set_multicast_if_v6(index)?;
    socket.set_multicast_loop_v6(false)?;
    socket.set_multicast_hops_v6(HOPS_MAX)
}
