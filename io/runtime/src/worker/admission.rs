//! Faces for unknown UDP peers, and eviction of idle peers when a limit on faces is reached.
//!
//! `face_quota` explains the limits and gives an example.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;

use weir_base::{FaceId, Instant, NS_PER_MS, NS_PER_S};
use weir_manage::FacePersistency;

use super::faces::FaceTable;
use crate::face::{Face, FaceSocket};
use crate::face_quota::{Claimant, FaceClass, FaceQuota, Refusal};
use crate::rate_limited_log::RateLimitedLog;

/// A face may be evicted if its peer has been silent for this long.
const IDLE_NS: u64 = NS_PER_S;
/// Minimum interval between searches through all faces, so that a flood of unknown peers costs
/// little.
const SEARCH_INTERVAL_NS: u64 = 20 * NS_PER_MS;
/// Faces that one search selects, for all peers until the next search. Each eviction also costs the
/// control thread time.
const CANDIDATES_MAX: usize = 32;

/// Claims identifiers for new faces and selects faces to evict.
pub(super) struct PeerAdmission {
    quota: Arc<FaceQuota>,
    searches: [Search; 4],
    /// When the other threads were last asked to evict a face.
    eviction_requested_at: Instant,
    refusals: RateLimitedLog,
}

/// The result of the last search. There are four: for UDP peers and connections, each among all
/// peers and within one host or network.
#[derive(Debug, Default)]
struct Search {
    class: Option<FaceClass>,
    /// The least used face is last.
    candidates: Vec<(u32, FaceId)>,
    again_at: Option<Instant>,
}

/// An identifier for a new face.
pub(super) struct ClaimedFace {
    pub(super) id: FaceId,
    /// Slot of the evicted face, which the caller must close.
    pub(super) evicted: Option<u32>,
}

/// An unknown peer gets no face.
pub(super) struct PeerRefused {
    pub(super) refusal: Refusal,
    /// The other threads should evict a face of this class, for the peer's next datagram.
    pub(super) evict_elsewhere: Option<FaceClass>,
    /// The number of refusals to log, if a log line is due.
    pub(super) log: Option<u64>,
}

impl PeerAdmission {
    pub(super) fn new(quota: Arc<FaceQuota>, now: Instant) -> Self {
        let (searches, refusals) = Default::default();
        Self { quota, searches, eviction_requested_at: now, refusals }
    }

    /// Claims an identifier for a UDP peer's face. At a limit, evicts the least used idle face.
    pub(super) fn claim(
        &mut self,
        now: Instant,
        peer: IpAddr,
        faces: &FaceTable,
    ) -> Result<ClaimedFace, PeerRefused> {
        let claimant = Claimant::Datagram(peer);
        let refusal = match self.quota.claim(claimant) {
            Ok(id) => return Ok(ClaimedFace { id, evicted: None }),
            Err(refusal) => refusal,
        };
        let class = FaceClass { is_stream: false, network: refusal.network() };
        let Some((slot, face)) = self.pop_least_used(now, class, faces) else {
            // Another thread may have an idle face. Limit these requests: a flood of unknown peers
            // would cause one per datagram.
            let may_ask = now >= self.eviction_requested_at.plus_ns(SEARCH_INTERVAL_NS);
            if may_ask {
                self.eviction_requested_at = now;
            }
            return Err(self.refused(now, refusal, may_ask.then_some(class)));
        };
        match self.quota.replace(face, claimant) {
            Ok(id) => Ok(ClaimedFace { id, evicted: Some(slot) }),
            Err(refusal) => Err(self.refused(now, refusal, None)),
        }
    }

    fn refused(
        &mut self,
        now: Instant,
        refusal: Refusal,
        ask_others: Option<FaceClass>,
    ) -> PeerRefused {
        PeerRefused { refusal, evict_elsewhere: ask_others, log: self.refusals.add(now) }
    }

    /// Returns the least used idle face of a class, if there is one.
    pub(super) fn pop_least_used(
        &mut self,
        now: Instant,
        class: FaceClass,
        faces: &FaceTable,
    ) -> Option<(u32, FaceId)> {
        let index = 2 * usize::from(class.is_stream) + usize::from(class.network.is_some());
        let search = &mut self.searches[index];
        if search.again_at.is_none_or(|at| at <= now) {
            search.run(now, class, faces);
        }
        if search.class != Some(class) {
            return None;
        }
        while let Some((slot, id)) = search.candidates.pop() {
            if faces.get(slot).is_some_and(|face| face.id == id && is_evictable(face, now)) {
                return Some((slot, id));
            }
        }
        None
    }
}

impl Search {
    fn run(&mut self, now: Instant, class: FaceClass, faces: &FaceTable) {
        self.again_at = Some(now.plus_ns(SEARCH_INTERVAL_NS));
        self.class = Some(class);
        let mut silent: Vec<_> = faces
            .iter()
            .filter(|(_, face)| is_of_class(face, class) && is_evictable(face, now))
            .map(|(slot, face)| {
                let counters = face.link.counters();
                let packets = counters.in_interests + counters.in_data + counters.in_nacks;
                (Reverse((packets, face.last_heard())), slot, face.id)
            })
            .collect();
        // `Reverse` puts the least used faces last, where `pop` finds them.
        silent.sort_unstable();
        let surplus = silent.len().saturating_sub(CANDIDATES_MAX);
        self.candidates.clear();
        self.candidates.extend(silent[surplus..].iter().map(|&(_, slot, id)| (slot, id)));
    }
}

fn is_of_class(face: &Face, class: FaceClass) -> bool {
    let Some(peer) = face.peer else { return false };
    let is_kind = match face.socket {
        FaceSocket::Peer { .. } => !class.is_stream,
        FaceSocket::Own(_) => class.is_stream,
        FaceSocket::Down => false,
    };
    is_kind && class.network.is_none_or(|network| network.contains(peer))
}

fn is_evictable(face: &Face, now: Instant) -> bool {
    face.persistency == FacePersistency::OnDemand && face.last_heard().plus_ns(IDLE_NS) <= now
}
