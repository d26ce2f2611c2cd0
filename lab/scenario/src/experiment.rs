//! A scenario at one size: points, seeds, metrics and figures, all checked.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::document::{ScenarioError, Tree, Value, ValueNode};
use crate::factorial::{Factorial, factorial};
use crate::file::{File, Header};
use crate::folder::Folder;
use crate::metric::{self, Metric};
use crate::outputs::{self, Plot};
use crate::prepare::{Prepared, prepare};
use crate::sweep::{self, Axis, Point};
use crate::times::{RunTable, Seeds, times};
use crate::{Arm, Size};

/// Minimum number of seeds of a full run.
pub(crate) const SEEDS_FULL_MIN: usize = 5;

#[derive(Clone, Debug)]
pub struct Experiment {
    /// Its name and purpose.
    pub header: Header,
    pub size: Size,
    /// Every point runs with each seed.
    pub seeds: Vec<u64>,
    /// Axes of the sweep; without any, there is one point.
    pub axes: Vec<Axis>,
    /// All combinations of the axes' values; the last axis varies fastest.
    pub points: Vec<Point>,
    pub metrics: Vec<Metric>,
    pub plots: Vec<Plot>,
    /// The two-level factors of the sweep, if it is a factorial design.
    pub factorial: Option<Factorial>,
    /// The file, as the user named it.
    pub file: Arc<str>,
    folder: Folder,
    tree: Tree,
}

impl Experiment {
    pub(crate) fn new(
        header: Header,
        folder: Folder,
        tree: Tree,
        size: Size,
    ) -> Result<Self, ScenarioError> {
        let file: File = tree.read()?;
        let times = times(&tree, &file.run)?;
        let seeds = seeds(&tree, &file.run, size)?;
        let axes = sweep::axes(&tree, &file.sweep)?;
        let metrics = metric::metrics(&tree, file.metric)?;
        let plots = outputs::plots(&tree, file.plot, &axes, &metrics)?;
        if times.sample_ns == 0
            && let Some(metric) = outputs::needs_samples(&metrics)
        {
            let message = format!(
                "metric \"{}\" needs samples; write `sample`, such as \"100ms\", in [run]",
                metric.id
            );
            return Err(tree.error(&metric.path, message));
        }
        let arms = &header.arms;
        let is_measured =
            |metric: &Metric| arms.iter().any(|arm| metric.measure.is_measured_in(*arm));
        if let Some(metric) = metrics.iter().find(|metric| !is_measured(metric)) {
            let message = format!(
                "metric \"{}\" cannot be measured in any of the scenario's arms; \"{}\" needs the \
                 simulator: add \"sim\" to `arms`, or remove the metric",
                metric.id,
                metric.measure.word()
            );
            return Err(tree.error(&metric.path, message));
        }
        let factorial = factorial(&tree, file.factorial, &axes, &metrics)?;
        let points = sweep::points(&axes);
        let experiment = Self {
            header,
            size,
            seeds,
            axes,
            points,
            metrics,
            plots,
            factorial,
            file: Arc::clone(&tree.file),
            folder,
            tree,
        };
        experiment.check_points()?;
        experiment.check_trial()?;
        Ok(experiment)
    }

    /// Whether it measures trials instead of a workload.
    pub fn is_trial(&self) -> bool {
        self.tree.root.at("trial").is_some()
    }

    /// Rejects metrics that no point measures.
    fn check_trial(&self) -> Result<(), ScenarioError> {
        let refuse = |metric: &Metric, why: &str| {
            let word = metric.measure.word();
            Err(self.tree.error(&metric.path, format!("measure \"{word}\" {why}")))
        };
        if !self.is_trial() {
            let other = self.metrics.iter().find(|metric| metric.measure.is_of_trial());
            return other.map_or(Ok(()), |metric| refuse(metric, "is one of a [trial]"));
        }
        if self.header.arms != [Arm::Real] {
            let message = "of a [trial] is one of real processes; write arms = [\"real\"]";
            return Err(self.tree.error("scenario", message));
        }
        let mut given = BTreeSet::new();
        for point in &self.points {
            let trial = self.prepare(point, 1)?.trial;
            given.extend(trial.into_iter().flat_map(|trial| trial.measure_names().iter().copied()));
        }
        let other = self.metrics.iter().find(|metric| !given.contains(&metric.measure.word()));
        other.map_or(Ok(()), |metric| refuse(metric, "is given by no point of this [trial]"))
    }

    /// Creates every plan once, so that an error does not appear halfway through the run.
    fn check_points(&self) -> Result<(), ScenarioError> {
        let seed = self.seeds.first().copied().unwrap_or(1);
        for point in &self.points {
            let prepared = self.prepare(point, seed)?;
            self.nodes_of_metrics(&prepared)?;
            prepared.plan.check().map_err(|error| ScenarioError {
                file: self.file.to_string(),
                line: None,
                message: format!("{}: {error}", self.point_name(point)),
            })?;
        }
        Ok(())
    }

