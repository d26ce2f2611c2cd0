//! Counters of a worker thread, apart from those of its shard and its faces.

use std::collections::BTreeMap;

use weir_base::Instant;
use weir_face::UdpCounters;
use weir_link::{LinkCounters, LinkDrop};
use weir_manage::FacePersistency;

use crate::face::{Face, FaceSocket};
use crate::message::CloseReason;
use crate::rate_limited_log::RateLimitedLog;
use crate::snapshot::{RemovedFaces, RemovedKind, WorkerCounters};

/// Counters, and the log of repeated events.
pub(super) struct WorkerStats {
    pub(super) counters: WorkerCounters,
    /// Link drops of removed faces.
    removed_face_drops: [u64; LinkDrop::COUNT],
    removed_faces: BTreeMap<(&'static str, RemovedKind), LinkCounters>,
    /// Counters of closed UDP sockets of faces.
    closed_udp: UdpCounters,
    stalls: RateLimitedLog,
}

impl Default for WorkerStats {
    fn default() -> Self {
        Self {
            counters: WorkerCounters::default(),
            removed_face_drops: [0; LinkDrop::COUNT],
            removed_faces: BTreeMap::new(),
            closed_udp: UdpCounters::default(),
            stalls: RateLimitedLog::default(),
        }
    }
}

impl WorkerStats {
    /// Counts a closed socket by reason.
    pub(super) fn note_closed(&mut self, reason: &CloseReason) {
        match reason {
            CloseReason::Evicted => self.counters.faces_evicted += 1,
            CloseReason::Stalled => self.counters.faces_stalled += 1,
            CloseReason::RingBroken => self.counters.rings_broken += 1,
            _ => {}
        }
    }

    /// Logs a connection that closes because its peer reads nothing.
    pub(super) fn log_stall(&mut self, now: Instant, face: u64) {
        if let Some(count) = self.stalls.add(now) {
            tracing::warn!(face, count, "closing a connection: its peer reads nothing");
        }
    }

    /// Adds the counters of a face that will get another persistency, if it is on demand. The sum
    /// over such faces must not decrease.
    pub(super) fn note_persistency(&mut self, face: &Face, persistency: FacePersistency) {
        let on_demand = FacePersistency::OnDemand;
        if face.persistency == on_demand && persistency != on_demand {
            self.add_counters(face, RemovedKind::Upgraded);
        }
    }

    fn add_counters(&mut self, face: &Face, kind: RemovedKind) {
        let sum = self.removed_faces.entry((face.transport, kind)).or_default();
        *sum += face.link.counters();
    }

    /// Adds the counters of a removed face.
    pub(super) fn add_removed_face(&mut self, face: &Face) {
        self.add_counters(
            face,
            match face.persistency {
                FacePersistency::OnDemand => RemovedKind::OnDemand,
                FacePersistency::Persistent | FacePersistency::Permanent => RemovedKind::Listed,
            },
        );
        for (sum, (_, count)) in
            self.removed_face_drops.iter_mut().zip(face.link.counters().drops.iter())
        {
            *sum += count;
        }
    }

    /// Adds the counters of a socket that closes.
    pub(super) fn add_closed_socket(&mut self, socket: &FaceSocket) {
        if let FaceSocket::Own(socket) = socket
            && let Some(counters) = socket.udp_counters()
        {
            self.closed_udp += counters;
        }
    }

    pub(super) fn closed_udp(&self) -> UdpCounters {
        self.closed_udp
    }

    pub(super) fn removed_faces(&self) -> Vec<RemovedFaces> {
        let row = |(&(transport, kind), counters): (&_, &LinkCounters)| RemovedFaces {
            transport,
            kind,
            counters: counters.clone(),
        };
        self.removed_faces.iter().map(row).collect()
    }

    pub(super) fn removed_face_drops(&self) -> [u64; LinkDrop::COUNT] {
        self.removed_face_drops
    }
}
