//! `weir model nqueue`.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;
use weir_plot::{Axis, Figure, Point, Series, svg_to_png};
use weir_queueing::nqueue::{
    ChainOptions, Model, SimulateOptions, Simulation, Solution, chain, diagram, renewal, simulate,
};

use super::{PNG_WIDTH, extension, number, print_json, write_figure};
use crate::table::{Align, Table, out, outln};

/// Largest number of states in a readable diagram.
const DIAGRAM_STATES_MAX: usize = 200;
/// Largest number of queues that the table lists.
const TABLE_QUEUES_MAX: usize = 40;

/// Compute a system of queues that bypass to the next one when full
///
/// A packet enters the first of N queues with fewer than X packets, and is lost if all are full
/// (paper nb-cache, section IV). The load is the arrival rate of the system divided by the service
/// rate of one queue.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir model nqueue --queues 5 --threshold 2 --load 4\n  weir model \
                  nqueue --queues 1000 --threshold 64 --load 1000 --json"
)]
pub(super) struct Args {
    /// Number of queues
    #[arg(long, value_name = "N", required_unless_present = "plot")]
    queues: Option<usize>,
    /// Capacity of a queue in packets, including the one in service
    #[arg(long, value_name = "X", required_unless_present = "plot")]
    threshold: Option<usize>,
    /// Arrival rate divided by service rate (lambda/mu)
    #[arg(long, value_name = "A", allow_negative_numbers = true,
          required_unless_present_any = ["plot", "diagram"])]
    load: Option<f64>,
    /// Method of computation
    #[arg(long, value_enum, default_value_t = Method::Renewal)]
    method: Method,
    /// Seed of the simulation
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of independent simulation runs
    #[arg(long, value_name = "N", default_value_t = 10)]
    replications: usize,
    /// Number of arriving packets per simulation run
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    arrivals: u64,
    /// Confidence level of the simulation's intervals, between 0 and 1
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    confidence: f64,
    /// Write the transition diagram to this file (.dot, .svg or .png)
    #[arg(long, value_name = "FILE", requires = "queues")]
    diagram: Option<PathBuf>,
    /// Plot packets, packets per queue, loss and utilisation over the load to this file (.svg, .png
    /// or .csv)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// The systems in --plot: mm1-drop-10 is one queue of 10 packets, bypass-5*3 is 5 queues of at
    /// most 3 - 1 packets
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse_case,
          default_value = "mm1-drop-4,mm1-drop-10,bypass-2*3,bypass-5*3")]
    cases: Vec<(usize, usize)>,
    /// Largest load in --plot
    #[arg(long, value_name = "A", default_value_t = 10.0)]
    load_max: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Method {
    /// Solve the Markov chain of all queues
    Chain,
    /// Compute queue by queue, exact for any number of queues
    Renewal,
    /// Simulate events
    Simulate,
}

/// Parses the paper's name of a system into the number of queues and the threshold.
fn parse_case(text: &str) -> Result<(usize, usize), String> {
    let bad = || format!("`{text}` is not a system; write mm1-drop-10 or bypass-5*3");
    let positive = |digits: &str| digits.parse().ok().filter(|value| *value > 0).ok_or_else(bad);
    if let Some(threshold) = text.strip_prefix("mm1-drop-") {
        return Ok((1, positive(threshold)?));
    }
    let (queues, lengths) =
        text.strip_prefix("bypass-").and_then(|rest| rest.split_once('*')).ok_or_else(bad)?;
    // In this name the number is one more than the packets that fit into a queue.
    let threshold = positive(lengths)?.checked_sub(1).filter(|value| *value > 0).ok_or_else(bad)?;
    Ok((positive(queues)?, threshold))
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(path) = &args.plot {
        write_figure(&figure(&args.cases, args.load_max)?, path)?;
    }
    let (Some(queues), Some(threshold)) = (args.queues, args.threshold) else {
        if args.queues.is_some() || args.threshold.is_some() {
            bail!("--queues and --threshold must be used together");
        }
        return Ok(());
    };
    if let Some(path) = &args.diagram {
        write_diagram(&Model::new(queues, threshold, 0.0)?, path)?;
    }
    let Some(load) = args.load else { return Ok(()) };
    let model = Model::new(queues, threshold, load)?;
    match args.method {
        Method::Renewal => {
            let result = renewal(&model)?;
            let note = format!("two resolutions differ by {:.1e} at most", result.error_estimate);
            print(args, &model, &result.solution, None, &note)
        }
        Method::Chain => {
            let result = chain(&model, &ChainOptions::default())?;
            let note = format!(
                "{} states, {} sweeps, residual {:.1e}",
                result.states, result.sweeps, result.residual
            );
            print(args, &model, &result.solution, None, &note)
        }
        Method::Simulate => {
            let options = SimulateOptions {
                seed: args.seed,
                replications: args.replications,
                arrivals: args.arrivals,
                confidence: args.confidence,
            };
            let result = simulate(&model, &options)?;
            let note = format!(
                "{} runs of {} arrivals, seed {}, intervals of {} %",
                args.replications,
                args.arrivals,
                args.seed,
                100.0 * args.confidence
            );
            print(args, &model, &result.solution, Some(&result), &note)
        }
    }
}

