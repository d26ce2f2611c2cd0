//! Two-level factorial analysis of a scenario's results.

use weir_queueing::factorial::{Analysis, Design, Factor};
use weir_scenario::document::suggestion;
use weir_scenario::{Experiment, Factorial};

use super::Evaluation;
use crate::record::Results;

/// Confidence of the intervals of effects.
const CONFIDENCE: f64 = 0.95;

fn analysis(factorial: &Factorial, responses: Vec<f64>) -> Option<Analysis> {
    let level = |sign: &str| sign.to_owned();
    let factor = |name: &String| Factor { name: name.clone(), low: level("-1"), high: level("1") };
    let factors = factorial.factors.iter().map(|(letter, _)| factor(letter)).collect();
    let responses = responses.into_iter().map(|response| vec![response]).collect();
    Design::new(factors, responses).ok()?.analyse(CONFIDENCE).ok()
}

/// The effects in the results of one seed; `None` if some results are missing.
pub(crate) fn of_seed(experiment: &Experiment, results: &Results, seed: u64) -> Option<Analysis> {
    let factorial = experiment.factorial.as_ref()?;
    let mut responses = vec![f64::NAN; 1 << factorial.factors.len()];
    for (index, point) in experiment.points.iter().enumerate() {
        let mut run = 0;
        for (bit, (_, axis)) in factorial.factors.iter().enumerate() {
            let at = experiment.axes.iter().position(|other| other.id == *axis)?;
            run |= point.at[at] << bit;
        }
        let record = results.records.get(&(index, seed))?;
        let response = record.measured.values.get(&factorial.response).copied().flatten()?;
        responses[run] = if factorial.is_logarithmic { response.ln() } else { response };
    }
    if !responses.iter().all(|response| response.is_finite()) {
        return None;
    }
    analysis(factorial, responses)
}

/// Rejects effects that the scenario does not have.
pub(super) fn check(experiment: &Experiment, effect: &str) -> Result<(), String> {
    let Some(factorial) = &experiment.factorial else {
        return Err("the scenario has no [factorial]; add one with `response` and `factors`".into());
    };
    let names: Vec<String> = analysis(factorial, vec![0.0; 1 << factorial.factors.len()])
        .map(|analysis| analysis.effects.into_iter().map(|effect| effect.effect).collect())
        .unwrap_or_default();
    if names.iter().any(|name| name == effect) {
        return Ok(());
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Err(format!("there is no effect \"{effect}\"; {}", suggestion(effect, &names)))
}

pub(super) fn value(of: &Evaluation<'_>, seed: u64, function: &str, effect: &str) -> Option<f64> {
    let analysis = of_seed(of.experiment?, of.results, seed)?;
    let rank = analysis.effects.iter().position(|other| other.effect == effect)?;
    Some(match function {
        "variation" => analysis.effects[rank].variation_percent,
        "effect" => analysis.effects[rank].coefficient,
        _ => (rank + 1) as f64,
    })
}
