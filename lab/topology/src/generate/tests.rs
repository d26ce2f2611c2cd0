use proptest::prelude::*;

use super::*;

fn degrees(topology: &Topology) -> Vec<usize> {
    topology.neighbours().iter().map(Vec::len).collect()
}

fn all_links() -> LinkDefaults {
    LinkDefaults { delay_ns: 7, rate_bps: Some(9), cost: 3, queue_packets: Some(5) }
}

proptest! {
    #[test]
    fn regular_shapes_have_their_links(a in 1usize..20, b in 1usize..20, levels in 1usize..5) {
        let link = all_links();
        let fan_out = b % 4 + 1;
        let in_tree = (0..levels as u32).map(|level| fan_out.pow(level)).sum::<usize>();
        for (topology, nodes, links) in [
            (line(a, &link).unwrap(), a, a - 1),
            (star(a, &link).unwrap(), a + 1, a),
            (tree(levels, fan_out, &link).unwrap(), in_tree, in_tree - 1),
            (grid(a, b, &link).unwrap(), a * b, a * (b - 1) + b * (a - 1)),
            (dumbbell(a, b, &link, &link).unwrap(), a + b + 2, a + b + 1),
        ] {
            prop_assert_eq!(topology.nodes().len(), nodes);
            prop_assert_eq!(topology.links().len(), links);
            prop_assert!(topology.is_connected());
            prop_assert!(topology.parallel_links().is_empty());
            for generated in topology.links() {
                prop_assert_eq!(generated, &link.link(generated.a, generated.b));
            }
            prop_assert!(topology.nodes().iter().all(|node| node.position.is_some()));
        }
    }

    #[test]
    fn waxman_is_connected_and_follows_from_its_seed(
        nodes in 1usize..80, alpha in 0.05f64..1.0, beta in 0.01f64..1.0, seed: u64,
    ) {
        let link = LinkDefaults { delay_ns: 1_000_000, ..all_links() };
        let generated = waxman(nodes, alpha, beta, &link, seed).unwrap();
        prop_assert_eq!(generated.nodes().len(), nodes);
        prop_assert!(generated.is_connected());
        prop_assert!(generated.parallel_links().is_empty());
        prop_assert_eq!(&generated, &waxman(nodes, alpha, beta, &link, seed).unwrap());
        if nodes > 20 {
            prop_assert_ne!(&generated, &waxman(nodes, alpha, beta, &link, seed ^ 1).unwrap());
        }
        if nodes > 1 {
            // Each link's delay follows its length, and their mean is the given one.
            let total: u64 = generated.links().iter().map(|link| link.delay_ns).sum();
            let mean = total as f64 / generated.links().len() as f64;
            prop_assert!((0.99e6..1.02e6).contains(&mean), "{}", mean);
        }
    }

    #[test]
    fn barabasi_albert_has_expected_links(
        nodes in 2usize..120, each in 1usize..6, seed: u64,
    ) {
        let each = each.min(nodes - 1);
        let generated = barabasi_albert(nodes, each, &all_links(), seed).unwrap();
        prop_assert!(generated.is_connected());
        prop_assert!(generated.parallel_links().is_empty());
        prop_assert_eq!(generated.links().len(), each * (each + 1) / 2 + (nodes - each - 1) * each);
        prop_assert!(degrees(&generated).iter().all(|&degree| degree >= each));
        prop_assert_eq!(&generated, &barabasi_albert(nodes, each, &all_links(), seed).unwrap());
    }
}

#[test]
fn the_tree_of_fifteen_routers() {
    let generated = tree(4, 2, &LinkDefaults::default()).unwrap();
    assert_eq!(generated.nodes().len(), 15);
    assert_eq!(degrees(&generated), [2, 3, 3, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn beta_adds_links_and_alpha_lengthens_them() {
    let links = |alpha, beta| {
        (0..10)
            .map(|seed| {
                let generated = waxman(60, alpha, beta, &LinkDefaults::default(), seed).unwrap();
                let length = |link: &Link| {
                    let (a, b) =
                        (generated.nodes()[link.a].position, generated.nodes()[link.b].position);
                    let ((ax, ay), (bx, by)) = (a.unwrap(), b.unwrap());
                    (ax - bx).hypot(ay - by)
                };
                let total: f64 = generated.links().iter().map(length).sum();
                (generated.links().len(), total / generated.links().len() as f64)
            })
            .fold((0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1 / 10.0))
    };
    let (base, sparse, far) = (links(0.2, 0.4), links(0.2, 0.2), links(0.6, 0.4));
    assert!(base.0 > sparse.0 * 3 / 2, "{base:?} {sparse:?}");
    assert!(far.1 > base.1 * 1.2, "{base:?} {far:?}");
}

#[test]
fn attachment_is_preferential() {
    // The largest degree grows as the square root of the number of nodes (Barabási and Albert
    // 1999). With random attachment, it would grow as the logarithm and stay below 25 here.
    let largest = |seed| {
        let generated = barabasi_albert(2_000, 2, &LinkDefaults::default(), seed).unwrap();
        degrees(&generated).into_iter().max().unwrap()
    };
    let mean = (0..10).map(largest).sum::<usize>() / 10;
    assert!((50..250).contains(&mean), "{mean}");
}

#[test]
fn invalid_parameters_are_rejected() {
    let link = LinkDefaults::default();
    for (error, part) in [
        (line(0, &link), "line with nodes = 0; write a number from 1"),
        (star(0, &link), "star with leaves = 0"),
        (tree(40, 2, &link), "tree with depth = 40; write parameters that give at most"),
        (tree(usize::MAX, 1, &link), "tree with depth"),
        (tree(3, usize::MAX, &link), "tree with fan_out"),
        (grid(1_000, 1_000, &link), "grid with height = 1000"),
        (waxman(9, 0.0, 0.5, &link, 1), "waxman with alpha = 0; write a number above 0"),
        (waxman(9, 0.5, f64::NAN, &link, 1), "waxman with beta = NaN"),
        (barabasi_albert(5, 5, &link, 1), "links_per_node = 5; write a number from 1 to 4"),
        (dumbbell(1, 0, &link, &link), "dumbbell with right = 0"),
    ] {
        let text = error.unwrap_err().to_string();
        assert!(text.contains(part), "{text}");
    }
    let cost = LinkDefaults { cost: 0, ..link };
    assert!(matches!(line(2, &cost), Err(GeneratorError::Link(InvalidTopology::BadLink { .. }))));
}

#[test]
fn generator_parameters_are_read() {
    let read = |text: &str| toml::from_str::<Generator>(text);
    let generated = read("[tree]\ndepth = 4\nfan_out = 2").unwrap();
    assert_eq!(generated.generate(&LinkDefaults::default(), 1).unwrap().nodes().len(), 15);
    let generated = read("[barabasi-albert]\nnodes = 9\nlinks_per_node = 2").unwrap();
    assert_eq!(generated, Generator::BarabasiAlbert { nodes: 9, links_per_node: 2 });
    assert!(read("[line]\nnodes = 3\nlenght = 4").is_err());
}
