//! `weir put`, `weir router` and `weir get` together, including failures.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use weir_client::Client;
use weir_tests::{
    Host, Process, Relay, Router, TEST_TIMEOUT, random_file, sha256_hex, wait_until, weir_binary,
};
use weir_wire::{DataView, Interest, Name, signature_type};

const MIB: usize = 1 << 20;

/// Starts `weir put` and waits until the object is served; returns it with its versioned name.
fn put(router: &Router, path: &Path, arguments: &[&str]) -> (Process, String) {
    router.put_object(&[&[path.to_str().expect("UTF-8")], arguments].concat())
}

/// Runs `weir get` into `target` of the host, and returns its report.
fn get(router: &Router, name: &str, target: &str) -> Value {
    router.weir_json(&["get", name, "-o", target])
}

/// Bytes on disk of all files in a folder of the host. Files may be sparse.
fn octets_in(host: &Host, folder: &str) -> u64 {
    host.list(folder)
        .iter()
        .filter_map(|name| fs::metadata(host.path(folder).join(name)).ok())
        .map(|metadata| metadata.blocks() * 512)
        .sum()
}

#[test]
fn files_of_all_sizes_come_back_identical() {
    let router = Router::on_new_host();
    for (index, size) in [0, 1, 7999, 8000, 8001, 3 * MIB + 17].into_iter().enumerate() {
        let source = router.host.path(&format!("source{index}"));
        let expected = random_file(&source, size, 42 + index as u64);
        let name = format!("/files/{index}");
        let (_producer, versioned) = put(&router, &source, &[&name]);
        assert!(versioned.starts_with(&name), "{versioned}");
        let target = format!("target{index}");
        get(&router, &name, &target);
        assert_eq!(sha256_hex(&router.host.path(&target)), expected, "{size} bytes");
    }
}

#[test]
fn file_crosses_routers_and_outlives_producer() {
    let host = Host::new();
    let near = Router::start_at(&host, "near");
    let far = Router::start_at(&host, "far");
    let expected = random_file(&host.path("source"), 8 * MIB + 5, 7);
    let (producer, name) = put(&far, &host.path("source"), &["/far/file"]);
    near.add_route("/far", &far.udp());

    get(&near, "/far/file", "cold");
    assert_eq!(sha256_hex(&host.path("cold")), expected);

    drop(producer);
    get(&near, &name, "warm");
    assert_eq!(sha256_hex(&host.path("warm")), expected);
}

/// Fetches a file twice through a store that is smaller than the file. The second time, the
/// producer must get Interests only for the segments that do not fit, and for less than a tenth of
/// those that do.
fn fetch_through_a_store_too_small(bytes: usize, store_bytes: usize, threads: &str) {
    let host = Host::new();
    let store = store_bytes.to_string();
    let arguments = ["--store", &store, "--threads", threads].map(String::from).to_vec();
    let near = Router::start_at_with(&host, "near", &arguments);
    let far = Router::start_at(&host, "far");
    let expected = random_file(&host.path("source"), bytes, 9);
    let (_producer, _) = put(&far, &host.path("source"), &["/far/file"]);
    near.add_route("/far", &far.tcp());
    let number = |value: &Value| value.as_u64().expect("a number");
    let interests = || {
        let status = near.weir_json(&["status"]);
        let faces = status["faces"].as_array().expect("faces").iter();
        let far = faces.filter(|face| face["persistency"] == "persistent");
        far.map(|face| number(&face["out_interests"])).sum::<u64>()
    };
    let mut sent = vec![interests()];
    let mut held = 0;
    for target in ["first", "second"] {
        get(&near, "/far/file", target);
        assert_eq!(sha256_hex(&host.path(target)), expected);
        sent.push(interests());
        held = held.max(number(&near.weir_json(&["cs"])["entries"]));
    }
    let [all, again] = [sent[1] - sent[0], sent[2] - sent[1]];
    println!("{all} Interests, then {again}; the store has {held} Data");
    // This includes retransmissions.
    assert!(all >= held && held > 100, "{all} Interests, {held} Data");
    assert!(again <= all - held * 9 / 10, "{all} Interests, then {again}, with {held} Data");
}

#[test]
fn store_keeps_part_of_a_larger_file() {
    for threads in ["1", "2"] {
        fetch_through_a_store_too_small(19 * MIB, 16 * MIB, threads);
    }
}

