//! Processors of routers: one for each, or the cores of a machine that several routers share. A
//! router has one packet served at a time, as one thread does; a core that it leaves goes to the
//! router that has waited longest.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::queue::{Due, Moment};
use super::{Network, NodeKind};
use crate::check::Broken;
use weir_plan::event::Observer;
use weir_plan::{Plan, Role, RouterPlan};

/// A router in one of its lives; what it had on a processor ends with the life.
type Owner = (u32, u64);

/// The cores that one or more routers have.
pub(super) struct Processor {
    cores_free: u32,
    /// Routers with packets that wait for a core.
    waiting: VecDeque<Owner>,
    /// When routers leave their cores, in order.
    running: BinaryHeap<Reverse<(u64, u64, Owner)>>,
    sequence: u64,
    wake: Moment,
}

impl Processor {
    fn run(&mut self, now_ns: u64, owner: Owner, for_ns: u64) {
        self.sequence += 1;
        self.running.push(Reverse((now_ns.saturating_add(for_ns), self.sequence, owner)));
    }
}

/// The processors of a plan, and which one each node has.
pub(super) fn processors(plan: &Plan) -> (Vec<Processor>, Vec<Option<u32>>) {
    let mut machines: Vec<Option<&str>> = Vec::new();
    let mut processors = Vec::new();
    let mut places = vec![None; plan.nodes.len()];
    for (node, place) in plan.nodes.iter().zip(&mut places) {
        let Role::Router(RouterPlan { stages: Some(stages), .. }) = &node.role else { continue };
        let Some(cpu) = &stages.cpu else { continue };
        let machine = cpu.machine.as_deref();
        let known = machine.and_then(|_| machines.iter().position(|&known| known == machine));
        let index = known.unwrap_or_else(|| {
            machines.push(machine);
            processors.push(Processor {
                cores_free: cpu.cores,
                waiting: VecDeque::new(),
                running: BinaryHeap::new(),
                sequence: 0,
                wake: Moment::NEVER,
            });
            machines.len() - 1
        });
        *place = Some(index as u32);
    }
    (processors, places)
}

impl Network {
    /// A router has a packet for its processor, and is not waiting for it yet.
    pub(super) fn want_processor(&mut self, node: u32, life: u64) {
        let Some(index) = self.nodes[node as usize].processor else { return };
        self.processors[index as usize].waiting.push_back((node, life));
        self.start_waiting(index);
    }

    /// Gives free cores to routers that wait for one.
    fn start_waiting(&mut self, index: u32) {
        let now_ns = self.now_ns;
        loop {
            let processor = &mut self.processors[index as usize];
            if processor.cores_free == 0 {
                break;
            }
            let Some(owner) = processor.waiting.pop_front() else { break };
            let NodeKind::Router(router) = &mut self.nodes[owner.0 as usize].kind else { continue };
            let cpu = router.cpu_of(owner.1);
            let Some(service_ns) = cpu.and_then(|cpu| cpu.start(now_ns)) else { continue };
            processor.cores_free -= 1;
            processor.run(now_ns, owner, service_ns);
        }
        self.schedule_processor(index);
    }

    fn schedule_processor(&mut self, index: u32) {
        let processor = &mut self.processors[index as usize];
        let Some(&Reverse((ends_ns, ..))) = processor.running.peek() else { return };
        let at_ns = ends_ns.max(self.now_ns + 1);
        if at_ns < processor.wake.at_ns() {
            processor.wake = self.queue.moment(at_ns, Due::Processor(index));
            self.queue.push(processor.wake);
        }
    }

    /// Routers have had their time on a processor.
    pub(super) fn wake_processor(
        &mut self,
        index: u32,
        moment: Moment,
        observer: &mut dyn Observer,
    ) -> Result<(), Broken> {
        if self.processors[index as usize].wake != moment {
            return Ok(());
        }
        self.processors[index as usize].wake = Moment::NEVER;
        let now_ns = self.now_ns;
        loop {
            let processor = &mut self.processors[index as usize];
            let Some(&Reverse((ends_ns, _, owner))) = processor.running.peek() else { break };
            if ends_ns > now_ns {
                break;
            }
            processor.running.pop();
            self.leave_processor(index, owner, observer)?;
        }
        self.schedule_processor(index);
        Ok(())
    }

    /// A packet has had its time: the router takes it up, and keeps the core for what came of it.
    fn leave_processor(
        &mut self,
        index: u32,
        owner: Owner,
        observer: &mut dyn Observer,
    ) -> Result<(), Broken> {
        let (node, life) = owner;
        let now_ns = self.now_ns;
        if let Some((is_interest, job)) = self.cpu(owner).and_then(|cpu| cpu.end(now_ns)) {
            let shard = job.shard;
            let before = self.disk_decisions(node, shard);
            self.begin(node, is_interest, job, observer);
            self.after_router(node, shard)?;
            let after = self.disk_decisions(node, shard);
            let came = (after.0 - before.0, after.1 - before.1);
            if let Some(more_ns) = self.cpu(owner).and_then(|cpu| cpu.go_on(now_ns, came)) {
                self.processors[index as usize].run(now_ns, owner, more_ns);
                return Ok(());
            }
        }
        let processor = &mut self.processors[index as usize];
        processor.cores_free += 1;
        if self.cpu(owner).is_some_and(|cpu| cpu.wants_more()) {
            self.processors[index as usize].waiting.push_back((node, life));
        }
        self.start_waiting(index);
        Ok(())
    }

    fn cpu(&mut self, (node, life): Owner) -> Option<&mut super::stages::Cpu> {
        match &mut self.nodes[node as usize].kind {
            NodeKind::Router(router) => router.cpu_of(life),
            NodeKind::App(_) => None,
        }
    }

    /// Interests of a shard that waited for a disk, and that passed one by.
    fn disk_decisions(&self, node: u32, shard: usize) -> (u64, u64) {
        match &self.nodes[node as usize].kind {
            NodeKind::Router(router) => {
                router.shards.get(shard).map_or((0, 0), |shard| shard.disk_decisions())
            }
            NodeKind::App(_) => (0, 0),
        }
    }
}
