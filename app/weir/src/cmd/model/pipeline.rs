//! `weir model pipeline`.

use std::path::PathBuf;

use serde_json::json;
use weir_plot::{Axis, Figure, Point, Series};
use weir_queueing::pipeline::{Pipeline, Probabilities, Report, STAGES, Stage, SweepRow};

use super::{number, print_json, write_figure};
use crate::table::{Align, Table, out, outln};

/// Steps of the sweep in the table and in the figure.
const SWEEP_STEPS: usize = 20;
const FIGURE_STEPS: usize = 200;

/// Compute the bottleneck of a router's pipeline of store, PIT and FIB
///
/// The five stages are M/M/1 queues in an open network (paper nb-cache, Eq. 1 to 7): (1) store for
/// Interests, (2) store for Data, (3) PIT for Interests, (4) PIT for Data, (5) FIB.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir model pipeline --rates 4700,4700,4000,4000,4000 --arrivals \
                  3000\n  weir model pipeline --rates 4700,4700,4000,4000,4000 --sweep"
)]
pub(super) struct Args {
    /// Service rate of each stage in packets/s (mu_1 to mu_5)
    #[arg(long, value_name = "MU1,..,MU5", value_delimiter = ',', num_args = 1, required = true)]
    rates: Vec<f64>,
    /// Share of Interests that the store answers (alpha)
    #[arg(long, value_name = "P", default_value_t = 0.5)]
    store_hit: f64,
    /// Share of store misses that join a pending Interest (beta)
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pit_hit: f64,
    /// Share of the remaining Interests that have a next hop in the FIB (theta)
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    fib_hit: f64,
    /// Share of Data that is written into the store (phi)
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    caching: f64,
    /// Arrival rate in Interests/s (lambda) [default: the limit of the bottleneck]
    #[arg(long, value_name = "RATE")]
    arrivals: Option<f64>,
    /// Also show the bottleneck for store hit ratios from 0 to 1
    #[arg(long)]
    sweep: bool,
    /// Plot the sweep to this file (.svg, .png or .csv)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let rates: [f64; STAGES] = args.rates.as_slice().try_into().map_err(|_| {
        anyhow::anyhow!("--rates has {} numbers; it needs five, mu_1 to mu_5", args.rates.len())
    })?;
    let probabilities = Probabilities {
        store_hit: args.store_hit,
        pit_hit: args.pit_hit,
        fib_hit: args.fib_hit,
        caching: args.caching,
    };
    let router = Pipeline::new(rates, probabilities)?;
    let report = router.report(args.arrivals.unwrap_or(router.bottleneck().1))?;
    if let Some(path) = &args.plot {
        write_figure(&figure(&router.sweep(FIGURE_STEPS)?), path)?;
    }
    let sweep = if args.sweep { Some(router.sweep(SWEEP_STEPS)?) } else { None };
    if args.json {
        let mut value = serde_json::to_value(&report)?;
        if let Some(rows) = &sweep {
            value["sweep"] = json!(rows);
        }
        return print_json(&value);
    }
    print_report(&report)?;
    if let Some(rows) = &sweep {
        outln!()?;
        print_sweep(rows)?;
    }
    Ok(())
}

fn print_report(report: &Report) -> anyhow::Result<()> {
    let mut table = Table::new(&[
        ("STAGE", Align::Left),
        ("VISITS", Align::Right),
        ("SERVES/S", Align::Right),
        ("GETS/S", Align::Right),
        ("UTILISATION", Align::Right),
        ("PACKETS", Align::Right),
        ("ALLOWS/S", Align::Right),
    ]);
    for stage in &report.stages {
        table.row(vec![
            label(stage.stage),
            number(stage.visits),
            number(stage.service_rate),
            number(stage.throughput),
            number(stage.utilisation),
            stage.mean_packets.map_or_else(|| "grows".to_owned(), number),
            stage.arrival_rate_max.map_or_else(|| "any".to_owned(), number),
        ]);
    }
    out!("{}", table.render("no stages"))?;
    outln!(
        "  bottleneck: {}, at most {} Interests/s; {} arrive",
        label(report.bottleneck),
        number(report.arrival_rate_max),
        number(report.arrival_rate)
    )?;
    Ok(())
}

fn print_sweep(rows: &[SweepRow]) -> anyhow::Result<()> {
    let mut table = Table::new(&[
        ("STORE HIT", Align::Right),
        ("AT MOST/S", Align::Right),
        ("BOTTLENECK", Align::Left),
    ]);
    for row in rows {
        let most = number(row.arrival_rate_max);
        table.row(vec![format!("{:.2}", row.store_hit), most, label(row.bottleneck)]);
    }
    out!("{}", table.render("no rows"))?;
    Ok(())
}

fn label(stage: Stage) -> String {
    format!("{} {}", stage.number(), stage.name())
}

fn figure(rows: &[SweepRow]) -> Figure {
    // Cut the axis at twice the largest limit of the router; higher stage limits would flatten it.
    let top = rows.iter().map(|row| row.arrival_rate_max).fold(0.0, f64::max) * 2.0;
    let stage_series = Stage::ALL.into_iter().enumerate().map(|(index, stage)| {
        let points = rows.iter().filter_map(|row| {
            let limit = row.stage_limits[index].filter(|limit| *limit <= top)?;
            Some(Point::new(row.store_hit, limit))
        });
        Series::curve(label(stage), points.collect())
    });
    let most = rows.iter().map(|row| Point::new(row.store_hit, row.arrival_rate_max));
    let whole = Series::curve("router", most.collect());
    Figure::series(
        "What each stage of a router allows",
        Axis::linear("Hit ratio of the store", "").range(0.0, 1.0),
        Axis::linear("Interests that may arrive", "packets/s").range(0.0, top),
        stage_series.chain([whole]).collect(),
    )
    .subtitle(
        "M/M/1 stages in an open network (nb-cache, Eq. 6 and 7); the lowest is the bottleneck",
    )
}
