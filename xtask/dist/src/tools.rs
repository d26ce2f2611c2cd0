//! Programs that build the packages, installed into `target/dist-tools` and `target/tools`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use xtask::tools::{install, install_python, output, run, target_folder};

const ZIGBUILD: &str = "0.24.1";

/// The tools, installed.
#[derive(Debug)]
pub(crate) struct Tools {
    /// The virtual environment with zig, maturin and wheel.
    python: PathBuf,
    zigbuild: PathBuf,
}

impl Tools {
    /// Installs what is missing. `targets` are those of Rust.
    pub(crate) fn install(root: &Path, targets: &[String]) -> anyhow::Result<Self> {
        let python = target_folder(root).join("dist-tools/python");
        install_python(
            &root.join("xtask/dist/requirements.txt"),
            &python,
            "maturin, wheel, ziglang",
        )
        .context("the packages need python3 with venv, which installs the linker")?;
        let zigbuild = install(root, "cargo-zigbuild", ZIGBUILD, &[])?;
        run(Command::new("rustup").args(["target", "add"]).args(targets).current_dir(root))
            .context("the packages need rustup, which installs Rust's libraries for each target")?;
        Ok(Self { python, zigbuild })
    }

    /// `PATH` with the tools.
    pub(crate) fn path(&self) -> anyhow::Result<std::ffi::OsString> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let zigbuild = self.zigbuild.parent().map(Path::to_path_buf);
        let own = zigbuild.into_iter().chain([self.python.join("bin")]);
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
        self.python.join("bin/python")
    }
}

/// Cargo, in the folder of the repository.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo
}
