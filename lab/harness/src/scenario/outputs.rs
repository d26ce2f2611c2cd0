//! `[[plot]]`: which figures a scenario makes.

use std::collections::BTreeMap;

use super::Axis;
use crate::document::{Reader, ScenarioError, Value, suggestion};
use crate::metric::{Kind, Metric};

/// A figure of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Unique in the scenario; the name of its files.
    pub id: String,
    /// Above the figure.
    pub title: String,
    /// Under the figure in the report.
    pub caption: String,
    /// How it is drawn.
    pub kind: PlotKind,
    /// `time`, `node`, `value`, or the id of an axis.
    pub x: String,
    /// Ids of metrics.
    pub y: Vec<String>,
    /// Ids of axes whose points are series of their own.
    pub series: Vec<String>,
    /// Ids of axes for whose points there are panels; the last one goes across.
    pub panels: Vec<String>,
    /// Axes of which only one point is drawn, by label.
    pub filter: BTreeMap<String, String>,
    /// Logarithmic axes.
    pub x_log: bool,
    /// Logarithmic axes.
    pub y_log: bool,
    /// Label of the vertical axis; that of the metric when empty.
    pub y_label: String,
    /// Greatest value of the vertical axis.
    pub y_max: Option<f64>,
    /// Lines across the figure.
    pub references: Vec<ReferenceLine>,
}

/// A line across a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct ReferenceLine {
    /// What it stands for.
    pub name: String,
    /// Where it lies, in the unit of the axis.
    pub value: f64,
    /// Vertical, else horizontal.
    pub is_vertical: bool,
}

/// How a figure is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlotKind {
    /// Points joined by lines.
    Line,
    /// Values held until the next one.
    Steps,
    /// Bars for each value of x.
    Bars,
    /// Box plots over seeds (or nodes) for each value of x.
    Boxes,
    /// Distribution functions of samples.
    Distribution,
    /// A matrix of colours: x across, the series down.
    Heat,
}

const KNOWN: &[&str] = &[
    "id",
    "title",
    "caption",
    "kind",
    "x",
    "y",
    "series",
    "panels",
    "where",
    "x_log",
    "y_log",
    "y_label",
    "y_max",
    "reference",
];

pub(super) fn plots(
    top: &Reader<'_>,
    axes: &[Axis],
    metrics: &[Metric],
) -> Result<Vec<Plot>, ScenarioError> {
    let mut plots: Vec<Plot> = Vec::new();
    for reader in top.tables("plot", KNOWN)? {
        let plot = plot(&reader, axes, metrics)?;
        if plots.iter().any(|other| other.id == plot.id) {
            let message =
                format!("two plots are called \"{}\"; give each an `id` of its own", plot.id);
            return Err(reader.error_at("id", message));
        }
        plots.push(plot);
    }
    Ok(plots)
}

fn plot(reader: &Reader<'_>, axes: &[Axis], metrics: &[Metric]) -> Result<Plot, ScenarioError> {
    let kinds = ["line", "steps", "bars", "boxes", "distribution", "heat"];
    let kind = match reader.word("kind", &kinds)?.unwrap_or("line") {
        "steps" => PlotKind::Steps,
        "bars" => PlotKind::Bars,
        "boxes" => PlotKind::Boxes,
        "distribution" => PlotKind::Distribution,
        "heat" => PlotKind::Heat,
        _ => PlotKind::Line,
    };
    let id = reader.required_text("id")?.to_owned();
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)) {
        let message =
            format!("`id` is \"{id}\"; it names files: write letters, digits, '-' and '_'");
        return Err(reader.error_at("id", message));
    }
    let otherwise = if kind == PlotKind::Distribution { Some("value") } else { None };
    let x = reader.text("x")?.or(otherwise);
    let x = reader.required("x", "\"time\"", x)?.to_owned();
    let plot = Plot {
        title: reader.text("title")?.unwrap_or_default().to_owned(),
        caption: reader.text("caption")?.unwrap_or_default().to_owned(),
        y: reader.required("y", "\"goodput\"", reader.texts("y")?)?,
        series: reader.texts("series")?.unwrap_or_default(),
        panels: reader.texts("panels")?.unwrap_or_default(),
        filter: filter(reader, axes)?,
        x_log: reader.truth("x_log")?.unwrap_or(false),
        y_log: reader.truth("y_log")?.unwrap_or(false),
        y_label: reader.text("y_label")?.unwrap_or_default().to_owned(),
        y_max: reader.number("y_max")?,
        references: references(reader)?,
        id,
        kind,
        x,
    };
    check(reader, &plot, axes, metrics)?;
    Ok(plot)
}

