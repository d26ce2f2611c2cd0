//! Axes of a sweep and their points.

use std::sync::Arc;

use crate::document::{self, Node, Reader, ScenarioError, Value};

/// One axis of a sweep. Axes are crossed: every point of one with every point of the others.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Unique in the scenario.
    pub id: String,
    /// What figures call it.
    pub label: String,
    /// The unit of the values, for figures.
    pub unit: String,
    /// Its points.
    pub points: Vec<AxisPoint>,
}

/// One value of an axis.
#[derive(Clone, Debug)]
pub struct AxisPoint {
    /// How figures, records and claims name it.
    pub label: String,
    /// Its value where it is one number, in base units (bits a
    /// second, octets, seconds, percent).
    pub number: Option<f64>,
    /// What is set in the scenario, and to what.
    pub(super) set: Vec<(String, Node)>,
}

/// One combination of values: for each axis the number of its point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Indices into [`Axis::points`], in the order of the axes.
    pub at: Vec<usize>,
}

const KNOWN: &[&str] = &["axis", "label", "unit", "path", "values", "labels", "zip"];

/// Tables whose keys may be swept.
const SWEPT: &[&str] = &[
    "run", "topology", "routes", "link", "access", "router", "routers", "producer", "consumer",
    "fault",
];

/// Points that a sweep has at most.
const POINTS_MAX: usize = 100_000;

pub(super) fn axes(top: &Reader<'_>) -> Result<Vec<Axis>, ScenarioError> {
    let mut axes: Vec<Axis> = Vec::new();
    for reader in top.tables("sweep", KNOWN)? {
        let axis = axis(&reader)?;
        if axes.iter().any(|other| other.id == axis.id) {
            let message =
                format!("two axes are called \"{}\"; give each an `axis` of its own", axis.id);
            return Err(reader.error_at("axis", message));
        }
        axes.push(axis);
    }
    let count = axes.iter().try_fold(1usize, |count, axis| count.checked_mul(axis.points.len()));
    if count.is_none_or(|count| count > POINTS_MAX) {
        let message = format!(
            "the axes of the sweep have more than {POINTS_MAX} points together; \
                               leave some values out"
        );
        return Err(top.error_at("sweep", message));
    }
    Ok(axes)
}

fn axis(reader: &Reader<'_>) -> Result<Axis, ScenarioError> {
    let id = reader.required_text("axis")?.to_owned();
    if ["time", "node", "metric", "seed"].contains(&id.as_str()) {
        let message = format!(
            "an axis cannot be called \"{id}\", which figures know already; choose another"
        );
        return Err(reader.error_at("axis", message));
    }
    let columns = columns(reader)?;
    let length = columns[0].1.len();
    let labels = reader.texts("labels")?;
    if let Some(labels) = &labels
        && labels.len() != length
    {
        let message =
            format!("`labels` has {} texts for {length} values; write one for each", labels.len());
        return Err(reader.error_at("labels", message));
    }
    let mut points: Vec<AxisPoint> = Vec::with_capacity(length);
    let mut unit = "";
    for at in 0..length {
        let first = &columns[0].1[at];
        let label = labels.as_ref().map_or_else(|| first.label(), |labels| labels[at].clone());
        if points.iter().any(|point| point.label == label) {
            let message = format!("axis \"{id}\" has \"{label}\" twice; write every value once");
            return Err(reader.error(first.line, message));
        }
        let set = columns.iter().map(|(path, values)| (path.clone(), values[at].clone())).collect();
        let number = match &labels {
            // Labels stand for more than the first value.
            Some(_) => None,
            None => magnitude(first).map(|(number, of)| {
                unit = of;
                number
            }),
        };
        points.push(AxisPoint { label, number, set });
    }
    Ok(Axis {
        label: reader.text("label")?.unwrap_or(&id).to_owned(),
        unit: reader.text("unit")?.unwrap_or(unit).to_owned(),
        id,
        points,
    })
}

type Column<'a> = (String, &'a [Node]);

