//! `weir lab app`, `weir lab trial` and `weir lab child`: the processes of the laboratory's real
//! arm, which starts them itself.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use weir_real::{self as real, app, trial};

/// Run one consumer or producer of a run on real processes (the laboratory starts these).
///
/// Drives a consumer or producer of a scenario over a socket, as the coordinator says on standard
/// input. Exit code 3 means that it received wrong octets.
#[derive(clap::Args)]
pub(crate) struct AppArgs {
    /// What it is to do, as JSON
    #[arg(value_name = "FILE")]
    specification: PathBuf,
}

pub(crate) fn run_app(args: &AppArgs) -> anyhow::Result<()> {
    match app::run_app(&args.specification) {
        Err(error @ app::AppError::WrongBytes(_)) => {
            eprintln!("weir: {error}");
            std::process::exit(i32::from(app::EXIT_WRONG_BYTES));
        }
        other => Ok(other?),
    }
}

/// Run one part of a trial (the laboratory starts these).
///
/// Publishes, fetches, answers or asks as the coordinator says on standard input.
#[derive(clap::Args)]
pub(crate) struct TrialArgs {
    /// What it is to do, as JSON
    #[arg(value_name = "FILE")]
    specification: PathBuf,
}

pub(crate) fn run_trial(args: &TrialArgs) -> anyhow::Result<()> {
    Ok(trial::run_part(&args.specification)?)
}

/// Run `weir ARGUMENTS` as a child that ends with its parent (the laboratory starts these).
#[derive(clap::Args)]
pub(crate) struct ChildArgs {
    /// Process number of the parent; when it ends, so does this one
    #[arg(long, value_name = "PID")]
    parent: u32,
    /// Cores to run on, for example 0,1 [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cores: Vec<usize>,
    /// A program in the place of `weir`
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Arguments of `weir`, or of that program
    #[arg(last = true, required = true)]
    arguments: Vec<String>,
}

pub(crate) fn run_child(args: &ChildArgs) -> anyhow::Result<()> {
    real::end_with_parent(args.parent).context("cannot be tied to the parent")?;
    if !args.cores.is_empty() {
        real::pin(&args.cores).with_context(|| {
            let cores: Vec<String> =
                real::cores().unwrap_or_default().iter().map(ToString::to_string).collect();
            format!(
                "cannot run on cores {:?}; this process may use {}",
                args.cores,
                cores.join(", ")
            )
        })?;
    }
    let program = match &args.program {
        Some(other) => other.clone(),
        None => std::env::current_exe().context("cannot find this program")?,
    };
    let error = Command::new(&program).args(&args.arguments).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}