#[test]
#[ignore = "moves 600 MiB"]
fn store_of_256_mib_keeps_part_of_300() {
    fetch_through_a_store_too_small(300 * MIB, 256 * MIB, "1");
}

#[test]
fn transfers_a_folder_completely() {
    let host = Host::new();
    let router = Router::start(&host);
    fs::create_dir_all(host.path("album/deep/er")).expect("folders");
    let expected = [
        ("album/one", random_file(&host.path("album/one"), 20_000, 1)),
        ("album/deep/two", random_file(&host.path("album/deep/two"), 100, 2)),
        ("album/deep/er/empty", random_file(&host.path("album/deep/er/empty"), 0, 3)),
    ];
    let (_producer, _) = put(&router, &host.path("album"), &["/album"]);
    get(&router, "/album", "copy");
    for (path, sha256) in expected {
        let copy = host.path(&path.replacen("album", "copy", 1));
        assert_eq!(sha256_hex(&copy), sha256, "{path}");
    }
}

#[test]
fn put_of_an_unreadable_file_is_an_error() {
    let router = Router::on_new_host();
    let message = router.weir(&["put", "no-such-file", "/x"]).failure();
    assert!(message.contains("no-such-file"), "{message}");

    let secret = router.host.write("secret", b"mine");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).expect("mode");
    if fs::File::open(&secret).is_ok() {
        // Root can read everything, so run as another user.
        let words = ["put", secret.to_str().expect("UTF-8"), "/x"];
        let process = as_other_user(&router.host, &router.tcp(), &words);
        let message = process.finish().failure();
        assert!(message.contains("secret") && message.contains("ermission"), "{message}");
    } else {
        let words = ["put", secret.to_str().expect("UTF-8"), "/x"];
        let message = router.weir(&words).failure();
        assert!(message.contains("secret") && message.contains("ermission"), "{message}");
    }
}

/// Runs `weir` as an unprivileged user, which needs root.
fn as_other_user(host: &Host, transport: &str, arguments: &[&str]) -> Process {
    const OTHER_UID: u32 = 65534;
    let open = fs::Permissions::from_mode(0o755);
    let program = host.path("weir");
    fs::copy(weir_binary(), &program).expect("copy of weir");
    fs::set_permissions(&program, open.clone()).expect("mode");
    fs::set_permissions(host.path("."), open).expect("mode");
    let home = host.path("unprivileged");
    fs::create_dir(&home).expect("folder");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o777)).expect("mode");
    let mut command = host.command(&program);
    command
        .args(arguments)
        .uid(OTHER_UID)
        .gid(OTHER_UID)
        .env("HOME", &home)
        .env("WEIR_HOME", &home);
    command.env("NDN_CLIENT_TRANSPORT", transport);
    Process::start("weir as another user", command)
}

#[test]
fn get_without_producer_leaves_no_file() {
    let host = Host::new();
    let router = Router::start(&host);
    fs::create_dir(host.path("out")).expect("folder");
    let target = host.path("out/file");
    let words = ["get", "/missing/file", "-o", target.to_str().expect("UTF-8")];
    let message = router.weir(&words).failure();
    assert!(message.contains("/missing/file"), "{message}");
    assert!(message.contains("weir route"), "no next step: {message}");
    assert_eq!(host.list("out"), Vec::<String>::new());
}

#[test]
fn tools_explain_how_to_start_a_router() {
    let host = Host::new();
    let nowhere = format!("unix://{}", host.path("nothing.sock").display());
    for words in [&["status"][..], &["get", "/x", "-o", "x"]] {
        let message = host.spawn(&nowhere, words).finish().failure();
        assert!(message.contains("nothing.sock"), "{message}");
        assert!(message.contains("weir router"), "no next step: {message}");
    }
}

#[test]
fn second_router_on_a_socket_is_refused() {
    let router = Router::on_new_host();
    let socket = router.socket().to_str().expect("UTF-8").to_owned();
    let other = format!("127.0.0.1:{}", router.host.free_port());
    let words = ["router", "--unix", &socket, "--udp", &other, "--tcp", &other];
    let message = router.spawn(&words).finish().failure();
    assert!(message.contains(&socket), "{message}");
    router.weir(&["status"]).success();
}

