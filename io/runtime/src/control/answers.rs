//! What takes answers from every packet thread: snapshots and erasures.

use crossbeam_channel::Sender;
use weir_base::Merge;
use weir_forward::{Command, Event};
use weir_link::MarkingPolicy;
use weir_manage::{
    CsDiskInfo, CsInfo, FaceCounters, FaceCrowding, FaceInfo, FaceStatus, GeneralStatus,
    ManagerInput, Snapshot as ManagerSnapshot, SnapshotKind,
};
use weir_wire::Name;

use super::Control;
use crate::message::{ToWorker, WorkerSnapshot};
use crate::snapshot::{FaceSnapshot, SharedMemorySnapshot, Snapshot};

/// Who asked for a snapshot.
#[derive(Debug)]
pub(super) enum SnapshotFor {
    Manager { txn: u64, kind: SnapshotKind },
    Query(Sender<Snapshot>),
}

/// A snapshot that some threads have not answered yet.
pub(super) struct SnapshotJob {
    asked_by: SnapshotFor,
    waiting: usize,
    sum: Snapshot,
    /// Faces whose packets go through shared memory.
    shared_faces: u64,
}

/// An erasure that goes from shard to shard until its limit is reached.
pub(super) struct EraseJob {
    txn: u64,
    prefix: Name,
    left: u64,
    erased: u64,
    /// Shards still to be asked.
    shards: Vec<usize>,
}

impl Control {
    pub(super) fn start_snapshot(&mut self, asked_by: SnapshotFor) {
        if let Some(moving) = self.balance.any_moving() {
            return moving.snapshots.push(asked_by);
        }
        let transaction = self.next_transaction;
        self.next_transaction += 1;
        let sum = Snapshot::default();
        let waiting = self.workers.len();
        self.snapshots.insert(transaction, SnapshotJob { asked_by, waiting, sum, shared_faces: 0 });
        self.tell_all(|| ToWorker::Snapshot { transaction });
    }

    pub(super) fn on_snapshot(&mut self, transaction: u64, part: &WorkerSnapshot) {
        let Some(job) = self.snapshots.get_mut(&transaction) else {
            return;
        };
        job.sum.router.merge(&part.router);
        job.sum.add_worker(&part.worker);
        job.sum.add_udp(&part.udp);
        job.sum.add_link_drops(part.gone_drops);
        for face in &part.faces {
            job.sum.add_link_drops(face.counters.drops.iter().map(|(_, count)| count));
            job.shared_faces += u64::from(face.is_shared);
            // A face that the control thread has not heard of yet is left for the next time.
            if let Some(record) = self.faces.find(face.id) {
                let (uri, local) = (record.remote.to_string(), record.local_uri(face.is_shared));
                job.sum.faces.push(FaceSnapshot::new(face, uri, local, record.is_up));
            }
        }
        job.waiting -= 1;
        if job.waiting == 0
            && let Some(mut job) = self.snapshots.remove(&transaction)
        {
            job.sum.faces.sort_by_key(|face| face.id);
            job.sum.disks = self.disks.as_ref().map_or_else(Vec::new, |disks| disks.snapshots());
            job.sum.add_runtime_drop("connection-refused", self.refused_connections);
            job.sum.add_runtime_drop("miss-untold", self.sender.untold());
            let refused = self.shared_memory.as_ref().map_or(0, |memory| memory.refused());
            job.sum.add_runtime_drop("shared-memory-refused", refused);
            job.sum.shared_memory =
                self.shared_memory.as_ref().map(|memory| SharedMemorySnapshot {
                    faces: job.shared_faces,
                    used_bytes: memory.used_bytes(),
                    bytes_max: memory.bytes_max(),
                    taken: memory.taken(),
                });
            self.answer_snapshot(job);
        }
    }

