//! `claims.toml` of a paper: what it says, and what must hold of our results.

mod expression;
mod factorial;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_queueing::factorial::Analysis;

use crate::document::{self, ScenarioError, Tree, texts};
use crate::library::Paper;
use crate::record::Results;
use crate::scenario::Experiment;
use crate::stats::Estimate;
use crate::{Arm, Size};

use expression::Expression;
pub(crate) use factorial::of_seed;

/// All claims of a paper.
#[derive(Clone, Debug)]
pub struct Claims {
    /// Its folder's name.
    pub paper: String,
    /// Its title.
    pub title: String,
    /// In the order of the file.
    pub claims: Vec<Claim>,
}

/// One claim.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Unique in the paper.
    pub id: String,
    /// Figure, table or section of the paper.
    pub figure: String,
    /// What is measured, in words.
    pub metric: String,
    /// What the paper says.
    pub text: String,
    /// Unit of the numbers.
    pub unit: String,
    /// Why it does not hold here, where it is known not to; else empty.
    pub differs: String,
    /// Where the results come from.
    pub source: Source,
    /// What must hold.
    pub rules: Rules,
    /// Sizes at which it is checked; others report it as not applicable.
    pub sizes: Vec<Size>,
    measure: Expression,
    order: Vec<Expression>,
    line: usize,
    file: Arc<str>,
}

/// Where the results of a claim come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A scenario of the paper, in one arm.
    Scenario {
        /// Its name.
        name: String,
        /// The arm; the scenario's first one when `None`.
        arm: Option<Arm>,
    },
    /// A table of the paper: a factorial design, analysed.
    Data(Analysis),
}

/// What must hold of the measured value. All that are given must.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// The paper's value.
    pub paper: Option<f64>,
    /// Greatest relative difference from it.
    pub within: Option<f64>,
    /// Greatest absolute difference from it.
    pub within_absolute: Option<f64>,
    /// Least value.
    pub at_least: Option<f64>,
    /// Greatest value.
    pub at_most: Option<f64>,
}

/// A claim as it was found to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimResult {
    /// Unique in the paper.
    pub id: String,
    /// Figure, table or section of the paper.
    pub figure: String,
    /// What is measured, in words and with its unit.
    pub metric: String,
    /// The paper's value, if it gives one.
    pub paper: Option<f64>,
    /// The mean over seeds.
    pub measured: Option<f64>,
    /// Lower end of its 95 % confidence interval.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Whether the claim holds; `None` where it was not measured.
    pub holds: Option<bool>,
    /// The rule, and what the paper says.
    pub note: String,
    /// Why it does not hold, where that is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub differs: String,
}

/// The object that `weir lab reproduce --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reproduction {
    /// The paper.
    pub paper: String,
    /// Its claims.
    pub claims: Vec<ClaimResult>,
}

/// What expressions are evaluated over.
pub(crate) struct Evaluation<'a> {
    pub(crate) experiment: Option<&'a Experiment>,
    pub(crate) results: &'a Results,
    pub(crate) data: Option<&'a Analysis>,
}

/// `claims.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimsFile {
    paper: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    claim: Vec<ClaimTable>,
}

/// `[[claim]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimTable {
    id: String,
    figure: String,
    metric: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    unit: String,
    #[serde(default)]
    differs: String,
    scenario: Option<String>,
    arm: Option<Arm>,
    data: Option<String>,
    sizes: Option<Vec<Size>>,
    measure: Option<String>,
    #[serde(default, deserialize_with = "texts")]
    order: Vec<String>,
    paper: Option<f64>,
    within: Option<f64>,
    within_absolute: Option<f64>,
    at_least: Option<f64>,
    at_most: Option<f64>,
}

impl Claims {
    /// Reads a paper's `claims.toml`.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn load(paper: &Paper) -> Result<Self, ScenarioError> {
        let file: Arc<str> = format!("{}/claims.toml", paper.id).into();
        let text = paper.folder.read("claims.toml").map_err(|message| ScenarioError {
            file: paper.id.clone(),
            line: None,
            message: format!("has no claims: {message}"),
        })?;
        let tree = document::parse(&file, &text)?;
        let file: ClaimsFile = tree.read()?;
        let mut claims: Vec<Claim> = Vec::new();
        for (at, table) in file.claim.into_iter().enumerate() {
            let path = format!("claim[{at}]");
            let claim = claim(&tree, &path, table, paper)?;
            if claims.iter().any(|other| other.id == claim.id) {
                let message =
                    format!("two claims are called \"{}\"; give each an `id` of its own", claim.id);
                return Err(tree.error(&format!("{path}.id"), message));
            }
            claims.push(claim);
        }
        Ok(Self { paper: file.paper, title: file.title, claims })
    }
}

