//! The status datasets.

use alloc::vec::Vec;

use weir_base::NS_PER_MS;
use weir_store::{Holding, HoldingsStatus, Tier};

use crate::element::{Element, Writer};
use crate::io::{Action, ManagerOutbox, OutData, Snapshot, SnapshotKind};
use crate::manager::{Call, HOLDINGS, Manager, Moment, Pending, PendingKind};
use crate::parameters::ControlResponse;
use crate::status::{ChannelStatus, FaceQueryFilter, RibEntry, RouteStatus, StrategyChoice};

/// Components before the object's name: scope, `nfd`, module and dataset.
const OBJECT_AT: usize = 4;

impl Manager {
    /// A request for a dataset, or for a segment of one lately made.
    pub(crate) fn on_dataset(
        &mut self,
        call: &Call<'_>,
        module: &[u8],
        dataset: &[u8],
        out: &mut ManagerOutbox,
    ) {
        if (module, dataset) == (b"faces", b"events") {
            self.on_events(call, out);
            return;
        }
        let is_later = call
            .interest
            .name
            .last()
            .is_some_and(|last| last.as_segment().is_some() || last.as_version().is_some());
        if is_later {
            // A version that is gone is not answered, as in NFD: the client asks anew.
            match self.datasets.find(call.interest) {
                Some(packet) => {
                    out.data.push(OutData { face: call.ingress, packet, no_cache: true });
                }
                None => self.stats.ignored += 1,
            }
            return;
        }
        self.stats.datasets += 1;
        let request = call.request();
        let content = match (module, dataset) {
            (b"faces", b"list") => {
                return self.snapshot(call, PendingKind::Faces(FaceQueryFilter::default()), out);
            }
            (b"faces", b"query") => return self.query_faces(call, out),
            (b"cs", b"info") => return self.snapshot(call, PendingKind::Store, out),
            HOLDINGS => return self.list_holdings(call, out),
            (b"status", b"general") => return self.snapshot(call, PendingKind::General, out),
            (b"faces", b"channels") => {
                items(self.channels.iter().map(|uri| ChannelStatus { local_uri: uri.clone() }))
            }
            (b"fib", b"list") => items(self.fib.items()),
            (b"rib", b"list") => items(self.rib_items(call.at)),
            (b"strategy-choice", b"list") => {
                items(self.strategies.choices().map(|(name, strategy)| StrategyChoice {
                    name: name.clone(),
                    strategy: strategy.clone(),
                }))
            }
            _ => {
                self.stats.datasets -= 1;
                self.stats.ignored += 1;
                return;
            }
        };
        self.publish(&request, &content, call.at.now_unix_ms, out);
    }

    /// Which segments of an object are held.
    fn list_holdings(&mut self, call: &Call<'_>, out: &mut ManagerOutbox) {
        let request = call.request();
        let object = match call.interest.name.last() {
            Some(last) if call.interest.name.component_count() == OBJECT_AT + 1 => {
                HoldingsStatus::object_of(last.value)
            }
            _ => None,
        };
        let Some(object) = object else {
            let response = ControlResponse::new(400, "Malformed object name");
            return self.refuse_dataset(&request, &response, out);
        };
        let kind = PendingKind::Holdings { object: object.clone() };
        match self.wait(call.at, request.clone(), kind) {
            Some(txn) => out.actions.push(Action::ListHoldings { txn, object }),
            None => {
                let response = ControlResponse::new(500, "Too many requests in progress");
                self.refuse_dataset(&request, &response, out);
            }
        }
    }

    pub(crate) fn on_holdings(
        &mut self,
        at: Moment,
        pending: Pending,
        holdings: Vec<Holding>,
        is_partial: bool,
        out: &mut ManagerOutbox,
    ) {
        let PendingKind::Holdings { object } = pending.kind else {
            self.stats.late_answers += 1;
            return;
        };
        let mut status = HoldingsStatus { object, is_partial, ..HoldingsStatus::default() };
        for holding in holdings {
            match holding.tier {
                Tier::Memory => status.memory = holding.ranges,
                Tier::Disk => status.disk = holding.ranges,
            }
        }
        status.limit();
        self.publish(&pending.request, &status.encode(), at.now_unix_ms, out);
    }

    fn query_faces(&mut self, call: &Call<'_>, out: &mut ManagerOutbox) {
        let filter = call.interest.name.last().map(|last| FaceQueryFilter::decode(last.value));
        match filter {
            Some(Ok(filter)) => self.snapshot(call, PendingKind::Faces(filter), out),
            _ => {
                let response = ControlResponse::new(400, "Malformed filter");
                self.refuse_dataset(&call.request(), &response, out);
            }
        }
    }

    /// Asks the driver for counters.
    fn snapshot(&mut self, call: &Call<'_>, pending: PendingKind, out: &mut ManagerOutbox) {
        let request = call.request();
        let kind = match &pending {
            PendingKind::Store => SnapshotKind::Store,
            PendingKind::General => SnapshotKind::General,
            _ => SnapshotKind::Faces,
        };
        match self.wait(call.at, request.clone(), pending) {
            Some(txn) => out.actions.push(Action::Snapshot { txn, kind }),
            None => {
                let response = ControlResponse::new(500, "Too many requests in progress");
                self.refuse_dataset(&request, &response, out);
            }
        }
    }

    pub(crate) fn on_snapshot(
        &mut self,
        at: Moment,
        pending: Pending,
        snapshot: Snapshot,
        out: &mut ManagerOutbox,
    ) {
        let content = match (pending.kind, snapshot) {
            (PendingKind::Faces(filter), Snapshot::Faces(faces)) => {
                items(faces.into_iter().filter(|face| filter.matches(&face.info)))
            }
            (PendingKind::Store, Snapshot::Store(mut info)) => {
                info.capacity = self.store_capacity();
                info.flags = self.store_flags();
                info.capacity_bytes.get_or_insert(self.store.capacity_bytes);
                info.encode()
            }
            (PendingKind::General, Snapshot::General(mut status)) => {
                status.version.clone_from(&self.config.version);
                // By the monotonic clock: the other may have been set since.
                let uptime_ms = at.now.as_ns() / NS_PER_MS;
                status.start_unix_ms = at.now_unix_ms.saturating_sub(uptime_ms);
                status.current_unix_ms = at.now_unix_ms;
                status.fib_entries = self.fib.len() as u64;
                status.encode_content()
            }
            // The driver answered another question than asked: as good as no answer.
            _ => {
                self.stats.late_answers += 1;
                return;
            }
        };
        self.publish(&pending.request, &content, at.now_unix_ms, out);
    }

    fn rib_items(&self, at: Moment) -> impl Iterator<Item = RibEntry> {
        self.rib.iter().map(move |(name, routes)| RibEntry {
            name: name.clone(),
            routes: routes
                .map(|route| RouteStatus {
                    face_id: route.face,
                    origin: route.origin,
                    cost: route.cost,
                    flags: route.flags,
                    expiration_period_ms: route
                        .expires
                        .map(|expires| expires.ns_since(at.now) / NS_PER_MS),
                })
                .collect(),
        })
    }
}

fn items<E: Element>(items: impl Iterator<Item = E>) -> Vec<u8> {
    let mut writer = Writer::default();
    for item in items {
        writer.element(&item);
    }
    writer.into_octets()
}
