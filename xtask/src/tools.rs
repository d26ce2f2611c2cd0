//! Runs and installs the programs that builds and checks need.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// The folder cargo builds into.
pub fn target_folder(root: &Path) -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root.join(folder),
        None => root.join("target"),
    }
}

/// Runs a program that must succeed. Its output is for the reader.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| cannot_start(&program))?;
    if !status.success() {
        bail!("{program} failed ({status})");
    }
    Ok(())
}

/// Runs a program that must succeed, and returns its standard output.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| cannot_start(&program))?;
    if !output.status.success() {
        bail!(
            "{program} failed ({}):\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("{program} did not print UTF-8"))
}

fn cannot_start(program: &str) -> String {
    format!("cannot start {program}; is it installed and on PATH?")
}

/// Whether a folder in `PATH` has this program.
pub fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).exists())
}

/// Installs a package of the system (Debian, as root).
pub fn install_package(name: &str) -> anyhow::Result<()> {
    eprintln!("==> installing {name}");
    let apt = |words: &[&str]| {
        let mut apt = Command::new("apt-get");
        output(apt.args(words).env("DEBIAN_FRONTEND", "noninteractive")).map(drop)
    };
    let install = ["install", "--yes", "--no-install-recommends", name];
    // A new machine may have an old list of packages, or none.
    apt(&install).or_else(|_| apt(&["update", "--quiet"]).and_then(|()| apt(&install)))
}

/// Installs a version of a crate's program into `target/tools`, unless it is there, and returns its
/// path. The first time needs a network and some minutes.
pub fn install(
    root: &Path,
    crate_name: &str,
    version: &str,
    features: &[&str],
) -> anyhow::Result<PathBuf> {
    let folder = target_folder(root).join("tools");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["install", "--locked", "--quiet", "--root"]).arg(&folder);
    cargo.arg(format!("{crate_name}@={version}")).args(features);
    run(&mut cargo).with_context(|| {
        format!("cannot install {crate_name} {version} into {}", folder.display())
    })?;
    Ok(folder.join("bin").join(crate_name))
}

/// A virtual environment with what `requirements` lists, in which `modules` can be imported.
pub fn install_python(requirements: &Path, target: &Path, modules: &str) -> anyhow::Result<()> {
    let python = target.join("bin/python");
    install_once(target, &[requirements], &python, || {
        eprintln!("==> installing {modules} into {}", target.display());
        let base = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
        output(Command::new(base).args(["-m", "venv"]).arg(target))?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        output(Command::new(&python).args(pip).arg("--requirement").arg(requirements))?;
        output(Command::new(&python).arg("-c").arg(format!("import {modules}"))).map(drop)
    })
}

/// Empties a folder and installs into it, unless `program` is there and was installed from the same
/// text in `sources`.
pub fn install_once(
    target: &Path,
    sources: &[&Path],
    program: &Path,
    install: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let stamp = Stamp::new(target, sources)?;
    if stamp.matches() && program.exists() {
        return Ok(());
    }
    match fs::remove_dir_all(target) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot empty {}", target.display()));
        }
        _ => {}
    }
    install()?;
    stamp.write()
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
        let error = output(Command::new("sh").args(["-c", "echo no network >&2; exit 3"]));
        let text = format!("{:#}", error.expect_err("exit code 3"));
        assert!(text.contains("no network") && text.contains("exit status: 3"), "{text}");
        let missing = output(&mut Command::new("no-such-program"));
        assert!(format!("{:#}", missing.expect_err("missing")).contains("on PATH"));
    }
}
