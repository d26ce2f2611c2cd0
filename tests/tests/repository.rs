//! `weir put --repo`: what is signed once is served again, whatever happened in between.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use weir_base::Rng;
use weir_client::{Client, ExpressError};
use weir_face::FaceUri;
use weir_tests::{
    PATIENCE, Process, Router, RouterOptions, Site, random_file, sha256_hex, weir_binary,
};
use weir_transport::Metadata;
use weir_wire::{DataView, Interest, Name};

const KIB: usize = 1 << 10;
/// Files are taken to be what they were when this has passed since they were written.
const SETTLED: Duration = Duration::from_millis(60);

/// A router that stores nothing: what is got comes from the producer.
fn router(site: &Site) -> Router {
    let arguments = vec!["--store".into(), "0".into()];
    Router::start_with(site, &RouterOptions { arguments, ..RouterOptions::default() })
}

fn start(site: &Site, router: &Router, words: &[&str]) -> Process {
    site.weir(&router.unix(), &[&["put", "--repo", "repo", "--json"], words].concat())
}

/// Starts `weir put --repo` and waits until it serves.
fn put(site: &Site, router: &Router, words: &[&str]) -> (Process, Value) {
    let process = start(site, router, words);
    let ready = process.json_line();
    (process, ready)
}

fn stop(mut process: Process) -> String {
    process.signal(Signal::SIGTERM);
    process.finish().success().log
}

fn kill(mut process: Process) {
    process.signal(Signal::SIGKILL);
    let _ = process.finish();
}

fn objects(site: &Site) -> Vec<PathBuf> {
    site.list("repo/objects").iter().map(|name| site.path("repo/objects").join(name)).collect()
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
    let site = Site::new();
    let router = router(&site);
    let sum = random_file(&site.path("source"), 300 * KIB, 1);
    let (process, ready) = put(&site, &router, &["source", "/data/file"]);
    assert_eq!((&ready["objects"], &ready["not_signed_again"]), (&1.into(), &0.into()));
    let signed = packets(&router, "/data/file");
    assert_eq!(signed.len(), 39 + 2);
    stop(process);
    fs::remove_file(site.path("source")).expect("removed");
    fs::rename(site.path("home/weir"), site.path("away")).expect("moved");
    fs::write(site.path("home/weir"), b"no folder: no key can be read or made").expect("written");
    let (process, ready) = put(&site, &router, &[]);
    assert_eq!(ready["names"], serde_json::json!(["/data/file"]));
    assert_eq!((&ready["bytes"], &ready["segments"]), (&(300 * KIB).into(), &39.into()));
    assert!(packets(&router, "/data/file") == signed, "other packets than before");
    fs::remove_file(site.path("home/weir")).expect("removed");
    fs::rename(site.path("away"), site.path("home/weir")).expect("moved");
    let report = router.weir_json(&site, &["get", "/data/file", "-o", "copy"]);
    assert_eq!(report["segments"], 39);
    assert_eq!(sha256_hex(&site.path("copy")), sum);
    stop(process);
}

/// Of a folder only what has changed is signed; what is gone is served no more.
#[test]
fn a_folder_is_signed_as_far_as_it_has_changed() {
    let site = Site::new();
    let router = router(&site);
    fs::create_dir_all(site.path("source/below")).expect("a folder");
    for file in 0..20 {
        random_file(&site.path(&format!("source/below/f{file}")), 1000 * file, file as u64);
    }
    thread::sleep(SETTLED);
    let (process, first) = put(&site, &router, &["source", "/folder"]);
    assert_eq!(first["objects"], 22);
    let kept = packets(&router, "/folder/below/f19");
    stop(process);
    fs::remove_file(site.path("source/below/f3")).expect("removed");
    let sum = random_file(&site.path("source/below/f4"), 5000, 99);
    thread::sleep(SETTLED);
    let (process, second) = put(&site, &router, &["source", "/folder"]);
    // The listing of the folder that holds them is a new one.
    assert_eq!((&second["objects"], &second["not_signed_again"]), (&21.into(), &19.into()));
    assert!(packets(&router, "/folder/below/f19") == kept);
    let report = router.weir_json(&site, &["get", "/folder", "-o", "copy"]);
    assert_eq!(report["files"], 19);
    assert_eq!(sha256_hex(&site.path("copy/below/f4")), sum);
    let gone = router.weir(&site, &["get", "/folder/below/f3", "-o", "gone"]).failure();
    assert!(gone.contains("/folder/below/f3"), "{gone}");
    stop(process);
    // Objects, and the certificate.
    assert_eq!(objects(&site).len(), 22);
    let removed = router.weir_json(&site, &["put", "--repo", "repo", "--remove", "/folder/below"]);
    assert_eq!(removed["removed"], 20);
    let (process, left) = put(&site, &router, &[]);
    assert_eq!(left["objects"], 1);
    stop(process);
}

