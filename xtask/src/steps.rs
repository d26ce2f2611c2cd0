//! The steps of `ci` and `test`, run one after the other as child processes.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};
use xtask::tools::target_folder;

use crate::{book, chart, clients, layers, report, suite, tidy};

/// Tests run with the laboratory, and with traces.
const FEATURES: [&str; 2] = ["--features", "weir/lab,weir/otlp"];

/// What cargo builds and tests.
const WITH_WORKSPACE: [&str; 3] = ["--workspace", FEATURES[0], FEATURES[1]];

/// Size limit of the program without the laboratory. The controller's databases (SQLite,
/// PostgreSQL), HTTP and TLS are 13 MB of it; HTTP/2, HTTP/3 and the HTTP client of the gateway are
/// 7 MB.
const BINARY_BYTES_MAX: u64 = 40_000_000;

/// Arguments of `cargo xtask test`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TestOptions {
    full: bool,
    passed_on: Vec<String>,
}

impl TestOptions {
    /// # Errors
    /// An unknown option, or a filter where cargo would ignore it.
    pub(crate) fn parse<'a>(mut words: impl Iterator<Item = &'a str>) -> anyhow::Result<Self> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            match word {
                "--full" => options.full = true,
                "--" => options.passed_on.extend(words.by_ref().map(str::to_owned)),
                other => {
                    bail!("unexpected argument `{other}`; what is for cargo test goes after --")
                }
            }
        }
        if options.passed_on.first().is_some_and(|word| !word.starts_with('-')) {
            bail!("names of tests go after a second --: cargo xtask test -- -- NAME");
        }
        Ok(options)
    }

    /// What follows `--` up to the next `--`, for cargo.
    fn for_cargo(&self) -> Vec<&str> {
        let passed_on = self.passed_on.iter().map(String::as_str);
        WITH_WORKSPACE.into_iter().chain(passed_on.take_while(|word| *word != "--")).collect()
    }

    /// The arguments of the test executables.
    fn for_harness(&self) -> Vec<String> {
        let passed_on = self.passed_on.iter().skip_while(|word| *word != "--").skip(1);
        let full = self.full.then(|| "--include-ignored".to_owned());
        full.into_iter().chain(passed_on.cloned()).collect()
    }
}

/// Everything a change must pass. Stops at the first step that fails.
pub(crate) fn ci(root: &Path) -> anyhow::Result<()> {
    cargo(root, &["fmt", "--all", "--check"], &[])?;
    step("layers", || report("layers", &layers::check(root)?))?;
    step("tidy", || report("tidy", &tidy::check(root)?))?;
    let deny = |what: &[&str]| {
        let words = [&["clippy", "--all-targets"], what, &["--", "-D", "warnings"]].concat();
        cargo(root, &words, &[])
    };
    deny(&[&["--workspace"], &FEATURES[..]].concat())?;
    deny(&["--package", "weir", "--package", "weir-runtime"])?;
    let docs = [&["doc", "--workspace", "--no-deps"], &FEATURES[..]].concat();
    cargo(root, &docs, &[("RUSTDOCFLAGS", "-D warnings")])?;
    test(root, &TestOptions::default())
}

/// Builds the program without the laboratory, and fails if it is too large.
pub(crate) fn size(root: &Path) -> anyhow::Result<()> {
    cargo(root, &["build", "--release", "--package", "weir"], &[])?;
    let binary = target_folder(root).join("release").join(executable("weir"));
    let read = || format!("cannot read {}", binary.display());
    let bytes = std::fs::metadata(&binary).with_context(read)?.len();
    eprintln!("==> {}: {bytes} bytes, at most {BINARY_BYTES_MAX}", binary.display());
    if bytes > BINARY_BYTES_MAX {
        bail!("{} has {bytes} bytes, more than {BINARY_BYTES_MAX}", binary.display());
    }
    Ok(())
}

