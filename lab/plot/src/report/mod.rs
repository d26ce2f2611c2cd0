//! A report: the results of a run next to a paper's claims, in one HTML file.

mod embed;
mod html;
mod markdown;
mod text;

use serde::{Deserialize, Serialize};

use crate::Figure;

/// One run's report. Every string is plain text and escaped when written. `text` of a section may
/// also use a small subset of Markdown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `Paper ccnx-measurement, reproduced`.
    pub title: String,
    /// One line under the title.
    pub subtitle: String,
    /// The command line that made the report.
    pub command: String,
    pub seeds: Vec<u64>,
    pub commit: String,
    /// When it ran; `None` if the output must not change between runs.
    pub date: Option<String>,
    /// Duration of the run in seconds.
    pub duration_s: Option<f64>,
    /// `simulator`, `real processes`, or both.
    pub arm: String,
    /// The machine: processor, cores, memory, kernel.
    pub machine: String,
    pub claims: ClaimTable,
    pub sections: Vec<Section>,
    /// What a reader must know before trusting a figure; shown at the top.
    pub warnings: Vec<String>,
    /// Further facts of the run, as name and value.
    pub facts: Vec<(String, String)>,
}

/// A paper's claims and their verdicts, as a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClaimTable {
    pub rows: Vec<ClaimRow>,
    /// All outcomes that a claim can have, in the order in which they are counted.
    pub outcomes: Vec<Outcome>,
}

/// An outcome of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub words: String,
    /// Sign and colour. They carry no more information than the words.
    pub mark: Mark,
}

/// Sign and colour of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    Tick,
    /// Better than expected: an arrow up.
    Up,
    /// Not as expected: a cross.
    Cross,
    /// Open: no sign.
    None,
}

/// One row of the table of claims.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimRow {
    /// Short name, unique in the report.
    pub id: String,
    /// Figure, table or section of the paper.
    pub figure: String,
    pub metric: String,
    /// The paper's value, if it gives a number.
    pub paper: Option<f64>,
    /// Lower and upper end of the band.
    pub band: [f64; 2],
    /// Whether the claim is an order, and the measured value a lead.
    pub is_order: bool,
    pub is_run: bool,
    /// Our mean over seeds.
    pub measured: Option<f64>,
    /// Our 95 % confidence interval.
    pub interval: Option<[f64; 2]>,
    pub unit: String,
    pub outcome: Outcome,
    /// The reason for the band, and the paper's text.
    pub note: String,
    /// Why the result is not as in the paper; empty if it is.
    pub cause: String,
}

/// A section of the body.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Section {
    pub heading: String,
    /// Paragraphs separated by empty lines; `- ` lists, `**bold**`, `` `code` ``, fenced code, and
    /// `[text](https://...)` links.
    pub text: String,
    /// Figures, drawn inline.
    pub graphics: Vec<Graphic>,
    /// Tables, after the figures.
    pub tables: Vec<Table>,
}

/// A drawing in a section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Graphic {
    /// The drawing as SVG text (from [`Figure::to_svg`], or of a topology).
    pub svg: String,
    /// The caption without a number; figures are numbered in order.
    pub caption: String,
    /// Alternative text for screen readers; empty uses the caption.
    pub alt: String,
    /// The command that made it; may be empty.
    pub command: String,
    /// Names of the linked files next to the report: CSV, SVG, PNG.
    pub files: Vec<String>,
}

/// A table in a section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    pub caption: String,
    pub columns: Vec<String>,
    /// Cells; numbers are aligned right.
    pub rows: Vec<Vec<String>>,
}

impl Graphic {
    /// A figure with its caption. The alternative text lists axes and series.
    pub fn of(figure: &Figure, caption: impl Into<String>) -> Graphic {
        Graphic {
            svg: figure.to_svg(),
            caption: caption.into(),
            alt: figure.description(),
            command: String::new(),
            files: Vec::new(),
        }
    }

    /// The same with the command that made it.
    #[must_use]
    pub fn command(mut self, command: impl Into<String>) -> Graphic {
        self.command = command.into();
        self
    }

    /// The same with the names of the files next to the report.
    #[must_use]
    pub fn files<S: Into<String>>(mut self, files: impl IntoIterator<Item = S>) -> Graphic {
        self.files.extend(files.into_iter().map(Into::into));
        self
    }
}

impl Report {
    /// One self-contained HTML file.
    ///
    /// It fetches and runs nothing, and its policy makes browsers forbid both. Drawings with
    /// scripts or external references are replaced by a line that says so.
    pub fn to_html(&self) -> String {
        html::html(self)
    }
}

impl ClaimTable {
    /// The table for a terminal, with a line that counts the outcomes.
    pub fn to_text(&self) -> String {
        text::claims(self)
    }
}

#[cfg(test)]
mod tests;