fn claim(
    tree: &Tree,
    path: &str,
    table: ClaimTable,
    paper: &Paper,
) -> Result<Claim, ScenarioError> {
    let parse = |key: &str, text: &str| {
        expression::parse(text).map_err(|message| tree.error(&format!("{path}.{key}"), message))
    };
    let order: Vec<Expression> =
        table.order.iter().map(|text| parse("order", text)).collect::<Result<_, _>>()?;
    let measure = match (&table.measure, order.as_slice()) {
        (Some(text), _) => parse("measure", text)?,
        (None, [first, second, ..]) => {
            Expression::Binary('/', Box::new(first.clone()), Box::new(second.clone()))
        }
        _ => {
            let message = "lacks `measure`, such as measure = \"mean(goodput)\", or an `order` of \
                           at least two";
            return Err(tree.error(path, message));
        }
    };
    let rules = Rules {
        paper: table.paper,
        within: table.within,
        within_absolute: table.within_absolute,
        at_least: table.at_least,
        at_most: table.at_most,
    };
    let needs_paper = rules.within.is_some() || rules.within_absolute.is_some();
    if needs_paper && rules.paper.is_none() {
        let message = "compares with `paper`; write the paper's value, too";
        return Err(tree.error(&format!("{path}.within"), message));
    }
    if order.is_empty() && !needs_paper && rules.at_least.is_none() && rules.at_most.is_none() {
        let message = "has no rule; write `within`, `within_absolute`, `at_least`, `at_most` or \
                       `order`";
        return Err(tree.error(path, message));
    }
    Ok(Claim {
        source: source(tree, path, &table, paper)?,
        id: table.id,
        figure: table.figure,
        metric: table.metric,
        text: table.text,
        unit: table.unit,
        differs: table.differs,
        rules,
        sizes: table.sizes.unwrap_or_else(|| vec![Size::Smoke, Size::Full]),
        measure,
        order,
        line: tree.line(path),
        file: Arc::clone(&tree.file),
    })
}

fn source(
    tree: &Tree,
    path: &str,
    table: &ClaimTable,
    paper: &Paper,
) -> Result<Source, ScenarioError> {
    match (&table.scenario, &table.data) {
        (Some(name), None) => Ok(Source::Scenario { name: name.clone(), arm: table.arm }),
        (None, Some(data)) => {
            let error = |message: String| tree.error(&format!("{path}.data"), message);
            let text = paper.folder.read(data).map_err(error)?;
            let analysis = weir_queueing::factorial::parse(&text)
                .and_then(|design| design.analyse(factorial::CONFIDENCE))
                .map_err(|problem| error(format!("{data}: {problem}")))?;
            Ok(Source::Data(analysis))
        }
        _ => Err(tree.error(path, "has either a `scenario` or `data`; name one")),
    }
}

impl Claim {
    /// Refuses what the scenario has not: metrics, axes, effects.
    ///
    /// # Errors
    /// What is wrong, with the claim's line.
    pub fn check(&self, experiment: Option<&Experiment>) -> Result<(), ScenarioError> {
        // A sweep may have other values at the other size.
        if !self.is_sized(experiment) {
            return Ok(());
        }
        let all = std::iter::once(&self.measure).chain(&self.order);
        for expression in all {
            expression.check(experiment).map_err(|message| ScenarioError {
                file: self.file.to_string(),
                line: Some(self.line),
                message: format!("claim \"{}\": {message}", self.id),
            })?;
        }
        Ok(())
    }

    /// Whether it is checked at the experiment's size.
    fn is_sized(&self, experiment: Option<&Experiment>) -> bool {
        experiment.is_none_or(|experiment| self.sizes.contains(&experiment.size))
    }

