//! `weir model`.

mod diagram;
mod factorial;
mod multipath;
mod nqueue;
mod pipeline;

use std::path::Path;

use anyhow::{Context, bail};
use clap::Subcommand;
use serde::Serialize;
use weir_plot::Figure;

use crate::table::outln;

/// Width of PNG figures, in pixels.
const PNG_WIDTH: u32 = 1600;

/// Evaluate analytic models of routers and transfers, and analyse two-level factorial experiments.
///
/// docs/models describes the assumptions and the methods.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir model nqueue --queues 5 --threshold 2 --load 4\n  weir model \
                  multipath --segments 100 --path 10,5 --path 10,5"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: ModelCommand,
}

#[derive(Subcommand)]
enum ModelCommand {
    Pipeline(pipeline::Args),
    Nqueue(nqueue::Args),
    Multipath(multipath::Args),
    Factorial(factorial::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        ModelCommand::Pipeline(args) => pipeline::run(&args),
        ModelCommand::Nqueue(args) => nqueue::run(&args),
        ModelCommand::Multipath(args) => multipath::run(&args),
        ModelCommand::Factorial(args) => factorial::run(&args),
    }
}

/// Prints a value as one JSON object.
fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    outln!("{}", serde_json::to_string_pretty(value)?)?;
    Ok(())
}

/// Writes a figure in the format given by the file name: svg, png or csv.
fn write_figure(figure: &Figure, path: &Path) -> anyhow::Result<()> {
    let bytes = match extension(path) {
        "svg" => figure.to_svg().into_bytes(),
        "png" => figure.to_png(PNG_WIDTH)?,
        "csv" => figure.to_csv().into_bytes(),
        _ => bail!("{}: the file name must end in .svg, .png or .csv", path.display()),
    };
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

fn extension(path: &Path) -> &str {
    path.extension().and_then(|end| end.to_str()).unwrap_or_default()
}

/// Formats a number with a readable number of digits.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if !(1e-4..1e7).contains(&size) => format!("{value:.4e}"),
        size if size >= 1000.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.4}"),
        _ => format!("{value:.6}"),
    }
}
