//! GraphML as the Topology Zoo writes it.

use std::collections::{BTreeMap, HashMap, HashSet};

use roxmltree::{Document, Node as Element};

use super::ReadOptions;
use super::build::Builder;
use crate::error::TopologyError;
use crate::model::{Coordinates, Link, Node, Topology};
use crate::units;

pub(super) fn read(
    text: &str,
    file: &str,
    options: &ReadOptions,
) -> Result<Topology, TopologyError> {
    let document = Document::parse(text).map_err(|error| {
        let line = error.pos().row as usize;
        TopologyError::text(file, line, format!("not XML: {error}"), "correct the document")
    })?;
    let reader = Reader { document: &document, keys: keys_of(&document) };
    let mut graphs = document.root_element().children().filter(|node| node.has_tag_name("graph"));
    let (Some(graph), None) = (graphs.next(), graphs.next()) else {
        let remedy = "keep one <graph> in <graphml>";
        return Err(TopologyError::whole(file, "there is no graph, or more than one", remedy));
    };
    reader.read(graph, Builder::new(file, options, reader.coordinates(graph)))
}

/// What the `<key>` elements call each datum.
fn keys_of<'d>(document: &'d Document<'_>) -> HashMap<&'d str, &'d str> {
    document
        .root_element()
        .children()
        .filter(|node| node.has_tag_name("key"))
        .filter_map(|key| Some((key.attribute("id")?, key.attribute("attr.name")?)))
        .collect()
}

struct Reader<'d, 'input> {
    document: &'d Document<'input>,
    keys: HashMap<&'d str, &'d str>,
}

impl Reader<'_, '_> {
    fn line(&self, element: Element<'_, '_>) -> usize {
        self.document.text_pos_at(element.range().start).row as usize
    }

    /// The `<data>` of an element by the names of their keys.
    fn data(&self, element: Element<'_, '_>) -> BTreeMap<String, String> {
        element
            .children()
            .filter(|node| node.has_tag_name("data"))
            .filter_map(|data| {
                let key = data.attribute("key")?;
                let name = self.keys.get(key).copied().unwrap_or(key);
                Some((name.to_owned(), data.text().unwrap_or_default().trim().to_owned()))
            })
            .collect()
    }

    /// Longitudes and latitudes if any node has one, otherwise x and y of a plane.
    fn coordinates(&self, graph: Element<'_, '_>) -> Coordinates {
        let place = |node: Element<'_, '_>| {
            let data = self.data(node);
            data.contains_key("Longitude") && data.contains_key("Latitude")
        };
        match graph.children().filter(|child| child.has_tag_name("node")).any(place) {
            true => Coordinates::Geographic,
            false => Coordinates::Plane,
        }
    }

    fn read(
        &self,
        graph: Element<'_, '_>,
        mut builder: Builder<'_>,
    ) -> Result<Topology, TopologyError> {
        let data = self.data(graph);
        if let Some(name) = data.get("label").or_else(|| data.get("Network")) {
            builder.topology.set_name(name.clone());
        }
        let mut ids = HashMap::new();
        for element in graph.children().filter(Element::is_element) {
            match element.tag_name().name() {
                "node" => self.read_node(&mut builder, element, &mut ids)?,
                "edge" | "data" | "desc" => {}
                other => {
                    let problem = format!("<{other}> is not supported");
                    let remedy = "keep <node>, <edge> and <data> only";
                    return builder.error(self.line(element), problem, remedy);
                }
            }
        }
        // A directed graph may describe both directions of a link.
        let directed = graph.attribute("edgedefault") == Some("directed");
        let mut seen = HashSet::new();
        for edge in graph.children().filter(|child| child.has_tag_name("edge")) {
            self.read_edge(&mut builder, edge, &ids, directed.then_some(&mut seen))?;
        }
        Ok(builder.topology)
    }

