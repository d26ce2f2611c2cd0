//! How many faces there may be, and for whom: local applications, configured faces and peers
//! elsewhere each have a quota, and among the peers each host and each network. A host that opens
//! faces without end exhausts only its own.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use weir_base::FaceId;

/// Most faces of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaceLimits {
    /// Of local applications; of configuration and commands; of UDP peers; of TCP peers: each.
    pub faces_max: usize,
    /// Of one host, over UDP and over TCP each: an IPv4 address, or the /64 of an IPv6 address.
    pub per_host_max: usize,
    /// Of one network, likewise: an IPv4 /24 or an IPv6 /48.
    pub per_network_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claimant {
    /// An application of this machine.
    Local,
    /// The operator: a face of the configuration, or made by a command.
    Operator,
    /// A peer elsewhere that sent a datagram.
    Datagram(IpAddr),
    /// A peer elsewhere that connected.
    Stream(IpAddr),
}

impl Claimant {
    const KINDS: usize = 4;

    fn kind(self) -> usize {
        match self {
            Self::Local => 0,
            Self::Operator => 1,
            Self::Datagram(_) => 2,
            Self::Stream(_) => 3,
        }
    }

    fn peer(self) -> Option<IpAddr> {
        match self {
            Self::Datagram(peer) | Self::Stream(peer) => Some(peer),
            Self::Local | Self::Operator => None,
        }
    }

    /// The networks whose share the face is of.
    fn networks(self) -> impl Iterator<Item = Network> {
        self.peer().into_iter().flat_map(|peer| [Network::host(peer), Network::site(peer)])
    }
}

/// A run of addresses that one party is taken to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Network {
    address: IpAddr,
    /// Bits of `address` that count; the others are 0.
    bits: u8,
}

impl Network {
    /// What one host holds: an IPv4 address, or a /64.
    pub(crate) fn host(peer: IpAddr) -> Self {
        Self::of(peer, 32, 64)
    }

    /// What one site holds: a /24, or a /48.
    pub(crate) fn site(peer: IpAddr) -> Self {
        Self::of(peer, 24, 48)
    }

    /// A number of the network, below 2^63, that hardly another network has.
    pub(crate) fn number(self) -> u64 {
        match self.address {
            IpAddr::V4(address) => address.to_bits().into(),
            IpAddr::V6(address) => ((address.to_bits() >> 64) as u64) & (u64::MAX >> 1),
        }
    }

    pub(crate) fn contains(self, peer: IpAddr) -> bool {
        self == Self::of(peer, self.bits, self.bits)
    }

    fn of(peer: IpAddr, bits_v4: u8, bits_v6: u8) -> Self {
        match peer.to_canonical() {
            IpAddr::V4(peer) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits_v4)).unwrap_or(0);
                Self { address: IpAddr::V4((peer.to_bits() & mask).into()), bits: bits_v4 }
            }
            IpAddr::V6(peer) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits_v6)).unwrap_or(0);
                Self { address: IpAddr::V6((peer.to_bits() & mask).into()), bits: bits_v6 }
            }
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Which faces may be evicted for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FaceClass {
    /// Connections, not UDP peers.
    pub(crate) is_stream: bool,
    /// Peers of this network only.
    pub(crate) network: Option<Network>,
}

/// Which bound a claim exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// [`FaceLimits::faces_max`].
    Kind { max: usize },
    /// [`FaceLimits::per_host_max`].
    Host { host: Network, max: usize },
    /// [`FaceLimits::per_network_max`].
    Site { network: Network, max: usize },
}

impl Refusal {
    /// The network whose quota is used up, unless it is that of all.
    pub(crate) fn network(self) -> Option<Network> {
        match self {
            Self::Kind { .. } => None,
            Self::Host { host: network, .. } | Self::Site { network, .. } => Some(network),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind { max } => {
                write!(f, "there are {max} faces of its kind, as many as [faces] faces_max allows")
            }
            Self::Host { host, max } => write!(
                f,
                "{host} has {max} faces, as many as [faces] faces_per_host_max allows one host"
            ),
            Self::Site { network, max } => write!(
                f,
                "{network} has {max} faces, as many as [faces] faces_per_network_max allows one \
                 network"
            ),
        }
    }
}

