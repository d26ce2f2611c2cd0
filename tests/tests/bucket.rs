//! `weir put --repo s3://...`: repositories in a bucket, tested with an S3 server.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use weir_tests::{
    BucketServer, Fault, Host, Process, Router, random_file, sha256_hex, wait_until, weir_binary,
};

const KIB: usize = 1 << 10;
/// Time after which a written file counts as unchanged.
const SETTLED: Duration = Duration::from_millis(60);

/// A router without store, and an S3 server with an empty bucket.
struct Fixture {
    host: Host,
    router: Router,
    server: BucketServer,
}

impl Fixture {
    fn new() -> Self {
        let host = Host::new();
        let router = Router::without_store(&host);
        Self { host, router, server: BucketServer::new() }
    }

    fn start_with(&self, words: &[&str], environment: &[(&str, &str)]) -> Process {
        let address = self.server.url_of("repo");
        let mut command = self.host.command(weir_binary());
        self.server.set_environment(&mut command);
        command.args(["put", "--repo", &address, "--json"]).args(words);
        command.env("NDN_CLIENT_TRANSPORT", self.router.unix());
        command.envs(environment.iter().copied());
        Process::start(&format!("weir put --repo {address} {}", words.join(" ")), command)
    }

    fn start(&self, words: &[&str]) -> Process {
        self.start_with(words, &[])
    }

    /// Starts `weir put --repo` and waits until it serves.
    fn put(&self, words: &[&str]) -> (Process, Value) {
        let process = self.start(words);
        let ready = process.json_line();
        (process, ready)
    }

    fn objects(&self) -> Vec<PathBuf> {
        let mut files = self.server.files("repo/objects");
        files.retain(|path| path.extension().is_some_and(|ending| ending == "obj"));
        files
    }

    /// The largest stored object.
    fn largest(&self) -> PathBuf {
        let len = |path: &PathBuf| fs::metadata(path).expect("a file").len();
        self.objects().into_iter().max_by_key(len).expect("an object")
    }

    fn get(&self, name: &str, sum: &str) {
        let report = self.router.weir_json(&["get", name, "-o", "copy"]);
        assert_eq!(sha256_hex(&self.host.path("copy")), sum, "{report}");
        fs::remove_file(self.host.path("copy")).expect("removed");
    }
}

/// After a kill, another machine serves the bucket without the files and the key, and signs
/// nothing.
#[test]
fn serves_bucket_without_file_or_key() {
    let fixture = Fixture::new();
    let host = &fixture.host;
    // A file uploaded in several parts, a small one, and an empty one.
    fs::create_dir(host.path("source")).expect("a folder");
    let large = random_file(&host.path("source/large"), 20_000 * KIB, 1);
    let small = random_file(&host.path("source/small"), 3 * KIB, 2);
    let empty = random_file(&host.path("source/empty"), 0, 3);
    thread::sleep(SETTLED);
    let (process, ready) = fixture.put(&["source", "/data"]);
    assert_eq!((&ready["objects"], &ready["not_signed_again"]), (&4.into(), &0.into()));
    fixture.get("/data/large", &large);
    process.kill();
    // Files, a listing, a certificate.
    assert_eq!(fixture.objects().len(), 5);
    let (process, ready) = fixture.put(&["source", "/data"]);
    assert_eq!(ready["not_signed_again"], 4);
    process.kill();
    fs::remove_dir_all(host.path("source")).expect("removed");
    fs::rename(host.path("home/weir"), host.path("away")).expect("moved");
    fs::write(host.path("home/weir"), b"no folder: no key can be read or made").expect("written");
    let writes = fixture.server.writes();
    let (process, ready) = fixture.put(&[]);
    assert_eq!(ready["names"], serde_json::json!(["/data"]));
    assert_eq!(ready["bytes"].as_u64().expect("a number") / KIB as u64, 20_003);
    fs::remove_file(host.path("home/weir")).expect("removed");
    fs::rename(host.path("away"), host.path("home/weir")).expect("moved");
    let reads = fixture.server.reads();
    fixture.get("/data/large", &large);
    let reads = fixture.server.reads() - reads;
    assert!(reads < 60, "{reads} requests for 20 blocks");
    fixture.get("/data/small", &small);
    fixture.get("/data/empty", &empty);
    let report = fixture.router.weir_json(&["get", "/data", "-o", "folder"]);
    assert_eq!(report["files"], 3);
    assert_eq!(fixture.server.writes(), writes, "serving writes nothing");
    assert!(!process.stop().contains("could not be read"));
}

