//! `--check`: installs the packages, and runs what is in them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use xtask::tools::{has_program, install_package, output, run, target_folder};

use crate::image;
use crate::package::Cpu;

/// Debian's packages of what the checks need.
const PACKAGES: [&str; 7] =
    ["mmdebstrap", "rpm", "rpm2cpio", "cpio", "bubblewrap", "iproute2", "curl"];

/// What was written, for the processor of this machine.
pub(crate) struct Written {
    pub(crate) deb: PathBuf,
    pub(crate) next_deb: PathBuf,
    pub(crate) rpm: PathBuf,
    pub(crate) image: PathBuf,
    pub(crate) cpu: Cpu,
}

pub(crate) fn all(root: &Path, written: &Written) -> anyhow::Result<()> {
    let scripts = root.join("packaging/check");
    install_tools()?;
    exposure(root)?;
    run(Command::new(scripts.join("rpm.sh")).arg(&written.rpm))?;
    let unpacked = target_folder(root).join("dist-check/image");
    unpack(&written.image, written.cpu, &unpacked)?;
    run(Command::new(scripts.join("image.sh")).arg(&unpacked))?;
    let base = debian(&target_folder(root).join("dist-check/debian"))?;
    let debs = [&written.deb, &written.next_deb];
    run(Command::new(scripts.join("deb.sh")).arg(&base).args(debs))?;
    run(Command::new(scripts.join("two.sh")).arg(&base).arg(&written.deb))
}

fn install_tools() -> anyhow::Result<()> {
    for package in PACKAGES {
        let program = match package {
            "bubblewrap" => "bwrap",
            "iproute2" => "ip",
            package => package,
        };
        if !has_program(program) {
            install_package(package).with_context(|| {
                format!("the checks need {}, which root installs on Debian", PACKAGES.join(", "))
            })?;
        }
    }
    Ok(())
}

/// What `systemd-analyze security` says of the units is at most 2.0.
pub(crate) fn exposure(root: &Path) -> anyhow::Result<()> {
    let folder = root.join("packaging/systemd");
    for entry in fs::read_dir(&folder).with_context(|| format!("no {}", folder.display()))? {
        let unit = entry?.path();
        if unit.extension().is_some_and(|end| end == "service") {
            let options = ["security", "--offline=true", "--no-pager", "--threshold=20"];
            output(Command::new("systemd-analyze").args(options).arg(&unit))
                .with_context(|| format!("{} is exposed by more than 2.0", unit.display()))?;
        }
    }
    Ok(())
}

/// A root of Debian with systemd, made once.
fn debian(root: &Path) -> anyhow::Result<PathBuf> {
    if root.join("usr/lib/systemd/systemd").exists() {
        return Ok(root.to_owned());
    }
    let made = root.with_extension("new");
    if made.exists() {
        fs::remove_dir_all(&made)?;
    }
    let options = ["--variant=minbase", "--include=systemd-sysv,libpam-systemd", "bookworm"];
    run(Command::new("mmdebstrap").args(options).arg(&made))?;
    fs::rename(&made, root)?;
    Ok(root.to_owned())
}

fn unpack(image: &Path, cpu: Cpu, to: &Path) -> anyhow::Result<()> {
    let octets = fs::read(image).with_context(|| format!("cannot read {}", image.display()))?;
    let layer = image::layer(&octets, cpu)?;
    match fs::remove_dir_all(to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => bail!(error),
        _ => fs::create_dir_all(to)?,
    }
    let mut archive = tar::Archive::new(&layer[..]);
    archive.set_preserve_permissions(true);
    archive.unpack(to).with_context(|| format!("cannot unpack into {}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_confined_to_exposure_two() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        // `--offline` came with systemd 250.
        let help = output(Command::new("systemd-analyze").arg("--help"));
        if !help.is_ok_and(|help| help.contains("--offline")) {
            eprintln!("==> no systemd-analyze of systemd 250 or later: the units are NOT tested");
            return;
        }
        exposure(&root).expect("confined units");
    }
}
