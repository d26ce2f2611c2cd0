use proptest::prelude::*;

use super::*;
use crate::model::{Coordinates, Link, Node, Role};

const TOML: &str = include_str!("../../data/examples/small.toml");
const MINI_NDN: &str = include_str!("../../data/examples/small.conf");
const NDN_SIM: &str = include_str!("../../data/examples/small.txt");
const GRAPH_ML: &str = include_str!("../../data/examples/small.graphml");

fn parse(text: &str) -> Result<Topology, TopologyError> {
    Topology::parse(text, "some/net.x", &ReadOptions::default())
}

fn from_distance() -> ReadOptions {
    ReadOptions { delay_from_distance: true, ..ReadOptions::default() }
}

fn names(topology: &Topology) -> Vec<&str> {
    topology.nodes().iter().map(|node| node.name.as_str()).collect()
}

/// Delay in us, rate in Mbit/s, cost and queue in packets of each link.
fn links(topology: &Topology) -> Vec<(u64, u64, u32, u32)> {
    let of = |link: &Link| {
        let rate = link.rate_bps.unwrap_or(0) / 1_000_000;
        (link.delay_ns / 1_000, rate, link.cost, link.queue_packets_max.unwrap_or(0))
    };
    topology.links().iter().map(of).collect()
}

#[test]
fn own_format_has_all_properties() {
    let read = parse(TOML).unwrap();
    assert_eq!(read.name(), "small");
    assert_eq!(read.coordinates(), Coordinates::Geographic);
    assert_eq!(names(&read), ["source", "middle", "reader"]);
    assert_eq!(read.nodes()[0].role, Role::Producer);
    assert_eq!(read.nodes()[0].position, Some((5.37, 43.30)));
    assert_eq!(read.nodes()[0].attributes["town"], "Marseille");
    assert_eq!(read.nodes()[2].role, Role::Consumer);
    // Lyon to Paris is 393 km.
    assert_eq!(links(&read), [(1_500, 100, 3, 200), (1_964, 1_000, 1, 200)]);
    let first = &read.links()[0];
    assert_eq!((first.loss, first.jitter_ns), (0.005, 100_000));
    assert_eq!(first.queue_bytes_max, Some(262_144));
    assert_eq!(read.links()[1].attributes["cable"], "new");
}

#[test]
fn mini_ndn_is_read() {
    let read = parse(MINI_NDN).unwrap();
    assert_eq!(read.name(), "net");
    assert_eq!(names(&read), ["west", "north", "east", "hub"]);
    assert_eq!(read.nodes()[0].attributes["radius"], "0.4");
    assert_eq!(read.nodes()[3].attributes["kind"], "switch");
    assert_eq!(
        links(&read),
        [(10_000, 100, 1, 0), (2_500, 1_000, 1, 250), (20_000, 0, 25, 0), (1_000, 0, 1, 0)]
    );
    assert_eq!(read.links()[1].loss, 0.01);
    assert_eq!(read.links()[2].jitter_ns, 40_000);
}

#[test]
fn ndnsim_is_read() {
    let read = parse(NDN_SIM).unwrap();
    assert_eq!(names(&read), ["left", "upper", "lower", "right", "spare"]);
    assert_eq!(read.nodes()[1].position, Some((2.5, 3.0)));
    assert_eq!(read.nodes()[1].attributes["comment"], "core");
    assert_eq!(read.nodes()[4].position, None);
    assert_eq!(
        links(&read),
        [
            (5_000, 10, 1, 100),
            (10_000, 1, 4, 50),
            (5_000, 10, 1, 80),
            (0, 0, 1, 0),
            (0, 2_500, 2, 0)
        ]
    );
    assert_eq!(read.links()[1].loss, 0.02);
}

#[test]
fn graphml_of_the_topology_zoo_is_read() {
    let read = parse(GRAPH_ML).unwrap();
    assert_eq!(read.name(), "Small");
    assert_eq!(names(&read), ["Berlin", "Hamburg", "Hamburg-2", "Frankfurt_am_Main", "node-4"]);
    assert_eq!(read.nodes()[0].position, Some((13.40, 52.52)));
    assert_eq!(read.nodes()[0].attributes["Country"], "Germany");
    assert_eq!(read.nodes()[3].attributes["label"], "Frankfurt am Main");
    assert_eq!(read.parallel_links(), [(0, 3)]);
    let rates: Vec<_> = links(&read).iter().map(|link| link.1).collect();
    assert_eq!(rates, [10_000, 0, 2_500, 0, 0]);

    let text = Topology::parse(GRAPH_ML, "a.graphml", &from_distance()).unwrap_err().to_string();
    assert_eq!(
        text,
        "a.graphml:48: node \"node-4\" has no position, so there is no distance; give the link a \
         delay, or give a delay for such links"
    );
    let options = ReadOptions { delay_default_ns: Some(7_000), ..from_distance() };
    let read = Topology::parse(GRAPH_ML, "a.graphml", &options).unwrap();
    // Berlin to Hamburg is 255 km, to Frankfurt 423 km.
    let delays: Vec<_> = links(&read).iter().map(|link| link.0).collect();
    assert_eq!((delays[0], delays[2], delays[4]), (1_276, 2_119, 7));
}

