//! Checks that Markdown is wrapped like code, so that it can be read without a viewer.

use super::prose::markdown_prose;
use super::{column_finding, numbered};

/// Finds lines that are too wide. Blocks of code, rows of tables and targets of links, which cannot
/// be wrapped, are skipped.
pub(super) fn column_findings(file: &str, text: &str) -> Vec<String> {
    let prose = markdown_prose(text);
    let is_row = |line: &str| line.trim_start().starts_with('|');
    let is_target = |line: &str| line.starts_with('[') && line.contains("]: ");
    numbered(&prose)
        .filter(|(_, line)| !is_row(line) && !is_target(line))
        .filter_map(|(number, line)| column_finding(file, number, line))
        .collect()
}
