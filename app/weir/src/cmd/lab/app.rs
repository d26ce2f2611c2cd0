//! `weir lab app`, `weir lab trial` and `weir lab child`: hidden commands that the laboratory
//! starts for experiments with real processes.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use weir_real::{self as real, app, trial};

/// Run one consumer or producer of a scenario (started by the laboratory).
///
/// The coordinator sends commands on standard input. Exit code 3 means that wrong bytes arrived.
#[derive(clap::Args)]
pub(crate) struct AppArgs {
    /// The specification of the process (JSON)
    #[arg(value_name = "FILE")]
    specification: PathBuf,
}

pub(crate) fn run_app(args: &AppArgs) -> anyhow::Result<()> {
    match app::run_app(&args.specification) {
        Err(error @ app::AppError::WrongBytes(_)) => {
            eprintln!("weir: {error}");
            // The coordinator recognizes wrong bytes by this exit code.
            std::process::exit(i32::from(app::EXIT_WRONG_BYTES));
        }
        other => Ok(other?),
    }
}

/// Run one process of a trial (started by the laboratory).
///
/// The coordinator sends commands on standard input: publish, fetch, answer or request.
#[derive(clap::Args)]
pub(crate) struct TrialArgs {
    /// The specification of the process (JSON)
    #[arg(value_name = "FILE")]
    specification: PathBuf,
}

pub(crate) fn run_trial(args: &TrialArgs) -> anyhow::Result<()> {
    Ok(trial::run_part(&args.specification)?)
}

/// Run a command as a child process that ends with its parent (started by the laboratory).
#[derive(clap::Args)]
pub(crate) struct ChildArgs {
    /// End when the parent with this process ID ends
    #[arg(long, value_name = "PID")]
    parent: u32,
    /// Run only on these cores, such as 0,1 [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cores: Vec<usize>,
    /// Run this program [default: weir]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Arguments of the program
    #[arg(last = true, required = true)]
    arguments: Vec<String>,
}

pub(crate) fn run_child(args: &ChildArgs) -> anyhow::Result<()> {
    real::end_with_parent(args.parent).context("cannot bind this process to its parent")?;
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
    // `exec` returns only if it fails.
    let error = Command::new(&program).args(&args.arguments).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}
