//! Installs the programs that tests need.
//!
//! python-ndn, NDNts and the tools for the Python wheel come from their registries and go into
//! `target/interop`. A stamp there holds the text of the requirements. While it matches, nothing is
//! installed, so a second run needs no network. PostgreSQL, Chromium and Prometheus are packages of
//! the system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::target_folder;

const SKIP: &str = "WEIR_SKIP_INTEROP";

pub(crate) fn folder(root: &Path) -> PathBuf {
    target_folder(root).join("interop")
}

/// Installs all of them. An error says what is missing and what to do.
pub(crate) fn install(root: &Path) -> anyhow::Result<()> {
    install_postgres()?;
    install_chromium();
    install_slurm();
    install_prometheus();
    if std::env::var_os(SKIP).is_some_and(|value| value == "1") {
        eprintln!("==> {SKIP}=1: python-ndn, NDNts and the wheel for Python are NOT tested");
        return Ok(());
    }
    let remedy = format!(
        "the tests need python3 (3.11 or later) with venv, npm, and a network the \
         first time; {SKIP}=1 leaves those tests out"
    );
    let sources = root.join("tests/interop");
    let target = folder(root);
    let requirements = sources.join("python/requirements.txt");
    install_python(&requirements, &target.join("python"), "ndn.appv2")
        .with_context(|| format!("cannot install python-ndn: {remedy}"))?;
    let requirements = root.join("bindings/python/tests/requirements.txt");
    install_python(
        &requirements,
        &target.join("weir-python"),
        "maturin, pandas, distributed, uproot",
    )
    .with_context(|| format!("cannot install what the wheel is tested with: {remedy}"))?;
    install_node(&sources.join("ndnts"), &target.join("ndnts"))
        .with_context(|| format!("cannot install NDNts: {remedy}"))
}

/// Installs the database server for the tests of controllers. Each test starts its own server, with
/// a temporary folder for the data.
fn install_postgres() -> anyhow::Result<()> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.extend(std::env::split_paths(&path));
    if folders.iter().any(|folder| folder.join("initdb").exists()) {
        return Ok(());
    }
    install_package("postgresql").context(
        "the tests need a PostgreSQL server (initdb, postgres and psql), which root installs with \
         `apt-get install postgresql`; it need not run",
    )
}

/// Installs the browser that tests the controller's dashboard. Without it only that test is
/// skipped.
fn install_chromium() {
    install_optional("chromium", "chromium", "the controller's dashboard is NOT tested");
}

/// Installs Slurm, on which the laboratory's sweeps are tested. The test starts daemons of its own.
fn install_slurm() {
    if Path::new("/usr/sbin/slurmctld").exists() {
        return;
    }
    for name in ["munge", "slurmctld", "slurmd", "slurm-client"] {
        if let Err(error) = install_package(name) {
            eprintln!("{error:#}");
            eprintln!("==> no package `{name}`: sweeps on Slurm are NOT tested");
            return;
        }
    }
}

/// Installs the program that tests metrics and alerts. Without it only these tests are skipped.
fn install_prometheus() {
    let without = "the form of metrics and the alerts are NOT tested";
    install_optional("promtool", "prometheus", without);
}

/// Installs a package unless its program is there. If that fails, prints the consequence.
fn install_optional(program: &str, package: &str, consequence: &str) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(program).exists()) {
        return;
    }
    if let Err(error) = install_package(package) {
        eprintln!("{error:#}");
        eprintln!("==> no program `{program}`: {consequence}");
    }
}

/// Installs a package of the system (Debian, as root).
fn install_package(name: &str) -> anyhow::Result<()> {
    eprintln!("==> installing {name}");
    let apt = |words: &[&str]| {
        let mut apt = Command::new("apt-get");
        run(apt.args(words).env("DEBIAN_FRONTEND", "noninteractive")).map(drop)
    };
    let install = ["install", "--yes", "--no-install-recommends", name];
    // A new machine may have an old list of packages, or none.
    apt(&install).or_else(|_| apt(&["update", "--quiet"]).and_then(|()| apt(&install)))
}

