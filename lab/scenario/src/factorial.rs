//! `[factorial]`: a two-level factorial design over the sweep.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::document::{ScenarioError, Tree, suggestion};
use crate::metric::Metric;
use crate::sweep::Axis;

/// A factorial design: the letters of its factors, and their axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Factorial {
    /// Letter and axis, in the order of the letters.
    pub factors: Vec<(String, String)>,
    /// The metric to explain.
    pub response: String,
    /// Whether to analyse the logarithm of the metric instead of the metric.
    pub is_logarithmic: bool,
}

/// `[factorial]`.
#[derive(Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(crate) struct FactorialTable {
    response: String,
    /// Letter and axis.
    factors: BTreeMap<String, String>,
    #[serde(default)]
    log: bool,
}

/// Reads and checks `[factorial]`.
pub(crate) fn factorial(
    tree: &Tree,
    table: Option<FactorialTable>,
    axes: &[Axis],
    metrics: &[Metric],
) -> Result<Option<Factorial>, ScenarioError> {
    let Some(FactorialTable { response, factors, log }) = table else { return Ok(None) };
    let ids: Vec<&str> = metrics.iter().map(|metric| metric.id.as_str()).collect();
    if !ids.contains(&response.as_str()) {
        let remedy = suggestion(&response, &ids);
        let message = format!("no [[metric]] has the id \"{response}\"; {remedy}");
        return Err(tree.error("factorial.response", message));
    }
    let axis_ids: Vec<&str> = axes.iter().map(|axis| axis.id.as_str()).collect();
    for (letter, axis) in &factors {
        let path = format!("factorial.factors.{letter}");
        let Some(found) = axes.iter().find(|other| other.id == *axis) else {
            let remedy = suggestion(axis, &axis_ids);
            return Err(tree.error(&path, format!("the sweep has no axis \"{axis}\"; {remedy}")));
        };
        if found.points.len() != 2 {
            let message = format!(
                "axis \"{axis}\" has {} values; a factor has two levels",
                found.points.len()
            );
            return Err(tree.error(&path, message));
        }
    }
    if factors.len() != axes.len() {
        let message = "every axis of the sweep must be a factor; name each once";
        return Err(tree.error("factorial.factors", message));
    }
    let factors = factors.into_iter().collect();
    Ok(Some(Factorial { factors, response, is_logarithmic: log }))
}
