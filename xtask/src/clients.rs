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
use xtask::tools::{
    has_program, install_once, install_package, install_python, output, target_folder,
};

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
    if has_program(program) {
        return;
    }
    if let Err(error) = install_package(package) {
        eprintln!("{error:#}");
        eprintln!("==> no program `{program}`: {consequence}");
    }
}

/// NDNts needs Node 22. npm delivers it as a package, so the machine may have another version.
fn install_node(source: &Path, target: &Path) -> anyhow::Result<()> {
    let manifests = [source.join("package.json"), source.join("package-lock.json")];
    let node = target.join("node");
    install_once(target, &[&manifests[0], &manifests[1]], &node, || {
        eprintln!("==> installing NDNts into {}", target.display());
        fs::create_dir_all(target)?;
        for manifest in &manifests {
            let name = manifest.file_name().context("a manifest has a name")?;
            fs::copy(manifest, target.join(name))?;
        }
        let npm = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
        output(Command::new("npm").args(npm).current_dir(target))?;
        link_node(target, &node)?;
        let import = ["--input-type=module", "-e", "import '@ndn/endpoint'"];
        output(Command::new(&node).args(import).current_dir(target)).map(drop)
    })
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