    fn read_node<'g>(
        &self,
        builder: &mut Builder<'_>,
        element: Element<'g, '_>,
        ids: &mut HashMap<&'g str, usize>,
    ) -> Result<(), TopologyError> {
        let line = self.line(element);
        let Some(id) = element.attribute("id").filter(|id| !id.is_empty()) else {
            return builder.error(line, "a node without an id", "write id=\"...\"");
        };
        let mut data = self.data(element);
        let label = data.remove("label").unwrap_or_default();
        let name = unique_name(builder, id, &label);
        if name != label && !label.is_empty() {
            data.insert("label".to_owned(), label);
        }
        let mut node = Node::new(name);
        let (x, y) = match builder.topology.coordinates() {
            Coordinates::Geographic => ("Longitude", "Latitude"),
            Coordinates::Plane => ("x", "y"),
        };
        if let (Some(x), Some(y)) = (data.remove(x), data.remove(y)) {
            let (Ok(x_value), Ok(y_value)) = (x.parse(), y.parse()) else {
                let problem = format!("position {x:?}, {y:?} is no pair of numbers");
                return builder.error(line, problem, "write numbers, or leave both out");
            };
            node.position = Some((x_value, y_value));
        }
        node.attributes = data;
        let index = builder.node(line, node)?;
        if ids.insert(id, index).is_some() {
            let problem = format!("node id {id:?} occurs again");
            return builder.error(line, problem, "give each node an id of its own");
        }
        Ok(())
    }

    fn read_edge(
        &self,
        builder: &mut Builder<'_>,
        edge: Element<'_, '_>,
        ids: &HashMap<&str, usize>,
        seen: Option<&mut HashSet<(usize, usize)>>,
    ) -> Result<(), TopologyError> {
        let line = self.line(edge);
        let end = |name: &str| match edge.attribute(name) {
            Some(id) => ids.get(id).copied().ok_or_else(|| {
                let problem = format!("there is no node with id {id:?}");
                TopologyError::text(
                    builder.file,
                    line,
                    problem,
                    "correct the edge, or add the node",
                )
            }),
            None => builder.error(line, format!("an edge without a {name}"), "write its node's id"),
        };
        let (a, b) = (end("source")?, end("target")?);
        if let Some(seen) = seen {
            if seen.contains(&(b, a)) {
                return Ok(());
            }
            seen.insert((a, b));
        }
        let mut data = self.data(edge);
        let mut link = Link::new(a, b);
        if let Some(raw) = data.remove("LinkSpeedRaw").filter(|raw| !raw.is_empty()) {
            match raw.parse::<f64>() {
                Ok(rate) if rate >= 1.0 && rate < u64::MAX as f64 => {
                    link.rate_bps = Some(rate as u64);
                }
                _ => {
                    let problem = format!("LinkSpeedRaw {raw:?} is no rate in bits a second");
                    return builder.error(line, problem, "write a number such as 1e9");
                }
            }
        } else if let (Some(speed), Some(unit)) =
            (data.get("LinkSpeed"), data.get("LinkSpeedUnits"))
        {
            // What cannot be read, such as "<10", stays an attribute.
            link.rate_bps = units::parse_rate_bps(&format!("{speed}{unit}bit/s")).ok();
        }
        link.attributes = data;
        builder.link(line, link, None).map(|_| ())
    }
}

/// The label without space, with a number when another node has it already.
fn unique_name(builder: &Builder<'_>, id: &str, label: &str) -> String {
    let clean = |text: &str| {
        let bad = |c: char| c.is_whitespace() || c.is_control();
        text.split(bad).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_")
    };
    let mut base = clean(label);
    if base.is_empty() || base == "None" || base == "?" {
        base = format!("node-{}", clean(id));
    }
    let free = |name: &String| builder.topology.index_of(name).is_none();
    if free(&base) {
        return base;
    }
    (2..).map(|number| format!("{base}-{number}")).find(free).unwrap_or(base)
}
