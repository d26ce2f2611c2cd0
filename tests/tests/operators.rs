//! Who may command a router: users of its machine, and where they find it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use weir_tests::{Finished, Process, Router, RouterOptions, Site, random_file, sha256_hex};

const NOBODY: u32 = 65534;
/// Of no user of the machine.
const GROUP: u32 = 61_234;

/// Whether this is not root, who alone may become others. Says so.
fn is_skipped() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        eprintln!("not root: NOT tested what other users may do");
    }
    !is_root
}

/// The program where every user may run it.
fn shared_program(site: &Site) -> PathBuf {
    let program = site.path("weir");
    if !program.exists() {
        fs::copy(weir_tests::weir_binary(), &program).expect("copy of weir");
        let open = || fs::Permissions::from_mode(0o755);
        fs::set_permissions(&program, open()).expect("mode");
        fs::set_permissions(site.path("."), open()).expect("mode");
        fs::create_dir(site.path("nobody")).expect("folder");
        fs::set_permissions(site.path("nobody"), fs::Permissions::from_mode(0o777)).expect("mode");
    }
    program
}

/// `weir` as a user who owns nothing, with a primary group and supplementary ones.
fn weir_as(site: &Site, transport: &str, group: u32, groups: &str, words: &[&str]) -> Process {
    let program = shared_program(site);
    let mut command = site.command(Path::new("setpriv"));
    command.arg(format!("--reuid={NOBODY}")).arg(format!("--regid={group}"));
    match groups {
        "" => command.arg("--clear-groups"),
        groups => command.arg(format!("--groups={groups}")),
    };
    command.arg(program).args(words).env("NDN_CLIENT_TRANSPORT", transport);
    command.env("HOME", site.path("nobody")).env("WEIR_HOME", site.path("nobody"));
    Process::start(&format!("weir {} as nobody", words.join(" ")), command)
}

