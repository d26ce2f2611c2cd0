//! `weir router` with disks. Stored Data survives a restart. After any disk error, the router
//! serves no wrong Data and continues to forward.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use weir_base::Rng;
use weir_tests::{
    DiskStore, Finished, Host, Process, Router, random_file, sha256_hex, weir_binary,
};

const MIB: usize = 1 << 20;
const ENGINES: [&str; 2] = ["engine = \"auto\"\n", "engine = \"threads\"\nio_threads = 4\n"];

/// Starts `weir put` and waits until the object is served; returns it with its versioned name.
fn put(router: &Router, path: &Path, name: &str) -> (Process, String) {
    router.put_object(&[path.to_str().expect("UTF-8"), name, "--sign", "digest"])
}

/// Runs `weir get` until it ends, with or without success.
fn try_get(router: &Router, name: &str, target: &str) -> Finished {
    // Remove an existing file, which would count as complete.
    let _ = fs::remove_file(router.host.path(target));
    let words = ["get", name, "-o", target, "--retries", "2", "--lifetime", "500ms"];
    router.weir(&[&words[..], &["--allow-unsigned", "--json"]].concat())
}

fn get(router: &Router, name: &str, target: &str) -> Value {
    try_get(router, name, target).success().json()
}

fn number(status: &Value, key: &str) -> u64 {
    status[key].as_u64().unwrap_or_else(|| panic!("no {key}: {status}"))
}

#[test]
fn file_outlives_router_and_producer() {
    for engine in ENGINES {
        let host = Host::new();
        // Everything fits into memory, so only the writes at the stop bring it to the disks.
        let store = DiskStore {
            disks: 2,
            memory: "64MiB".into(),
            settings: String::new(),
            disk_settings: engine.into(),
            ..DiskStore::new("router")
        };
        let router = store.start(&host);
        let expected = random_file(&host.path("source"), 8 * MIB + 5, 7);
        let (producer, name) = put(&router, &host.path("source"), "/kept/file");
        get(&router, &name, "first");
        drop(producer);
        let log = router.process.stop();
        assert!(log.contains("memory has been written to the disks"), "{log}");

        let router = store.start(&host);
        let status = router.wait_for_idle_disks();
        assert!(number(&status, "recovered") > 1000, "{status}");
        assert_eq!(status["disks"], 2);
        get(&router, &name, "second");
        assert_eq!(sha256_hex(&host.path("second")), expected);
        let status = router.disk_status();
        assert!(number(&status, "reads") > 1000 && status["damaged"] == 0, "{status}");
        let text = router.weir(&["status", "cs"]).success().output;
        assert!(text.contains("on disk") && text.contains("2 disks, ok"), "{text}");
        let log = router.process.stop();
        assert!(log.contains("the index of the disks has been recovered"), "{log}");
    }
}

#[test]
fn signed_file_outlives_router_and_producer() {
    let host = Host::new();
    let store = DiskStore { settings: String::new(), ..DiskStore::new("router") };
    let router = store.start(&host);
    let expected = random_file(&host.path("source"), 3 * MIB, 17);
    let source = host.path("source");
    let (producer, name) = router.put_object(&[source.to_str().expect("UTF-8"), "/signed/file"]);
    get(&router, &name, "first");
    drop(producer);
    router.process.stop();
    let router = store.start(&host);
    get(&router, &name, "second");
    assert_eq!(sha256_hex(&host.path("second")), expected);
}

#[test]
fn written_data_survives_sigkill() {
    let host = Host::new();
    let store = DiskStore::new("router");
    let router = store.start(&host);
    let expected = random_file(&host.path("source"), 8 * MIB, 8);
    let (producer, name) = put(&router, &host.path("source"), "/kept/file");
    get(&router, &name, "first");
    let before = router.wait_for_idle_disks();
    router.process.kill();
    drop(producer);

    let router = store.start(&host);
    let after = router.wait_for_idle_disks();
    assert!(number(&after, "recovered") >= number(&before, "writes"), "{before}\n{after}");
    get(&router, &name, "second");
    assert_eq!(sha256_hex(&host.path("second")), expected);
}

