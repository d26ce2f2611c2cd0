//! Metrics: the measures of a scenario, and where they apply.

mod measure;

use std::collections::BTreeMap;

use serde::Deserialize;
use weir_plan::event::Queue;

use crate::document::{ScenarioError, Tree, suggestion, texts};

pub use measure::{Measure, MeasureKind};

/// A named measure of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    pub id: String,
    pub label: String,
    /// Its unit in figures.
    pub unit: String,
    pub measure: Measure,
    /// The queue, for measures of queues.
    pub queue: Option<Queue>,
    /// The consumer's link, for measures of links.
    pub of_path: Option<u32>,
    /// Groups or nodes; empty for all that have the measure.
    pub at: Vec<String>,
    pub statistic: Statistic,
    /// Also records a number for every node.
    pub per_node: bool,
    /// Also records a series over time.
    pub over_time: bool,
    /// Also records the distribution of samples.
    pub distribution: bool,
    /// Its path in the file.
    pub path: String,
}

/// How samples are summarised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    Mean,
    Min,
    Max,
    Last,
    Percentile(f64),
    Count,
}

/// `[[metric]]`.
#[derive(Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(crate) struct MetricTable {
    id: String,
    measure: String,
    label: Option<String>,
    unit: Option<String>,
    #[serde(default, deserialize_with = "texts")]
    at: Vec<String>,
    queue: Option<String>,
    path: Option<u32>,
    statistic: Option<String>,
    #[serde(default)]
    per_node: bool,
    #[serde(default)]
    over_time: bool,
    #[serde(default)]
    distribution: bool,
}

/// Names of a node's queues in files.
const QUEUES: &[(&str, Queue)] = &[
    ("cpu", Queue::Cpu),
    ("store", Queue::Store),
    ("store-write", Queue::StoreWrite),
    ("pit", Queue::Pit),
    ("pit-data", Queue::PitData),
    ("fib", Queue::Fib),
    ("disk-reads", Queue::DiskReads),
    ("disk-writes", Queue::DiskWrites),
    ("disk-blocked", Queue::DiskBlocked),
];

/// Reads `[[metric]]`.
pub(crate) fn metrics(tree: &Tree, tables: Vec<MetricTable>) -> Result<Vec<Metric>, ScenarioError> {
    let mut metrics: Vec<Metric> = Vec::new();
    for (at, table) in tables.into_iter().enumerate() {
        let path = format!("metric[{at}]");
        let error = |(key, message): KeyError| tree.error(&format!("{path}.{key}"), message);
        let metric = table.metric(path.clone()).map_err(error)?;
        if metrics.iter().any(|other| other.id == metric.id) {
            let message =
                format!("two metrics have the id \"{}\"; give each its own `id`", metric.id);
            return Err(error(("id", message)));
        }
        metrics.push(metric);
    }
    if metrics.is_empty() {
        return Err(tree.error("", "nothing is measured; write at least one [[metric]]"));
    }
    Ok(metrics)
}

