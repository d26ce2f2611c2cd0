//! Records the commit and the build time in the program.
//!
//! - `WEIR_COMMIT`: the environment variable of that name, for packages without a git history.
//!   Otherwise the commit from git, with `-dirty` if the sources were modified.
//! - `WEIR_BUILD_UNIX_S`: `SOURCE_DATE_EPOCH` if it is set, otherwise the current time.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The sources of the program, relative to this package.
const SOURCES: [&str; 7] = [
    "..",
    "../../core",
    "../../io",
    "../../sim",
    "../../lab",
    "../../Cargo.toml",
    "../../Cargo.lock",
];

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn main() {
    println!("cargo::rerun-if-env-changed=WEIR_COMMIT");
    // Run again after a commit, which changes HEAD or the reference that it names.
    let reference = git(&["symbolic-ref", "-q", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(reference.as_deref()) {
        if let Some(path) = git(&["rev-parse", "--git-path", name])
            && Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    let commit = std::env::var("WEIR_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = commit.or_else(|| {
        let status = ["--no-optional-locks", "status", "--porcelain", "--"];
        let is_dirty = git(&[&status[..], &SOURCES].concat()).is_some();
        let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
        Some(if is_dirty { format!("{commit}-dirty") } else { commit })
    });
    println!("cargo::rustc-env=WEIR_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let epoch = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse::<u64>().ok());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    println!("cargo::rustc-env=WEIR_BUILD_UNIX_S={}", epoch.unwrap_or_else(now));
}