#[test]
fn removed_and_changed_files_leave_the_bucket() {
    let fixture = Fixture::new();
    let host = &fixture.host;
    fs::create_dir(host.path("source")).expect("a folder");
    random_file(&host.path("source/stays"), 5 * KIB, 1);
    random_file(&host.path("source/goes"), 5 * KIB, 2);
    thread::sleep(SETTLED);
    fixture.put(&["source", "/data"]).0.stop();
    let before = fixture.objects();
    fs::remove_file(host.path("source/goes")).expect("removed");
    let (process, ready) = fixture.put(&["source", "/data"]);
    assert_eq!((&ready["objects"], &ready["not_signed_again"]), (&2.into(), &1.into()));
    process.stop();
    // Only the listing is new; file and certificate are the same.
    let after = fixture.objects();
    assert_eq!((before.len(), after.len()), (4, 3));
    assert_eq!(after.iter().filter(|path| before.contains(path)).count(), 2);
    let removed = fixture.start(&["--remove", "/data/stays"]).json_line();
    assert_eq!(removed["removed"], 1);
    assert_eq!(fixture.objects().len(), 2);
}

#[test]
fn wrong_credentials_and_addresses_are_errors() {
    let mut fixture = Fixture::new();
    random_file(&fixture.host.path("source"), 5 * KIB, 1);
    let words = ["source", "/data"];
    let wrong = [("AWS_SECRET_ACCESS_KEY", "wrong")];
    let message = fixture.start_with(&words, &wrong).finish().failure();
    assert!(message.contains("the server denies it"), "{message}");
    assert!(message.contains("AWS_SECRET_ACCESS_KEY"), "{message}");
    let elsewhere = ["source", "/data", "--repo", "s3://no-such-bucket/x"];
    let command = |words: &[&str], endpoint: &str| {
        let mut command = fixture.host.command(weir_binary());
        fixture.server.set_environment(&mut command);
        command.arg("put").args(words).args(["--s3-endpoint", endpoint]);
        command.env("NDN_CLIENT_TRANSPORT", fixture.router.unix());
        Process::start("weir put to elsewhere", command).finish().failure()
    };
    let message = command(&elsewhere, &fixture.server.endpoint());
    assert!(message.contains("no-such-bucket") && message.contains("NoSuchBucket)"), "{message}");
    let message = command(&elsewhere, "http://192.0.2.1:9");
    assert!(message.contains("has no TLS"), "{message}");
    let message = command(&["--repo", "s3://"], &fixture.server.endpoint());
    assert!(message.contains("s3://BUCKET/PREFIX"), "{message}");
    assert_eq!(fixture.server.writes(), 0);
    // An unreachable server at the start is an error with a reason.
    fixture.server.stop();
    let message = fixture.start(&words).finish().failure();
    assert!(message.contains("out of reach: ") && message.contains("refused"), "{message}");
    assert!(message.contains("--s3-endpoint"), "{message}");
    // A prefix with other objects is rejected.
    fixture.server.start();
    let (process, _) = fixture.put(&words);
    process.stop();
    let mark = fixture.server.files("repo").pop().expect("the mark");
    fs::write(&mark, "weir repository 9\n").expect("written");
    let message = fixture.start(&[]).finish().failure();
    assert!(message.contains("has a layout of another version"), "{message}");
    fs::rename(&mark, mark.with_file_name("something")).expect("renamed");
    let message = fixture.start(&[]).finish().failure();
    assert!(message.contains("is no repository and not empty"), "{message}");
}

