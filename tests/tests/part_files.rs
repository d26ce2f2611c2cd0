//! The guarantees of `weir get` about files, see `docs/durability/part-files.md`. Files are
//! compared by SHA-256, without Weir's own code.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink,
};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use serde_json::Value;
use weir_base::Rng;
use weir_tests::{Host, Process, Router, TEST_TIMEOUT, random_file, sha256_hex, weir_binary};

const MIB: usize = 1 << 20;

/// A router, and a file served as `/part/file`.
struct Fixture {
    host: Host,
    router: Router,
    producer: Process,
    /// SHA-256 of the source.
    digest: String,
}

impl Fixture {
    fn new(bytes: usize) -> Self {
        let host = Host::new();
        let router = Router::start(&host);
        let digest = random_file(&host.path("source"), bytes, 5);
        fs::create_dir(host.path("out")).expect("a folder");
        let producer = put(&router, "source", "/part/file");
        Self { host, router, producer, digest }
    }

    fn target(&self) -> PathBuf {
        self.host.path("out/file")
    }

    fn get(&self, words: &[&str]) -> Process {
        self.router.spawn(&[&["get", "/part/file"], words].concat())
    }

    /// Runs `weir get` in a folder of the host, without `-o`.
    fn get_in(&self, folder: &str, name: &str, words: &[&str]) -> Process {
        let mut command = self.host.command(weir_binary());
        command.current_dir(self.host.path(folder)).args(["get", name]).args(words);
        command.env("NDN_CLIENT_TRANSPORT", self.router.unix());
        Process::start("weir get in a folder", command)
    }

    /// Stops a download after 1 MiB. Returns whether it was stopped before the end.
    fn interrupt_get(&self, words: &[&str]) -> bool {
        let slowly = ["--pipeline", "fixed", "--window", "1"];
        let mut process = self.get(&[words, &slowly].concat());
        let part = self.host.path("out/.file.weir-part");
        let deadline = Instant::now() + TEST_TIMEOUT;
        while fs::metadata(&part).map_or(0, |found| found.len()) < MIB as u64
            && process.is_running()
        {
            assert!(Instant::now() < deadline, "nothing is written");
            thread::sleep(Duration::from_millis(1));
        }
        process.signal(Signal::SIGTERM);
        let finished = process.finish();
        // On a fast machine, the download may have completed before.
        if self.target().exists() {
            assert!(self.is_whole(&self.target()), "part of a file under the final name");
            return false;
        }
        assert_eq!(finished.status.code(), Some(143), "{}", finished.log);
        true
    }

    fn restart_producer(&mut self) {
        self.serve(&["source", "/part/file"]);
    }

    /// Replaces the producer by `weir put` with other words.
    fn serve(&mut self, words: &[&str]) {
        self.producer.signal(Signal::SIGTERM);
        while self.producer.is_running() {
            thread::sleep(Duration::from_millis(1));
        }
        (self.producer, _) = self.router.put(words);
    }

    fn is_whole(&self, path: &Path) -> bool {
        sha256_hex(path) == self.digest
    }

    /// `weir` with a file size limit of at most 1 MiB and its signal ignored, as batch systems may
    /// set it.
    fn with_file_size_limit(&self) -> Command {
        let mut command = self.host.command(Path::new("sh"));
        let script = "trap '' XFSZ; ulimit -f 1024; exec \"$0\" \"$@\"";
        command.args(["-c", script]).arg(weir_binary());
        command.env("NDN_CLIENT_TRANSPORT", self.router.unix());
        command
    }

    /// Runs a shell script in a private mount namespace, with an empty file system of `size` at
    /// `out`. `$0` is `weir`. Returns `None` if this is not permitted.
    fn with_disk(&self, size: &str, script: &str) -> Option<Process> {
        let mount = format!("mount -t tmpfs -o size={size} tmpfs out");
        let isolated = |script: &str| {
            let mut command = self.host.command(Path::new("unshare"));
            command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
            command.arg(weir_binary()).env("NDN_CLIENT_TRANSPORT", self.router.unix());
            command
        };
        if !isolated(&mount).output().is_ok_and(|output| output.status.success()) {
            eprintln!("no file system can be mounted here: NOT tested with one");
            return None;
        }
        let script = format!("{mount} && {{ {script}\n}}");
        Some(Process::start("a shell with a disk", isolated(&script)))
    }
}

