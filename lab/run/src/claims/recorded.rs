//! Recorded verdicts in a paper's folder: `expected/smoke.json` and `expected/full.json`. Each
//! claim has the commit and the date of its runs. The table in the paper's README shows both files.

use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use weir_plot::readable;
use weir_scenario::{Arm, Size};

use super::{ClaimKind, ClaimResult, Claims, Verdict, assign_causes};
use crate::record::{self, RecordError};

/// The lines around the table in a README.
const BEGIN: &str = "<!-- verdicts: written by `weir lab reproduce --record` -->";
const END: &str = "<!-- end of verdicts -->";

/// `expected/SIZE.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedVerdicts {
    pub paper: String,
    pub size: Size,
    /// In the order of `claims.toml`.
    pub claims: Vec<RecordedClaim>,
}

/// A verdict and its origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedClaim {
    #[serde(flatten)]
    pub result: ClaimResult,
    /// What was measured and compared with what; empty in old files.
    #[serde(default)]
    pub rule: String,
    /// The arm that measured it; `None` for claims about the models only.
    pub arm: Option<Arm>,
    pub commit: String,
    /// Date in UTC, as `2026-11-20`.
    pub date: String,
}

impl RecordedVerdicts {
    /// Reads the recorded verdicts of a paper; `None` if there is no file yet.
    ///
    /// # Errors
    /// The file cannot be read, or its format is wrong.
    pub(crate) fn read(folder: &Path, size: Size) -> Result<Option<Self>, RecordError> {
        let path = folder.join(file_name(size));
        record::read_json(&path).map_err(|error| match error {
            RecordError::Content { message, .. } => RecordError::Verdicts { path, message },
            error => error,
        })
    }

    /// Merges new verdicts. Claims that did not run now keep their old verdict. Claims that no
    /// longer exist are dropped.
    pub(crate) fn update(
        before: Option<Self>,
        claims: &Claims,
        size: Size,
        new: impl IntoIterator<Item = RecordedClaim>,
    ) -> Self {
        let mut before = before.map_or_else(Vec::new, |recorded| recorded.claims);
        let mut all: Vec<RecordedClaim> = new
            .into_iter()
            .map(|new| {
                let old = before.iter().position(|old| old.result.id == new.result.id);
                match old.map(|at| before.swap_remove(at)) {
                    Some(old) if new.defers_to(&old) => old.with_wording_of(new),
                    _ => new,
                }
            })
            .collect();
        let mut results: Vec<ClaimResult> = all.iter().map(|one| one.result.clone()).collect();
        assign_causes(&claims.claims, &mut results);
        all.iter_mut().zip(results).for_each(|(one, result)| one.result = result);
        Self { paper: claims.paper.clone(), size, claims: all }
    }

    /// Writes the verdicts to a paper's folder, and the table to its README.
    ///
    /// # Errors
    /// A file cannot be read or written, or the README lacks the lines around the table.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), RecordError> {
        // Check everything that can fail before the first write.
        let readme = folder.join("README.md");
        let failure =
            |path: &Path, message: String| RecordError::Verdicts { path: path.into(), message };
        let text = std::fs::read_to_string(&readme)
            .map_err(|error| failure(&readme, format!("cannot be read ({error})")))?;
        let other = match self.size {
            Size::Full => Self::read(folder, Size::Smoke)?,
            Size::Smoke => Self::read(folder, Size::Full)?,
        };
        let table = match self.size {
            Size::Full => table(Some(self), other.as_ref()),
            Size::Smoke => table(other.as_ref(), Some(self)),
        };
        let Some(text) = with_table(&text, &table) else {
            let message = format!("has no place for the verdicts; add the lines {BEGIN} and {END}");
            return Err(failure(&readme, message));
        };
        let path = folder.join(file_name(self.size));
        for (path, bytes) in [(&path, &record::json(self)[..]), (&readme, text.as_bytes())] {
            record::write_atomically(path, bytes)
                .map_err(|error| failure(path, format!("cannot be written ({error})")))?;
        }
        Ok(())
    }
}

impl RecordedClaim {
    /// Whether the old verdict stays: this claim did not run, the old one did, and both have the
    /// same rule.
    fn defers_to(&self, old: &Self) -> bool {
        let is_same = old.rule.is_empty() || old.rule == self.rule;
        !self.was_run() && old.was_run() && is_same && self.result.band == old.result.band
    }

    /// The old numbers with the claim's current wording.
    fn with_wording_of(self, new: Self) -> Self {
        let old = self.result;
        let result = ClaimResult {
            measured: old.measured,
            interval: old.interval,
            verdict: old.verdict,
            cause: old.cause,
            is_shown: old.is_shown,
            ..new.result
        };
        Self { result, ..self }
    }

    fn was_run(&self) -> bool {
        self.arm.is_some() || self.result.measured.is_some()
    }
}

