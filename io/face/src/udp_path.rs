//! The path of a UDP face (both addresses), and the table of a port's peers.
//!
//! A host with several addresses must answer from the address that the peer sent to: the peer
//! ignores other sources, and filters and NAT drop them. A peer is therefore identified by both
//! addresses.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr, UdpSocket};

use socket2::{Domain, Socket, Type};

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    pub ip: IpAddr,
    /// Index of the interface for link-local IPv6 addresses, which are unique only on one link;
    /// otherwise 0.
    pub interface: u32,
}

impl LocalAddress {
    /// An address as the system reports it, with the interface on which a packet arrived.
    pub(crate) fn new(ip: IpAddr, interface: u32) -> Self {
        let is_link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        Self { ip, interface: if is_link_local { interface } else { 0 } }
    }

    /// Whether the address is still assigned to this host.
    pub(crate) fn is_assigned(self) -> bool {
        UdpSocket::bind(self.with_port(0)).is_ok()
    }

    pub fn with_port(self, port: u16) -> SocketAddr {
        let mut address = SocketAddr::new(self.ip, port);
        if let SocketAddr::V6(v6) = &mut address {
            v6.set_scope_id(self.interface);
        }
        address
    }
}

/// Both ends of a UDP face.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct UdpPath {
    pub remote: SocketAddr,
    /// The local address that the peer sends to. `None`: the system chooses it by its routes. This
    /// applies to the side that sends first, and to ports bound to one address.
    pub local: Option<LocalAddress>,
}

impl From<SocketAddr> for UdpPath {
    /// A path whose local address the system chooses.
    fn from(remote: SocketAddr) -> Self {
        Self { remote, local: None }
    }
}

/// Hashes only the remote address. A peer sends to few local addresses, and hashing both would cost
/// time for every datagram.
impl Hash for UdpPath {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.remote.hash(state);
    }
}

/// The local address from which the system sends to `remote` now; `None` without a route.
/// Connecting a UDP socket sends nothing.
pub fn source_toward(remote: SocketAddr) -> Option<LocalAddress> {
    let socket = Socket::new(Domain::for_address(remote), Type::DGRAM, None).ok()?;
    socket.connect(&remote.into()).ok()?;
    let address = socket.local_addr().ok()?.as_socket()?;
    let interface = match address {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    Some(LocalAddress::new(address.ip(), interface))
}

/// The local address of a face to `remote` at a port bound to `bound`: the address that datagrams
/// are sent from with the present routes.
pub fn udp_local_toward(bound: SocketAddr, remote: SocketAddr) -> SocketAddr {
    let source = if bound.ip().is_unspecified() { source_toward(remote) } else { None };
    source.map_or(bound, |source| source.with_port(bound.port()))
}

/// The keys of a port's peers.
#[derive(Debug)]
pub(crate) struct UdpPeers {
    /// Whether datagrams report their local address.
    knows_local: bool,
    keys: HashMap<UdpPath, u64>,
    /// Peers whose local address the system chooses, with the address that it chose last. The
    /// peer's entry in `keys` has this address.
    routed: HashMap<SocketAddr, Option<LocalAddress>>,
    /// The last path looked up, because datagrams come in runs.
    recent: Option<(UdpPath, Option<u64>)>,
}

impl UdpPeers {
    pub(crate) fn new(knows_local: bool) -> Self {
        Self { knows_local, keys: HashMap::new(), routed: HashMap::new(), recent: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The source address that datagrams to `path` must name, if any.
    pub(crate) fn source_of(&self, path: UdpPath) -> Option<LocalAddress> {
        path.local.filter(|_| self.knows_local)
    }

    pub(crate) fn add(&mut self, path: UdpPath, key: u64) {
        self.recent = None;
        let entry = self.entry_of(path);
        if self.knows_local && path.local.is_none() {
            self.routed.insert(path.remote, entry.local);
        }
        self.keys.insert(entry, key);
    }

    pub(crate) fn remove(&mut self, path: UdpPath) {
        self.recent = None;
        let entry = self.entry_of(path);
        if path.local.is_none() {
            self.routed.remove(&path.remote);
        }
        self.keys.remove(&entry);
    }

    /// The key of the peer at `path`.
    pub(crate) fn key(&self, path: UdpPath) -> Option<u64> {
        self.keys.get(&self.entry_of(path)).copied()
    }

    /// The key of the peer that sent a datagram.
    pub(crate) fn key_of_datagram(&mut self, path: UdpPath) -> Option<u64> {
        match self.recent {
            Some((recent, key)) if recent == path => key,
            _ => {
                let key = self.keys.get(&path).copied().or_else(|| self.rerouted(path));
                self.recent = Some((path, key));
                key
            }
        }
    }

    /// Handles a datagram that arrived at a new local address. If the system chooses the peer's
    /// local address, and its route now starts at the new one, the datagram belongs to the same
    /// face. This happens after a change of networks, for example.
    #[cold]
    fn rerouted(&mut self, path: UdpPath) -> Option<u64> {
        let before = *self.routed.get(&path.remote)?;
        if source_toward(path.remote) != path.local {
            return None;
        }
        let key = self.keys.remove(&UdpPath { local: before, ..path })?;
        self.routed.insert(path.remote, path.local);
        self.keys.insert(path, key);
        Some(key)
    }

    /// The path under which `keys` stores a peer.
    fn entry_of(&self, path: UdpPath) -> UdpPath {
        if !self.knows_local {
            return path.remote.into();
        }
        if path.local.is_some() {
            return path;
        }
        let known = self.routed.get(&path.remote).copied();
        UdpPath { local: known.unwrap_or_else(|| source_toward(path.remote)), ..path }
    }
}