fn references(reader: &Reader<'_>) -> Result<Vec<ReferenceLine>, ScenarioError> {
    let mut lines = Vec::new();
    for line in reader.tables("reference", &["name", "value", "vertical"])? {
        lines.push(ReferenceLine {
            name: line.required_text("name")?.to_owned(),
            value: line.required("value", "0.5", line.number("value")?)?,
            is_vertical: line.truth("vertical")?.unwrap_or(false),
        });
    }
    Ok(lines)
}

fn filter(reader: &Reader<'_>, axes: &[Axis]) -> Result<BTreeMap<String, String>, ScenarioError> {
    let mut filter = BTreeMap::new();
    let Some(node) = reader.node("where") else { return Ok(filter) };
    if !matches!(node.value, Value::Table(_)) {
        return Err(reader.error(
            node.line,
            "`where` is a table of axes and values, such as { store = \"10000\" }",
        ));
    }
    for entry in node.entries() {
        let label = entry.node.label();
        find_point(axes, &entry.key, &label)
            .map_err(|message| reader.error(entry.line, message))?;
        filter.insert(entry.key.clone(), label);
    }
    Ok(filter)
}

/// The indices of an axis and of its point of this label.
pub(crate) fn find_point(axes: &[Axis], axis: &str, label: &str) -> Result<(usize, usize), String> {
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

/// Refuses a plot of things that the scenario has not.
fn check(
    reader: &Reader<'_>,
    plot: &Plot,
    axes: &[Axis],
    metrics: &[Metric],
) -> Result<(), ScenarioError> {
    let ids: Vec<&str> = metrics.iter().map(|metric| metric.id.as_str()).collect();
    for y in &plot.y {
        let Some(metric) = metrics.iter().find(|metric| metric.id == *y) else {
            let message = format!("no [[metric]] has the id \"{y}\"; {}", suggestion(y, &ids));
            return Err(reader.error_at("y", message));
        };
        let missing = match plot.x.as_str() {
            "time" if !metric.over_time => "over_time = true",
            "node" if !metric.per_node => "per_node = true",
            "value" if !metric.distribution => "distribution = true",
            _ => continue,
        };
        let message =
            format!("metric \"{y}\" is not recorded that way; write {missing} in its [[metric]]");
        return Err(reader.error_at("y", message));
    }
    if (plot.x == "value") != (plot.kind == PlotKind::Distribution) {
        return Err(reader.error_at("x", "x = \"value\" and kind = \"distribution\" go together"));
    }
    let mut axis_ids: Vec<&str> = axes.iter().map(|axis| axis.id.as_str()).collect();
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
            return Err(reader.error_at(key, message));
        }
        if used.iter().filter(|other| *other == axis).count() > 1 || plot.filter.contains_key(axis)
        {
            let message = format!(
                "axis \"{axis}\" is used twice in this plot; use it in one of x, series, panels \
                    and where"
            );
            return Err(reader.error(reader.line(), message));
        }
    }
    if plot.kind == PlotKind::Heat && (plot.y.len() != 1 || plot.series.len() != 1) {
        return Err(
            reader.error_at("kind", "a heat map has one metric in `y` and one axis in `series`")
        );
    }
    Ok(())
}

/// Whether any metric of `metrics` needs periodic samples.
pub(super) fn needs_samples(metrics: &[Metric]) -> Option<&Metric> {
    metrics.iter().find(|metric| {
        metric.measure.is_sampled() || (metric.over_time && metric.measure.kind() == Kind::Samples)
    })
}
