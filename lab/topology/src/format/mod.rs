//! Topologies as text: TOML files and built-in ones.

mod build;
mod own;

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::TopologyError;
use crate::model::Topology;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadOptions {
    /// Gives a link without a delay the delay of light in fibre, along the great circle between its
    /// ends. Positions must be longitudes and latitudes. Without this option, such links have a
    /// delay of 0.
    pub delay_from_distance: bool,
    /// Positions `(x, y)` of nodes by name, which replace those of the text.
    pub positions: BTreeMap<String, (f64, f64)>,
}

/// The topologies embedded in the program.
const BUILTIN: [(&str, &str); 2] = [
    ("abilene", include_str!("../../data/abilene.toml")),
    ("geant", include_str!("../../data/geant.toml")),
];

/// The names for [`Topology::builtin`].
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|(name, _)| *name)
}

fn builtin_list() -> String {
    builtin_names().collect::<Vec<_>>().join(", ")
}

impl Topology {
    pub fn read(path: &Path) -> Result<Self, TopologyError> {
        let file = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|source| TopologyError::Read {
            path: file.clone(),
            source,
            builtin: builtin_list(),
        })?;
        match String::from_utf8(bytes) {
            Ok(text) => Self::parse(&text, &file, &ReadOptions::default()),
            Err(error) => {
                let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let line = 1 + good.iter().filter(|&&octet| octet == b'\n').count();
                let remedy = "save the file as UTF-8";
                Err(TopologyError::text(&file, line, "this is not UTF-8 text", remedy))
            }
        }
    }

    /// Parses `text`; `file` is its name in errors.
    ///
    /// A topology without a name in the text is named after the file.
    pub fn parse(text: &str, file: &str, options: &ReadOptions) -> Result<Self, TopologyError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut topology = own::read(text, file, options)?;
        if topology.nodes().is_empty() {
            let remedy = "describe at least one node";
            return Err(TopologyError::whole(file, "there are no nodes", remedy));
        }
        if topology.name().is_empty() {
            let stem = Path::new(file).file_stem();
            topology.set_name(stem.map(|stem| stem.to_string_lossy()).unwrap_or_default());
        }
        Ok(topology)
    }

    /// An embedded topology: `"geant"`, `"abilene"`.
    pub fn builtin(name: &str) -> Option<Self> {
        let (name, text) = BUILTIN.iter().find(|(known, _)| *known == name)?;
        Self::parse(text, name, &ReadOptions::default()).ok()
    }

    /// A scenario's `topology = "..."`: the name of a built-in topology, or a path relative to
    /// `folder`.
    pub fn open(reference: &str, folder: &Path) -> Result<Self, TopologyError> {
        match Self::builtin(reference) {
            Some(topology) => Ok(topology),
            None => Self::read(&folder.join(reference)),
        }
    }
}

#[cfg(test)]
mod tests;
