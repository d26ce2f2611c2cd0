//! Pictures of topologies.

mod label;
mod layout;
mod svg;
mod text;

use crate::model::Topology;

/// Where nodes are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// At their positions when at least half of the nodes have one (the others next to a
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
    /// Above the picture; the topology's name when `None`, nothing when empty.
    pub title: Option<String>,
    /// Width in pixels, at least 200; the height follows from the shape of the network.
    pub width: u32,
    pub placement: Placement,
    /// Whether names are written; `None` writes them up to 150 nodes.
    pub node_labels: Option<bool>,
    /// What is written at links. A label for which there is no room is left out, and the legend
    /// says how many were.
    pub link_labels: LinkLabels,
    /// Whether a legend tells roles, counts and rates.
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

/// The topology as an SVG document that needs nothing else; nodes and links tell their properties
/// when pointed at. The same topology and options give the same text.
pub fn draw_svg(topology: &Topology, options: &DrawOptions) -> String {
    svg::draw(topology, options)
}

#[cfg(test)]
mod tests;
