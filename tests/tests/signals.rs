//! The effect of signals on each command (the table in docs/operate.md), and of process limits that
//! raise signals.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use weir_tests::{
    DiskStore, Host, Process, Router, random_file, sha256_hex, wait_until, weir_binary,
};

const MIB: usize = 1 << 20;
const NEVER_ENDING: [(Signal, &str); 2] =
    [(Signal::SIGUSR1, "SIGUSR1"), (Signal::SIGUSR2, "SIGUSR2")];
const ENDING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// A shell that runs `line`, then replaces itself by its arguments.
fn after(host: &Host, line: &str) -> Command {
    let mut command = host.command(Path::new("bash"));
    command.arg("-c").arg(format!("{line} && exec \"$0\" \"$@\"")).arg(weir_binary());
    command
}

fn start(router: &Router, mut command: Command, arguments: &[&str]) -> Process {
    command.args(arguments).env("NDN_CLIENT_TRANSPORT", router.unix());
    Process::start(&format!("weir {}", arguments.join(" ")), command)
}

/// Starts `weir put` of a file and waits until it serves.
fn put(router: &Router, command: Command, size: usize) -> (Process, String) {
    random_file(&router.host.path("source"), size, 1);
    let arguments = ["put", "source", "/signals/file", "--sign", "digest", "--json"];
    let process = start(router, command, &arguments);
    let name = process.json_line()["name"].as_str().expect("a name").to_owned();
    (process, name)
}

#[test]
fn router_ignores_signals_without_meaning() {
    let host = Host::new();
    let mut router = Router::start(&host);
    for (signal, text) in NEVER_ENDING {
        router.process.signal(signal);
        wait_until(text, || router.process.log().contains(&format!("{text} has no effect")));
    }
    router.process.signal(Signal::SIGHUP);
    wait_until("SIGHUP", || router.process.log().contains("reloaded the configuration"));
    router.weir(&["status"]).success();
    for signal in [Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGINT] {
        let socket = router.socket().clone();
        router.process.signal(signal);
        router.process.finish().success();
        assert!(!socket.exists(), "{signal} left the socket behind");
        router = Router::start(&host);
    }
}

/// A closed terminal: SIGHUP, and writes fail.
#[test]
fn router_survives_a_closed_terminal() {
    let host = Host::new();
    let mut router = Router::start_after(&host, "exec 2>/dev/full", &[""; 0]);
    router.process.signal(Signal::SIGHUP);
    // The router cannot write its log.
    router.weir(&["status"]).success();
    router.process.signal(Signal::SIGHUP);
    router.weir(&["face", "list"]).success();
    router.process.signal(Signal::SIGTERM);
    router.process.finish().success();
}

#[test]
fn signals_end_servers_cleanly() {
    let host = Host::new();
    let router = Router::start(&host);
    let database = host.path("controller.db");
    let database = database.to_str().expect("UTF-8");
    for signal in ENDING {
        let (mut put, _) = put(&router, host.command(weir_binary()), 10_000);
        let ping = ["ping", "--serve", "/signals", "--json"];
        let mut ping = start(&router, host.command(weir_binary()), &ping);
        let _ = ping.json_line();
        let controller =
            ["controller", "--listen", "127.0.0.1:0", "--database", database, "--json"];
        let mut controller = start(&router, host.command(weir_binary()), &controller);
        let _ = controller.json_line();
        for process in [&mut put, &mut ping, &mut controller] {
            process.signal(Signal::SIGUSR1);
            process.signal(Signal::SIGUSR2);
            process.signal(Signal::SIGPIPE);
            process.signal(Signal::SIGXFSZ);
            process.signal(signal);
        }
        for process in [put, ping, controller] {
            process.finish().success();
        }
    }
}

#[test]
fn ignored_hangup_stays_ignored() {
    let router = Router::on_new_host();
    for signal in [Signal::SIGHUP, Signal::SIGQUIT] {
        let (mut put, name) = put(&router, after(&router.host, "trap '' HUP QUIT"), 10_000);
        put.signal(signal);
        let copy = ["get", &name, "-o", "copy", "--allow-unsigned"];
        router.weir(&copy).success();
        put.signal(Signal::SIGTERM);
        put.finish().success();
    }
}

