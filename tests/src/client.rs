//! Applications written with other libraries, see `tests/interop`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

use crate::host::build_folder;
use crate::{Host, Process, Router, TEST_TIMEOUT};

/// A library that must interoperate with Weir.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    PythonNdn,
    Ndnts,
}

impl Library {
    /// Both libraries.
    pub const ALL: [Self; 2] = [Self::PythonNdn, Self::Ndnts];

    /// A short name, fit for a name component or a file.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::PythonNdn => "python-ndn",
            Self::Ndnts => "ndnts",
        }
    }
}

/// Whether `WEIR_SKIP_INTEROP=1` skips these tests. Prints a note, so that such a run does not look
/// like a full one.
pub fn interop_is_skipped() -> bool {
    let skipped = std::env::var_os("WEIR_SKIP_INTEROP").is_some_and(|value| value == "1");
    if skipped {
        eprintln!(
            "WEIR_SKIP_INTEROP=1: NOT tested with python-ndn, NDNts and the wheel for Python"
        );
    }
    skipped
}

/// A client of one library that reaches its router over one transport.
#[derive(Debug)]
pub struct Client<'a> {
    host: &'a Host,
    library: Library,
    transport: String,
}

impl<'a> Client<'a> {
    /// A client that will connect to `transport`, a FaceUri.
    pub fn new(host: &'a Host, library: Library, transport: &str) -> Self {
        Self { host, library, transport: transport.to_owned() }
    }

    /// Starts the client program with arguments.
    pub fn start(&self, arguments: &[&str]) -> Process {
        let installed = installed();
        let (program, script) = match self.library {
            Library::PythonNdn => (installed.join("python/bin/python"), python_script()),
            Library::Ndnts => (installed.join("ndnts/node"), installed.join("ndnts/client.mjs")),
        };
        let mut command = self.host.command(&program);
        command.arg(script).args(arguments);
        command.env("NDN_CLIENT_TRANSPORT", &self.transport);
        Process::start(&format!("{} {}", self.library.label(), arguments.join(" ")), command)
    }

    /// Starts a producer (`produce` or `put`) for `prefix` and waits until Interests reach it.
    ///
    /// A router accepts registrations only from local applications, and a UDP face is never local.
    /// For UDP, the route is therefore added at the router, as an operator would.
    ///
    /// # Panics
    /// If the producer fails to start or the router refuses.
    pub fn serve(&self, router: &Router, arguments: &[&str]) -> Process {
        let prefix = arguments[1];
        if !self.transport.starts_with("udp") {
            let process = self.start(arguments);
            assert_eq!(process.event("ready")["registered"], true);
            return process;
        }
        let mut unregistered = arguments.to_vec();
        unregistered.push("--no-register");
        let process = self.start(&unregistered);
        let ready = process.event("ready");
        let address = ready["local"].as_str().expect("a UDP client has an address").to_owned();
        let face = format!("udp4://{address}");
        router.add_route(prefix, &face);
        process
    }

    /// Runs a client to its end, and returns the last line of its output as JSON.
    ///
    /// # Panics
    /// If it fails or prints no JSON.
    pub fn run_to_json(&self, arguments: &[&str]) -> Value {
        let finished = self.start(arguments).finish_within(TEST_TIMEOUT).success();
        let last = finished.output.lines().last().unwrap_or_default();
        serde_json::from_str(last)
            .unwrap_or_else(|error| panic!("no JSON ({error}):\n{}", finished.log))
    }
}

/// Opens a page in a headless Chromium that fetches the object `name` with NDNts, over the
/// WebSocket `router`, and verifies it with the certificate in a file. Without Chromium, prints a
/// note and returns `None`. The first line of output is the result. SIGUSR2 closes the page.
pub fn open_page(host: &Host, router: &str, name: &str, certificate: &Path) -> Option<Process> {
    let is_installed =
        |output: std::io::Result<Output>| output.is_ok_and(|output| output.status.success());
    if !is_installed(Command::new("chromium").arg("--version").output()) {
        eprintln!(
            "no program `chromium` (Debian's package of that name): NDNts in a browser is NOT \
             tested"
        );
        return None;
    }
    let installed = installed().join("ndnts");
    let mut command = host.command(&installed.join("node"));
    let profile = tempfile::tempdir_in(host.path(".")).expect("a folder").keep();
    command.arg(installed.join("browser.mjs")).args([router, name]).arg(certificate).arg(profile);
    Some(Process::start(&format!("a page with {name}"), command))
}

fn python_script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/python/client.py")
}

/// The folder that `cargo xtask clients` installs into.
pub(crate) fn interop_folder() -> PathBuf {
    std::env::var_os("WEIR_INTEROP").map_or_else(
        || build_folder().parent().expect("target folder").join("interop"),
        PathBuf::from,
    )
}

/// The folder of the installed clients, with current copies of the NDNts scripts next to their
/// modules.
fn installed() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = interop_folder();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/ndnts");
        for script in ["client.mjs", "keys.mjs", "browser.mjs", "page.mjs"] {
            let target = folder.join("ndnts").join(script);
            let new = target.with_extension(format!("{}", std::process::id()));
            fs::copy(source.join(script), &new)
                .and_then(|_| fs::rename(&new, &target))
                .unwrap_or_else(|error| {
                    panic!(
                        "the clients are not installed in {} ({error}): run `cargo xtask clients`, \
                         or set WEIR_SKIP_INTEROP=1 to leave these tests out",
                        folder.display()
                    )
                });
        }
        folder
    })
}
