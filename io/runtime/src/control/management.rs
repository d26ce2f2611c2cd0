//! Between the manager and the router.

use std::sync::mpsc;
use std::time::Duration;

use weir_base::{FaceId, Instant};
use weir_face::unix_time_ms;
use weir_forward::strategy::Strategy;
use weir_forward::{Command, NextHop};
use weir_manage::{
    Action, FaceError, FaceEventKind, FacePersistency, ManagerInput, Sender, StoreSettings,
};
use weir_store::StoreConfig;
use weir_wire::{DataView, LpHeader, Name};

use super::table::FaceRecord;
use super::{Control, answers};
use crate::message::{InternalPacket, ToWorker};

/// A thread that takes longer is not waited for: management must not stall with it.
const FENCE_TIMEOUT: Duration = Duration::from_millis(200);

impl Control {
    /// A management Interest, as the router sent it to the internal face.
    pub(super) fn on_internal(&mut self, internal: InternalPacket) {
        let ingress = FaceId(internal.header.incoming_face.unwrap_or(FaceId::INVALID.0));
        // A Nack or a Data here answers nothing that this router asked.
        let is_interest = internal.header.nack.is_none();
        if !is_interest {
            return;
        }
        let sender = self.faces.find(ingress).map_or(Sender::Remote, FaceRecord::sender);
        self.manager_inputs.push_back(ManagerInput::Interest {
            ingress,
            sender,
            packet: internal.packet,
        });
    }

    /// Feeds the manager what waits for it and does what it asks.
    pub(super) fn perform_manager(&mut self, now: Instant) {
        loop {
            let mut has_changed = false;
            for action in std::mem::take(&mut self.manager_outbox.actions) {
                has_changed |=
                    matches!(action, Action::SetNextHops { .. } | Action::SetStrategy { .. });
                self.perform(action);
            }
            if has_changed && !self.manager_outbox.data.is_empty() {
                self.wait_for_shards();
            }
            for data in std::mem::take(&mut self.manager_outbox.data) {
                let Ok(view) = DataView::decode(&data.packet) else {
                    tracing::error!("the manager made a Data that is none");
                    continue;
                };
                let shard = self.shard_of(view.name);
                let header = LpHeader { no_cache: data.no_cache, ..LpHeader::default() };
                self.workers[shard].send(ToWorker::Internal { header, packet: data.packet });
            }
            let Some(input) = self.manager_inputs.pop_front() else {
                return;
            };
            self.manager.handle(now, unix_time_ms(), input, &mut self.manager_outbox);
        }
    }

    /// Waits until all shards know of a change: who has got the answer to a command may use what it
    /// asked for at once, by way of any shard.
    fn wait_for_shards(&self) {
        if self.workers.len() < 2 {
            return;
        }
        let (fence, passed) = mpsc::channel();
        self.tell_all(|| ToWorker::Fence(fence.clone()));
        drop(fence);
        if passed.recv_timeout(FENCE_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!("a thread is late: a command is answered before all know of it");
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::CreateFace { txn, request } => self.create_face(txn, request),
            Action::UpdateFace { txn, face, changes } => {
                let result = self.update_face(face, &changes, None);
                self.manager_inputs.push_back(ManagerInput::FaceUpdated { txn, result });
            }
            Action::DestroyFace { face } => self.destroy_face(face),
            Action::SetNextHops { prefix, next_hops } => {
                let next_hops: Vec<NextHop> = next_hops
                    .iter()
                    .map(|hop| NextHop { face: hop.face_id, cost: hop.cost })
                    .collect();
                self.tell_all(|| {
                    ToWorker::Router(Command::SetNextHops {
                        prefix: prefix.clone(),
                        next_hops: next_hops.clone(),
                    })
                });
            }
            Action::SetStrategy { prefix, strategy } => self.set_strategy(&prefix, strategy),
            Action::ConfigureStore(settings) => self.configure_store(settings),
            Action::EraseStore { txn, prefix, limit } => self.start_erasure(txn, prefix, limit),
            Action::ListHoldings { txn, object } => self.list_holdings(txn, object),
            Action::Snapshot { txn, kind } => {
                self.start_snapshot(answers::SnapshotFor::Manager { txn, kind });
            }
        }
    }

    fn set_strategy(&mut self, prefix: &Name, name: Option<Name>) {
        let strategy = match name.map(|name| (Strategy::from_name(name.as_view()), name)) {
            None => None,
            Some((Ok(strategy), _)) => Some(strategy),
            // The manager lists what there is, so this is a disagreement between two parts of ours.
            Some((Err(error), name)) => {
                tracing::error!(%prefix, strategy = %name, %error, "strategy refused");
                return;
            }
        };
        self.tell_all(|| {
            let (prefix, strategy) = (prefix.clone(), strategy.clone());
            ToWorker::Router(Command::SetStrategy { prefix, strategy })
        });
    }

    fn configure_store(&mut self, settings: StoreSettings) {
        let capacity_bytes = settings.capacity_bytes;
        self.config.store.capacity_bytes = capacity_bytes;
        if let Some(memory) = &self.memory {
            memory.set_capacity(capacity_bytes);
        }
        self.config.store.admit = settings.admit;
        self.config.store.serve = settings.serve;
        let shard_store = shard_store(&self.config.store, self.workers.len());
        self.tell_all(|| ToWorker::Router(Command::ConfigureStore(shard_store.clone())));
    }

    /// Tells the manager of a face.
    pub(super) fn face_event(&mut self, kind: FaceEventKind, id: FaceId) {
        if let Some(face) = self.faces.find(id) {
            let info = face.info();
            // Strangers make and leave faces as they like, which is no news.
            if face.persistency == FacePersistency::OnDemand {
                tracing::debug!(face = id.0, remote = info.uri, "face {kind}");
            } else {
                tracing::info!(face = id.0, remote = info.uri, "face {kind}");
            }
            self.manager_inputs.push_back(ManagerInput::FaceEvent { kind, info });
        }
    }

    pub(super) fn face_created(&mut self, txn: u64, result: Result<FaceId, FaceError>) {
        let result = result.and_then(|id| {
            let face = self.faces.find(id);
            face.map(FaceRecord::info)
                .ok_or_else(|| FaceError::Internal("the face closed at once".into()))
        });
        self.manager_inputs.push_back(ManagerInput::FaceCreated { txn, result });
    }
}

/// One shard's part of the store.
pub(super) fn shard_store(whole: &StoreConfig, shards: usize) -> StoreConfig {
    StoreConfig { capacity_bytes: whole.capacity_bytes / shards as u64, ..whole.clone() }
}
