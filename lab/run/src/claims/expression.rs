//! The language of claims: numbers computed from the results of a scenario.
//!
//! ```text
//! expression = term { ("+" | "-") term }
//! term       = factor { ("*" | "/") factor }
//! factor     = number | "-" factor | "(" expression ")" | name "(" [argument { "," argument }] ")"
//! argument   = expression | metric | axis "=" value
//! ```
//!
//! Each expression is evaluated once for each seed. Even a ratio of two numbers therefore has one
//! value for each seed, and so a confidence interval. Functions of the analytical models need no
//! seed.
//!
//! Example: `mean(goodput, window=8) / mean(goodput, window=1)` divides two means of the same seed.
//! With seeds 1 to 3 and ratios 1.9, 2.0 and 2.1, the mean is 2.0 and its 95 % interval 1.75 to
//! 2.25.

use weir_scenario::document::suggestion;
use weir_scenario::{Experiment, Point, find_point};

use super::Evaluation;
use super::{factorial, model};
use crate::record::Record;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    Number(f64),
    Negated(Box<Expression>),
    Binary(char, Box<Expression>, Box<Expression>),
    /// The smallest lead of an element over the next, `(a - b) / max(|a|, |b|)`. It is above 0 if
    /// the elements strictly decrease.
    Lead(Vec<Expression>),
    Call {
        name: String,
        arguments: Vec<Expression>,
        words: Vec<String>,
        filter: Vec<(String, String)>,
    },
}

/// Functions: the name, the number of metrics or other words, the number of numbers after them, and
/// whether axes are allowed.
const FUNCTIONS: &[(&str, usize, usize, bool)] = &[
    ("mean", 1, 0, true),
    ("min_over", 1, 0, true),
    ("max_over", 1, 0, true),
    ("over_best", 2, 0, true),
    ("slope", 1, 2, true),
    ("time_mean", 1, 2, true),
    ("first_time", 1, 1, true),
    ("node_min", 1, 0, true),
    ("node_max", 1, 0, true),
    ("variation", 1, 0, false),
    ("effect", 1, 0, false),
    ("rank", 1, 0, false),
];

/// Functions with any number of expressions.
const VARIADIC: &[&str] = &["max", "min", "abs"];

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

pub(crate) fn parse(text: &str) -> Result<Expression, String> {
    let mut parser = Parser { text, at: 0 };
    let expression = parser.expression()?;
    parser.space();
    if parser.at < text.len() {
        return Err(parser.problem("an operator or the end"));
    }
    Ok(expression)
}

impl Parser<'_> {
    fn space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn peek(&mut self) -> Option<char> {
        self.space();
        self.text[self.at..].chars().next()
    }

    fn accept(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn problem(&self, wanted: &str) -> String {
        let rest = self.text[self.at..].trim();
        let found = if rest.is_empty() { "the end".to_owned() } else { format!("\"{rest}\"") };
        format!("in \"{}\": {found} where {wanted} should be", self.text)
    }

    fn expression(&mut self) -> Result<Expression, String> {
        let mut left = self.term()?;
        while let Some(operator @ ('+' | '-')) = self.peek() {
            self.at += 1;
            left = Expression::Binary(operator, Box::new(left), Box::new(self.term()?));
        }
        Ok(left)
    }

    fn term(&mut self) -> Result<Expression, String> {
        let mut left = self.factor()?;
        while let Some(operator @ ('*' | '/')) = self.peek() {
            self.at += 1;
            left = Expression::Binary(operator, Box::new(left), Box::new(self.factor()?));
        }
        Ok(left)
    }

    fn factor(&mut self) -> Result<Expression, String> {
        if self.accept('-') {
            return Ok(Expression::Negated(Box::new(self.factor()?)));
        }
        if self.accept('(') {
            let inner = self.expression()?;
            return if self.accept(')') { Ok(inner) } else { Err(self.problem("`)`")) };
        }
        match self.peek() {
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_ascii_alphabetic() => self.call(),
            _ => Err(self.problem("a number or a function")),
        }
    }

    fn number(&mut self) -> Result<Expression, String> {
        let rest = &self.text[self.at..];
        let end = rest
            .char_indices()
            .find(|(at, c)| {
                let is_sign = "+-".contains(*c) && rest[..*at].ends_with(['e', 'E']);
                !(c.is_ascii_digit() || ".eE".contains(*c) || is_sign)
            })
            .map_or(rest.len(), |(at, _)| at);
        match rest[..end].parse::<f64>() {
            Ok(number) if number.is_finite() => {
                self.at += end;
                Ok(Expression::Number(number))
            }
            _ => Err(self.problem("a number")),
        }
    }

    fn word(&mut self) -> String {
        self.space();
        let rest = &self.text[self.at..];
        let end =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        self.at += end;
        rest[..end].to_owned()
    }

    fn call(&mut self) -> Result<Expression, String> {
        let name = self.word();
        if !self.accept('(') {
            return Err(format!(
                "in \"{}\": `{name}` stands alone; write a function such as mean({name})",
                self.text
            ));
        }
        let (mut arguments, mut words, mut filter) = (Vec::new(), Vec::new(), Vec::new());
        while !self.accept(')') {
            let is_first = arguments.is_empty() && words.is_empty() && filter.is_empty();
            if !is_first && !self.accept(',') {
                return Err(self.problem("`,` or `)`"));
            }
            let before = self.at;
            let word = self.word();
            match self.peek() {
                Some('=') if !word.is_empty() => {
                    self.at += 1;
                    filter.push((word, self.value()));
                }
                Some(',' | ')') | None if word.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                    words.push(word);
                }
                _ => {
                    // Not a lone name: read the text again from its start, as an expression.
                    self.at = before;
                    arguments.push(self.expression()?);
                }
            }
        }
        check_call(&name, words.len(), arguments.len(), !filter.is_empty())
            .map_err(|problem| format!("in \"{}\": {problem}", self.text))?;
        Ok(Expression::Call { name, arguments, words, filter })
    }

    /// The value after `axis=`, up to a comma or parenthesis.
    fn value(&mut self) -> String {
        let rest = &self.text[self.at..];
        let end = rest.find([',', ')']).unwrap_or(rest.len());
        self.at += end;
        rest[..end].trim().to_owned()
    }
}

