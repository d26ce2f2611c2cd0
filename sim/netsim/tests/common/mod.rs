//! Plans for tests, put together node by node, and what a run of one gives.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_forward::Extension;
use weir_netem::LinkConfig;
use weir_netsim::{Experiments, Network, Summary};
use weir_options::StoreOptions;
use weir_plan::event::{Event, EventKind, Observer};
use weir_plan::workload::{Arrivals, ConsumerPlan, Demand, Names, Popularity, ProducerPlan, Sizes};
use weir_plan::{
    DiskPlan, FaultPlan, LinkPlan, NodePlan, Plan, Role, RoutePlan, RouterPlan, Transport,
};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const S: u64 = 1_000_000_000;

/// A plan in the making.
pub(crate) struct Builder {
    pub(crate) plan: Plan,
    /// Between routers and the applications on their hosts.
    pub(crate) local: LinkConfig,
}

impl Builder {
    pub(crate) fn new(seed: u64, duration_ns: u64) -> Self {
        let plan = Plan {
            seed,
            duration_ns,
            drain_ns: 5 * S,
            sample_ns: 0,
            nodes: Vec::new(),
            links: Vec::new(),
            routes: Vec::new(),
            faults: Vec::new(),
            controller: None,
        };
        let local = LinkConfig { delay_ns: 20_000, ..LinkConfig::default() };
        Self { plan, local }
    }

    fn node(&mut self, name: String, role: Role) -> usize {
        self.plan.nodes.push(NodePlan { name, role });
        self.plan.nodes.len() - 1
    }

    pub(crate) fn router(&mut self, plan: RouterPlan) -> usize {
        self.node(format!("r{}", self.plan.nodes.len()), Role::Router(plan))
    }

    /// A consumer on the host of `router`, or behind `link`.
    pub(crate) fn consumer(&mut self, router: usize, plan: ConsumerPlan) -> usize {
        let node = self.node(format!("c{}", self.plan.nodes.len()), Role::Consumer(plan));
        self.local_link(node, router);
        node
    }

    /// A producer on the host of `router`, with routes to it from everywhere.
    pub(crate) fn producer(&mut self, router: usize, plan: ProducerPlan) -> usize {
        let prefix = plan.names.prefix.clone();
        let node = self.node(format!("p{}", self.plan.nodes.len()), Role::Producer(plan));
        self.local_link(node, router);
        self.route(&prefix, node);
        node
    }

    fn local_link(&mut self, a: usize, b: usize) -> usize {
        self.plan.links.push(LinkPlan::local(a, b, &self.local));
        self.plan.links.len() - 1
    }

    pub(crate) fn link(&mut self, a: usize, b: usize, config: &LinkConfig) -> usize {
        self.plan.links.push(LinkPlan {
            is_local: false,
            transport: Transport::Udp,
            mtu: 1400,
            ..LinkPlan::local(a, b, config)
        });
        self.plan.links.len() - 1
    }

    /// Every router knows the way to `producer` with the fewest hops.
    fn route(&mut self, prefix: &str, producer: usize) {
        let mut distance = vec![usize::MAX; self.plan.nodes.len()];
        distance[producer] = 0;
        let mut queue = VecDeque::from([producer]);
        while let Some(node) = queue.pop_front() {
            for (link, plan) in self.plan.links.iter().enumerate() {
                let other = match (plan.a == node, plan.b == node) {
                    (true, _) => plan.b,
                    (_, true) => plan.a,
                    _ => continue,
                };
                if distance[other] != usize::MAX {
                    continue;
                }
                distance[other] = distance[node] + 1;
                if matches!(self.plan.nodes[other].role, Role::Router(_)) {
                    queue.push_back(other);
                    self.plan.routes.push(RoutePlan {
                        node: other,
                        prefix: prefix.into(),
                        link,
                        cost: distance[other] as u64,
                    });
                }
            }
        }
    }

    pub(crate) fn fault(&mut self, at_ns: u64, fault: weir_plan::Fault) {
        self.plan.faults.push(FaultPlan { at_ns, fault });
    }
}

/// Objects of one size under a prefix.
pub(crate) fn names(
    prefix: &str,
    popularity: Popularity,
    object_bytes: u64,
    segment_bytes: u32,
) -> Names {
    Names {
        prefix: prefix.into(),
        components: 0,
        popularity,
        sizes: Sizes::Fixed { bytes: object_bytes },
        segment_bytes,
    }
}

pub(crate) fn consumer(names: Names, demand: Demand) -> ConsumerPlan {
    ConsumerPlan::new(names, demand)
}

pub(crate) fn producer(names: Names) -> ProducerPlan {
    ProducerPlan { names, freshness_ms: 3_600_000, delay_ns: 0 }
}

pub(crate) fn poisson(rate_hz: f64) -> Demand {
    Demand::Arrivals { arrivals: Arrivals::Poisson { rate_hz } }
}

/// A line of routers with 10 ms links, a consumer at one end and a producer at the other.
pub(crate) fn line(seed: u64, routers: usize, demand: Demand) -> Plan {
    let mut builder = Builder::new(seed, 2 * S);
    let link = LinkConfig { rate_bps: Some(1_000_000_000), delay_ns: MS, ..LinkConfig::default() };
    let numbers: Vec<_> = (0..routers).map(|_| builder.router(RouterPlan::default())).collect();
    for pair in numbers.windows(2) {
        builder.link(pair[0], pair[1], &link);
    }
    let content = names("/p", Popularity::Zipf { objects: 500, exponent: 0.8 }, 4000, 1000);
    builder.consumer(numbers[0], consumer(content.clone(), demand));
    builder.producer(numbers[routers - 1], producer(content));
    builder.plan
}

pub(crate) fn without_store() -> RouterPlan {
    RouterPlan { store: StoreOptions::with_bytes(0), ..RouterPlan::default() }
}

/// A router that keeps what is on its disk, and stores nothing more.
pub(crate) fn with_disk(disk: DiskPlan) -> RouterPlan {
    let store = StoreOptions { admit: false, ..StoreOptions::with_bytes(0) };
    RouterPlan { store, disk: Some(disk), ..RouterPlan::default() }
}

fn store_of(plan: &RouterPlan) -> Option<Arc<dyn Extension>> {
    let disks = plan.disk.as_ref().map(|disk| &disk.experiments);
    crate::stores::extension(&plan.store_experiments, disks)
}

/// Runs a plan, which must keep all promises.
pub(crate) fn run_with(plan: &Plan, observer: &mut dyn Observer) -> Summary {
    let seed = plan.seed;
    let experiments = Experiments { store: Some(store_of) };
    let network = Network::with_experiments(plan, &experiments);
    let mut network = network.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    network.run(observer).unwrap_or_else(|violation| {
        panic!("seed {seed}: {violation}\n{}", violation.last_events.join("\n"))
    })
}

/// What a run of a plan comes to, and its events.
pub(crate) fn run(plan: &Plan) -> (Summary, Vec<Event>) {
    let mut events = Vec::new();
    (run_with(plan, &mut events), events)
}

pub(crate) fn count(events: &[Event], is_counted: impl Fn(&EventKind) -> bool) -> usize {
    events.iter().filter(|event| is_counted(&event.kind)).count()
}

pub(crate) fn is_data(kind: &EventKind) -> bool {
    matches!(kind, EventKind::DataReceived { .. })
}

/// Data that consumers received.
pub(crate) fn received(events: &[Event]) -> usize {
    count(events, is_data)
}
