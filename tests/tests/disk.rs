//! `weir router` with disks: what is stored outlives it, and whatever becomes of the disks, nothing
//! wrong is served and forwarding goes on.

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
    DiskStore, Finished, Process, Router, RouterOptions, Site, random_file, sha256_hex, weir_binary,
};

const MIB: usize = 1 << 20;
const ENGINES: [&str; 2] = ["engine = \"auto\"\n", "engine = \"threads\"\nio_threads = 4\n"];

/// Starts `weir put` and waits until the object is served; returns it with its versioned name.
fn put(site: &Site, router: &Router, path: &Path, name: &str) -> (Process, String) {
    let words = ["put", path.to_str().expect("UTF-8"), name, "--sign", "digest", "--json"];
    let process = site.weir(&router.unix(), &words);
    let ready = process.json_line();
    let name = ready["name"].as_str().unwrap_or_else(|| panic!("no name: {ready}")).to_owned();
    (process, name)
}

/// Runs `weir get` to its end, whatever it is.
fn try_get(site: &Site, router: &Router, name: &str, target: &str) -> Finished {
    let target = site.path(target);
    // What is there already would be gone on with.
    let _ = fs::remove_file(&target);
    let target = target.to_str().expect("UTF-8");
    let words = ["get", name, "-o", target, "--retries", "2", "--lifetime", "500"];
    router.weir(site, &[&words[..], &["--allow-unsigned", "--json"]].concat())
}

fn get(site: &Site, router: &Router, name: &str, target: &str) -> Value {
    try_get(site, router, name, target).success().json()
}

fn number(status: &Value, key: &str) -> u64 {
    status[key].as_u64().unwrap_or_else(|| panic!("no {key}: {status}"))
}

fn stop(mut router: Router) -> Finished {
    router.process.signal(Signal::SIGTERM);
    router.process.finish().success()
}

fn kill(mut router: Router) {
    router.process.signal(Signal::SIGKILL);
    let _ = router.process.finish();
}

#[test]
fn a_file_outlives_router_and_producer() {
    for engine in ENGINES {
        let site = Site::new();
        // Memory has room for all of it: only the last writes bring it to the disks.
        let store = DiskStore {
            disks: 2,
            memory: "64MiB".into(),
            settings: String::new(),
            each: engine.into(),
            ..DiskStore::new("router")
        };
        let router = store.start(&site);
        let expected = random_file(&site.path("source"), 8 * MIB + 5, 7);
        let (producer, name) = put(&site, &router, &site.path("source"), "/kept/file");
        get(&site, &router, &name, "first");
        drop(producer);
        let log = stop(router).log;
        assert!(log.contains("what was in memory is on the disks"), "{log}");

        let router = store.start(&site);
        let status = router.disks_settle(&site);
        assert!(number(&status, "recovered") > 1000, "{status}");
        assert_eq!(status["disks"], 2);
        get(&site, &router, &name, "second");
        assert_eq!(sha256_hex(&site.path("second")), expected);
        let status = router.disk_status(&site);
        assert!(number(&status, "reads") > 1000 && status["damaged"] == 0, "{status}");
        let text = router.weir(&site, &["status", "cs"]).success().output;
        assert!(text.contains("on disk") && text.contains("2 disks, well"), "{text}");
        let log = stop(router).log;
        assert!(log.contains("what is on the disks is read in"), "{log}");
    }
}

#[test]
fn a_file_signed_with_a_key_outlives_router_and_producer_with_its_certificate() {
    let site = Site::new();
    let store = DiskStore { settings: String::new(), ..DiskStore::new("router") };
    let router = store.start(&site);
    let expected = random_file(&site.path("source"), 3 * MIB, 17);
    let source = site.path("source");
    let words = ["put", source.to_str().expect("UTF-8"), "/signed/file", "--json"];
    let producer = site.weir(&router.unix(), &words);
    let name = producer.json_line()["name"].as_str().expect("a name").to_owned();
    get(&site, &router, &name, "first");
    drop(producer);
    let _ = stop(router);
    let router = store.start(&site);
    get(&site, &router, &name, "second");
    assert_eq!(sha256_hex(&site.path("second")), expected);
}