fn put(router: &Router, path: &str, name: &str) -> Process {
    let (process, _) = router.put(&[path, name]);
    process
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn make_pipe(path: &Path) {
    nix::unistd::mkfifo(path, Mode::from_bits_truncate(0o600)).expect("a pipe");
}

/// Kills `weir get` at random moments. The target is then missing, the old file or the complete new
/// file. If the command has reported success, it is the new file.
fn kill_at_random_moments(rounds: u64) {
    let fixture = Fixture::new(4 * MIB);
    let target = fixture.target();
    let words = ["-o", text(&target)];
    let started = Instant::now();
    fixture.get(&words).finish().success();
    let usual_us = started.elapsed().as_micros() as u32;
    let old = random_file(&fixture.host.path("old"), MIB, 6);
    let mut rng = Rng::from_seed(rounds);
    for round in 0..rounds {
        let has_old = round % 2 == 0;
        fs::remove_file(&target).or_else(ignore_missing).expect("removed");
        if has_old {
            fs::copy(fixture.host.path("old"), &target).expect("copied");
        }
        let mut process = fixture.get(&words);
        thread::sleep(Duration::from_micros(u64::from(rng.below(usual_us * 5 / 4))));
        process.signal(Signal::SIGKILL);
        let is_done = process.finish().status.success();
        match target.exists() {
            false => assert!(!has_old && !is_done, "round {round}: the file is gone"),
            true if is_done => {
                assert!(fixture.is_whole(&target), "round {round}: not what it said")
            }
            true => {
                let found = sha256_hex(&target);
                let is_right = found == fixture.digest || (has_old && found == old);
                assert!(is_right, "round {round}: part of a file under the final name");
            }
        }
    }
    fixture.get(&words).finish().success();
    assert!(fixture.is_whole(&target));
    assert_eq!(fixture.host.list("out"), ["file"], "something temporary stays");
}

fn ignore_missing(error: std::io::Error) -> std::io::Result<()> {
    match error.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}

/// A download that trusts a key on first use is interrupted. Another one, which trusts another key,
/// uses nothing that the first one has stored, although the name has the same version.
#[test]
fn download_with_other_trust_starts_over() {
    let mut fixture = Fixture::new(4 * MIB);
    let forged = random_file(&fixture.host.path("forged"), 4 * MIB, 6);
    for owner in ["stranger", "owner"] {
        let file = fixture.host.path(&format!("{owner}.cert"));
        fixture.router.weir(&["key", "new", "/part", "--default", "--home", owner]).success();
        let words = ["key", "export", "/part", "--home", owner, "--output", text(&file)];
        fixture.router.weir(&words).success();
    }
    fixture.serve(&["forged", "/part/file", "--version", "7", "--home", "stranger"]);
    let name = "/part/file/v=7";
    let target = fixture.target();
    let part = fixture.host.path("out/.file.weir-part");
    // The limit of file sizes ends the download after a part, on machines of any speed.
    let mut first = fixture.with_file_size_limit();
    first.args(["get", name, "-o", text(&target), "--pipeline", "fixed", "--window", "1"]);
    let message = Process::start("weir get with a limit", first).finish().failure();
    assert!(message.contains("File too large"), "{message}");
    assert!(fs::metadata(&part).is_ok_and(|found| found.len() > 0), "no part is stored");

    fixture.serve(&["source", "/part/file", "--version", "7", "--home", "owner"]);
    fixture.router.weir(&["cs", "erase", "/part"]).success();
    let words = ["get", name, "-o", text(&target), "--trust-anchor", "owner.cert"];
    let ended = fixture.router.weir(&words).success();
    assert!(ended.errors.contains("verified with another key"), "{}", ended.log);
    assert_ne!(fixture.digest, forged);
    assert!(fixture.is_whole(&target), "segments of another signer");
    assert_eq!(fixture.host.list("out"), ["file"]);
}

#[test]
fn sigkill_leaves_old_or_new_file() {
    kill_at_random_moments(10);
}

#[test]
#[ignore = "200 kills take minutes"]
fn many_sigkills_leave_old_or_new_file() {
    kill_at_random_moments(200);
}

#[test]
fn get_resumes_after_a_restart() {
    let mut fixture = Fixture::new(32 * MIB);
    let target = fixture.target();
    let words = ["-o", text(&target)];
    fixture.interrupt_get(&words);
    fixture.router.process.signal(Signal::SIGKILL);
    while fixture.router.process.is_running() {
        thread::sleep(Duration::from_millis(1));
    }
    fixture.router = Router::start(&fixture.host);
    fixture.producer.wait_for_output("serving again");
    fixture.get(&words).finish().success();
    assert!(fixture.is_whole(&target));
    assert_eq!(fixture.host.list("out"), ["file"], "something temporary stays");
}

/// A restarted producer publishes a new version of its file. The fetched segments are still used if
/// the content is the same.
#[test]
fn get_resumes_with_a_restarted_producer() {
    let mut fixture = Fixture::new(32 * MIB);
    let target = fixture.target();
    let words = ["-o", text(&target), "--json"];
    if !fixture.interrupt_get(&words) {
        eprintln!("the whole file was fetched before it could be stopped: NOT tested");
        return;
    }
    fixture.restart_producer();
    let report: Value = serde_json::from_str(&fixture.get(&words).finish().success().output)
        .expect("a JSON object");
    assert!(report["resumed_segments"].as_u64() > Some(0), "{report}");
    assert!(fixture.is_whole(&target));

    fs::remove_file(&target).expect("removed");
    if !fixture.interrupt_get(&words) {
        return;
    }
    fixture.digest = random_file(&fixture.host.path("source"), 2 * MIB, 6);
    fixture.restart_producer();
    let finished = fixture.get(&words).finish().success();
    assert!(finished.log.contains("from an earlier attempt"), "{}", finished.log);
    assert!(fixture.is_whole(&target));
}

#[test]
fn concurrent_gets_never_truncate_a_file() {
    let fixture = Fixture::new(MIB);
    let target = fixture.target();
    let words = ["-o", text(&target)];
    fixture.get(&words).finish().success();
    let is_over = AtomicBool::new(false);
    let mut rounds = Vec::new();
    thread::scope(|scope| {
        let (target, digest, is_over) = (&target, &fixture.digest, &is_over);
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(&sha256_hex(target), digest, "part of a file under the final name");
            }
        });
        for _ in 0..10 {
            let processes = [fixture.get(&words), fixture.get(&words)];
            rounds.push(processes.map(Process::finish));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    for ended in rounds {
        for finished in &ended {
            let is_busy = finished.log.contains("is being written by another process");
            assert!(finished.status.success() || is_busy, "{}", finished.log);
        }
        assert!(ended.iter().any(|finished| finished.status.success()), "both failed");
    }
    assert_eq!(fixture.host.list("out"), ["file"], "something temporary stays");
}

/// A script that shows the result with `sha256sum` and the shell.
const SHOW: &str = "echo code $?; ls -A out; test ! -e out/file || sha256sum out/file";

#[test]
fn full_disk_keeps_the_old_file() {
    let fixture = Fixture::new(8 * MIB);
    let old = random_file(&fixture.host.path("old"), 100_000, 6);
    let script = format!(
        "cp old out/file
         \"$0\" get /part/file -o out/file; {SHOW}
         mount -o remount,size=64m out
         \"$0\" get /part/file -o out/file; {SHOW}"
    );
    let Some(process) = fixture.with_disk("1m", &script) else { return };
    let log = process.finish().success().log;
    assert!(log.contains("the disk is full") && log.contains("code 7"), "{log}");
    let last = log.split("code 0").nth(1).unwrap_or_default();
    assert!(log.contains(&old) && last.contains(&fixture.digest), "{log}");
    assert!(!last.contains(".file.weir"), "something temporary stays:\n{log}");
}

#[test]
fn read_only_disk_keeps_the_old_file() {
    let fixture = Fixture::new(MIB);
    let old = random_file(&fixture.host.path("old"), 100_000, 6);
    let script = format!(
        "cp old out/file; mount -o remount,ro out
         \"$0\" get /part/file -o out/file; {SHOW}
         mount -o remount,rw out
         \"$0\" get /part/file -o out/file; {SHOW}"
    );
    let Some(process) = fixture.with_disk("16m", &script) else { return };
    let log = process.finish().success().log;
    assert!(log.contains("Read-only file system") && log.contains("code 1"), "{log}");
    let last = log.split("code 0").nth(1).unwrap_or_default();
    assert!(log.contains(&old) && last.contains(&fixture.digest), "{log}");
}

#[test]
fn error_names_the_file_size_limit() {
    let fixture = Fixture::new(4 * MIB);
    let mut command = fixture.with_file_size_limit();
    command.args(["get", "/part/file", "-o", text(&fixture.target())]);
    let message = Process::start("weir get with a limit", command).finish().failure();
    assert!(message.contains("ulimit -f") && message.contains("File too large"), "{message}");
    assert!(!fixture.target().exists(), "part of a file under the final name");
}

/// The order that survives a power failure: sync the data, rename, sync the directory.
#[test]
fn renames_between_two_syncs() {
    let fixture = Fixture::new(MIB);
    let trace = fixture.host.path("trace");
    let mut command = fixture.host.command(Path::new("strace"));
    let calls = "trace=fsync,fdatasync,syncfs,rename,renameat,renameat2";
    command.args(["-f", "-o", text(&trace), "-e", calls]).arg(weir_binary());
    command.args(["get", "/part/file", "-o", text(&fixture.target())]);
    command.env("NDN_CLIENT_TRANSPORT", fixture.router.unix());
    if !can_trace() {
        eprintln!("strace cannot be used here: the order of calls is NOT tested");
        return;
    }
    Process::start("weir get under strace", command).finish().success();
    let trace = fs::read_to_string(trace).expect("a trace");
    let lines: Vec<&str> = trace.lines().collect();
    let named = lines.iter().position(|line| line.contains("rename") && line.contains("\"file\""));
    let named = named.unwrap_or_else(|| panic!("no rename:\n{trace}"));
    assert!(lines[..named].iter().any(|line| line.contains("fdatasync(")), "{trace}");
    assert!(lines[named..].iter().any(|line| line.contains(" fsync(")), "{trace}");
}

fn can_trace() -> bool {
    let output = Command::new("strace").args(["-f", "-e", "trace=fsync", "true"]).output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn without_o_only_own_results_are_replaced() {
    let fixture = Fixture::new(100_000);
    let path = fixture.target();
    fs::write(&path, b"mine").expect("written");
    let message = fixture.get_in("out", "/part/file", &[]).finish().failure();
    assert!(message.contains("file exists") && message.contains("--force"), "{message}");
    assert_eq!(fs::read(&path).expect("read"), b"mine");
    assert_eq!(fixture.host.list("out"), ["file"], "a refused download leaves nothing");

    fixture.get_in("out", "/part/file", &["--force"]).finish().success();
    assert!(fixture.is_whole(&path));
    // A complete file is not fetched again.
    let report = fixture.get_in("out", "/part/file", &["--json"]).finish().success().json();
    assert_eq!((&report["files_there"], &report["segments"]), (&1.into(), &0.into()));
    // This also holds if another program wrote the file.
    fs::remove_file(&path).expect("removed");
    fs::copy(fixture.host.path("source"), &path).expect("copied");
    let report = fixture.get_in("out", "/part/file", &["--json"]).finish().success().json();
    assert_eq!(report["files_there"], Value::from(1));
}

#[test]
fn without_o_a_newer_version_replaces_the_older() {
    let mut fixture = Fixture::new(100_000);
    fixture.get_in("out", "/part/file", &[]).finish().success();
    let newer = random_file(&fixture.host.path("newer"), 90_000, 7);
    fixture.producer = put(&fixture.router, "newer", "/part/file");
    if !has_attributes(&fixture.target()) {
        eprintln!("no extended attributes here: newer versions are NOT tested");
        return;
    }
    // For a moment, the router may answer with the metadata of the first producer.
    let deadline = Instant::now() + TEST_TIMEOUT;
    while sha256_hex(&fixture.target()) != newer {
        assert!(Instant::now() < deadline, "the newer version does not arrive");
        fixture.get_in("out", "/part/file", &[]).finish().success();
    }
    // A file changed by the user is kept.
    let mut octets = fs::read(fixture.target()).expect("read");
    octets[5] ^= 1;
    fs::write(fixture.target(), &octets).expect("written");
    let message = fixture.get_in("out", "/part/file", &[]).finish().failure();
    assert!(message.contains("file exists"), "{message}");
    assert!(fs::read(fixture.target()).expect("read") == octets);
}

fn has_attributes(path: &Path) -> bool {
    let output = Command::new("python3")
        .args(["-c", "import os, sys; os.getxattr(sys.argv[1], 'user.weir.fetched')"])
        .arg(path)
        .output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn links_are_written_through_only_when_asked() {
    let fixture = Fixture::new(100_000);
    let secret = fixture.host.write("secret", b"precious");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("mode");
    let link = fixture.host.path("out/link");
    symlink(&secret, &link).expect("a link");
    for _ in 0..2 {
        let message = fixture.get(&["-o", text(&link)]).finish().failure();
        assert!(message.contains("symbolic link") && message.contains("--follow-links"));
        assert_eq!(fs::read(&secret).expect("read"), b"precious");
    }
    let message = fixture.get_in("out", "/part/file", &["-o", "link"]).finish().failure();
    assert!(message.contains("symbolic link"), "{message}");

    fixture.get(&["-o", text(&link), "--follow-links"]).finish().success();
    assert!(fixture.is_whole(&secret) && link.is_symlink());
    let mode = fs::metadata(&secret).expect("metadata").permissions().mode();
    assert_eq!(mode & 0o7777, 0o600, "the mode is kept");
}

#[test]
fn links_planted_in_a_folder_are_not_followed() {
    let fixture = Fixture::new(1000);
    let host = &fixture.host;
    for folder in ["tree", "tree/sub", "elsewhere", "out/sub-is-link", "out/file-is-link"] {
        fs::create_dir(host.path(folder)).expect("a folder");
    }
    host.write("tree/sub/inner", b"from the network");
    host.write("tree/top", b"from the network");
    host.write("elsewhere/inner", b"precious");
    symlink(host.path("elsewhere"), host.path("out/sub-is-link/sub")).expect("a link");
    symlink(host.path("elsewhere/inner"), host.path("out/file-is-link/top")).expect("a link");
    symlink(host.path("elsewhere"), host.path("out/root-is-link")).expect("a link");
    let _producer = put(&fixture.router, "tree", "/tree");
    for name in ["sub-is-link", "file-is-link", "root-is-link"] {
        let target = host.path("out").join(name);
        let words = ["get", "/tree", "-o", text(&target)];
        let message = fixture.router.weir(&words).failure();
        assert!(message.contains("is a symbolic link"), "{name}: {message}");
        assert_eq!(host.list("elsewhere"), ["inner"], "{name}");
        assert_eq!(fs::read(host.path("elsewhere/inner")).expect("read"), b"precious");
    }
    // A trailing slash selects the target of the link.
    let target = format!("{}/", host.path("out/root-is-link").display());
    fixture.router.weir(&["get", "/tree", "-o", &target]).success();
    assert_eq!(host.list("elsewhere"), ["inner", "sub", "top"]);
    let target = host.path("out/sub-is-link");
    let words = ["get", "/tree", "-o", text(&target), "--follow-links"];
    fixture.router.weir(&words).success();
    assert_eq!(fs::read(host.path("elsewhere/inner")).expect("read"), b"from the network");
}

/// Another user has created part files in a shared folder such as `/tmp`. Linux may refuse to open
/// such a file even for root, and the test needs root.
#[test]
fn discards_part_files_of_other_users() {
    const OTHER_UID: u32 = 65534;
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not root: part files of other users are NOT tested");
        return;
    }
    let fixture = Fixture::new(1000);
    let set_mode = |name: &str, mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(fixture.host.path(name), mode).expect("mode");
    };
    set_mode(".", 0o755);
    set_mode("out", 0o1777);
    for umask in ["077", "000"] {
        let script =
            format!("umask {umask}; for s in part state new; do echo x >.file.weir-$s; done");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(fixture.host.path("out"));
        let status = command.uid(OTHER_UID).gid(OTHER_UID).status().expect("a shell");
        assert!(status.success());
        let target = fixture.target();
        fixture.get(&["-o", text(&target)]).finish().success();
        assert!(fixture.is_whole(&target));
        assert_eq!(fs::metadata(&target).expect("metadata").uid(), 0, "another user's file");
        assert_eq!(fixture.host.list("out"), ["file"]);
        fs::remove_file(&target).expect("removed");
    }
}

#[test]
fn refuses_a_folder_to_a_device() {
    let fixture = Fixture::new(1000);
    fs::create_dir(fixture.host.path("tree")).expect("a folder");
    fixture.host.write("tree/top", b"from the network");
    let _producer = put(&fixture.router, "tree", "/tree");
    let pipe = fixture.host.path("out/pipe");
    make_pipe(&pipe);
    let message = fixture.router.weir(&["get", "/tree", "-o", text(&pipe)]).failure();
    assert!(message.contains("is a device, a pipe or a socket"), "{message}");
    assert!(!message.contains("move it away"), "of a device, a dangerous advice: {message}");
    assert!(fs::metadata(&pipe).expect("metadata").file_type().is_fifo());
}

#[test]
fn unread_pipe_waits_until_stopped() {
    let fixture = Fixture::new(MIB);
    let pipe = fixture.host.path("out/pipe");
    make_pipe(&pipe);
    let mut process = fixture.get(&["-o", text(&pipe)]);
    process.wait_for_output("waiting for a program to read");
    process.signal(Signal::SIGTERM);
    let finished = process.finish();
    assert_eq!(finished.status.code(), Some(143), "{}", finished.log);

    // First a reader that reads nothing, then one that reads everything.
    let reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe);
    let reader = reader.expect("opened");
    let mut process = fixture.get(&["-o", text(&pipe)]);
    process.wait_for_output("waiting for a program to read");
    process.signal(Signal::SIGTERM);
    assert_eq!(process.finish().status.code(), Some(143));
    drop(reader);
    let reading = thread::spawn({
        let (pipe, copy) = (pipe.clone(), fixture.host.path("copy"));
        move || {
            let mut octets = Vec::new();
            File::open(pipe).expect("opened").read_to_end(&mut octets).expect("read");
            fs::write(copy, octets).expect("written");
        }
    });
    fixture.get(&["-o", text(&pipe)]).finish().success();
    reading.join().expect("a reader");
    assert!(fixture.is_whole(&fixture.host.path("copy")));
}

