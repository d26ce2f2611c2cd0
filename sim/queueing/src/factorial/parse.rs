//! Reads designs from CSV.

use super::{Design, FACTORS_MAX, Factor, FactorialError};

/// Reads a design: a header with the factors and then `y`, and one row for each run.
///
/// Levels are -1 and 1, or two words for each factor. Of two numbers, the smaller becomes -1; of
/// two other words, the first in the file. Rows with equal levels are replications. Empty lines and
/// lines that begin with `#` are ignored.
pub fn parse(text: &str) -> Result<Design, FactorialError> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .comment(Some(b'#'))
        .from_reader(text.trim_start_matches('\u{feff}').as_bytes());
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| FactorialError::Csv {
            line: error.position().map_or(0, csv::Position::line),
            problem: error.to_string(),
        })?;
        let line = record.position().map_or(0, csv::Position::line);
        rows.push((line, record));
    }
    let mut rows = rows.into_iter();
    let (line, header) = rows.next().ok_or(FactorialError::Empty)?;
    let names = factor_names(line, &header)?;
    let mut levels: Vec<Vec<String>> = vec![Vec::new(); names.len()];
    let mut runs: Vec<(Vec<usize>, f64)> = Vec::new();
    for (line, record) in rows {
        runs.push(read_row(line, &record, &names, &mut levels)?);
    }
    if runs.is_empty() {
        return Err(FactorialError::Empty);
    }
    let mut factors = Vec::with_capacity(names.len());
    // For each factor, the index of the high level.
    let mut high = Vec::with_capacity(names.len());
    for (name, levels) in names.into_iter().zip(levels) {
        let [first, second] = <[String; 2]>::try_from(levels).map_err(|levels| {
            let level = levels.into_iter().next().unwrap_or_default();
            FactorialError::OneLevel { factor: name.clone(), level }
        })?;
        let swap = match (first.parse::<f64>(), second.parse::<f64>()) {
            (Ok(first), Ok(second)) => second < first,
            _ => false,
        };
        high.push(usize::from(!swap));
        let (low, high) = if swap { (second, first) } else { (first, second) };
        factors.push(Factor { name, low, high });
    }
    let mut responses = vec![Vec::new(); 1 << factors.len()];
    for (chosen, y) in runs {
        let bits = chosen.iter().zip(&high).enumerate();
        let treatment: usize =
            bits.map(|(index, (level, high))| usize::from(level == high) << index).sum();
        responses[treatment].push(y);
    }
    Design::new(factors, responses)
}

/// The factors in the header. Its last column must be `y`.
fn factor_names(line: u64, header: &csv::StringRecord) -> Result<Vec<String>, FactorialError> {
    let problem = |problem: String| Err(FactorialError::Header { line, problem });
    let mut names: Vec<String> = header.iter().map(str::to_owned).collect();
    match names.pop() {
        Some(last) if last.eq_ignore_ascii_case("y") => {}
        last => return problem(format!("the last column is `{}`", last.unwrap_or_default())),
    }
    if names.is_empty() || names.len() > FACTORS_MAX {
        return problem(format!("{} factors, not 1 to {FACTORS_MAX}", names.len()));
    }
    for (index, name) in names.iter().enumerate() {
        if name.is_empty() {
            return problem(format!("column {} has no name", index + 1));
        }
        if names[..index].contains(name) {
            return problem(format!("two columns are called `{name}`"));
        }
    }
    Ok(names)
}

/// Reads one run: the level of each factor, as an index in `levels`, and the response.
fn read_row(
    line: u64,
    record: &csv::StringRecord,
    names: &[String],
    levels: &mut [Vec<String>],
) -> Result<(Vec<usize>, f64), FactorialError> {
    let problem = |problem: String| FactorialError::Row { line, problem };
    if record.len() != names.len() + 1 {
        let (found, wanted) = (record.len(), names.len() + 1);
        return Err(problem(format!(
            "{found} fields where the header has {wanted}: give a level for each factor, then y"
        )));
    }
    let mut chosen = Vec::with_capacity(names.len());
    for ((field, name), known) in record.iter().zip(names).zip(levels) {
        if field.is_empty() {
            return Err(problem(format!("factor {name} has no level: give -1 or 1, or its word")));
        }
        // 1, +1 and 1.0 are the same level; so are two equal words such as 10K.
        let same = |level: &String| match (level.parse::<f64>(), field.parse::<f64>()) {
            (Ok(one), Ok(two)) => one == two,
            _ => level == field,
        };
        let at = known.iter().position(same).unwrap_or_else(|| {
            known.push(field.to_owned());
            known.len() - 1
        });
        if at > 1 {
            return Err(problem(format!(
                "factor {name} is `{field}`, and before it was `{}` and `{}`: a factor has two \
                 levels",
                known[0], known[1]
            )));
        }
        chosen.push(at);
    }
    let text = &record[names.len()];
    let y: f64 = text.parse().ok().filter(|y: &f64| y.is_finite()).ok_or_else(|| {
        problem(format!("y is `{text}`: give a number, with a point before its decimals"))
    })?;
    Ok((chosen, y))
}