#[test]
fn built_in_topologies_are_whole() {
    let geant = Topology::builtin("geant").unwrap();
    assert_eq!((geant.nodes().len(), geant.links().len()), (40, 68));
    let abilene = Topology::builtin("abilene").unwrap();
    assert_eq!((abilene.nodes().len(), abilene.links().len()), (11, 14));
    for name in builtin_names() {
        let topology = Topology::open(name, Path::new("/nowhere")).unwrap();
        assert_eq!(topology.name(), name);
        assert!(topology.is_connected() && topology.parallel_links().is_empty());
        assert!(topology.nodes().iter().all(|node| node.position.is_some()));
        assert!(topology.links().iter().all(|link| link.delay_ns > 0 && link.rate_bps.is_some()));
    }
    assert!(Topology::builtin("no such").is_none());
}

#[test]
fn files_are_read_and_written() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in
        [("a.toml", TOML), ("a.conf", MINI_NDN), ("a.txt", NDN_SIM), ("a.graphml", GRAPH_ML)]
    {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let read = Topology::read(&path).unwrap();
        // Without a telling name the content must do.
        let bare = folder.path().join("a");
        std::fs::write(&bare, text).unwrap();
        assert_eq!(Topology::read(&bare).unwrap().links(), read.links());
        let copy = folder.path().join("copy.toml");
        read.write(&copy).unwrap();
        assert_eq!(Topology::open("copy.toml", folder.path()).unwrap(), read);
    }
    let missing = Topology::read(&folder.path().join("none.toml")).unwrap_err().to_string();
    assert!(missing.contains("none.toml: cannot read") && missing.contains("geant"), "{missing}");
    let path = folder.path().join("latin.conf");
    std::fs::write(&path, b"[nodes]\nz\xfcrich: _\n").unwrap();
    let text = Topology::read(&path).unwrap_err().to_string();
    assert!(
        text.ends_with("latin.conf:2: this is not UTF-8 text; save the file as UTF-8"),
        "{text}"
    );
}

/// A wrong text, the line of the error, and words of problem and remedy.
type Wrong = (String, Option<usize>, &'static str, &'static str);

fn wrong_own() -> Vec<Wrong> {
    let own = |text: &str| format!("[[node]]\nname = \"aa\"\n[[node]]\nname = \"bb\"\n{text}");
    vec![
        (own("[[node]]\nname = \"aa\""), Some(6), "described on line 2 already", "name of its own"),
        (own("[[node]]\nname = \"a b\""), Some(6), "has space", "use letters"),
        (own("[[node]]\nnmae = \"cc\""), Some(6), "unknown field `nmae`", "correct its name"),
        (own("[[node]]\nrole = \"router\""), Some(5), "missing field `name`", "add it"),
        (own("[[node]]\nname = \"c\"\nrole = \"boss\""), Some(7), "unknown variant `boss`", "TOML"),
        (
            own("[[node]]\nname = \"c\"\nlatitude = 3.0"),
            Some(6),
            "not complete",
            "position = [x, y]",
        ),
        (own("[[link]]\nbetween = [\"aa\"]"), Some(6), "between 1 nodes", "[\"one\", \"other\"]"),
        (own("[[link]]\nbetween = [\"aa\", \"aa\"]"), Some(6), "link to itself", "two different"),
        (own("[[link]]\nbetween = [\"aa\", \"bbb\"]"), Some(6), "no node \"bbb\"", "mean \"bb\""),
        (own("[[link]]\nbetween = [\"aa\", \"zz9\"]"), Some(6), "no node \"zz9\"", "describe"),
        (
            own("[[link]]\nbetween = [\"aa\", \"bb\"]\ndelay = \"10\""),
            Some(7),
            "delay: \"10\" has no unit",
            "write \"10ms\" or \"10s\"",
        ),
        (
            own("[[link]]\nbetween = [\"aa\", \"bb\"]\n\nrate = \"fast\""),
            Some(8),
            "rate: \"fast\" is not a rate",
            "write a number and its unit",
        ),
        (own("[[link]]\nbetween = [\"aa\", \"bb\"]\ncost = 0"), Some(6), "has cost 0", "1 or more"),
        (own("[[link]]\nbetween = [\"aa\", \"bb\"]\nloss = 1.5"), Some(6), "loss 1.5", "between 0"),
        (
            own("[[link]]\nbetween = [\"aa\", \"bb\"]\ndelay = \"distance\""),
            Some(6),
            "there is no distance",
            "longitude",
        ),
        (own("[[link]\nbetween = 1"), Some(5), "", "TOML"),
        (
            "coordinates = \"geographic\"\n[[node]]\nname = \"a\"\nposition = [200.0, 1.0]".into(),
            Some(3),
            "has position (200, 1)",
            "longitude in -180..180",
        ),
    ]
}

