//! `weir doctor`.
//!
//! [`system`] checks the features of the system, [`site`] the configuration and what it needs.

mod site;
mod system;

use std::path::PathBuf;

use serde::Serialize;

use crate::exit::Exit;
use crate::help::OUTPUT;
use crate::table::{count, outln, printable};

/// Check whether this machine has everything that a router uses.
///
/// Each check is found or missing. For a missing one, the command prints its effect and what fixes
/// it. Run it as the user of the router. No router needs to run; if one does, the ports and the
/// socket that it uses count as found.
///
/// The exit code is 1 if something is missing without which the router does not start. Everything
/// else costs performance, and the router works without it.
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

    fn is_failure(&self) -> bool {
        self.needed && !self.found
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (config, mut findings) = site::check(args.config.as_deref());
    findings.extend(system::check(&config));
    if args.json {
        outln!("{}", serde_json::to_string(&findings)?)?;
    } else {
        for finding in &findings {
            print(finding)?;
        }
    }
    let failures = findings.iter().filter(|finding| finding.is_failure()).count();
    match u64::try_from(failures)? {
        0 => Ok(()),
        failures => Err(Exit::Failure.error(format!(
            "{} that the router needs; fix it as shown, and run the command again",
            count(failures, "thing is missing", "things are missing")
        ))),
    }
}

fn print(finding: &Finding) -> anyhow::Result<()> {
    let state = match (finding.found, finding.needed) {
        (true, _) => "found  ",
        (false, true) => "MISSING",
        (false, false) => "missing",
    };
    outln!("{state}  {}: {}", printable(&finding.check), printable(&finding.detail))?;
    for (title, text) in [("effect", &finding.effect), ("fix", &finding.fix)] {
        if let Some(text) = text {
            outln!("         {title}: {}", printable(text))?;
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
        assert!(!finding.is_failure() && finding.effect.is_none() && finding.fix.is_none());
        let finding = Finding::new("a", true, "b", Outcome::missing("c", "d"));
        assert!(finding.is_failure());
        assert_eq!((finding.effect.unwrap(), finding.fix.unwrap()), ("b".into(), "d".into()));
        assert!(!Finding::new("a", false, "b", Outcome::missing("c", "d")).is_failure());
    }
}
