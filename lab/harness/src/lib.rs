#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod claims;
mod document;
pub mod emulator;
pub mod events;
pub mod figures;
pub mod folder;
mod huge_pages;
pub mod jobs;
pub mod library;
pub mod metric;
pub mod real;
pub mod record;
pub mod report;
pub mod run;
pub mod scenario;
pub mod session;
pub mod stats;

use serde::{Deserialize, Serialize};

pub use document::ScenarioError;
pub use huge_pages::begin_with_huge_pages;
pub use library::{Paper, paper, papers, scenario as find_scenario};
pub use scenario::{Experiment, Scenario, Size};

/// Where a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// In the simulator, under virtual time.
    Sim,
    /// On real processes of this machine.
    Real,
}

impl Arm {
    /// The arm of a word of a file or the command line.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "sim" => Some(Self::Sim),
            "real" => Some(Self::Real),
            _ => None,
        }
    }

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Real => "real",
        }
    }

    /// What reports call it.
    #[must_use]
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Sim => "simulator",
            Self::Real => "real processes",
        }
    }
}