fn wrong_columns() -> Vec<Wrong> {
    let mini = |text: &str| format!("[nodes]\naa: _\nbb: _\n[links]\n{text}");
    let sim = |text: &str| format!("router\naa\nbb\nlink\n{text}");
    vec![
        (mini("aa:bb bw=10"), None, "", ""),
        (mini("aa:cc delay=1ms"), Some(5), "no node \"cc\"", "describe"),
        (mini("aa bb delay=1ms"), Some(5), "names no two nodes", "a:b"),
        (mini("aa:bb delay=10"), Some(5), "has no unit", "10ms"),
        (mini("aa:bb delay=1ms bw=fast"), Some(5), "bw:", "40Mbit/s"),
        (mini("aa:bb delay=1ms loss=101"), Some(5), "too large", "100%"),
        (mini("aa:bb delay=1ms los=1"), Some(5), "unknown key \"los\"", "loss (%)"),
        (mini("aa:bb delay = 1ms"), Some(5), "is no key and value", "without space"),
        (mini("aa:bb delay=1ms max_queue_size=x"), Some(5), "no number of packets", "100"),
        (mini("[faces]\naa:bb cost=2"), Some(6), "no link joins", "[links]"),
        (mini("[stations]\nsta1: _"), Some(5), "wireless", "[nodes]"),
        (mini("[nods]"), Some(5), "no section", "use [nodes]"),
        (sim("aa cc"), Some(5), "no node \"cc\"", "describe"),
        (sim("aa bb 10"), Some(5), "bandwidth: \"10\" has no unit", "Mbit/s"),
        (sim("aa bb 1Mbps x"), Some(5), "metric \"x\"", "1 or more"),
        (sim("aa bb 1Mbps 1 5"), Some(5), "delay: \"5\" has no unit", "5ms"),
        (sim("aa bb 1Mbps 1 5ms lots"), Some(5), "queue \"lots\"", "100"),
        (sim("aa bb 1Mbps 1 5ms 9 ns3::BurstErrorModel"), Some(5), "not supported", "leave it out"),
        (sim("aa bb 1Mbps 1 5ms 9 x y"), Some(5), "8 columns", "left out"),
        (sim("aa"), Some(5), "1 columns", "from, to"),
        ("router\na NA 1".into(), Some(2), "yPos without xPos", "both or none"),
        ("router\na NA one two".into(), Some(2), "no pair of numbers", "3.5"),
        ("router\na\n".into(), None, "no section \"link\"", "write sections"),
    ]
}

fn wrong_graphml() -> Vec<Wrong> {
    let xml =
        |text: &str| format!("<graphml>\n<graph>\n<node id='1'/>\n{text}\n</graph></graphml>");
    vec![
        (xml("<edge source='1' target='2'/>"), Some(4), "no node with id \"2\"", "add the node"),
        (xml("<edge source='1'/>"), Some(4), "without a target", "id"),
        (xml("<edge source='1' target='1'/>"), Some(4), "link to itself", "two different"),
        (xml("<node/>"), Some(4), "without an id", "id="),
        (xml("<node id='1'/>"), Some(4), "occurs again", "of its own"),
        (xml("<hyperedge/>"), Some(4), "<hyperedge> is not supported", "keep"),
        (xml("<edge source='1'"), Some(5), "not XML", "correct"),
        ("<graphml/>".into(), None, "no graph", "keep one"),
    ]
}

fn wrong_formats() -> Vec<Wrong> {
    vec![
        ("hello\n".into(), None, "no format", "[[node]]"),
        ("[nodes]\n".into(), None, "no nodes", "at least one"),
    ]
}