#[test]
fn error_names_the_port_in_use() {
    let router = Router::on_new_host();
    let taken = format!("127.0.0.1:{}", router.port());
    let socket = router.host.path("second.sock");
    let socket = socket.to_str().expect("UTF-8");
    let words = ["router", "--unix", socket, "--udp", &taken, "--tcp", &taken];
    let message = router.spawn(&words).finish().failure();
    assert!(message.contains(&taken), "{message}");
}

#[test]
fn router_replaces_a_dead_socket() {
    let host = Host::new();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut router = Router::start(&host);
        let socket = router.socket().clone();
        router.process.signal(signal);
        router.process.finish().success();
        assert!(!socket.exists(), "{signal} left the socket behind");
    }
    let mut router = Router::start(&host);
    let socket = router.socket().clone();
    router.process.signal(Signal::SIGKILL);
    let _ = router.process.finish();
    assert!(socket.exists(), "a killed router cannot remove its socket");
    let router = Router::start(&host);
    router.weir(&["status"]).success();
}

#[test]
fn transfer_resumes_after_a_killed_router() {
    let host = Host::new();
    let mut router = Router::start(&host);
    let expected = random_file(&host.path("source"), 64 * MIB, 9);
    let words = ["/big", "--version", "7"];
    let (producer, name) = put(&router, &host.path("source"), &words);
    fs::create_dir(host.path("out")).expect("folder");
    let target = host.path("out/file");
    let target = target.to_str().expect("UTF-8").to_owned();
    let transfer = router.spawn(&["get", &name, "-o", &target]);
    wait_until("a part of the file", || octets_in(&host, "out") > 4 << 20);
    router.process.signal(Signal::SIGKILL);
    let _ = router.process.finish();
    let message = transfer.finish().failure();
    assert!(message.contains("router"), "{message}");
    assert!(!Path::new(&target).exists(), "half a file under its final name");
    drop(producer);

    let router = Router::start(&host);
    let (_producer, again) = put(&router, &host.path("source"), &words);
    assert_eq!(again, name, "a version that is given is kept");
    let report = get(&router, &name, "out/file");
    assert_eq!(sha256_hex(Path::new(&target)), expected);
    assert_eq!(host.list("out"), ["file"], "nothing temporary stays");
    let resumed = report["resumed_segments"].as_u64().expect("resumed_segments");
    assert!(resumed > 0, "it began again: {report}");
}

#[test]
fn resumes_after_a_broken_connection() {
    let host = Host::new();
    let router = Router::start(&host);
    let expected = random_file(&host.path("source"), 8 * MIB, 11);
    let (_producer, name) = put(&router, &host.path("source"), &["/broken"]);
    fs::create_dir(host.path("out")).expect("folder");
    let target = host.path("out/file");
    let relay = Relay::to(router.port(), 4 << 20);
    let words = ["get", &name, "-o", target.to_str().expect("UTF-8")];
    let _ = host.spawn(&relay.uri(), &words).finish().failure();
    assert!(relay.returned_bytes() >= 4 << 20);
    assert!(!target.exists(), "half a file under its final name");

    let before = router.weir_json(&["cs", "info"])["hits"].as_u64().expect("hits");
    get(&router, &name, "out/file");
    assert_eq!(sha256_hex(&target), expected);
    let after = router.weir_json(&["cs", "info"])["hits"].as_u64().expect("hits");
    let segments = (8 * MIB).div_ceil(8000) as u64;
    assert!(after - before < segments, "it fetched {} of {segments} again", after - before);
}

#[test]
fn full_disk_gives_message_and_no_file() {
    let host = Host::new();
    let router = Router::start(&host);
    random_file(&host.path("source"), 4 * MIB, 13);
    let (_producer, name) = put(&router, &host.path("source"), &["/full"]);
    fs::create_dir(host.path("out")).expect("folder");
    let mut command = full_disk_command(&host);
    command.arg(weir_binary()).args(["get", &name, "-o", "out/file"]);
    command.env("NDN_CLIENT_TRANSPORT", router.unix());
    let message = Process::start("weir get on a full disk", command).finish().failure();
    let is_named = message.contains("disk is full") || message.contains("ulimit -f");
    assert!(is_named, "{message}");
    assert!(!message.contains("half a file"), "half a file under its final name");
    if message.contains(".file.weir-part") {
        assert!(message.contains(".file.weir-state"), "nothing to resume from: {message}");
    }
    assert!(!host.path("out/file").exists(), "half a file under its final name");
}