/// Killed at any moment, a repository has what it had, and whole objects alone.
#[test]
fn a_kill_while_it_writes_loses_nothing_that_was_kept() {
    const FILES: usize = 400;
    let site = Site::new();
    let router = router(&site);
    let before = random_file(&site.path("before"), 100 * KIB, 1);
    stop(put(&site, &router, &["before", "/before"]).0);
    fs::create_dir(site.path("many")).expect("a folder");
    let mut rng = Rng::from_seed(15);
    for file in 0..FILES {
        let size = rng.below(30 * KIB as u32) as usize;
        random_file(&site.path(&format!("many/f{file}")), size, file as u64);
    }
    random_file(&site.path("many/large"), 20_000 * KIB, 7);
    thread::sleep(SETTLED);
    let is_new = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "new");
    let mut unfinished = 0;
    for _ in 0..20 {
        let process = start(&site, &router, &["many", "/many"]);
        let deadline = Instant::now() + PATIENCE;
        let mut is_ready = false;
        while !is_ready && !objects(&site).iter().any(is_new) {
            assert!(Instant::now() < deadline, "it writes nothing:\n{}", process.log());
            is_ready = !process.pending_lines().is_empty();
        }
        thread::sleep(Duration::from_millis(rng.below(40).into()));
        kill(process);
        if is_ready {
            break;
        }
        unfinished += usize::from(objects(&site).iter().any(is_new));
        let (process, _) = put(&site, &router, &[]);
        assert!(!objects(&site).iter().any(is_new), "something unfinished is left");
        let report = router.weir_json(&site, &["get", "/before", "-o", "copy"]);
        assert_eq!(report["bytes"], 100 * KIB);
        assert_eq!(sha256_hex(&site.path("copy")), before);
        fs::remove_file(site.path("copy")).expect("removed");
        assert!(!stop(process).contains("damaged"));
    }
    assert!(unfinished > 0, "never killed in the middle");
    let (process, ready) = put(&site, &router, &["many", "/many"]);
    assert_eq!(ready["objects"], FILES + 3);
    let report = router.weir_json(&site, &["get", "/many", "-o", "many-copy"]);
    assert_eq!(report["files"], FILES + 1);
    for path in site.list("many") {
        let [there, copy] = ["many", "many-copy"].map(|folder| site.path(folder).join(&path));
        assert_eq!(sha256_hex(&there), sha256_hex(&copy), "{path}");
    }
    stop(process);
}

/// A disk that takes no more, here by a limit on the length of a file.
#[test]
fn a_full_disk_is_told_and_loses_nothing() {
    let site = Site::new();
    let router = router(&site);
    let sum = random_file(&site.path("small"), 50 * KIB, 1);
    random_file(&site.path("large"), 500 * KIB, 2);
    stop(put(&site, &router, &["small", "/small"]).0);
    let mut command = site.command(Path::new("/bin/sh"));
    let script = "trap '' XFSZ; ulimit -f 256; exec \"$0\" put --repo repo large /large";
    command.args(["-c", script]).arg(weir_binary()).env("NDN_CLIENT_TRANSPORT", router.unix());
    let message = Process::start("put on a full disk", command).finish().failure();
    assert!(message.contains("File too large"), "{message}");
    assert!(message.contains("The repository still has what it had"), "{message}");
    let (process, ready) = put(&site, &router, &[]);
    assert_eq!((&ready["objects"], &ready["bytes"]), (&1.into(), &(50 * KIB).into()));
    let _ = router.weir(&site, &["get", "/small", "-o", "copy"]).success();
    assert_eq!(sha256_hex(&site.path("copy")), sum);
    stop(process);
}