    /// The claim over the results of its scenario; over its own data when `experiment` is `None`.
    #[must_use]
    pub(crate) fn evaluate(
        &self,
        experiment: Option<&Experiment>,
        results: &Results,
    ) -> ClaimResult {
        let data = match &self.source {
            Source::Data(analysis) => Some(analysis),
            Source::Scenario { .. } => None,
        };
        let of = Evaluation { experiment, results, data };
        let seeds: Vec<u64> = match experiment {
            Some(experiment) => experiment.seeds.clone(),
            None => vec![0],
        };
        let estimate = |expression: &Expression| {
            let values: Vec<f64> =
                seeds.iter().filter_map(|seed| expression.value(&of, *seed)).collect();
            let values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
            // A number that some seeds lack would be one of those that have it.
            if values.len() < seeds.len() { None } else { Estimate::of(&values) }
        };
        let measured = estimate(&self.measure);
        let order: Vec<Option<f64>> =
            self.order.iter().map(|e| estimate(e).map(|e| e.mean)).collect();
        let is_sized = self.is_sized(experiment);
        let is_complete = match &self.source {
            Source::Data(_) => true,
            Source::Scenario { .. } => {
                experiment.is_some_and(|experiment| results.is_complete(experiment))
            }
        };
        let holds = (is_sized && is_complete).then(|| self.holds(measured.as_ref(), &order));
        let finite = |value: f64| value.is_finite().then_some(value);
        let metric = match self.unit.as_str() {
            "" => self.metric.clone(),
            unit => format!("{} [{unit}]", self.metric),
        };
        ClaimResult {
            id: self.id.clone(),
            figure: self.figure.clone(),
            metric,
            paper: self.rules.paper,
            measured: measured.and_then(|estimate| finite(estimate.mean)),
            low: measured.and_then(|estimate| estimate.low).and_then(finite),
            high: measured.and_then(|estimate| estimate.high).and_then(finite),
            holds,
            note: self.note(measured.is_none() || order.contains(&None), is_sized),
            differs: if holds == Some(false) { self.differs.clone() } else { String::new() },
        }
    }

    fn holds(&self, measured: Option<&Estimate>, order: &[Option<f64>]) -> bool {
        let Some(order) = order.iter().copied().collect::<Option<Vec<f64>>>() else {
            return false;
        };
        if !order.windows(2).all(|pair| pair[0] > pair[1]) {
            return false;
        }
        let rules = &self.rules;
        let has_bound = rules.within.is_some()
            || rules.within_absolute.is_some()
            || rules.at_least.is_some()
            || rules.at_most.is_some();
        if !has_bound {
            return true;
        }
        // What cannot be measured although every run is there does not hold either.
        let Some(measured) = measured else { return false };
        let value = measured.mean;
        let paper = rules.paper.unwrap_or(0.0);
        let difference = (value - paper).abs();
        rules.within.is_none_or(|most| difference <= most * paper.abs())
            && rules.within_absolute.is_none_or(|most| difference <= most)
            && rules.at_least.is_none_or(|least| value >= least)
            && rules.at_most.is_none_or(|most| value <= most)
    }

    fn note(&self, is_missing: bool, is_sized: bool) -> String {
        let rules = &self.rules;
        let mut parts = Vec::new();
        if let Some(within) = rules.within {
            parts.push(format!("within {} % of the paper's value", within * 100.0));
        }
        if let Some(within) = rules.within_absolute {
            parts.push(format!("within {within} of the paper's value"));
        }
        if let Some(least) = rules.at_least {
            parts.push(format!("at least {least}"));
        }
        if let Some(most) = rules.at_most {
            parts.push(format!("at most {most}"));
        }
        if !self.order.is_empty() {
            parts.push(format!("{} numbers in falling order", self.order.len()));
        }
        let mut note = format!("Rule: {}.", parts.join(", "));
        if !is_sized {
            note.push_str(" Checked at the other size only.");
        } else if is_missing {
            note.push_str(" Not measured with every seed.");
        }
        if !self.text.is_empty() {
            note.push_str(&format!(" Paper: {}", self.text));
        }
        note
    }
}

impl Reproduction {
    /// Whether no claim that was measured fails.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.claims.iter().all(|claim| claim.holds != Some(false))
    }
}