#[test]
fn unwritable_output_is_an_error() {
    let fixture = Fixture::new(1000);
    for (redirection, words) in [
        (">&-", &["-o", "-"][..]),
        ("1</dev/null", &["-o", "-"]),
        (">/dev/full", &["-o", "-"]),
        (">&-", &["-o", "out/file", "--json"]),
    ] {
        let mut command = fixture.host.command(Path::new("sh"));
        command.arg("-c").arg(format!("exec \"$0\" \"$@\" {redirection}")).arg(weir_binary());
        command.args(["get", "/part/file"]).args(words);
        command.env("NDN_CLIENT_TRANSPORT", fixture.router.unix());
        let finished = Process::start("weir get", command).finish();
        let code = if redirection == ">/dev/full" { 7 } else { 1 };
        assert_eq!(finished.status.code(), Some(code), "{redirection} {words:?}: {}", finished.log);
        let message = finished.failure();
        let is_named = message.contains("standard output") || message.contains("disk is full");
        assert!(is_named, "{redirection}: {message}");
        assert!(!message.contains("0 files"), "an empty summary: {message}");
    }
    // A shell appends to the file, and its content stays.
    let log = fixture.host.write("log", b"before\n");
    let mut command = fixture.host.command(Path::new("sh"));
    command.args(["-c", "exec \"$0\" \"$@\" >>log"]).arg(weir_binary());
    command.args(["get", "/part/file", "-o", "/dev/stdout"]);
    command.env("NDN_CLIENT_TRANSPORT", fixture.router.unix());
    Process::start("weir get", command).finish().success();
    assert_eq!(fs::read(log).expect("read").len(), 1007);
}

#[test]
fn refuses_to_serve_files_without_size() {
    let host = Host::new();
    let router = Router::start(&host);
    for path in ["/proc/cpuinfo", "/sys/kernel/mm/transparent_hugepage/enabled"] {
        if !Path::new(path).exists() {
            eprintln!("{path} does not exist: NOT tested with it");
            continue;
        }
        let message = router.weir(&["put", path, "/a"]).failure();
        assert!(message.contains(path) && message.contains("to a file first"), "{message}");
    }
    // In a folder, it is skipped and the other files are served.
    fs::create_dir(host.path("tree")).expect("a folder");
    host.write("tree/file", b"content");
    symlink("/proc/cpuinfo", host.path("tree/cpuinfo")).expect("a link");
    let words = ["put", "tree", "/tree", "--follow-links", "--json"];
    let producer = router.spawn(&words);
    assert_eq!(producer.json_line()["skipped"], 1);
    producer.wait_for_output("skipped tree/cpuinfo: it is generated when read");
}
