//! What signals do to each command (the table in docs/operate.md), and limits of a process that
//! come as a signal.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use weir_tests::{
    DiskStore, PATIENCE, Process, Router, RouterOptions, Site, random_file, sha256_hex, weir_binary,
};

const MIB: usize = 1 << 20;
const NEVER_ENDING: [(Signal, &str); 3] =
    [(Signal::SIGHUP, "SIGHUP"), (Signal::SIGUSR1, "SIGUSR1"), (Signal::SIGUSR2, "SIGUSR2")];
const ENDING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A shell that says `line` first and becomes its arguments.
fn after(site: &Site, line: &str) -> Command {
    let mut command = site.command(Path::new("bash"));
    command.arg("-c").arg(format!("{line} && exec \"$0\" \"$@\"")).arg(weir_binary());
    command
}

fn start(router: &Router, mut command: Command, arguments: &[&str]) -> Process {
    command.args(arguments).env("NDN_CLIENT_TRANSPORT", router.unix());
    Process::start(&format!("weir {}", arguments.join(" ")), command)
}

/// Starts `weir put` of a file and waits until it serves.
fn put(site: &Site, router: &Router, command: Command, size: usize) -> (Process, String) {
    random_file(&site.path("source"), size, 1);
    let arguments = ["put", "source", "/signals/file", "--sign", "digest", "--json"];
    let process = start(router, command, &arguments);
    let name = process.json_line()["name"].as_str().expect("a name").to_owned();
    (process, name)
}

#[test]
fn router_continues_at_signals_that_ask_for_nothing() {
    let site = Site::new();
    let mut router = Router::start(&site);
    for (signal, text) in NEVER_ENDING {
        router.process.signal(signal);
        wait_until(text, || router.process.log().contains(&format!("{text}: ")));
    }
    assert!(router.process.log().contains("SIGHUP: nothing to reload yet, continuing"));
    let _ = router.weir(&site, &["status"]).success();
    for signal in [Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGINT] {
        let socket = router.socket().clone();
        router.process.signal(signal);
        let _ = router.process.finish().success();
        assert!(!socket.exists(), "{signal} left the socket behind");
        router = Router::start(&site);
    }
}

/// What a closed terminal is for a program: SIGHUP, and no place to write to.
#[test]
fn router_survives_a_closed_terminal() {
    let site = Site::new();
    let mut router = Router::start_after(&site, "exec 2>/dev/full", &RouterOptions::default());
    router.process.signal(Signal::SIGHUP);
    // Nothing that it logs can be written.
    let _ = router.weir(&site, &["status"]).success();
    router.process.signal(Signal::SIGHUP);
    let _ = router.weir(&site, &["face", "list"]).success();
    router.process.signal(Signal::SIGTERM);
    let _ = router.process.finish().success();
}

#[test]
fn servers_end_in_good_order() {
    let site = Site::new();
    let router = Router::start(&site);
    let database = site.path("controller.db");
    let database = database.to_str().expect("UTF-8");
    for signal in ENDING {
        let (mut put, _) = put(&site, &router, site.command(weir_binary()), 10_000);
        let ping = ["ping", "--serve", "/signals", "--json"];
        let mut ping = start(&router, site.command(weir_binary()), &ping);
        let _ = ping.json_line();
        let controller =
            ["controller", "--listen", "127.0.0.1:0", "--database", database, "--json"];
        let mut controller = start(&router, site.command(weir_binary()), &controller);
        let _ = controller.json_line();
        for process in [&mut put, &mut ping, &mut controller] {
            process.signal(Signal::SIGUSR1);
            process.signal(Signal::SIGUSR2);
            process.signal(Signal::SIGPIPE);
            process.signal(Signal::SIGXFSZ);
            process.signal(signal);
        }
        for process in [put, ping, controller] {
            let _ = process.finish().success();
        }
    }
}

#[test]
fn hangup_that_was_ignored_at_the_start_stays_ignored() {
    let site = Site::new();
    let router = Router::start(&site);
    for signal in [Signal::SIGHUP, Signal::SIGQUIT] {
        let (mut put, name) = put(&site, &router, after(&site, "trap '' HUP QUIT"), 10_000);
        put.signal(signal);
        let copy = ["get", &name, "-o", "copy", "--allow-unsigned"];
        let _ = router.weir(&site, &copy).success();
        put.signal(Signal::SIGTERM);
        let _ = put.finish().success();
    }
}

