//! Disks that several routers share: one queue for the operations of all, in the order of
//! submission.

use weir_base::Slab;
use weir_netem::{DiskConfig, DiskModel, DiskOp};

use super::queue::{DueEvent, EventKey};
use super::router::{EndedOp, Incarnation};
use super::timeline::{Timeline, Timer};
use weir_plan::hash::{SeedPurpose, seed_of};
use weir_plan::{Plan, Role, RouterPlan};

/// An operation of one of the routers.
struct PendingOp {
    by: Incarnation,
    /// The router's number for it.
    id: u64,
}

struct SharedDisk {
    model: DiskModel,
    pending: Slab<PendingOp>,
    timer: Timer,
}

/// The shared disks of a plan.
pub(super) struct SharedDisks {
    disks: Vec<SharedDisk>,
    /// The shared disk of each node, if it uses one.
    of_nodes: Vec<Option<u32>>,
}

impl SharedDisks {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut names: Vec<&str> = Vec::new();
        let mut disks = Vec::new();
        let mut of_nodes = vec![None; plan.nodes.len()];
        for (node, of_node) in plan.nodes.iter().zip(&mut of_nodes) {
            let Role::Router(RouterPlan { disk: Some(disk), .. }) = &node.role else { continue };
            let Some(name) = disk.shared_as.as_deref() else { continue };
            let known = names.iter().position(|&known| known == name);
            let index = known.unwrap_or_else(|| {
                let config = DiskConfig { queue_max: u32::MAX, ..disk.device.clone() };
                let seed = seed_of(plan.seed, SeedPurpose::SharedDisk, names.len() as u64);
                names.push(name);
                let model = DiskModel::new(config, seed);
                disks.push(SharedDisk { model, pending: Slab::new(), timer: Timer::UNSET });
                names.len() - 1
            });
            *of_node = Some(index as u32);
        }
        Self { disks, of_nodes }
    }

    #[inline]
    pub(super) fn of_node(&self, node: u32) -> Option<u32> {
        if self.disks.is_empty() { None } else { self.of_nodes[node as usize] }
    }

    /// Submits a router's operations to a disk.
    pub(super) fn submit(
        &mut self,
        index: u32,
        by: Incarnation,
        ops: impl Iterator<Item = DiskOp>,
        timeline: &mut Timeline,
    ) {
        let disk = &mut self.disks[index as usize];
        for op in ops {
            let id = u64::from(disk.pending.insert(PendingOp { by, id: op.id }));
            let taken = disk.model.submit(timeline.now(), DiskOp { id, ..op });
            debug_assert!(taken.is_ok(), "the model's queue has no bound");
        }
        self.set_timer(index, timeline);
    }

    /// Whether this event is a disk's current timer.
    pub(super) fn is_due(&mut self, index: u32, moment: EventKey) -> bool {
        self.disks[index as usize].timer.fires(moment)
    }

    /// The next finished operation, and the incarnation that submitted it. Its result is ignored if
    /// the router has crashed since. After the last one, this sets the disk's timer.
    pub(super) fn complete(
        &mut self,
        index: u32,
        timeline: &mut Timeline,
    ) -> Option<(Incarnation, EndedOp)> {
        let disk = &mut self.disks[index as usize];
        let Some(completion) = disk.model.complete(timeline.now()) else {
            self.set_timer(index, timeline);
            return None;
        };
        let PendingOp { by, id } = disk.pending.remove(completion.id as u32);
        let has_failed = completion.result.is_err();
        Some((by, EndedOp { id, bytes: completion.op.bytes, has_failed }))
    }

    fn set_timer(&mut self, index: u32, timeline: &mut Timeline) {
        let disk = &mut self.disks[index as usize];
        if let Some(at) = disk.model.next_completion() {
            disk.timer.set(at.as_ns(), DueEvent::Device(index), timeline);
        }
    }
}
