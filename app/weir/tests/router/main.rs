//! `weir router` as a process: start, ready line, errors and stop; reloads; the service; and
//! `weir top`.

mod reload;
mod restart;
mod served;
mod service;
#[cfg(feature = "top")]
mod top;

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn weir() -> Command {
    Command::new(env!("CARGO_BIN_EXE_weir"))
}

/// A router that does not use the default ports and this user's configuration.
fn router(socket: &Path) -> Command {
    let mut command = weir();
    command.arg("router").arg("--unix").arg(socket);
    command.args(["--udp", "127.0.0.1:0", "--tcp", "none", "--json"]);
    let nowhere = socket.parent().unwrap();
    command.env("XDG_CONFIG_HOME", nowhere).env_remove("RUST_LOG");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(socket: &Path) -> (Child, serde_json::Value) {
    let mut child = router(socket).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready = serde_json::from_str(&line).unwrap_or_else(|_| {
        let mut log = String::new();
        child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        panic!("no ready line: {log}")
    });
    (child, ready)
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

fn wait(child: &mut Child) -> std::process::ExitStatus {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    panic!("the router does not stop");
}

fn error_text(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn sigterm_and_sigint_stop_the_router() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("router.sock");
    for how in [Signal::SIGTERM, Signal::SIGINT] {
        let (mut child, ready) = start(&socket);
        assert_eq!(ready["ready"], true);
        assert_eq!(ready["listening"][0], format!("unix://{}", socket.display()));
        assert!(ready["listening"][1].as_str().unwrap().starts_with("udp4://127.0.0.1:"));
        UnixStream::connect(&socket).unwrap();
        // Send the signal twice, as `timeout` and supervisors do.
        signal(&child, how);
        signal(&child, how);
        assert!(wait(&mut child).success());
        assert!(!socket.exists(), "the socket file is gone");
    }
}

#[test]
fn refuses_second_router_replaces_killed_one() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("router.sock");
    let (mut first, _) = start(&socket);
    let message = error_text(&router(&socket).output().unwrap());
    assert!(message.contains("another router") && message.contains("--unix"), "{message}");
    UnixStream::connect(&socket).expect("the first router still runs");

    first.kill().unwrap();
    first.wait().unwrap();
    assert!(socket.exists(), "a killed router leaves its socket file");
    let (mut next, _) = start(&socket);
    signal(&next, Signal::SIGTERM);
    assert!(wait(&mut next).success());
}

#[test]
fn config_errors_name_file_line_and_key() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("weir.toml");
    std::fs::write(&file, "[router]\nthread = 2\n").unwrap();
    let output = weir().args(["router", "-c"]).arg(&file).output().unwrap();
    let message = error_text(&output);
    for part in ["weir.toml", "line 2", "thread", "--print-default-config"] {
        assert!(message.contains(part), "{message}");
    }
    let output = weir().args(["router", "-c", "/no/such/file.toml"]).output().unwrap();
    assert!(error_text(&output).contains("/no/such/file.toml"));
}

/// Invalid values are reported at the start, with line and value, instead of failing later.
#[test]
fn refuses_late_failures_with_their_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("weir.toml");
    let long: String = (0..33).map(|number| format!("/{number}")).collect();
    let route = format!("[[face]]\nuri = \"udp://127.0.0.1:9\"\nroutes = [\"{long}\"]\n");
    let strategy = format!("[[strategy]]\nprefix = \"{long}\"\nstrategy = \"multicast\"\n");
    let uri = |uri: &str| format!("[[face]]\nuri = \"{uri}\"\n");
    for (text, parts) in [
        (route, ["line 3", "33 components"]),
        (strategy, ["line 2", "33 components"]),
        (uri("udp://router.example:99999"), ["line 2", "beyond 65535"]),
        (uri("udp://0.0.0.0"), ["line 2", "address of no peer"]),
        (uri("tcp://:6363"), ["line 2", "not a face URI"]),
    ] {
        std::fs::write(&file, &text).unwrap();
        let output = weir().args(["router", "-c"]).arg(&file).output().unwrap();
        let message = error_text(&output);
        for part in parts {
            assert!(message.contains(part), "{text}: {message}");
        }
    }
    for (words, part) in [
        (&["get", "/a", "--threads", "100000"][..], "at most 256"),
        (&["put", "x", "/a", "--threads", "257"], "at most 256"),
        (&["get", "/a", "--router", "udp://0.0.0.0"], "address of no peer"),
        (&["get", "/a", "--router", "udp://127.0.0.1:99999"], "beyond 65535"),
        (&["route", "add", "a/b", "256"], "starts with a slash, as in /a/b"),
        (&["route", "show", "a/b"], "starts with a slash, as in /a/b"),
        (&["strategy", "set", "a", "multicast"], "starts with a slash, as in /a"),
        (&["cs", "erase", "a"], "starts with a slash, as in /a"),
        (&["ping", "a"], "starts with a slash, as in /a"),
    ] {
        let mut command = weir();
        command.args(words).env("NDN_CLIENT_TRANSPORT", "unix:///no/router/here.sock");
        let message = error_text(&command.output().unwrap());
        assert!(message.contains(part), "{words:?}: {message}");
    }
}

#[test]
fn printed_default_config_is_valid() {
    let directory = tempfile::tempdir().unwrap();
    let printed = weir().args(["router", "--print-default-config"]).output().unwrap();
    assert!(printed.status.success());
    let file = directory.path().join("weir.toml");
    std::fs::write(&file, printed.stdout).unwrap();
    let socket = directory.path().join("router.sock");
    let mut child = router(&socket).arg("-c").arg(&file).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("\"ready\":true"), "{line}");
    signal(&child, Signal::SIGTERM);
    assert!(wait(&mut child).success());
}