fn file_name(size: Size) -> String {
    format!("expected/{}.json", size.as_str())
}

fn with_table(readme: &str, table: &str) -> Option<String> {
    let begin = readme.find(BEGIN)? + BEGIN.len();
    let end = begin + readme[begin..].find(END)?;
    Some(format!("{}\n{table}{}", &readme[..begin], &readme[end..]))
}

/// The counts, a row for each claim, and the causes of the claims that were not reproduced. A claim
/// that did not run at full size is shown with its smoke numbers. `expected/` has the commit and
/// the day of each run.
fn table(full: Option<&RecordedVerdicts>, smoke: Option<&RecordedVerdicts>) -> String {
    let mut rows: Vec<(&RecordedClaim, Size)> = Vec::new();
    for kept in [full, smoke].into_iter().flatten() {
        for claim in &kept.claims {
            match rows.iter_mut().find(|(other, _)| other.result.id == claim.result.id) {
                None => rows.push((claim, kept.size)),
                Some(row) if !row.0.was_run() && claim.was_run() => *row = (claim, kept.size),
                Some(_) => {}
            }
        }
    }
    let mut out = String::from("\n");
    for (kind, title) in [
        (ClaimKind::Paper, "The paper's claims"),
        (ClaimKind::Beyond, "Beyond the paper"),
        (ClaimKind::Experiment, "Experiments that show causes"),
    ] {
        let of_kind: Vec<_> = rows.iter().filter(|(row, _)| row.result.kind == kind).collect();
        if of_kind.is_empty() {
            continue;
        }
        let counts = Verdict::ALL.map(|verdict| {
            let count = of_kind.iter().filter(|(row, _)| row.result.verdict == verdict).count();
            format!("{count} {}", verdict.words())
        });
        // Writing to a String cannot fail.
        let _ = writeln!(out, "**{title}**: {}.\n", counts.join(", "));
        let _ = writeln!(out, "| figure | claim | paper | band | ours (95 %) | verdict | run |");
        let _ = writeln!(out, "|---|---|---|---|---|---|---|");
        for (row, size) in &of_kind {
            line(&mut out, row, *size);
        }
        let _ = writeln!(out);
        for (verdict, cause, ids) in causes(of_kind.iter().map(|(row, _)| *row)) {
            wrap(&mut out, &format!("- {} {}: {cause}", ids.join(", "), verdict.words()));
        }
        let _ = writeln!(out);
    }
    out
}

/// Each verdict and cause, with the claims that share it, in the order of the first of them.
fn causes<'a>(
    rows: impl Iterator<Item = &'a RecordedClaim>,
) -> Vec<(Verdict, &'a str, Vec<String>)> {
    let mut causes: Vec<(Verdict, &str, Vec<String>)> = Vec::new();
    for row in rows.filter(|row| row.was_run() && !row.result.cause.is_empty()) {
        let (verdict, cause) = (row.result.verdict, row.result.cause.as_str());
        let id = format!("`{}`", row.result.id);
        match causes.iter_mut().find(|other| other.0 == verdict && other.1 == cause) {
            Some((_, _, ids)) => ids.push(id),
            None => causes.push((verdict, cause, vec![id])),
        }
    }
    causes
}

fn line(out: &mut String, row: &RecordedClaim, size: Size) {
    let result = &row.result;
    let value = |value: Option<f64>| value.map_or("–".to_owned(), |value| readable(value, ""));
    let span = |ends: [f64; 2]| format!("{}..{}", readable(ends[0], ""), readable(ends[1], ""));
    let interval = result.interval.map_or_else(String::new, |ends| format!(" ({})", span(ends)));
    let run = match (row.was_run(), row.arm) {
        (false, _) => "–".to_owned(),
        (true, None) => "model".to_owned(),
        (true, Some(arm)) => format!("{}-{}", arm.as_str(), size.as_str()),
    };
    let _ = writeln!(
        out,
        "| {} | {} | {} | {} | {}{interval} | {} | {run} |",
        result.figure,
        result.metric.replace('|', "\\|"),
        value(result.paper),
        if result.is_order { "in order".to_owned() } else { span(result.band) },
        value(result.measured),
        result.verdict.words(),
    );
}

/// Writes an item of a list in lines of at most 100 columns, unless a word is longer.
fn wrap(out: &mut String, item: &str) {
    const COLUMNS_MAX: usize = 100;
    let mut columns = 0;
    for word in item.split_whitespace() {
        let width = word.chars().count();
        let space = match columns {
            0 => "",
            _ if columns + 1 + width <= COLUMNS_MAX => " ",
            _ => {
                columns = 1;
                "\n  "
            }
        };
        out.push_str(space);
        out.push_str(word);
        columns += space.len().min(1) + width;
    }
    out.push('\n');
}
