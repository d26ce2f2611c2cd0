//! Which local users may send commands to a router, and how they find it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use weir_tests::{Finished, Host, Process, Router, random_file, sha256_hex};

const OTHER_UID: u32 = 65534;
/// A group without members on this machine.
const GROUP: u32 = 61_234;

/// Whether the test is skipped, as only root can become another user. Prints a note.
fn is_skipped() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        eprintln!("not root: the permissions of other users are NOT tested");
    }
    !is_root
}

/// A copy of the program that every user can run.
fn shared_program(host: &Host) -> PathBuf {
    let program = host.path("weir");
    if !program.exists() {
        fs::copy(weir_tests::weir_binary(), &program).expect("copy of weir");
        let open = || fs::Permissions::from_mode(0o755);
        fs::set_permissions(&program, open()).expect("mode");
        fs::set_permissions(host.path("."), open()).expect("mode");
        fs::create_dir(host.path("unprivileged")).expect("folder");
        fs::set_permissions(host.path("unprivileged"), fs::Permissions::from_mode(0o777))
            .expect("mode");
    }
    program
}

/// Runs `weir` as an unprivileged user, with a primary group and supplementary groups.
fn weir_as(host: &Host, transport: &str, group: u32, groups: &str, words: &[&str]) -> Process {
    let program = shared_program(host);
    let mut command = host.command(Path::new("setpriv"));
    command.arg(format!("--reuid={OTHER_UID}")).arg(format!("--regid={group}"));
    match groups {
        "" => command.arg("--clear-groups"),
        groups => command.arg(format!("--groups={groups}")),
    };
    command.arg(program).args(words).env("NDN_CLIENT_TRANSPORT", transport);
    command.env("HOME", host.path("unprivileged")).env("WEIR_HOME", host.path("unprivileged"));
    Process::start(&format!("weir {} as another user", words.join(" ")), command)
}

fn as_other_user(host: &Host, transport: &str, words: &[&str]) -> Finished {
    weir_as(host, transport, OTHER_UID, "", words).finish()
}

/// Commands that change a router.
const COMMANDS: [&[&str]; 5] = [
    &["cs", "erase", "/"],
    &["cs", "config", "--capacity", "0"],
    &["route", "add", "/x", "udp://127.0.0.1:9"],
    &["strategy", "set", "/", "multicast"],
    &["face", "create", "udp://127.0.0.1:9"],
];

#[test]
fn other_users_cannot_change_the_router() {
    if is_skipped() {
        return;
    }
    let host = Host::new();
    let router = Router::start(&host);
    let file = host.path("file");
    let sha256 = random_file(&file, 50_000, 1);
    shared_program(&host);
    let out = host.path("unprivileged/copy");
    for transport in [router.unix(), router.tcp()] {
        for words in COMMANDS {
            let message = as_other_user(&host, &transport, words).failure();
            assert!(message.contains("403") && message.contains("only root may"), "{message}");
        }
        as_other_user(&host, &transport, &["status"]).success();
        let serve = ["put", file.to_str().expect("UTF-8"), "/file"];
        let mut producer = weir_as(&host, &transport, OTHER_UID, "", &serve);
        producer.line_with("/file");
        let fetch = ["get", "/file", "-o", out.to_str().expect("UTF-8")];
        as_other_user(&host, &transport, &fetch).success();
        assert_eq!(sha256_hex(&out), sha256);
        fs::remove_file(&out).expect("the copy");
        producer.signal(nix::sys::signal::Signal::SIGTERM);
        let _ = producer.finish();
    }
    // Every user can connect over TCP, so the router cannot know that this is root.
    let message = host.spawn(&router.tcp(), COMMANDS[0]).finish().failure();
    assert!(message.contains("only root may"), "{message}");
    router.weir(COMMANDS[0]).success();
}