/// A shell that runs its arguments with a disk of 1 MiB at `out`. If that cannot be mounted, it
/// uses a file size limit with its signal ignored, so that writes fail as on a full disk.
fn full_disk_command(host: &Host) -> Command {
    const MOUNT: &str = "mount -t tmpfs -o size=1m tmpfs out";
    let isolated = |script: &str| {
        let mut command = host.command(Path::new("unshare"));
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        command
    };
    if isolated(MOUNT).output().is_ok_and(|output| output.status.success()) {
        let script = format!(
            "{MOUNT} && {{ \"$0\" \"$@\"; code=$?
             test ! -e out/file || echo half a file; ls -A out; exit $code; }}"
        );
        return isolated(&script);
    }
    let mut command = host.command(Path::new("sh"));
    command.args(["-c", "trap '' XFSZ; ulimit -f 1024; exec \"$0\" \"$@\""]);
    command
}

#[test]
fn ping_reports_whether_a_router_runs() {
    let router = Router::on_new_host();
    for uri in [router.udp(), router.tcp()] {
        let said = router.weir(&["ping", &uri, "-c", "2", "-i", "10"]).success();
        assert!(said.output.contains("2 sent, 2 answered, 0 rejected"), "{said:?}");
    }
    let faces = router.weir_json(&["face", "list"]);
    let udp = faces
        .as_array()
        .expect("faces")
        .iter()
        .find(|face| face["uri"].as_str().is_some_and(|uri| uri.starts_with("udp4://")));
    assert!(udp.expect("ping's face")["heard_ms_ago"].as_u64().expect("heard") < 60_000);
    assert!(router.weir(&["face", "list"]).success().output.contains("LAST PACKET"));

    let other = UdpSocket::bind("127.0.0.1:0").expect("socket");
    let uri = format!("udp://{}", other.local_addr().expect("bound"));
    let ping = ["ping", &uri, "-c", "1", "-t", "200"];
    let message = router.weir(&ping).failure();
    assert!(message.contains("no answer from"), "{message}");
    drop(other);
    let message = router.weir(&ping).failure();
    assert!(message.contains("refuses connections or is unreachable"), "{message}");
}

