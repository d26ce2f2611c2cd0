//! `weir lab draw`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use weir_run::SessionError;
use weir_scenario::{Size, find_scenario};
use weir_topology::{DrawOptions, LinkLabels, Placement, Topology, draw_svg};

use crate::table::outln;

/// Draw a topology as SVG or PNG
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir lab draw geant\n  weir lab draw geant -o geant.png --labels \
                  delay"
)]
pub(crate) struct Args {
    /// A topology file, a built-in topology such as geant, or a scenario
    topology: String,
    /// Output file, ending in .svg or .png
    #[arg(long, short, default_value = "topology.svg")]
    out: PathBuf,
    /// Labels of the links
    #[arg(long, value_enum, default_value = "none")]
    labels: Labels,
    /// Ignore the positions of the nodes, and place them by distance in the graph
    #[arg(long)]
    no_positions: bool,
    /// Width of the drawing, in pixels
    #[arg(long, default_value_t = 1200, value_parser = clap::value_parser!(u32).range(100..=8000))]
    width: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Labels {
    None,
    Delay,
    Rate,
    Both,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let topology = topology(&args.topology)?;
    let options = DrawOptions {
        width: args.width,
        placement: if args.no_positions { Placement::Stress } else { Placement::Auto },
        link_labels: match args.labels {
            Labels::None => LinkLabels::None,
            Labels::Delay => LinkLabels::Delay,
            Labels::Rate => LinkLabels::Rate,
            Labels::Both => LinkLabels::Both,
        },
        ..DrawOptions::default()
    };
    let svg = draw_svg(&topology, &options);
    let bytes = match args.out.extension().and_then(|ending| ending.to_str()) {
        Some("svg") => svg.into_bytes(),
        Some("png") => weir_plot::svg_to_png(&svg, args.width)?,
        _ => {
            let out = args.out.display();
            return Err(SessionError::Usage(format!("{out} must end in .svg or .png")).into());
        }
    };
    std::fs::write(&args.out, bytes)
        .with_context(|| format!("cannot write {}", args.out.display()))?;
    let (nodes, links) = (topology.nodes().len(), topology.links().len());
    outln!("{}: {nodes} nodes, {links} links", args.out.display())?;
    Ok(())
}

/// Loads a built-in topology, a topology file, or the topology of a scenario.
fn topology(reference: &str) -> anyhow::Result<Topology> {
    if let Some(topology) = Topology::builtin(reference) {
        return Ok(topology);
    }
    let path = Path::new(reference);
    if path.is_file() && !is_scenario(path) {
        return Topology::read(path).map_err(|error| SessionError::Usage(error.to_string()).into());
    }
    let experiment = find_scenario(reference)
        .and_then(|scenario| scenario.experiment(Size::Full))
        .map_err(SessionError::from)?;
    let prepared = experiment
        .prepare(&experiment.points[0], experiment.seeds[0])
        .map_err(SessionError::from)?;
    Ok(prepared.topology)
}

fn is_scenario(path: &Path) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().any(|line| line.trim() == "[scenario]")
}
