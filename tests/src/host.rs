//! A separate host for each test: folder, environment, ports, and the `weir` program.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};
use tempfile::TempDir;
use weir_base::Rng;

use crate::Process;
use crate::port::free_port;

/// The machine of a test, with its files, home folder and sockets. Clones share it, and the last
/// one removes the files.
#[derive(Clone, Debug)]
pub struct Host {
    folder: Arc<TempDir>,
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl Host {
    /// A host without files.
    ///
    /// # Panics
    /// If no temporary folder can be made.
    pub fn new() -> Self {
        // Use a short prefix, as the path of a Unix socket has at most 107 bytes.
        let folder = tempfile::Builder::new().prefix("weir-t").tempdir().expect("temporary folder");
        for name in ["home", "run"] {
            fs::create_dir(folder.path().join(name)).expect("folder of the host");
        }
        Self { folder: Arc::new(folder) }
    }

    /// The path of a file of the host.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file, creates its folders, and returns its path.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, name: &str, octets: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders of the host");
        fs::write(&path, octets).expect("file of the host");
        path
    }

    /// `program` with the environment of the host, without the NDN settings of the machine.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path())
            .env("HOME", self.path("home"))
            .env("XDG_CONFIG_HOME", self.path("home/.config"))
            .env("XDG_DATA_HOME", self.path("home/.local/share"))
            .env("XDG_CACHE_HOME", self.path("home/.cache"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("WEIR_HOME", self.path("home/weir"))
            .env_remove("NDN_CLIENT_TRANSPORT")
            .env_remove("RUST_LOG");
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("AWS_")) {
                command.env_remove(name);
            }
        }
        command
    }

    /// Starts `weir` with arguments, connected to the router at `transport` (a FaceUri).
    pub fn spawn(&self, transport: &str, arguments: &[&str]) -> Process {
        let mut command = self.command(weir_binary());
        command.args(arguments).env("NDN_CLIENT_TRANSPORT", transport);
        Process::start(&format!("weir {}", arguments.join(" ")), command)
    }

    /// A port of 127.0.0.1 that is free for TCP and UDP, and that no other test gets.
    ///
    /// # Panics
    /// If there is none.
    pub fn free_port(&self) -> u16 {
        free_port()
    }

    /// The sorted names of the files in a folder of the host.
    ///
    /// # Panics
    /// If the folder cannot be read.
    pub fn list(&self, folder: &str) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.path(folder))
            .expect("folder of the host")
            .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// Writes `size` random bytes from a seed, and returns their SHA-256 in hex.
///
/// # Panics
/// If the file cannot be written.
pub fn random_file(path: &Path, size: usize, seed: u64) -> String {
    let mut octets = vec![0; size];
    Rng::from_seed(seed).fill(&mut octets);
    fs::write(path, &octets).expect("random file");
    hex(&Sha256::digest(&octets))
}

/// SHA-256 of a file in hex.
///
/// # Panics
/// If the file cannot be read.
pub fn sha256_hex(path: &Path) -> String {
    let octets = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    hex(&Sha256::digest(&octets))
}

fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        let _ = write!(text, "{octet:02x}");
        text
    })
}

/// The `weir` program with the laboratory: the path in `WEIR_BIN`, otherwise it is built now.
///
/// # Panics
/// If it cannot be built.
pub fn weir_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("WEIR_BIN") {
        Some(path) => path.into(),
        None => build_weir(),
    })
}

fn build_weir() -> PathBuf {
    build(&["--package", "weir", "--bin", "weir", "--features", "lab"]).join("weir")
}

/// An example of `weir-ndn`: from the folder in `WEIR_EXAMPLES`, otherwise it is built now.
///
/// # Panics
/// If it cannot be built.
pub fn socket_example(name: &str) -> PathBuf {
    let folder = match std::env::var_os("WEIR_EXAMPLES") {
        Some(folder) => folder.into(),
        None => build(&["--package", "weir-ndn", "--example", name]).join("examples"),
    };
    folder.join(name)
}

/// Builds `libweir`, the C library, and returns its folder.
///
/// # Panics
/// If it cannot be built.
pub(crate) fn c_library() -> PathBuf {
    build(&["--package", "weir-c"])
}

/// Runs `cargo build`, and returns the folder of the profile.
fn build(arguments: &[&str]) -> PathBuf {
    let folder = build_folder();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("repository");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).args(["build", "--quiet"]).args(arguments);
    cargo.env("CARGO_TARGET_DIR", folder.parent().expect("target folder"));
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cargo starts");
    assert!(status.success(), "cannot build {arguments:?}: {status}");
    folder
}

/// The folder of the profile of this program, such as `target/debug`. Tests are in `deps` below it,
/// benchmarks directly in it.
pub(crate) fn build_folder() -> PathBuf {
    let program = std::env::current_exe().expect("path of this program");
    let folder = program.parent().expect("programs lie in target/PROFILE");
    if folder.ends_with("deps") {
        folder.parent().expect("deps lies in target/PROFILE").to_path_buf()
    } else {
        folder.to_path_buf()
    }
}
