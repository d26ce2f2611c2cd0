//! Converts snapshots of the router to the datasets of NFD's management protocol.

use weir_base::FaceId;
use weir_face::FaceUri;
use weir_link::MarkingPolicy;
use weir_manage::{
    CsDevice, CsDiskInfo, CsInfo, FaceCounters, FaceCrowding, FaceInfo, FacePersistency, FaceScope,
    FaceStatus, GeneralStatus, LinkType, Snapshot as ManagerSnapshot, SnapshotKind, face_flags,
};
use weir_wire::PACKET_SIZE_MAX;

use super::faces::Faces;
use crate::config::FaceDefaults;
use crate::snapshot::{DiskSnapshot, Snapshot};

/// Returns the dataset that the manager requested. `internal`: the packets of the internal face.
pub(super) fn dataset(
    kind: SnapshotKind,
    sum: &Snapshot,
    faces: &Faces,
    internal: FaceCounters,
) -> ManagerSnapshot {
    match kind {
        SnapshotKind::Faces => {
            let dropped = FaceCounters {
                out_interests: runtime_drops(sum, "null-face"),
                ..FaceCounters::default()
            };
            let unused = FaceCounters::default();
            let mut statuses = vec![
                reserved_status(FaceId::INTERNAL, &FaceUri::Internal, internal),
                reserved_status(FaceId::CONTENT_STORE, &FaceUri::ContentStore, unused),
                reserved_status(FaceId::NULL, &FaceUri::Null, dropped),
            ];
            statuses.extend(face_statuses(faces, sum));
            ManagerSnapshot::Faces(statuses)
        }
        SnapshotKind::Store => ManagerSnapshot::Store(store_info(sum)),
        SnapshotKind::General => ManagerSnapshot::General(general_status(sum)),
    }
}

/// A face without a socket, as NFD describes its own (daemon/face, fe044ce). Routes and the local
/// field IncomingFaceId name it, so it is in the list. The manager's packets have local fields, and
/// NFD reports the defaults of congestion marking for them.
fn reserved_status(face_id: FaceId, uri: &FaceUri, counters: FaceCounters) -> FaceStatus {
    let is_internal = face_id == FaceId::INTERNAL;
    let defaults = FaceDefaults::default();
    let interval_ns = defaults.mark_interval.as_nanos() as u64;
    let info = FaceInfo {
        face_id,
        uri: uri.to_string(),
        local_uri: uri.to_string(),
        scope: FaceScope::Local,
        persistency: FacePersistency::Permanent,
        link_type: LinkType::PointToPoint,
        flags: if is_internal { face_flags::LOCAL_FIELDS } else { 0 },
        base_congestion_marking_interval_ns: is_internal.then_some(interval_ns),
        default_congestion_threshold_bytes: is_internal.then_some(defaults.mark_threshold_bytes),
        mtu: Some(PACKET_SIZE_MAX as u64),
    };
    FaceStatus { info, counters, ..FaceStatus::default() }
}

fn face_statuses(faces: &Faces, sum: &Snapshot) -> Vec<FaceStatus> {
    let known = sum.faces.iter().filter_map(|face| {
        let counters = &face.counters;
        let record = faces.find(face.id)?;
        let policy = &record.link.egress.marking.policy;
        Some(FaceStatus {
            info: FaceInfo { local_uri: face.local_uri.clone(), ..record.info() },
            marking_policy: (*policy != MarkingPolicy::Nfd).then(|| policy.name().to_owned()),
            expiration_period_ms: face.expires_in_ns.map(|ns| ns / 1_000_000),
            heard_ms_ago: face.heard_ns_ago.map(|ns| ns / 1_000_000),
            counters: FaceCounters {
                in_interests: counters.in_interests,
                in_data: counters.in_data,
                in_nacks: counters.in_nacks,
                out_interests: counters.out_interests,
                out_data: counters.out_data,
                out_nacks: counters.out_nacks,
                in_bytes: counters.in_bytes,
                out_bytes: counters.out_bytes,
                in_runs: counters.in_runs,
                in_run_interests: counters.in_run_interests,
                out_runs: counters.out_runs,
                out_run_interests: counters.out_run_interests,
            },
        })
    });
    known.collect()
}

fn store_info(sum: &Snapshot) -> CsInfo {
    let router = &sum.router;
    CsInfo {
        entries: router.store.entries,
        hits: router.store.hits,
        misses: router.store.misses,
        bytes: Some(router.store.bytes),
        capacity_bytes: Some(router.store.capacity_bytes),
        disk: (!sum.disks.is_empty()).then(|| disk_info(sum)),
        served_memory_bytes: Some(router.memory_bytes),
        served_disk_bytes: Some(router.disk_bytes),
        served_next_hop_bytes: Some(router.next_hop_bytes),
        devices: sum.disks.iter().map(device).collect(),
        ..CsInfo::default()
    }
}

fn device(disk: &DiskSnapshot) -> CsDevice {
    CsDevice {
        path: disk.path.display().to_string(),
        capacity_bytes: disk.capacity_bytes,
        reads: disk.counters.reads,
        read_bytes: disk.counters.read_bytes,
        writes: disk.counters.writes,
        written_bytes: disk.counters.written_bytes,
        failures: disk.counters.failures,
        is_dead: u64::from(disk.is_dead),
    }
}

fn disk_info(sum: &Snapshot) -> CsDiskInfo {
    let dead = sum.disks.iter().zip(0..).filter(|(disk, _)| disk.is_dead);
    let dead_set = dead.fold(0, |set: u64, (_, at)| set | 1 << at);
    let mut tier = sum.router.store.disk;
    // A dead disk never responds again, so the dataset shows it as stalled.
    tier.stalled_set |= dead_set;
    let capacity_bytes = sum.disks.iter().map(|disk| disk.capacity_bytes).sum();
    let mut info = CsDiskInfo::new(sum.disks.len() as u64, capacity_bytes);
    info.add(&tier);
    info.add(&sum.router.busy);
    let latency = &sum.router.busy.read_latency;
    info.set_read_latency(latency.sum(), latency.count());
    info
}

fn runtime_drops(sum: &Snapshot, reason: &str) -> u64 {
    sum.runtime_drops.iter().find(|(known, _)| *known == reason).map_or(0, |(_, count)| *count)
}

fn general_status(sum: &Snapshot) -> GeneralStatus {
    let router = &sum.router;
    let count = |reason: &str| runtime_drops(sum, reason);
    let crowding = FaceCrowding {
        refused: count("connection-refused") + count("stranger-refused"),
        displaced: count("face-displaced"),
        stalled: count("face-stalled"),
    };
    GeneralStatus {
        pit_entries: router.pit_entries,
        cs_entries: router.store.entries,
        in_interests: router.in_interests,
        in_data: router.in_data,
        in_nacks: router.in_nacks,
        out_interests: router.out_interests,
        out_data: router.out_data,
        out_nacks: router.out_nacks,
        satisfied_interests: router.satisfied,
        unsatisfied_interests: router.unsatisfied,
        crowding: Some(crowding),
        ..GeneralStatus::default()
    }
}
