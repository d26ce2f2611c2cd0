//! Processors of routers: one each, or the cores of a machine that several routers share.
//!
//! A router serves one packet at a time, as one thread does. A free core goes to the router that
//! has waited longest.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::nodes::Nodes;
use super::queue::{DueEvent, EventKey};
use super::router::{Incarnation, TurnResult};
use super::timeline::{Timeline, Timer};
use weir_plan::{Plan, Role, RouterPlan};

/// The cores of one machine. A router's turn ends with a crash.
struct Processor {
    cores_free: u32,
    /// Routers that wait for a core.
    waiting: VecDeque<Incarnation>,
    /// When routers leave their cores, in order.
    running: BinaryHeap<Reverse<(u64, u64, Incarnation)>>,
    sequence: u64,
    timer: Timer,
}

impl Processor {
    fn new(cores: u32) -> Self {
        Self {
            cores_free: cores,
            waiting: VecDeque::new(),
            running: BinaryHeap::new(),
            sequence: 0,
            timer: Timer::UNSET,
        }
    }

    fn run(&mut self, now_ns: u64, router: Incarnation, for_ns: u64) {
        self.sequence += 1;
        self.running.push(Reverse((now_ns.saturating_add(for_ns), self.sequence, router)));
    }
}

pub(super) struct Processors {
    processors: Vec<Processor>,
    /// The processor of each node, if it has one.
    of_nodes: Vec<Option<u32>>,
}

impl Processors {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut machines: Vec<Option<&str>> = Vec::new();
        let mut processors = Vec::new();
        let mut of_nodes = vec![None; plan.nodes.len()];
        for (node, of_node) in plan.nodes.iter().zip(&mut of_nodes) {
            let Role::Router(RouterPlan { stages: Some(stages), .. }) = &node.role else {
                continue;
            };
            let Some(cpu) = &stages.cpu else { continue };
            let machine = cpu.machine.as_deref();
            let known = machine.and_then(|_| machines.iter().position(|&known| known == machine));
            let index = known.unwrap_or_else(|| {
                machines.push(machine);
                processors.push(Processor::new(cpu.cores));
                machines.len() - 1
            });
            *of_node = Some(index as u32);
        }
        Self { processors, of_nodes }
    }

    /// A router has a packet to process and is not yet waiting for a core.
    pub(super) fn request(
        &mut self,
        router: Incarnation,
        nodes: &mut Nodes,
        timeline: &mut Timeline,
    ) {
        let Some(index) = self.of_nodes[router.node as usize] else { return };
        self.processors[index as usize].waiting.push_back(router);
        self.start_waiting(index, nodes, timeline);
    }

    /// Assigns free cores to waiting routers.
    fn start_waiting(&mut self, index: u32, nodes: &mut Nodes, timeline: &mut Timeline) {
        let now_ns = timeline.now_ns();
        let processor = &mut self.processors[index as usize];
        while processor.cores_free > 0 {
            // A router that crashed while it waited has no turn, and the core stays free.
            let Some(incarnation) = processor.waiting.pop_front() else { break };
            let router = nodes.router_mut(incarnation.node);
            let service_ns =
                router.and_then(|router| router.start_turn(incarnation.number, now_ns));
            if let Some(service_ns) = service_ns {
                processor.cores_free -= 1;
                processor.run(now_ns, incarnation, service_ns);
            }
        }
        self.set_timer(index, timeline);
    }

    /// Whether this event is a processor's current timer.
    pub(super) fn is_due(&mut self, index: u32, moment: EventKey) -> bool {
        self.processors[index as usize].timer.fires(moment)
    }

    /// The next router whose turn has ended. The caller must call [`Processors::end_turn`] for it.
    /// After the last router, this sets the processor's timer.
    pub(super) fn next_ended(
        &mut self,
        index: u32,
        timeline: &mut Timeline,
    ) -> Option<Incarnation> {
        let running = &mut self.processors[index as usize].running;
        match running.peek() {
            Some(&Reverse((ends_ns, _, router))) if ends_ns <= timeline.now_ns() => {
                running.pop();
                Some(router)
            }
            _ => {
                self.set_timer(index, timeline);
                None
            }
        }
    }

    /// Keeps the core for work that follows from the router's packet, or passes it to the next
    /// router.
    pub(super) fn end_turn(
        &mut self,
        index: u32,
        router: Incarnation,
        turn: &TurnResult,
        nodes: &mut Nodes,
        timeline: &mut Timeline,
    ) {
        let processor = &mut self.processors[index as usize];
        if let Some(more_ns) = turn.more_ns {
            processor.run(timeline.now_ns(), router, more_ns);
            return;
        }
        processor.cores_free += 1;
        // At the end of the queue, so that routers take turns packet by packet.
        if turn.has_more {
            processor.waiting.push_back(router);
        }
        self.start_waiting(index, nodes, timeline);
    }

    fn set_timer(&mut self, index: u32, timeline: &mut Timeline) {
        let processor = &mut self.processors[index as usize];
        if let Some(&Reverse((ends_ns, ..))) = processor.running.peek() {
            processor.timer.set(ends_ns, DueEvent::Processor(index), timeline);
        }
    }
}
