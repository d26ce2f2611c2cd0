//! The TOML format of a topology.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::ReadOptions;
use super::build::{Builder, line_of};
use crate::error::TopologyError;
use crate::model::{Coordinates, Link, Node, Role, Topology};
use crate::units;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(default)]
    name: String,
    #[serde(default)]
    coordinates: Coordinates,
    #[serde(default)]
    defaults: Properties,
    #[serde(default)]
    node: Vec<NodeText>,
    #[serde(default)]
    link: Vec<LinkText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeText {
    name: Spanned<String>,
    #[serde(default)]
    role: Role,
    position: Option<(f64, f64)>,
    longitude: Option<f64>,
    latitude: Option<f64>,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
}

/// Properties of links, and their defaults in `[defaults]`.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Properties {
    rate: Option<Spanned<String>>,
    delay: Option<Spanned<String>>,
    jitter: Option<Spanned<String>>,
    loss: Option<Spanned<NumberOrText>>,
    cost: Option<u32>,
    queue_packets: Option<u32>,
    queue_bytes: Option<Spanned<String>>,
}

// With `flatten`, serde would lose unknown keys and positions, so the fields are repeated.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkText {
    between: Spanned<Vec<String>>,
    rate: Option<Spanned<String>>,
    delay: Option<Spanned<String>>,
    jitter: Option<Spanned<String>>,
    loss: Option<Spanned<NumberOrText>>,
    cost: Option<u32>,
    queue_packets: Option<u32>,
    queue_bytes: Option<Spanned<String>>,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(f64),
    Text(String),
}

pub(super) fn read(
    text: &str,
    file: &str,
    options: &ReadOptions,
) -> Result<Topology, TopologyError> {
    let raw: FileText = toml::from_str(text).map_err(|error| {
        let line = line_of(text, error.span().map_or(0, |span| span.start));
        let remedy = match error.message() {
            message if message.contains("unknown field") => "remove it or correct its name",
            message if message.contains("missing field") => "add it",
            _ => "correct it; the format is TOML with [[node]] and [[link]] tables",
        };
        let problem = error.message().replace('\n', ", ");
        TopologyError::text(file, line, problem.trim_end_matches(", "), remedy)
    })?;
    let mut builder = Builder::new(file, options, raw.coordinates);
    builder.topology.set_name(raw.name);
    for node in raw.node {
        let line = line_of(text, node.name.span().start);
        let position = match (node.position, node.longitude, node.latitude) {
            (position, None, None) => position,
            (None, Some(longitude), Some(latitude))
                if raw.coordinates == Coordinates::Geographic =>
            {
                Some((longitude, latitude))
            }
            _ => {
                let remedy = "write position = [x, y], or both longitude and latitude together \
                              with coordinates = \"geographic\" at the top";
                return builder.error(line, "the position is not complete", remedy);
            }
        };
        let (name, role, attributes) = (node.name.into_inner(), node.role, node.attributes);
        builder.node(line, Node { name, role, position, attributes })?;
    }
    for link in raw.link {
        read_link(&mut builder, text, link, &raw.defaults)?;
    }
    Ok(builder.topology)
}

fn read_link(
    builder: &mut Builder<'_>,
    text: &str,
    link: LinkText,
    defaults: &Properties,
) -> Result<(), TopologyError> {
    let line = line_of(text, link.between.span().start);
    let [a, b] = link.between.get_ref().as_slice() else {
        let problem = format!("a link is between {} nodes", link.between.get_ref().len());
        return builder.error(line, problem, "write between = [\"one\", \"other\"]");
    };
    let (a, b) = (builder.named(line, a)?, builder.named(line, b)?);
    let line_at = |span: std::ops::Range<usize>| line_of(text, span.start);
    let mut complete = Link { attributes: link.attributes, ..Link::new(a, b) };
    if let Some(rate) = link.rate.as_ref().or(defaults.rate.as_ref()) {
        let value = units::parse_rate_bps(rate.get_ref());
        complete.rate_bps = Some(builder.value(line_at(rate.span()), "rate", value)?);
    }
    if let Some(jitter) = link.jitter.as_ref().or(defaults.jitter.as_ref()) {
        let value = units::parse_duration_ns(jitter.get_ref());
        complete.jitter_ns = builder.value(line_at(jitter.span()), "jitter", value)?;
    }
    if let Some(bytes) = link.queue_bytes.as_ref().or(defaults.queue_bytes.as_ref()) {
        let value = units::parse_bytes(bytes.get_ref());
        complete.queue_bytes_max =
            Some(builder.value(line_at(bytes.span()), "queue_bytes", value)?);
    }
    match link.loss.as_ref().or(defaults.loss.as_ref()).map(|loss| (loss.span(), loss.get_ref())) {
        None => {}
        Some((_, NumberOrText::Number(value))) => complete.loss = *value,
        Some((span, NumberOrText::Text(value))) => {
            let value = units::parse_probability(value);
            complete.loss = builder.value(line_at(span), "loss", value)?;
        }
    }
    complete.cost = link.cost.or(defaults.cost).unwrap_or(1);
    complete.queue_packets_max = link.queue_packets.or(defaults.queue_packets);
    let delay_ns = match link.delay.as_ref().or(defaults.delay.as_ref()) {
        None => None,
        Some(delay) if delay.get_ref() == "distance" => {
            let distance = builder.distance_delay_ns(&complete).map_err(|problem| {
                let remedy = "give both ends a longitude and a latitude, or write the delay";
                TopologyError::text(builder.file, line, problem, remedy)
            })?;
            Some(distance)
        }
        Some(delay) => {
            let value = units::parse_duration_ns(delay.get_ref());
            Some(builder.value(line_at(delay.span()), "delay", value)?)
        }
    };
    builder.link(line, complete, delay_ns)
}
