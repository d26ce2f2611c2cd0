//! The claims of a paper (`claims.toml`), and the verdict of our results on each.
//!
//! A claim compares a number with a band, or demands an order of numbers. The verdict follows from
//! the 95 % confidence interval of the number over at least three seeds:
//!
//! | the interval | verdict |
//! |---|---|
//! | lies inside the band | reproduced |
//! | lies outside, on a side that the claim declares as better | better |
//! | lies outside, on another side | differs |
//! | crosses an end of the band, or is missing | not measured |
//!
//! Steps:
//!
//! 1. Evaluate the claim's expression once for each seed. A value that is missing for one seed
//!    makes the claim not measured.
//! 2. If the claim names two arms (`arm` and `compared_arm`), divide their values seed by seed.
//! 3. Compute the mean and the interval (Student's t). A claim about the models has an exact value.
//! 4. Compare the interval with the band. For an order, the number is the smallest lead of an
//!    element over the next, and its interval must lie above 0.
//! 5. For a claim that differs, look up its cause. The cause lists experiments, which are other
//!    claims of the same file. It counts as shown only if all of them came out as expected in the
//!    same run.
//!
//! Example: the band is 1.8 to 2.2 and three seeds give 1.9, 2.0 and 2.1. The interval is 2.0 +-
//! 0.25, which crosses both ends, so the claim is not measured. Ten seeds with the same spread give
//! 2.0 +- 0.07, and the claim is reproduced.
//!
//! An interval that crosses only the better end still counts as reproduced. A verdict must never
//! come from the mean alone, and a recorded verdict is never replaced by one that did not run.

mod expression;
mod factorial;
mod model;
mod recorded;
mod rule;
#[cfg(test)]
mod tests;
mod verdict;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_scenario::document::{self, Tree, suggestion, texts};
use weir_scenario::{Arm, Experiment, Paper, ScenarioError, Size};

use crate::record::Results;
use crate::stats::Estimate;

pub(crate) use factorial::of_seed;
pub(crate) use recorded::RecordedClaim;
pub(crate) use recorded::RecordedVerdicts;
pub(crate) use rule::{Better, Rule};
pub(crate) use verdict::Verdict;

use expression::Expression;

/// Minimum number of seeds for a verdict. The interval of fewer is too wide to mean anything.
const SEEDS_MIN: usize = 3;

/// Why a claim has no verdict if its scenario did not run.
pub(crate) const NOT_RUN: &str = "Not run at this size, or in this arm.";

/// All claims of a paper.
#[derive(Clone, Debug)]
pub struct Claims {
    /// Name of the paper's folder.
    pub paper: String,
    pub title: String,
    /// In file order.
    pub claims: Vec<Claim>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimKind {
    #[default]
    Paper,
    /// Our own claim about something that the paper does not have.
    Beyond,
    /// An experiment that shows why a result differs from the paper's.
    Experiment,
}

#[derive(Clone, Debug)]
pub struct Claim {
    /// Unique within the paper.
    pub id: String,
    pub kind: ClaimKind,
    /// Figure, table or section of the paper.
    pub figure: String,
    pub metric: String,
    pub text: String,
    pub unit: String,
    pub source: ClaimSource,
    /// The other arm, if the number is the ratio of both arms, seed by seed.
    pub compared_arm: Option<Arm>,
    /// The paper's value, if it gives one.
    pub paper: Option<f64>,
    pub rule: Rule,
    /// Why our results differ, if this is known.
    pub cause: Option<Cause>,
    /// Sizes at which the claim is measured.
    pub sizes: Vec<Size>,
    measure: Expression,
    /// The measurement and its comparison, as the file has them.
    rule_text: String,
    line: usize,
    file: Arc<str>,
}

/// The source of a claim's results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimSource {
    /// A scenario of the paper, in one arm.
    Scenario {
        name: String,
        /// The arm; `None` means the scenario's first one.
        arm: Option<Arm>,
    },
    /// The analytical models only.
    Model,
}

/// Why results differ from the paper's.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub struct Cause {
    pub text: String,
    /// Claims of the same file whose outcomes show it; at least one.
    pub shown_by: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimResult {
    /// Unique within the paper.
    pub id: String,
    pub kind: ClaimKind,
    /// Figure, table or section of the paper.
    pub figure: String,
    /// The measured quantity in words, with its unit.
    pub metric: String,
    /// The paper's value, if it gives one.
    pub paper: Option<f64>,
    /// Lower and upper end of the band.
    pub band: [f64; 2],
    /// Whether the claim is an order. The number is then the smallest lead of an element over the
    /// next, relative to the larger of the two.
    #[serde(default)]
    pub is_order: bool,
    /// Mean over the seeds.
    pub measured: Option<f64>,
    /// Its 95 % confidence interval over the seeds.
    pub interval: Option<[f64; 2]>,
    pub verdict: Verdict,
    /// Why the verdict is not `reproduced`; empty if it is.
    pub cause: String,
    /// Whether experiments of the same run show the cause of a difference.
    pub is_shown: bool,
    /// The reason for the band, and the paper's text.
    pub note: String,
}

