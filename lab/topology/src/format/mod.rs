//! Topologies as text: TOML files, and the built-in ones.

mod build;
mod own;

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::TopologyError;
use crate::model::Topology;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadOptions {
    /// Give links without a delay that of light in fibre over the great circle between their ends;
    /// positions must be longitudes and latitudes. Otherwise such links have a delay of 0.
    pub delay_from_distance: bool,
    /// Positions `(x, y)` of nodes by their names, in place of those of the text.
    pub positions: BTreeMap<String, (f64, f64)>,
}

/// The topologies that come with the program.
const BUILTIN: [(&str, &str); 2] = [
    ("abilene", include_str!("../../data/abilene.toml")),
    ("geant", include_str!("../../data/geant.toml")),
];

/// The names that [`Topology::builtin`] knows.
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

    /// Reads `text`; `file` is the name that errors give to it.
    ///
    /// A topology that the text does not name is named after the file.
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

    /// A topology that comes with the program: `"geant"`, `"abilene"`.
    pub fn builtin(name: &str) -> Option<Self> {
        let (name, text) = BUILTIN.iter().find(|(known, _)| *known == name)?;
        Self::parse(text, name, &ReadOptions::default()).ok()
    }

    /// What a scenario's `topology = "..."` means: the name of a built-in topology, or else a path,
    /// relative to `folder`.
    pub fn open(reference: &str, folder: &Path) -> Result<Self, TopologyError> {
        match Self::builtin(reference) {
            Some(topology) => Ok(topology),
            None => Self::read(&folder.join(reference)),
        }
    }
}

#[cfg(test)]
mod tests;
