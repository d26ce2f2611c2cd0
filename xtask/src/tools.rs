//! Programs from the crate registry that checks of a release run, in `target/tools`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::target_folder;

/// Installs a version of a crate's program, unless it is there, and returns its path. The first
/// time needs a network and some minutes.
pub(crate) fn install(root: &Path, crate_name: &str, version: &str) -> anyhow::Result<PathBuf> {
    let folder = target_folder(root).join("tools");
    let status = Command::new(env!("CARGO"))
        .args(["install", "--locked", "--quiet", "--root"])
        .arg(&folder)
        .arg(format!("{crate_name}@={version}"))
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("cannot install {crate_name} {version} into {} ({status})", folder.display());
    }
    Ok(folder.join("bin").join(crate_name))
}