#[test]
fn what_was_written_outlives_a_kill() {
    let site = Site::new();
    let store = DiskStore::new("router");
    let router = store.start(&site);
    let expected = random_file(&site.path("source"), 8 * MIB, 8);
    let (producer, name) = put(&site, &router, &site.path("source"), "/kept/file");
    get(&site, &router, &name, "first");
    let before = router.disks_settle(&site);
    kill(router);
    drop(producer);

    let router = store.start(&site);
    let after = router.disks_settle(&site);
    assert!(number(&after, "recovered") >= number(&before, "writes"), "{before}\n{after}");
    get(&site, &router, &name, "second");
    assert_eq!(sha256_hex(&site.path("second")), expected);
}

#[test]
fn what_was_erased_does_not_come_back() {
    let site = Site::new();
    let store = DiskStore::new("router");
    let router = store.start(&site);
    let kept = random_file(&site.path("source"), 2 * MIB, 11);
    let (producer, kept_name) = put(&site, &router, &site.path("source"), "/kept/file");
    get(&site, &router, &kept_name, "copy");
    drop(producer);
    let _ = random_file(&site.path("source"), 2 * MIB, 12);
    let (producer, erased_name) = put(&site, &router, &site.path("source"), "/erased/file");
    get(&site, &router, &erased_name, "copy");
    drop(producer);
    router.disks_settle(&site);
    let erased = router.weir_json(&site, &["cs", "erase", "/erased"]);
    assert!(number(&erased, "erased") > 250, "{erased}");
    let _ = try_get(&site, &router, &erased_name, "copy").failure();
    let _ = stop(router);
    let router = store.start(&site);
    router.disks_settle(&site);
    let _ = try_get(&site, &router, &erased_name, "copy").failure();
    get(&site, &router, &kept_name, "copy");
    assert_eq!(sha256_hex(&site.path("copy")), kept);
}

/// Routers are killed at random moments while files come and go; each next one must have all that
/// was said to be written, and serve nothing else. Returns how many whole files it still served.
fn kill_loop(rounds: u64, settings: &str, each: &str) -> u64 {
    let site = Site::new();
    let store = DiskStore {
        disks: 2,
        // Small enough for old regions to make room for new ones.
        size: "16MiB".into(),
        settings: format!("offer = \"arrival\"\n{settings}"),
        each: format!("region_size = \"1MiB\"\n{each}"),
        ..DiskStore::new("router")
    };
    let mut rng = Rng::from_seed(rounds);
    // Names and contents of all files so far.
    let mut files: Vec<(String, String)> = Vec::new();
    let mut whole = 0;
    for round in 0..rounds {
        let router = store.start(&site);
        let size = 256 * 1024 + (rng.next_u64() % (3 * MIB as u64)) as usize;
        let expected = random_file(&site.path("source"), size, round);
        let (producer, name) = put(&site, &router, &site.path("source"), "/load/file");
        files.push((name.clone(), expected));
        let target = site.path("load");
        let target = target.to_str().expect("UTF-8");
        let load = site.weir(&router.unix(), &["get", &name, "-o", target, "--allow-unsigned"]);
        thread::sleep(Duration::from_millis(rng.next_u64() % 120));
        // What it says is written must be there afterwards, unless it makes room for other Data.
        let said = (round % 2 == 0).then(|| router.disk_status(&site));
        kill(router);
        drop((producer, load));
        let _ = fs::remove_file(site.path("load"));

        let router = store.start(&site);
        let after = router.disks_settle(&site);
        if let Some(said) = said.filter(|said| said["evictions"] == 0) {
            let written = number(&said, "recovered") + number(&said, "writes");
            let kept = number(&after, "recovered") + number(&after, "evictions");
            assert!(kept + evicted_by_reuse(&after) >= written, "{said}\n{after}");
        }
        let recent = files.len().saturating_sub(3);
        for (name, expected) in &files[recent..] {
            let got = try_get(&site, &router, name, "copy");
            if got.status.success() {
                whole += 1;
                assert_eq!(&sha256_hex(&site.path("copy")), expected, "round {round}: {name}");
            } else {
                let log = &got.log;
                assert!(!log.contains("digest") && !log.contains("verified"), "{round}: {log}");
            }
        }
        if round % 2 == 0 { kill(router) } else { drop(stop(router)) }
    }
    whole
}