/// Counts the faces of all threads. Touched when faces come and go, and for packets of peers that
/// have none.
#[derive(Debug)]
pub(crate) struct FaceQuota {
    next_face_id: AtomicU64,
    limits: FaceLimits,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    of_face: HashMap<FaceId, Claimant>,
    by_kind: [usize; Claimant::KINDS],
    /// By kind: who forges the source of datagrams must not keep connections out.
    by_network: HashMap<(usize, Network), usize>,
}

impl FaceQuota {
    pub(crate) fn new(bounds: FaceLimits) -> Self {
        let next_face_id = AtomicU64::new(FaceId::FIRST.0);
        Self { next_face_id, limits: bounds, counts: Mutex::default() }
    }

    /// An identifier for a new face.
    pub(crate) fn claim(&self, claimant: Claimant) -> Result<FaceId, Refusal> {
        self.with_counts(|counts| {
            counts
                .refusal(claimant, &self.limits)
                .map_or_else(|| Ok(counts.add(claimant, &self.next_face_id)), Err)
        })
    }

    /// An identifier for a new face in the place of another, which keeps it when that is no help.
    pub(crate) fn replace(&self, face: FaceId, claimant: Claimant) -> Result<FaceId, Refusal> {
        self.with_counts(|counts| {
            let former = counts.remove(face);
            match counts.refusal(claimant, &self.limits) {
                None => Ok(counts.add(claimant, &self.next_face_id)),
                Some(refusal) => {
                    if let Some(former) = former {
                        counts.count(face, former);
                    }
                    Err(refusal)
                }
            }
        })
    }

    /// A face is gone. Nothing happens when it has been released before.
    pub(crate) fn release(&self, face: FaceId) {
        self.with_counts(|counts| {
            counts.remove(face);
        });
    }

    fn with_counts<T>(&self, act: impl FnOnce(&mut Counts) -> T) -> T {
        // A thread that panicked has not left the counts half changed.
        act(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Counts {
    fn refusal(&self, claimant: Claimant, bounds: &FaceLimits) -> Option<Refusal> {
        let kind = claimant.kind();
        let used = |network| self.by_network.get(&(kind, network)).copied().unwrap_or(0);
        if let Some(peer) = claimant.peer() {
            let (host, network) = (Network::host(peer), Network::site(peer));
            if used(host) >= bounds.per_host_max {
                return Some(Refusal::Host { host, max: bounds.per_host_max });
            }
            if used(network) >= bounds.per_network_max {
                return Some(Refusal::Site { network, max: bounds.per_network_max });
            }
        }
        let is_full = self.by_kind[kind] >= bounds.faces_max;
        is_full.then_some(Refusal::Kind { max: bounds.faces_max })
    }

    fn add(&mut self, claimant: Claimant, next_face_id: &AtomicU64) -> FaceId {
        let face = FaceId(next_face_id.fetch_add(1, Ordering::Relaxed));
        self.count(face, claimant);
        face
    }

    fn count(&mut self, face: FaceId, claimant: Claimant) {
        self.of_face.insert(face, claimant);
        self.by_kind[claimant.kind()] += 1;
        for network in claimant.networks() {
            *self.by_network.entry((claimant.kind(), network)).or_default() += 1;
        }
    }

    fn remove(&mut self, face: FaceId) -> Option<Claimant> {
        let claimant = self.of_face.remove(&face)?;
        self.by_kind[claimant.kind()] -= 1;
        for network in claimant.networks() {
            let key = (claimant.kind(), network);
            if let Some(used) = self.by_network.get_mut(&key) {
                *used -= 1;
                if *used == 0 {
                    self.by_network.remove(&key);
                }
            }
        }
        Some(claimant)
    }
}

#[cfg(test)]
mod tests;
