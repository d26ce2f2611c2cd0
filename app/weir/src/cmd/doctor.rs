//! `weir doctor`.
//!
//! [`system`] checks the features of the system, [`site`] the configuration and what it needs.

mod credentials;
mod process;
mod router_user;
mod site;
mod system;
mod unit;

use std::path::PathBuf;

use serde::Serialize;

use crate::exit::Exit;
use crate::help::OUTPUT;
use crate::table::{count, outln, printable};

/// Check whether this machine has everything that a router uses.
///
/// Each check is missing, recommended or found. Without what is missing, the router does not start
/// or work, and the exit code is 1. What is recommended is not there and costs performance; the
/// exit code is 0. For both, the command prints the effect and what fixes it.
///
/// Run it as root, or as the user of the router. No router needs to run. If one does, the ports and
/// the socket that it uses count as found, and the limits are those of its process; otherwise they
/// are those of this shell.
///
/// As root, files, disks, keys and ports are checked with the permissions of the user of the
/// running router, or of the installed service.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  weir doctor\n  weir doctor -c weir.toml --json")]
pub(crate) struct Args {
    /// Check this configuration file [default: ~/.config/weir/weir.toml or /etc/weir/weir.toml, if
    /// one of them exists]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON array
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
}

/// What a check has found.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    is_found: bool,
    /// The state, or the problem.
    detail: String,
    /// A command or setting that fixes it.
    fix: String,
}

impl Outcome {
    fn found(detail: impl Into<String>) -> Self {
        Self { is_found: true, detail: detail.into(), fix: String::new() }
    }

    fn missing(detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { is_found: false, detail: detail.into(), fix: fix.into() }
    }
}

/// The result of a check.
#[derive(Debug, Serialize)]
struct Finding {
    check: String,
    /// The features of the system that the check stands for.
    about: Option<String>,
    /// Whether the router does not start without it.
    needed: bool,
    found: bool,
    detail: String,
    /// What happens without it.
    effect: Option<String>,
    fix: Option<String>,
}

impl Finding {
    fn new(check: impl Into<String>, is_needed: bool, effect: &str, outcome: Outcome) -> Self {
        let if_missing = |text: &str| (!outcome.is_found).then(|| text.to_owned());
        let fix = if_missing(&outcome.fix).filter(|fix| !fix.is_empty());
        Self {
            check: check.into(),
            about: None,
            needed: is_needed,
            found: outcome.is_found,
            effect: if_missing(effect),
            detail: outcome.detail,
            fix,
        }
    }

    fn state(&self) -> State {
        match (self.found, self.needed) {
            (true, _) => State::Found,
            (false, true) => State::Missing,
            (false, false) => State::Recommended,
        }
    }
}

/// The states, in the order in which they are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// A router does not start or work without it.
    Missing,
    /// It is not there, and a router works without it.
    Recommended,
    Found,
}

impl State {
    const fn word(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Recommended => "recommended",
            Self::Found => "found",
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let site = site::check(args.config.as_deref());
    let features = system::check(&site.config, &site.measured, &site.user);
    let mut findings = vec![site.user.finding()];
    findings.extend(site.findings.into_iter().chain(features));
    // What needs a change comes first. The sort is stable.
    findings.sort_by_key(Finding::state);
    if args.json {
        outln!("{}", serde_json::to_string(&findings)?)?;
    } else {
        for finding in &findings {
            print(finding)?;
        }
        outln!("{}", summary(&findings))?;
    }
    let failures = number_of(&findings, State::Missing);
    match u64::try_from(failures)? {
        0 => Ok(()),
        failures => Err(Exit::Failure.error(format!(
            "{} that the router needs; fix it as shown, and run the command again",
            count(failures, "thing is missing", "things are missing")
        ))),
    }
}

fn number_of(findings: &[Finding], state: State) -> usize {
    findings.iter().filter(|finding| finding.state() == state).count()
}

fn summary(findings: &[Finding]) -> String {
    let states = [State::Missing, State::Recommended, State::Found];
    let parts = states.map(|state| format!("{} {}", number_of(findings, state), state.word()));
    parts.join(", ")
}

fn print(finding: &Finding) -> anyhow::Result<()> {
    let state = finding.state().word();
    outln!("{state:<11}  {}: {}", printable(&finding.check), printable(&finding.detail))?;
    for (title, text) in [("effect", &finding.effect), ("fix", &finding.fix)] {
        if let Some(text) = text {
            outln!("             {title}: {}", printable(text))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_things_have_no_effect_and_fix() {
        let finding = Finding::new("a", true, "b", Outcome::found("c"));
        assert_eq!(finding.state(), State::Found);
        assert!(finding.effect.is_none() && finding.fix.is_none());
        let finding = Finding::new("a", true, "b", Outcome::missing("c", "d"));
        assert_eq!(finding.state(), State::Missing);
        assert_eq!((finding.effect.unwrap(), finding.fix.unwrap()), ("b".into(), "d".into()));
        let finding = Finding::new("a", false, "b", Outcome::missing("c", "d"));
        assert_eq!(finding.state(), State::Recommended);
    }

    #[test]
    fn missing_comes_before_recommended_and_found() {
        let mut findings = vec![
            Finding::new("a", true, "b", Outcome::found("c")),
            Finding::new("a", false, "b", Outcome::missing("c", "d")),
            Finding::new("a", true, "b", Outcome::missing("c", "d")),
            Finding::new("a", false, "b", Outcome::found("c")),
        ];
        findings.sort_by_key(Finding::state);
        let states: Vec<&str> = findings.iter().map(|finding| finding.state().word()).collect();
        assert_eq!(states, ["missing", "recommended", "found", "found"]);
        assert_eq!(summary(&findings), "1 missing, 1 recommended, 2 found");
    }
}
