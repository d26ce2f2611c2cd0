//! Checks the nodes and links of a file, and reports errors with their line.

use crate::error::TopologyError;
use crate::format::ReadOptions;
use crate::geo;
use crate::model::{Coordinates, Link, Node, Topology};

pub(super) struct Builder<'a> {
    pub(super) file: &'a str,
    options: &'a ReadOptions,
    pub(super) topology: Topology,
    node_lines: Vec<usize>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(file: &'a str, options: &'a ReadOptions, coordinates: Coordinates) -> Self {
        let topology = Topology::empty(coordinates);
        Self { file, options, topology, node_lines: Vec::new() }
    }

    pub(super) fn error<T>(
        &self,
        line: usize,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Result<T, TopologyError> {
        Err(TopologyError::text(self.file, line, problem, remedy))
    }

    /// An error whose text ends with a semicolon and a remedy.
    pub(super) fn explained(&self, line: usize, error: &impl ToString) -> TopologyError {
        let text = error.to_string();
        let (problem, remedy) = text.rsplit_once("; ").unwrap_or((&text, "correct it"));
        TopologyError::text(self.file, line, problem, remedy)
    }

    /// A value with its unit, or an error with the line.
    pub(super) fn value<T>(
        &self,
        line: usize,
        key: &str,
        value: Result<T, crate::units::UnitError>,
    ) -> Result<T, TopologyError> {
        value.map_err(|error| self.explained(line, &format!("{key}: {error}")))
    }

    pub(super) fn node(&mut self, line: usize, node: Node) -> Result<usize, TopologyError> {
        if let Some(first) = self.topology.index_of(&node.name) {
            let first = self.node_lines[first];
            let problem = format!("node {:?} is already described on line {first}", node.name);
            return self.error(line, problem, "give each node its own name");
        }
        let position = self.options.positions.get(&node.name).copied().or(node.position);
        let node = Node { position, ..node };
        let index = self.topology.add_node(node).map_err(|error| self.explained(line, &error))?;
        self.node_lines.push(line);
        Ok(index)
    }

    /// The index of a node that a link names.
    pub(super) fn named(&self, line: usize, name: &str) -> Result<usize, TopologyError> {
        if let Some(index) = self.topology.index_of(name) {
            return Ok(index);
        }
        let similar = self.topology.nodes().iter().find(|node| {
            node.name.eq_ignore_ascii_case(name)
                || (name.len() > 2 && strsim::levenshtein(&node.name, name) == 1)
        });
        let remedy = match similar {
            Some(node) => format!("did you mean {:?}?", node.name),
            None => "describe the node, or correct the name".to_owned(),
        };
        self.error(line, format!("there is no node {name:?}"), remedy)
    }

    /// Adds a link. Without `delay_ns`, the options decide its delay.
    pub(super) fn link(
        &mut self,
        line: usize,
        link: Link,
        delay_ns: Option<u64>,
    ) -> Result<(), TopologyError> {
        let delay_ns = match delay_ns {
            Some(delay_ns) => delay_ns,
            None if self.options.delay_from_distance => {
                self.distance_delay_ns(&link).or_else(|problem| {
                    let remedy = "give the link a delay, or its ends a longitude and a latitude";
                    self.error(line, problem, remedy)
                })?
            }
            None => 0,
        };
        self.topology
            .add_link(Link { delay_ns, ..link })
            .map(drop)
            .map_err(|error| self.explained(line, &error))
    }

    /// The delay of light in fibre between the ends of a link. The error says why it is unknown.
    pub(super) fn distance_delay_ns(&self, link: &Link) -> Result<u64, String> {
        if self.topology.coordinates() != Coordinates::Geographic {
            return Err(
                "positions are not longitudes and latitudes, so there is no distance".into()
            );
        }
        let place = |index: usize| {
            let node = self.topology.nodes().get(index).ok_or("a link without ends")?;
            node.position.ok_or_else(|| {
                format!("node {:?} has no position, so there is no distance", node.name)
            })
        };
        Ok(geo::delay_ns(place(link.a)?, place(link.b)?))
    }
}

/// The line of a byte offset, from 1.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|&&octet| octet == b'\n').count()
}
