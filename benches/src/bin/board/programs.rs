//! The programs and examples that the board runs, and their JSON output.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::machine;

/// The measurements, with the package if the program is an example.
const PROGRAMS: &[(&str, Option<&str>)] = &[
    ("router_core", None),
    ("whole_system", None),
    ("simulator", None),
    ("disk_engine", None),
    ("egress_speed", Some("weir-link")),
    ("ingress_speed", Some("weir-link")),
    ("speed", Some("weir-crypto")),
    ("control_speed", Some("weir-control")),
];

/// Builds measurements on first use and runs them.
pub(crate) struct Programs {
    /// The folder of the release profile, which contains this program.
    folder: PathBuf,
}

impl Programs {
    pub(crate) fn new() -> Result<Self> {
        Self::of(machine::programs()?)
    }

    fn of(folder: PathBuf) -> Result<Self> {
        ensure!(
            folder.ends_with("release"),
            "the board lies in {} and measures the release profile alone: \
             cargo run --release -p weir-benches --bin board",
            folder.display()
        );
        Ok(Self { folder })
    }

    /// Builds a measurement if necessary, and returns its path.
    pub(crate) fn build(&self, program: &str) -> Result<PathBuf> {
        let known = PROGRAMS.iter().find(|(name, _)| *name == program);
        let (_, package) = known.with_context(|| format!("no measurement {program}"))?;
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(machine::repository()).args(["build", "--quiet", "--release"]);
        cargo.env("CARGO_TARGET_DIR", self.folder.parent().context("target folder")?);
        match package {
            Some(package) => cargo.args(["-p", package, "--example", program]),
            None => cargo.args(["-p", "weir-benches", "--bin", program]),
        };
        let status = cargo.status().context("cannot start cargo")?;
        ensure!(status.success(), "cannot build {program}: {status}");
        let folder =
            if package.is_some() { self.folder.join("examples") } else { self.folder.clone() };
        Ok(folder.join(program))
    }

    /// Runs a measurement and parses its JSON output.
    pub(crate) fn json(&self, program: &str, words: &[&str]) -> Result<Value> {
        let text = output_of(Command::new(self.build(program)?).args(words), program)?;
        serde_json::from_str(&text).with_context(|| format!("{program} printed no JSON: {text}"))
    }
}

pub(crate) fn output_of(command: &mut Command, program: &str) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {program}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed: {errors}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The number at a path of keys in a measurement's report.
pub(crate) fn number(report: &Value, keys: &[&str]) -> Result<f64> {
    let found = keys.iter().fold(report, |value, key| &value[*key]);
    found.as_f64().with_context(|| format!("no {}: {report}", keys.join(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_other_profiles() {
        assert!(Programs::of("target/release".into()).is_ok());
        for folder in ["target/debug", "target/profiling", "release/debug"] {
            let error = Programs::of(folder.into()).err().expect("no release profile").to_string();
            assert!(error.contains(folder) && error.contains("--release"), "{error}");
        }
    }
}
