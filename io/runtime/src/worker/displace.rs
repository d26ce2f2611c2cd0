//! Faces of peers that give way when there is no room for another.

use std::cmp::Reverse;
use std::net::IpAddr;

use weir_base::{FaceId, Instant, NS_PER_MS, NS_PER_S};
use weir_manage::FacePersistency;

use super::Worker;
use super::face::{Face, Socket};
use crate::message::{CloseReason, ToWorker};
use crate::rooms::{Among, Claimant, Refusal};

/// A face gives way when its peer has been silent for this long.
const SILENCE_NS: u64 = NS_PER_S;
/// How often all faces are looked through, at most, so that a flood of peers costs little.
const SEARCH_INTERVAL_NS: u64 = 20 * NS_PER_MS;
/// Faces that one search finds, for all peers until the next search. Each that gives way is work
/// for the control thread, too.
const FOUND_MAX: usize = 32;

fn is_among(face: &Face, among: Among) -> bool {
    let Some(peer) = face.peer else { return false };
    let is_kind = match face.socket {
        Socket::Peer { .. } => !among.is_stream,
        Socket::Own(_) => among.is_stream,
        Socket::Down => false,
    };
    is_kind && among.network.is_none_or(|network| network.holds(peer))
}

/// What the last search found. There is one for each kind, and for each kind's networks.
#[derive(Debug, Default)]
pub(super) struct Search {
    among: Option<Among>,
    /// The least used last.
    found: Vec<(u32, FaceId)>,
    again_at: Option<Instant>,
}

impl Worker {
    /// An identifier for a UDP peer's face, in the place of the least used one where there is no
    /// room. Where this thread has none that may give way, others are asked to make room, for the
    /// peer's next datagram.
    pub(super) fn claim_for_peer(&mut self, now: Instant, peer: IpAddr) -> Result<FaceId, Refusal> {
        let claimant = Claimant::Datagram(peer);
        let refusal = match self.rooms.claim(claimant) {
            Ok(id) => return Ok(id),
            Err(refusal) => refusal,
        };
        let among = Among { is_stream: false, network: refusal.network() };
        let Some((slot, id)) = self.least_used(now, among) else {
            self.ask_for_room(now, among);
            return Err(refusal);
        };
        let claimed = self.rooms.replace(id, claimant)?;
        self.close_socket(slot, CloseReason::Displaced);
        Ok(claimed)
    }

    /// Has the other threads make room, now and then.
    fn ask_for_room(&mut self, now: Instant, among: Among) {
        let Some(shards) = &mut self.shards else { return };
        if now < self.room_asked_at.plus_ns(SEARCH_INTERVAL_NS) {
            return;
        }
        self.room_asked_at = now;
        for (index, sibling) in shards.siblings.iter().enumerate() {
            let index = index as u16;
            if index != self.index {
                let _ = sibling.send(ToWorker::Displace(among));
                shards.ports.rouse(index);
            }
        }
    }

    /// Closes the least used face among these, if one is silent, and gives its place back.
    pub(super) fn displace(&mut self, now: Instant, among: Among) {
        if let Some((slot, _)) = self.least_used(now, among) {
            self.close_socket(slot, CloseReason::Displaced);
        }
    }

    fn least_used(&mut self, now: Instant, among: Among) -> Option<(u32, FaceId)> {
        let index = 2 * usize::from(among.is_stream) + usize::from(among.network.is_some());
        let search = &mut self.searches[index];
        if search.again_at.is_none_or(|at| at <= now) {
            search.again_at = Some(now.plus_ns(SEARCH_INTERVAL_NS));
            search.among = Some(among);
            let mut silent: Vec<_> = self
                .faces
                .iter()
                .filter(|(_, face)| is_among(face, among) && may_give_way(face, now))
                .map(|(slot, face)| {
                    let counters = face.link.counters();
                    let packets = counters.in_interests + counters.in_data + counters.in_nacks;
                    (Reverse((packets, face.heard())), slot, face.id)
                })
                .collect();
            silent.sort_unstable();
            let surplus = silent.len().saturating_sub(FOUND_MAX);
            search.found.clear();
            search.found.extend(silent[surplus..].iter().map(|&(_, slot, id)| (slot, id)));
        }
        if search.among != Some(among) {
            return None;
        }
        while let Some((slot, id)) = search.found.pop() {
            let face = self.faces.at(slot);
            if face.is_some_and(|face| face.id == id && may_give_way(face, now)) {
                return Some((slot, id));
            }
        }
        None
    }
}

fn may_give_way(face: &Face, now: Instant) -> bool {
    face.persistency == FacePersistency::OnDemand && face.heard().plus_ns(SILENCE_NS) <= now
}
