//! Two-level factorial analysis of a scenario's results or of a table of data.

use std::collections::BTreeMap;

use super::Evaluation;
use crate::document::suggestion;
use crate::record::Results;
use crate::scenario::Experiment;

/// The mean response of every combination of levels: bit `i` of the index is factor `i` high.
#[derive(Clone, Debug, PartialEq)]
pub struct Design {
    /// Letters of the factors, in order.
    pub factors: Vec<String>,
    /// `2^factors` responses.
    pub responses: Vec<f64>,
}

/// An effect of a design.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// Letters of its factors, such as `BC`.
    pub name: String,
    /// Half of the difference that it makes, in the unit of the response.
    pub effect: f64,
    /// The share of all variation that it explains, in percent.
    pub variation_percent: f64,
}

impl Design {
    /// All effects but the mean, the largest share of variation first.
    #[must_use]
    pub fn effects(&self) -> Vec<Effect> {
        let runs = self.responses.len();
        let coefficient = |mask: usize| {
            let signed = self.responses.iter().enumerate().map(|(run, response)| {
                let lows = (mask & !run).count_ones();
                if lows.is_multiple_of(2) { *response } else { -*response }
            });
            signed.sum::<f64>() / runs as f64
        };
        let coefficients: Vec<f64> = (1..runs).map(coefficient).collect();
        let total: f64 = coefficients.iter().map(|effect| effect * effect).sum();
        let mut effects: Vec<Effect> = coefficients
            .iter()
            .enumerate()
            .map(|(at, effect)| Effect {
                name: self.name(at + 1),
                effect: *effect,
                variation_percent: if total > 0.0 { 100.0 * effect * effect / total } else { 0.0 },
            })
            .collect();
        effects.sort_by(|a, b| b.variation_percent.total_cmp(&a.variation_percent));
        effects
    }

    fn name(&self, mask: usize) -> String {
        let letters = self.factors.iter().enumerate();
        letters.filter(|(at, _)| mask >> at & 1 == 1).map(|(_, letter)| letter.as_str()).collect()
    }

    /// The design of a scenario's results with one seed.
    pub(crate) fn of_seed(experiment: &Experiment, results: &Results, seed: u64) -> Option<Self> {
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
        let factors = factorial.factors.iter().map(|(letter, _)| letter.clone()).collect();
        responses.iter().all(|response| response.is_finite()).then_some(Self { factors, responses })
    }

    /// A table in CSV: a column for each factor with levels -1 and 1, then the response; several
    /// rows of one combination are averaged.
    pub(crate) fn of_csv(text: &str) -> Result<Self, String> {
        let mut reader =
            csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
        let header = reader.headers().map_err(|error| error.to_string())?.clone();
        let count = header.len().saturating_sub(1);
        if !(1..=16).contains(&count) {
            return Err("a design has 1 to 16 columns of factors and one of the response".into());
        }
        let mut sums: BTreeMap<usize, (f64, u32)> = BTreeMap::new();
        for (at, row) in reader.records().enumerate() {
            let row = row.map_err(|error| error.to_string())?;
            let mut run = 0;
            for bit in 0..count {
                run |= match &row[bit] {
                    "1" | "+1" => 1 << bit,
                    "-1" => 0,
                    other => {
                        return Err(format!("line {}: level \"{other}\"; write -1 or 1", at + 2));
                    }
                };
            }
            let response: f64 = row[count]
                .parse()
                .map_err(|_| format!("line {}: \"{}\" is no number", at + 2, &row[count]))?;
            let sum = sums.entry(run).or_default();
            *sum = (sum.0 + response, sum.1 + 1);
        }
        if sums.len() != 1 << count {
            return Err(format!(
                "{} of {} combinations of levels are there; write all",
                sums.len(),
                1 << count
            ));
        }
        let responses = sums.values().map(|(sum, rows)| sum / f64::from(*rows)).collect();
        Ok(Self { factors: header.iter().take(count).map(str::to_owned).collect(), responses })
    }
}

/// Refuses effects that a scenario has not.
pub(super) fn check(experiment: &Experiment, effect: &str) -> Result<(), String> {
    let Some(factorial) = &experiment.factorial else {
        return Err("the scenario has no [factorial]; add one with `response` and `factors`".into());
    };
    let letters: Vec<String> = factorial.factors.iter().map(|(letter, _)| letter.clone()).collect();
    let responses = vec![0.0; 1 << letters.len()];
    let names: Vec<String> =
        Design { factors: letters, responses }.effects().into_iter().map(|e| e.name).collect();
    if names.iter().any(|name| name == effect) {
        return Ok(());
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Err(format!("there is no effect \"{effect}\"; {}", suggestion(effect, &names)))
}

pub(super) fn value(of: &Evaluation<'_>, seed: u64, function: &str, effect: &str) -> Option<f64> {
    let design = match (&of.data, of.experiment) {
        (Some(design), _) => (*design).clone(),
        (None, Some(experiment)) => Design::of_seed(experiment, of.results, seed)?,
        (None, None) => return None,
    };
    let effects = design.effects();
    let rank = effects.iter().position(|other| other.name == effect)?;
    Some(match function {
        "variation" => effects[rank].variation_percent,
        "effect" => effects[rank].effect,
        _ => (rank + 1) as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_5_gives_table_6() {
        // Paper ccnx-measurement, Table 5, in the order of its rows: A changes fastest.
        let responses = [25, 27, 21, 18, 97, 103, 46, 48, 26, 24, 15, 13, 61, 59, 31, 28];
        let factors = ["A", "B", "C", "D"].map(str::to_owned).to_vec();
        let design = Design { factors, responses: responses.map(f64::from).to_vec() };
        let effects = design.effects();
        for (effect, (name, percent)) in
            effects.iter().zip([("C", 50.7), ("B", 22.4), ("BC", 9.6), ("D", 9.0), ("CD", 5.7)])
        {
            assert_eq!(effect.name, name);
            assert!((effect.variation_percent - percent).abs() < 0.05, "{effect:?}");
        }
        let sum: f64 = effects.iter().map(|effect| effect.variation_percent).sum();
        assert!((sum - 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_table_averages_its_replications() {
        let text = "A,B,y\n-1,-1,1\n-1,-1,3\n1,-1,4\n-1,1,6\n1,1,8\n";
        let design = Design::of_csv(text).expect("a design");
        assert_eq!(design.responses, [2.0, 4.0, 6.0, 8.0]);
        let effects = design.effects();
        assert_eq!((effects[0].name.as_str(), effects[0].effect), ("B", 2.0));
        assert!(Design::of_csv("A,y\n0,1\n").expect_err("level 0").contains("line 2"));
        assert!(Design::of_csv("A,B,y\n-1,1,1\n").expect_err("3 missing").contains("1 of 4"));
    }
}