/// The object that `weir lab reproduce --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reproduction {
    pub paper: String,
    pub size: Size,
    pub claims: Vec<ClaimResult>,
}

/// The input of an evaluation.
pub(crate) struct Evaluation<'a> {
    pub(crate) experiment: Option<&'a Experiment>,
    pub(crate) results: &'a Results,
}

/// `claims.toml`.
#[derive(Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
struct ClaimsFile {
    paper: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    claim: Vec<ClaimTable>,
}

/// `[[claim]]`.
#[derive(Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
struct ClaimTable {
    id: String,
    #[serde(default)]
    kind: ClaimKind,
    figure: String,
    metric: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    unit: String,
    scenario: Option<String>,
    arm: Option<Arm>,
    #[serde(alias = "beside")]
    compared_arm: Option<Arm>,
    sizes: Option<Vec<Size>>,
    measure: Option<String>,
    #[serde(default, deserialize_with = "texts")]
    order: Vec<String>,
    paper: Option<f64>,
    band: Option<[f64; 2]>,
    #[serde(default)]
    band_reason: String,
    better: Option<Better>,
    cause: Option<Cause>,
}

impl Claims {
    /// Reads a paper's `claims.toml`.
    pub(crate) fn load(paper: &Paper) -> Result<Self, ScenarioError> {
        let file: Arc<str> = format!("{}/claims.toml", paper.id).into();
        let text = paper.folder.read("claims.toml").map_err(|message| ScenarioError {
            file: paper.id.clone(),
            line: None,
            message: format!("has no claims: {message}"),
        })?;
        let tree = document::parse(&file, &text)?;
        let file: ClaimsFile = tree.read()?;
        let mut claims: Vec<Claim> = Vec::new();
        let scenarios = paper.scenario_names();
        for (at, table) in file.claim.into_iter().enumerate() {
            let path = format!("claim[{at}]");
            if let Some(name) = table.scenario.as_ref().filter(|name| !scenarios.contains(name)) {
                let known: Vec<&str> = scenarios.iter().map(String::as_str).collect();
                let message = format!("no scenario \"{name}\"; {}", suggestion(name, &known));
                return Err(tree.error(&format!("{path}.scenario"), message));
            }
            let claim = claim(&tree, &path, table)?;
            if claims.iter().any(|other| other.id == claim.id) {
                let message =
                    format!("two claims have the id \"{}\"; give each its own `id`", claim.id);
                return Err(tree.error(&format!("{path}.id"), message));
            }
            claims.push(claim);
        }
        check_causes(&tree, &claims)?;
        Ok(Self { paper: file.paper, title: file.title, claims })
    }
}

/// Rejects a cause whose experiments are missing, belong to the paper, or have a cause themselves.
fn check_causes(tree: &Tree, claims: &[Claim]) -> Result<(), ScenarioError> {
    for (at, claim) in claims.iter().enumerate() {
        let Some(cause) = &claim.cause else { continue };
        let error = |message: String| tree.error(&format!("claim[{at}].cause"), message);
        if cause.shown_by.is_empty() {
            let message = "names no experiment; list the ids of claims that show the cause in \
                `shown_by`";
            return Err(error(message.into()));
        }
        for id in &cause.shown_by {
            let found = claims.iter().find(|other| other.id == *id && other.id != claim.id);
            match found {
                None => return Err(error(format!("there is no other claim \"{id}\""))),
                Some(other) if other.cause.is_some() => {
                    let message = format!("\"{id}\" differs itself and can show no cause");
                    return Err(error(message));
                }
                Some(other) if other.kind == ClaimKind::Paper => {
                    let message = format!(
                        "\"{id}\" is the paper's own claim; name one with kind = \"experiment\""
                    );
                    return Err(error(message));
                }
                Some(_) => {}
            }
        }
    }
    Ok(())
}

/// Rejects a comparison of arms that names only one arm, or whose result is not a number.
fn check_arm_comparison(
    tree: &Tree,
    path: &str,
    arm: Option<Arm>,
    compared_arm: Option<Arm>,
    rule: &Rule,
) -> Result<(), ScenarioError> {
    if compared_arm.is_none() || (arm.is_some() && arm != compared_arm && *rule != Rule::Order) {
        return Ok(());
    }
    let message = "compares what is measured in an `arm` with the other one: give both, and a \
                   `measure` with a `band`";
    Err(tree.error(&format!("{path}.compared_arm"), message))
}

