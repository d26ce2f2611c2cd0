//! Disks that several routers share: one queue of what all of them ask, in that order.

use weir_base::Slab;
use weir_netem::{DiskConfig, DiskModel, DiskOp};

use super::queue::{Due, Moment};
use super::{Network, NodeKind};
use crate::check::Broken;
use weir_plan::hash::{Part, seed_of};
use weir_plan::{Plan, Role, RouterPlan};

/// An operation of one of the routers.
struct Asked {
    node: u32,
    /// Which of its lives has asked; what an earlier one asked for is done for nothing.
    life: u64,
    /// The router's number for it.
    id: u64,
}

/// A disk that several routers share.
pub(super) struct Device {
    model: DiskModel,
    asked: Slab<Asked>,
    wake: Moment,
}

/// The shared disks of a plan, and which one each node has.
pub(super) fn devices(plan: &Plan) -> (Vec<Device>, Vec<Option<u32>>) {
    let mut names: Vec<&str> = Vec::new();
    let mut devices = Vec::new();
    let mut places = vec![None; plan.nodes.len()];
    for (node, place) in plan.nodes.iter().zip(&mut places) {
        let Role::Router(RouterPlan { disk: Some(disk), .. }) = &node.role else { continue };
        let Some(name) = disk.shared_as.as_deref() else { continue };
        let known = names.iter().position(|&known| known == name);
        let index = known.unwrap_or_else(|| {
            let config = DiskConfig { queue_max: u32::MAX, ..disk.device.clone() };
            let seed = seed_of(plan.seed, Part::SharedDisk, names.len() as u64);
            names.push(name);
            devices.push(Device {
                model: DiskModel::new(config, seed),
                asked: Slab::new(),
                wake: Moment::NEVER,
            });
            names.len() - 1
        });
        *place = Some(index as u32);
    }
    (devices, places)
}

impl Network {
    /// Gives a shared disk what a router wants of it.
    pub(super) fn ask_device(&mut self, node: u32) {
        let state = &mut self.nodes[node as usize];
        let (Some(index), NodeKind::Router(router)) = (state.device, &mut state.kind) else {
            return;
        };
        let now = weir_base::Instant::from_ns(self.now_ns);
        let device = &mut self.devices[index as usize];
        let life = router.lives();
        let Some(disks) = &mut router.disks else { return };
        for op in disks.take_shared() {
            let asked = Asked { node, life, id: op.id };
            let id = u64::from(device.asked.insert(asked));
            let taken = device.model.submit(now, DiskOp { id, ..op });
            debug_assert!(taken.is_ok(), "the model's queue has no bound");
        }
        self.schedule_device(index);
    }

    fn schedule_device(&mut self, index: u32) {
        let device = &mut self.devices[index as usize];
        let Some(at) = device.model.next_completion() else { return };
        let at_ns = at.as_ns().max(self.now_ns + 1);
        if at_ns < device.wake.at_ns() {
            device.wake = self.queue.moment(at_ns, Due::Device(index));
            self.queue.push(device.wake);
        }
    }

    /// Operations of a shared disk have ended: their routers are told.
    pub(super) fn wake_device(&mut self, index: u32, moment: Moment) -> Result<(), Broken> {
        if self.devices[index as usize].wake != moment {
            return Ok(());
        }
        self.devices[index as usize].wake = Moment::NEVER;
        let now = self.now();
        while let Some(completion) = self.devices[index as usize].model.complete(now) {
            let asked = self.devices[index as usize].asked.remove(completion.id as u32);
            let Asked { node, life, id } = asked;
            let NodeKind::Router(router) = &mut self.nodes[node as usize].kind else { continue };
            if !router.is_living(life) {
                continue;
            }
            let Some(disks) = &mut router.disks else { continue };
            let ended = (id, completion.op.bytes, completion.result.is_err());
            let done = disks.end_shared(ended, &mut self.library);
            let shard = done.shard;
            self.end_disk_operation(node, done)?;
            self.after_router(node, shard)?;
        }
        self.schedule_device(index);
        Ok(())
    }
}
