//! ndnSIM's annotated topologies: sections `router` and `link`.

use std::collections::HashSet;

use super::ReadOptions;
use super::build::Builder;
use crate::error::TopologyError;
use crate::model::{Coordinates, Link, Node, Topology};
use crate::units;

#[derive(Clone, Copy, PartialEq)]
enum Section {
    Before,
    Router,
    Link,
}

pub(super) fn read(
    text: &str,
    file: &str,
    options: &ReadOptions,
) -> Result<Topology, TopologyError> {
    // The format does not say what positions mean; who asks for distances knows that they do.
    let coordinates = match options.delay_from_distance {
        true => Coordinates::Geographic,
        false => Coordinates::Plane,
    };
    let mut builder = Builder::new(file, options, coordinates);
    let mut section = Section::Before;
    let mut seen = HashSet::new();
    for (index, raw) in text.lines().enumerate() {
        let (line, content) = (index + 1, raw.trim());
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let words: Vec<_> = content.split_whitespace().collect();
        match (section, words.as_slice()) {
            (Section::Before, ["router"]) => section = Section::Router,
            (Section::Router, ["link"]) => section = Section::Link,
            (Section::Before, _) => {
                let remedy = "write the line \"router\" first, or '#' before a comment";
                return builder.error(line, "this comes before the section \"router\"", remedy);
            }
            (Section::Router, words) => read_router(&mut builder, line, words)?,
            (Section::Link, words) => read_link(&mut builder, line, words, &mut seen)?,
        }
    }
    if section != Section::Link {
        let missing = if section == Section::Before { "router" } else { "link" };
        let problem = format!("there is no section {missing:?}");
        return Err(TopologyError::whole(file, problem, "write sections \"router\" and \"link\""));
    }
    Ok(builder.topology)
}

/// `node comment yPos xPos systemId`, of which only the first must be there.
fn read_router(
    builder: &mut Builder<'_>,
    line: usize,
    words: &[&str],
) -> Result<(), TopologyError> {
    if words.len() > 5 {
        let problem = format!("a router has {} columns", words.len());
        return builder.error(line, problem, "write node, comment, yPos, xPos and system at most");
    }
    let mut node = Node::new(words[0]);
    if let Some(&comment) = words.get(1).filter(|&&comment| comment != "NA") {
        node.attributes.insert("comment".to_owned(), comment.to_owned());
    }
    if let Some(&system) = words.get(4) {
        node.attributes.insert("system".to_owned(), system.to_owned());
    }
    match (words.get(2), words.get(3)) {
        (None, _) => {}
        (Some(y), Some(x)) => {
            let (Ok(y), Ok(x)) = (y.parse::<f64>(), x.parse::<f64>()) else {
                let problem = format!("position {y:?}, {x:?} is no pair of numbers");
                return builder.error(line, problem, "write yPos and xPos, such as 3.5 and -1");
            };
            node.position = Some((x, y)).filter(|&position| position != (0.0, 0.0));
        }
        (Some(_), None) => {
            return builder.error(line, "yPos without xPos", "write both or none");
        }
    }
    builder.node(line, node).map(|_| ())
}

/// `from to bandwidth metric delay queue error`, of which only the first two must be there.
fn read_link(
    builder: &mut Builder<'_>,
    line: usize,
    words: &[&str],
    seen: &mut HashSet<(usize, usize)>,
) -> Result<(), TopologyError> {
    let (&[from, to, ref rest @ ..], 0..=7) = (words, words.len()) else {
        let problem = format!("a link has {} columns", words.len());
        let remedy = "write from, to, bandwidth, metric, delay, queue and error, of which the \
                      last five may be left out";
        return builder.error(line, problem, remedy);
    };
    let (a, b) = (builder.named(line, from)?, builder.named(line, to)?);
    if seen.contains(&(b, a)) {
        return Ok(());
    }
    seen.insert((a, b));
    let mut link = Link::new(a, b);
    let mut delay_ns = None;
    for (column, &word) in rest.iter().enumerate() {
        match column {
            0 => {
                let value = units::parse_rate_bps(word);
                link.rate_bps = Some(builder.value(line, "bandwidth", value)?);
            }
            1 => match word.parse() {
                Ok(cost) => link.cost = cost,
                Err(_) => {
                    let problem = format!("metric {word:?} is no whole number");
                    return builder.error(line, problem, "write 1 or more");
                }
            },
            2 => {
                let value = units::parse_duration_ns(word);
                delay_ns = Some(builder.value(line, "delay", value)?);
            }
            3 => read_queue(builder, line, word, &mut link)?,
            _ => read_error_model(builder, line, word, &mut link)?,
        }
    }
    builder.link(line, link, delay_ns).map(|_| ())
}

/// A number of packets, or the class of a queue and its attributes.
fn read_queue(
    builder: &Builder<'_>,
    line: usize,
    word: &str,
    link: &mut Link,
) -> Result<(), TopologyError> {
    let mut bound = word;
    if word.starts_with("ns3::") {
        link.attributes.insert("queue".to_owned(), word.to_owned());
        let size = |part: &'_ str| {
            ["MaxPackets", "MaxSize"]
                .iter()
                .find_map(|key| part.strip_prefix(key)?.strip_prefix('=').map(str::to_owned))
        };
        match word.split(',').find_map(size) {
            Some(found) => return read_bound(builder, line, &found, link),
            None => return Ok(()),
        }
    }
    if let Some(packets) = bound.strip_suffix('p') {
        bound = packets;
    }
    read_bound(builder, line, bound, link)
}

/// `100` or `100p` (packets), or a size in octets.
fn read_bound(
    builder: &Builder<'_>,
    line: usize,
    bound: &str,
    link: &mut Link,
) -> Result<(), TopologyError> {
    if let Ok(packets) = bound.strip_suffix('p').unwrap_or(bound).parse() {
        link.queue_packets_max = Some(packets);
    } else if let Ok(bytes) = units::parse_bytes(bound) {
        link.queue_bytes_max = Some(bytes);
    } else {
        let problem = format!("queue {bound:?} is no number of packets");
        return builder.error(line, problem, "write a whole number, such as 100");
    }
    Ok(())
}

/// The class of an error model and its attributes; only independent loss of packets is known.
fn read_error_model(
    builder: &Builder<'_>,
    line: usize,
    word: &str,
    link: &mut Link,
) -> Result<(), TopologyError> {
    let mut parts = word.split(',');
    let class = parts.next().unwrap_or_default();
    let (mut rate, mut packets) = (None, false);
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        match key {
            "ErrorRate" => {
                rate = Some(builder.value(line, key, units::parse_probability(value))?)
            }
            "ErrorUnit" => packets = value == "ERROR_UNIT_PACKET",
            _ => {}
        }
    }
    match (class, rate, packets) {
        ("ns3::RateErrorModel", Some(rate), true) => link.loss = rate,
        _ => {
            let problem = format!("error model {word:?} is not supported");
            let remedy = "write ns3::RateErrorModel,ErrorRate=0.01,ErrorUnit=ERROR_UNIT_PACKET, or \
                          leave it out";
            return builder.error(line, problem, remedy);
        }
    }
    Ok(())
}