/// A region that was begun shortly before the end holds no records yet; those it held are gone.
fn evicted_by_reuse(after: &Value) -> u64 {
    // 1 MiB of the smallest records, on each of two disks.
    if number(after, "bytes") > 20 << 20 { 2 * 2048 } else { 0 }
}

#[test]
fn kill_9_under_load_never_yields_a_wrong_octet() {
    let whole: u64 = ENGINES.iter().map(|engine| kill_loop(4, "", engine)).sum();
    assert!(whole > 0, "no file was ever whole: nothing was tested");
}

#[test]
#[ignore = "kills a hundred routers for each engine, which takes minutes"]
fn kill_9_a_hundred_times_under_load_never_yields_a_wrong_octet() {
    for engine in ENGINES {
        let whole = kill_loop(100, "", engine);
        assert!(whole > 100, "{whole} whole files in 100 rounds");
    }
}

#[test]
fn two_routers_on_one_disk_are_refused() {
    let site = Site::new();
    let store = DiskStore::new("first");
    let first = store.start(&site);
    let config = site.path("first.toml");
    let config = config.to_str().expect("UTF-8");
    let socket = site.path("second");
    let socket = socket.to_str().expect("UTF-8");
    let words = ["router", "-c", config, "--unix", socket, "--udp", "none", "--tcp", "none"];
    let message = site.weir(&first.unix(), &words).finish().failure();
    assert!(message.contains("in use by process"), "{message}");
    assert!(message.contains(&first.process.id().to_string()), "{message}");
    assert!(!site.path("second").exists(), "its socket is gone");
    let _ = first.weir(&site, &["status"]).success();
}

#[test]
fn a_foreign_file_is_refused_and_not_touched() {
    let site = Site::new();
    let store = DiskStore { size: "8MiB".into(), ..DiskStore::new("router") };
    let file = store.file(&site, 0);
    let expected = random_file(&file, 8 * MIB, 3);
    let message = refusal(&site, &store);
    assert!(
        message.contains("router.disk0") && message.contains("not a disk of Weir"),
        "{message}"
    );
    assert!(message.contains("another path"), "no next step: {message}");
    assert_eq!(sha256_hex(&file), expected);
}

/// What a router says that does not start.
fn refusal(site: &Site, store: &DiskStore) -> String {
    let config = store.write_config(site);
    let config = config.to_str().expect("UTF-8");
    let socket = site.path("refused");
    let socket = socket.to_str().expect("UTF-8");
    let words = ["router", "-c", config, "--unix", socket, "--udp", "none", "--tcp", "none"];
    let message = site.weir("unix:///nowhere", &words).finish().failure();
    assert!(!site.path("refused").exists(), "it left its socket");
    message
}

#[test]
fn a_disk_that_is_missing_or_cannot_be_made_is_named() {
    let site = Site::new();
    let nowhere = DiskStore { folder: Some(site.path("no/folder")), ..DiskStore::new("router") };
    let message = refusal(&site, &nowhere);
    assert!(message.contains("no/folder") && message.contains("does not exist"), "{message}");

    let folder = DiskStore::new("router");
    fs::create_dir(folder.file(&site, 0)).expect("folder");
    let message = refusal(&site, &folder);
    assert!(message.contains("not a file or block device"), "{message}");

    // One of two is gone: the store is not whole, and says so.
    let both = DiskStore { disks: 2, ..DiskStore::new("pair") };
    let _ = stop(both.start(&site));
    fs::remove_file(both.file(&site, 0)).expect("removed");
    fs::rename(both.file(&site, 1), site.path("elsewhere")).expect("renamed");
    fs::copy(site.path("elsewhere"), both.file(&site, 0)).expect("copied");
    let message = refusal(&site, &both);
    assert!(message.contains("pair.disk0") && message.contains("order"), "{message}");
}

