//! Programs from the crate registry that builds and checks run, in `target/tools`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::target_folder;

/// Installs a version of a crate's program, unless it is there, and returns its path. The first
/// time needs a network and some minutes.
pub(crate) fn install(
    root: &Path,
    crate_name: &str,
    version: &str,
    features: &[&str],
) -> anyhow::Result<PathBuf> {
    let folder = target_folder(root).join("tools");
    let status = Command::new(env!("CARGO"))
        .args(["install", "--locked", "--quiet", "--root"])
        .arg(&folder)
        .arg(format!("{crate_name}@={version}"))
        .args(features)
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("cannot install {crate_name} {version} into {} ({status})", folder.display());
    }
    Ok(folder.join("bin").join(crate_name))
}

/// Runs a program that must succeed.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot start {name}"))?;
    if !status.success() {
        bail!("{name} failed ({status})");
    }
    Ok(())
}
