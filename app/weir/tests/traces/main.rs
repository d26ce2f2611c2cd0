//! Traces of the program, received by a collector on this machine.

#[path = "../../../../io/traces/tests/all/collector.rs"]
mod collector;
mod controller;
mod get;
mod spans;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// How long to wait for spans.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// `weir` that uses nothing of this user, and no collector.
fn weir(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(words).current_dir(folder);
    command.env("XDG_CONFIG_HOME", folder).env("WEIR_HOME", folder.join("keys"));
    let socket = format!("unix://{}/router.sock", folder.display());
    command.env("NDN_CLIENT_TRANSPORT", socket).env_remove("RUST_LOG");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("OTEL_") || name == "TRACEPARENT") {
            command.env_remove(name);
        }
    }
    command
}

/// A process that is killed at the end of its test.
struct Running {
    child: Child,
    ready: Value,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a command that prints a ready line as JSON.
fn start(mut command: Command) -> Running {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no ready line: {line}"));
    Running { child, ready }
}
