//! `[topology]`: a built-in topology, one from a file, or a generated one.

use std::collections::BTreeMap;

use serde::Deserialize;
use weir_topology::{Generator, LinkDefaults, ReadOptions, Topology};

use crate::document::{ScenarioError, Tree, ValueNode, suggestion};
use crate::folder::Folder;

/// `[topology]`; the parameters of a generator are in the same table.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
struct TopologyTable {
    builtin: Option<String>,
    file: Option<String>,
    generator: Option<String>,
    delay_from_distance: bool,
    positions: BTreeMap<String, (f64, f64)>,
    seed: Option<u64>,
}

/// The topology of a scenario: connected and not empty.
pub(crate) fn topology(tree: &Tree, folder: &Folder, seed: u64) -> Result<Topology, ScenarioError> {
    let node = tree.root.at("topology").unwrap_or(&tree.root);
    let (own, parameters) = node.split::<TopologyTable>();
    let table: TopologyTable = tree.read_at("topology", &own)?;
    if table.generator.is_none() {
        // Rejects unknown keys.
        tree.read_at::<TopologyTable>("topology", node)?;
    }
    let options = ReadOptions {
        delay_from_distance: table.delay_from_distance,
        positions: table.positions.clone(),
    };
    let topology = match (&table.builtin, &table.file, &table.generator) {
        (Some(name), None, None) => Topology::builtin(name).ok_or_else(|| {
            let names: Vec<&str> = weir_topology::builtin_names().collect();
            let message = format!("unknown topology \"{name}\"; {}", suggestion(name, &names));
            tree.error("topology.builtin", message)
        })?,
        (None, Some(file), None) => {
            let text = folder.read(file).map_err(|message| tree.error("topology.file", message))?;
            Topology::parse(&text, file, &options).map_err(|error| {
                let text = error.to_string();
                let line = error.line();
                let place = line.map_or(format!("{file}: "), |line| format!("{file}:{line}: "));
                let message = text.strip_prefix(&place).unwrap_or(&text).to_owned();
                ScenarioError { file: file.to_owned(), line, message }
            })?
        }
        (None, None, Some(kind)) => {
            let line = own.at("generator").map_or(own.line, |node| node.line);
            let choice = ValueNode::choice(kind, parameters, line);
            let generator: Generator = tree.read_at("topology.generator", &choice)?;
            generator
                .generate(&LinkDefaults::default(), table.seed.unwrap_or(seed))
                .map_err(|error| tree.error("topology", error.to_string()))?
        }
        _ => {
            let message = "[topology] has exactly one of `builtin`, `file` and `generator`";
            return Err(tree.error("topology", message));
        }
    };
    if table.file.is_none() && !table.positions.is_empty() {
        let message = "positions are for the nodes of a `file`; remove them";
        return Err(tree.error("topology.positions", message));
    }
    if let Some(name) = table.positions.keys().find(|name| topology.index_of(name).is_none()) {
        let message = format!("the topology's file has no node \"{name}\"; remove it");
        return Err(tree.error("topology.positions", message));
    }
    if topology.nodes().is_empty() {
        return Err(tree.error("topology", "the topology has no nodes"));
    }
    let parts = topology.components();
    if parts.len() > 1 {
        let name = &topology.nodes()[parts[1][0]].name;
        let message = format!(
            "the topology has {} unconnected components; node \"{name}\" cannot reach the first \
             one. Choose a connected topology",
            parts.len()
        );
        return Err(tree.error("topology", message));
    }
    Ok(topology)
}