    fn answer_snapshot(&mut self, job: SnapshotJob) {
        match job.asked_by {
            SnapshotFor::Query(answer) => {
                // Whoever asked may have gone.
                let _ = answer.send(job.sum);
            }
            SnapshotFor::Manager { txn, kind } => {
                let snapshot = match kind {
                    SnapshotKind::Faces => ManagerSnapshot::Faces(self.face_statuses(&job.sum)),
                    SnapshotKind::Store => ManagerSnapshot::Store(store_info(&job.sum)),
                    SnapshotKind::General => ManagerSnapshot::General(general_status(&job.sum)),
                };
                self.manager_inputs.push_back(ManagerInput::Snapshot { txn, snapshot });
            }
        }
    }

    fn face_statuses(&self, sum: &Snapshot) -> Vec<FaceStatus> {
        let known = sum.faces.iter().filter_map(|face| {
            let counters = &face.counters;
            let record = self.faces.find(face.id)?;
            let policy = record.link.egress.marking.policy;
            Some(FaceStatus {
                info: FaceInfo { local_uri: face.local_uri.clone(), ..record.info() },
                marking_policy: (policy != MarkingPolicy::default())
                    .then(|| policy.name().to_owned()),
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

    pub(super) fn start_erasure(&mut self, txn: u64, prefix: Name, limit: u64) {
        let shards = (0..self.workers.len()).collect();
        let transaction = self.next_transaction;
        self.next_transaction += 1;
        let job = EraseJob { txn, prefix, left: limit, erased: 0, shards };
        self.continue_erasure(transaction, job);
    }

    fn continue_erasure(&mut self, transaction: u64, mut job: EraseJob) {
        let Some(shard) = job.shards.pop() else {
            return self.finish_erasure(&job, false);
        };
        self.workers[shard].send(ToWorker::Router(Command::EraseStore {
            transaction,
            prefix: job.prefix.clone(),
            limit: usize::try_from(job.left).unwrap_or(usize::MAX),
        }));
        self.erasures.insert(transaction, job);
    }

    fn finish_erasure(&mut self, job: &EraseJob, more: bool) {
        let (txn, erased) = (job.txn, job.erased);
        self.manager_inputs.push_back(ManagerInput::StoreErased { txn, erased, more });
    }

    pub(super) fn on_event(&mut self, worker: u16, event: Event) {
        match event {
            Event::StoreErased { transaction, erased, limit_reached } => {
                let Some(mut job) = self.erasures.remove(&transaction) else {
                    return;
                };
                job.erased += erased as u64;
                job.left = job.left.saturating_sub(erased as u64);
                if limit_reached {
                    self.finish_erasure(&job, true);
                } else {
                    self.continue_erasure(transaction, job);
                }
            }
            Event::StoreFlushed { transaction } => self.on_store_flushed(transaction),
            Event::Store(event) => self.on_store_event(worker, event),
            // Packet threads tell whoever listens.
            Event::Missed { .. } => {}
        }
    }
}

fn store_info(sum: &Snapshot) -> CsInfo {
    CsInfo {
        entries: sum.router.store.entries,
        hits: sum.router.store.hits,
        misses: sum.router.store.misses,
        bytes: Some(sum.router.store.bytes),
        capacity_bytes: Some(sum.router.store.capacity_bytes),
        disk: (!sum.disks.is_empty()).then(|| disk_info(sum)),
        ..CsInfo::default()
    }
}

fn disk_info(sum: &Snapshot) -> CsDiskInfo {
    let dead = sum.disks.iter().zip(0..).filter(|(disk, _)| disk.is_dead);
    let dead_set = dead.fold(0, |set: u64, (_, at)| set | 1 << at);
    let mut tier = sum.router.store.disk;
    tier.stalled_set |= dead_set;
    let capacity_bytes = sum.disks.iter().map(|disk| disk.capacity_bytes).sum();
    let mut info = CsDiskInfo::new(sum.disks.len() as u64, capacity_bytes);
    info.add(&tier);
    info.add(&sum.router.busy);
    info
}

fn general_status(sum: &Snapshot) -> GeneralStatus {
    let router = &sum.router;
    let count = |reason: &str| {
        sum.runtime_drops.iter().find(|(known, _)| *known == reason).map_or(0, |(_, count)| *count)
    };
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