/// The JSON output: the solution, and for a simulation the half widths of the intervals.
#[derive(serde::Serialize)]
struct Json<'a> {
    #[serde(flatten)]
    solution: &'a Solution,
    #[serde(skip_serializing_if = "Option::is_none")]
    half_widths: Option<&'a Solution>,
}

fn print(
    args: &Args,
    model: &Model,
    solution: &Solution,
    simulation: Option<&Simulation>,
    note: &str,
) -> anyhow::Result<()> {
    if args.json {
        let half_widths = simulation.map(|simulation| &simulation.half_widths);
        return print_json(&Json { solution, half_widths });
    }
    let widths = simulation.map(|simulation| &simulation.half_widths);
    let with = |value: f64, width: Option<f64>| match width {
        Some(width) => format!("{} ± {}", number(value), number(width)),
        None => number(value),
    };
    outln!("  {} at a load of {} ({note})", model.name(), number(model.load()))?;
    let of = |figure: fn(&Solution) -> f64| with(figure(solution), widths.map(figure));
    outln!("  loss         {}", of(|solution| solution.loss))?;
    outln!("  packets      {}", of(|solution| solution.packets))?;
    outln!("  utilisation  {}", of(|solution| solution.utilisation))?;
    outln!()?;
    let mut table = Table::new(&[
        ("QUEUE", Align::Right),
        ("PACKETS", Align::Right),
        ("UTILISATION", Align::Right),
        ("BLOCKING", Align::Right),
    ]);
    for (index, queue) in solution.queues.iter().enumerate().take(TABLE_QUEUES_MAX) {
        let width = widths.map(|widths| widths.queues[index]);
        table.row(vec![
            index.to_string(),
            with(queue.mean_packets, width.map(|width| width.mean_packets)),
            with(queue.utilisation, width.map(|width| width.utilisation)),
            with(queue.blocking, width.map(|width| width.blocking)),
        ]);
    }
    out!("{}", table.render("no queues"))?;
    if solution.queues.len() > TABLE_QUEUES_MAX {
        outln!("  and {} more: see --json", solution.queues.len() - TABLE_QUEUES_MAX)?;
    }
    Ok(())
}

fn write_diagram(model: &Model, path: &Path) -> anyhow::Result<()> {
    // Each queue has 0 to `threshold` packets.
    let states = (model.threshold() + 1).checked_pow(u32::try_from(model.queues())?);
    if states.is_none_or(|states| states > DIAGRAM_STATES_MAX) {
        bail!(
            "{} has more than {DIAGRAM_STATES_MAX} states, too many for a diagram; use fewer \
             queues or a lower threshold",
            model.name()
        );
    }
    let diagram = diagram(model);
    let title = format!("{}: state = packets in each queue", model.name());
    let bytes = match extension(path) {
        "dot" => diagram.to_dot(&model.name()).into_bytes(),
        "svg" => super::diagram::svg(&diagram, &title).into_bytes(),
        "png" => svg_to_png(&super::diagram::svg(&diagram, &title), PNG_WIDTH)?,
        _ => bail!("{}: the file name must end in .dot, .svg or .png", path.display()),
    };
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Fig. 9 of paper nb-cache: packets in the system, packets a queue, loss and utilisation.
fn figure(cases: &[(usize, usize)], load_max: f64) -> anyhow::Result<Figure> {
    /// Points of a curve.
    const POINTS: usize = 60;
    if !load_max.is_finite() || load_max <= 0.0 {
        bail!("--load-max {load_max} is invalid; it must be more than 0");
    }
    let mut curves: Vec<(String, Vec<(f64, Solution)>)> = Vec::new();
    for &(queues, threshold) in cases {
        let mut points = Vec::with_capacity(POINTS);
        for step in 1..=POINTS {
            let load = load_max * step as f64 / POINTS as f64;
            points.push((load, renewal(&Model::new(queues, threshold, load)?)?.solution));
        }
        curves.push((Model::new(queues, threshold, 0.0)?.name(), points));
    }
    let panel = |title: &str, axis: Axis, figure: fn(&Solution) -> f64| {
        let series = curves.iter().map(|(name, points)| {
            let points = points.iter().map(|(load, solution)| Point::new(*load, figure(solution)));
            Series::curve(name.clone(), points.collect())
        });
        let load = Axis::linear("Load λ/μ", "").range(0.0, load_max);
        Figure::series(title, load, axis, series.collect())
    };
    let share = |label: &str| Axis::linear(label, "").range(0.0, 1.0);
    Ok(Figure::panels(
        "N-queue bypass model and M/M/1 with a dropping threshold",
        2,
        vec![
            panel("Packets in the system", Axis::linear("Packets", "").from_zero(), |solution| {
                solution.packets
            }),
            panel("Packets in a queue", Axis::linear("Packets", "").from_zero(), |solution| {
                solution.packets / solution.queues.len() as f64
            }),
            panel("Packet loss", share("Loss"), |solution| solution.loss),
            panel("Server utilisation", share("Utilisation"), |solution| solution.utilisation),
        ],
    )
    .subtitle("nb-cache, Fig. 9; bypass-n*m: n queues of at most m - 1 packets"))
}