/// Installs the interoperation clients while the workspace builds, then runs all tests. With
/// `--full`, checks the size of the release as well, whose build takes 8 minutes, and the Helm
/// chart.
///
/// One command builds programs and tests with the features that `cargo test` uses, so nothing is
/// compiled twice. `WEIR_BIN` names the `weir` program for the tests.
pub(crate) fn test(root: &Path, options: &TestOptions) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        let install = scope.spawn(|| clients::install(root));
        // A test that builds its own examples would build them with other features of their
        // dependencies, and so compile these again.
        let kinds = ["--bins", "--tests", "--examples"];
        let build = [&["build", "--workspace"], &kinds[..], &FEATURES[..]].concat();
        let built = cargo(root, &build, &[]);
        let installed = install.join().map_err(|_| anyhow::anyhow!("installing clients panicked"));
        built.and(installed?)
    })?;
    let binary = target_folder(root).join("debug").join(executable("weir"));
    if !binary.is_file() {
        bail!("the build left no {}", binary.display());
    }
    if options.full {
        size(root)?;
        step("chart", || chart::check(root))?;
    }
    let (clients_at, examples) = (clients::folder(root), binary.with_file_name("examples"));
    let environment = [
        ("WEIR_BIN", &*binary.to_string_lossy()),
        ("WEIR_EXAMPLES", &*examples.to_string_lossy()),
        ("WEIR_INTEROP", &*clients_at.to_string_lossy()),
    ];
    let prints_all = !options.passed_on.is_empty();
    step("tests", || {
        suite::run(root, &options.for_cargo(), &options.for_harness(), prints_all, &environment)
    })?;
    if options.passed_on.is_empty() {
        cargo(root, &[&["test", "--doc"], &WITH_WORKSPACE[..]].concat(), &[])?;
    }
    Ok(())
}

/// Builds the book and the packages, these by a program of its own: its libraries would delay every
/// other command.
pub(crate) fn dist(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let without = ["--no-book", "--help", "-h"];
    if !arguments.iter().any(|word| without.contains(&&**word)) {
        step("book", || book::build(root))?;
    }
    let words = ["run", "--quiet", "--package", "weir-dist", "--"].map(str::to_owned);
    let words = [&words, arguments].concat();
    run_cargo(root, &words.iter().map(String::as_str).collect::<Vec<_>>(), &[])
}

fn executable(name: &str) -> String {
    format!("{name}{}", std::env::consts::EXE_SUFFIX)
}

fn cargo(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> anyhow::Result<()> {
    step(&format!("cargo {}", arguments.join(" ")), || run_cargo(root, arguments, environment))
}

fn run_cargo(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> anyhow::Result<()> {
    let status = Command::new(env!("CARGO"))
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(root)
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("cargo {} failed ({status})", arguments.join(" "));
    }
    Ok(())
}

/// Runs a step, and prints its name and duration on standard error.
pub(crate) fn step(name: &str, run: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    eprintln!("==> {name}");
    let start = Instant::now();
    run()?;
    eprintln!("==> {name}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> anyhow::Result<TestOptions> {
        TestOptions::parse(words.iter().copied())
    }

    #[test]
    fn words_go_to_cargo_and_to_the_harness() {
        let all = &WITH_WORKSPACE[..];
        let none = parse(&[]).expect("good words");
        assert_eq!((none.for_cargo(), none.for_harness()), (all.to_vec(), vec![]));
        let full = ["--full", "--", "--test", "interop", "--", "--nocapture"];
        let full = parse(&full).expect("good words");
        assert_eq!(full.for_cargo(), [all, &["--test", "interop"]].concat());
        assert_eq!(full.for_harness(), ["--include-ignored", "--nocapture"]);
    }

    #[test]
    fn unknown_options_are_refused() {
        assert!(parse(&["--fast"]).is_err());
        assert!(parse(&["--", "a_test"]).is_err());
    }
}
