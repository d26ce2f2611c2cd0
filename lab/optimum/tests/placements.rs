//! Compares the controller's placements, and LRU in every router, with the optimal placement.

use std::collections::VecDeque;

use weir_base::{Instant, NS_PER_MS, NS_PER_S, Rng};
use weir_control::message::{FaceReport, PartOrder, RouterReport};
use weir_control::{Controller, ControllerConfig, File, Placement};
use weir_optimum::{BlockPlacement, Copies, PlacementProblem, best};
use weir_topology::{Generator, LinkDefaults, Metric, RoutePlanner, Topology};
use weir_wire::Name;

const ROUTERS: usize = 10;
const FILES: usize = 24;
const CONSUMERS: usize = 6;
const PRODUCERS: usize = 2;
const REQUESTS: usize = 400;
const SEEDS: u64 = 10;
/// Blocks of each file. A router's `CAPACITY` is lower, so no file fits into one router.
const BLOCKS: usize = 3;
const CAPACITY: usize = 2;
/// Segments of a block; `PACKET` is the size of one in bytes.
const BLOCK: u64 = 64;
const PACKET: u64 = 8200;

/// A network, and the requests in order.
struct Network {
    topology: Topology,
    case: PlacementProblem,
    requests: Vec<(usize, usize)>,
}

fn network(seed: u64) -> Network {
    let generator = Generator::Waxman { nodes: ROUTERS, alpha: 0.3, beta: 0.4 };
    let topology = generator.generate(&LinkDefaults::default(), seed).unwrap();
    let planner = RoutePlanner::new(&topology, Metric::Hops);
    let mut hops = vec![vec![0; ROUTERS]; ROUTERS];
    for to in 0..ROUTERS {
        let routes = planner.routes_to(to);
        for (from, hops) in hops.iter_mut().enumerate() {
            hops[to] = routes.distance[from].unwrap() as u32;
        }
    }
    let mut rng = Rng::from_seed(seed);
    let files = (0..FILES).map(|file| (file % PRODUCERS, BLOCKS)).collect();
    // Zipf's law with exponent 1 over files in random order.
    let mut order: Vec<usize> = (0..FILES).collect();
    (1..FILES).for_each(|at| order.swap(at, rng.below(at as u32 + 1) as usize));
    let weight = |rank: usize| 1_000_000 / (rank as u32 + 1);
    let total: u32 = (0..FILES).map(weight).sum();
    let mut counts = vec![vec![0; FILES]; ROUTERS];
    let requests = (0..REQUESTS).map(|_| {
        // Producers are at routers 0 and 1.
        let consumer = PRODUCERS + rng.below(CONSUMERS as u32) as usize;
        let mut drawn = rng.below(total);
        let rank = (0..FILES).find(|&rank| {
            let is_it = drawn < weight(rank);
            drawn = drawn.saturating_sub(weight(rank));
            is_it
        });
        (consumer, order[rank.unwrap()])
    });
    let requests: Vec<(usize, usize)> = requests.collect();
    for &(consumer, file) in &requests {
        counts[consumer][file] += 1;
    }
    let case =
        PlacementProblem { hops, files, capacity: vec![CAPACITY; ROUTERS], requests: counts };
    Network { topology, case, requests }
}

fn router(at: usize) -> String {
    format!("r{at:02}")
}

fn report(network: &Network, at: usize, store_bytes: u64) -> RouterReport {
    let links = network.topology.links().iter().filter(|link| link.a == at || link.b == at);
    let face = |other: usize| FaceReport {
        remote: router(other),
        round_trip_ns: Some(20 * NS_PER_MS),
        ..FaceReport::default()
    };
    let prefix: Option<Name> = (at < PRODUCERS).then(|| format!("/p{at}").parse().unwrap());
    RouterReport {
        uris: vec![router(at)],
        store_bytes,
        faces: links.map(|link| face(link.other(at))).collect(),
        prefixes: prefix.into_iter().collect(),
        ..RouterReport::default()
    }
}

fn file(at: usize) -> File {
    let segments = BLOCK * BLOCKS as u64;
    let name = format!("/p{}/f{at}/v=1", at % PRODUCERS).parse().unwrap();
    let (size_bytes, manifest) = (segments * 8000, Vec::new());
    File { name, segments, size_bytes, packet_bytes: PACKET, manifest }
}