#[test]
fn erased_data_stays_erased() {
    let host = Host::new();
    let store = DiskStore::new("router");
    let router = store.start(&host);
    let kept = random_file(&host.path("source"), 2 * MIB, 11);
    let (producer, kept_name) = put(&router, &host.path("source"), "/kept/file");
    get(&router, &kept_name, "copy");
    drop(producer);
    let _ = random_file(&host.path("source"), 2 * MIB, 12);
    let (producer, erased_name) = put(&router, &host.path("source"), "/erased/file");
    get(&router, &erased_name, "copy");
    drop(producer);
    router.wait_for_idle_disks();
    let erased = router.weir_json(&["cs", "erase", "/erased"]);
    assert!(number(&erased, "erased") > 250, "{erased}");
    let _ = try_get(&router, &erased_name, "copy").failure();
    router.process.stop();
    let router = store.start(&host);
    router.wait_for_idle_disks();
    let _ = try_get(&router, &erased_name, "copy").failure();
    get(&router, &kept_name, "copy");
    assert_eq!(sha256_hex(&host.path("copy")), kept);
}

/// Kills routers at random moments under load. The next router must have all Data that was reported
/// as written, and serve no wrong Data. Returns the number of complete files that were served.
fn kill_loop(rounds: u64, settings: &str, each: &str) -> u64 {
    let host = Host::new();
    let store = DiskStore {
        disks: 2,
        // Small enough that old regions are reused.
        size: "16MiB".into(),
        settings: format!("offer = \"arrival\"\n{settings}"),
        disk_settings: format!("region_size = \"1MiB\"\n{each}"),
        ..DiskStore::new("router")
    };
    let mut rng = Rng::from_seed(rounds);
    // Names and digests of all files so far.
    let mut files: Vec<(String, String)> = Vec::new();
    let mut whole = 0;
    for round in 0..rounds {
        let router = store.start(&host);
        let size = 256 * 1024 + (rng.next_u64() % (3 * MIB as u64)) as usize;
        let expected = random_file(&host.path("source"), size, round);
        let (producer, name) = put(&router, &host.path("source"), "/load/file");
        files.push((name.clone(), expected));
        let target = host.path("load");
        let target = target.to_str().expect("UTF-8");
        let load = router.spawn(&["get", &name, "-o", target, "--allow-unsigned"]);
        thread::sleep(Duration::from_millis(rng.next_u64() % 120));
        // Data reported as written must survive, unless it is evicted.
        let said = (round % 2 == 0).then(|| router.disk_status());
        router.process.kill();
        drop((producer, load));
        let _ = fs::remove_file(host.path("load"));

        let router = store.start(&host);
        let after = router.wait_for_idle_disks();
        if let Some(said) = said.filter(|said| said["evictions"] == 0) {
            let written = number(&said, "recovered") + number(&said, "writes");
            let kept = number(&after, "recovered") + number(&after, "evictions");
            assert!(kept + evicted_by_reuse(&after) >= written, "{said}\n{after}");
        }
        let recent = files.len().saturating_sub(3);
        for (name, expected) in &files[recent..] {
            let got = try_get(&router, name, "copy");
            if got.status.success() {
                whole += 1;
                assert_eq!(&sha256_hex(&host.path("copy")), expected, "round {round}: {name}");
            } else {
                let log = &got.log;
                assert!(!log.contains("digest") && !log.contains("verified"), "{round}: {log}");
            }
        }
        if round % 2 == 0 { drop(router.process.kill()) } else { drop(router.process.stop()) }
    }
    whole
}

/// Upper bound of records lost in reused regions: a region reused shortly before the kill has lost
/// its old records and has no new ones yet.
fn evicted_by_reuse(after: &Value) -> u64 {
    // 1 MiB of the smallest records on each of two disks.
    if number(after, "bytes") > 20 << 20 { 2 * 2048 } else { 0 }
}

#[test]
fn sigkill_under_load_corrupts_nothing() {
    let whole: u64 = ENGINES.iter().map(|engine| kill_loop(4, "", engine)).sum();
    assert!(whole > 0, "no file was ever complete, so nothing was tested");
}

#[test]
#[ignore = "kills a hundred routers for each engine, which takes minutes"]
fn hundred_sigkills_under_load_corrupt_nothing() {
    for engine in ENGINES {
        let whole = kill_loop(100, "", engine);
        assert!(whole > 100, "{whole} whole files in 100 rounds");
    }
}

#[test]
fn refuses_a_second_router_on_a_disk() {
    let host = Host::new();
    let store = DiskStore::new("first");
    let first = store.start(&host);
    let config = host.path("first.toml");
    let config = config.to_str().expect("UTF-8");
    let socket = host.path("second");
    let socket = socket.to_str().expect("UTF-8");
    let words = ["router", "-c", config, "--unix", socket, "--udp", "none", "--tcp", "none"];
    let message = first.spawn(&words).finish().failure();
    assert!(message.contains("in use by process"), "{message}");
    assert!(message.contains(&first.process.id().to_string()), "{message}");
    assert!(!host.path("second").exists(), "its socket is removed");
    first.weir(&["status"]).success();
}

