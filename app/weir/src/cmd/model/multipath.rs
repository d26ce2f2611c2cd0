//! `weir model multipath`.

use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::json;
use weir_plot::{Axis, Figure, Point, Series};
use weir_queueing::multipath::{
    Latencies, Path, Simulation, SimulationOptions, Split, divide, latencies, simulate,
};

use super::{number, print_json, write_figure};
use crate::table::{Align, Table, out, outln};

const NS_PER_MS: f64 = 1e6;

/// Compute the transfer time of a file over one or several paths
///
/// Prints the results of the formulas in the paper multipath-cache-management, section 6, and of a
/// simulation that also models rates, queues and the slowest path.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir model multipath --segments 100 --path 10,5 --path 10,5 --path \
                  10,5\n  weir model multipath --path 10,5,100 --path 20,5 --split proportional \
                  --json"
)]
pub(super) struct Args {
    /// A path: latency of a segment in milliseconds, pipeline depth, and rate in Mbit/s (default
    /// 1000). Repeat it for more paths
    #[arg(
        long = "path",
        value_name = "MS,DEPTH[,MBITS]",
        required = true,
        value_parser = parse_path
    )]
    paths: Vec<Path>,
    /// Number of segments in the file
    #[arg(long, value_name = "N", default_value_t = 100)]
    segments: u64,
    /// How the segments are divided among the paths
    #[arg(long, value_enum, default_value_t = Assignment::Equal)]
    split: Assignment,
    /// Size of a Data packet, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    packet: u32,
    /// Queue limit of a link in the simulation, in packets
    #[arg(long, value_name = "N", default_value_t = 1000)]
    queue: u32,
    /// Rate of a last link that all paths share in the simulation, in Mbit/s [default: no such
    /// link]
    #[arg(long, value_name = "MBITS")]
    shared: Option<f64>,
    /// Plot formula and simulation over the pipeline depth to this file (.svg, .png or .csv)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Assignment {
    /// The same number over each path
    Equal,
    /// In proportion to the throughput of each path
    Proportional,
    /// A path takes the next segment when its pipeline has room (equal in the formulas)
    Dynamic,
}

/// Converts Mbit/s to bit/s.
fn bits(megabits: f64) -> Result<u64, String> {
    if !megabits.is_finite() || !(1e-6..=1e9).contains(&megabits) {
        return Err(format!("a rate of {megabits} Mbit/s is invalid; it must be more than 0"));
    }
    Ok((megabits * 1e6).round() as u64)
}

fn parse_path(text: &str) -> Result<Path, String> {
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    let (latency, depth, rate) = match fields[..] {
        [latency, depth] => (latency, depth, "1000"),
        [latency, depth, rate] => (latency, depth, rate),
        _ => return Err("must be milliseconds,depth or milliseconds,depth,Mbit/s".to_owned()),
    };
    let latency: f64 =
        latency.parse().map_err(|_| format!("`{latency}` is not a number of milliseconds"))?;
    if !(latency > 0.0 && latency <= 1e9) {
        return Err(format!("a latency of {latency} ms is invalid; it must be more than 0"));
    }
    let pipeline_depth = depth.parse().map_err(|_| format!("`{depth}` is not a pipeline depth"))?;
    let megabits: f64 = rate.parse().map_err(|_| format!("`{rate}` is not a rate in Mbit/s"))?;
    let latency_ns = (latency * NS_PER_MS).round() as u64;
    Ok(Path { latency_ns, pipeline_depth, rate_bps: bits(megabits)?, segments: 0 })
}

impl Args {
    fn options(&self) -> anyhow::Result<SimulationOptions> {
        let shared = self.shared.map(bits).transpose().map_err(anyhow::Error::msg)?;
        Ok(SimulationOptions {
            packet_bytes: self.packet,
            queue_packets_max: self.queue,
            shared_rate_bps: shared,
            dynamic: matches!(self.split, Assignment::Dynamic),
            ..SimulationOptions::default()
        })
    }