fn check_call(name: &str, words: usize, numbers: usize, has_filter: bool) -> Result<(), String> {
    if VARIADIC.contains(&name) {
        return if words == 0 && !has_filter && numbers >= 1 {
            Ok(())
        } else {
            Err(format!("`{name}` takes expressions, such as {name}(mean(a), mean(b))"))
        };
    }
    if let Some(wanted) = model::numbers_of(name) {
        return if words == 0 && !has_filter && numbers == wanted {
            Ok(())
        } else {
            Err(format!("`{name}` takes {wanted} numbers and nothing else"))
        };
    }
    let Some((_, wanted_words, wanted_numbers, takes_axes)) =
        FUNCTIONS.iter().find(|(known, ..)| *known == name)
    else {
        let mut known: Vec<&str> = FUNCTIONS.iter().map(|(name, ..)| *name).collect();
        known.extend(VARIADIC);
        known.extend(model::FUNCTIONS.iter().map(|(name, _)| *name));
        return Err(format!("there is no function `{name}`; {}", suggestion(name, &known)));
    };
    if words != *wanted_words || numbers != *wanted_numbers {
        return Err(format!(
            "`{name}` takes {wanted_words} name and {wanted_numbers} numbers, not {words} and \
                {numbers}"
        ));
    }
    if has_filter && !takes_axes {
        return Err(format!("`{name}` is about the whole design and takes no axis"));
    }
    Ok(())
}

impl Expression {
    /// Whether any part refers to results. An expression of numbers alone says nothing about a
    /// scenario.
    pub(crate) fn is_of_results(&self) -> bool {
        match self {
            Self::Number(_) => false,
            Self::Negated(inner) => inner.is_of_results(),
            Self::Binary(_, left, right) => left.is_of_results() || right.is_of_results(),
            Self::Lead(all) => all.iter().any(Self::is_of_results),
            Self::Call { arguments, words, .. } => {
                !words.is_empty() || arguments.iter().any(Self::is_of_results)
            }
        }
    }

    /// Rejects names that the scenario does not have. `None` is a claim about the models only.
    pub(crate) fn check(&self, experiment: Option<&Experiment>) -> Result<(), String> {
        match self {
            Self::Number(_) => Ok(()),
            Self::Negated(inner) => inner.check(experiment),
            Self::Binary(_, left, right) => left.check(experiment).and(right.check(experiment)),
            Self::Lead(all) => all.iter().try_for_each(|one| one.check(experiment)),
            Self::Call { name, arguments, words, filter } => {
                arguments.iter().try_for_each(|argument| argument.check(experiment))?;
                match (name.as_str(), experiment) {
                    ("variation" | "effect" | "rank", Some(experiment)) => {
                        factorial::check(experiment, &words[0])
                    }
                    (name, _) if VARIADIC.contains(&name) || model::numbers_of(name).is_some() => {
                        Ok(())
                    }
                    (_, Some(experiment)) => words
                        .iter()
                        .try_for_each(|metric| check_names(experiment, name, metric, filter)),
                    (name, None) => {
                        Err(format!("`{name}` is about results; name the `scenario` that has them"))
                    }
                }
            }
        }
    }