fn as_nobody(site: &Site, transport: &str, words: &[&str]) -> Finished {
    weir_as(site, transport, NOBODY, "", words).finish()
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
fn other_users_serve_and_fetch_but_change_nothing() {
    if is_skipped() {
        return;
    }
    let site = Site::new();
    let router = Router::start(&site);
    let file = site.path("file");
    let sha256 = random_file(&file, 50_000, 1);
    shared_program(&site);
    let out = site.path("nobody/copy");
    for transport in [router.unix(), router.tcp()] {
        for words in COMMANDS {
            let message = as_nobody(&site, &transport, words).failure();
            assert!(message.contains("403") && message.contains("only root may"), "{message}");
        }
        let _ = as_nobody(&site, &transport, &["status"]).success();
        let serve = ["put", file.to_str().expect("UTF-8"), "/file"];
        let mut producer = weir_as(&site, &transport, NOBODY, "", &serve);
        producer.line_with("/file");
        let fetch = ["get", "/file", "-o", out.to_str().expect("UTF-8")];
        let _ = as_nobody(&site, &transport, &fetch).success();
        assert_eq!(sha256_hex(&out), sha256);
        fs::remove_file(&out).expect("the copy");
        producer.signal(nix::sys::signal::Signal::SIGTERM);
        let _ = producer.finish();
    }
    // Every user can make a connection by TCP: that root has made one is not known.
    let message = site.weir(&router.tcp(), COMMANDS[0]).finish().failure();
    assert!(message.contains("only root may"), "{message}");
    let _ = router.weir(&site, COMMANDS[0]).success();
}

#[test]
fn members_of_the_configured_group_command() {
    if is_skipped() {
        return;
    }
    let site = Site::new();
    let config = site.write(
        "router.toml",
        format!("[faces]\nunix_mode = \"0660\"\nunix_group = \"{GROUP}\"\n").as_bytes(),
    );
    let arguments = vec!["-c".to_owned(), config.display().to_string()];
    let router = Router::start_with(&site, &RouterOptions { arguments, ..Default::default() });
    let unix = router.unix();
    let erase = COMMANDS[0];
    let _ = weir_as(&site, &unix, GROUP, "", erase).finish().success();
    let groups = format!("{NOBODY},{GROUP}");
    let _ = weir_as(&site, &unix, NOBODY, &groups, erase).finish().success();
    let message = as_nobody(&site, &unix, &["status"]).failure();
    assert!(message.contains("ermission"), "{message}");
    let message = as_nobody(&site, &router.tcp(), erase).failure();
    assert!(message.contains(&format!("root and members of group {GROUP}")), "{message}");
}

#[test]
fn a_configuration_may_be_stricter_or_as_nfd() {
    if is_skipped() {
        return;
    }
    let site = Site::new();
    let config = site.write(
        "router.toml",
        b"[management]\nlocal_registration = false\nloopback_commands = true\n",
    );
    let arguments = vec!["-c".to_owned(), config.display().to_string()];
    let router = Router::start_with(&site, &RouterOptions { arguments, ..Default::default() });
    random_file(&site.path("file"), 100, 1);
    shared_program(&site);
    let file = site.path("file");
    let serve = ["put", file.to_str().expect("UTF-8"), "/file"];
    let message = as_nobody(&site, &router.unix(), &serve).failure();
    assert!(message.contains("only root may"), "{message}");
    let _ = as_nobody(&site, &router.tcp(), COMMANDS[0]).success();
}

/// A program in a mount namespace whose `/run` is its own.
fn in_own_run(site: &Site, script: &str) -> Finished {
    let mut command = site.command(Path::new("unshare"));
    let script = format!("mount -t tmpfs -o mode=755 t /run && {script}");
    command.args(["-m", "sh", "-c", &script, "sh"]).arg(shared_program(site));
    command.env("SITE", site.path("."));
    Process::start("unshare", command).finish()
}

#[test]
fn the_systems_router_is_open_to_all_whatever_the_umask() {
    let unshared = || Command::new("unshare").args(["-m", "true"]).status();
    if is_skipped() || !unshared().is_ok_and(|status| status.success()) {
        eprintln!("no mount namespaces: NOT tested");
        return;
    }
    let site = Site::new();
    let script = "umask 077; \"$1\" router --udp none --tcp none >$SITE/out & \
                  until grep -q ready $SITE/out; do sleep 0.05; done; \
                  stat -c %a /run/nfd /run/nfd/nfd.sock; \
                  setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/ \
                  WEIR_HOME=$SITE/nobody \"$1\" status >/dev/null && echo reached; kill $!; wait";
    let finished = in_own_run(&site, script).success();
    assert_eq!(finished.output.split_whitespace().collect::<Vec<_>>(), ["755", "666", "reached"]);
}

#[test]
fn jobs_find_the_router_of_their_users_session() {
    let site = Site::new();
    let session = site.path("run");
    let mut command = site.command(weir_tests::weir_binary());
    // As where no router of the whole machine may be made.
    let is_root = nix::unistd::geteuid().is_root();
    command.args(["router", "--udp", "none", "--tcp", "none"]);
    if is_root {
        let _ = shared_program(&site);
        command = site.command(&site.path("weir"));
        command.args(["router", "--udp", "none", "--tcp", "none"]).uid(NOBODY).gid(NOBODY);
        nix::unistd::chown(&session, Some(NOBODY.into()), None).expect("owner");
    }
    command.env("XDG_RUNTIME_DIR", &session);
    let router = Process::start("weir router", command);
    router.line_with("ready");
    let mut job =
        site.command(&if is_root { site.path("weir") } else { weir_tests::weir_binary().into() });
    job.args(["status"]).env_remove("XDG_RUNTIME_DIR").env("TMPDIR", site.path("nobody"));
    if is_root {
        job.uid(NOBODY).gid(NOBODY);
    }
    let finished = Process::start("weir status as a job", job).finish();
    let _ = finished.success();
}