/// A key, and what is wrong with it.
type KeyError = (&'static str, String);

impl MetricTable {
    fn metric(self, path: String) -> Result<Metric, KeyError> {
        let word = &self.measure;
        let measure = Measure::ALL.iter().copied().find(|measure| measure.word() == word);
        let measure = measure.ok_or_else(|| {
            let words: Vec<&str> = Measure::ALL.iter().map(|measure| measure.word()).collect();
            ("measure", format!("unknown measure \"{word}\"; {}", suggestion(word, &words)))
        })?;
        let queue = self.queue(measure)?;
        if self.path.is_some() != measure.is_of_path() {
            let message = match measure.is_of_path() {
                true => format!("measure = \"{word}\" needs a path; write for example path = 0"),
                false => format!("`path` has no meaning for measure = \"{word}\"; remove it"),
            };
            return Err(("measure", message));
        }
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let id = &self.id;
        if id.is_empty() || id.as_bytes()[0].is_ascii_digit() || !id.bytes().all(is_plain) {
            let message = format!("is \"{id}\"; write letters, digits and '_', and no digit first");
            return Err(("id", message));
        }
        if self.distribution && measure.kind() != MeasureKind::Samples {
            let message =
                format!("\"{word}\" has no samples, so it has no distribution; remove this key");
            return Err(("distribution", message));
        }
        Ok(Metric {
            statistic: self.statistic(measure)?,
            label: self.label.unwrap_or_else(|| measure.label().to_owned()),
            unit: self.unit.unwrap_or_else(|| measure.unit().to_owned()),
            queue,
            of_path: self.path,
            measure,
            id: self.id,
            at: self.at,
            per_node: self.per_node,
            over_time: self.over_time,
            distribution: self.distribution,
            path,
        })
    }

    fn queue(&self, measure: Measure) -> Result<Option<Queue>, KeyError> {
        let word = measure.word();
        match &self.queue {
            None if measure.is_of_queue() => {
                let message = format!(
                    "measure = \"{word}\" needs a queue; write for example queue = \"store\""
                );
                Err(("measure", message))
            }
            None => Ok(None),
            Some(_) if !measure.is_of_queue() => {
                let message = format!("`queue` has no meaning for measure = \"{word}\"; remove it");
                Err(("measure", message))
            }
            Some(name) => {
                let queue = QUEUES.iter().find(|(word, _)| word == name);
                queue.map(|(_, queue)| Some(*queue)).ok_or_else(|| {
                    let names: Vec<&str> = QUEUES.iter().map(|(word, _)| *word).collect();
                    ("queue", format!("unknown queue \"{name}\"; {}", suggestion(name, &names)))
                })
            }
        }
    }

    fn statistic(&self, measure: Measure) -> Result<Statistic, KeyError> {
        let Some(word) = self.statistic.as_deref() else { return Ok(Statistic::Mean) };
        if measure.kind() != MeasureKind::Samples {
            let message = format!("\"{}\" has no samples; remove `statistic`", measure.word());
            return Err(("statistic", message));
        }
        let percentile = word.strip_prefix('p').and_then(|rest| rest.parse().ok());
        Ok(match (word, percentile) {
            ("mean", _) => Statistic::Mean,
            ("min", _) => Statistic::Min,
            ("max", _) => Statistic::Max,
            ("last", _) => Statistic::Last,
            ("count", _) => Statistic::Count,
            ("median", _) => Statistic::Percentile(50.0),
            (_, Some(percent)) if (0.0..=100.0).contains(&percent) => {
                Statistic::Percentile(percent)
            }
            _ => {
                let known = ["mean", "min", "max", "last", "count", "median", "p99"];
                let message = format!("unknown statistic \"{word}\"; {}", suggestion(word, &known));
                return Err(("statistic", message));
            }
        })
    }
}

impl Metric {
    /// The nodes it is measured at, in a plan with these groups and node names.
    pub(crate) fn nodes(
        &self,
        tree: &Tree,
        groups: &BTreeMap<String, Vec<usize>>,
        names: &[&str],
    ) -> Result<Option<Vec<usize>>, ScenarioError> {
        if self.at.is_empty() {
            return Ok(None);
        }
        let mut nodes = Vec::new();
        for word in &self.at {
            if let Some(group) = groups.get(word) {
                nodes.extend_from_slice(group);
            } else if let Some(node) = names.iter().position(|name| name == word) {
                nodes.push(node);
            } else {
                let mut known: Vec<&str> = groups.keys().map(String::as_str).collect();
                known.extend(names.iter().take(40));
                let message = format!(
                    "metric \"{}\" is at \"{word}\", which is neither a group nor a node; {}",
                    self.id,
                    suggestion(word, &known)
                );
                return Err(tree.error(&self.path, message));
            }
        }
        Ok(Some(nodes))
    }
}