#[test]
fn interrupted_get_keeps_its_part_file() {
    let host = Host::new();
    let router = Router::start(&host);
    let (_put, name) = put(&router, host.command(weir_binary()), 64 * MIB);
    let folder = host.path("out");
    for signal in ENDING {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("folder");
        let arguments = ["get", &name, "-o", "out/copy", "--allow-unsigned", "--window-max", "4"];
        let mut get = start(&router, host.command(weir_binary()), &arguments);
        // A part file without data is removed. A block has 512 bytes.
        let has_part = |metadata: fs::Metadata| metadata.blocks() * 512 > MIB as u64;
        let part = folder.join(".copy.weir-part");
        wait_until("a part", || fs::metadata(&part).is_ok_and(has_part));
        get.signal(Signal::SIGUSR1);
        get.signal(signal);
        let ended = get.finish();
        assert_eq!(ended.status.code(), Some(128 + signal as i32), "{signal}: {ended:?}");
        assert!(ended.failure().contains("interrupted"));
        assert_eq!(host.list("out"), [".copy.weir-part", ".copy.weir-state"], "{signal}");
    }
    router.weir(&["get", &name, "-o", "out/copy", "--allow-unsigned"]).success();
    assert_eq!(sha256_hex(&host.path("out/copy")), sha256_hex(&host.path("source")));
}

/// `ulimit -f` raises SIGXFSZ, which by default kills a process without a message.
#[test]
fn file_size_limit_is_named() {
    let host = Host::new();
    let router = Router::start(&host);
    let limit = "ulimit -c 0 && ulimit -f 1024";
    random_file(&host.path("large"), 4 * MIB, 1);
    let keep = ["put", "large", "/large", "--sign", "digest", "--repo", "repo"];
    let store = DiskStore { size: "20MiB".into(), ..DiskStore::new("router") };
    let config = store.write_config(&host);
    let socket = host.path("second.sock");
    let with_disk = ["router", "-c", config.to_str().expect("UTF-8"), "--udp", "none", "--tcp"];
    let with_disk = [&with_disk[..], &["none", "--unix", socket.to_str().expect("UTF-8")]].concat();
    for arguments in [&keep[..], &with_disk] {
        let message = start(&router, after(&host, limit), arguments).finish().failure();
        assert!(message.contains("ulimit -f"), "{message}");
    }
    let key = start(&router, after(&host, "ulimit -c 0 && ulimit -f 0"), &["key", "new", "/a"]);
    let message = key.finish().failure();
    assert!(message.contains("ulimit -f"), "{message}");
    router.weir(&["key", "new", "/a"]).success();
}

/// A router forwards even if its disk exceeds a file size limit.
#[test]
fn file_size_limit_does_not_stop_router() {
    let host = Host::new();
    let store = DiskStore { size: "20MiB".into(), ..DiskStore::new("router") };
    let mut router = store.start(&host);
    router.process.signal(Signal::SIGTERM);
    router.process.finish().success();
    store.write_config(&host);
    let limits = "ulimit -c 0 && ulimit -f 64";
    let router = Router::start_after(&host, limits, &["-c", "router.toml"]);
    let (_put, name) = put(&router, host.command(weir_binary()), 8 * MIB);
    router.weir(&["get", &name, "-o", "copy", "--allow-unsigned"]).success();
    assert_eq!(sha256_hex(&host.path("copy")), sha256_hex(&host.path("source")));
    wait_until("the limit in the log", || router.process.log().contains("ulimit -f"));
}

#[test]
fn closed_output_is_an_error_and_no_signal() {
    let router = Router::on_new_host();
    let mut command = router.host.command(weir_binary());
    command.args(["status"]).env("NDN_CLIENT_TRANSPORT", router.unix());
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    command
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(File::create(router.host.path("log")).expect("log"));
    assert_eq!(command.status().expect("it starts").code(), Some(1));
}
