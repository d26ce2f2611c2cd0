//! Restarts: sockets of the service manager, clients that wait, and containers.

use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::served::{Killed, Served, Site, error_of, random_file, serve, wait_until};

/// Starts the router with two sockets, as the service manager does (sd_listen_fds(3)).
fn start_with_sockets<'a>(site: &'a Site, sockets: [OwnedFd; 2], words: &[&str]) -> Served<'a> {
    let router = site.router(words);
    let mut command = Command::new("sh");
    let script = "exec 3<&0 4<&2 0</dev/null 2>>\"$LOG\"; export LISTEN_PID=$$; exec \"$0\" \"$@\"";
    command.arg("-c").arg(script).arg(router.get_program()).args(router.get_args());
    command.envs(router.get_envs().filter_map(|(key, value)| Some((key, value?))));
    command.env("LOG", site.path("log")).env("LISTEN_FDS", "2").env("LISTEN_FDNAMES", "one:two");
    let [first, second] = sockets;
    command.stdin(first).stderr(second).stdout(Stdio::piped());
    site.start_in(command)
}

/// The router restarts while one client downloads a large file, and others connect.
#[test]
fn clients_survive_a_restart() {
    let site = Site::new("");
    let unix = UnixListener::bind(site.path("router.sock")).unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = udp.local_addr().unwrap().to_string();
    let start = || {
        let sockets = [unix.try_clone().unwrap().into(), udp.try_clone().unwrap().into()];
        start_with_sockets(&site, sockets, &["--udp", &address, "--store", "0"])
    };
    let router = start();
    let listening = router.ready["listening"].to_string();
    assert!(listening.contains("router.sock") && listening.contains(&address), "{listening}");
    random_file(&site.path("large"), 96 << 20);
    std::fs::write(site.path("small"), "small").unwrap();
    let _large = serve(&site, "large", "/large");
    let _small = serve(&site, "small", "/small");
    let mut get = site.weir(&["get", "/large", "--allow-unsigned", "-o"]);
    let mut get = Killed(get.arg(site.path("copy")).stderr(Stdio::piped()).spawn().unwrap());
    let is_done = AtomicBool::new(false);
    let restarted = std::thread::scope(|scope| {
        // Each command makes a connection of its own.
        let others = scope.spawn(|| {
            let (mut longest, mut count, mut refused) = (Duration::ZERO, 0, 0);
            let mut succeeded_at = Instant::now();
            while !is_done.load(Ordering::Relaxed) {
                // To standard output, so that each command fetches the content.
                let words = ["get", "/small", "--allow-unsigned", "-o", "-"];
                let small = site.weir(&words).output().unwrap();
                if small.status.success() {
                    assert_eq!(small.stdout, b"small");
                    longest = longest.max(succeeded_at.elapsed());
                    (succeeded_at, count) = (Instant::now(), count + 1);
                } else {
                    // The producer has not registered again yet.
                    let error = error_of(&small);
                    assert!(error.contains("no route"), "{error}");
                    refused += 1;
                }
            }
            (longest, count, refused)
        });
        wait_until("the download has begun", || is_writing(&site, "copy"));
        let began = Instant::now();
        router.stop();
        assert!(site.path("router.sock").exists(), "the service manager owns the socket");
        let next = start();
        let pause = began.elapsed();
        wait_until("the download ends", || get.0.try_wait().unwrap().is_some());
        is_done.store(true, Ordering::Relaxed);
        let (longest, count, refused) = others.join().unwrap();
        println!(
            "restart {pause:?}; {count} other downloads, at most {longest:?} apart; {refused} \
             before the producer was back"
        );
        assert!(longest < Duration::from_secs(10), "clients waited {longest:?}");
        next
    });
    let mut error = String::new();
    let mut pipe = get.0.stderr.take().unwrap();
    std::io::Read::read_to_string(&mut pipe, &mut error).unwrap();
    assert!(get.0.wait().unwrap().success(), "{error}");
    assert!(error.contains("reconnecting") && error.contains("is back"), "{error}");
    let equal =
        std::fs::read(site.path("copy")).unwrap() == std::fs::read(site.path("large")).unwrap();
    assert!(equal, "the copy differs");
    restarted.stop();
}