#[test]
fn interrupted_get_keeps_its_part_and_says_which_signal() {
    let site = Site::new();
    let router = Router::start(&site);
    let (_put, name) = put(&site, &router, site.command(weir_binary()), 64 * MIB);
    let folder = site.path("out");
    for signal in ENDING {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("folder");
        let arguments = ["get", &name, "-o", "out/copy", "--allow-unsigned", "--window-max", "4"];
        let mut get = start(&router, site.command(weir_binary()), &arguments);
        // One that has received nothing yet leaves nothing. A block has 512 bytes.
        let has_part = |metadata: fs::Metadata| metadata.blocks() * 512 > MIB as u64;
        let part = folder.join(".copy.weir-part");
        wait_until("a part", || fs::metadata(&part).is_ok_and(has_part));
        get.signal(Signal::SIGUSR1);
        get.signal(signal);
        let ended = get.finish();
        assert_eq!(ended.status.code(), Some(128 + signal as i32), "{signal}: {ended:?}");
        assert!(ended.failure().contains("interrupted"));
        assert_eq!(site.list("out"), [".copy.weir-part", ".copy.weir-state"], "{signal}");
    }
    let _ = router.weir(&site, &["get", &name, "-o", "out/copy", "--allow-unsigned"]).success();
    assert_eq!(sha256_hex(&site.path("out/copy")), sha256_hex(&site.path("source")));
}

/// `ulimit -f` sends SIGXFSZ, which ends a process without a word by default.
#[test]
fn file_size_limit_is_named() {
    let site = Site::new();
    let router = Router::start(&site);
    let limit = "ulimit -c 0 && ulimit -f 1024";
    random_file(&site.path("large"), 4 * MIB, 1);
    let keep = ["put", "large", "/large", "--sign", "digest", "--repo", "repo"];
    let store = DiskStore { size: "20MiB".into(), ..DiskStore::new("router") };
    let config = store.write_config(&site);
    let socket = site.path("second.sock");
    let with_disk = ["router", "-c", config.to_str().expect("UTF-8"), "--udp", "none", "--tcp"];
    let with_disk = [&with_disk[..], &["none", "--unix", socket.to_str().expect("UTF-8")]].concat();
    for arguments in [&keep[..], &with_disk] {
        let message = start(&router, after(&site, limit), arguments).finish().failure();
        assert!(message.contains("ulimit -f"), "{message}");
    }
    let key = start(&router, after(&site, "ulimit -c 0 && ulimit -f 0"), &["key", "new", "/a"]);
    let message = key.finish().failure();
    assert!(message.contains("ulimit -f"), "{message}");
    let _ = router.weir(&site, &["key", "new", "/a"]).success();
}

/// A router whose disk exceeds a limit that was set later still forwards.
#[test]
fn router_with_a_disk_beyond_its_file_size_limit_forwards() {
    let site = Site::new();
    let store = DiskStore { size: "20MiB".into(), ..DiskStore::new("router") };
    let mut router = store.start(&site);
    router.process.signal(Signal::SIGTERM);
    let _ = router.process.finish().success();
    let config = store.write_config(&site);
    let arguments = vec!["-c".into(), config.to_str().expect("UTF-8").into()];
    let options = RouterOptions { arguments, ..RouterOptions::default() };
    let router = Router::start_after(&site, "ulimit -c 0 && ulimit -f 64", &options);
    let (_put, name) = put(&site, &router, site.command(weir_binary()), 8 * MIB);
    let _ = router.weir(&site, &["get", &name, "-o", "copy", "--allow-unsigned"]).success();
    assert_eq!(sha256_hex(&site.path("copy")), sha256_hex(&site.path("source")));
    wait_until("the limit in the log", || router.process.log().contains("ulimit -f"));
}

#[test]
fn closed_output_is_an_error_and_no_signal() {
    let site = Site::new();
    let router = Router::start(&site);
    let mut command = site.command(weir_binary());
    command.args(["status"]).env("NDN_CLIENT_TRANSPORT", router.unix());
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    command
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(File::create(site.path("log")).expect("log"));
    assert_eq!(command.status().expect("it starts").code(), Some(1));
}
