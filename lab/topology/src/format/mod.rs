//! Topologies as text: Weir's own TOML, Mini-NDN, ndnSIM, and GraphML of the Topology Zoo.

use std::path::Path;

use crate::error::TopologyError;
use crate::model::Topology;

/// How a text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Weir's own TOML: `[[node]]` and `[[link]]`.
    Toml,
    /// Mini-NDN's `.conf`: sections `[nodes]` and `[links]`.
    MiniNdn,
    /// ndnSIM's annotated topology: sections `router` and `link`.
    NdnSim,
    /// GraphML as the Topology Zoo writes it.
    GraphMl,
}

/// How to read a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// The format; found out from the file's name and content when `None`.
    pub format: Option<Format>,
    /// Give links without a delay that of light in fibre over the great circle between their ends.
    pub delay_from_distance: bool,
}

/// The names that [`Topology::builtin`] knows.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    ["geant"].into_iter()
}

impl Topology {
    /// Reads a file in any of the formats.
    pub fn read(path: &Path) -> Result<Self, TopologyError> {
        Self::read_with(path, &ReadOptions::default())
    }

    /// Reads a file as `options` say.
    pub fn read_with(path: &Path, options: &ReadOptions) -> Result<Self, TopologyError> {
        let _ = options;
        Err(TopologyError::whole(&path.display().to_string(), "not read", "wait"))
    }

    /// Reads `text`; `file` is the name that errors give to it.
    pub fn parse(text: &str, file: &str, options: &ReadOptions) -> Result<Self, TopologyError> {
        let _ = (text, options);
        Err(TopologyError::whole(file, "not read", "wait"))
    }

    /// A topology that comes with the program: `"geant"`.
    pub fn builtin(name: &str) -> Option<Self> {
        let _ = name;
        None
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
    pub fn to_toml(&self) -> String {
        String::new()
    }

    /// Writes [`Topology::to_toml`] to a file.
    pub fn write(&self, path: &Path) -> Result<(), TopologyError> {
        std::fs::write(path, self.to_toml())
            .map_err(|source| TopologyError::Write { path: path.display().to_string(), source })
    }
}
