//! The C library, installed as users install it, and programs that use it.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use tempfile::TempDir;

use crate::host::c_library;

/// The library, installed in a temporary folder.
pub struct CLibrary {
    folder: TempDir,
    /// Compiled programs, by source file.
    programs: Mutex<HashMap<String, PathBuf>>,
}

impl CLibrary {
    /// Warnings that no source file may cause.
    pub const WARNINGS: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];

    /// Builds and installs the library once for all tests of a program.
    ///
    /// # Panics
    /// If that fails.
    pub fn installed() -> &'static Self {
        static INSTALLED: OnceLock<CLibrary> = OnceLock::new();
        INSTALLED.get_or_init(|| {
            let folder = TempDir::new().expect("temporary folder");
            run(Command::new(Self::sources().join("install.sh"))
                .arg(folder.path())
                .arg(c_library()));
            Self { folder, programs: Mutex::default() }
        })
    }

    /// The folder of the sources, header and examples.
    ///
    /// # Panics
    /// Never, as the repository has this folder.
    pub fn sources() -> PathBuf {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        tests.parent().expect("repository").join("bindings/c")
    }

    /// The path of an installed file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program of a source file, compiled once.
    ///
    /// # Panics
    /// If it does not compile.
    pub fn program(&self, source: &str) -> PathBuf {
        self.program_with(source, &[])
    }

    /// As [`CLibrary::program`], with sanitizers that end the program at an invalid memory access
    /// or undefined behaviour. Returns `None` if the compiler has no sanitizers.
    ///
    /// # Panics
    /// If it does not compile.
    pub fn sanitized_program(&self, source: &str) -> Option<PathBuf> {
        let words = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"];
        let mut command = Command::new("cc");
        command.args(words).args(["-x", "c", "-", "-o"]).arg(self.path("sanitized"));
        let mut compiler = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let mut input = compiler.stdin.take().expect("a pipe");
        input.write_all(b"int main(void) { return 0; }").expect("it reads");
        drop(input);
        let can = compiler.wait().is_ok_and(|status| status.success());
        can.then(|| self.program_with(source, &words))
    }

    fn program_with(&self, source: &str, words: &[&str]) -> PathBuf {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        let key = [source, &words.concat()].concat();
        programs.entry(key).or_insert_with(|| self.compile(source, words)).clone()
    }

    /// The flags from pkg-config, or the same flags without it.
    fn flags(&self) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", self.path("lib/pkgconfig"));
        match command.args(["--cflags", "--libs", "weir"]).output() {
            Ok(output) => {
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                let text = String::from_utf8(output.stdout).expect("text");
                text.split_whitespace().map(str::to_owned).collect()
            }
            Err(_) => ["-I", "-L"]
                .into_iter()
                .zip(["include", "lib"])
                .map(|(flag, name)| format!("{flag}{}", self.path(name).display()))
                .chain(["-lweir".into()])
                .collect(),
        }
    }

    fn compile(&self, source: &str, words: &[&str]) -> PathBuf {
        let path = Self::sources().join(source);
        let folder = self.path(if words.is_empty() { "bin" } else { "sanitized-bin" });
        std::fs::create_dir_all(&folder).expect("a folder for programs");
        let program = folder.join(path.file_stem().expect("a file"));
        run(Command::new("cc")
            .args(["-std=c99", "-pedantic", "-pthread"])
            .args(Self::WARNINGS)
            .args(words)
            .arg(&path)
            .args(self.flags())
            .arg(format!("-Wl,-rpath,{}", self.path("lib").display()))
            .arg("-o")
            .arg(&program));
        program
    }
}

/// Runs a command that must succeed.
///
/// # Panics
/// If it does not.
pub fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {problems}");
}
