//! Mini-NDN's topology files: `[nodes]`, `[switches]`, `[links]`, `[faces]`.

use std::collections::BTreeMap;

use super::ReadOptions;
use super::build::Builder;
use crate::error::TopologyError;
use crate::model::{Coordinates, Link, Node, Topology};
use crate::units;

/// Keys of a link that say how the emulator is to be set up, not what the link does.
const EMULATOR_KEYS: [&str; 8] = [
    "use_htb",
    "use_tbf",
    "use_hfsc",
    "enable_ecn",
    "enable_red",
    "speedup",
    "latency_ms",
    "intfName",
];

#[derive(Clone, Copy, PartialEq)]
enum Section {
    Nodes,
    Switches,
    Links,
    Faces,
}

pub(super) fn read(
    text: &str,
    file: &str,
    options: &ReadOptions,
) -> Result<Topology, TopologyError> {
    let mut builder = Builder::new(file, options, Coordinates::Plane);
    // Sections may come in any order, as in the parser that Mini-NDN uses.
    let mut entries = Vec::new();
    let mut section = None;
    for (index, raw) in text.lines().enumerate() {
        let (line, content) = (index + 1, raw.trim());
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        if content.starts_with('[') {
            section = Some(section_of(&builder, line, content)?);
            continue;
        }
        let Some(section) = section else {
            let remedy = "begin with [nodes], then one node a line, such as \"a: _\"";
            return builder.error(line, "this is in no section", remedy);
        };
        entries.push((section, line, content));
    }
    for wanted in [Section::Nodes, Section::Switches, Section::Links, Section::Faces] {
        for &(section, line, content) in &entries {
            if section != wanted {
                continue;
            }
            match section {
                Section::Nodes => read_node(&mut builder, line, content, false)?,
                Section::Switches => read_node(&mut builder, line, content, true)?,
                Section::Links => read_link(&mut builder, line, content)?,
                Section::Faces => read_face(&mut builder, line, content)?,
            }
        }
    }
    Ok(builder.topology)
}

fn section_of(builder: &Builder<'_>, line: usize, content: &str) -> Result<Section, TopologyError> {
    match content {
        "[nodes]" => Ok(Section::Nodes),
        "[switches]" => Ok(Section::Switches),
        "[links]" => Ok(Section::Links),
        "[faces]" => Ok(Section::Faces),
        "[stations]" | "[accessPoints]" | "[vehicles]" | "[mobilities]" | "[mobility]" => {
            let problem = format!("{content} describes a wireless network, which is not supported");
            builder.error(line, problem, "describe its nodes in [nodes] and [links]")
        }
        _ => builder.error(
            line,
            format!("{content} is no section of a Mini-NDN topology"),
            "use [nodes], [switches], [links] or [faces]",
        ),
    }
}

/// The `key=value` words of a line; `_` stands for no value.
fn pairs<'t>(
    builder: &Builder<'_>,
    line: usize,
    words: impl Iterator<Item = &'t str>,
) -> Result<Vec<(&'t str, &'t str)>, TopologyError> {
    let mut pairs = Vec::new();
    for word in words.filter(|&word| word != "_") {
        match word.split_once('=') {
            Some((key, value)) if !key.is_empty() && !value.is_empty() => pairs.push((key, value)),
            _ => {
                let remedy = "write key=value without space around the sign";
                return builder.error(line, format!("{word:?} is no key and value"), remedy);
            }
        }
    }
    Ok(pairs)
}

fn read_node(
    builder: &mut Builder<'_>,
    line: usize,
    content: &str,
    switch: bool,
) -> Result<(), TopologyError> {
    let (name, rest) = content.split_once(':').unwrap_or((content, ""));
    let words = pairs(builder, line, rest.split_whitespace())?;
    let mut attributes: BTreeMap<_, _> =
        words.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    if switch {
        attributes.insert("kind".to_owned(), "switch".to_owned());
    }
    builder.node(line, Node { attributes, ..Node::new(name.trim()) }).map(|_| ())
}

