//! Programs that build the packages, installed into `target/dist-tools`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

const ZIGBUILD: &str = "0.24.1";
const PYTHON_PACKAGES: [&str; 3] = ["ziglang==0.15.2", "maturin==1.16.0", "wheel==0.45.1"];

/// The tools, installed.
#[derive(Debug)]
pub(crate) struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// Installs what is missing. `targets` are those of Rust.
    pub(crate) fn install(root: &Path, targets: &[String]) -> anyhow::Result<Self> {
        let tools = Self { folder: target_folder(root).join("dist-tools") };
        tools.install_python()?;
        tools.install_zigbuild(root)?;
        run(Command::new("rustup").args(["target", "add"]).args(targets).current_dir(root))
            .context("the packages need rustup, which installs Rust's libraries for each target")?;
        Ok(tools)
    }

    fn install_python(&self) -> anyhow::Result<()> {
        let (stamp, wanted) = (self.folder.join("python/installed"), PYTHON_PACKAGES.join("\n"));
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        let folder = self.folder.join("python");
        eprintln!("==> installing {} into {}", PYTHON_PACKAGES.join(" "), folder.display());
        let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
        run(Command::new(python).args(["-m", "venv"]).arg(&folder))
            .context("the packages need python3 with venv, which installs the linker")?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        run(Command::new(folder.join("bin/python")).args(pip).args(PYTHON_PACKAGES))?;
        fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))
    }

    fn install_zigbuild(&self, root: &Path) -> anyhow::Result<()> {
        let program = self.folder.join("bin/cargo-zigbuild");
        let has_version = Command::new(&program).arg("--version").output().is_ok_and(|output| {
            String::from_utf8_lossy(&output.stdout).trim_end().ends_with(ZIGBUILD)
        });
        if has_version {
            return Ok(());
        }
        let version = format!("={ZIGBUILD}");
        run(cargo(root)
            .args(["install", "--locked", "cargo-zigbuild", "--version", &version, "--root"])
            .arg(&self.folder))
    }

    /// `PATH` with the tools.
    pub(crate) fn path(&self) -> anyhow::Result<std::ffi::OsString> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let own = [self.folder.join("bin"), self.folder.join("python/bin")];
        let all = own.into_iter().chain(std::env::split_paths(&path));
        std::env::join_paths(all).context("a folder in PATH has a colon in its name")
    }

    /// Licences of what is in the programs and is no crate, with its name.
    pub(crate) fn licences(&self) -> anyhow::Result<Vec<(&'static str, String)>> {
        let print = "import ziglang, os; print(os.path.dirname(ziglang.__file__))";
        let zig = output(Command::new(self.python()).args(["-c", print]))?;
        let lib = Path::new(zig.trim()).join("lib");
        let read = |path: &str| {
            let path = lib.join(path);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        Ok(vec![
            ("musl, the C library: MIT", read("libc/musl/COPYRIGHT")?),
            ("libunwind: Apache-2.0 WITH LLVM-exception", read("libunwind/LICENSE.TXT")?),
            (
                "Rust's standard library: MIT OR Apache-2.0",
                "Copyright (c) The Rust Project Contributors, under the licences MIT and \
                 Apache-2.0 below\n"
                    .to_owned(),
            ),
        ])
    }

    pub(crate) fn python(&self) -> PathBuf {
        self.folder.join("python/bin/python")
    }
}

/// Cargo, in the folder of the repository.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo
}

/// The folder cargo builds into.
pub(crate) fn target_folder(root: &Path) -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root.join(folder),
        None => root.join("target"),
    }
}

/// Runs a program whose output is for the reader.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| cannot_start(&program))?;
    if !status.success() {
        bail!("{program} failed ({status})");
    }
    Ok(())
}

/// Runs a program and returns its standard output.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| cannot_start(&program))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{program} failed ({}):\n{}", output.status, errors.trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{program} did not print UTF-8"))
}

fn cannot_start(program: &str) -> String {
    format!("cannot start {program}; is it installed and on PATH?")
}
