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
use crate::document::{self, Node, Reader, ScenarioError};
use crate::folder::Folder;

pub use experiment::{Experiment, Factorial};
pub use network::Prepared;
pub(crate) use outputs::find_point;
pub use outputs::{Plot, PlotKind, ReferenceLine};
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
    root: Node,
}

const TOP: &[&str] = &[
    "scenario",
    "run",
    "topology",
    "routes",
    "route",
    "link",
    "access",
    "router",
    "routers",
    "producer",
    "consumer",
    "fault",
    "sweep",
    "metric",
    "plot",
    "factorial",
];

impl Scenario {
    /// Reads the text of a file. Only its form and its header are checked; [`Scenario::experiment`]
    /// checks the rest.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn parse(file: &str, text: &str, folder: Folder) -> Result<Self, ScenarioError> {
        let root = document::parse(file, text)?;
        let file: Arc<str> = file.into();
        let header = header(&file, &root)?;
        Ok(Self { header, text: text.to_owned(), folder, file, root })
    }

    /// The scenario at one size, with everything checked that can be checked without running.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and a remedy.
    pub fn experiment(&self, size: Size) -> Result<Experiment, ScenarioError> {
        let root = document::choose_size(&self.file, &self.root, size.as_str())?;
        Experiment::new(self, root, size)
    }
}

fn header(file: &Arc<str>, root: &Node) -> Result<Header, ScenarioError> {
    let top = Reader::new(file, "the scenario", root, TOP)?;
    let known = ["id", "paper", "title", "description", "arms"];
    let Some(reader) = top.table("scenario", &known)? else {
        return Err(
            top.error(1, "there is no [scenario]; begin with [scenario] and its id and title")
        );
    };
    let id = reader.required_text("id")?.to_owned();
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        let message = format!("`id` is \"{id}\"; write letters, digits, '-', '_' and '.' only");
        return Err(reader.error_at("id", message));
    }
    let mut arms = Vec::new();
    for arm in reader.texts("arms")?.unwrap_or_else(|| vec!["sim".to_owned()]) {
        arms.push(Arm::from_word(&arm).ok_or_else(|| {
            let remedy = document::suggestion(&arm, &["sim", "real"]);
            reader.error_at("arms", format!("`arms` cannot hold \"{arm}\"; {remedy}"))
        })?);
    }
    if arms.is_empty() {
        return Err(reader.error_at("arms", "`arms` is empty; write [\"sim\"], [\"real\"] or both"));
    }
    Ok(Header {
        id,
        paper: reader.text("paper")?.unwrap_or_default().to_owned(),
        title: reader.required_text("title")?.to_owned(),
        description: reader.text("description")?.unwrap_or_default().to_owned(),
        arms,
    })
}