#[test]
fn garbage_is_counted_and_dropped() {
    let router = Router::on_new_host();
    let address = ("127.0.0.1", router.port());

    let udp = UdpSocket::bind("127.0.0.1:0").expect("socket");
    for datagram in [&b""[..], b"\x00", b"\x05\xff", b"\x05\x02\x07\x00", &[0x64; 1400]] {
        udp.send_to(datagram, address).expect("sent");
    }
    // A valid TLV that is not a packet: the connection stays open, and an Interest is answered.
    let mut stream = TcpStream::connect(address).expect("connection");
    stream.write_all(b"\x05\x02\x07\x00\x06\x03\x07\x01\x00").expect("sent");
    stream.write_all(&unanswerable_interest()).expect("sent");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("timeout");
    let mut first = [0];
    stream.read_exact(&mut first).expect("an answer on the same connection");
    assert_eq!(first[0], 0x64, "a Nack comes in a link packet");
    // Invalid TLV: only this connection is closed.
    stream.write_all(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff").expect("sent");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);

    let source = router.host.path("source");
    let expected = random_file(&source, 100_000, 17);
    let (_producer, name) = put(&router, &source, &["/after"]);
    get(&router, &name, "copy");
    assert_eq!(sha256_hex(&router.host.path("copy")), expected);
}

/// An Interest for `/absent` with a nonce.
fn unanswerable_interest() -> Vec<u8> {
    let mut octets = vec![0x05, 0x10, 0x07, 0x08, 0x08, 0x06];
    octets.extend(b"absent");
    octets.extend([0x0a, 0x04, 1, 2, 3, 4]);
    octets
}

/// A new peer replaces the face of another one while packets of both are waiting in the socket.
#[test]
fn reused_face_gets_no_old_packets() {
    let host = Host::new();
    let config = host.path("weir.toml");
    fs::write(&config, "[faces]\nfaces_per_host_max = 2\n").expect("written");
    let arguments = vec!["--config".to_owned(), config.to_str().expect("UTF-8").to_owned()];
    let mut router = Router::start_with(&host, &arguments);
    let port = router.port();
    let peer = || {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.connect(("127.0.0.1", port)).expect("connected");
        socket.set_read_timeout(Some(TEST_TIMEOUT)).expect("set");
        socket
    };
    let ask = |socket: &UdpSocket, name: u8, nonce: u8| {
        let interest = [5, 11, 7, 3, 8, 1, name, 10, 4, 0, 0, name, nonce];
        socket.send(&interest).expect("sent");
    };
    // Without a route, the router sends a Nack with the Interest.
    let answer = |socket: &UdpSocket| {
        let mut octets = [0; 100];
        let len = socket.recv(&mut octets).expect("an answer");
        octets[len - 13..len][6]
    };
    let (first, second, third) = (peer(), peer(), peer());
    for (socket, name) in [(&first, b'a'), (&second, b'b')] {
        ask(socket, name, 1);
        assert_eq!(answer(socket), name);
    }
    thread::sleep(Duration::from_millis(1100));
    router.process.signal(Signal::SIGSTOP);
    thread::sleep(Duration::from_millis(50));
    ask(&third, b'c', 1);
    ask(&first, b'a', 2);
    router.process.signal(Signal::SIGCONT);
    assert_eq!(answer(&third), b'c');
    assert_eq!(answer(&first), b'a', "the first peer got its own answer");
}

/// Only the manifest is signed, with the usual key, not the segments.
#[test]
fn a_signature_for_each_manifest_is_enough() {
    let router = Router::on_new_host();
    // Objects with one or two segments have no manifest, so each segment is signed.
    for (index, size) in [100, 16_000, 16_001, 5 * MIB].into_iter().enumerate() {
        let source = router.host.path(&format!("source{index}"));
        let expected = random_file(&source, size, 7 + index as u64);
        let name = format!("/by/manifest/{index}");
        let options = [&name, "--signature-per", "manifest"];
        let (_producer, versioned) = put(&router, &source, &options);
        for (asked, target) in [(&name, "newest"), (&versioned, "version")] {
            let target = format!("{target}{index}");
            let report = get(&router, asked, &target);
            assert_ne!(report["signers"][0]["trust"], "none", "{report}");
            assert_eq!(sha256_hex(&router.host.path(&target)), expected, "{asked}");
        }
        let mut first: Name = versioned.parse().expect("a name");
        let interest = Interest::new(first.append_segment(0).clone()).nonce(1).encode();
        let mut client = Client::connect(&router.unix().parse().expect("a URI")).expect("connects");
        let answer = client.express(&interest).expect("it is served");
        let data = DataView::decode(&answer.packet).expect("Data");
        let is_signed = data.signature_info().signature_type != signature_type::NULL;
        assert_eq!(is_signed, size <= 16_000);
    }
}

#[test]
fn unsigned_content_needs_permission() {
    let host = Host::new();
    let router = Router::start(&host);
    let expected = random_file(&host.path("source"), 20_000, 5);
    let (_producer, name) = put(&router, &host.path("source"), &["/bare", "--sign", "digest"]);
    let target = host.path("copy");
    let words = ["get", &name, "-o", target.to_str().expect("UTF-8")];
    let message = router.weir(&words).failure();
    assert!(message.contains("has no signature"), "{message}");
    assert!(message.contains("--allow-unsigned"), "{message}");
    assert!(!target.exists(), "a rejected file has its final name");
    let report = router.weir_json(&[&words[..], &["--allow-unsigned"]].concat());
    assert_eq!(report["signers"][0]["trust"], "none", "{report}");
    assert_eq!(sha256_hex(&target), expected);
}

#[test]
fn interrupted_demo_leaves_nothing() {
    let host = Host::new();
    fs::create_dir(host.path("tmp")).expect("folder");
    let demo_dir = || fs::read_dir(host.path("tmp")).expect("readable").next();
    for file in ["source", "consumer.log"] {
        let mut command = host.command(weir_binary());
        command.args(["demo", "--size", "256MiB", "--json"]).env("TMPDIR", host.path("tmp"));
        let mut demo = Process::start("weir demo", command);
        wait_until(file, || {
            demo_dir().is_some_and(|dir| dir.expect("readable").path().join(file).exists())
        });
        demo.signal(Signal::SIGINT);
        let ended = demo.finish();
        assert_eq!(ended.status.code(), Some(130));
        let message = ended.failure();
        assert!(message.contains("interrupted"), "{message}");
        assert!(demo_dir().is_none(), "it left its files behind");
    }
}

#[test]
fn every_command_has_help_and_exit_codes() {
    let listed = Command::new(weir_binary()).arg("--help").output().expect("weir starts");
    let listed = String::from_utf8(listed.stdout).expect("UTF-8");
    for command in [
        "demo", "router", "put", "get", "ping", "status", "face", "route", "cs", "strategy", "key",
        "packet",
    ] {
        assert!(listed.contains(command), "{command} is not listed:\n{listed}");
        let help = Command::new(weir_binary()).args([command, "--help"]).output();
        assert!(help.expect("weir starts").status.success(), "weir {command} --help");
    }
}

/// Checks all keys of a JSON value.
fn check_keys(command: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let is_snake = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit();
                let is_good = key.bytes().all(|letter| is_snake(letter) || letter == b'_');
                assert!(is_good, "weir {command} has the key {key:?}");
                check_keys(command, value);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| check_keys(command, item)),
        _ => {}
    }
}

