//! The C sockets, compiled with the system's compilers and run over a real router.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use weir_tests::{CLibrary, Host, Process, Router, random_file, sha256_hex, wait_until};

fn start(host: &Host, router: &str, program: &str, arguments: &[&str]) -> Process {
    let mut command = host.command(&CLibrary::installed().program(program));
    command.args(arguments).env("NDN_CLIENT_TRANSPORT", router);
    Process::start(program, command)
}

/// Runs a check of a program in `bindings/c/tests`.
fn run(router: &Router, program: &str, words: &[&str]) {
    let program = format!("tests/{program}.c");
    let finished = start(&router.host, &router.unix(), &program, words).finish();
    assert!(finished.success().output.contains("ok"), "{program} {words:?}");
}

fn check_of(program: &str, name: &str) {
    let host = Host::new();
    run(&Router::start(&host), program, &[name]);
}

fn check(name: &str) {
    check_of("sockets", name);
}

#[test]
fn bad_arguments_are_errors_and_no_crash() {
    check("arguments");
}

/// The program with sanitizers, or without them if the compiler has none.
fn sanitized(source: &str) -> PathBuf {
    let installed = CLibrary::installed();
    installed.sanitized_program(source).unwrap_or_else(|| {
        eprintln!("cc has no sanitizers: {source} runs without");
        installed.program(source)
    })
}

#[test]
fn stays_within_the_given_buffers() {
    let router = Router::on_new_host();
    for (source, checks) in [
        (
            "tests/sockets.c",
            &["arguments", "errors", "options", "objects", "interests", "fork"][..],
        ),
        ("tests/closing.c", &["receiving", "binding", "publishing-little"]),
        ("tests/choices.c", &["ranges"]),
        ("tests/live.c", &["growing", "offers", "hicn"]),
    ] {
        for check in checks {
            let mut command = router.host.command(&sanitized(source));
            command.arg(check).env("NDN_CLIENT_TRANSPORT", router.unix());
            let finished = Process::start(source, command).finish().success();
            assert!(finished.output.contains("ok"), "{source} {check}");
        }
    }
}

#[test]
fn random_calls_never_crash_or_hang() {
    let router = Router::on_new_host();
    for seed in 1..=6 {
        let mut command = router.host.command(&sanitized("tests/random.c"));
        command.args([&seed.to_string(), "20000"]).env("NDN_CLIENT_TRANSPORT", router.unix());
        let finished = Process::start(&format!("random {seed}"), command).finish().success();
        assert!(finished.output.contains("ok"), "seed {seed}");
    }
}

#[test]
fn each_failure_has_its_errno() {
    check("errors");
}

#[test]
fn without_a_router_the_connection_is_refused() {
    let host = Host::new();
    let missing = format!("unix://{}", host.path("missing.sock").display());
    start(&host, &missing, "tests/sockets.c", &["no-router"]).finish().success();
}

#[test]
fn options_are_set_and_read_by_name() {
    check("options");
}

#[test]
fn objects_arrive_in_order() {
    check("objects");
}

#[test]
fn hicn_names_and_signatures() {
    check_of("live", "hicn");
}

#[test]
fn signing_key_and_anchors_can_be_chosen() {
    let router = Router::on_new_host();
    let certificate = |identity: &str, file: &str, more: &[&str]| {
        let file = router.host.path(file).to_str().unwrap().to_owned();
        let words = [&["key", "new", identity][..], more].concat();
        router.weir(&words).success();
        router.weir(&["key", "export", identity, "--output", &file]).success();
        file
    };
    let other = certificate("/other", "other.cert", &["--default"]);
    let signer = certificate("/p", "signer.cert", &[]);
    run(&router, "choices", &["keys", &signer, &other]);
    run(&router, "choices", &["hicn-key", &signer, &other]);
}

#[test]
fn reads_a_range_without_the_rest() {
    check_of("choices", "ranges");
}

#[test]
fn one_program_uses_several_routers() {
    let router = Router::on_new_host();
    let other = Router::start_at(&router.host, "other.sock");
    let path = other.socket().to_str().unwrap();
    run(&router, "choices", &["routers", &other.tcp(), path]);
}

#[test]
fn close_wakes_waiting_threads() {
    check_of("closing", "receiving");
}

#[test]
fn close_ends_a_pending_bind() {
    check_of("closing", "binding");
}

