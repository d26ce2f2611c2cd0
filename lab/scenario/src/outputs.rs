//! `[[plot]]`: the figures of a scenario.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::document::{ScenarioError, Tree, ValueNode, suggestion, texts};
use crate::metric::{MeasureKind, Metric};
use crate::sweep::Axis;

#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Unique in the scenario; also the name of its files.
    pub id: String,
    /// Shown above the figure.
    pub title: String,
    /// Shown under the figure in the report.
    pub caption: String,
    pub kind: PlotKind,
    /// `time`, `node`, `value`, or the id of an axis.
    pub x: String,
    /// Ids of metrics.
    pub y: Vec<String>,
    /// Ids of axes whose points become series.
    pub series: Vec<String>,
    /// Ids of axes whose points become panels; the last one runs horizontally.
    pub panels: Vec<String>,
    /// How a cell of a heat map combines its points and seeds.
    pub cell: Cell,
    /// Axes with a single drawn point, by label.
    pub filter: BTreeMap<String, String>,
    /// Logarithmic horizontal axis.
    pub x_log: bool,
    /// Logarithmic vertical axis.
    pub y_log: bool,
    /// Label of the vertical axis; empty for that of the metric.
    pub y_label: String,
    /// Maximum of the vertical axis.
    pub y_max: Option<f64>,
    /// Lines across the figure.
    pub references: Vec<ReferenceLine>,
}

/// A line across a figure.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub struct ReferenceLine {
    pub name: String,
    /// Its position, in the unit of the axis.
    pub value: f64,
    /// Vertical, otherwise horizontal.
    #[serde(default, rename = "vertical")]
    pub is_vertical: bool,
}

/// How a figure is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlotKind {
    /// Points connected by lines.
    #[default]
    Line,
    /// Values held until the next one.
    Steps,
    /// Bars for each value of x.
    Bars,
    /// Box plots over seeds (or nodes) for each value of x.
    Boxes,
    /// Distribution functions of samples.
    Distribution,
    /// A matrix of colours: x horizontally, series vertically.
    Heat,
}

/// What a cell of a heat map shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cell {
    #[default]
    Mean,
    Min,
    Max,
}

/// `[[plot]]`.
#[derive(Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(crate) struct PlotTable {
    id: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    caption: String,
    #[serde(default)]
    kind: PlotKind,
    x: Option<String>,
    #[serde(deserialize_with = "texts")]
    y: Vec<String>,
    #[serde(default, deserialize_with = "texts")]
    series: Vec<String>,
    #[serde(default, deserialize_with = "texts")]
    panels: Vec<String>,
    #[serde(default)]
    cell: Cell,
    #[serde(rename = "where")]
    _where: Option<IgnoredAny>,
    #[serde(default)]
    x_log: bool,
    #[serde(default)]
    y_log: bool,
    #[serde(default)]
    y_label: String,
    y_max: Option<f64>,
    #[serde(default)]
    reference: Vec<ReferenceLine>,
}

pub(crate) fn plots(
    tree: &Tree,
    tables: Vec<PlotTable>,
    axes: &[Axis],
    metrics: &[Metric],
) -> Result<Vec<Plot>, ScenarioError> {
    let mut plots: Vec<Plot> = Vec::new();
    for (at, table) in tables.into_iter().enumerate() {
        let path = format!("plot[{at}]");
        let plot = plot(tree, &path, table, axes)?;
        check(tree, &path, &plot, axes, metrics)?;
        if plots.iter().any(|other| other.id == plot.id) {
            let message = format!("two plots have the id \"{}\"; give each its own `id`", plot.id);
            return Err(tree.error(&format!("{path}.id"), message));
        }
        plots.push(plot);
    }
    Ok(plots)
}

fn plot(tree: &Tree, path: &str, table: PlotTable, axes: &[Axis]) -> Result<Plot, ScenarioError> {
    let PlotTable { id, kind, .. } = &table;
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)) {
        let message = format!("is \"{id}\"; it names files: write letters, digits, '-' and '_'");
        return Err(tree.error(&format!("{path}.id"), message));
    }
    let otherwise = (*kind == PlotKind::Distribution).then(|| "value".to_owned());
    let Some(x) = table.x.or(otherwise) else {
        return Err(tree.error(path, "lacks `x`; write for example x = \"time\""));
    };
    let mut filter = BTreeMap::new();
    let entries = tree.at(&format!("{path}.where")).map_or(&[][..], ValueNode::entries);
    for entry in entries {
        let label = entry.node.label();
        find_point(axes, &entry.key, &label)
            .map_err(|message| tree.error_on(entry.line, &format!("{path}.where"), &message))?;
        filter.insert(entry.key.clone(), label);
    }
    Ok(Plot {
        id: table.id,
        title: table.title,
        caption: table.caption,
        kind: table.kind,
        x,
        y: table.y,
        series: table.series,
        panels: table.panels,
        cell: table.cell,
        filter,
        x_log: table.x_log,
        y_log: table.y_log,
        y_label: table.y_label,
        y_max: table.y_max,
        references: table.reference,
    })
}

