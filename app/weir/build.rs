//! Tells the program which commit it is built from: `WEIR_COMMIT` where that is set, as by who
//! packages a release without its history, otherwise what git says.

use std::path::Path;
use std::process::Command;

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
    println!("cargo::rerun-if-changed=build.rs");
    let commit = std::env::var("WEIR_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = commit.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    println!("cargo::rustc-env=WEIR_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}
