//! The tables of a scenario file.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::Arm;
use crate::apps::{ConsumerTable, ProducerTable};
use crate::document::{ScenarioError, Tree};
use crate::factorial::FactorialTable;
use crate::links::LinkTable;
use crate::metric::MetricTable;
use crate::network::{ControllerTable, FaultTable, RouteTable, RoutesTable};
use crate::outputs::PlotTable;
use crate::sweep::SweepTable;
use crate::times::RunTable;
use crate::trial::Trial;

#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Unique within its folder.
    pub id: String,
    /// The paper it belongs to, or empty.
    pub paper: String,
    pub title: String,
    /// Purpose, choices, and differences from the paper, in a small subset of Markdown.
    pub description: String,
    /// Where it can run; the first is the default.
    pub arms: Vec<Arm>,
}

/// The whole file. Tables that are read from the tree itself are only named here.
#[derive(Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(crate) struct File {
    #[serde(rename = "scenario")]
    _scenario: IgnoredAny,
    pub(crate) run: RunTable,
    #[serde(rename = "topology")]
    _topology: IgnoredAny,
    #[serde(default)]
    pub(crate) routes: RoutesTable,
    #[serde(default)]
    pub(crate) route: Vec<RouteTable>,
    pub(crate) link: Option<LinkTable>,
    pub(crate) access: Option<LinkTable>,
    #[serde(rename = "router")]
    _router: Option<IgnoredAny>,
    #[serde(default, rename = "routers")]
    _routers: Vec<IgnoredAny>,
    #[serde(default)]
    pub(crate) producer: Vec<ProducerTable>,
    #[serde(default)]
    pub(crate) consumer: Vec<ConsumerTable>,
    #[serde(default)]
    pub(crate) fault: Vec<FaultTable>,
    #[serde(default)]
    pub(crate) sweep: Vec<SweepTable>,
    #[serde(default)]
    pub(crate) metric: Vec<MetricTable>,
    #[serde(default)]
    pub(crate) plot: Vec<PlotTable>,
    pub(crate) factorial: Option<FactorialTable>,
    pub(crate) trial: Option<Trial>,
    pub(crate) controller: Option<ControllerTable>,
}

/// The table that is read before the size is known.
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

/// Reads and checks `[scenario]`.
pub(crate) fn header(tree: &Tree) -> Result<Header, ScenarioError> {
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
