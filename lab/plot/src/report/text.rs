//! The table of claims for a terminal.

use super::{ClaimRow, ClaimTable, Outcome};
use crate::readable;

/// The terminal would wrap wider columns, so longer text gets its own line.
const METRIC_MAX: usize = 44;

/// See [`ClaimTable::to_text`].
pub(super) fn claims(table: &ClaimTable) -> String {
    let heading =
        ["verdict", "claim", "figure", "metric", "paper", "band", "measured", "95 % interval"];
    let mut rows: Vec<Vec<String>> = vec![heading.iter().map(ToString::to_string).collect()];
    let shown: Vec<&ClaimRow> = table.rows.iter().filter(|claim| claim.is_run).collect();
    rows.extend(shown.iter().map(|claim| row(claim)));
    let widths: Vec<usize> = (0..heading.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for (index, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            // All columns from the value of the paper on are numbers.
            let number = column >= 4;
            line.push_str(&if number { format!("{pad}{cell}") } else { format!("{cell}{pad}") });
            line.push_str("  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
        if index == 0 {
            let rule: usize = widths.iter().sum::<usize>() + 2 * (widths.len() - 1);
            out.push_str(&"-".repeat(rule));
            out.push('\n');
        } else if let Some(claim) = shown.get(index - 1)
            && !claim.cause.is_empty()
        {
            out.push_str(&format!("{}  {}\n", " ".repeat(widths[0]), one_line(&claim.cause)));
        }
    }
    let count = |outcome: &Outcome| {
        let count = table.rows.iter().filter(|claim| claim.outcome == *outcome).count();
        format!("{count} {}", outcome.words)
    };
    let counts: Vec<String> = table.outcomes.iter().map(count).collect();
    out.push_str(&format!("{} claims: {}\n", table.rows.len(), counts.join(", ")));
    let missing = table.rows.len() - shown.len();
    if missing > 0 {
        out.push_str(&format!("{missing} of the claims not measured did not run\n"));
    }
    out
}

fn row(claim: &ClaimRow) -> Vec<String> {
    let value =
        |value: Option<f64>| value.map_or("-".to_owned(), |value| readable(value, &claim.unit));
    let span = |ends: [f64; 2]| {
        let [low, high] = ends.map(|end| readable(end, &claim.unit));
        format!("[{low}, {high}]")
    };
    vec![
        claim.outcome.words.clone(),
        one_line(&claim.id),
        one_line(&claim.figure),
        cut(&one_line(&claim.metric)),
        value(claim.paper),
        if claim.is_order { "in order".to_owned() } else { span(claim.band) },
        value(claim.measured),
        claim.interval.map_or("-".to_owned(), span),
    ]
}

/// One line without control characters, which a terminal would interpret.
fn one_line(text: &str) -> String {
    text.split_whitespace()
        .map(|word| word.replace(char::is_control, "\u{fffd}"))
        .collect::<Vec<_>>()
        .join(" ")
}

fn cut(text: &str) -> String {
    if text.chars().count() <= METRIC_MAX {
        return text.to_owned();
    }
    text.chars().take(METRIC_MAX - 1).chain(['…']).collect()
}

/// `12 min 34 s`.
pub(super) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "unknown".to_owned();
    }
    if seconds < 60.0 {
        return readable(seconds, "s");
    }
    let whole = seconds.round() as u64;
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 {
        format!("{hours} h {minutes} min")
    } else {
        format!("{minutes} min {seconds} s")
    }
}
