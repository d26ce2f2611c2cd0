//! Markdown is wrapped like code: what is wider can only be read in a viewer.

use super::prose::markdown_prose;
use super::{column_finding, numbered};

/// Lines that are too wide, outside blocks of code. Rows of tables and the targets of links cannot
/// be wrapped.
pub(super) fn column_findings(file: &str, text: &str) -> Vec<String> {
    let prose = markdown_prose(text);
    let is_row = |line: &str| line.trim_start().starts_with('|');
    let is_target = |line: &str| line.starts_with('[') && line.contains("]: ");
    numbered(&prose)
        .filter(|(_, line)| !is_row(line) && !is_target(line))
        .filter_map(|(number, line)| column_finding(file, number, line))
        .collect()
}
