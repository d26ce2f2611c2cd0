//! The axes of a sweep, and their points.

use serde::Deserialize;
use serde::de::IgnoredAny;
use weir_base::units;

use crate::document::{ScenarioError, Tree, Value, ValueNode, suggestion, texts_if_any};

/// One axis of a sweep. Axes are crossed: every point of one combines with every point of the
/// others.
#[derive(Clone, Debug)]
pub struct Axis {
    pub id: String,
    pub label: String,
    /// The unit of the values, for figures.
    pub unit: String,
    pub points: Vec<AxisPoint>,
}

#[derive(Clone, Debug)]
pub struct AxisPoint {
    /// The name in figures, records and claims.
    pub label: String,
    /// The value as a number in base units (bit/s, bytes, seconds, percent), if it is a single
    /// number.
    pub number: Option<f64>,
    /// The paths set in the scenario, and their values.
    pub(crate) set: Vec<(String, ValueNode)>,
}

/// One combination of values: for each axis, the number of its point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Indices in [`Axis::points`], in the order of the axes.
    pub at: Vec<usize>,
}

/// `[[sweep]]`. The values themselves are read from the tree.
#[derive(Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(crate) struct SweepTable {
    axis: String,
    label: Option<String>,
    unit: Option<String>,
    #[serde(default, deserialize_with = "texts_if_any")]
    path: Option<Vec<String>>,
    #[serde(rename = "values")]
    _values: Option<IgnoredAny>,
    #[serde(default, deserialize_with = "texts_if_any")]
    labels: Option<Vec<String>>,
    #[serde(rename = "zip")]
    _zip: Option<IgnoredAny>,
}

/// Tables whose keys can be swept.
const SWEPT: &[&str] = &[
    "run",
    "topology",
    "routes",
    "link",
    "access",
    "router",
    "routers",
    "producer",
    "consumer",
    "fault",
    "trial",
    "controller",
];

/// Limit on the points of a sweep.
const POINTS_MAX: usize = 100_000;

pub(crate) fn axes(tree: &Tree, tables: &[SweepTable]) -> Result<Vec<Axis>, ScenarioError> {
    let mut axes: Vec<Axis> = Vec::new();
    for (at, table) in tables.iter().enumerate() {
        let path = format!("sweep[{at}]");
        let axis = axis(tree, &path, table)?;
        if axes.iter().any(|other| other.id == axis.id) {
            let message =
                format!("two axes have the name \"{}\"; give each its own `axis`", axis.id);
            return Err(tree.error(&format!("{path}.axis"), message));
        }
        axes.push(axis);
    }
    let count = axes.iter().try_fold(1usize, |count, axis| count.checked_mul(axis.points.len()));
    if count.is_none_or(|count| count > POINTS_MAX) {
        let message = format!("the sweep has more than {POINTS_MAX} points; remove some values");
        return Err(tree.error("sweep", message));
    }
    Ok(axes)
}

fn axis(tree: &Tree, path: &str, table: &SweepTable) -> Result<Axis, ScenarioError> {
    let id = &table.axis;
    if ["time", "node", "metric", "seed"].contains(&id.as_str()) {
        let message = format!(
            "an axis cannot have the name \"{id}\", which is reserved for figures; choose another"
        );
        return Err(tree.error(&format!("{path}.axis"), message));
    }
    let columns = columns(tree, path, table)?;
    let length = columns[0].1.len();
    if let Some(labels) = &table.labels
        && labels.len() != length
    {
        let message = format!("has {} texts for {length} values; write one for each", labels.len());
        return Err(tree.error(&format!("{path}.labels"), message));
    }
    let mut points: Vec<AxisPoint> = Vec::with_capacity(length);
    let mut unit = "";
    for at in 0..length {
        let first = &columns[0].1[at];
        let label =
            table.labels.as_ref().map_or_else(|| first.label(), |labels| labels[at].clone());
        if points.iter().any(|point| point.label == label) {
            let message = format!("axis \"{id}\" has \"{label}\" twice; write every value once");
            return Err(tree.error_on(first.line, path, &message));
        }
        let set = columns.iter().map(|(path, values)| (path.clone(), values[at].clone())).collect();
        let number = match &table.labels {
            // A point may set several values. Its label stands for all of them, so no single number
            // describes the point.
            Some(_) => None,
            None => magnitude(first).map(|(number, of)| {
                unit = of;
                number
            }),
        };
        points.push(AxisPoint { label, number, set });
    }
    Ok(Axis {
        label: table.label.clone().unwrap_or_else(|| id.clone()),
        unit: table.unit.clone().unwrap_or_else(|| unit.to_owned()),
        id: id.clone(),
        points,
    })
}

type Column<'a> = (String, &'a [ValueNode]);

/// The paths that an axis sets, each with a value for every point.
fn columns<'a>(
    tree: &'a Tree,
    path: &str,
    table: &SweepTable,
) -> Result<Vec<Column<'a>>, ScenarioError> {
    let (values, zip) = (tree.at(&format!("{path}.values")), tree.at(&format!("{path}.zip")));
    let columns: Vec<(String, &'a ValueNode)> = match (&table.path, values, zip) {
        (Some(paths), Some(values), None) => {
            paths.iter().map(|path| (path.clone(), values)).collect()
        }
        (None, None, Some(zip)) => {
            zip.entries().iter().map(|entry| (entry.key.clone(), &entry.node)).collect()
        }
        _ => {
            let message = "a sweep has either `path` and `values`, or `zip = { \"a.path\" = [...], \
                           \"another\" = [...] }`";
            return Err(tree.error(path, message));
        }
    };
    let Some((first, values)) = columns.first() else {
        return Err(tree.error(path, "sets nothing; write at least one path"));
    };
    for (set, node) in &columns {
        let (count, length) = (node.items().len(), values.items().len());
        if count == 0 {
            let message = format!("the values of `{set}` must be a list of at least one");
            return Err(tree.error_on(node.line, path, &message));
        }
        if count != length {
            let message = format!(
                "`{set}` has {count} values and `{first}` has {length}; zipped lists must be \
                 equally long"
            );
            return Err(tree.error_on(node.line, path, &message));
        }
        let table = set.split('.').next().unwrap_or_default();
        if !SWEPT.contains(&table) {
            let message = format!(
                "the path `{set}` cannot be swept: `{table}` is not a table that a sweep sets; {}",
                suggestion(table, SWEPT)
            );
            return Err(tree.error(&format!("{path}.path"), message));
        }
    }
    Ok(columns.into_iter().map(|(path, node)| (path, node.items())).collect())
}

/// The value as a number in its base unit, and that unit. Fractions become percent.
fn magnitude(node: &ValueNode) -> Option<(f64, &'static str)> {
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
    /// Whether every value is a number, so that figures can use the axis.
    pub fn is_numeric(&self) -> bool {
        self.points.iter().all(|point| point.number.is_some())
    }
}

/// All points; the last axis varies fastest.
pub(crate) fn points(axes: &[Axis]) -> Vec<Point> {
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
pub(crate) fn apply(tree: &Tree, axes: &[Axis], point: &Point) -> Result<Tree, ScenarioError> {
    let mut tree = tree.clone();
    for (axis, value) in axes.iter().zip(&point.at) {
        for (path, node) in &axis.points[*value].set {
            tree.set(path, node)?;
        }
    }
    Ok(tree)
}
