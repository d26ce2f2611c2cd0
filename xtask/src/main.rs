//! `cargo xtask`: checks and chores of the repository.

mod book;
mod chart;
mod circles;
mod clients;
mod layers;
mod release;
mod steps;
mod suite;
mod tidy;
mod unused;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};

const USAGE: &str = "\
Usage: cargo xtask COMMAND

  ci                     everything a change must pass: format, layers, tidy, clippy, rustdoc,
                         tests
  test [--full] [-- ..]  set up what the tests need, then run them; --full runs the long ones,
                         `size` and `chart` too; what follows -- goes to `cargo test`, and
                         what follows another -- to the test executables
  layers                 check layers, forbidden edges between crates, what `cargo run` starts,
                         circles of files within a crate, and public items that nothing uses
  layers --circles       the check for circles alone
  layers --calls         the circles of calls between the files of a type, with the calls
  layers --unused        the check for public items that nothing uses alone
  release [--advisories FOLDER]
                         what a release must pass in addition to ci: one version, a section in the
                         changelog, licences and sources of dependencies, crates that build as
                         published, interfaces compared with the last tag; FOLDER is a checkout of
                         RustSec's advisory-db
  size                   build the program that operators get, without the laboratory, and check
                         that it is under 40 MB
  tidy                   check the size of functions and files, columns, READMEs, leftovers,
                         links, and the words that plain English replaces
  tidy --words           the check for these words alone, with counts for each word and crate
  tidy --sentences       sentences of over 35 words in comments and pages, with their places
  chart                  check the Helm chart with Helm and kubernetes-validate, which it installs
                         into target/chart
  dist [--check] [..]    build the packages of a release into target/dist; --help lists its options
  book                   install mdBook into target/tools, and build docs/ into target/book
  clients                install the interoperation clients into target/interop and stop

Environment:
  WEIR_SKIP_INTEROP=1    leave out the tests that need python-ndn, NDNts or the wheel for
                         Python (never in CI)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> anyhow::Result<()> {
    let root = repository_root()?;
    let mut words = arguments.iter().map(String::as_str);
    match words.next() {
        Some("ci") => no_more(words).and_then(|()| steps::ci(&root)),
        Some("test") => steps::test(&root, &steps::TestOptions::parse(words)?),
        Some("layers") => match words.next() {
            None => report("layers", &layers::check(&root)?),
            Some("--circles") => report("circles", &layers::circles(&root)?),
            Some("--calls") => report("calls", &layers::calls(&root)?),
            Some("--unused") => report("unused", &layers::unused(&root)?),
            Some(other) => bail!("unexpected argument `{other}`\n\n{USAGE}"),
        },
        Some("tidy") => match words.next() {
            None => report("tidy", &tidy::check(&root)?),
            Some("--words") => {
                let findings = tidy::words::findings(&root)?;
                findings.iter().for_each(|finding| println!("{finding}"));
                println!("{}", tidy::words::summary(&findings));
                Ok(())
            }
            Some("--sentences") => {
                tidy::long_sentences(&root)?.iter().for_each(|finding| println!("{finding}"));
                Ok(())
            }
            Some(other) => bail!("unexpected argument `{other}`\n\n{USAGE}"),
        },
        Some("release") => release::check(&root, &release::ReleaseOptions::parse(words)?),
        Some("size") => no_more(words).and_then(|()| steps::size(&root)),
        Some("chart") => no_more(words).and_then(|()| chart::check(&root)),
        Some("dist") => steps::dist(&root, &arguments[1..]),
        Some("book") => match words.next() {
            None => book::build(&root),
            Some("preprocess") => book::preprocess(words),
            Some(other) => bail!("unexpected argument `{other}`\n\n{USAGE}"),
        },
        Some("clients") => no_more(words).and_then(|()| clients::install(&root)),
        Some("help" | "--help" | "-h") => {
            println!("{USAGE}");
            Ok(())
        }
        Some(other) => bail!("unknown command `{other}`\n\n{USAGE}"),
        None => bail!("which command?\n\n{USAGE}"),
    }
}

fn no_more<'a>(mut words: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
    match words.next() {
        None => Ok(()),
        Some(word) => bail!("unexpected argument `{word}`\n\n{USAGE}"),
    }
}

/// Prints every finding and fails if there is one.
fn report(check: &str, findings: &[String]) -> anyhow::Result<()> {
    for finding in findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("{check}: no findings");
        return Ok(());
    }
    bail!("{check}: {} finding(s)", findings.len())
}

fn repository_root() -> anyhow::Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_path_buf)
        .context("the folder of xtask has no parent")
}