#[test]
fn group_members_may_send_commands() {
    if is_skipped() {
        return;
    }
    let host = Host::new();
    let config = host.write(
        "router.toml",
        format!("[faces]\nunix_mode = \"0660\"\nunix_group = \"{GROUP}\"\n").as_bytes(),
    );
    let arguments = vec!["-c".to_owned(), config.display().to_string()];
    let router = Router::start_with(&host, &arguments);
    let unix = router.unix();
    let erase = COMMANDS[0];
    weir_as(&host, &unix, GROUP, "", erase).finish().success();
    let groups = format!("{OTHER_UID},{GROUP}");
    weir_as(&host, &unix, OTHER_UID, &groups, erase).finish().success();
    let message = as_other_user(&host, &unix, &["status"]).failure();
    assert!(message.contains("ermission"), "{message}");
    let message = as_other_user(&host, &router.tcp(), erase).failure();
    assert!(message.contains(&format!("root and members of group {GROUP}")), "{message}");
}

#[test]
fn config_can_restrict_or_relax_access() {
    if is_skipped() {
        return;
    }
    let host = Host::new();
    let config = host.write(
        "router.toml",
        b"[management]\nlocal_registration = false\nloopback_commands = true\n",
    );
    let arguments = vec!["-c".to_owned(), config.display().to_string()];
    let router = Router::start_with(&host, &arguments);
    random_file(&host.path("file"), 100, 1);
    shared_program(&host);
    let file = host.path("file");
    let serve = ["put", file.to_str().expect("UTF-8"), "/file"];
    let message = as_other_user(&host, &router.unix(), &serve).failure();
    assert!(message.contains("only root may"), "{message}");
    as_other_user(&host, &router.tcp(), COMMANDS[0]).success();
}

/// Runs a script in a mount namespace with a private `/run`.
fn run_with_own_run_folder(host: &Host, script: &str) -> Finished {
    let mut command = host.command(Path::new("unshare"));
    let script = format!("mount -t tmpfs -o mode=755 t /run && {script}");
    command.args(["-m", "sh", "-c", &script, "sh"]).arg(shared_program(host));
    command.env("SITE", host.path("."));
    Process::start("unshare", command).finish()
}

#[test]
fn system_socket_ignores_umask() {
    let unshared = || Command::new("unshare").args(["-m", "true"]).status();
    if is_skipped() || !unshared().is_ok_and(|status| status.success()) {
        eprintln!("no mount namespaces: NOT tested");
        return;
    }
    let host = Host::new();
    let script = "umask 077; \"$1\" router --udp none --tcp none >$SITE/out & \
                  until grep -q ready $SITE/out; do sleep 0.05; done; \
                  stat -c %a /run/nfd /run/nfd/nfd.sock; \
                  setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/ \
                  WEIR_HOME=$SITE/unprivileged \"$1\" status >/dev/null && echo reached; \
                  kill $!; wait";
    let finished = run_with_own_run_folder(&host, script).success();
    assert_eq!(finished.output.split_whitespace().collect::<Vec<_>>(), ["755", "666", "reached"]);
}

#[test]
fn finds_session_router_without_its_env() {
    let host = Host::new();
    let session = host.path("run");
    let mut command = host.command(weir_tests::weir_binary());
    // A user who cannot create the system's router socket.
    let is_root = nix::unistd::geteuid().is_root();
    command.args(["router", "--udp", "none", "--tcp", "none"]);
    if is_root {
        let _ = shared_program(&host);
        command = host.command(&host.path("weir"));
        command.args(["router", "--udp", "none", "--tcp", "none"]).uid(OTHER_UID).gid(OTHER_UID);
        nix::unistd::chown(&session, Some(OTHER_UID.into()), None).expect("owner");
    }
    command.env("XDG_RUNTIME_DIR", &session);
    let router = Process::start("weir router", command);
    router.line_with("ready");
    let mut job =
        host.command(&if is_root { host.path("weir") } else { weir_tests::weir_binary().into() });
    job.args(["status"]).env_remove("XDG_RUNTIME_DIR").env("TMPDIR", host.path("unprivileged"));
    if is_root {
        job.uid(OTHER_UID).gid(OTHER_UID);
    }
    let finished = Process::start("weir status as a job", job).finish();
    finished.success();
}