/// The two nodes that a line begins with, and its pairs.
#[expect(clippy::type_complexity, reason = "a name would say no more")]
fn ends<'t>(
    builder: &Builder<'_>,
    line: usize,
    content: &'t str,
) -> Result<(usize, usize, Vec<(&'t str, &'t str)>), TopologyError> {
    let mut words = content.split_whitespace();
    let Some((a, b)) = words.next().and_then(|word| word.split_once(':')) else {
        let remedy = "write the two nodes as a:b, then key=value pairs";
        return builder.error(line, format!("{content:?} names no two nodes"), remedy);
    };
    let (a, b) = (builder.named(line, a)?, builder.named(line, b)?);
    Ok((a, b, pairs(builder, line, words)?))
}

fn read_link(builder: &mut Builder<'_>, line: usize, content: &str) -> Result<(), TopologyError> {
    let (a, b, pairs) = ends(builder, line, content)?;
    let mut link = Link::new(a, b);
    let mut delay_ns = None;
    for (key, value) in pairs {
        match key {
            "delay" => {
                let value = units::parse_duration_ns(value);
                delay_ns = Some(builder.value(line, key, value)?);
            }
            "bw" => {
                let value = plain_or(value, "Mbit/s", units::parse_rate_bps);
                link.rate_bps = Some(builder.value(line, key, value)?);
            }
            "loss" => {
                let value = plain_or(value, "%", units::parse_probability);
                link.loss = builder.value(line, key, value)?;
            }
            "jitter" => {
                let value = plain_or(value, "us", units::parse_duration_ns);
                link.jitter_ns = builder.value(line, key, value)?;
            }
            "max_queue_size" => {
                let Ok(packets) = value.parse() else {
                    let problem = format!("max_queue_size {value:?} is no number of packets");
                    return builder.error(line, problem, "write a whole number, such as 100");
                };
                link.queue_packets_max = Some(packets);
            }
            _ if EMULATOR_KEYS.contains(&key) => {
                link.attributes.insert(key.to_owned(), value.to_owned());
            }
            _ => {
                let remedy = "use delay, bw (Mbit/s), loss (%), jitter or max_queue_size (packets)";
                return builder.error(line, format!("unknown key {key:?} of a link"), remedy);
            }
        }
    }
    builder.link(line, link, delay_ns).map(|_| ())
}

/// Parses a value that may leave out `unit`.
fn plain_or<T>(
    value: &str,
    unit: &str,
    parse: impl Fn(&str) -> Result<T, units::UnitError>,
) -> Result<T, units::UnitError> {
    match value.bytes().all(|octet| octet.is_ascii_digit() || octet == b'.') {
        true => parse(&format!("{value}{unit}")),
        false => parse(value),
    }
}

/// A face names two linked nodes and the cost of routing between them.
fn read_face(builder: &mut Builder<'_>, line: usize, content: &str) -> Result<(), TopologyError> {
    let (a, b, pairs) = ends(builder, line, content)?;
    let joins = |link: &Link| (link.a, link.b) == (a, b) || (link.a, link.b) == (b, a);
    if !builder.topology.links().iter().any(joins) {
        let problem = "this face is between nodes that no link joins";
        return builder.error(line, problem, "add the link to [links], or remove the face");
    }
    for (key, value) in pairs {
        let ("cost", Ok(cost)) = (key, value.parse()) else {
            let problem = format!("{key}={value} is nothing that a face has");
            return builder.error(line, problem, "write cost= and a whole number");
        };
        let edit = |_: usize, link: &mut Link| {
            if joins(link) {
                link.cost = cost;
            }
        };
        let result = builder.topology.edit_links(edit);
        result.map_err(|error| builder.explained(line, &error))?;
    }
    Ok(())
}
