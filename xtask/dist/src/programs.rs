//! Builds the static programs and the wheel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use xtask::tools::{run, target_folder};

use crate::components::Components;
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
    run(&mut cargo)?;
    let program = path(root, cpu);
    fs::read(&program).with_context(|| format!("the build left no {}", program.display()))
}

/// Where the program for a processor is built.
pub(crate) fn path(root: &Path, cpu: Cpu) -> PathBuf {
    target_folder(root).join(cpu.target()).join(PROFILE).join("weir")
}

/// The target of the wheel.
const WHEEL_TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds the wheel for Python into a folder, and returns its path. It needs glibc 2.28.
pub(crate) fn wheel(root: &Path, tools: &Tools, out: &Path, epoch: u64) -> anyhow::Result<PathBuf> {
    let folder = target_folder(root).join("dist-wheel");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let mut maturin = Command::new(tools.python());
    maturin
        .args(["-m", "maturin", "build", "--locked", "--zig", "--compatibility", "manylinux_2_28"])
        .args(["--profile", PROFILE, "--target", WHEEL_TARGET, "--manifest-path"])
        .args(["bindings/python/Cargo.toml", "--out"])
        .arg(&folder)
        .current_dir(root);
    reproducible(&mut maturin, root, tools, epoch)?;
    run(&mut maturin)?;
    let built = fs::read_dir(&folder)?.next().context("maturin left no wheel")??;
    let mut licences = tools.licences()?;
    licences.retain(|(name, _)| !name.starts_with("musl"));
    let components = Components::read(root, "weir-python", WHEEL_TARGET)?;
    let mut files = vec![("THIRD-PARTY", components.licences(&licences)?)];
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        files.push((name, fs::read_to_string(root.join(name)).context(name)?));
    }
    let unpacked = folder.join("unpacked");
    let wheel = |words: &[&str]| {
        let mut wheel = Command::new(tools.python());
        wheel.args(["-m", "wheel"]).args(words).env("SOURCE_DATE_EPOCH", epoch.to_string());
        wheel
    };
    run(wheel(&["unpack", "--dest"]).arg(&unpacked).arg(built.path()))?;
    let content = fs::read_dir(&unpacked)?.next().context("the wheel is empty")??.path();
    add_licences(&content, &files)?;
    run(wheel(&["pack", "--dest-dir"]).arg(out).arg(content))?;
    let path = out.join(built.file_name());
    path.exists().then_some(path).context("the wheel has another name after packing")
}

/// Adds licences to an unpacked wheel, where PEP 639 has them. maturin finds those next to
/// `pyproject.toml` alone.
fn add_licences(content: &Path, files: &[(&str, String)]) -> anyhow::Result<()> {
    let entries = fs::read_dir(content)?.collect::<Result<Vec<_>, _>>()?;
    let mut paths = entries.iter().map(fs::DirEntry::path);
    let info = paths.find(|path| path.extension().is_some_and(|end| end == "dist-info"));
    let info = info.context("the wheel has no .dist-info")?;
    let folder = info.join("licenses");
    fs::create_dir_all(&folder)?;
    let metadata = fs::read_to_string(info.join("METADATA"))?;
    let mut lines = String::new();
    for (name, text) in files {
        fs::write(folder.join(name), text)?;
        lines += &format!("License-File: {name}\n");
    }
    // Headers end at the first empty line, or with the file.
    let end = metadata.find("\n\n").map_or(metadata.len(), |at| at + 1);
    fs::write(info.join("METADATA"), [&metadata[..end], &lines, &metadata[end..]].concat())?;
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wheels_get_licences() {
        let folder = tempfile::tempdir().expect("folder");
        let info = folder.path().join("weir_ndn-1.2.3.dist-info");
        fs::create_dir(&info).expect("folder");
        fs::write(info.join("METADATA"), "Name: weir-ndn\n\n# Weir\n\nText\n").expect("write");
        add_licences(folder.path(), &[("THIRD-PARTY", "MIT".into())]).expect("added");
        let metadata = fs::read_to_string(info.join("METADATA")).expect("metadata");
        assert_eq!(metadata, "Name: weir-ndn\nLicense-File: THIRD-PARTY\n\n# Weir\n\nText\n");
        assert_eq!(fs::read_to_string(info.join("licenses/THIRD-PARTY")).expect("file"), "MIT");
    }
}
