//! Snapshots: the sum of one answer from each worker thread.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use crossbeam_channel::Sender;
use weir_base::Merge;
use weir_face::SharedMemory;
use weir_manage::SnapshotKind;

use super::disks::Disks;
use super::faces::Faces;
use super::workers::Workers;
use crate::mailbox::ControlSender;
use crate::message::{ToWorker, WorkerSnapshot};
use crate::snapshot::{FaceSnapshot, SharedMemorySnapshot, Snapshot};

#[derive(Debug)]
pub(super) enum SnapshotRequester {
    Manager { txn: u64, kind: SnapshotKind },
    Query(Sender<Snapshot>),
}

/// Snapshots that some threads have not answered.
pub(super) struct Snapshots {
    workers: Workers,
    /// Counts misses that were dropped.
    mailbox: ControlSender,
    shared_memory: Option<Arc<SharedMemory>>,
    jobs: HashMap<u64, Job>,
    next_transaction: u64,
    /// Requests that wait until a face has arrived at its new thread. During a move, a face would
    /// be counted twice or not at all.
    deferred: Vec<SnapshotRequester>,
}

struct Job {
    requester: SnapshotRequester,
    waiting: u16,
    sum: Snapshot,
    /// Faces that use shared memory.
    shared_faces: u64,
}

impl Snapshots {
    pub(super) fn new(
        workers: Workers,
        mailbox: ControlSender,
        shared_memory: Option<Arc<SharedMemory>>,
    ) -> Self {
        Self {
            workers,
            mailbox,
            shared_memory,
            jobs: HashMap::new(),
            next_transaction: 1,
            deferred: Vec::new(),
        }
    }

    /// Whether a snapshot is in progress. No face may move during one.
    pub(super) fn is_in_progress(&self) -> bool {
        !self.jobs.is_empty()
    }

    pub(super) fn start(&mut self, asked_by: SnapshotRequester, is_face_moving: bool) {
        if is_face_moving {
            return self.deferred.push(asked_by);
        }
        let transaction = self.next_transaction;
        self.next_transaction += 1;
        let (waiting, sum) = (self.workers.count(), Snapshot::default());
        self.jobs.insert(transaction, Job { requester: asked_by, waiting, sum, shared_faces: 0 });
        self.workers.send_all(|| ToWorker::Snapshot { transaction });
    }

    /// Starts the snapshots that waited for a face to arrive.
    pub(super) fn start_deferred(&mut self) {
        for asked_by in mem::take(&mut self.deferred) {
            self.start(asked_by, false);
        }
    }

    /// Adds the answer of one worker thread. Returns the snapshot if this was the last answer.
    pub(super) fn on_worker_snapshot(
        &mut self,
        transaction: u64,
        part: &WorkerSnapshot,
        faces: &Faces,
        disks: Option<&Disks>,
    ) -> Option<(SnapshotRequester, Snapshot)> {
        let job = self.jobs.get_mut(&transaction)?;
        job.add(part, faces);
        if job.waiting != 0 {
            return None;
        }
        let mut job = self.jobs.remove(&transaction)?;
        job.sum.faces.sort_by_key(|face| face.id);
        job.sum.disks = disks.map_or_else(Vec::new, Disks::snapshots);
        job.sum.add_runtime_drop("connection-refused", faces.refused_connections());
        job.sum.add_runtime_drop("miss-untold", self.mailbox.dropped_misses());
        let memory = self.shared_memory.as_ref();
        let refused = memory.map_or(0, |memory| memory.refused());
        job.sum.add_runtime_drop("shared-memory-refused", refused);
        job.sum.shared_memory = memory.map(|memory| SharedMemorySnapshot {
            faces: job.shared_faces,
            used_bytes: memory.used_bytes(),
            bytes_max: memory.bytes_max(),
            taken: memory.taken(),
        });
        Some((job.requester, job.sum))
    }
}

impl Job {
    fn add(&mut self, part: &WorkerSnapshot, faces: &Faces) {
        self.waiting -= 1;
        self.sum.router.merge(&part.router);
        self.sum.add_worker(&part.worker);
        self.sum.add_udp(&part.udp);
        self.sum.add_link_drops(part.removed_face_drops);
        self.sum.add_removed_faces(&part.removed_faces);
        for face in &part.faces {
            self.sum.add_link_drops(face.counters.drops.iter().map(|(_, count)| count));
            self.shared_faces += u64::from(face.is_shared);
            // A face that the control thread does not know yet appears in the next snapshot.
            if let Some(record) = faces.find(face.id) {
                let local = record.local_uri(face.is_shared);
                let face = FaceSnapshot::new(face, &record.remote, local, record.is_up);
                self.sum.faces.push(face);
            }
        }
    }
}