/// The server fails during a transfer and comes back: the transfer continues.
#[test]
fn survives_an_unreachable_bucket() {
    let mut fixture = Fixture::new();
    let sum = random_file(&fixture.host.path("source"), 30_000 * KIB, 1);
    let (process, _) = fixture.put(&["source", "/data"]);
    fixture.server.set_fault(Fault::Slow);
    let reads = fixture.server.reads();
    let words = ["get", "/data", "-o", "copy", "--json"];
    let getting = fixture.router.spawn(&words);
    wait_until("the file is read", || fixture.server.reads() >= reads + 4);
    fixture.server.stop();
    thread::sleep(Duration::from_secs(2));
    fixture.server.set_fault(Fault::None);
    fixture.server.start();
    getting.finish().success();
    assert_eq!(sha256_hex(&fixture.host.path("copy")), sum);
    process.stop();
}

/// An unreachable server is logged once and blocks nothing. After its return, objects are served.
#[test]
fn unreachable_bucket_is_logged_once() {
    let mut fixture = Fixture::new();
    fs::create_dir(fixture.host.path("source")).expect("a folder");
    let [one, other] = ["one", "other"]
        .map(|name| random_file(&fixture.host.path(&format!("source/{name}")), 50 * KIB, 1));
    let (process, _) = fixture.put(&["source", "/data"]);
    fixture.server.stop();
    for name in ["/data/one", "/data/other"] {
        let _ = fixture.router.weir(&["get", name, "-o", "none"]).failure();
    }
    process.wait_for_output("cannot read s3://bucket/repo: ");
    fixture.server.start();
    fixture.get("/data/one", &one);
    fixture.get("/data/other", &other);
    process.wait_for_output("can be read again");
    let log = process.stop();
    assert_eq!(log.matches("cannot read s3://bucket/repo: ").count(), 1, "{log}");
    assert!(log.contains("of the repository could not be read"), "{log}");
}

#[test]
fn never_sends_damaged_bucket_objects() {
    let fixture = Fixture::new();
    let sums =
        [1, 2].map(|seed| random_file(&fixture.host.path(&format!("f{seed}")), 80 * KIB, seed));
    thread::sleep(SETTLED);
    fixture.put(&["f1", "/f1"]).0.stop();
    let file = fixture.largest();
    fixture.put(&["f2", "/f2"]).0.stop();
    // One bit in the middle of a segment.
    let open = fs::File::options().read(true).write(true).open(&file).expect("the object");
    let mut octet = [0];
    open.read_exact_at(&mut octet, 40 * KIB as u64).expect("read");
    open.write_all_at(&[octet[0] ^ 4], 40 * KIB as u64).expect("written");
    let (process, _) = fixture.put(&[]);
    let message = fixture.router.weir(&["get", "/f1", "-o", "none"]).failure();
    assert!(!fixture.host.path("none").exists(), "{message}");
    fixture.get("/f2", &sums[1]);
    let note = file.with_extension("damaged");
    wait_until("the note is written", || note.exists());
    let log = process.stop();
    assert!(log.contains("of /f1/v=") && log.contains("is damaged; it is not served"), "{log}");
    assert!(log.contains("not sent"), "{log}");
    // Signed again, although the file has not changed.
    let (process, ready) = fixture.put(&["f1", "/f1"]);
    assert!(process.log().contains("1 object is damaged"), "{}", process.log());
    assert_eq!((&ready["objects"], &ready["not_signed_again"]), (&2.into(), &0.into()));
    fixture.get("/f1", &sums[0]);
    assert!(!process.stop().contains("not sent"));
    assert!(!note.exists() && !file.exists(), "the damaged object is removed");
    let (process, ready) = fixture.put(&["f1", "/f1"]);
    assert_eq!(ready["not_signed_again"], 1);
    process.stop();
}

/// Objects that are removed or replaced while they are served are logged; the others stay
/// available.
#[test]
fn removed_objects_are_logged() {
    let fixture = Fixture::new();
    let sums =
        [1, 2].map(|seed| random_file(&fixture.host.path(&format!("f{seed}")), 80 * KIB, seed));
    fixture.put(&["f1", "/f1"]).0.stop();
    let file = fixture.largest();
    let (process, _) = fixture.put(&["f2", "/f2"]);
    fs::remove_file(&file).expect("removed");
    let _ = fixture.router.weir(&["get", "/f1", "-o", "none"]).failure();
    fixture.get("/f2", &sums[1]);
    let log = process.stop();
    assert_eq!(log.matches("cannot be read: it does not exist").count(), 1, "{log}");
}

