//! `weir lab list`.

use serde_json::json;
use weir_scenario::{Size, papers};

use crate::table::{Align, Table, out, outln};

/// List the built-in scenarios
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  weir lab list\n  weir lab list --json")]
pub(crate) struct Args {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

struct Listed {
    name: String,
    title: String,
    arms: Vec<&'static str>,
    smoke_runs: usize,
    full_runs: usize,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut listed = Vec::new();
    for paper in papers() {
        for name in paper.scenario_names() {
            let scenario = paper.scenario(&name)?;
            let runs = |size| -> anyhow::Result<usize> {
                let experiment = scenario.experiment(size)?;
                Ok(experiment.points.len() * experiment.seeds.len())
            };
            listed.push(Listed {
                name: format!("{}/{name}", paper.id),
                title: scenario.header.title.clone(),
                arms: scenario.header.arms.iter().map(|arm| arm.as_str()).collect(),
                smoke_runs: runs(Size::Smoke)?,
                full_runs: runs(Size::Full)?,
            });
        }
    }
    if args.json {
        let rows: Vec<_> = listed
            .iter()
            .map(|row| {
                json!({
                    "scenario": row.name,
                    "title": row.title,
                    "arms": row.arms,
                    "runs": { "smoke": row.smoke_runs, "full": row.full_runs },
                })
            })
            .collect();
        outln!("{}", serde_json::to_string_pretty(&rows)?)?;
        return Ok(());
    }
    let mut table = Table::new(&[
        ("scenario", Align::Left),
        ("arms", Align::Left),
        ("runs (smoke)", Align::Right),
        ("runs (full)", Align::Right),
        ("title", Align::Left),
    ]);
    for row in listed {
        let (smoke, full) = (row.smoke_runs.to_string(), row.full_runs.to_string());
        table.row(vec![row.name, row.arms.join(", "), smoke, full, row.title]);
    }
    out!("{}", table.render("no scenarios"))?;
    Ok(())
}
