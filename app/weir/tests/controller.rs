//! `weir controller` as a process: tokens, kill, restart and stop.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// `weir controller` that does not use this user's files.
fn controller(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("controller").arg("--database").arg(folder.join("controller.db"));
    command.env("XDG_CONFIG_HOME", folder).env_remove("RUST_LOG");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A process that is killed at the end of its test.
struct Running {
    child: Child,
    url: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(folder: &Path) -> Running {
    let mut child = controller(folder).args(["--listen", "127.0.0.1:0", "--json"]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|_| {
        let mut log = String::new();
        child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        panic!("no ready line: {log}")
    });
    Running { url: ready["url"].as_str().unwrap().to_owned(), child }
}

fn token(folder: &Path, words: &[&str]) -> (bool, String, String) {
    let output = controller(folder).arg("token").args(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

fn files(url: &str, token: &str) -> String {
    let request = ureq::get(format!("{url}/v1/files"));
    let answer = request.header("Authorization", format!("Bearer {token}")).call();
    answer.unwrap().body_mut().read_to_string().unwrap()
}

#[test]
fn acknowledged_writes_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["add", "--role", "producer", "--name", "p", "--prefix", "/a", "--expires", "90d"];
    let (is_made, producer, error) = token(folder.path(), &words);
    assert!(is_made, "{error}");
    let mut running = start(folder.path());
    for number in 0..50 {
        let file = format!(
            r#"{{"name":"/a/{number}","segments":10,"size_bytes":80000,"packet_bytes":8200}}"#
        );
        let request = ureq::post(format!("{}/v1/files", running.url))
            .header("Authorization", format!("Bearer {producer}"))
            .header("Content-Type", "application/json");
        assert_eq!(request.send(file).unwrap().status().as_u16(), 201);
    }
    running.child.kill().unwrap();
    drop(running);
    let mut running = start(folder.path());
    let listed = files(&running.url, &producer);
    assert_eq!(listed.matches("\"name\"").count(), 50, "{listed}");

    kill(Pid::from_raw(running.child.id() as i32), Signal::SIGTERM).unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    let status = loop {
        if let Some(status) = running.child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < end, "it does not stop");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success(), "{status}");
}

#[test]
fn adds_lists_and_removes_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let (_, text, _) = token(folder.path(), &["add", "--role", "router", "--name", "west"]);
    let (_, listed, _) = token(folder.path(), &["list"]);
    let id = text.split('-').nth(1).unwrap();
    assert!(
        listed.contains(id) && listed.contains("west") && listed.contains("router"),
        "{listed}"
    );
    let heading: Vec<&str> = listed.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(heading, ["ID", "ROLE", "NAME", "VALID", "PREFIXES"]);
    assert!(!listed.contains(&text), "the secret is shown once: {listed}");
    assert!(token(folder.path(), &["remove", &text]).0);
    let (is_removed, _, error) = token(folder.path(), &["remove", id]);
    assert!(!is_removed && error.contains("token list"), "{error}");
    let (is_made, _, error) = token(folder.path(), &["add", "--role", "king", "--name", "x"]);
    assert!(!is_made && error.contains("router, producer, operator or reader"), "{error}");
    let (is_made, _, error) = token(folder.path(), &["add", "--role", "router", "--name", "a/b"]);
    assert!(!is_made && error.contains("a-z"), "{error}");
}

#[test]
fn database_password_is_never_printed() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("controller.toml");
    let toml = "database = 'postgres://me:open-sesame@127.0.0.1:1/weir'\nlog.level = 'trace'\n";
    std::fs::write(&config, toml).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = command.arg("controller").args(arguments).output().unwrap();
        assert!(!output.status.success());
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(!text.contains("sesame"), "{text}");
        text
    };
    let text = run(&["-c", config.to_str().unwrap()]);
    assert!(text.contains("me@127.0.0.1:1/weir"), "{text}");
    // The message contains the cause, not only a timeout of the connection pool.
    assert!(text.contains("refused") && !text.contains("pool timed out"), "{text}");
    run(&["--database", "postgres://me:open-sesame@127.0.0.1:none/weir"]);
    run(&["--database", "mysql://me:open-sesame@127.0.0.1/weir"]);
    run(&["--database", "postgres://127.0.0.1:1/weir?pasword=open-sesame", "token", "list"]);
}

#[test]
fn database_is_readable_by_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    token(folder.path(), &["list"]);
    let metadata = std::fs::metadata(folder.path().join("controller.db")).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o077, 0);
}

#[test]
fn remote_listening_requires_tls() {
    let folder = tempfile::tempdir().unwrap();
    let output = controller(folder.path()).args(["--listen", "0.0.0.0:0"]).output().unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("tls_certificate"), "{error}");
}
