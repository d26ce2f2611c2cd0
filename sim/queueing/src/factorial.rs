//! Two-level factorial designs with replications: which factor explains how much.
//!
//! With k factors at two levels each and r replications, the responses are fitted by `y = q_0 + q_A
//! x_A + q_B x_B + q_AB x_A x_B + ...` with x = -1 or 1. An effect with coefficient q explains `2^k
//! r q^2` of the total sum of squares. The variation within treatments is error. This is the method
//! of paper ccnx-measurement, section 3.5.
//!
//! Example with one factor and two replications: the responses are 10 and 12 at the low level, 20
//! and 22 at the high level. The mean is `q_0 = 16`, and `q_A = (21 - 11) / 2 = 5`. A explains `2 *
//! 2 * 25 = 100` of the total 104, and the error 4.

mod parse;

#[cfg(test)]
mod tests;

use serde::Serialize;
use statrs::distribution::{ContinuousCDF as _, StudentsT};

pub use parse::parse;

/// Limit on the factors of a design, which has 2^k treatments.
pub(crate) const FACTORS_MAX: usize = 16;

/// A factor and the names of its levels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Factor {
    pub name: String,
    /// The name of level -1 in the file.
    pub low: String,
    /// The name of level 1 in the file.
    pub high: String,
}

/// A complete design: every combination of levels, each with the same number of responses.
#[derive(Clone, Debug, PartialEq)]
pub struct Design {
    factors: Vec<Factor>,
    /// Responses of each treatment. Bit i of a treatment's number is set if factor i is high.
    responses: Vec<Vec<f64>>,
}

/// The result of an analysis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// The factors in file order.
    pub factors: Vec<Factor>,
    /// Responses of each treatment, r.
    pub replications: usize,
    /// Mean of all responses, q_0.
    pub mean: f64,
    /// All effects of single factors and of interactions, largest first.
    pub effects: Vec<Effect>,
    /// Percentage of the variation that is error; absent without replications.
    pub error_percent: Option<f64>,
    /// Standard deviation of a response's error; absent without replications.
    pub error_deviation: Option<f64>,
    pub confidence: f64,
}

/// The effect of one factor, or of several together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// Names of its factors: joined without a separator if all are single letters (`BC`), otherwise
    /// with `*`.
    pub effect: String,
    /// q: half the change of the response from -1 to 1.
    pub coefficient: f64,
    /// Percentage of the total variation.
    pub variation_percent: f64,
    /// Lower end of the confidence interval of q; absent without replications.
    pub low: Option<f64>,
    /// Upper end of the confidence interval of q; absent without replications.
    pub high: Option<f64>,
}

/// Why a design was not analysed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FactorialError {
    /// No rows.
    #[error("no rows: give a header such as `A,B,y` and a row for each run")]
    Empty,
    /// The header is not a list of factors followed by y.
    #[error("line {line}: {problem}: the header names the factors and then `y`, such as `A,B,y`")]
    Header { line: u64, problem: String },
    /// A row is invalid.
    #[error("line {line}: {problem}")]
    Row {
        line: u64,
        /// What is wrong and what to write.
        problem: String,
    },
    /// The file is not CSV.
    #[error("line {line}: not CSV: {problem}")]
    Csv { line: u64, problem: String },
    /// A factor that never changes.
    #[error(
        "factor {factor} is `{level}` in every row: leave it out, or add rows with its other level"
    )]
    OneLevel {
        factor: String,
        /// Its only level.
        level: String,
    },
    /// Treatments without a row.
    #[error(
        "{count} of {all} combinations have no row, such as {example}: a design needs every one"
    )]
    Missing { count: usize, all: usize, example: String },
    /// Treatments with more or fewer replications than others.
    #[error("{example} has {found} rows and others have {usual}: give every combination as many")]
    Unbalanced {
        example: String,
        found: usize,
        /// Rows of the first treatment.
        usual: usize,
    },
    /// A confidence level outside 0 to 1.
    #[error("a confidence of {0}: give a number between 0 and 1, such as 0.95")]
    Confidence(f64),
}

