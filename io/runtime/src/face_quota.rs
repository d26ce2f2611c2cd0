//! Limits on the number of faces, and quotas of hosts and networks.
//!
//! Every face counts in one of four kinds: local applications, static faces and faces made by
//! command, UDP peers, TCP peers. Each kind has the same limit, so a flood of one kind cannot
//! displace another. Peers have two more quotas within their kind: one per host (an IPv4 address or
//! an IPv6 /64) and one per network (an IPv4 /24 or an IPv6 /48).
//!
//! How an unknown UDP peer gets a face:
//!
//! 1. [`FaceQuota::claim`] checks the host's quota, then the network's, then the limit of the kind.
//!    If none is exhausted, it returns a new identifier.
//! 2. Otherwise the [`Refusal`] names the smallest group that is full: a host, a network, or all
//!    peers. The worker thread evicts from that group only. A host that opens faces without end
//!    therefore evicts only its own faces.
//! 3. Only faces that are on-demand and have been idle for 1 s may be evicted. Among them, the
//!    thread chooses the one that has received the fewest packets. Among equals, it chooses the
//!    one heard longest ago (`worker/admission.rs`).
//! 4. [`FaceQuota::replace`] moves the evicted face's slot to the new peer in one step, so that no
//!    other thread can claim it.
//! 5. If this thread has no idle face in the group, it drops and counts the datagram. It asks the
//!    other threads to evict one face each, so that the peer's next datagram finds a free slot.
//!
//! The control thread claims identifiers for TCP connections. It closes a refused connection, and
//! asks one worker thread, round robin, to evict a connection. The next one then finds a slot.
//!
//! Example: `per_host_max` = 2, and host 192.0.2.1 has two UDP faces. Its third port sends a
//! datagram. If one of the two faces has been idle for 1 s, it is evicted. If both are busy, the
//! datagram is dropped. Faces of 192.0.2.2 are not touched in either case.
//!
//! It must never evict a persistent or permanent face, or a busy peer.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use weir_base::FaceId;

/// Limits on the number of faces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaceLimits {
    /// Each kind: local applications; static faces and faces made by command; UDP peers; TCP peers.
    pub faces_max: usize,
    /// One host's faces, for UDP and TCP each. A host is an IPv4 address, or an IPv6 /64.
    pub per_host_max: usize,
    /// One network's faces, for UDP and TCP each. A network is an IPv4 /24, or an IPv6 /48.
    pub per_network_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
/// Who needs a face.
pub(crate) enum Claimant {
    /// An application of this machine.
    Local,
    /// The operator: a static face, or one made by a command.
    Operator,
    /// A peer on another host that sent a datagram.
    Datagram(IpAddr),
    /// A peer on another host that connected.
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

    /// The host and network whose quotas the face counts against.
    fn networks(self) -> impl Iterator<Item = Network> {
        self.peer().into_iter().flat_map(|peer| [Network::host(peer), Network::site(peer)])
    }
}

/// A range of addresses that one party is assumed to control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Network {
    address: IpAddr,
    /// Number of significant bits; the others are 0.
    bits: u8,
}

impl Network {
    /// The addresses of one host: an IPv4 address, or an IPv6 /64.
    pub(crate) fn host(peer: IpAddr) -> Self {
        Self::of(peer, 32, 64)
    }

    /// The addresses of one network: an IPv4 /24, or an IPv6 /48.
    pub(crate) fn site(peer: IpAddr) -> Self {
        Self::of(peer, 24, 48)
    }

    /// A number below 2^63 that is nearly unique for the network.
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

/// Which faces may be evicted for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FaceClass {
    /// Connections; otherwise UDP peers.
    pub(crate) is_stream: bool,
    /// Only peers of this network.
    pub(crate) network: Option<Network>,
}

/// Which limit a claim exceeds.
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
    /// The host or network whose quota is exhausted; `None` if all peers together are at the limit.
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
                write!(f, "there are {max} faces of its kind, the limit of [faces] faces_max")
            }
            Self::Host { host, max } => write!(
                f,
                "{host} has {max} faces, the limit of [faces] faces_per_host_max for one host"
            ),
            Self::Site { network, max } => write!(
                f,
                "{network} has {max} faces, the limit of [faces] faces_per_network_max for one \
                 network"
            ),
        }
    }
}

/// Counts the faces of all threads. Locked when faces are created and closed, and for packets of
/// unknown peers; never for other packets.
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
    /// Counted separately for each kind: an attacker who forges UDP source addresses must not block
    /// connections.
    by_network: HashMap<(usize, Network), usize>,
}

impl FaceQuota {
    pub(crate) fn new(bounds: FaceLimits) -> Self {
        let next_face_id = AtomicU64::new(FaceId::FIRST.0);
        Self { next_face_id, limits: bounds, counts: Mutex::default() }
    }

    /// Claims an identifier for a new face.
    pub(crate) fn claim(&self, claimant: Claimant) -> Result<FaceId, Refusal> {
        self.with_counts(|counts| {
            counts
                .refusal(claimant, &self.limits)
                .map_or_else(|| Ok(counts.add(claimant, &self.next_face_id)), Err)
        })
    }

    /// Claims an identifier in exchange for that of another face. If the claim still exceeds a
    /// limit, the other face keeps its identifier.
    pub(crate) fn replace(&self, face: FaceId, claimant: Claimant) -> Result<FaceId, Refusal> {
        self.with_counts(|counts| {
            // Remove first: both faces may count against the same quota.
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

    /// Releases the slot of a closed face. Does nothing if it was released before.
    pub(crate) fn release(&self, face: FaceId) {
        self.with_counts(|counts| {
            counts.remove(face);
        });
    }

    fn with_counts<T>(&self, act: impl FnOnce(&mut Counts) -> T) -> T {
        // A thread that panicked cannot have left the counts half changed.
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