/// A virtual environment with what `requirements` lists, in which `modules` can be imported.
pub(crate) fn install_python(
    requirements: &Path,
    target: &Path,
    modules: &str,
) -> anyhow::Result<()> {
    let stamp = Stamp::new(target, &[requirements])?;
    let python = target.join("bin/python");
    if stamp.matches() && python.exists() {
        return Ok(());
    }
    eprintln!("==> installing {modules} into {}", target.display());
    remove_folder(target)?;
    let base = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    run(Command::new(base).args(["-m", "venv"]).arg(target))?;
    run(Command::new(&python)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"])
        .arg(requirements))?;
    run(Command::new(&python).arg("-c").arg(format!("import {modules}")))?;
    stamp.write()
}

/// NDNts needs Node 22. npm delivers it as a package, so the machine may have another version.
fn install_node(source: &Path, target: &Path) -> anyhow::Result<()> {
    let manifests = [source.join("package.json"), source.join("package-lock.json")];
    let stamp = Stamp::new(target, &[&manifests[0], &manifests[1]])?;
    let node = target.join("node");
    if stamp.matches() && node.exists() {
        return Ok(());
    }
    eprintln!("==> installing NDNts into {}", target.display());
    remove_folder(target)?;
    fs::create_dir_all(target)?;
    for manifest in &manifests {
        let name = manifest.file_name().context("a manifest has a name")?;
        fs::copy(manifest, target.join(name))?;
    }
    run(Command::new("npm")
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])
        .current_dir(target))?;
    link_node(target, &node)?;
    run(Command::new(&node)
        .args(["--input-type=module", "-e", "import '@ndn/endpoint'"])
        .current_dir(target))?;
    stamp.write()
}

/// Links `target/node` to the Node that npm installed for this machine.
fn link_node(target: &Path, node: &Path) -> anyhow::Result<()> {
    let modules = target.join("node_modules");
    let found = fs::read_dir(&modules)?
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("node-linux-"))
        .map(|entry| entry.path().join("bin/node"))
        .find(|path| path.exists());
    let Some(program) = found else {
        bail!(
            "npm has no Node 22 for {} {} in {}; add its package to \
             tests/interop/ndnts/package.json",
            std::env::consts::OS,
            std::env::consts::ARCH,
            modules.display()
        );
    };
    std::os::unix::fs::symlink(&program, node)
        .with_context(|| format!("cannot link {} to {}", node.display(), program.display()))
}

fn remove_folder(path: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot empty {}", path.display())),
    }
}

/// Runs a program, and returns its standard output.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("cannot start {program}; is it installed and on PATH?"))?;
    if !output.status.success() {
        bail!(
            "{program} failed ({}):\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Records the requirements of an installation. Written last, so that a failed one has no stamp.
struct Stamp {
    path: PathBuf,
    text: String,
}

impl Stamp {
    fn new(target: &Path, sources: &[&Path]) -> anyhow::Result<Self> {
        let mut text = String::new();
        for source in sources {
            text += &fs::read_to_string(source)
                .with_context(|| format!("cannot read {}", source.display()))?;
        }
        Ok(Self { path: target.join("installed-from"), text })
    }

    fn matches(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|text| text == self.text)
    }

    fn write(&self) -> anyhow::Result<()> {
        fs::write(&self.path, &self.text)
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_matches_only_what_it_was_written_from() {
        let folder = std::env::temp_dir().join(format!("weir-stamp-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("temporary folder");
        let source = folder.join("requirements.txt");
        fs::write(&source, "a==1\n").expect("write");
        let stamp = Stamp::new(&folder, &[&source]).expect("readable");
        assert!(!stamp.matches());
        stamp.write().expect("writable");
        assert!(stamp.matches());
        fs::write(&source, "a==2\n").expect("write");
        assert!(!Stamp::new(&folder, &[&source]).expect("readable").matches());
        fs::remove_dir_all(&folder).expect("remove");
    }

    #[test]
    fn a_program_that_fails_is_reported_with_its_words() {
        let error = run(Command::new("sh").args(["-c", "echo no network >&2; exit 3"]));
        let text = format!("{:#}", error.expect_err("exit code 3"));
        assert!(text.contains("no network") && text.contains("exit status: 3"), "{text}");
        let missing = run(&mut Command::new("no-such-program"));
        assert!(format!("{:#}", missing.expect_err("missing")).contains("on PATH"));
    }
}