impl Design {
    /// A design from its factors and responses. `responses[t]` belongs to the treatment in which
    /// factor i is high if bit i of t is set.
    pub fn new(factors: Vec<Factor>, responses: Vec<Vec<f64>>) -> Result<Self, FactorialError> {
        let problem = |text: String| FactorialError::Header { line: 1, problem: text };
        if factors.is_empty() || factors.len() > FACTORS_MAX {
            return Err(problem(format!("{} factors, not 1 to {FACTORS_MAX}", factors.len())));
        }
        let mut design = Self { factors, responses };
        let all = 1 << design.factors.len();
        design.responses.resize(all, Vec::new());
        let missing: Vec<usize> = (0..all).filter(|at| design.responses[*at].is_empty()).collect();
        if let Some(&first) = missing.first() {
            let example = design.treatment(first);
            return Err(FactorialError::Missing { count: missing.len(), all, example });
        }
        let usual = design.responses[0].len();
        if let Some(at) = (0..all).find(|at| design.responses[*at].len() != usual) {
            let (example, found) = (design.treatment(at), design.responses[at].len());
            return Err(FactorialError::Unbalanced { example, found, usual });
        }
        Ok(design)
    }

    /// A treatment as text: `A=10K B=4`.
    fn treatment(&self, number: usize) -> String {
        let levels = self.factors.iter().enumerate().map(|(index, factor)| {
            let level = if number >> index & 1 == 1 { &factor.high } else { &factor.low };
            format!("{}={level}", factor.name)
        });
        levels.collect::<Vec<_>>().join(" ")
    }

    /// The name of the effect of the factors whose bits are set.
    fn effect_name(&self, set: usize) -> String {
        let chosen = self.factors.iter().enumerate().filter(|(index, _)| set >> index & 1 == 1);
        let names: Vec<&str> = chosen.map(|(_, factor)| factor.name.as_str()).collect();
        let short = self.factors.iter().all(|factor| factor.name.chars().count() == 1);
        names.join(if short { "" } else { "*" })
    }

    /// Computes effects, variation and, with replications, confidence intervals.
    ///
    /// The error of every effect is `s / sqrt(2^k r)`. Here `s^2` is the sum of squares within
    /// treatments, divided by its `2^k (r - 1)` degrees of freedom.
    pub fn analyse(&self, confidence: f64) -> Result<Analysis, FactorialError> {
        if !(confidence > 0.0 && confidence < 1.0) {
            return Err(FactorialError::Confidence(confidence));
        }
        let replications = self.responses[0].len();
        let all = self.responses.len() as f64;
        let runs = all * replications as f64;
        let means: Vec<f64> =
            self.responses.iter().map(|y| y.iter().sum::<f64>() / y.len() as f64).collect();
        let coefficients = contrasts(means.clone());
        let within: f64 = self
            .responses
            .iter()
            .zip(&means)
            .flat_map(|(y, mean)| y.iter().map(move |y| (y - mean).powi(2)))
            .sum();
        let squares = |q: f64| runs * q * q;
        // Coefficient 0 is the mean, which explains no variation.
        let total = coefficients[1..].iter().map(|q| squares(*q)).sum::<f64>() + within;
        let percent = |part: f64| if total > 0.0 { 100.0 * part / total } else { 0.0 };
        let freedom = all * (replications - 1) as f64;
        let deviation = (replications > 1).then(|| (within / freedom).sqrt());
        let half_width = deviation.map(|deviation| {
            let t = StudentsT::new(0.0, 1.0, freedom)
                .map_or(f64::INFINITY, |t| t.inverse_cdf(0.5 + confidence / 2.0));
            t * deviation / runs.sqrt()
        });
        let mut effects: Vec<Effect> = (1..self.responses.len())
            .map(|set| {
                let coefficient = coefficients[set];
                Effect {
                    effect: self.effect_name(set),
                    coefficient,
                    variation_percent: percent(squares(coefficient)),
                    low: half_width.map(|width| coefficient - width),
                    high: half_width.map(|width| coefficient + width),
                }
            })
            .collect();
        effects.sort_by(|one, two| two.variation_percent.total_cmp(&one.variation_percent));
        Ok(Analysis {
            factors: self.factors.clone(),
            replications,
            mean: coefficients[0],
            effects,
            error_percent: deviation.map(|_| percent(within)),
            error_deviation: deviation,
            confidence,
        })
    }
}

/// The coefficients of all effects, indexed by the set of factors: Yates' sums and differences, one
/// factor after another.
fn contrasts(mut values: Vec<f64>) -> Vec<f64> {
    let count = values.len();
    let mut stride = 1;
    while stride < count {
        for pair in values.chunks_exact_mut(2 * stride) {
            let (low, high) = pair.split_at_mut(stride);
            for (low, high) in low.iter_mut().zip(high) {
                (*low, *high) = (*low + *high, *high - *low);
            }
        }
        stride *= 2;
    }
    values.iter_mut().for_each(|value| *value /= count as f64);
    values
}
