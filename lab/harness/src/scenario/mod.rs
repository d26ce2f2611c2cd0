//! Scenario files: what they hold, checked before anything runs.
//!
//! `docs/lab.md` lists every key. A [`Scenario`] is a file as it was read; with a [`Size`] it
//! becomes an [`Experiment`]: points of a sweep, seeds, metrics and figures.
//! [`Experiment::prepare`] makes the [`Plan`](weir_plan::Plan) of one point and seed.

mod apps;
mod disk;
mod experiment;
mod links;
mod network;
mod outputs;
mod router;
mod store;
mod sweep;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::Arm;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::document::{self, ScenarioError, Tree};
use crate::folder::Folder;
use crate::metric::MetricTable;
use crate::real::trial::Trial;

use apps::{ConsumerTable, ProducerTable};
use experiment::FactorialTable;
use links::LinkTable;
use network::{ControllerTable, FaultTable, RouteTable, RoutesTable, RunTable};
use outputs::PlotTable;
use sweep::SweepTable;

pub use experiment::{Experiment, Factorial};
pub use network::Prepared;
pub(crate) use outputs::find_point;
pub use outputs::{Cell, Plot, PlotKind, ReferenceLine};
pub use sweep::{Axis, AxisPoint, Point};

/// How large a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Size {
    /// Seconds; for tests and a first look.
    Smoke,
    /// What a paper is compared with.
    Full,
}

impl Size {
    /// The word that files use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Full => "full",
        }
    }
}

/// What a scenario is called.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Unique in its folder.
    pub id: String,
    /// The paper it belongs to, or empty.
    pub paper: String,
    /// One line.
    pub title: String,
    /// What is shown, why so, and what differs from the paper; a small part of Markdown.
    pub description: String,
    /// Where it can run; the first is the one when none is chosen.
    pub arms: Vec<Arm>,
}

/// A scenario as its file states it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name and purpose.
    pub header: Header,
    /// The text of the file.
    pub text: String,
    /// What others are relative to: traces, topologies.
    pub folder: Folder,
    /// The file, as the user named it.
    pub file: Arc<str>,
    tree: Tree,
}

/// A file as a whole. What is read from the tree itself is only named here.
#[derive(Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
struct File {
    #[serde(rename = "scenario")]
    _scenario: IgnoredAny,
    run: RunTable,
    #[serde(rename = "topology")]
    _topology: IgnoredAny,
    #[serde(default)]
    routes: RoutesTable,
    #[serde(default)]
    route: Vec<RouteTable>,
    link: Option<LinkTable>,
    access: Option<LinkTable>,
    #[serde(rename = "router")]
    _router: Option<IgnoredAny>,
    #[serde(default, rename = "routers")]
    _routers: Vec<IgnoredAny>,
    #[serde(default)]
    producer: Vec<ProducerTable>,
    #[serde(default)]
    consumer: Vec<ConsumerTable>,
    #[serde(default)]
    fault: Vec<FaultTable>,
    #[serde(default)]
    sweep: Vec<SweepTable>,
    #[serde(default)]
    metric: Vec<MetricTable>,
    #[serde(default)]
    plot: Vec<PlotTable>,
    factorial: Option<FactorialTable>,
    trial: Option<Trial>,
    controller: Option<ControllerTable>,
}

/// The one table that is read before the size is known.
#[derive(Deserialize)]
struct HeaderFile {
    scenario: HeaderTable,
}

/// `[scenario]`.
#[derive(Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
struct HeaderTable {
    id: String,
    title: String,
    #[serde(default)]
    paper: String,
    #[serde(default)]
    description: String,
    #[serde(default = "simulator_alone")]
    arms: Vec<Arm>,
}

fn simulator_alone() -> Vec<Arm> {
    vec![Arm::Sim]
}

impl Scenario {
    /// Reads the text of a file. Only its form and its header are checked; [`Scenario::experiment`]
    /// checks the rest.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn parse(file: &str, text: &str, folder: Folder) -> Result<Self, ScenarioError> {
        let tree = document::parse(file, text)?;
        let header = header(&tree)?;
        Ok(Self { header, text: text.to_owned(), folder, file: Arc::clone(&tree.file), tree })
    }

    /// The scenario at one size, with everything checked that can be checked without running.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and a remedy.
    pub fn experiment(&self, size: Size) -> Result<Experiment, ScenarioError> {
        Experiment::new(self, self.tree.of_size(size.as_str())?, size)
    }
}

fn header(tree: &Tree) -> Result<Header, ScenarioError> {
    let HeaderTable { id, title, paper, description, arms } = tree.read::<HeaderFile>()?.scenario;
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        let message = format!("is \"{id}\"; write letters, digits, '-', '_' and '.' only");
        return Err(tree.error("scenario.id", message));
    }
    if arms.is_empty() {
        let message = "is empty; write [\"sim\"], [\"real\"] or both";
        return Err(tree.error("scenario.arms", message));
    }
    Ok(Header { id, paper, title, description, arms })
}