/// A near router with disks whose misses go to a far one that has everything in memory.
struct Pair {
    site: Site,
    store: DiskStore,
    far: Router,
    name: String,
    expected: String,
}

impl Pair {
    /// Both, with a file on the near one's disks; the near one has been stopped.
    fn with_file_on_disk(store: DiskStore) -> Self {
        let site = Site::new();
        let far = Router::start_with(
            &site,
            &RouterOptions {
                socket: "far".into(),
                arguments: vec!["--store".into(), "64MiB".into()],
            },
        );
        let expected = random_file(&site.path("source"), 6 * MIB, 21);
        let (producer, name) = put(&site, &far, &site.path("source"), "/far/file");
        let pair = Self { site, store, far, name, expected };
        let near = pair.start();
        get(&pair.site, &near, &pair.name, "first");
        near.disks_settle(&pair.site);
        drop(producer);
        let _ = stop(near);
        pair
    }

    fn start(&self) -> Router {
        let near = self.store.start(&self.site);
        near.disks_settle(&self.site);
        let _ = near.weir(&self.site, &["route", "add", "/far", &self.far.udp()]).success();
        near
    }

    fn get(&self, near: &Router) {
        get(&self.site, near, &self.name, "copy");
        assert_eq!(sha256_hex(&self.site.path("copy")), self.expected);
    }
}

#[test]
fn flipped_bits_are_found_and_fetched_anew() {
    for engine in ENGINES {
        let store =
            DiskStore { size: "16MiB".into(), each: engine.into(), ..DiskStore::new("near") };
        let pair = Pair::with_file_on_disk(store);
        pair.store.flip_bits(&pair.site, 300, 5);
        let near = pair.start();
        pair.get(&near);
        let status = near.disk_status(&pair.site);
        assert!(number(&status, "damaged") > 0 && number(&status, "reads") > 0, "{status}");
        // What was fetched anew is on disk again, and right.
        near.disks_settle(&pair.site);
        pair.get(&near);
        let _ = stop(near);
        let near = pair.start();
        pair.get(&near);
    }
}

#[test]
fn a_truncated_disk_loses_what_was_cut_off_and_no_more() {
    let pair = Pair::with_file_on_disk(DiskStore {
        size: "16MiB".into(),
        each: "region_size = \"1MiB\"\n".into(),
        ..DiskStore::new("near")
    });
    let file =
        fs::OpenOptions::new().write(true).open(pair.store.file(&pair.site, 0)).expect("the disk");
    file.set_len(3 * MIB as u64).expect("cut");
    drop(file);
    let near = pair.start();
    assert!(near.process.log().contains("octets of"), "no warning:\n{}", near.process.log());
    let status = near.disk_status(&pair.site);
    assert!(number(&status, "recovered") > 0, "{status}");
    pair.get(&near);
}

#[test]
fn a_disk_whose_superblock_is_gone_is_refused() {
    let pair =
        Pair::with_file_on_disk(DiskStore { size: "16MiB".into(), ..DiskStore::new("near") });
    let file = pair.store.file(&pair.site, 0);
    let mut octets = fs::read(&file).expect("the disk");
    octets[100..5000].fill(0xa5);
    let last = octets.len() - 4000;
    octets[last..].fill(0xa5);
    fs::write(&file, &octets).expect("the disk");
    let message = refusal(&pair.site, &pair.store);
    assert!(message.contains("superblock") && message.contains("damaged"), "{message}");
    assert_eq!(fs::read(&file).expect("the disk"), octets, "it was touched");
}

