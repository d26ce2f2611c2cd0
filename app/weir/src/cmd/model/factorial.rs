//! `weir model factorial`.

use std::path::PathBuf;

use anyhow::Context;
use weir_queueing::factorial::{Analysis, parse};

use super::{number, print_json};
use crate::table::{Align, Table, count, out, outln};

/// Compute how much each factor of a two-level experiment explains
///
/// The CSV file has one column per factor and a column `y` with the response. A factor has two
/// levels, which become -1 and 1: the smaller number, or the word that appears first, becomes -1.
/// Each combination of levels needs at least one row. Further rows are replications, which give the
/// error and the confidence intervals.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  printf 'A,B,y\\n-1,-1,15\\n1,-1,45\\n-1,1,25\\n1,1,75\\n' > \
                  runs.csv; weir model factorial runs.csv\n  weir model factorial runs.csv --json")]
pub(super) struct Args {
    /// The runs (CSV)
    file: PathBuf,
    /// Confidence level of the intervals, between 0 and 1
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    confidence: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let file = args.file.display();
    let text =
        std::fs::read_to_string(&args.file).with_context(|| format!("cannot read {file}"))?;
    let design = parse(&text).with_context(|| file.to_string())?;
    let analysis = design.analyse(args.confidence)?;
    if args.json { print_json(&analysis) } else { print(&analysis) }
}

fn print(analysis: &Analysis) -> anyhow::Result<()> {
    let mut factors =
        Table::new(&[("FACTOR", Align::Left), ("-1", Align::Left), ("1", Align::Left)]);
    for factor in &analysis.factors {
        factors.row(vec![factor.name.clone(), factor.low.clone(), factor.high.clone()]);
    }
    out!("{}", factors.render("no factors"))?;
    outln!()?;
    let mut table = Table::new(&[
        ("EFFECT", Align::Left),
        ("VARIATION %", Align::Right),
        ("COEFFICIENT", Align::Right),
        ("LOW", Align::Right),
        ("HIGH", Align::Right),
    ]);
    let bound = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    for effect in &analysis.effects {
        table.row(vec![
            effect.effect.clone(),
            format!("{:.2}", effect.variation_percent),
            number(effect.coefficient),
            bound(effect.low),
            bound(effect.high),
        ]);
    }
    if let Some(percent) = analysis.error_percent {
        table.row(vec!["error".into(), format!("{percent:.2}"), "".into(), "".into(), "".into()]);
    }
    out!("{}", table.render("no effects"))?;
    let replications = count(analysis.replications as u64, "replication", "replications");
    outln!("  mean {}, {replications}", number(analysis.mean))?;
    match analysis.error_deviation {
        Some(deviation) => outln!(
            "  standard deviation of the error {}; intervals with {} % confidence",
            number(deviation),
            number(100.0 * analysis.confidence)
        )?,
        None => outln!("  one run per combination: repeat the runs to get errors and intervals")?,
    }
    Ok(())
}
