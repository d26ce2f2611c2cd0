//! A router with a configuration file, whose log goes to a file.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !is_true() {
        assert!(Instant::now() < deadline, "{what}: not within {TEST_TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The folder of a test: configuration, socket, log.
pub(crate) struct Site(tempfile::TempDir);

impl Site {
    pub(crate) fn new(config: &str) -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        site.write(config);
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Replaces the configuration.
    pub(crate) fn write(&self, config: &str) {
        std::fs::write(self.path("new.toml"), config).unwrap();
        std::fs::rename(self.path("new.toml"), self.path("weir.toml")).unwrap();
    }

    /// A command whose router is that of this site.
    pub(crate) fn weir(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        // A relative path of a command must not end up in the source tree.
        command.args(words).current_dir(self.0.path());
        command.env("XDG_CONFIG_HOME", self.0.path()).env_remove("RUST_LOG");
        let socket = format!("unix://{}", self.path("router.sock").display());
        command.env("NDN_CLIENT_TRANSPORT", socket).env("WEIR_HOME", self.path("keys"));
        command
    }

    pub(crate) fn router(&self, words: &[&str]) -> Command {
        let mut command = self.weir(&["router", "-c"]);
        command.arg(self.path("weir.toml")).arg("--unix").arg(self.path("router.sock"));
        command.args(["--udp", "none", "--tcp", "none", "--json"]).args(words);
        command
    }

    pub(crate) fn start(&self, words: &[&str]) -> Served<'_> {
        self.start_as(self.router(words))
    }

    pub(crate) fn start_as(&self, mut command: Command) -> Served<'_> {
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        command.stderr(log);
        self.start_in(command)
    }

    /// Starts a command that decides where its log goes.
    pub(crate) fn start_in(&self, mut command: Command) -> Served<'_> {
        // If these tests ignore SIGHUP, as below nohup, the router would inherit that, and ignore
        // reloads. It does not inherit a handler.
        let unread = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(Signal::SIGHUP as i32, unread).unwrap();
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("no ready line: {}", self.log()));
        Served { site: self, child, ready }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Runs a command that must succeed. Returns its output.
    pub(crate) fn run(&self, words: &[&str]) -> String {
        let output = self.weir(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", error_of(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.run(words)).unwrap()
    }

    /// `weir router --reload`: its output, or its error.
    pub(crate) fn reload(&self) -> Result<String, String> {
        let output = self.weir(&["router", "--reload"]).output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(error_of(&output)),
        }
    }

    /// URIs of the configured faces, in any order.
    pub(crate) fn faces(&self) -> Vec<String> {
        let faces = self.json(&["face", "list", "--json"]);
        let uris = faces.as_array().unwrap().iter().map(|face| face["uri"].as_str().unwrap());
        let mut uris: Vec<String> =
            uris.filter(|uri| uri.starts_with("udp4")).map(str::to_owned).collect();
        uris.sort();
        uris
    }

    /// Prefixes with a route of the configuration or an operator.
    pub(crate) fn routes(&self) -> Vec<String> {
        let routes = self.json(&["route", "list", "--json"]);
        let is_static = |entry: &&Value| {
            entry["routes"].as_array().unwrap().iter().any(|route| route["origin_name"] == "static")
        };
        let entries = routes.as_array().unwrap().iter().filter(is_static);
        let mut prefixes: Vec<String> =
            entries.map(|entry| entry["prefix"].as_str().unwrap().to_owned()).collect();
        prefixes.sort();
        prefixes
    }
}

pub(crate) fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A running router. It is killed at the end of its test.
pub(crate) struct Served<'a> {
    pub(crate) site: &'a Site,
    pub(crate) child: Child,
    pub(crate) ready: Value,
}

impl Served<'_> {
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Waits for the end of the process, which must be a success.
    pub(crate) fn wait(&mut self) {
        wait_until("the router stops", || self.child.try_wait().unwrap().is_some());
        assert!(self.child.wait().unwrap().success(), "{}", self.site.log());
    }

    pub(crate) fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        self.wait();
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that is killed at the end of its test.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn random_file(path: &Path, bytes: u64) {
    let mut random = io::Read::take(File::open("/dev/urandom").unwrap(), bytes);
    io::copy(&mut random, &mut File::create(path).unwrap()).unwrap();
}

/// `weir put`, once it serves.
pub(crate) fn serve(site: &Site, file: &str, name: &str) -> Killed {
    let mut command = site.weir(&["put"]);
    command.arg(site.path(file)).arg(name).args(["--sign", "digest"]);
    let log = File::create(site.path("put.log")).unwrap();
    command.stdout(Stdio::null()).stderr(log);
    let put = Killed(command.spawn().unwrap());
    wait_until("the file is served", || {
        site.json(&["route", "list", "--json"]).to_string().contains(name)
    });
    put
}
