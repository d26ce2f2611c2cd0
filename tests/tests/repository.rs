//! `weir put --repo`: signed packets are served again after restarts, kills and errors.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_base::Rng;
use weir_client::{Client, ExpressError};
use weir_face::FaceUri;
use weir_tests::{Host, Process, Router, TEST_TIMEOUT, random_file, sha256_hex, weir_binary};
use weir_transport::Metadata;
use weir_wire::{DataView, Interest, Name};

const KIB: usize = 1 << 10;
/// Time after which a written file counts as unchanged.
const SETTLED: Duration = Duration::from_millis(60);

fn start(router: &Router, words: &[&str]) -> Process {
    router.spawn(&[&["put", "--repo", "repo", "--json"], words].concat())
}

/// Starts `weir put --repo` and waits until it serves.
fn put(router: &Router, words: &[&str]) -> (Process, Value) {
    router.put(&[&["--repo", "repo"], words].concat())
}

fn objects(host: &Host) -> Vec<PathBuf> {
    host.list("repo/objects").iter().map(|name| host.path("repo/objects").join(name)).collect()
}

fn express(client: &mut Client, name: &Name, is_prefix: bool) -> Option<Vec<u8>> {
    let interest = Interest::new(name.clone()).can_be_prefix(is_prefix);
    match client.express(&interest.encode()) {
        Ok(answer) => Some(answer.packet.to_vec()),
        Err(ExpressError::Nack(_)) => None,
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Metadata, manifest parts and segments of an object.
fn packets(router: &Router, object: &str) -> Vec<Vec<u8>> {
    let mut client = Client::connect(&FaceUri::Unix(router.socket().clone())).expect("a router");
    let name: Name = object.parse().expect("a name");
    let metadata = express(&mut client, name.clone().append_keyword(b"metadata"), true);
    let metadata = metadata.expect("metadata");
    let about = Metadata::decode(DataView::decode(&metadata).expect("Data").content);
    let about = about.expect("metadata");
    let last = about.last_segment.expect("it has an end");
    let mut manifest = about.versioned.clone();
    manifest.append_keyword(b"manifest");
    let names = [(manifest, 0), (about.versioned, last)].into_iter().flat_map(|(prefix, last)| {
        (0..=last).map(move |number| prefix.clone().append_segment(number).clone())
    });
    let names: Vec<Name> = names.collect();
    let others = names.iter().map(|name| express(&mut client, name, false).expect("a packet"));
    let mut all: Vec<Vec<u8>> = others.collect();
    all.push(metadata);
    all
}

#[test]
fn packets_are_served_again_without_file_or_key() {
    let host = Host::new();
    let router = Router::without_store(&host);
    let sum = random_file(&host.path("source"), 300 * KIB, 1);
    let (process, ready) = put(&router, &["source", "/data/file"]);
    assert_eq!((&ready["objects"], &ready["not_signed_again"]), (&1.into(), &0.into()));
    let signed = packets(&router, "/data/file");
    assert_eq!(signed.len(), 39 + 2);
    process.stop();
    fs::remove_file(host.path("source")).expect("removed");
    fs::rename(host.path("home/weir"), host.path("away")).expect("moved");
    fs::write(host.path("home/weir"), b"no folder: no key can be read or made").expect("written");
    let (process, ready) = put(&router, &[]);
    assert_eq!(ready["names"], serde_json::json!(["/data/file"]));
    assert_eq!((&ready["bytes"], &ready["segments"]), (&(300 * KIB).into(), &39.into()));
    assert!(packets(&router, "/data/file") == signed, "other packets than before");
    fs::remove_file(host.path("home/weir")).expect("removed");
    fs::rename(host.path("away"), host.path("home/weir")).expect("moved");
    let report = router.weir_json(&["get", "/data/file", "-o", "copy"]);
    assert_eq!(report["segments"], 39);
    assert_eq!(sha256_hex(&host.path("copy")), sum);
    process.stop();
}

/// Only the changed files of a folder are signed. Removed files are no longer served.
#[test]
fn signs_only_changed_files_of_a_folder() {
    let host = Host::new();
    let router = Router::without_store(&host);
    fs::create_dir_all(host.path("source/below")).expect("a folder");
    for file in 0..20 {
        random_file(&host.path(&format!("source/below/f{file}")), 1000 * file, file as u64);
    }
    thread::sleep(SETTLED);
    let (process, first) = put(&router, &["source", "/folder"]);
    assert_eq!(first["objects"], 22);
    let kept = packets(&router, "/folder/below/f19");
    process.stop();
    fs::remove_file(host.path("source/below/f3")).expect("removed");
    let sum = random_file(&host.path("source/below/f4"), 5000, 99);
    thread::sleep(SETTLED);
    let (process, second) = put(&router, &["source", "/folder"]);
    // Only the changed file and the listing of its folder are new.
    assert_eq!((&second["objects"], &second["not_signed_again"]), (&21.into(), &19.into()));
    assert!(packets(&router, "/folder/below/f19") == kept);
    let report = router.weir_json(&["get", "/folder", "-o", "copy"]);
    assert_eq!(report["files"], 19);
    assert_eq!(sha256_hex(&host.path("copy/below/f4")), sum);
    let gone = router.weir(&["get", "/folder/below/f3", "-o", "gone"]).failure();
    assert!(gone.contains("/folder/below/f3"), "{gone}");
    process.stop();
    // The objects and the certificate.
    assert_eq!(objects(&host).len(), 22);
    let removed = router.weir_json(&["put", "--repo", "repo", "--remove", "/folder/below"]);
    assert_eq!(removed["removed"], 20);
    let (process, left) = put(&router, &[]);
    assert_eq!(left["objects"], 1);
    process.stop();
}

/// After a kill at any moment, a repository has its earlier objects and no incomplete ones.
#[test]
fn kill_during_writes_loses_no_object() {
    const FILES: usize = 400;
    let host = Host::new();
    let router = Router::without_store(&host);
    let before = random_file(&host.path("before"), 100 * KIB, 1);
    put(&router, &["before", "/before"]).0.stop();
    fs::create_dir(host.path("many")).expect("a folder");
    let mut rng = Rng::from_seed(15);
    for file in 0..FILES {
        let size = rng.below(30 * KIB as u32) as usize;
        random_file(&host.path(&format!("many/f{file}")), size, file as u64);
    }
    random_file(&host.path("many/large"), 20_000 * KIB, 7);
    thread::sleep(SETTLED);
    let is_new = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "new");
    let mut unfinished = 0;
    for _ in 0..20 {
        let process = start(&router, &["many", "/many"]);
        let deadline = Instant::now() + TEST_TIMEOUT;
        let mut is_ready = false;
        while !is_ready && !objects(&host).iter().any(is_new) {
            assert!(Instant::now() < deadline, "it writes nothing:\n{}", process.log());
            is_ready = !process.pending_lines().is_empty();
        }
        thread::sleep(Duration::from_millis(rng.below(40).into()));
        process.kill();
        if is_ready {
            break;
        }
        unfinished += usize::from(objects(&host).iter().any(is_new));
        let (process, _) = put(&router, &[]);
        assert!(!objects(&host).iter().any(is_new), "an incomplete object is left");
        let report = router.weir_json(&["get", "/before", "-o", "copy"]);
        assert_eq!(report["bytes"], 100 * KIB);
        assert_eq!(sha256_hex(&host.path("copy")), before);
        fs::remove_file(host.path("copy")).expect("removed");
        assert!(!process.stop().contains("damaged"));
    }
    assert!(unfinished > 0, "never killed during a write");
    let (process, ready) = put(&router, &["many", "/many"]);
    assert_eq!(ready["objects"], FILES + 3);
    let report = router.weir_json(&["get", "/many", "-o", "many-copy"]);
    assert_eq!(report["files"], FILES + 1);
    for path in host.list("many") {
        let [there, copy] = ["many", "many-copy"].map(|folder| host.path(folder).join(&path));
        assert_eq!(sha256_hex(&there), sha256_hex(&copy), "{path}");
    }
    process.stop();
}

/// A full disk, simulated by a file size limit.
#[test]
fn full_disk_is_reported_and_loses_nothing() {
    let host = Host::new();
    let router = Router::without_store(&host);
    let sum = random_file(&host.path("small"), 50 * KIB, 1);
    random_file(&host.path("large"), 500 * KIB, 2);
    put(&router, &["small", "/small"]).0.stop();
    let mut command = host.command(Path::new("/bin/sh"));
    let script = "trap '' XFSZ; ulimit -f 256; exec \"$0\" put --repo repo large /large";
    command.args(["-c", script]).arg(weir_binary()).env("NDN_CLIENT_TRANSPORT", router.unix());
    let message = Process::start("put on a full disk", command).finish().failure();
    assert!(message.contains("File too large"), "{message}");
    assert!(message.contains("The repository keeps its earlier objects"), "{message}");
    let (process, ready) = put(&router, &[]);
    assert_eq!((&ready["objects"], &ready["bytes"]), (&1.into(), &(50 * KIB).into()));
    router.weir(&["get", "/small", "-o", "copy"]).success();
    assert_eq!(sha256_hex(&host.path("copy")), sum);
    process.stop();
}

#[test]
fn a_second_process_is_refused() {
    let host = Host::new();
    let router = Router::without_store(&host);
    host.write("source", b"mine");
    let (process, _) = put(&router, &["source", "/one"]);
    let holder = format!("is in use by process {}", process.id());
    for words in [&["--remove", "/one"][..], &[]] {
        let message = start(&router, words).finish().failure();
        assert!(message.contains(&holder), "{message}");
    }
    process.stop();
    let message = start(&router, &["--remove", "/three"]).finish().failure();
    assert!(message.contains("has no objects at or below /three"), "{message}");
    let folder = ["put", "--repo", ".", "source", "/one"];
    let message = router.weir(&folder).failure();
    assert!(message.contains("is no repository and not empty"), "{message}");
}

/// While a process serves a repository, other processes add objects, which it then serves.
#[test]
fn serving_process_serves_new_objects() {
    let host = Host::new();
    let router = Router::without_store(&host);
    host.write("folder/file", b"of a folder");
    host.write("one", b"first");
    let get = |name: &str| {
        let _ = fs::remove_file(host.path("copy"));
        router.weir(&["get", name, "-o", "copy"]).success();
        fs::read_to_string(host.path("copy")).expect("the copy")
    };
    let hand = |words: &[&str]| {
        let report = start(&router, words).finish().success();
        serde_json::from_str::<Value>(&report.output).expect("a JSON object")
    };
    for words in [&["one", "/one"][..], &["folder", "/one", "--watch"]] {
        thread::sleep(Duration::from_millis(600));
        let (process, _) = put(&router, words);
        host.write("two", b"second");
        let first = hand(&["two", "/two"]);
        assert_eq!(get("/two"), "second");
        thread::sleep(SETTLED);
        // Put again, the object is reused. Changed, it gets a new version.
        assert_eq!(hand(&["two", "/two"])["not_signed_again"], 1);
        host.write("two", b"third, longer");
        assert_ne!(hand(&["two", "/two"])["name"], first["name"]);
        assert_eq!(get("/two"), "third, longer");
        assert_eq!(hand(&["folder", "/folder"])["served"], true);
        assert_eq!(get("/folder/file"), "of a folder");
        process.stop();
    }
    let (process, ready) = put(&router, &[]);
    assert_eq!(get("/two"), "third, longer");
    assert_eq!(get("/folder/file"), "of a folder");
    assert!(ready["names"].as_array().expect("names").contains(&"/two".into()), "{ready}");
    let left = host.list("repo/objects").into_iter().filter(|name| !name.ends_with(".obj"));
    assert_eq!(left.count(), 0, "something unfinished stays");
    process.stop();
    assert!(!host.path("repo/socket").exists());
}

#[test]
fn never_sends_damaged_packets() {
    let host = Host::new();
    let router = Router::without_store(&host);
    let sums = [1, 2].map(|seed| random_file(&host.path(&format!("f{seed}")), 80 * KIB, seed));
    thread::sleep(SETTLED);
    put(&router, &["f1", "/f1"]).0.stop();
    let file = objects(&host)
        .into_iter()
        .find(|path| fs::metadata(path).expect("a file").len() > 80 * KIB as u64)
        .expect("the object");
    put(&router, &["f2", "/f2"]).0.stop();
    // One bit in the middle of a segment.
    let open = fs::File::options().read(true).write(true).open(&file).expect("the object");
    let mut octet = [0];
    open.read_exact_at(&mut octet, 40 * KIB as u64).expect("read");
    open.write_all_at(&[octet[0] ^ 4], 40 * KIB as u64).expect("written");
    let (process, _) = put(&router, &[]);
    let message = router.weir(&["get", "/f1", "-o", "copy1"]).failure();
    assert!(!host.path("copy1").exists(), "{message}");
    router.weir(&["get", "/f2", "-o", "copy2"]).success();
    assert_eq!(sha256_hex(&host.path("copy2")), sums[1]);
    let log = process.stop();
    assert!(log.contains("of /f1/v=") && log.contains("is damaged; it is not served"), "{log}");
    assert!(log.contains("not sent"), "{log}");
    // Signed again, although the file has not changed.
    let (process, ready) = put(&router, &["f1", "/f1"]);
    assert!(process.log().contains("1 object is damaged"), "{}", process.log());
    assert_eq!((&ready["objects"], &ready["not_signed_again"]), (&2.into(), &0.into()));
    router.weir(&["get", "/f1", "-o", "copy1"]).success();
    assert_eq!(sha256_hex(&host.path("copy1")), sums[0]);
    assert!(!process.stop().contains("not sent"));
    let (process, ready) = put(&router, &["f1", "/f1"]);
    assert_eq!(ready["not_signed_again"], 1);
    process.stop();
}

#[test]
fn an_empty_repository_has_nothing_to_serve() {
    let host = Host::new();
    let router = Router::without_store(&host);
    let message = start(&router, &[]).finish().failure();
    assert!(message.contains("the repository repo is empty"), "{message}");
    let deadline = Instant::now() + TEST_TIMEOUT;
    let message = router.weir(&["put"]).failure();
    assert!(message.contains("required") && Instant::now() < deadline, "{message}");
}

/// A read error affects only the packets requested at that time. It is simulated by a folder in
/// place of the file.
#[test]
fn read_errors_are_reported_and_retried() {
    let host = Host::new();
    let router = Router::without_store(&host);
    let sum = random_file(&host.path("source"), 80 * KIB, 1);
    // A single file, so the producer has nothing else to serve.
    let (process, _) = put(&router, &["source", "/data", "--sign", "digest"]);
    let [file] = &objects(&host)[..] else { panic!("more than the object") };
    fs::rename(file, host.path("away")).expect("renamed");
    fs::create_dir(file).expect("a folder");
    for _ in 0..2 {
        let _ = router.weir(&["get", "/data", "-o", "none", "--allow-unsigned"]).failure();
    }
    fs::remove_dir(file).expect("removed");
    fs::rename(host.path("away"), file).expect("renamed");
    router.weir(&["get", "/data", "-o", "copy", "--allow-unsigned"]).success();
    assert_eq!(sha256_hex(&host.path("copy")), sum);
    let log = process.stop();
    assert_eq!(log.matches("trying again at the next request").count(), 1, "{log}");
    assert!(log.contains("of the repository could not be read"), "{log}");
    assert!(!log.contains("no longer served") && !log.contains("damaged"), "{log}");
}

/// A damaged certificate is reported and not served. It is written again when its key signs.
#[test]
fn damaged_certificate_is_written_again() {
    let host = Host::new();
    let router = Router::without_store(&host);
    random_file(&host.path("source"), 80 * KIB, 1);
    thread::sleep(SETTLED);
    put(&router, &["source", "/data"]).0.stop();
    let len = |path: &PathBuf| fs::metadata(path).expect("a file").len();
    let certificate = objects(&host).into_iter().min_by_key(len).expect("the certificate");
    let open = fs::File::options().read(true).write(true).open(&certificate).expect("a file");
    let (mut octet, at) = ([0], len(&certificate) - 10);
    open.read_exact_at(&mut octet, at).expect("read");
    open.write_all_at(&[octet[0] ^ 4], at).expect("written");
    for _ in 0..2 {
        let log = put(&router, &[]).0.stop();
        assert_eq!(log.matches("is not served: it is not what was written").count(), 1, "{log}");
    }
    let (process, ready) = put(&router, &["source", "/data"]);
    assert_eq!(ready["not_signed_again"], 1);
    let log = process.stop();
    assert!(!log.contains("not what was written"), "{log}");
    let log = put(&router, &[]).0.stop();
    assert!(!log.contains("not what was written"), "{log}");
}

/// No version follows the highest number. Other content under the same version would count as
/// damage.
#[test]
fn refuses_to_exceed_the_last_version() {
    let host = Host::new();
    let router = Router::without_store(&host);
    let first = random_file(&host.path("source"), 20 * KIB, 1);
    let last = u64::MAX.to_string();
    put(&router, &["source", "/data", "--version", &last]).0.stop();
    random_file(&host.path("source"), 20 * KIB, 2);
    thread::sleep(SETTLED);
    let message = start(&router, &["source", "/data"]).finish().failure();
    assert!(message.contains("version 2^64-1") && message.contains("--remove"), "{message}");
    let (process, _) = put(&router, &[]);
    router.weir(&["get", "/data", "-o", "copy"]).success();
    assert_eq!(sha256_hex(&host.path("copy")), first);
    process.stop();
}