/// Whether a download to this file has begun. Until its end, the file has a longer name.
fn is_writing(site: &Site, name: &str) -> bool {
    let names = std::fs::read_dir(site.path("")).unwrap();
    names.flatten().any(|entry| entry.file_name().to_string_lossy().contains(name))
}

#[test]
fn sockets_without_listener_are_named() {
    let site = Site::new("");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let [tcp_at, web_at] = [&tcp, &web].map(|one| one.local_addr().unwrap().to_string());
    let sockets = || [tcp.try_clone().unwrap().into(), web.try_clone().unwrap().into()];
    let words = ["--tcp", &tcp_at, "--websocket", &web_at];
    let router = start_with_sockets(&site, sockets(), &words);
    let listening = router.ready["listening"].to_string();
    assert!(listening.contains(&format!("tcp4://{tcp_at}")), "{listening}");
    assert!(listening.contains(&format!("ws://{web_at}")), "{listening}");
    router.stop();
    assert!(!site.log().contains("has passed a socket"), "{}", site.log());
    let router = start_with_sockets(&site, sockets(), &words[..2]);
    router.stop();
    assert!(site.log().contains(&format!("tcp {web_at} (two)")), "{}", site.log());
}

/// A disk of the command line grows and shrinks with its size.
#[test]
fn disk_changes_its_size_at_a_restart() {
    let site = Site::new("");
    let disk = site.path("disk");
    let disk = disk.to_str().unwrap();
    for (size, word) in [("16MiB", ""), ("32MiB", "enlarged from"), ("8MiB", "reduced from")] {
        let before = site.log().len();
        site.start(&["--disk", disk, "--disk-size", size]).stop();
        let log = site.log()[before..].to_lowercase();
        assert!(log.contains(word), "{size}: {log}");
    }
    assert_eq!(std::fs::metadata(disk).unwrap().len(), 8 << 20);
}

/// PID 1 of a container with a read-only root and without /proc.
#[test]
fn container_without_proc_starts_and_stops() {
    let site = Site::new("");
    let root = site.path("root");
    std::fs::create_dir(&root).unwrap();
    let script = "mount -t tmpfs none \"$1\" && cd \"$1\" && touch program && \
                  for at in lib lib64 usr; do \
                  [ ! -e /$at ] || { mkdir $at && mount --rbind /$at $at; } || exit 1; done && \
                  mount --bind \"$0\" program && \
                  mount -o remount,ro,bind . && exec chroot . /program router --udp 127.0.0.1:0 \
                  --tcp none --json";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--pid", "--fork", "--mount", "sh", "-c", script]);
    command.arg(env!("CARGO_BIN_EXE_weir")).arg(&root);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let mut probe = Command::new("unshare");
    probe.args(["--user", "--map-root-user", "--pid", "--fork", "true"]);
    let can_unshare = probe.status().is_ok_and(|status| status.success());
    if !can_unshare {
        return println!("NOT tested: containers, because unshare(1) is not permitted");
    }
    let mut router = site.start_as(command);
    // The router is the child of `unshare`.
    let parent = router.child.id();
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let children = children.unwrap();
    let child: i32 = children.split_whitespace().next().unwrap().parse().unwrap();
    for signal in [Signal::SIGHUP, Signal::SIGTERM] {
        kill(Pid::from_raw(child), signal).unwrap();
        if signal == Signal::SIGHUP {
            wait_until("the router reloads", || site.log().contains("reloaded the configuration"));
        }
    }
    router.wait();
    assert!(site.log().contains("stopped"), "{}", site.log());
}
