//! Tells the program which commit it is built from: `WEIR_COMMIT` where that is set, as by who
//! packages a release without its history, otherwise what git says, with `-dirty` where the
//! sources are not those of the commit. And when it is built: `WEIR_BUILD_UNIX_S`, of
//! `SOURCE_DATE_EPOCH` where that is set.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// What the program is made of, from this package's folder.
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
    // A commit moves the reference that HEAD names; both files say so.
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