#[test]
fn refuses_and_keeps_a_foreign_file() {
    let host = Host::new();
    let store = DiskStore { size: "8MiB".into(), ..DiskStore::new("router") };
    let file = store.file(&host, 0);
    let expected = random_file(&file, 8 * MIB, 3);
    let message = refusal(&host, &store);
    assert!(
        message.contains("router.disk0") && message.contains("not a disk of Weir"),
        "{message}"
    );
    assert!(message.contains("another path"), "no next step: {message}");
    assert_eq!(sha256_hex(&file), expected);
}

/// The error of a router that does not start.
fn refusal(host: &Host, store: &DiskStore) -> String {
    let config = store.write_config(host);
    let config = config.to_str().expect("UTF-8");
    let socket = host.path("refused");
    let socket = socket.to_str().expect("UTF-8");
    let words = ["router", "-c", config, "--unix", socket, "--udp", "none", "--tcp", "none"];
    let message = host.spawn("unix:///nowhere", &words).finish().failure();
    assert!(!host.path("refused").exists(), "it left its socket");
    message
}

#[test]
fn error_names_missing_or_unusable_disk() {
    let host = Host::new();
    let nowhere = DiskStore { folder: Some(host.path("no/folder")), ..DiskStore::new("router") };
    let message = refusal(&host, &nowhere);
    assert!(message.contains("no/folder") && message.contains("does not exist"), "{message}");

    let folder = DiskStore::new("router");
    fs::create_dir(folder.file(&host, 0)).expect("folder");
    let message = refusal(&host, &folder);
    assert!(message.contains("not a file or block device"), "{message}");

    // One of two disks is missing.
    let both = DiskStore { disks: 2, ..DiskStore::new("pair") };
    both.start(&host).process.stop();
    fs::remove_file(both.file(&host, 0)).expect("removed");
    fs::rename(both.file(&host, 1), host.path("elsewhere")).expect("renamed");
    fs::copy(host.path("elsewhere"), both.file(&host, 0)).expect("copied");
    let message = refusal(&host, &both);
    assert!(message.contains("pair.disk0") && message.contains("order"), "{message}");
}

/// A near router with disks, and a far router that has everything in memory.
struct Pair {
    host: Host,
    store: DiskStore,
    far: Router,
    name: String,
    expected: String,
}

impl Pair {
    /// Both routers, with a file on the disks of the near one, which is stopped.
    fn with_file_on_disk(store: DiskStore) -> Self {
        let host = Host::new();
        let far = Router::start_at_with(&host, "far", &["--store", "64MiB"]);
        let expected = random_file(&host.path("source"), 6 * MIB, 21);
        let (producer, name) = put(&far, &host.path("source"), "/far/file");
        let pair = Self { host, store, far, name, expected };
        let near = pair.start();
        get(&near, &pair.name, "first");
        near.wait_for_idle_disks();
        drop(producer);
        near.process.stop();
        pair
    }

    fn start(&self) -> Router {
        let near = self.store.start(&self.host);
        near.wait_for_idle_disks();
        near.add_route("/far", &self.far.udp());
        near
    }

    fn get(&self, near: &Router) {
        get(near, &self.name, "copy");
        assert_eq!(sha256_hex(&self.host.path("copy")), self.expected);
    }
}

#[test]
fn flipped_bits_are_found_and_refetched() {
    for engine in ENGINES {
        let store = DiskStore {
            size: "16MiB".into(),
            disk_settings: engine.into(),
            ..DiskStore::new("near")
        };
        let pair = Pair::with_file_on_disk(store);
        pair.store.flip_bits(&pair.host, 300, 5);
        let near = pair.start();
        pair.get(&near);
        let status = near.disk_status();
        assert!(number(&status, "damaged") > 0 && number(&status, "reads") > 0, "{status}");
        // The Data fetched again is on disk and correct.
        near.wait_for_idle_disks();
        pair.get(&near);
        near.process.stop();
        let near = pair.start();
        pair.get(&near);
    }
}

#[test]
fn truncated_disk_loses_only_the_cut_part() {
    let pair = Pair::with_file_on_disk(DiskStore {
        size: "16MiB".into(),
        disk_settings: "region_size = \"1MiB\"\n".into(),
        ..DiskStore::new("near")
    });
    let file =
        fs::OpenOptions::new().write(true).open(pair.store.file(&pair.host, 0)).expect("the disk");
    file.set_len(3 * MIB as u64).expect("cut");
    drop(file);
    let near = pair.start();
    assert!(near.process.log().contains("bytes are left"), "no warning:\n{}", near.process.log());
    let status = near.disk_status();
    assert!(number(&status, "recovered") > 0, "{status}");
    pair.get(&near);
}

