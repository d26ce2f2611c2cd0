use proptest::prelude::*;

use super::*;
use crate::generate::{LinkDefaults, barabasi_albert, dumbbell, line, waxman};
use crate::model::{Coordinates, Link, Node};

/// The attributes and content of all `<text>` elements.
fn texts(svg: &str) -> Vec<String> {
    let document = roxmltree::Document::parse(svg).unwrap();
    let all = document.descendants().filter(|node| node.has_tag_name("text"));
    all.map(|node| node.text().unwrap_or_default().to_owned()).collect()
}

#[test]
fn picture_shows_names_roles_and_counts() {
    let edge = LinkDefaults { rate_bps: Some(100_000_000), ..LinkDefaults::default() };
    let slow = LinkDefaults { rate_bps: Some(1_000_000), delay_ns: 25_000_000, ..edge.clone() };
    let generated = dumbbell(3, 1, &edge, &slow).unwrap();
    let options = DrawOptions { link_labels: LinkLabels::Both, ..DrawOptions::default() };
    let texts = texts(&draw_svg(&generated, &options));
    let wanted = ["r0", "c2", "p0", "dumbbell-3-1", "2 routers", "3 consumers", "1 producer"];
    for text in wanted.into_iter().chain(["5 links", "1 Mbit/s, 25 ms", "100 Mbit/s", "1 Mbit/s"]) {
        assert!(texts.iter().any(|found| found == text), "{text}: {texts:?}");
    }
}

#[test]
fn the_same_topology_gives_the_same_picture() {
    let generated = barabasi_albert(60, 2, &LinkDefaults::default(), 5).unwrap();
    let options = DrawOptions::default();
    assert_eq!(draw_svg(&generated, &options), draw_svg(&generated.clone(), &options));
}

#[test]
fn odd_networks_are_drawn() {
    let empty = Topology::default();
    let one = line(1, &LinkDefaults::default()).unwrap();
    let mark = Node::new("<&\">");
    let odd = Topology::new("<\u{1}&", Coordinates::Plane, vec![mark], vec![]).unwrap();
    let nodes = vec![Node::new("a").at(1e300, -1e300), Node::new("b").at(-1e300, 1e300)];
    let links = vec![Link::new(0, 1), Link::new(0, 1), Link::new(1, 0)];
    let far = Topology::new("far", Coordinates::Plane, nodes, links).unwrap();
    for topology in [empty, one, odd, far] {
        for width in [0, 1, 900] {
            let svg = draw_svg(&topology, &DrawOptions { width, ..DrawOptions::default() });
            roxmltree::Document::parse(&svg).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}

#[test]
fn names_of_europe_do_not_cover_each_other() {
    let geant = Topology::builtin("geant").unwrap();
    let svg = draw_svg(&geant, &DrawOptions::default());
    let document = roxmltree::Document::parse(&svg).unwrap();
    let number = |node: &roxmltree::Node<'_, '_>, name: &str| {
        node.attribute(name).and_then(|value| value.parse::<f64>().ok()).unwrap_or(0.0)
    };
    let names: Vec<_> = document
        .descendants()
        .filter(|node| node.has_tag_name("text"))
        .filter(|node| geant.index_of(node.text().unwrap_or_default()).is_some())
        .filter(|node| number(node, "font-size") == 13.0)
        .map(|node| {
            let width = text::width(node.text().unwrap_or_default(), 13.0);
            label::Rect::around((number(&node, "x"), number(&node, "y")), width, 9.0)
        })
        .collect();
    assert_eq!(names.len(), 40);
    for (index, a) in names.iter().enumerate() {
        for b in &names[..index] {
            assert!(a.shared(b) < 0.05 * a.area(), "{a:?} {b:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn all_nodes_lie_in_the_picture(nodes in 1usize..60, seed: u64, stress: bool) {
        let generated = waxman(nodes, 0.3, 0.3, &LinkDefaults::default(), seed).unwrap();
        let placement = if stress { Placement::Stress } else { Placement::Auto };
        let svg = draw_svg(&generated, &DrawOptions { placement, ..DrawOptions::default() });
        let document = roxmltree::Document::parse(&svg).unwrap();
        let view: Vec<f64> = document
            .root_element()
            .attribute("viewBox")
            .unwrap()
            .split(' ')
            .map(|part| part.parse().unwrap())
            .collect();
        for text in document.descendants().filter(|node| node.has_tag_name("text")) {
            let at = |name| text.attribute(name).unwrap().parse::<f64>().unwrap();
            prop_assert!(at("x") >= 0.0 && at("x") <= view[2]);
            prop_assert!(at("y") >= view[1] && at("y") <= view[1] + view[3]);
        }
    }
}