#[test]
fn publishing_does_not_block_signals() {
    check_of("closing", "publishing-little");
}

#[test]
fn connect_times_out_without_reply() {
    check_of("closing", "timing-out");
}

#[test]
fn unusable_disk_is_an_error_with_a_reason() {
    let router = Router::on_new_host();
    let folder = router.host.path("disks");
    std::fs::create_dir(&folder).unwrap();
    run(&router, "choices", &["disks", folder.to_str().unwrap()]);
}

#[test]
fn closing_ends_publishing() {
    check_of("closing", "publishing");
}

#[test]
fn threads_do_not_block_each_other() {
    check("threads");
}

#[test]
fn poll_says_when_a_call_would_not_wait() {
    check("poll");
}

#[test]
fn interests_with_parameters_all_arrive() {
    check("interests");
}

#[test]
fn objects_grow_and_are_followed() {
    check_of("live", "growing");
}

#[test]
fn followers_learn_of_a_restarted_object() {
    check_of("live", "abandoned");
}

#[test]
fn slow_reader_learns_of_skipped_segments() {
    check_of("live", "skipping");
}

#[test]
fn offered_object_is_fetched_and_answered() {
    check_of("live", "offers");
}

#[test]
fn calls_in_a_forked_child_fail() {
    check("fork");
}

#[test]
fn library_threads_block_signals() {
    check("signals");
}

#[test]
fn header_compiles_as_cpp() {
    let compiler = ["c++", "g++", "clang++"].into_iter().find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    });
    let Some(compiler) = compiler else { return };
    let header = CLibrary::sources().join("include/weir/socket.h");
    let words = ["-fsyntax-only", "-pedantic", "-x", "c++"];
    weir_tests::run(Command::new(compiler).args(words).args(CLibrary::WARNINGS).arg(header));
}

#[test]
fn static_library_links_alone() {
    let installed = CLibrary::installed();
    let mut command = Command::new("cc");
    command
        .args(["-std=c99"])
        .args(CLibrary::WARNINGS)
        .arg(CLibrary::sources().join("examples/file_client.c"));
    command.arg("-I").arg(installed.path("include")).arg(installed.path("lib/libweir.a"));
    let template = std::fs::read_to_string(CLibrary::sources().join("weir.pc.in")).unwrap();
    let private = template.lines().find_map(|line| line.strip_prefix("Libs.private: "));
    command.args(private.unwrap().split_whitespace());
    let program = installed.path("static_client");
    weir_tests::run(command.arg("-o").arg(&program));
    let usage = Command::new(program).output().unwrap();
    assert!(String::from_utf8_lossy(&usage.stderr).contains("file_client NAME"));
}

#[test]
fn c_file_server_survives_a_router_restart() {
    let host = Host::new();
    let router = Router::start(&host);
    std::fs::create_dir(host.path("files")).unwrap();
    let sum = random_file(&host.path("files/large"), 5_000_000, 1);
    let files = host.path("files");
    let server = [files.to_str().unwrap(), "/files"];
    let mut server = start(&host, &router.unix(), "examples/file_server.c", &server);
    server.line_with("serving");
    let client = |router: &Router, name: &str, to: &Path| {
        let client = CLibrary::installed().program("examples/file_client.c");
        let mut command = host.command(&client);
        command.arg(name).env("NDN_CLIENT_TRANSPORT", router.unix());
        command.stdout(std::fs::File::create(to).unwrap()).output().unwrap()
    };
    let got = host.path("got");
    let output = client(&router, "/files/large", &got);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(sha256_hex(&got), sum);
    // Five dots in a URI are a component of two.
    for name in ["/files/none", "/files/...../files/large"] {
        let output = client(&router, name, &got);
        let problems = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && problems.contains("unreachable"), "{problems}");
    }
    drop(router);
    let router = Router::start(&host);
    random_file(&host.path("files/other"), 100_000, 2);
    let to = host.path("other");
    // Wait for the registration of the prefix.
    let has_route = || {
        let routes = router.weir_json(&["route", "list"]);
        routes.to_string().contains("/files")
    };
    wait_until("the route is registered", has_route);
    router.weir(&["get", "/files/other", "-o", to.to_str().unwrap()]).success();
    assert_eq!(sha256_hex(&to), sha256_hex(&host.path("files/other")));
    assert!(server.is_running(), "{}", server.log());
    server.signal(Signal::SIGTERM);
}