    pub(crate) fn value(&self, of: &Evaluation<'_>, seed: u64) -> Option<f64> {
        let value = match self {
            Self::Number(number) => Some(*number),
            Self::Negated(inner) => inner.value(of, seed).map(|value| -value),
            Self::Binary(operator, left, right) => {
                let (left, right) = (left.value(of, seed)?, right.value(of, seed)?);
                Some(match operator {
                    '+' => left + right,
                    '-' => left - right,
                    '*' => left * right,
                    _ => left / right,
                })
            }
            Self::Lead(all) => {
                let values: Vec<f64> =
                    all.iter().map(|one| one.value(of, seed)).collect::<Option<_>>()?;
                let lead = |pair: &[f64]| match pair[0].abs().max(pair[1].abs()) {
                    0.0 => 0.0,
                    greater => (pair[0] - pair[1]) / greater,
                };
                values.windows(2).map(lead).reduce(f64::min)
            }
            Self::Call { name, arguments, words, filter } => {
                let numbers: Vec<Option<f64>> =
                    arguments.iter().map(|argument| argument.value(of, seed)).collect();
                // One missing number makes the whole value missing.
                let numbers: Vec<f64> = numbers.into_iter().collect::<Option<_>>()?;
                match name.as_str() {
                    "max" => numbers.into_iter().reduce(f64::max),
                    "min" => numbers.into_iter().reduce(f64::min),
                    "abs" => numbers.first().map(|number| number.abs()),
                    "variation" | "effect" | "rank" => factorial::value(of, seed, name, &words[0]),
                    "over_best" => over_best(of, seed, words, filter),
                    name if model::numbers_of(name).is_some() => model::value(name, &numbers),
                    name => call(of, seed, name, &words[0], &numbers, filter),
                }
            }
        };
        value.filter(|value| !value.is_nan())
    }
}

fn check_names(
    experiment: &Experiment,
    function: &str,
    metric: &str,
    filter: &[(String, String)],
) -> Result<(), String> {
    let ids: Vec<&str> = experiment.metrics.iter().map(|metric| metric.id.as_str()).collect();
    let Some(found) = experiment.metrics.iter().find(|other| other.id == metric) else {
        return Err(format!(
            "the scenario has no metric \"{metric}\"; {}",
            suggestion(metric, &ids)
        ));
    };
    if ["slope", "time_mean", "first_time"].contains(&function) && !found.over_time {
        return Err(format!("`{function}` needs over_time = true in [[metric]] \"{metric}\""));
    }
    let is_of_nodes =
        function.starts_with("node_") || filter.iter().any(|(axis, _)| axis == "node");
    if is_of_nodes && !found.per_node {
        return Err(format!("nodes need per_node = true in [[metric]] \"{metric}\""));
    }
    for (at, (axis, label)) in filter.iter().enumerate() {
        if filter[..at].iter().any(|(other, _)| other == axis) {
            return Err(format!("\"{axis}\" is given twice"));
        }
        if axis != "node" {
            find_point(&experiment.axes, axis, label)?;
        }
    }
    if function == "over_best" && filter.first().is_none_or(|(axis, _)| axis == "node") {
        return Err(
            "`over_best` needs the axis first, as in over_best(rtt, rtt, policy=adaptive)".into()
        );
    }
    Ok(())
}

fn matches_filter(experiment: &Experiment, point: &Point, filter: &[(String, String)]) -> bool {
    filter.iter().filter(|(axis, _)| axis != "node").all(|(axis, label)| {
        find_point(&experiment.axes, axis, label).is_ok_and(|(axis, at)| point.at[axis] == at)
    })
}