#[test]
fn a_read_only_disk_is_served_and_not_written() {
    let pair =
        Pair::with_file_on_disk(DiskStore { size: "16MiB".into(), ..DiskStore::new("near") });
    let Pair { site, store, name, expected, .. } = &pair;
    let file = store.file(site, 0);
    let before = sha256_hex(&file);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).expect("mode");
    let config = store.write_config(site);
    let socket = site.path("run/reader");
    let mut program = weir_binary().to_path_buf();
    let is_superuser = nix::unistd::geteuid().is_root();
    if is_superuser {
        // Whom no mode keeps from writing, so somebody else has to try.
        program = site.path("weir");
        fs::copy(weir_binary(), &program).expect("copy of weir");
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&program, open.clone()).expect("mode");
        fs::set_permissions(site.path("."), open).expect("mode");
        fs::set_permissions(site.path("run"), fs::Permissions::from_mode(0o777)).expect("mode");
    }
    let mut command = site.command(&program);
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
    let target = site.path("copy");
    let target_text = target.to_str().expect("UTF-8");
    let _ = site
        .weir(&transport, &["get", name, "-o", target_text, "--allow-unsigned"])
        .finish()
        .success();
    assert_eq!(&sha256_hex(&target), expected);
    drop(reader);
    assert_eq!(sha256_hex(&file), before, "it was written to");
}

/// A small file system in memory; only the superuser can have one.
struct SmallFileSystem(std::path::PathBuf);

