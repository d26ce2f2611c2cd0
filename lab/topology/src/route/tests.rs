use petgraph::graph::UnGraph;
use proptest::prelude::*;

use super::*;
use crate::generate::{LinkDefaults, barabasi_albert, grid, line, star};
use crate::model::{Coordinates, Link, Node};

/// A graph of random links, not always connected, with some equal weights and zero delays.
fn any_topology() -> impl Strategy<Value = Topology> {
    (2usize..20).prop_flat_map(|nodes| {
        let link = (0..nodes, 0..nodes, 1u32..5, 0u64..4);
        proptest::collection::vec(link, 0..50).prop_map(move |links| {
            let links = links
                .into_iter()
                .filter(|&(a, b, _, _)| a != b)
                .map(|(a, b, cost, delay_ns)| Link { cost, delay_ns, ..Link::new(a, b) })
                .collect();
            let nodes = (0..nodes).map(|index| Node::new(format!("n{index}"))).collect();
            Topology::new("any", Coordinates::Plane, nodes, links).unwrap()
        })
    })
}

fn weight(link: &Link, metric: Metric) -> u64 {
    match metric {
        Metric::Cost => u64::from(link.cost),
        Metric::Delay => link.delay_ns,
        Metric::Hops => 1,
    }
}

/// Distances by another implementation.
fn oracle(topology: &Topology, metric: Metric, destination: usize) -> Vec<Option<u64>> {
    let mut graph = UnGraph::<(), u64>::default();
    let nodes: Vec<_> = topology.nodes().iter().map(|_| graph.add_node(())).collect();
    for link in topology.links() {
        graph.add_edge(nodes[link.a], nodes[link.b], weight(link, metric));
    }
    let found = petgraph::algo::dijkstra(&graph, nodes[destination], None, |e| *e.weight());
    nodes.iter().map(|node| found.get(node).copied()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn routes_are_shortest_and_free_of_loops(topology in any_topology(), pick: usize) {
        let destination = pick % topology.nodes().len();
        for metric in [Metric::Cost, Metric::Delay, Metric::Hops] {
            let planner = RoutePlanner::new(&topology, metric);
            let routes = planner.routes_to(destination);
            prop_assert_eq!(&routes.distance, &oracle(&topology, metric, destination));
            for node in 0..topology.nodes().len() {
                let Some(path) = routes.path_from(node) else {
                    prop_assert_eq!(routes.next[node], None);
                    continue;
                };
                let (mut at, mut sum) = (node, 0);
                for hop in &path {
                    let link = &topology.links()[hop.link];
                    prop_assert_eq!(link.other(at), hop.node);
                    sum += weight(link, metric);
                    at = hop.node;
                }
                prop_assert_eq!(at, destination);
                prop_assert_eq!(Some(sum), routes.distance[node]);
                prop_assert_eq!(path.len(), routes.hops[node] as usize);
            }
        }
    }
}

#[test]
fn ties_go_to_the_lower_index() {
    // 0 1
    // 2 3: from 3 to 0 through 1 or 2.
    let square = grid(2, 2, &LinkDefaults::default()).unwrap();
    let next = RoutePlanner::new(&square, Metric::Cost).routes_to(0).next;
    assert_eq!(next[3].unwrap().node, 1);
    assert_eq!(next[0], None);
}

#[test]
fn end_hosts_do_not_forward() {
    let row = line(4, &LinkDefaults::default()).unwrap();
    let planner = RoutePlanner::new(&row, Metric::Cost).through(|node| node != 1);
    let routes = planner.routes_to(0);
    assert_eq!(routes.distance, [Some(0), Some(1), None, None]);
    assert_eq!(planner.routes_to(1).distance, [Some(1), Some(0), Some(1), Some(2)]);
}

#[test]
fn down_links_are_not_used() {
    let round = star(3, &LinkDefaults::default()).unwrap();
    let routes = RoutePlanner::over(&round, Metric::Cost, |link| link != 1).routes_to(1);
    assert_eq!(routes.distance, [Some(1), Some(0), None, Some(2)]);
}

#[test]
fn routes_a_thousand_routers_quickly() {
    let topology = barabasi_albert(1_000, 3, &LinkDefaults::default(), 1).unwrap();
    let planner = RoutePlanner::new(&topology, Metric::Cost);
    let mut longest = 0;
    for producer in 0..300 {
        let routes = planner.routes_to(producer);
        assert!(routes.distance.iter().all(Option::is_some));
        longest = longest.max(routes.hops.iter().copied().max().unwrap());
    }
    assert!((3..=10).contains(&longest), "{longest}");
}
