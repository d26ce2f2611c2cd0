//! Topologies as text: Weir's own TOML, Mini-NDN, ndnSIM, and GraphML of the Topology Zoo.

mod build;
mod graphml;
mod minindn;
mod ndnsim;
mod own;

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::TopologyError;
use crate::model::Topology;

/// How a text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Weir's own TOML: `[[node]]` and `[[link]]`.
    Toml,
    /// Mini-NDN's `.conf`: sections `[nodes]` and `[links]`.
    ///
    /// `bw` is in Mbit/s, `loss` in percent, `jitter` without a unit in microseconds (as the
    /// kernel's traffic control reads it), `max_queue_size` in packets; costs come from `[faces]`.
    MiniNdn,
    /// ndnSIM's annotated topology: sections `router` and `link`.
    ///
    /// As in ndnSIM, a line that repeats a link with its ends swapped is skipped, and a node at
    /// 0, 0 has no position.
    NdnSim,
    /// GraphML as the Topology Zoo writes it: `label`, `Longitude`, `Latitude`, `LinkSpeedRaw`.
    ///
    /// Space in labels becomes `_`, a label that occurs again gets a number, a node without a
    /// label is `node-ID`.
    GraphMl,
}

/// How to read a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadOptions {
    /// The format; found out from the file's name and content when `None`.
    pub format: Option<Format>,
    /// Give links without a delay that of light in fibre over the great circle between their ends;
    /// positions must be longitudes and latitudes.
    pub delay_from_distance: bool,
    /// Delay of links without one, and whose distance is not known or not asked for, in
    /// nanoseconds. When `None` it is 0, or an error where the distance is asked for.
    pub delay_default_ns: Option<u64>,
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

/// Finds the format in the first line that only one of them can have.
fn format_of_content(text: &str) -> Option<Format> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    for line in lines.filter(|line| !line.starts_with('#')) {
        match line {
            "router" => return Some(Format::NdnSim),
            "[nodes]" | "[links]" | "[switches]" => return Some(Format::MiniNdn),
            "[[node]]" | "[[link]]" | "[defaults]" => return Some(Format::Toml),
            _ if line.starts_with('<') => return Some(Format::GraphMl),
            _ => {}
        }
    }
    None
}

fn format_of(text: &str, file: &str) -> Option<Format> {
    format_of_content(text).or_else(|| match Path::new(file).extension()?.to_str()? {
        "toml" => Some(Format::Toml),
        "conf" => Some(Format::MiniNdn),
        "txt" => Some(Format::NdnSim),
        "graphml" | "xml" => Some(Format::GraphMl),
        _ => None,
    })
}

impl Topology {
    /// Reads a file in any of the formats.
    pub fn read(path: &Path) -> Result<Self, TopologyError> {
        Self::read_with(path, &ReadOptions::default())
    }

    /// Reads a file as `options` say.
    pub(crate) fn read_with(path: &Path, options: &ReadOptions) -> Result<Self, TopologyError> {
        let file = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|source| TopologyError::Read {
            path: file.clone(),
            source,
            builtin: builtin_list(),
        })?;
        match String::from_utf8(bytes) {
            Ok(text) => Self::parse(&text, &file, options),
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
        let format = options.format.or_else(|| format_of(text, file)).ok_or_else(|| {
            let remedy = "write [[node]] and [[link]] tables (TOML), [nodes] and [links] \
                          (Mini-NDN), router and link (ndnSIM), or GraphML";
            TopologyError::whole(file, "this is no format of topologies that is known", remedy)
        })?;
        let mut topology = match format {
            Format::Toml => own::read(text, file, options),
            Format::MiniNdn => minindn::read(text, file, options),
            Format::NdnSim => ndnsim::read(text, file, options),
            Format::GraphMl => graphml::read(text, file, options),
        }?;
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

    /// Weir's own TOML; [`Topology::parse`] gives the same topology back.
    pub(crate) fn to_toml(&self) -> String {
        own::write(self)
    }

    /// Writes the topology as TOML to a file.
    pub fn write(&self, path: &Path) -> Result<(), TopologyError> {
        std::fs::write(path, self.to_toml())
            .map_err(|source| TopologyError::Write { path: path.display().to_string(), source })
    }
}

#[cfg(test)]
mod tests;