/// The index of an axis, and of its point with this label.
///
/// # Errors
/// There is no such axis or point; the message lists the known ones.
pub fn find_point(axes: &[Axis], axis: &str, label: &str) -> Result<(usize, usize), String> {
    let ids: Vec<&str> = axes.iter().map(|axis| axis.id.as_str()).collect();
    let Some(at) = ids.iter().position(|id| *id == axis) else {
        return Err(format!("the sweep has no axis \"{axis}\"; {}", suggestion(axis, &ids)));
    };
    let labels: Vec<&str> = axes[at].points.iter().map(|point| point.label.as_str()).collect();
    match labels.iter().position(|other| *other == label) {
        Some(point) => Ok((at, point)),
        None => {
            let remedy = suggestion(label, &labels);
            Err(format!("axis \"{axis}\" has no value \"{label}\"; {remedy}"))
        }
    }
}

/// Rejects a plot of metrics or axes that the scenario does not have.
fn check(
    tree: &Tree,
    path: &str,
    plot: &Plot,
    axes: &[Axis],
    metrics: &[Metric],
) -> Result<(), ScenarioError> {
    let error = |key: &str, message: &str| tree.error(&format!("{path}.{key}"), message);
    let ids: Vec<&str> = metrics.iter().map(|metric| metric.id.as_str()).collect();
    for y in &plot.y {
        let Some(metric) = metrics.iter().find(|metric| metric.id == *y) else {
            let message = format!("no [[metric]] has the id \"{y}\"; {}", suggestion(y, &ids));
            return Err(error("y", &message));
        };
        let missing = match plot.x.as_str() {
            "time" if !metric.over_time => "over_time = true",
            "node" if !metric.per_node => "per_node = true",
            "value" if !metric.distribution => "distribution = true",
            _ => continue,
        };
        let message =
            format!("metric \"{y}\" is not recorded that way; write {missing} in its [[metric]]");
        return Err(error("y", &message));
    }
    if (plot.x == "value") != (plot.kind == PlotKind::Distribution) {
        return Err(error("x", "x = \"value\" and kind = \"distribution\" go together"));
    }
    let mut axis_ids: Vec<&str> = axes.iter().map(|axis| axis.id.as_str()).collect();
    // An axis appears at most once: as x, series, panels or filter.
    let mut used = plot.series.clone();
    used.extend(plot.panels.iter().cloned());
    if !["time", "node", "value"].contains(&plot.x.as_str()) {
        used.push(plot.x.clone());
    }
    for axis in &used {
        if !axis_ids.contains(&axis.as_str()) {
            let key = if *axis == plot.x {
                "x"
            } else if plot.series.contains(axis) {
                "series"
            } else {
                "panels"
            };
            if key == "x" {
                axis_ids.extend(["time", "node", "value"]);
            }
            let message =
                format!("the sweep has no axis \"{axis}\"; {}", suggestion(axis, &axis_ids));
            return Err(error(key, &message));
        }
        if used.iter().filter(|other| *other == axis).count() > 1 || plot.filter.contains_key(axis)
        {
            let message = format!(
                "axis \"{axis}\" is used twice in this plot; use it in one of x, series, panels \
                    and where"
            );
            return Err(tree.error(path, message));
        }
    }
    if plot.kind == PlotKind::Heat && (plot.y.len() != 1 || plot.series.len() != 1) {
        return Err(error("kind", "a heat map has one metric in `y` and one axis in `series`"));
    }
    Ok(())
}

/// The first metric that needs periodic samples, if any.
pub(crate) fn needs_samples(metrics: &[Metric]) -> Option<&Metric> {
    metrics.iter().find(|metric| {
        metric.measure.is_sampled()
            || (metric.over_time && metric.measure.kind() == MeasureKind::Samples)
    })
}