#[test]
fn errors_name_the_place_and_a_remedy() {
    let wrong = [wrong_own(), wrong_columns(), wrong_graphml(), wrong_formats()];
    for (text, line, problem, remedy) in wrong.into_iter().flatten() {
        let result = Topology::parse(&text, "net", &ReadOptions::default());
        if (line, problem) == (None, "") {
            result.unwrap_or_else(|error| panic!("{text}: {error}"));
            continue;
        }
        let error = result.expect_err(&text);
        let message = error.to_string();
        assert_eq!(error.line(), line, "{text}\n{message}");
        let (said, advice) = message.rsplit_once("; ").expect(&message);
        assert!(said.contains(problem) && advice.contains(remedy), "{text}\n{message}");
    }
}

fn any_text() -> impl Strategy<Value = String> {
    // A string of any characters, among them quotes, backslashes and control characters.
    prop_oneof!["[a-z.-]{1,8}", "\\PC{1,6}", "[\"'\\\\\n\t\u{1}= #]{0,5}"]
}

fn any_topology() -> impl Strategy<Value = Topology> {
    let attributes = || proptest::collection::btree_map(any_text(), any_text(), 0..3);
    let position = proptest::option::of((-180.0..180.0f64, -90.0..90.0f64));
    let node = (0u8..3, position, attributes());
    let nodes = proptest::collection::vec(node, 2..8);
    let link = (
        (0usize..8, 0usize..8),
        (any::<u64>(), any::<u64>(), proptest::option::of(1u64..)),
        (1u32.., 0.0..=1.0f64),
        (proptest::option::of(1u32..), proptest::option::of(1u64..)),
        attributes(),
    );
    (any_text(), any::<bool>(), nodes, proptest::collection::vec(link, 0..8)).prop_map(
        |(name, geographic, nodes, links)| {
            let roles = [Role::Router, Role::Producer, Role::Consumer];
            let nodes: Vec<_> = nodes
                .into_iter()
                .enumerate()
                .map(|(index, (role, position, attributes))| {
                    let (name, role) = (format!("n\"{index}"), roles[usize::from(role)]);
                    Node { name, role, position, attributes }
                })
                .collect();
            let links = links
                .into_iter()
                .map(
                    |((a, b), (delay_ns, jitter_ns, rate_bps), (cost, loss), queue, attributes)| {
                        let (a, b) = (a % nodes.len(), b % nodes.len());
                        let (queue_packets_max, queue_bytes_max) = queue;
                        let mut link = Link { delay_ns, jitter_ns, rate_bps, ..Link::new(a, b) };
                        link = Link { cost, loss, queue_packets_max, queue_bytes_max, ..link };
                        Link { attributes, ..link }
                    },
                )
                .filter(|link| link.a != link.b)
                .collect();
            let coordinates = if geographic { Coordinates::Geographic } else { Coordinates::Plane };
            // An empty name would be replaced by that of the file.
            Topology::new(format!("x{name}"), coordinates, nodes, links).unwrap()
        },
    )
}

/// A text with some octets replaced, removed, or doubled.
fn mutated(text: &'static str) -> impl Strategy<Value = String> {
    let edits =
        proptest::collection::vec((any::<prop::sample::Index>(), 0u8..4, any::<char>()), 1..9);
    edits.prop_map(move |edits| {
        let mut chars: Vec<char> = text.chars().collect();
        for (at, kind, with) in edits {
            let at = at.index(chars.len().max(1)).min(chars.len().saturating_sub(1));
            match kind {
                _ if chars.is_empty() => chars.push(with),
                0 => chars[at] = with,
                1 => drop(chars.remove(at)),
                2 => chars.insert(at, chars[at]),
                _ => chars.truncate(at),
            }
        }
        chars.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_is_written_reads_back(topology in any_topology()) {
        let text = topology.to_toml();
        let read = parse(&text);
        prop_assert!(read.is_ok(), "{}\n{}", read.unwrap_err(), text);
        prop_assert_eq!(read.unwrap(), topology, "{}", text);
    }

    #[test]
    fn no_mutation_makes_a_parser_panic(
        texts in [mutated(TOML), mutated(MINI_NDN), mutated(NDN_SIM), mutated(GRAPH_ML)],
        distance: bool,
    ) {
        for text in &texts {
            for format in [Format::Toml, Format::MiniNdn, Format::NdnSim, Format::GraphMl] {
                let format = Some(format);
                let options =
                    ReadOptions { format, delay_from_distance: distance, ..ReadOptions::default() };
                if let Ok(read) = Topology::parse(text, "x", &options) {
                    let again = parse(&read.to_toml()).unwrap();
                    prop_assert_eq!(again.links(), read.links());
                }
            }
        }
    }
}