/// Evaluates a function of a metric at each selected point, and combines the values.
fn call(
    of: &Evaluation<'_>,
    seed: u64,
    function: &str,
    metric: &str,
    numbers: &[f64],
    filter: &[(String, String)],
) -> Option<f64> {
    let experiment = of.experiment?;
    let node = filter.iter().find(|(axis, _)| axis == "node").map(|(_, name)| name.as_str());
    let points = experiment.points.iter().enumerate();
    let values: Vec<f64> = points
        .filter(|(_, point)| matches_filter(experiment, point, filter))
        .map(|(index, _)| {
            // A missing point makes the value missing. The mean of the others would mean something
            // else.
            let record = of.results.records.get(&(index, seed))?;
            at_point(record, function, metric, numbers, node)
        })
        .collect::<Option<_>>()?;
    let count = values.len() as f64;
    match function {
        "min_over" => values.into_iter().reduce(f64::min),
        "max_over" => values.into_iter().reduce(f64::max),
        _ if values.is_empty() => None,
        _ => Some(values.iter().sum::<f64>() / count),
    }
}

/// The metric relative to the best other value of the first axis, at the point of the other axes
/// where this ratio is largest.
///
/// The means over all seeds decide which value is best (smallest `words[1]`) and at which point the
/// ratio is largest. With single seeds, the maximum over many points would be biased upwards.
fn over_best(
    of: &Evaluation<'_>,
    seed: u64,
    words: &[String],
    filter: &[(String, String)],
) -> Option<f64> {
    let experiment = of.experiment?;
    let (axis, label) = filter.first()?;
    let (axis, chosen) = find_point(&experiment.axes, axis, label).ok()?;
    let value = |index: usize, seed: u64, metric: &str| {
        at_point(of.results.records.get(&(index, seed))?, "mean", metric, &[], None)
    };
    let mean = |index: usize, metric: &str| {
        let values = experiment.seeds.iter().map(|seed| value(index, *seed, metric));
        let values = values.collect::<Option<Vec<_>>>()?;
        Some(values.iter().sum::<f64>() / values.len() as f64)
    };
    // Points that differ only in the first axis.
    let is_beside = |one: &Point, other: &Point| {
        one.at
            .iter()
            .zip(&other.at)
            .enumerate()
            .all(|(at, (one, other))| at == axis || one == other)
    };
    let (metric, judge) = (&words[0], &words[1]);
    // The point with the largest ratio, by the means over all seeds.
    let mut worst: Option<(f64, usize, usize)> = None;
    for (index, point) in experiment.points.iter().enumerate() {
        if point.at[axis] != chosen || !matches_filter(experiment, point, filter) {
            continue;
        }
        let others = experiment.points.iter().enumerate();
        let others =
            others.filter(|(_, other)| other.at[axis] != chosen && is_beside(point, other));
        let means = others.map(|(index, _)| Some((mean(index, judge)?, index)));
        let means = means.collect::<Option<Vec<_>>>()?;
        let (_, best) = means.into_iter().min_by(|one, other| one.0.total_cmp(&other.0))?;
        let ratio = mean(index, metric)? / mean(best, metric)?;
        if worst.is_none_or(|(greatest, ..)| ratio > greatest) {
            worst = Some((ratio, index, best));
        }
    }
    let (_, index, best) = worst?;
    // Only the final ratio uses this seed's values.
    Some(value(index, seed, metric)? / value(best, seed, metric)?)
}

fn at_point(
    record: &Record,
    function: &str,
    metric: &str,
    numbers: &[f64],
    node: Option<&str>,
) -> Option<f64> {
    let measured = &record.measured;
    let of_nodes = || measured.nodes.get(metric).into_iter().flatten();
    let of_series = || measured.series.get(metric).into_iter().flatten().copied();
    let between = |(t, _): &(f64, f64)| *t >= numbers[0] && *t <= numbers[1];
    match function {
        "node_min" => of_nodes().filter_map(|(_, value)| *value).reduce(f64::min),
        "node_max" => of_nodes().filter_map(|(_, value)| *value).reduce(f64::max),
        "slope" => slope(&of_series().filter(between).collect::<Vec<_>>()),
        "time_mean" => {
            let values: Vec<f64> = of_series().filter(between).map(|(_, value)| value).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        }
        "first_time" => of_series().find(|(_, value)| *value >= numbers[0]).map(|(t, _)| t),
        _ => match node {
            Some(name) => of_nodes().find(|(node, _)| node == name)?.1,
            None => measured.values.get(metric).copied().flatten(),
        },
    }
}

/// The slope by least squares.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let n = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / n;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / n;
    let covariance: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let variance: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    (variance > 0.0).then(|| covariance / variance)
}
