//! The Python wheel, built and installed as users install it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;

use crate::client::interop_folder;
use crate::host::build_folder;
use crate::{Host, Process, Router, weir_binary};

/// Time limit for the tests of a file on a busy machine. Each test also has its own limits.
const TESTS_LIMIT: Duration = Duration::from_secs(600);

/// Python with the installed wheel, in the environment from `cargo xtask clients`.
#[derive(Debug)]
pub struct Python {
    program: PathBuf,
    /// The folder with the wheel.
    packages: TempDir,
}

impl Python {
    /// Builds and installs the wheel once.
    ///
    /// # Panics
    /// If the environment is missing, or the wheel cannot be built.
    pub fn installed() -> &'static Self {
        static INSTALLED: OnceLock<Python> = OnceLock::new();
        INSTALLED.get_or_init(|| {
            let program = interop_folder().join("weir-python/bin/python");
            assert!(
                program.exists(),
                "{} is missing: run `cargo xtask clients`, or set WEIR_SKIP_INTEROP=1 to leave \
                 these tests out",
                program.display()
            );
            let packages = TempDir::new().expect("temporary folder");
            let wheels = packages.path().join("wheels");
            let profile = if build_folder().ends_with("release") { "release" } else { "dev" };
            let mut maturin = Command::new(&program);
            maturin.args(["-m", "maturin", "build", "--quiet", "--compatibility", "linux"]);
            maturin.args(["--auditwheel", "skip", "--profile", profile, "--out"]).arg(&wheels);
            maturin.env("CARGO_TARGET_DIR", build_folder().parent().expect("target folder"));
            run(maturin.current_dir(bindings()));
            let wheel = std::fs::read_dir(&wheels).expect("wheels").next();
            let wheel = wheel.expect("a wheel").expect("an entry").path();
            let mut pip = Command::new(&program);
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
            pip.args(["--no-deps", "--no-index", "--target"]).arg(packages.path());
            run(pip.arg(wheel));
            Self { program, packages }
        })
    }

    /// Starts Python with arguments, connected to the router at `transport`.
    pub fn start(&self, host: &Host, transport: &str, arguments: &[&str]) -> Process {
        let mut command = host.command(&self.program);
        command.args(arguments).env("NDN_CLIENT_TRANSPORT", transport);
        command.env("PYTHONPATH", self.packages.path()).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("WEIR_BIN", weir_binary());
        Process::start(&format!("python {}", arguments.join(" ")), command)
    }

    /// Runs the tests of a file in `bindings/python/tests`.
    ///
    /// # Panics
    /// If one fails.
    pub fn test(&self, host: &Host, router: &Router, file: &str) {
        let path = bindings().join("tests").join(file);
        let path = path.to_str().expect("a path of text");
        let words = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-W", "error", path];
        let finished = self.start(host, &router.unix(), &words);
        let finished = finished.finish_within(TESTS_LIMIT).success();
        assert!(finished.output.contains(" passed"), "{}", finished.log);
    }
}

fn bindings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("repository").join("bindings/python")
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {problems}");
}
