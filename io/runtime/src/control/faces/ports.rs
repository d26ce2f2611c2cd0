//! The router's UDP ports, and the choice of a port for a peer.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use weir_face::{LocalAddress, UdpFormat, UdpOptions, UdpPath, UdpPort, source_toward};
use weir_link::PacketFormat;
use weir_manage::FaceError;

use super::links::udp_link;
use crate::config::FaceDefaults;
use crate::control::start::warn_if_shared;
use crate::control::workers::{RoundRobin, Workers};
use crate::message::{NewSocket, PeerLinks, PortId, ToWorker};

/// A shared UDP port.
pub(super) struct PortRecord {
    id: PortId,
    /// Worker threads that have a socket of this port, in steering order.
    workers: Vec<u16>,
    pub(super) format: UdpFormat,
    pub(super) local: SocketAddr,
    pub(super) links: PeerLinks,
}

impl PortRecord {
    /// The worker thread that receives datagrams of `peer`.
    pub(super) fn worker_of(&self, peer: SocketAddr) -> u16 {
        self.workers[weir_face::steered_to(peer, self.workers.len())]
    }

    pub(super) fn socket(&self, path: UdpPath) -> NewSocket {
        NewSocket::Peer { port: self.id, path }
    }

    /// The local address of a face whose peer sends to `path.local`.
    pub(super) fn local_of(&self, path: UdpPath) -> SocketAddr {
        path.local.map_or(self.local, |local| local.with_port(self.local.port()))
    }
}

pub(super) struct UdpPorts {
    workers: Workers,
    defaults: FaceDefaults,
    ports: BTreeMap<PortId, PortRecord>,
}

impl UdpPorts {
    pub(super) fn new(workers: Workers, defaults: FaceDefaults) -> Self {
        Self { workers, defaults, ports: BTreeMap::new() }
    }

    pub(super) fn get(&self, id: PortId) -> &PortRecord {
        &self.ports[&id]
    }

    /// Gives one socket of the port to each worker thread.
    pub(super) fn add(
        &mut self,
        format: UdpFormat,
        sockets: Vec<UdpPort>,
        turn: &mut RoundRobin,
    ) -> PortId {
        let id = self.ports.len() as PortId;
        let local = sockets[0].local_addr();
        let mut loopback = udp_link(&self.defaults, format, Ipv4Addr::LOCALHOST.into());
        // Programs of this host may register prefixes as with hicn-light (decision 0050).
        if let PacketFormat::Hicn(hicn) = &mut loopback.codec.format {
            hicn.has_control = true;
        }
        let links = PeerLinks {
            loopback,
            network: udp_link(&self.defaults, format, Ipv4Addr::UNSPECIFIED.into()),
            pit_token: self.defaults.pit_token_of(format),
        };
        let workers: Vec<u16> = sockets.iter().map(|_| turn.next()).collect();
        for (&worker, socket) in workers.iter().zip(sockets) {
            let (socket, links) = (Box::new(socket), Box::new(links.clone()));
            self.workers.send(worker, ToWorker::AddPort { id, socket, links });
        }
        self.ports.insert(id, PortRecord { id, workers, format, local, links });
        id
    }

    /// Returns the port from which `peer` is reached. Opens a port for outgoing faces if none fits.
    pub(super) fn toward(
        &mut self,
        format: UdpFormat,
        peer: SocketAddr,
        turn: &mut RoundRobin,
    ) -> Result<&PortRecord, FaceError> {
        let ports = self.ports.values().filter(|port| port.format == format);
        let locals = ports.map(|port| (port.id, port.local));
        let id = match best_port(locals, peer, source_toward(peer)) {
            Some(id) => id,
            None => {
                let any: IpAddr = match peer.is_ipv6() {
                    true => Ipv6Addr::UNSPECIFIED.into(),
                    false => Ipv4Addr::UNSPECIFIED.into(),
                };
                let any = SocketAddr::new(any, 0);
                let count = usize::from(self.workers.count());
                let (sockets, shared) = UdpPort::bind_all(any, count, &UdpOptions::default())
                    .map_err(|error| FaceError::Internal(format!("cannot open UDP: {error}")))?;
                warn_if_shared(&sockets, &shared);
                self.add(format, sockets, turn)
            }
        };
        Ok(&self.ports[&id])
    }
}

/// Chooses the port for `peer`. `source`: the local address of the system's route to the peer. A
/// port bound to `source` is best, then a port bound to all addresses, then a port bound to another
/// address. In the last case, the operator must ensure that the peer's answers arrive there.
fn best_port(
    ports: impl Iterator<Item = (PortId, SocketAddr)>,
    peer: SocketAddr,
    source: Option<LocalAddress>,
) -> Option<PortId> {
    let rank = |local: IpAddr| match local {
        local if source.is_some_and(|source| source.ip == local) => Some(0),
        local if local.is_unspecified() => Some(1),
        // A port bound to loopback reaches only loopback, and other ports do not reach it.
        local if local.is_loopback() == peer.ip().is_loopback() => Some(2),
        _ => None,
    };
    ports
        .filter(|(_, local)| local.is_ipv6() == peer.is_ipv6())
        .filter_map(|(id, local)| Some((rank(local.ip())?, id)))
        .min()
        .map(|(_, id)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_is_chosen_by_route() {
        let ports = |locals: &[&str]| -> Vec<(PortId, SocketAddr)> {
            (0..).zip(locals.iter().map(|local| local.parse().unwrap())).collect()
        };
        let best = |locals: &[&str], peer: &str, source: &str| {
            let source = source.parse().ok().map(|ip| LocalAddress { ip, interface: 0 });
            best_port(ports(locals).into_iter(), peer.parse().unwrap(), source)
        };
        let two = ["10.8.0.1:6363", "10.77.0.1:6363"];
        assert_eq!(best(&two, "10.77.0.9:6363", "10.77.0.1"), Some(1));
        assert_eq!(best(&two, "10.8.0.9:6363", "10.8.0.1"), Some(0));
        assert_eq!(best(&two, "127.0.0.1:6363", "127.0.0.1"), None);
        assert_eq!(best(&two, "[fd08::1]:6363", "fd08::2"), None);
        assert_eq!(best(&["127.0.0.2:6363"], "127.0.0.1:6363", "127.0.0.1"), Some(0));
        let all = ["10.8.0.1:6363", "0.0.0.0:6364"];
        assert_eq!(best(&all, "192.0.2.1:6363", "10.9.0.1"), Some(1));
        assert_eq!(best(&all, "10.8.0.9:6363", "10.8.0.1"), Some(0));
        assert_eq!(best(&two, "192.0.2.1:6363", "no route"), Some(0));
    }
}
