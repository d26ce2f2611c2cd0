//! UDP ports and the faces at them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use weir_base::FaceId;
use weir_face::{
    FaceUri, LocalAddress, UdpOptions, UdpPath, UdpPort, source_toward, udp_local_toward,
};
use weir_forward::FaceScope;
use weir_link::LinkConfig;
use weir_manage::{FaceError, FaceEventKind, FacePersistency, FaceRequest};

use super::faces::{Draft, begin_runs};
use super::table::{FaceRecord, apply_changes};
use super::{Control, PortRecord};
use crate::message::{NewSocket, PeerLinks, PortId, ToWorker};
use crate::rate_limited_log::RateLimitedLog;

impl Control {
    /// A packet thread gave a stranger a face.
    pub(super) fn on_peer_face(&mut self, worker: u16, id: FaceId, port: PortId, path: UdpPath) {
        let port = &self.ports[&port];
        let link = port.links.of(path.remote).clone();
        let local = path.local.map_or(port.local, |local| local.with_port(port.local.port()));
        self.faces.insert(FaceRecord {
            id,
            remote: FaceUri::Udp(path.remote),
            local: FaceUri::Udp(local),
            source: Some(local.ip()),
            scope: FaceScope::NonLocal,
            is_operator: false,
            persistency: FacePersistency::OnDemand,
            link,
            worker,
            is_up: true,
            static_index: None,
            attempts: 0,
            downs: RateLimitedLog::default(),
        });
        self.face_event(FaceEventKind::Created, id);
    }

    pub(super) fn add_udp_face(
        &mut self,
        peer: SocketAddr,
        request: &FaceRequest,
        static_index: Option<usize>,
    ) -> Result<FaceId, FaceError> {
        let (port_id, port) = self.port_for(peer)?;
        let remote = FaceUri::Udp(peer);
        let mut link = port.links.of(peer).clone();
        let mtu_default = link.codec.mtu;
        let face = (&remote, FaceScope::NonLocal);
        apply_changes(&mut link, &request.changes, face, mtu_default)?;
        begin_runs(&mut link);
        let (worker, local) = (port.worker_of(peer), udp_local_toward(port.local, peer));
        self.add_face(Draft {
            remote,
            local,
            scope: FaceScope::NonLocal,
            is_operator: false,
            persistency: request.persistency,
            link,
            socket: NewSocket::Peer { port: port_id, path: peer.into() },
            worker: Some(worker),
            static_index,
        })
    }

    /// The port from which a peer is reached: a listening one, or one made for outgoing faces.
    pub(super) fn port_for(
        &mut self,
        peer: SocketAddr,
    ) -> Result<(PortId, &PortRecord), FaceError> {
        let is_ipv6 = peer.is_ipv6();
        let locals = self.ports.iter().map(|(id, port)| (*id, port.local));
        let id = match best_port(locals, peer, source_toward(peer)) {
            Some(id) => id,
            None => {
                let any: IpAddr = match is_ipv6 {
                    true => Ipv6Addr::UNSPECIFIED.into(),
                    false => Ipv4Addr::UNSPECIFIED.into(),
                };
                let any = SocketAddr::new(any, 0);
                let count = self.workers.len();
                let (sockets, shared) = UdpPort::bind_all(any, count, &UdpOptions::default())
                    .map_err(|error| FaceError::Internal(format!("cannot open UDP: {error}")))?;
                super::start::note_sharing(&sockets, &shared);
                self.add_port(sockets)
            }
        };
        Ok((id, &self.ports[&id]))
    }

    /// Gives the sockets of a UDP port to packet threads, one each.
    pub(super) fn add_port(&mut self, sockets: Vec<UdpPort>) -> PortId {
        let id = self.ports.len() as PortId;
        let local = sockets[0].local_addr();
        let links = PeerLinks {
            loopback: self.udp_link(Ipv4Addr::LOCALHOST.into()),
            network: self.udp_link(Ipv4Addr::UNSPECIFIED.into()),
            pit_token: self.config.face_defaults.pit_token,
        };
        let workers: Vec<u16> = sockets.iter().map(|_| self.pick_worker()).collect();
        for (&worker, socket) in workers.iter().zip(sockets) {
            self.workers[usize::from(worker)].send(ToWorker::AddPort {
                id,
                socket: Box::new(socket),
                links: Box::new(links.clone()),
            });
        }
        self.ports.insert(id, PortRecord { workers, local, links });
        id
    }

    fn udp_link(&self, peer: IpAddr) -> LinkConfig {
        self.link_config(LinkConfig::datagram(self.udp_mtu(peer)))
    }

    /// The largest datagram to `peer`, unless its face says otherwise.
    pub(super) fn udp_mtu(&self, peer: IpAddr) -> usize {
        let mtu = self.config.face_defaults.udp_mtu;
        mtu.unwrap_or_else(|| weir_face::udp_mtu_default(peer))
    }
}

/// Which of several ports reaches `peer`, where the system's route leads there from `source`: the
/// one bound to that address, else one bound to all, else one bound to another address, whose
/// operator has the peer answer to that one.
fn best_port(
    ports: impl Iterator<Item = (PortId, SocketAddr)>,
    peer: SocketAddr,
    source: Option<LocalAddress>,
) -> Option<PortId> {
    let rank = |local: IpAddr| match local {
        local if source.is_some_and(|source| source.ip == local) => Some(0),
        local if local.is_unspecified() => Some(1),
        // A port bound to loopback reaches nothing else, and the other way round.
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