    /// The plan of one point and seed.
    pub fn prepare(&self, point: &Point, seed: u64) -> Result<Prepared, ScenarioError> {
        let tree = sweep::apply(&self.tree, &self.axes, point)?;
        prepare(&tree, &self.folder, seed)
    }

    /// The metrics that an arm cannot measure.
    pub fn not_measured_in(&self, arm: Arm) -> Vec<String> {
        let metrics = self.metrics.iter().filter(|metric| !metric.measure.is_measured_in(arm));
        metrics.map(|metric| metric.id.clone()).collect()
    }

    /// For each metric, the nodes it is measured at, as indices in the plan; `None` for all.
    pub fn nodes_of_metrics(
        &self,
        prepared: &Prepared,
    ) -> Result<Vec<Option<Vec<usize>>>, ScenarioError> {
        let names: Vec<&str> = prepared.plan.nodes.iter().map(|node| node.name.as_str()).collect();
        let nodes = |metric: &Metric| metric.nodes(&self.tree, &prepared.groups, &names);
        self.metrics.iter().map(nodes).collect()
    }

    /// The axes and labels of a point.
    pub fn coordinates(&self, point: &Point) -> Vec<(&str, &str)> {
        let pairs = self.axes.iter().zip(&point.at);
        pairs.map(|(axis, at)| (axis.id.as_str(), axis.points[*at].label.as_str())).collect()
    }

    /// The name of a point in messages.
    pub fn point_name(&self, point: &Point) -> String {
        let pairs: Vec<String> =
            self.coordinates(point).iter().map(|(axis, label)| format!("{axis}={label}")).collect();
        if pairs.is_empty() { "the only point".to_owned() } else { pairs.join(" ") }
    }
}

/// `run.seeds`: a count of seeds from `run.seed` on, or a list.
fn seeds(tree: &Tree, run: &RunTable, size: Size) -> Result<Vec<u64>, ScenarioError> {
    let first = run.seed.unwrap_or(1);
    let otherwise = if size == Size::Full { SEEDS_FULL_MIN as u64 } else { 1 };
    let from_first = |count: u64| (first..).take(count.min(10_000) as usize).collect();
    let seeds: Vec<u64> = match &run.seeds {
        Some(Seeds::List(seeds)) => seeds.clone(),
        Some(Seeds::Count(count)) => from_first(count.get()),
        None => from_first(otherwise),
    };
    let unique: BTreeSet<u64> = seeds.iter().copied().collect();
    if unique.len() != seeds.len() || seeds.is_empty() {
        let message = "is empty or has a seed twice; every seed runs once";
        return Err(tree.error("run.seeds", message));
    }
    if size == Size::Full && seeds.len() < SEEDS_FULL_MIN {
        let message = format!(
            "a full run has at least {SEEDS_FULL_MIN} seeds, for its confidence intervals; write \
                seeds = {{ smoke = {}, full = {SEEDS_FULL_MIN} }}",
            seeds.len()
        );
        return Err(tree.error("run.seeds", message));
    }
    Ok(seeds)
}

impl Experiment {
    /// A hash of everything that decides what is measured, in hexadecimal. Titles and figures can
    /// change without repeating the runs.
    pub fn hash(&self) -> Result<String, ScenarioError> {
        let mut text = String::new();
        for entry in self.tree.root.entries() {
            if !["scenario", "plot", "factorial"].contains(&entry.key.as_str()) {
                self.write_canonical(&entry.key, &entry.node, &mut text)?;
            }
        }
        let key = weir_base::HashKey::new([0x7765_6972, 0x6c61_6200]);
        Ok(format!("{:016x}", key.hash(text.as_bytes())))
    }

    fn write_canonical(
        &self,
        key: &str,
        node: &ValueNode,
        text: &mut String,
    ) -> Result<(), ScenarioError> {
        text.push_str(key);
        match &node.value {
            Value::Table(entries) => {
                let mut entries: Vec<_> = entries.iter().collect();
                // The order of keys in the file does not matter.
                entries.sort_by(|a, b| a.key.cmp(&b.key));
                text.push('{');
                for entry in entries {
                    self.write_canonical(&entry.key, &entry.node, text)?;
                }
                text.push('}');
            }
            Value::Array(nodes) => {
                text.push('[');
                for node in nodes {
                    self.write_canonical("", node, text)?;
                }
                text.push(']');
            }
            Value::Text(file) if ["file", "trace", "sizes_file"].contains(&key) => {
                // The content of a file decides what is measured, not its name.
                let content = self.folder.read(file).map_err(|message| ScenarioError {
                    file: self.file.to_string(),
                    line: Some(node.line),
                    message,
                })?;
                text.push_str(&format!("={content:?};"));
            }
            plain => text.push_str(&format!("={plain:?};")),
        }
        Ok(())
    }
}