#[test]
fn full_bucket_is_logged_and_loses_nothing() {
    let fixture = Fixture::new();
    let sum = random_file(&fixture.host.path("small"), 50 * KIB, 1);
    random_file(&fixture.host.path("more"), 50 * KIB, 2);
    random_file(&fixture.host.path("large"), 20_000 * KIB, 3);
    fixture.put(&["small", "/small"]).0.stop();
    fixture.server.set_fault(Fault::Full);
    for file in ["more", "large"] {
        let message = fixture.start(&[file, "/more"]).finish().failure();
        assert!(message.contains("507") && message.contains("StorageFull"), "{message}");
        assert!(message.contains("the repository keeps its earlier objects"), "{message}");
    }
    fixture.server.set_fault(Fault::None);
    let (process, ready) = fixture.put(&[]);
    assert_eq!((&ready["objects"], &ready["bytes"]), (&1.into(), &(50 * KIB).into()));
    fixture.get("/small", &sum);
    process.stop();
}

/// A server that accepts requests but never answers delays neither other objects nor the end.
#[test]
fn stalled_bucket_does_not_block() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.host.path("source")).expect("a folder");
    random_file(&fixture.host.path("source/one"), 50 * KIB, 1);
    random_file(&fixture.host.path("source/other"), 50 * KIB, 2);
    let (process, _) = fixture.put(&["source", "/data"]);
    let sum = sha256_hex(&fixture.host.path("source/other"));
    fixture.get("/data/other", &sum);
    fixture.server.set_fault(Fault::Stalled);
    let reads = fixture.server.reads();
    let words = ["get", "/data/one", "-o", "none", "--json"];
    let getting = fixture.router.spawn(&words);
    wait_until("the file is read", || fixture.server.reads() != reads);
    // Objects in memory are still served.
    fixture.get("/data/other", &sum);
    getting.kill();
    process.stop();
}

#[test]
fn watched_directory_is_kept_in_a_bucket() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.host.path("source")).expect("a folder");
    let (process, _) = fixture.put(&["source", "/data", "--watch"]);
    let sum = random_file(&fixture.host.path("source/new"), 50 * KIB, 1);
    while !process.json_line()["published"].to_string().contains("/data/new/") {}
    fixture.get("/data/new", &sum);
    // The file, its listing, a certificate.
    wait_until("the old listing is removed", || fixture.objects().len() == 3);
    process.kill();
    fs::remove_dir_all(fixture.host.path("source")).expect("removed");
    let (process, _) = fixture.put(&[]);
    fixture.get("/data/new", &sum);
    process.stop();
}

/// The start waits for recently changed files, and removes nothing from the repository.
#[test]
fn start_removes_nothing_from_a_bucket() {
    let fixture = Fixture::new();
    let host = &fixture.host;
    fs::create_dir(host.path("source")).expect("a folder");
    let write = |seed: u64| {
        [0, 1, 2].map(|at| random_file(&host.path(&format!("source/f{at}")), 9 * KIB, seed + at))
    };
    write(1);
    thread::sleep(SETTLED);
    fixture.put(&["source", "/data"]).0.kill();
    for round in 0..3 {
        // Files, a listing, a certificate.
        assert_eq!(fixture.objects().len(), 5);
        write(10 * round);
        let process = fixture.start(&["source", "/data", "--watch"]);
        thread::sleep(Duration::from_millis(150 * round));
        process.kill();
        assert!(fixture.objects().len() >= 5);
        let (process, ready) = fixture.put(&["source", "/data", "--watch"]);
        assert_eq!(ready["objects"], 4, "{ready}");
        for (at, sum) in source_sums(host).into_iter().enumerate() {
            fixture.get(&format!("/data/f{at}"), &sum);
        }
        process.kill();
    }
}

fn source_sums(host: &Host) -> Vec<String> {
    (0..3).map(|at| sha256_hex(&host.path(&format!("source/f{at}")))).collect()
}