    /// The paths with their segments. `depth` overrides the pipeline depth of all paths.
    fn divided(&self, depth: Option<u32>) -> Vec<Path> {
        let mut paths = self.paths.clone();
        if let Some(depth) = depth {
            paths.iter_mut().for_each(|path| path.pipeline_depth = depth);
        }
        let split = match self.split {
            Assignment::Proportional => Split::Proportional,
            Assignment::Equal | Assignment::Dynamic => Split::Equal,
        };
        divide(&mut paths, self.segments, self.packet, split);
        paths
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let options = args.options()?;
    let paths = args.divided(None);
    let formulas = latencies(&paths, args.packet)?;
    let simulation = simulate(&paths, &options)?;
    if let Some(path) = &args.plot {
        write_figure(&figure(args, &options)?, path)?;
    }
    if args.json {
        return print_json(&json!({
            "segments": args.segments,
            "paths": paths,
            "formulas": formulas,
            "simulation": simulation,
        }));
    }
    print(&paths, &formulas, &simulation)
}

fn print(paths: &[Path], formulas: &Latencies, simulation: &Simulation) -> anyhow::Result<()> {
    let ms = |ns: f64| number(ns / NS_PER_MS);
    let mut table = Table::new(&[("TRANSFER", Align::Left), ("MS", Align::Right)]);
    for (name, ns) in [
        ("default: one Interest at a time on path 1", formulas.default_ns),
        ("pipelined: all on path 1", formulas.pipelined_ns),
        ("multipath: the paper's formula", formulas.multipath_ns),
        ("multipath: last path, rates counted", formulas.limited_ns),
        ("multipath: simulated", simulation.total_ns as f64),
    ] {
        table.row(vec![name.to_owned(), ms(ns)]);
    }
    out!("{}", table.render("nothing"))?;
    outln!()?;
    let mut table = Table::new(&[
        ("PATH", Align::Right),
        ("SEGMENTS", Align::Right),
        ("DONE MS", Align::Right),
        ("LATENCY MS", Align::Right),
        ("IDLE MS", Align::Right),
        ("QUEUE", Align::Right),
        ("DROPS", Align::Right),
    ]);
    for (index, (path, result)) in paths.iter().zip(&simulation.paths).enumerate() {
        table.row(vec![
            (index + 1).to_string(),
            result.segments.to_string(),
            ms(result.finished_ns as f64),
            ms(result.mean_latency_ns),
            ms(path.latency_ns as f64),
            result.queue_packets.to_string(),
            result.drops.to_string(),
        ]);
    }
    out!("{}", table.render("no paths"))?;
    Ok(())
}

/// Plots the total time over the pipeline depth, which shows where formula and simulation diverge.
fn figure(args: &Args, options: &SimulationOptions) -> anyhow::Result<Figure> {
    let (mut paper, mut limited, mut simulated) = (Vec::new(), Vec::new(), Vec::new());
    for step in 0..=16 {
        // Depths from 1 to 256, two for each doubling.
        let depth = 2f64.powf(f64::from(step) / 2.0).round();
        let paths = args.divided(Some(depth as u32));
        let formulas = latencies(&paths, args.packet)?;
        let total_ns = simulate(&paths, options)?.total_ns as f64;
        paper.push(Point::new(depth, formulas.multipath_ns / 1e9));
        limited.push(Point::new(depth, formulas.limited_ns / 1e9));
        simulated.push(Point::new(depth, total_ns / 1e9));
    }
    Ok(Figure::series(
        "Time of a transfer over several paths",
        Axis::log("Pipeline depth of each path", "Interests"),
        Axis::log("Time", "s"),
        vec![
            Series::curve("formula of the paper", paper),
            Series::curve("last path, rates counted", limited),
            Series::scatter("simulated", simulated),
        ],
    )
    .subtitle(format!("{} segments over {} paths", args.segments, args.paths.len())))
}