#[test]
fn a_second_process_is_refused() {
    let site = Site::new();
    let router = router(&site);
    site.write("source", b"mine");
    let (process, _) = put(&site, &router, &["source", "/one"]);
    let holder = format!("is in use by process {}", process.id());
    for words in [&["--remove", "/one"][..], &[]] {
        let message = start(&site, &router, words).finish().failure();
        assert!(message.contains(&holder), "{message}");
    }
    stop(process);
    let message = start(&site, &router, &["--remove", "/three"]).finish().failure();
    assert!(message.contains("nothing below /three is kept"), "{message}");
    let folder = ["put", "--repo", ".", "source", "/one"];
    let message = router.weir(&site, &folder).failure();
    assert!(message.contains("is no repository and not empty"), "{message}");
}

/// While a process serves a repository, others put things into it, which it serves.
#[test]
fn what_others_put_is_served_by_the_process_that_serves() {
    let site = Site::new();
    let router = router(&site);
    site.write("folder/file", b"of a folder");
    site.write("one", b"first");
    let get = |name: &str| {
        let _ = fs::remove_file(site.path("copy"));
        let _ = router.weir(&site, &["get", name, "-o", "copy"]).success();
        fs::read_to_string(site.path("copy")).expect("the copy")
    };
    let hand = |words: &[&str]| {
        let report = start(&site, &router, words).finish().success();
        serde_json::from_str::<Value>(&report.output).expect("a JSON object")
    };
    for words in [&["one", "/one"][..], &["folder", "/one", "--watch"]] {
        thread::sleep(Duration::from_millis(600));
        let (process, _) = put(&site, &router, words);
        site.write("two", b"second");
        let first = hand(&["two", "/two"]);
        assert_eq!(get("/two"), "second");
        thread::sleep(SETTLED);
        // Again: it is there. Changed: a later version.
        assert_eq!(hand(&["two", "/two"])["not_signed_again"], 1);
        site.write("two", b"third, longer");
        assert_ne!(hand(&["two", "/two"])["name"], first["name"]);
        assert_eq!(get("/two"), "third, longer");
        assert_eq!(hand(&["folder", "/folder"])["served"], true);
        assert_eq!(get("/folder/file"), "of a folder");
        stop(process);
    }
    let (process, ready) = put(&site, &router, &[]);
    assert_eq!(get("/two"), "third, longer");
    assert_eq!(get("/folder/file"), "of a folder");
    assert!(ready["names"].as_array().expect("names").contains(&"/two".into()), "{ready}");
    let left = site.list("repo/objects").into_iter().filter(|name| !name.ends_with(".obj"));
    assert_eq!(left.count(), 0, "something unfinished stays");
    stop(process);
    assert!(!site.path("repo/socket").exists());
}

#[test]
fn a_damaged_packet_is_never_sent() {
    let site = Site::new();
    let router = router(&site);
    let sums = [1, 2].map(|seed| random_file(&site.path(&format!("f{seed}")), 80 * KIB, seed));
    thread::sleep(SETTLED);
    stop(put(&site, &router, &["f1", "/f1"]).0);
    let file = objects(&site)
        .into_iter()
        .find(|path| fs::metadata(path).expect("a file").len() > 80 * KIB as u64)
        .expect("the object");
    stop(put(&site, &router, &["f2", "/f2"]).0);
    // One bit in the middle of a segment.
    let open = fs::File::options().read(true).write(true).open(&file).expect("the object");
    let mut octet = [0];
    open.read_exact_at(&mut octet, 40 * KIB as u64).expect("read");
    open.write_all_at(&[octet[0] ^ 4], 40 * KIB as u64).expect("written");
    let (process, _) = put(&site, &router, &[]);
    let message = router.weir(&site, &["get", "/f1", "-o", "copy1"]).failure();
    assert!(!site.path("copy1").exists(), "{message}");
    let _ = router.weir(&site, &["get", "/f2", "-o", "copy2"]).success();
    assert_eq!(sha256_hex(&site.path("copy2")), sums[1]);
    let log = stop(process);
    assert!(log.contains("of /f1/v=") && log.contains("is damaged; it is not served"), "{log}");
    assert!(log.contains("not sent"), "{log}");
    // Signed anew although the file is what it was.
    let (process, ready) = put(&site, &router, &["f1", "/f1"]);
    assert!(process.log().contains("1 object is damaged"), "{}", process.log());
    assert_eq!((&ready["objects"], &ready["not_signed_again"]), (&2.into(), &0.into()));
    let _ = router.weir(&site, &["get", "/f1", "-o", "copy1"]).success();
    assert_eq!(sha256_hex(&site.path("copy1")), sums[0]);
    assert!(!stop(process).contains("not sent"));
    let (process, ready) = put(&site, &router, &["f1", "/f1"]);
    assert_eq!(ready["not_signed_again"], 1);
    stop(process);
}