/// The controller's placement after it has seen all requests, and the hops of all requests then.
/// Each router queries the routers that the controller assigned.
fn placed(network: &Network, placement: Placement) -> (BlockPlacement, u64) {
    let config = ControllerConfig {
        placement,
        prefetch: false,
        router_timeout_ns: u64::MAX,
        ..ControllerConfig::default()
    };
    let mut controller = Controller::new(config);
    // Seven eighths of the store may be assigned. A segment needs an eighth more than its packet,
    // and 512 bytes.
    let block = BLOCK * (PACKET + PACKET / 8 + 512);
    let store_bytes = (block * CAPACITY as u64).div_ceil(7) * 8 + 64;
    for at in 0..ROUTERS {
        controller.report(Instant::ZERO, &router(at), report(network, at, store_bytes)).unwrap();
    }
    (0..FILES).for_each(|at| controller.add_file("producer p", file(at)).unwrap());
    for (second, &(consumer, object)) in network.requests.iter().enumerate() {
        controller.tick(Instant::from_ns(second as u64 * NS_PER_S));
        controller.forward(&router(consumer), &file(object).name).unwrap();
    }
    let mut block_placement = network.case.empty();
    for plan in controller.plans() {
        let at = (0..FILES).find(|&at| file(at).name == plan.object).unwrap();
        for part in &plan.parts {
            let keeper = (0..ROUTERS).find(|&at| router(at) == part.router).unwrap();
            for block in part.first / BLOCK..=part.last / BLOCK {
                block_placement[at][block as usize].push(keeper);
            }
        }
    }
    let hops = network.requests.iter().map(|&(consumer, object)| {
        let configuration = controller.configuration(&router(consumer)).unwrap();
        let distribution =
            configuration.distributions.iter().find(|one| one.object == file(object).name);
        let parts = distribution.map_or(&[][..], |distribution| &distribution.parts);
        let hops_of = |block: usize| {
            let is_own = block_placement[object][block].contains(&consumer);
            let of_block = |part: &&PartOrder| {
                (part.first / BLOCK..=part.last / BLOCK).contains(&(block as u64))
            };
            let keeper = parts.iter().find(of_block).map(|part| part.router.clone());
            let keeper = (0..ROUTERS).find(|&at| Some(router(at)) == keeper);
            let to = if is_own { consumer } else { keeper.unwrap_or(object % PRODUCERS) };
            u64::from(network.case.hops[consumer][to])
        };
        (0..BLOCKS).map(hops_of).sum::<u64>()
    });
    let hops = hops.sum();
    (block_placement, hops)
}

/// Hops of all requests with LRU in every router, counted in the second pass.
fn lru(network: &Network) -> u64 {
    let planner = RoutePlanner::new(&network.topology, Metric::Hops);
    let to_producer: Vec<_> = (0..PRODUCERS).map(|producer| planner.routes_to(producer)).collect();
    let mut stores: Vec<VecDeque<(usize, usize)>> = vec![VecDeque::new(); ROUTERS];
    let mut hops = 0;
    for pass in 0..2 {
        for &(consumer, object) in &network.requests {
            let (producer, blocks) = network.case.files[object];
            for block in 0..blocks {
                let mut path = vec![consumer];
                while let Some(hop) = to_producer[producer].next[path[path.len() - 1]] {
                    if stores[path[path.len() - 1]].contains(&(object, block)) {
                        break;
                    }
                    path.push(hop.node);
                }
                hops += pass * (path.len() as u64 - 1);
                for at in path {
                    stores[at].retain(|other| *other != (object, block));
                    stores[at].push_front((object, block));
                    stores[at].truncate(CAPACITY);
                }
            }
        }
    }
    hops
}

/// Mean and half of the 95 % confidence interval, of ten values.
fn interval(values: &[f64]) -> (f64, f64) {
    assert_eq!(values.len(), 10, "the quantile below is of nine degrees of freedom");
    let mean = values.iter().sum::<f64>() / 10.0;
    let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / 9.0;
    (mean, 2.262 * (variance / 10.0).sqrt())
}

#[test]
fn placements_compared_with_the_optimum() {
    let mut ratios = [const { Vec::new() }; 5];
    for seed in 1..=SEEDS {
        let network = network(seed);
        let cost = |block_placement: &BlockPlacement| network.case.cost(block_placement) as f64;
        let one = cost(&best(&network.case, Copies::One).unwrap());
        let any = cost(&best(&network.case, Copies::Any).unwrap());
        assert!(any <= one);
        let placed = [Placement::ByDemand, Placement::Nearest, Placement::LargestFree]
            .map(|placement| placed(&network, placement));
        for (block_placement, hops) in &placed {
            assert!(network.case.cost(block_placement) <= *hops);
            for at in 0..ROUTERS {
                let count = block_placement
                    .iter()
                    .flatten()
                    .filter(|keepers| keepers.contains(&at))
                    .count();
                assert!(count <= CAPACITY, "{count} blocks at {at}");
            }
        }
        let costs =
            [placed[0].1 as f64, placed[1].1 as f64, placed[2].1 as f64, lru(&network) as f64, any];
        for (ratios, cost) in ratios.iter_mut().zip(costs) {
            assert!(cost >= any - 0.5, "no placement is better than the optimum");
            ratios.push(cost / one);
        }
    }
    let names = ["by demand", "nearest", "largest free", "LRU everywhere", "best with copies"];
    println!(
        "hops relative to the optimal placement with one copy of each block, {SEEDS} networks:"
    );
    for (name, ratios) in names.iter().zip(&ratios) {
        let (mean, half) = interval(ratios);
        println!("{name:>16}: {mean:.3} ± {half:.3}");
    }
    let mean = |at: usize| interval(&ratios[at]).0;
    assert!(mean(0) < mean(1) && mean(0) < mean(2) && mean(0) < mean(3));
}
