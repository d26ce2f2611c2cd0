//! `weir lab`.

mod app;

use clap::Subcommand;

/// Experiments: run scenarios, simulated or on real processes, and reproduce papers.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(hide = true)]
    App(app::AppArgs),
    #[command(hide = true)]
    Child(app::ChildArgs),
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::App(args) => app::run_app(&args),
        Command::Child(args) => app::run_child(&args),
    }
}
