//! `weir model factorial`.

use std::path::PathBuf;

use anyhow::Context;
use weir_queueing::factorial::{Analysis, parse};

use super::{number, print_json};
use crate::table::{Align, Table, count, out, outln};

/// Which factor of a two-level experiment explains how much of its result
///
/// The file has a column for each factor and then `y`, the response. A factor has two levels, -1
/// and 1 or two words: of two numbers the smaller becomes -1, of other words the first in the file.
/// It needs a row for every combination of levels; more rows of one combination are replications
/// and give the error and confidence intervals.
///
/// Example:
///   printf 'A,B,y\n-1,-1,15\n1,-1,45\n-1,1,25\n1,1,75\n' > runs.csv
///   weir model factorial runs.csv
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The runs as CSV
    file: PathBuf,
    /// Confidence of the intervals
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
        None => outln!("  one run a combination: no error and no intervals; repeat runs for them")?,
    }
    Ok(())
}
