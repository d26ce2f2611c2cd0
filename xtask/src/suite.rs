//! Runs the test executables, several at a time: most of them wait for sockets, disks and timers.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, bail};
use serde_json::Value;

use xtask::tools::target_folder;

/// More at a time would compete for the memory that tests of large files need.
const AT_A_TIME_MAX: usize = 4;

/// A test executable that cargo built.
#[derive(Debug, PartialEq, Eq)]
struct Executable {
    name: String,
    path: PathBuf,
    /// The folder of its package, in which cargo would run it.
    folder: PathBuf,
}

/// Variables of the caller that change what programs print or where they connect.
const UNSET: [&str; 8] = [
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "TRACEPARENT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_TRACES_SAMPLER",
    "OTEL_SDK_DISABLED",
];

/// Builds the tests that `cargo_arguments` select, and runs them with the arguments `harness` and
/// an environment. Prints the output of those that fail, and the totals of each other; with
/// `prints_all`, all output.
pub(crate) fn run(
    root: &Path,
    cargo_arguments: &[&str],
    harness: &[String],
    prints_all: bool,
    environment: &[(&str, &str)],
) -> anyhow::Result<()> {
    let executables = build(root, cargo_arguments)?;
    let logs = target_folder(root).join("test-logs");
    std::fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(AT_A_TIME_MAX);
    let waiting = Mutex::new(executables);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(executable) = next else { break };
                    let start = Instant::now();
                    println!("==> {} starts", executable.name);
                    let result = run_one(&executable, &logs, harness, environment);
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(name) = report(&executable, start, result, prints_all) {
                        failed.push(name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failed.is_empty() {
        return Ok(());
    }
    bail!(
        "{} test executable(s) failed, whose output is above: {}",
        failed.len(),
        failed.join(", ")
    )
}

fn build(root: &Path, cargo_arguments: &[&str]) -> anyhow::Result<VecDeque<Executable>> {
    let output = Command::new(env!("CARGO"))
        .args(["test", "--no-run", "--message-format", "json-render-diagnostics"])
        .args(cargo_arguments)
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the tests do not build ({})", output.status);
    }
    let messages = String::from_utf8(output.stdout).context("cargo did not print UTF-8")?;
    Ok(messages.lines().filter_map(executable).collect())
}

/// The test executable in one of cargo's messages.
fn executable(message: &str) -> Option<Executable> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_test = message["profile"]["test"].as_bool() == Some(true);
    let path = message["executable"].as_str().filter(|_| is_test)?;
    Some(Executable {
        name: message["target"]["name"].as_str()?.to_owned(),
        path: path.into(),
        folder: Path::new(message["manifest_path"].as_str()?).parent()?.to_owned(),
    })
}

/// What a test executable printed, and whether its tests passed.
struct Outcome {
    passed: bool,
    output: String,
}

fn run_one(
    executable: &Executable,
    logs: &Path,
    harness: &[String],
    environment: &[(&str, &str)],
) -> anyhow::Result<Outcome> {
    // A file, because a process that a test leaves behind would keep a pipe open.
    let file_name = executable.path.file_name().context("no file name")?;
    let log = logs.join(file_name).with_extension("log");
    let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(&executable.path);
    UNSET.iter().for_each(|variable| {
        command.env_remove(variable);
    });
    // Also the output of tests that pass: it says what could not be tested.
    let status = command
        .arg("--show-output")
        .args(harness)
        .envs(environment.iter().copied())
        .env("CARGO_MANIFEST_DIR", &executable.folder)
        .current_dir(&executable.folder)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .status()
        .with_context(|| format!("cannot start {}", executable.path.display()))?;
    let output = std::fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
    let output = String::from_utf8_lossy(&output).into_owned();
    Ok(Outcome { passed: status.success(), output })
}

/// Prints the result of an executable, and returns its name if it failed.
fn report(
    executable: &Executable,
    start: Instant,
    result: anyhow::Result<Outcome>,
    prints_all: bool,
) -> Option<String> {
    let outcome =
        result.unwrap_or_else(|error| Outcome { passed: false, output: format!("{error:#}\n") });
    let seconds = start.elapsed().as_secs_f64();
    println!("==> {} ({}), {seconds:.1} s", executable.name, executable.folder.display());
    if prints_all || !outcome.passed {
        println!("{}", outcome.output);
    } else {
        outcome.output.lines().filter(|line| is_summary(line)).for_each(|line| println!("{line}"));
    }
    (!outcome.passed).then(|| executable.name.clone())
}

/// Lines of a run that passed which a reader should see: totals, and tests that could not run.
fn is_summary(line: &str) -> bool {
    line.starts_with("test result:") || line.contains("NOT tested")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_test_executables_in_messages() {
        let message = r#"{"reason":"compiler-artifact","manifest_path":"/r/core/name/Cargo.toml",
            "target":{"name":"all"},"profile":{"test":true},"executable":"/r/target/all-1"}"#;
        let expected = Executable {
            name: "all".into(),
            path: "/r/target/all-1".into(),
            folder: "/r/core/name".into(),
        };
        assert_eq!(executable(message), Some(expected));
        let program = message.replace("true", "false");
        assert_eq!(executable(&program), None);
        assert_eq!(executable(&message.replace("\"/r/target/all-1\"", "null")), None);
        assert_eq!(executable("warning: not JSON"), None);
    }

    #[test]
    fn failing_executables_are_named_at_the_end() {
        let folder = tempfile::tempdir().expect("folder");
        let program = |name: &str| Executable {
            name: name.into(),
            path: format!("/bin/{name}").into(),
            folder: folder.path().to_owned(),
        };
        let outcome = |name: &str| {
            let executable = program(name);
            let result = run_one(&executable, folder.path(), &[], &[]);
            report(&executable, Instant::now(), result, false)
        };
        assert_eq!(outcome("true"), None);
        assert_eq!(outcome("false"), Some("false".into()));
        assert_eq!(outcome("no-such-program"), Some("no-such-program".into()));
    }
}