#[test]
fn refuses_a_disk_without_superblock() {
    let pair =
        Pair::with_file_on_disk(DiskStore { size: "16MiB".into(), ..DiskStore::new("near") });
    let file = pair.store.file(&pair.host, 0);
    let mut octets = fs::read(&file).expect("the disk");
    octets[100..5000].fill(0xa5);
    let last = octets.len() - 4000;
    octets[last..].fill(0xa5);
    fs::write(&file, &octets).expect("the disk");
    let message = refusal(&pair.host, &pair.store);
    assert!(message.contains("superblock") && message.contains("damaged"), "{message}");
    assert_eq!(fs::read(&file).expect("the disk"), octets, "it was touched");
}

#[test]
fn serves_a_read_only_disk() {
    let pair =
        Pair::with_file_on_disk(DiskStore { size: "16MiB".into(), ..DiskStore::new("near") });
    let Pair { host, store, name, expected, .. } = &pair;
    let file = store.file(host, 0);
    let before = sha256_hex(&file);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).expect("mode");
    let config = store.write_config(host);
    let socket = host.path("run/reader");
    let mut program = weir_binary().to_path_buf();
    let is_superuser = nix::unistd::geteuid().is_root();
    if is_superuser {
        // File modes do not stop root, so run as another user.
        program = host.path("weir");
        fs::copy(weir_binary(), &program).expect("copy of weir");
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&program, open.clone()).expect("mode");
        fs::set_permissions(host.path("."), open).expect("mode");
        fs::set_permissions(host.path("run"), fs::Permissions::from_mode(0o777)).expect("mode");
    }
    let mut command = host.command(&program);
    command.args(["router", "--udp", "none", "--tcp", "none", "-c"]).arg(&config);
    command.arg("--unix").arg(&socket).arg("--json");
    if is_superuser {
        command.uid(65534).gid(65534);
    }
    let reader = Process::start("weir router", command);
    let ready = reader.json_line();
    assert_eq!(ready["ready"], true);
    assert!(reader.log().contains("read-only"), "no warning:\n{}", reader.log());
    let transport = format!("unix://{}", socket.display());
    let target = host.path("copy");
    let target_text = target.to_str().expect("UTF-8");
    host.spawn(&transport, &["get", name, "-o", target_text, "--allow-unsigned"])
        .finish()
        .success();
    assert_eq!(&sha256_hex(&target), expected);
    drop(reader);
    assert_eq!(sha256_hex(&file), before, "it was written to");
}

/// A small file system in memory, which only root can mount.
struct SmallFileSystem(std::path::PathBuf);

