use proptest::prelude::*;

use super::*;
use crate::model::{Coordinates, Link, Role};

const TOML: &str = include_str!("../../data/examples/small.toml");

fn parse(text: &str) -> Result<Topology, TopologyError> {
    Topology::parse(text, "some/net.x", &ReadOptions::default())
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
fn links_get_delays_from_distances() {
    let text = "coordinates = \"geographic\"\n[[node]]\nname = \"berlin\"\nposition = [13.40, \
                52.52]\n[[node]]\nname = \"hamburg\"\nposition = [10.0, 53.55]\n[[node]]\n\
                name = \"nowhere\"\n[[link]]\nbetween = [\"berlin\", \"hamburg\"]\n";
    let options = ReadOptions { delay_from_distance: true, ..ReadOptions::default() };
    // Berlin to Hamburg is 255 km.
    let read = Topology::parse(text, "a.toml", &options).unwrap();
    assert_eq!(links(&read), [(1_273, 0, 1, 0)]);
    assert_eq!(links(&parse(text).unwrap()), [(0, 0, 1, 0)]);

    let text = format!("{text}[[link]]\nbetween = [\"berlin\", \"nowhere\"]\n");
    let error = Topology::parse(&text, "a.toml", &options).unwrap_err().to_string();
    assert_eq!(
        error,
        "a.toml:13: node \"nowhere\" has no position, so there is no distance; give the link a \
         delay, or its ends a longitude and a latitude"
    );
}

#[test]
fn built_in_topologies_are_complete() {
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
fn files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    std::fs::write(&path, TOML).unwrap();
    let read = Topology::read(&path).unwrap();
    let copy = folder.path().join("copy.toml");
    std::fs::copy(&path, &copy).unwrap();
    assert_eq!(Topology::open("copy.toml", folder.path()).unwrap(), read);
    let missing = Topology::read(&folder.path().join("none.toml")).unwrap_err().to_string();
    assert!(missing.contains("none.toml: cannot read") && missing.contains("geant"), "{missing}");
    let path = folder.path().join("latin.toml");
    std::fs::write(&path, b"[[node]]\nname = \"z\xfcrich\"\n").unwrap();
    let text = Topology::read(&path).unwrap_err().to_string();
    assert!(
        text.ends_with("latin.toml:2: this is not UTF-8 text; save the file as UTF-8"),
        "{text}"
    );
}

/// An invalid text, the line of the error, and words of the problem and the remedy.
type Wrong = (String, Option<usize>, &'static str, &'static str);

fn wrong_own() -> Vec<Wrong> {
    let own = |text: &str| format!("[[node]]\nname = \"aa\"\n[[node]]\nname = \"bb\"\n{text}");
    vec![
        (own("[[node]]\nname = \"aa\""), Some(6), "already described on line 2", "its own name"),
        (own("[[node]]\nname = \"a b\""), Some(6), "contains a space", "use letters"),
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

fn wrong_files() -> Vec<Wrong> {
    vec![
        ("hello\n".into(), Some(1), "", "[[node]]"),
        ("[nodes]\n".into(), Some(1), "unknown field `nodes`", "correct its name"),
        ("name = \"none\"\n".into(), None, "no nodes", "at least one"),
    ]
}

#[test]
fn errors_name_line_and_remedy() {
    let wrong = [wrong_own(), wrong_files()];
    for (text, line, problem, remedy) in wrong.into_iter().flatten() {
        let result = Topology::parse(&text, "net", &ReadOptions::default());
        let error = result.expect_err(&text);
        let message = error.to_string();
        assert_eq!(error.line(), line, "{text}\n{message}");
        let (said, advice) = message.rsplit_once("; ").expect(&message);
        assert!(said.contains(problem) && advice.contains(remedy), "{text}\n{message}");
    }
}

/// A text with some bytes replaced, removed or doubled.
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
    fn mutated_files_cause_no_panic(
        text in mutated(TOML),
        distance: bool,
    ) {
        let options =
            ReadOptions { delay_from_distance: distance, ..ReadOptions::default() };
        let _ = Topology::parse(&text, "x", &options);
    }
}