impl SmallFileSystem {
    fn mount(site: &Site, size: &str) -> Option<Self> {
        let folder = site.path("small");
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
fn a_full_file_system_is_told_of_at_the_start_and_forwarding_goes_on_when_it_fills() {
    let site = Site::new();
    let Some(small) = SmallFileSystem::mount(&site, "8m") else { return };
    let store = DiskStore {
        folder: Some(small.0.clone()),
        size: "16MiB".into(),
        ..DiskStore::new("router")
    };
    let message = refusal(&site, &store);
    assert!(message.contains("its file system lacks 8.00 MiB"), "{message}");

    // A file with holes, whose octets others take meanwhile.
    let store = DiskStore { size: "6MiB".into(), ..store };
    let _ = stop(store.start(&site));
    let file = store.file(&site, 0);
    let octets = fs::read(&file).expect("the disk");
    fs::write(&file, &octets[..8192]).expect("holes");
    let taker = small.0.join("taker");
    let sparse = fs::OpenOptions::new().write(true).open(&file).expect("the disk");
    sparse.set_len(octets.len() as u64).expect("holes");
    let router = store.start(&site);
    fs::write(&taker, vec![1; 9 * MIB]).expect_err("the file system is full now");
    let expected = random_file(&site.path("source"), 4 * MIB, 4);
    let (_producer, name) = put(&site, &router, &site.path("source"), "/full/file");
    get(&site, &router, &name, "copy");
    assert_eq!(sha256_hex(&site.path("copy")), expected);
    get(&site, &router, &name, "copy");
    assert_eq!(sha256_hex(&site.path("copy")), expected);
    let _ = stop(router);
}

#[test]
fn a_stalled_disk_holds_up_nothing_that_can_do_without_it() {
    for engine in ENGINES {
        let pair = Pair::with_file_on_disk(DiskStore {
            size: "16MiB".into(),
            each: engine.into(),
            settings: "offer = \"arrival\"\nstop_timeout = \"1s\"\n".into(),
            can_stall: true,
            ..DiskStore::new("near")
        });
        let near = pair.start();
        let site = &pair.site;
        let other = random_file(&site.path("other"), 4 * MIB, 9);
        let (_producer, other_name) = put(site, &near, &site.path("other"), "/near/file");
        site.write("near.stall0", b"");
        thread::sleep(Duration::from_millis(100));
        // What was on the disk comes from elsewhere, what never was from its producer.
        pair.get(&near);
        get(site, &near, &other_name, "other-copy");
        assert_eq!(sha256_hex(&site.path("other-copy")), other);
        let status = near.disks_become(site, "a stall", |disk| disk["stalled"] == 1);
        assert!(number(&status, "stalls") > 0, "{status}");

        fs::remove_file(site.path("near.stall0")).expect("removed");
        near.disks_become(site, "its end", |disk| disk["stalled"] == 0);
        pair.get(&near);

        // And it stops, though the disk does not answer.
        site.write("near.stall0", b"");
        thread::sleep(Duration::from_millis(100));
        pair.get(&near);
        let log = stop(near).log;
        let told = ["a disk does not answer", "a disk did not answer"];
        assert!(told.iter().any(|words| log.contains(words)), "{log}");
        fs::remove_file(site.path("near.stall0")).expect("removed");
        let near = pair.start();
        pair.get(&near);
    }
}

#[test]
fn a_router_whose_disk_never_answers_starts_forwards_and_stops() {
    let site = Site::new();
    let store = DiskStore {
        settings: "offer = \"arrival\"\nstop_timeout = \"1s\"\n".into(),
        can_stall: true,
        ..DiskStore::new("router")
    };
    let _ = stop(store.start(&site));
    site.write("router.stall0", b"");
    let router = store.start(&site);
    let expected = random_file(&site.path("source"), 2 * MIB, 6);
    let (_producer, name) = put(&site, &router, &site.path("source"), "/any/file");
    get(&site, &router, &name, "copy");
    assert_eq!(sha256_hex(&site.path("copy")), expected);
    assert_eq!(router.disk_status(&site)["recovering"], true);
    let _ = stop(router);
}

#[test]
fn a_second_signal_ends_the_last_writes() {
    let site = Site::new();
    let store = DiskStore {
        memory: "16MiB".into(),
        settings: "stop_timeout = \"1h\"\nstalled_after = \"1h\"\n".into(),
        each: "pace = { ops_per_s = 0.5 }\n".into(),
        ..DiskStore::new("router")
    };
    let mut router = store.start(&site);
    let _ = random_file(&site.path("source"), 2 * MIB, 6);
    let (_producer, name) = put(&site, &router, &site.path("source"), "/any/file");
    get(&site, &router, &name, "copy");
    router.process.signal(Signal::SIGTERM);
    thread::sleep(Duration::from_millis(500));
    assert!(router.process.is_running(), "it still writes:\n{}", router.process.log());
    get(&site, &router, &name, "copy");
    router.process.signal(Signal::SIGTERM);
    let log = router.process.finish().success().log;
    assert!(log.contains("asked to stop once more"), "{log}");
}

#[test]
fn several_threads_share_the_disks() {
    let site = Site::new();
    let store = DiskStore {
        disks: 2,
        arguments: vec!["--threads".into(), "2".into()],
        ..DiskStore::new("router")
    };
    let router = store.start(&site);
    let files: Vec<(String, String)> = (0..4)
        .map(|index| {
            let expected = random_file(&site.path("source"), 2 * MIB, 30 + index);
            let (_producer, name) =
                put(&site, &router, &site.path("source"), &format!("/prefix{index}/file"));
            get(&site, &router, &name, "first");
            (name, expected)
        })
        .collect();
    router.disks_settle(&site);
    kill(router);
    let router = store.start(&site);
    router.disks_settle(&site);
    for (name, expected) in &files {
        get(&site, &router, name, "second");
        assert_eq!(&sha256_hex(&site.path("second")), expected);
    }
    let _ = stop(router);
    // Another number of threads would find nothing: refused, and nothing is lost.
    let message = refusal(&site, &store);
    assert!(message.contains("set `threads = 2` again"), "{message}");
    let router = store.start(&site);
    assert!(number(&router.disks_settle(&site), "recovered") > 1000);
    let _ = stop(router);
}