/// What a claim measures, and when it is reproduced.
fn measure_and_rule(
    tree: &Tree,
    path: &str,
    table: &ClaimTable,
) -> Result<(Expression, Rule), ScenarioError> {
    let parse = |key: &str, text: &str| {
        expression::parse(text).map_err(|message| tree.error(&format!("{path}.{key}"), message))
    };
    let order: Vec<Expression> =
        table.order.iter().map(|text| parse("order", text)).collect::<Result<_, _>>()?;
    // A claim has either a band or an order; any other combination of keys is an error.
    match (&table.measure, table.band, order.len()) {
        (Some(text), Some(band), 0) => {
            let (reason, better) = (table.band_reason.clone(), table.better.clone());
            let rule = Rule::band(band, reason, better)
                .map_err(|message| tree.error(&format!("{path}.band"), message))?;
            Ok((parse("measure", text)?, rule))
        }
        (None, None, 2..) if table.better.is_none() && table.band_reason.is_empty() => {
            Ok((Expression::Lead(order), Rule::Order))
        }
        _ => {
            let message = "is either a `measure` with a `band` of two ends and a `band_reason`, \
                           or an `order` of at least two";
            Err(tree.error(path, message))
        }
    }
}

fn claim(tree: &Tree, path: &str, table: ClaimTable) -> Result<Claim, ScenarioError> {
    let (measure, rule) = measure_and_rule(tree, path, &table)?;
    if table.scenario.is_none() && table.arm.is_some() {
        let message = "has an `arm` and no `scenario`; the models have no arms";
        return Err(tree.error(path, message));
    }
    check_arm_comparison(tree, path, table.arm, table.compared_arm, &rule)?;
    if table.sizes.as_ref().is_some_and(Vec::is_empty) {
        let message = "is empty, so nothing is measured; omit `sizes` to measure at both sizes";
        return Err(tree.error(&format!("{path}.sizes"), message));
    }
    if table.scenario.is_some() && !measure.is_of_results() {
        let message = "measures nothing: it names no metric of its scenario";
        return Err(tree.error(path, message));
    }
    // Everything that changes the meaning of the numbers. Recorded verdicts with another text are
    // not comparable.
    let rule_text = format!(
        "{} {}{} {} {}",
        table.scenario.as_deref().unwrap_or("model"),
        table.arm.map_or("", Arm::as_str),
        table.compared_arm.map_or(String::new(), |arm| format!(" / {}", arm.as_str())),
        table.measure.as_deref().unwrap_or_default(),
        table.order.join(" > "),
    );
    let source = match table.scenario {
        Some(name) => ClaimSource::Scenario { name, arm: table.arm },
        None => ClaimSource::Model,
    };
    let claim = Claim {
        source,
        compared_arm: table.compared_arm,
        id: table.id,
        kind: table.kind,
        figure: table.figure,
        metric: table.metric,
        text: table.text,
        unit: table.unit,
        paper: table.paper,
        rule,
        cause: table.cause,
        sizes: table.sizes.unwrap_or_else(|| vec![Size::Smoke, Size::Full]),
        measure,
        rule_text,
        line: tree.line(path),
        file: Arc::clone(&tree.file),
    };
    // A claim about a scenario is checked later, when its sweep is known.
    if claim.source == ClaimSource::Model {
        claim.check(None)?;
    }
    Ok(claim)
}

impl Claim {
    /// The measurement and its comparison as text. Results of another rule are not comparable.
    pub(crate) fn rule_text(&self) -> &str {
        &self.rule_text
    }

    /// Rejects metrics, axes and effects that the scenario does not have.
    pub(crate) fn check(&self, experiment: Option<&Experiment>) -> Result<(), ScenarioError> {
        // A sweep may have other values at the other size.
        if experiment.is_some_and(|experiment| !self.sizes.contains(&experiment.size)) {
            return Ok(());
        }
        self.measure.check(experiment).map_err(|message| ScenarioError {
            file: self.file.to_string(),
            line: Some(self.line),
            message: format!("claim \"{}\": {message}", self.id),
        })
    }

