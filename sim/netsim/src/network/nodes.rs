//! The nodes of a network: routers and applications, with their ends of links.

use weir_base::{FaceId, Instant};

use super::apps::AppNode;
use super::links::Links;
use super::queue::{DueEvent, EventKey};
use super::router::{ProducerSet, RouterNode};
use super::timeline::{Timeline, Timer};
use crate::check::CheckFailure;
use weir_plan::event::EventKind;

pub(super) enum NodeKind {
    Router(Box<RouterNode>),
    App(AppNode),
}

pub(super) struct Node {
    pub(super) kind: NodeKind,
    /// Ends of its links. Face `FaceId::FIRST + i` belongs to the `i`-th end.
    pub(super) ends: Vec<u32>,
    timer: Timer,
    /// Number of faults that keep it down.
    downs: u32,
}

impl Node {
    pub(super) fn new(kind: NodeKind, ends: Vec<u32>) -> Self {
        Self { kind, ends, timer: Timer::UNSET, downs: 0 }
    }

    #[inline]
    pub(super) fn end_of(&self, face: FaceId) -> Option<u32> {
        let slot = face.0.wrapping_sub(FaceId::FIRST.0) as usize;
        self.ends.get(slot).copied()
    }
}

/// All nodes, by their index in the plan.
pub(super) struct Nodes {
    nodes: Vec<Node>,
}

impl Nodes {
    pub(super) fn new(nodes: Vec<Node>) -> Self {
        Self { nodes }
    }

    pub(super) fn get(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    pub(super) fn get_mut(&mut self, node: u32) -> &mut Node {
        &mut self.nodes[node as usize]
    }

    #[inline]
    pub(super) fn router(&self, node: u32) -> Option<&RouterNode> {
        match &self.nodes[node as usize].kind {
            NodeKind::Router(router) => Some(router),
            NodeKind::App(_) => None,
        }
    }

    #[inline]
    pub(super) fn router_mut(&mut self, node: u32) -> Option<&mut RouterNode> {
        match &mut self.nodes[node as usize].kind {
            NodeKind::Router(router) => Some(router),
            NodeKind::App(_) => None,
        }
    }

    pub(super) fn app(&self, node: usize) -> Option<&AppNode> {
        match &self.nodes.get(node)?.kind {
            NodeKind::App(app) => Some(app),
            NodeKind::Router(_) => None,
        }
    }

    pub(super) fn is_router(&self, node: u32) -> bool {
        self.router(node).is_some()
    }

    pub(super) fn routers(&self) -> impl Iterator<Item = (u32, &RouterNode)> {
        let numbers = 0..self.nodes.len() as u32;
        numbers.filter_map(|node| Some((node, self.router(node)?)))
    }

    /// A node's faces to routers: the router at the other end, this end, and the face.
    pub(super) fn faces_to_routers<'a>(
        &'a self,
        node: u32,
        links: &'a Links,
    ) -> impl Iterator<Item = (u32, u32, FaceId)> + use<'a> {
        let ends = self.nodes[node as usize].ends.iter();
        let faces = ends.map(|&end| (links.peer(end), end, links.end(end).face));
        faces.filter(|&(peer, ..)| self.is_router(peer))
    }

    pub(super) fn next_face(&self, node: u32) -> FaceId {
        FaceId(FaceId::FIRST.0 + self.nodes[node as usize].ends.len() as u64)
    }

    /// Adds an end to a node as its next face.
    pub(super) fn add_end(&mut self, node: u32, end: u32) {
        self.nodes[node as usize].ends.push(end);
    }

    /// Sets a node's wake-up time, unless its timer fires earlier.
    #[inline]
    pub(super) fn set_timer(&mut self, node: u32, at_ns: Option<u64>, timeline: &mut Timeline) {
        if let Some(at_ns) = at_ns {
            self.nodes[node as usize].timer.set(at_ns, DueEvent::Wake(node), timeline);
        }
    }

    /// Sets the first timer of each node.
    pub(super) fn set_first_timers(&mut self, timeline: &mut Timeline) {
        for node in 0..self.nodes.len() as u32 {
            let at_ns = match &self.nodes[node as usize].kind {
                NodeKind::App(app) => app.app.next_wakeup().map(Instant::as_ns),
                NodeKind::Router(router) => router.next_wakeup_ns(),
            };
            self.set_timer(node, at_ns, timeline);
        }
    }

    /// Whether a node is up and this event is its current timer.
    #[inline]
    pub(super) fn is_due(&mut self, node: u32, moment: EventKey) -> bool {
        let node = &mut self.nodes[node as usize];
        node.timer.fires(moment) && node.downs == 0
    }

    /// A fault takes a node down. Returns whether it was up.
    pub(super) fn take_down(&mut self, node: u32) -> bool {
        let node = &mut self.nodes[node as usize];
        node.downs += 1;
        node.timer = Timer::UNSET;
        node.downs == 1
    }

    pub(super) fn is_down(&self, node: u32) -> bool {
        self.nodes[node as usize].downs > 0
    }

    /// A fault that kept a node down ends. Returns whether it is up now.
    pub(super) fn bring_up(&mut self, node: u32) -> bool {
        let node = &mut self.nodes[node as usize];
        node.downs -= 1;
        node.downs == 0
    }

    /// Whether no router has packets or operations inside.
    pub(super) fn are_quiet(&self) -> bool {
        self.routers().all(|(_, router)| router.is_quiet())
    }

    /// Interests that reached a router with a nonce it had seen before.
    pub(super) fn interests_looped(&self) -> u64 {
        self.routers().map(|(_, router)| router.interests_looped()).sum()
    }

    /// Emits a sample of every node.
    pub(super) fn sample(&mut self, links: &mut Links, timeline: &mut Timeline) {
        for (index, state) in self.nodes.iter_mut().enumerate() {
            let node = index as u32;
            match &mut state.kind {
                NodeKind::App(app) => {
                    app.app.sample().into_iter().for_each(|kind| timeline.emit(node, kind));
                }
                NodeKind::Router(router) => {
                    let mut sample = router.counters(timeline.now());
                    for (queue, packets) in router.queue_lengths() {
                        timeline.emit(node, EventKind::QueueLength { queue, packets });
                    }
                    links.count(&state.ends, &mut sample, timeline);
                    timeline.emit(node, EventKind::RouterSample(Box::new(sample)));
                }
            }
        }
    }

    /// Checks that the tables and queues of all routers are within their bounds.
    pub(super) fn check(&self) -> Result<(), CheckFailure> {
        self.routers().try_for_each(|(node, router)| {
            router.check().map_err(|what| CheckFailure::invariant(node, what))
        })
    }

    /// Checks that every PIT is empty, no disk is busy, and no record was lost that must be kept.
    pub(super) fn check_drained(
        &self,
        now: Instant,
        are_records_kept: bool,
        producers: &mut ProducerSet,
    ) -> Result<(), CheckFailure> {
        self.routers().try_for_each(|(node, router)| {
            router
                .check_drained(now, are_records_kept, producers)
                .map_err(|what| CheckFailure::invariant(node, what))
        })
    }
}
