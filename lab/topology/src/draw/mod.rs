//! Draws topologies.

mod label;
mod layout;
mod svg;
mod text;

use crate::model::Topology;

/// How nodes are positioned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// At their own positions if at least half of the nodes have one (the others next to a
    /// neighbour), otherwise as [`Placement::Stress`].
    #[default]
    Auto,
    /// So that distances in the picture follow distances in the graph.
    Stress,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkLabels {
    #[default]
    None,
    Delay,
    Rate,
    /// Rate and delay.
    Both,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DrawOptions {
    /// Title above the picture: the topology's name if `None`, nothing if empty.
    pub title: Option<String>,
    /// Width in pixels, at least 200. The height follows from the network's shape.
    pub width: u32,
    pub placement: Placement,
    /// Whether names are written; `None` writes them for up to 150 nodes.
    pub node_labels: Option<bool>,
    /// What is written at links. Labels that do not fit are omitted, and the legend gives their
    /// number.
    pub link_labels: LinkLabels,
    /// Whether a legend shows roles, counts and rates.
    pub legend: bool,
}

impl Default for DrawOptions {
    fn default() -> Self {
        Self {
            title: None,
            width: 1_200,
            placement: Placement::Auto,
            node_labels: None,
            link_labels: LinkLabels::None,
            legend: true,
        }
    }
}

/// The topology as a self-contained SVG document. Tooltips show the properties of nodes and links.
/// The same topology and options give the same text.
pub fn draw_svg(topology: &Topology, options: &DrawOptions) -> String {
    svg::draw(topology, options)
}

#[cfg(test)]
mod tests;
