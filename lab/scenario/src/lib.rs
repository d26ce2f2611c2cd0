#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod apps;
mod disk;
pub mod document;
mod experiment;
mod factorial;
mod file;
mod folder;
mod library;
mod links;
pub mod metric;
mod network;
mod outputs;
mod prepare;
mod router;
mod scenario;
mod store;
mod sweep;
#[cfg(test)]
mod tests;
mod times;
mod topology;
pub mod trial;

use serde::{Deserialize, Serialize};

pub use document::ScenarioError;
pub use experiment::Experiment;
pub use factorial::Factorial;
pub use file::Header;
pub use folder::Folder;
pub use library::{Paper, paper, papers, scenario as find_scenario};
pub use outputs::{Cell, Plot, PlotKind, ReferenceLine, find_point};
pub use prepare::Prepared;
pub use scenario::Scenario;
pub use sweep::{Axis, AxisPoint, Point};
pub use times::WarmUp;

/// The size of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Size {
    /// Takes seconds; for tests and a first look.
    Smoke,
    /// For comparison with a paper.
    Full,
}

impl Size {
    /// The word used in files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Full => "full",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// The simulator, in virtual time.
    Sim,
    /// Real processes on this machine.
    Real,
}

impl Arm {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Real => "real",
        }
    }

    /// The name in reports.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Self::Sim => "simulator",
            Self::Real => "real processes",
        }
    }
}