    /// Evaluates the claim over the results of its scenario, and of the arm it is compared with. If
    /// `experiment` is `None`, it uses only the models. [`assign_causes`] finds the cause of a
    /// difference.
    pub(crate) fn evaluate(
        &self,
        experiment: Option<&Experiment>,
        results: &Results,
        compared: Option<&Results>,
    ) -> ClaimResult {
        let of = Evaluation { experiment, results };
        let compared = compared.map(|results| Evaluation { experiment, results });
        let (verdict, estimate, cause) = match self.estimate(&of, compared.as_ref()) {
            Ok(estimate) => {
                let (verdict, cause) = self.rule.verdict(&estimate);
                (verdict, Some(estimate), cause)
            }
            Err((estimate, cause)) => (Verdict::NotMeasured, estimate, cause),
        };
        let metric = match self.unit.as_str() {
            "" => self.metric.clone(),
            unit => format!("{} [{unit}]", self.metric),
        };
        ClaimResult {
            id: self.id.clone(),
            kind: self.kind,
            figure: self.figure.clone(),
            metric,
            paper: self.paper,
            band: self.rule.ends(),
            is_order: self.rule == Rule::Order,
            measured: estimate.map(|estimate| estimate.mean),
            interval: estimate.and_then(|e| Some([e.low?, e.high?])),
            verdict,
            cause,
            is_shown: false,
            note: self.note(),
        }
    }

    /// The mean with its interval. The error says why there is no verdict, with the mean if there
    /// is one.
    fn estimate(
        &self,
        of: &Evaluation<'_>,
        compared: Option<&Evaluation<'_>>,
    ) -> Result<Estimate, (Option<Estimate>, String)> {
        let because = |why: &str| Err((None, why.to_owned()));
        let Some(experiment) = of.experiment else {
            if self.source != ClaimSource::Model {
                return because(NOT_RUN);
            }
            return match self.measure.value(of, 0).filter(|value| value.is_finite()) {
                Some(value) => Ok(Estimate::exact(value)),
                None => because("The model gives no number."),
            };
        };
        if !self.sizes.contains(&experiment.size) {
            return because("Measured at the other size only.");
        }
        if self.compared_arm.is_some() && compared.is_none() {
            return because("Takes runs of both arms, which `weir lab reproduce` makes.");
        }
        let all = [Some(of), compared];
        if !all.into_iter().flatten().all(|of| of.results.is_complete(experiment)) {
            return because("Runs are missing.");
        }
        let value = |seed: &u64| {
            let value = self.measure.value(of, *seed)?;
            match compared {
                Some(compared) => Some(value / self.measure.value(compared, *seed)?),
                None => Some(value),
            }
        };
        let values = experiment.seeds.iter().map(value);
        // A number that is missing for some seeds would be biased towards the seeds that have it.
        let values: Option<Vec<f64>> =
            values.map(|value| value.filter(|value| value.is_finite())).collect();
        match values.as_deref().and_then(Estimate::of) {
            None => match of.results.missing().first() {
                Some(missing) => because(&format!("Nothing was measured: {missing}.")),
                None => because("Some seed gave no number."),
            },
            Some(estimate) if estimate.count < SEEDS_MIN => {
                let why =
                    format!("A verdict takes {SEEDS_MIN} seeds; these are {}.", estimate.count);
                Err((Some(estimate), why))
            }
            Some(estimate) => Ok(estimate),
        }
    }

    fn note(&self) -> String {
        let paper = match self.text.as_str() {
            "" => "",
            _ if self.kind == ClaimKind::Experiment || self.figure == "beyond" => " ",
            _ => " Paper: ",
        };
        format!("{}{paper}{}", self.rule.words(), self.text)
    }
}

/// Gives each difference its cause, and records whether the experiments named there show it.
pub(crate) fn assign_causes(claims: &[Claim], results: &mut [ClaimResult]) {
    let outcomes: Vec<(String, Verdict)> =
        results.iter().map(|result| (result.id.clone(), result.verdict)).collect();
    for result in results.iter_mut().filter(|result| result.verdict == Verdict::Differs) {
        let cause =
            claims.iter().find(|claim| claim.id == result.id).and_then(|c| c.cause.as_ref());
        let Some(cause) = cause else {
            result.cause = "The cause is not known.".to_owned();
            continue;
        };
        let failed = cause.shown_by.iter().find(|id| {
            !outcomes.iter().any(|(other, verdict)| {
                other == *id && matches!(verdict, Verdict::Reproduced | Verdict::Better)
            })
        });
        result.is_shown = failed.is_none();
        result.cause = match failed {
            None => format!("{} Shown by {}.", cause.text, cause.shown_by.join(", ")),
            Some(id) => format!("{} Not shown by this run: see {id}.", cause.text),
        };
    }
}

impl ClaimResult {
    /// Whether it differs from the paper and no experiment of the run shows why.
    pub fn is_unexplained(&self) -> bool {
        self.verdict == Verdict::Differs && !self.is_shown
    }
}