#[test]
fn an_empty_repository_has_nothing_to_serve() {
    let site = Site::new();
    let router = router(&site);
    let message = start(&site, &router, &[]).finish().failure();
    assert!(message.contains("nothing is kept in repo yet"), "{message}");
    let deadline = Instant::now() + PATIENCE;
    let message = router.weir(&site, &["put"]).failure();
    assert!(message.contains("required") && Instant::now() < deadline, "{message}");
}

/// A disk that fails to read costs what was asked for then, and no more: here a folder is in the
/// place of the file for a while.
#[test]
fn a_read_error_is_told_and_tried_again() {
    let site = Site::new();
    let router = router(&site);
    let sum = random_file(&site.path("source"), 80 * KIB, 1);
    // A file alone, of which the producer would have nothing else to serve.
    let (process, _) = put(&site, &router, &["source", "/data", "--sign", "digest"]);
    let [file] = &objects(&site)[..] else { panic!("more than the object") };
    fs::rename(file, site.path("away")).expect("renamed");
    fs::create_dir(file).expect("a folder");
    for _ in 0..2 {
        let _ = router.weir(&site, &["get", "/data", "-o", "none", "--allow-unsigned"]).failure();
    }
    fs::remove_dir(file).expect("removed");
    fs::rename(site.path("away"), file).expect("renamed");
    let _ = router.weir(&site, &["get", "/data", "-o", "copy", "--allow-unsigned"]).success();
    assert_eq!(sha256_hex(&site.path("copy")), sum);
    let log = stop(process);
    assert_eq!(log.matches("trying again whenever it is asked for").count(), 1, "{log}");
    assert!(log.contains("could not be read when asked for"), "{log}");
    assert!(!log.contains("served no more") && !log.contains("damaged"), "{log}");
}

/// A certificate that is not what was written is told, left out, and written again by who has it.
#[test]
fn a_damaged_certificate_is_told_and_written_again() {
    let site = Site::new();
    let router = router(&site);
    random_file(&site.path("source"), 80 * KIB, 1);
    thread::sleep(SETTLED);
    stop(put(&site, &router, &["source", "/data"]).0);
    let len = |path: &PathBuf| fs::metadata(path).expect("a file").len();
    let certificate = objects(&site).into_iter().min_by_key(len).expect("the certificate");
    let open = fs::File::options().read(true).write(true).open(&certificate).expect("a file");
    let (mut octet, at) = ([0], len(&certificate) - 10);
    open.read_exact_at(&mut octet, at).expect("read");
    open.write_all_at(&[octet[0] ^ 4], at).expect("written");
    for _ in 0..2 {
        let log = stop(put(&site, &router, &[]).0);
        assert_eq!(log.matches("it is not what was written; it is not served").count(), 1, "{log}");
    }
    let (process, ready) = put(&site, &router, &["source", "/data"]);
    assert_eq!(ready["not_signed_again"], 1);
    let log = stop(process);
    assert!(!log.contains("not what was written"), "{log}");
    let log = stop(put(&site, &router, &[]).0);
    assert!(!log.contains("not what was written"), "{log}");
}

/// After the last version that there can be comes none: another content under its name would be
/// taken for damage.
#[test]
fn there_is_no_version_after_the_last() {
    let site = Site::new();
    let router = router(&site);
    let first = random_file(&site.path("source"), 20 * KIB, 1);
    let last = u64::MAX.to_string();
    stop(put(&site, &router, &["source", "/data", "--version", &last]).0);
    random_file(&site.path("source"), 20 * KIB, 2);
    thread::sleep(SETTLED);
    let message = start(&site, &router, &["source", "/data"]).finish().failure();
    assert!(message.contains("version 2^64-1") && message.contains("--remove"), "{message}");
    let (process, _) = put(&site, &router, &[]);
    let _ = router.weir(&site, &["get", "/data", "-o", "copy"]).success();
    assert_eq!(sha256_hex(&site.path("copy")), first);
    stop(process);
}
