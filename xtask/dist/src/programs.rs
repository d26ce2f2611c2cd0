//! Builds the static programs and the wheel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::package::Cpu;
use crate::tools::{self, Tools};

/// Separates the options in `CARGO_ENCODED_RUSTFLAGS`.
const UNIT_SEPARATOR: &str = "\x1f";

/// The profile in Cargo.toml.
const PROFILE: &str = "static";

/// Builds the program for a processor, and returns it.
pub(crate) fn build(root: &Path, tools: &Tools, cpu: Cpu, epoch: u64) -> anyhow::Result<Vec<u8>> {
    let target = cpu.target();
    let mut cargo = tools::cargo(root);
    cargo.args(["zigbuild", "--locked", "--profile", PROFILE, "--package", "weir", "--target"]);
    cargo.arg(&target);
    reproducible(&mut cargo, root, tools, epoch)?;
    tools::run(&mut cargo)?;
    let program = path(root, cpu);
    fs::read(&program).with_context(|| format!("the build left no {}", program.display()))
}

/// Where the program for a processor is built.
pub(crate) fn path(root: &Path, cpu: Cpu) -> PathBuf {
    tools::target_folder(root).join(cpu.target()).join(PROFILE).join("weir")
}

/// Builds the wheel for Python into a folder, and returns its path. It needs glibc 2.28.
pub(crate) fn wheel(root: &Path, tools: &Tools, out: &Path, epoch: u64) -> anyhow::Result<PathBuf> {
    let folder = tools::target_folder(root).join("dist-wheel");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let mut maturin = Command::new(tools.python());
    maturin
        .args(["-m", "maturin", "build", "--locked", "--zig", "--compatibility", "manylinux_2_28"])
        .args(["--profile", PROFILE, "--target", "x86_64-unknown-linux-gnu", "--manifest-path"])
        .args(["bindings/python/Cargo.toml", "--out"])
        .arg(&folder)
        .current_dir(root);
    reproducible(&mut maturin, root, tools, epoch)?;
    tools::run(&mut maturin)?;
    let built = fs::read_dir(&folder)?.next().context("maturin left no wheel")??;
    let path = out.join(built.file_name());
    fs::copy(built.path(), &path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Sets what makes a build independent of its time and place.
fn reproducible(
    command: &mut Command,
    root: &Path,
    tools: &Tools,
    epoch: u64,
) -> anyhow::Result<()> {
    let home = std::env::var("HOME").unwrap_or_default();
    let cargo_home = std::env::var("CARGO_HOME").unwrap_or(format!("{home}/.cargo"));
    let folders = [(root.display().to_string(), "/weir"), (cargo_home, "/cargo")];
    let options = |option: &str| folders.clone().map(|(from, to)| format!("{option}={from}={to}"));
    command
        .env("PATH", tools.path()?)
        .env("SOURCE_DATE_EPOCH", epoch.to_string())
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_ENCODED_RUSTFLAGS", options("--remap-path-prefix").join(UNIT_SEPARATOR))
        .env("CFLAGS", options("-ffile-prefix-map").join(" "));
    Ok(())
}