impl SmallFileSystem {
    fn mount(host: &Host, size: &str) -> Option<Self> {
        let folder = host.path("small");
        fs::create_dir(&folder).expect("folder");
        let options = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(&folder)
            .output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        eprintln!("no file system can be mounted here: NOT tested with a full disk");
        None
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn full_file_system_does_not_stop_forwarding() {
    let host = Host::new();
    let Some(small) = SmallFileSystem::mount(&host, "8m") else { return };
    let store = DiskStore {
        folder: Some(small.0.clone()),
        size: "16MiB".into(),
        ..DiskStore::new("router")
    };
    let message = refusal(&host, &store);
    assert!(message.contains("the file system lacks 8.00 MiB"), "{message}");

    // A sparse file, whose space another file takes meanwhile.
    let store = DiskStore { size: "6MiB".into(), ..store };
    store.start(&host).process.stop();
    let file = store.file(&host, 0);
    let octets = fs::read(&file).expect("the disk");
    fs::write(&file, &octets[..8192]).expect("holes");
    let taker = small.0.join("taker");
    let sparse = fs::OpenOptions::new().write(true).open(&file).expect("the disk");
    sparse.set_len(octets.len() as u64).expect("holes");
    let router = store.start(&host);
    fs::write(&taker, vec![1; 9 * MIB]).expect_err("the file system is full now");
    let expected = random_file(&host.path("source"), 4 * MIB, 4);
    let (_producer, name) = put(&router, &host.path("source"), "/full/file");
    get(&router, &name, "copy");
    assert_eq!(sha256_hex(&host.path("copy")), expected);
    get(&router, &name, "copy");
    assert_eq!(sha256_hex(&host.path("copy")), expected);
    router.process.stop();
}

#[test]
fn stalled_disk_is_bypassed() {
    for engine in ENGINES {
        let pair = Pair::with_file_on_disk(DiskStore {
            size: "16MiB".into(),
            disk_settings: engine.into(),
            settings: "offer = \"arrival\"\nstop_timeout = \"1s\"\n".into(),
            can_stall: true,
            ..DiskStore::new("near")
        });
        let near = pair.start();
        let host = &pair.host;
        let other = random_file(&host.path("other"), 4 * MIB, 9);
        let (_producer, other_name) = put(&near, &host.path("other"), "/near/file");
        host.write("near.stall0", b"");
        thread::sleep(Duration::from_millis(100));
        // Data on the stalled disk comes from the far router, new Data from its producer.
        pair.get(&near);
        get(&near, &other_name, "other-copy");
        assert_eq!(sha256_hex(&host.path("other-copy")), other);
        let status = near.wait_for_disks("a stall", |disk| disk["stalled"] == 1);
        assert!(number(&status, "stalls") > 0, "{status}");
        // The list reads no disk, so it ends, and forwarding continues.
        let list = near.weir_json(&["cs", "list"]);
        assert!(number(&list, "total") > 0, "{list}");
        get(&near, &other_name, "other-copy");
        assert_eq!(near.disk_status()["stalled"], 1, "the disk still stalls");

        fs::remove_file(host.path("near.stall0")).expect("removed");
        near.wait_for_disks("its end", |disk| disk["stalled"] == 0);
        pair.get(&near);

        // The router also stops while the disk does not respond.
        host.write("near.stall0", b"");
        thread::sleep(Duration::from_millis(100));
        pair.get(&near);
        let log = near.process.stop();
        let told = ["a disk does not respond", "a disk was briefly unresponsive"];
        assert!(told.iter().any(|words| log.contains(words)), "{log}");
        fs::remove_file(host.path("near.stall0")).expect("removed");
        let near = pair.start();
        pair.get(&near);
    }
}

#[test]
fn dead_disk_does_not_block_start_or_stop() {
    let host = Host::new();
    let store = DiskStore {
        settings: "offer = \"arrival\"\nstop_timeout = \"1s\"\n".into(),
        can_stall: true,
        ..DiskStore::new("router")
    };
    store.start(&host).process.stop();
    host.write("router.stall0", b"");
    let router = store.start(&host);
    let expected = random_file(&host.path("source"), 2 * MIB, 6);
    let (_producer, name) = put(&router, &host.path("source"), "/any/file");
    get(&router, &name, "copy");
    assert_eq!(sha256_hex(&host.path("copy")), expected);
    assert_eq!(router.disk_status()["recovering"], true);
    router.process.stop();
}

#[test]
fn second_signal_aborts_final_writes() {
    let host = Host::new();
    let store = DiskStore {
        memory: "16MiB".into(),
        settings: "stop_timeout = \"1h\"\nstalled_after = \"1h\"\n".into(),
        disk_settings: "pace = { ops_per_s = 0.5 }\n".into(),
        ..DiskStore::new("router")
    };
    let mut router = store.start(&host);
    let _ = random_file(&host.path("source"), 2 * MIB, 6);
    let (_producer, name) = put(&router, &host.path("source"), "/any/file");
    get(&router, &name, "copy");
    router.process.signal(Signal::SIGTERM);
    thread::sleep(Duration::from_millis(500));
    assert!(router.process.is_running(), "it still writes:\n{}", router.process.log());
    get(&router, &name, "copy");
    router.process.signal(Signal::SIGTERM);
    let log = router.process.finish().success().log;
    assert!(log.contains("second request to stop"), "{log}");
}

#[test]
fn several_threads_share_the_disks() {
    let host = Host::new();
    let store = DiskStore {
        disks: 2,
        arguments: vec!["--threads".into(), "2".into()],
        ..DiskStore::new("router")
    };
    let router = store.start(&host);
    let files: Vec<(String, String)> = (0..4)
        .map(|index| {
            let expected = random_file(&host.path("source"), 2 * MIB, 30 + index);
            let (_producer, name) =
                put(&router, &host.path("source"), &format!("/prefix{index}/file"));
            get(&router, &name, "first");
            (name, expected)
        })
        .collect();
    router.wait_for_idle_disks();
    router.process.kill();
    let router = store.start(&host);
    router.wait_for_idle_disks();
    for (name, expected) in &files {
        get(&router, name, "second");
        assert_eq!(&sha256_hex(&host.path("second")), expected);
    }
    router.process.stop();
    // Another number of threads is rejected, and nothing is lost.
    let message = refusal(&host, &store);
    assert!(message.contains("set `threads = 2` again"), "{message}");
    let router = store.start(&host);
    assert!(number(&router.wait_for_idle_disks(), "recovered") > 1000);
    router.process.stop();
}
