//! What agents do at routers beside passing on what the controller says: they make faces to routers
//! that are no neighbours, and ask again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use weir_base::{FaceId, Instant, NS_PER_S};
use weir_control::message::{Configuration, Decision};
use weir_forward::{Command, FaceAttributes, FaceScope};
use weir_netem::{LinkConfig, LinkModel};
use weir_plan::hash::{Part, seed_of};
use weir_plan::{Plan, Role};
use weir_wire::Name;

use super::Message;
use crate::check::Broken;
use crate::network::end::End;
use crate::network::queue::INDEX_MAX;
use crate::network::{Network, NodeKind};

/// How soon an object is asked about again: if there was an answer to go by, and if there was none.
const AGAIN_NS: u64 = 60 * NS_PER_S;
const AGAIN_SOON_NS: u64 = 5 * NS_PER_S;
/// Between two looks of the controller at the clock.
const TICK_NS: u64 = NS_PER_S;

/// Routers whose agents do as those of real ones.
pub(super) struct Agents {
    /// Of each node its neighbours, if both are routers, and how far they are, ns.
    links: Vec<Vec<(u32, u64)>>,
    /// Of a router how far each node is; `u64::MAX` of one that it does not reach.
    distances: BTreeMap<u32, Vec<u64>>,
    /// When a router may ask about an object again.
    again: BTreeMap<(u32, Name), u64>,
}

impl Agents {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut links = vec![Vec::new(); plan.nodes.len()];
        let is_router = |node: usize| matches!(plan.nodes[node].role, Role::Router(_));
        for link in plan.links.iter().filter(|link| is_router(link.a) && is_router(link.b)) {
            for (from, to, delay_ns) in
                [(link.a, link.b, link.a_to_b.delay_ns), (link.b, link.a, link.b_to_a.delay_ns)]
            {
                links[from].push((to as u32, delay_ns));
            }
        }
        Self { links, distances: BTreeMap::new(), again: BTreeMap::new() }
    }

    /// Whether a router asks about an object now, which is then done.
    pub(super) fn may_ask(&mut self, now_ns: u64, node: u32, object: &Name) -> bool {
        let again_ns = self.again.entry((node, object.clone())).or_insert(0);
        let may = now_ns >= *again_ns;
        if may {
            *again_ns = now_ns + AGAIN_SOON_NS;
        }
        may
    }

    /// It has got an answer.
    pub(super) fn answered(&mut self, now_ns: u64, node: u32, object: &Name, decision: Decision) {
        let after_ns = match decision {
            Decision::Small | Decision::Planned => AGAIN_NS,
            Decision::Unknown | Decision::NoRoom => AGAIN_SOON_NS,
        };
        self.again.insert((node, object.clone()), now_ns + after_ns);
    }

    /// A router has forgotten what it has asked.
    pub(super) fn forget(&mut self, node: u32) {
        self.again.retain(|(asking, _), _| *asking != node);
    }

    /// The least delay from a router to another: packets to its address go by that way.
    fn delay_ns(&mut self, from: u32, to: u32) -> Option<u64> {
        let Self { links, distances, .. } = self;
        let distances = distances.entry(from).or_insert_with(|| distances_from(links, from));
        distances.get(to as usize).copied().filter(|delay_ns| *delay_ns != u64::MAX)
    }
}

fn distances_from(links: &[Vec<(u32, u64)>], from: u32) -> Vec<u64> {
    let mut distances = vec![u64::MAX; links.len()];
    let mut heap = BinaryHeap::from([Reverse((0, from))]);
    while let Some(Reverse((distance_ns, node))) = heap.pop() {
        if distances[node as usize] != u64::MAX {
            continue;
        }
        distances[node as usize] = distance_ns;
        for &(next, delay_ns) in &links[node as usize] {
            if distances[next as usize] == u64::MAX {
                heap.push(Reverse((distance_ns.saturating_add(delay_ns), next)));
            }
        }
    }
    distances
}

impl Network {
    /// The controller looks at the clock, now and then.
    pub(in crate::network) fn begin_agents(&mut self) {
        let Some(control) = &mut self.control else { return };
        if control.agents.is_some() {
            // Of what was told before it knows the links by then.
            control.controller.tick(Instant::ZERO);
            self.control_message(TICK_NS, Message::Tick);
        }
    }

    /// The next time.
    pub(super) fn tick_again(&mut self) {
        self.control_again(TICK_NS, Message::Tick);
    }

    /// A router makes faces to the routers that a configuration has it ask and that are no
    /// neighbours of it.
    pub(super) fn make_faces(&mut self, node: u32, of: &Configuration) -> Result<(), Broken> {
        let known = self.faces_to_routers(node);
        let Some(control) = &self.control else { return Ok(()) };
        let wanted = of.distributions.iter().flat_map(|distribution| distribution.routers());
        let wanted = wanted.filter(|router| !known.contains_key(*router));
        let mut wanted: Vec<u32> =
            wanted.filter_map(|router| control.nodes.get(router).copied()).collect();
        wanted.sort_unstable();
        wanted.dedup();
        for other in wanted.into_iter().filter(|other| *other != node) {
            let Some(control) = &mut self.control else { return Ok(()) };
            let Some(agents) = &mut control.agents else { return Ok(()) };
            if let Some(delay_ns) = agents.delay_ns(node, other) {
                self.join(node, other, delay_ns)?;
            }
        }
        Ok(())
    }

    /// Joins two routers by a link of its own, of no bound in rate.
    fn join(&mut self, one: u32, other: u32, delay_ns: u64) -> Result<(), Broken> {
        if self.ends.len() + 2 >= INDEX_MAX {
            return Ok(());
        }
        // As its faces to neighbours are.
        let like = |node: u32| {
            let ends = &self.nodes[node as usize].ends;
            ends.iter().copied().find(|&end| self.is_router(self.ends[(end ^ 1) as usize].node))
        };
        let (Some(like_one), Some(like_other)) = (like(one), like(other)) else { return Ok(()) };
        let mut faces = Vec::new();
        for (node, like) in [(one, like_one), (other, like_other)] {
            let number = self.ends.len() as u32;
            let face = FaceId(FaceId::FIRST.0 + self.nodes[node as usize].ends.len() as u64);
            let like = &self.ends[like as usize];
            let mut config = like.link.config().clone();
            config.egress.seed = seed_of(self.seed, Part::Egress, number.into());
            config.shaping_seed = seed_of(self.seed, Part::Shaping, number.into());
            let patience_ns = like.patience_ns;
            let model = LinkConfig { delay_ns, ..LinkConfig::default() };
            let model = LinkModel::new(model, seed_of(self.seed, Part::Link, number.into()));
            self.ends.push(End { patience_ns, ..End::new(node, face, config, model) });
            self.nodes[node as usize].ends.push(number);
            faces.push((node, face));
        }
        for (node, face) in faces {
            let attributes = FaceAttributes::point_to_point(FaceScope::NonLocal);
            let NodeKind::Router(router) = &mut self.nodes[node as usize].kind else { continue };
            router.note_face(face);
            let shards = router.shards.len();
            for shard in 0..shards {
                self.command(node, shard, Command::AddFace { face, attributes })?;
            }
        }
        Ok(())
    }

    fn is_router(&self, node: u32) -> bool {
        matches!(self.nodes[node as usize].kind, NodeKind::Router(_))
    }
}
