//! What a router's agent does besides applying configurations: it retries queries, and creates
//! faces to routers that are not neighbours.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use weir_base::NS_PER_S;
use weir_control::message::Decision;
use weir_plan::{Plan, Role};
use weir_wire::Name;

/// Time until an agent may query an object again: after an answer, and (`RETRY_SOON_NS`) before
/// one.
const RETRY_NS: u64 = 60 * NS_PER_S;
const RETRY_SOON_NS: u64 = 5 * NS_PER_S;
/// Interval of the controller's timer, ns.
pub(super) const TICK_NS: u64 = NS_PER_S;

/// The agents of all routers, with the behaviour of `weir agent`.
pub(super) struct Agents {
    /// For each router, its neighbours that are routers and the delay to each, ns.
    links: Vec<Vec<(u32, u64)>>,
    /// Delay from a router to every node, ns; `u64::MAX` for an unreachable one.
    distances: BTreeMap<u32, Vec<u64>>,
    /// Earliest time of the next query, by router and object.
    next_query_ns: BTreeMap<(u32, Name), u64>,
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
        Self { links, distances: BTreeMap::new(), next_query_ns: BTreeMap::new() }
    }

    /// Whether a router may query an object now. If so, the query counts as sent.
    pub(super) fn try_begin_query(&mut self, now_ns: u64, node: u32, object: &Name) -> bool {
        let again_ns = self.next_query_ns.entry((node, object.clone())).or_insert(0);
        let may = now_ns >= *again_ns;
        if may {
            *again_ns = now_ns + RETRY_SOON_NS;
        }
        may
    }

    pub(super) fn on_answer(&mut self, now_ns: u64, node: u32, object: &Name, decision: Decision) {
        let after_ns = match decision {
            Decision::Small | Decision::Planned => RETRY_NS,
            Decision::Unknown | Decision::NoRoom => RETRY_SOON_NS,
        };
        self.next_query_ns.insert((node, object.clone()), now_ns + after_ns);
    }

    /// Forgets all queries of a router that has crashed.
    pub(super) fn forget(&mut self, node: u32) {
        self.next_query_ns.retain(|(asking, _), _| *asking != node);
    }

    /// The shortest delay between two routers, ns. Packets to a router's address take that path.
    pub(super) fn delay_ns(&mut self, from: u32, to: u32) -> Option<u64> {
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