#[test]
fn json_keys_are_snake_case_in_all_commands() {
    let host = Host::new();
    let disk = format!("[[disk]]\npath = {:?}\nsize = \"64MiB\"\n", host.path("disk"));
    let config = host.write("weir.toml", disk.as_bytes());
    let router = Router::start_with(&host, &["-c", config.to_str().expect("UTF-8")]);
    random_file(&host.path("source"), 20_000, 7);
    let (_producer, ready) = router.put(&[host.path("source").to_str().expect("UTF-8"), "/a"]);
    check_keys("put", &ready);
    let holdings = format!("cs holdings {}", ready["name"].as_str().unwrap_or("/a/v=1"));
    let target = host.path("copy");
    for command in [
        &format!("get /a -o {} --force", target.display()),
        &holdings,
        "face create udp4://127.0.0.1:9",
        "face list",
        "face show udp4://127.0.0.1:9",
        "face update udp4://127.0.0.1:9 --reliability on",
        "route add /b udp4://127.0.0.1:9 --expires 1h",
        "route list",
        "route show /b",
        "route remove /b udp4://127.0.0.1:9",
        "face destroy udp4://127.0.0.1:9",
        "strategy set /b multicast",
        "strategy list",
        "strategy unset /b",
        "cs info",
        "cs config --capacity 64MiB",
        "cs erase /b",
        "status",
        "key new /mine",
        "key list",
        "key show /mine",
        "key trust list",
        "packet --hex 0509070308016144020102",
        "doctor",
        "controller token list --database tokens.db",
    ] {
        let words: Vec<&str> = command.split(' ').chain(["--json"]).collect();
        let mut process = router.host.command(weir_binary());
        process.args(&words).env("NDN_CLIENT_TRANSPORT", router.unix()).current_dir(host.path(""));
        let finished = Process::start(command, process).finish();
        let value = serde_json::from_str(&finished.output);
        check_keys(command, &value.unwrap_or_else(|_| panic!("weir {command}: {finished:?}")));
    }
}

fn demo(size: &str) -> Value {
    let host = Host::new();
    let mut command = host.command(weir_binary());
    command.args(["demo", "--json", "--size", size]);
    let limit = Duration::from_secs(600);
    let report = Process::start("weir demo", command).finish_within(limit).success().json();
    for copy in ["cold", "warm"] {
        let transfer = &report[copy];
        assert_eq!(transfer["sha256_ok"], true, "{report}");
        assert!(transfer["goodput_bps"].as_f64().is_some_and(|rate| rate > 0.0), "{report}");
        assert!(transfer["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{report}");
        assert!(transfer["interests"].as_u64().is_some_and(|count| count > 0), "{report}");
        assert!(!transfer["served_by"].is_null(), "{report}");
    }
    check_keys("demo", &report);
    report
}

#[test]
fn the_demo_moves_a_file_cold_and_warm() {
    let report = demo("8MiB");
    assert_eq!(report["cold"]["bytes"], 8 << 20);
    assert_eq!(report["warm"]["bytes"], 8 << 20);
}

#[test]
#[ignore = "moves 1 GiB twice, which takes minutes"]
fn the_demo_moves_a_gibibyte() {
    let report = demo("1GiB");
    assert_eq!(report["warm"]["bytes"], 1 << 30);
}