/// The paths that an axis sets, each with a value for every point.
fn columns<'a>(reader: &Reader<'a>) -> Result<Vec<Column<'a>>, ScenarioError> {
    let list = |key: &str, node: &'a Node| match &node.value {
        Value::Array(nodes) if !nodes.is_empty() => Ok(nodes.as_slice()),
        _ => Err(reader.error(node.line, format!("`{key}` must be a list of at least one value"))),
    };
    let mut columns: Vec<Column<'a>> = Vec::new();
    match (reader.node("values"), reader.node("zip")) {
        (Some(values), None) => {
            let values = list("values", values)?;
            let paths = reader.texts("path")?;
            let example = "\"router.store.bytes\"";
            for path in reader.required("path", example, paths)? {
                columns.push((path, values));
            }
        }
        (None, Some(zip)) => {
            if reader.has("path") {
                return Err(reader.error_at(
                    "path",
                    "`path` goes with `values`; the paths of `zip` are its keys",
                ));
            }
            for entry in zip.entries() {
                columns.push((entry.key.clone(), list(&entry.key, &entry.node)?));
            }
        }
        _ => {
            let message = "a sweep has either `path` and `values`, or `zip = { \"a.path\" = [...], \
                           \"another\" = [...] }`";
            return Err(reader.error(reader.line(), message));
        }
    }
    let line = reader.line();
    let Some(first) = columns.first() else {
        return Err(reader.error(line, "a sweep sets nothing; name at least one path"));
    };
    let length = first.1.len();
    for (path, values) in &columns {
        if values.len() != length {
            let message = format!(
                "`{path}` has {} values and `{}` has {length}; zipped lists are equally long",
                values.len(),
                first.0
            );
            return Err(reader.error(values[0].line, message));
        }
        let table = path.split('.').next().unwrap_or_default();
        if !SWEPT.contains(&table) {
            let message = format!(
                "the path `{path}` cannot be swept: `{table}` is no table of the network; {}",
                document::suggestion(table, SWEPT)
            );
            return Err(reader.error_at("path", message));
        }
    }
    Ok(columns)
}

/// The value as a number of base units (percent for shares), and that unit.
fn magnitude(node: &Node) -> Option<(f64, &'static str)> {
    use weir_base::units;
    let Value::Text(text) = &node.value else { return Some((node.number()?, "")) };
    if let Ok(share) = units::parse_probability(text) {
        return Some((share * 100.0, "%"));
    }
    units::parse_duration_ns(text)
        .map(|ns| (ns as f64 / 1e9, "s"))
        .or_else(|_| units::parse_bytes(text).map(|bytes| (bytes as f64, "B")))
        .or_else(|_| units::parse_rate_bps(text).map(|rate| (rate as f64, "bit/s")))
        .ok()
        .or_else(|| units::parse_frequency_hz(text).ok().map(|rate| (rate, "packets/s")))
}

impl Axis {
    /// Whether every value is a number, so that the axis can be one of a figure.
    #[must_use]
    pub(crate) fn is_numeric(&self) -> bool {
        self.points.iter().all(|point| point.number.is_some())
    }
}

/// All points, the last axis fastest.
pub(super) fn points(axes: &[Axis]) -> Vec<Point> {
    let mut points = vec![Point { at: Vec::new() }];
    for axis in axes {
        points = points
            .iter()
            .flat_map(|point| {
                (0..axis.points.len()).map(|value| {
                    let mut at = point.at.clone();
                    at.push(value);
                    Point { at }
                })
            })
            .collect();
    }
    points
}

/// The scenario with the values of one point.
pub(super) fn apply(
    file: &Arc<str>,
    root: &Node,
    axes: &[Axis],
    point: &Point,
) -> Result<Node, ScenarioError> {
    let mut root = root.clone();
    for (axis, value) in axes.iter().zip(&point.at) {
        for (path, node) in &axis.points[*value].set {
            document::set_path(file, &mut root, path, node)?;
        }
    }
    Ok(root)
}
