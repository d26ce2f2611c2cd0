//! `weir lab`.

mod app;
mod draw;
mod list;
mod run;

use std::sync::OnceLock;

use clap::Subcommand;
use sha2::{Digest as _, Sha256};
use weir_netsim::ViolationKind;
use weir_real::RealError;
use weir_run::{Program, RunError, SessionError};

use crate::signals;

/// Run experiments, simulated or with real processes, and reproduce papers.
#[derive(clap::Args)]
#[command(
    after_help = "Exit codes:\n    0  success\n    1  failure\n    2  invalid scenario, claims or \
                  arguments; nothing has run\n    3  a claim differs, and no experiment explains \
                  it\n   10  a run violated an invariant\n   11  a run made no progress\n   12  a \
                  run delivered wrong content\n  128 + N  stopped by signal N\n\nExamples:\n  weir \
                  lab list\n  weir lab run examples/line --smoke"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    List(list::Args),
    Run(run::RunArgs),
    Reproduce(run::ReproduceArgs),
    Report(run::ReportArgs),
    Draw(draw::Args),
    #[command(hide = true)]
    App(app::AppArgs),
    #[command(hide = true)]
    Trial(app::TrialArgs),
    #[command(hide = true)]
    Child(app::ChildArgs),
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    if matches!(args.command, Command::Run(_) | Command::Reproduce(_)) {
        // This may restart the program, so it comes before any work.
        weir_real::begin_with_huge_pages();
    }
    match args.command {
        Command::List(args) => list::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Reproduce(args) => run::reproduce(&args),
        Command::Report(args) => run::report(&args),
        Command::Draw(args) => draw::run(&args),
        Command::App(args) => app::run_app(&args),
        Command::Trial(args) => app::run_trial(&args),
        Command::Child(args) => app::run_child(&args),
    }
}

/// The ids of claims that differ without an explanation.
#[derive(Debug)]
struct ClaimsFailed(Vec<String>);

impl std::fmt::Display for ClaimsFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} claims differ, and no experiment of this run explains why: {}",
            self.0.len(),
            self.0.join(", ")
        )
    }
}

impl std::error::Error for ClaimsFailed {}

/// The exit code for an error of `weir lab` that has its own.
pub(crate) fn exit_code(error: &anyhow::Error) -> Option<u8> {
    if error.is::<ClaimsFailed>() {
        return Some(3);
    }
    Some(match error.downcast_ref::<SessionError>()? {
        SessionError::Scenario(_) | SessionError::Usage(_) => 2,
        SessionError::Run(error) => match error {
            RunError::Scenario(_) | RunError::Plan { .. } => 2,
            RunError::Interrupted => signals::exit_code(),
            RunError::Shares { failures, .. } => {
                let codes = failures.iter().filter_map(|failure| failure.exit_code);
                codes.filter_map(|code| u8::try_from(code).ok()).find(is_verdict).unwrap_or(1)
            }
            RunError::Real { source, .. } if matches!(**source, RealError::Interrupted) => {
                signals::exit_code()
            }
            RunError::Violation { violation, .. } => match violation.kind {
                ViolationKind::Invariant => 10,
                ViolationKind::Liveness => 11,
                ViolationKind::Correctness => 12,
            },
            _ => return None,
        },
        _ => return None,
    })
}

/// Whether an exit code of a share says that repeating it is useless.
fn is_verdict(code: &u8) -> bool {
    matches!(code, 2 | 10..=12)
}

/// The commit of this program. If the commit is unknown or the sources were modified, a hash of the
/// program follows it. So the results of two such programs are never treated as equal.
fn commit() -> &'static str {
    static COMMIT: OnceLock<String> = OnceLock::new();
    COMMIT.get_or_init(|| {
        let commit = env!("WEIR_COMMIT");
        if commit != "unknown" && !commit.ends_with("-dirty") {
            return commit.to_owned();
        }
        match std::env::current_exe().and_then(std::fs::read) {
            Ok(program) => format!("{commit}-{}", &hex::encode(Sha256::digest(program))[..12]),
            // Use the current time, which is unique enough.
            Err(_) => format!("{commit}-at-{}", utc(std::time::SystemTime::now())),
        }
    })
}

/// Version, command line and machine, for records and reports.
fn program() -> Program {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    Program {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: commit().to_owned(),
        command: format!("weir {}", arguments.join(" ")),
        date: utc(std::time::SystemTime::now()),
        machine: weir_run::machine_description(),
    }
}

/// A time in UTC, such as `2026-11-20 13:45:00`.
fn utc(time: std::time::SystemTime) -> String {
    let seconds = time.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let compact = weir_wire::format_timestamp(seconds as i64);
    let [year, month, day, hour, minute, second] =
        [0..4, 4..6, 6..8, 9..11, 11..13, 13..15].map(|digits| compact[digits].escape_ascii());
    format!("{year}-{month}-{day} {hour}:{minute}:{second}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn utc_text_follows_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_795_182_300, "2026-11-20 13:45:00"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn exit_code_names_the_kind_of_failure() {
        let violation = |kind| {
            let violation = weir_netsim::Violation {
                kind,
                what: String::new(),
                at_ns: 0,
                node: String::new(),
                seed: 0,
                last_events: Vec::new(),
            };
            let (point, file) = (String::new(), "f".into());
            SessionError::Run(RunError::Violation { point, violation: Box::new(violation), file })
        };
        let code = |error: SessionError| exit_code(&error.into()).unwrap();
        assert_eq!(code(violation(ViolationKind::Invariant)), 10);
        assert_eq!(code(violation(ViolationKind::Liveness)), 11);
        assert_eq!(code(violation(ViolationKind::Correctness)), 12);
        assert_eq!(code(SessionError::Usage(String::new())), 2);
        assert_eq!(code(SessionError::Run(RunError::Interrupted)), 130);
        assert_eq!(exit_code(&ClaimsFailed(vec!["a".into()]).into()), Some(3));
        assert_eq!(exit_code(&anyhow::anyhow!("else")), None);
    }
}
