//! `weir put --watch`: publishes the changes of a directory.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use weir_tests::{Host, Process, Router, random_file, sha256_hex};

/// Watches a folder and serves it as /folder.
fn watch(router: &Router, words: &[&str]) -> (Process, Value) {
    let words = [&["put", "source", "/folder", "--watch", "--json"], words].concat();
    let process = router.spawn(&words);
    let ready = process.json_line();
    (process, ready)
}

fn get_sum(router: &Router, object: &str) -> String {
    let _ = fs::remove_file(router.host.path("copy"));
    router.weir(&["get", object, "-o", "copy"]).success();
    sha256_hex(&router.host.path("copy"))
}

fn listed(router: &Router) -> Vec<String> {
    let _ = fs::remove_dir_all(router.host.path("all"));
    router.weir(&["get", "/folder", "-o", "all"]).success();
    router.host.list("all")
}

#[test]
fn watches_new_changed_moved_and_removed_files() {
    let host = Host::new();
    let router = Router::without_store(&host);
    fs::create_dir_all(host.path("source/below")).expect("a folder");
    let kept = random_file(&host.path("source/kept"), 30_000, 1);
    let (process, ready) = watch(&router, &[]);
    assert_eq!(ready["objects"], 3, "{ready}");
    assert_eq!(get_sum(&router, "/folder/kept"), kept);

    let new = random_file(&host.path("source/below/new"), 50_000, 2);
    let first = process.wait_for_published("/folder/below/new");
    assert_eq!(get_sum(&router, "/folder/below/new"), new);
    let changed = random_file(&host.path("source/below/new"), 60_000, 3);
    let second = process.wait_for_published("/folder/below/new");
    assert_ne!(first, second);
    assert_eq!(get_sum(&router, "/folder/below/new"), changed);

    fs::rename(host.path("source/below/new"), host.path("source/moved")).expect("renamed");
    process.wait_for_published("/folder/moved");
    assert_eq!(get_sum(&router, "/folder/moved"), changed);
    let message = router.weir(&["get", "/folder/below/new", "-o", "gone"]).failure();
    assert!(message.contains("/folder/below/new"), "{message}");

    // A folder is moved in with its files, and out again.
    fs::create_dir(host.path("outside")).expect("a folder");
    let inner = random_file(&host.path("outside/inner"), 9_000, 4);
    fs::rename(host.path("outside"), host.path("source/inside")).expect("renamed");
    process.wait_for_published("/folder/inside/inner");
    assert_eq!(get_sum(&router, "/folder/inside/inner"), inner);
    let late = random_file(&host.path("source/inside/late"), 100, 5);
    process.wait_for_published("/folder/inside/late");
    assert_eq!(get_sum(&router, "/folder/inside/late"), late);
    fs::remove_dir_all(host.path("source/inside")).expect("removed");
    process.wait_for_withdrawn("/folder/inside/32=ls");
    assert_eq!(listed(&router), ["below", "kept", "moved"]);
    process.stop();
}

/// A file that is written slowly is published when its writer closes it.
#[test]
fn half_written_file_is_not_published() {
    let host = Host::new();
    let router = Router::without_store(&host);
    fs::create_dir(host.path("source")).expect("a folder");
    let (process, _) = watch(&router, &[]);
    let mut file = File::create(host.path("source/slow")).expect("a file");
    file.write_all(&[1; 1000]).expect("written");
    // Longer than the time after which a file without a known writer counts as complete.
    thread::sleep(Duration::from_millis(1200));
    fs::write(host.path("source/other"), b"at once").expect("written");
    let line = process.json_line();
    let names = line["published"].as_array().expect("names");
    assert!(names.iter().all(|name| !name.as_str().expect("a name").contains("slow")), "{line}");
    assert_eq!(listed(&router), ["other"]);
    file.write_all(&[2; 1000]).expect("written");
    drop(file);
    process.wait_for_published("/folder/slow");
    router.weir(&["get", "/folder/slow", "-o", "copy"]).success();
    assert_eq!(fs::read(host.path("copy")).expect("the copy"), [[1; 1000], [2; 1000]].concat());

    // Written to another file and renamed.
    host.write("source/.draft", b"first");
    process.wait_for_published("/folder/.draft");
    host.write("draft", b"all of it");
    fs::rename(host.path("draft"), host.path("source/.draft")).expect("renamed");
    process.wait_for_published("/folder/.draft");
    router.weir(&["get", "/folder/.draft", "-o", "renamed"]).success();
    assert_eq!(fs::read(host.path("renamed")).expect("the copy"), b"all of it");
    process.stop();
}

/// With a repository, published files survive a restart, and watching continues from there.
#[test]
fn watched_files_are_kept() {
    let host = Host::new();
    let router = Router::without_store(&host);
    fs::create_dir(host.path("source")).expect("a folder");
    for file in 0..5 {
        random_file(&host.path(&format!("source/f{file}")), 20_000, file);
    }
    thread::sleep(Duration::from_millis(600));
    let (process, ready) = watch(&router, &["--repo", "repo"]);
    assert_eq!((&ready["objects"], &ready["not_signed_again"]), (&6.into(), &0.into()));
    let changed = random_file(&host.path("source/f1"), 30_000, 11);
    process.wait_for_published("/folder/f1");
    fs::remove_file(host.path("source/f2")).expect("removed");
    process.wait_for_withdrawn("/folder/f2");
    process.stop();
    fs::rename(host.path("source"), host.path("away")).expect("renamed");
    let words = ["put", "--repo", "repo", "--json"];
    let process = router.spawn(&words);
    assert_eq!(process.json_line()["objects"], 5);
    assert_eq!(get_sum(&router, "/folder/f1"), changed);
    assert_eq!(listed(&router), ["f0", "f1", "f3", "f4"]);
    process.stop();
    fs::rename(host.path("away"), host.path("source")).expect("renamed");
    thread::sleep(Duration::from_millis(600));
    let (process, ready) = watch(&router, &["--repo", "repo"]);
    assert_eq!((&ready["objects"], &ready["not_signed_again"]), (&5.into(), &5.into()));
    // Four objects, the listing, and the certificate.
    assert_eq!(host.list("repo/objects").len(), 6);
    process.stop();
}

#[test]
fn only_directories_are_watched() {
    let host = Host::new();
    let router = Router::without_store(&host);
    host.write("source", b"a file");
    let words = ["put", "source", "/folder", "--watch"];
    let message = router.weir(&words).failure();
    assert!(message.contains("source is not a directory"), "{message}");
}

/// A deployment changes a link or replaces a whole folder.
#[test]
fn replaced_folders_stay_watched() {
    let host = Host::new();
    let router = Router::without_store(&host);
    for (path, content) in [("one/f", "1"), ("one/in/g", "2"), ("two/f", "3"), ("two/in/g", "4")] {
        host.write(path, content.as_bytes());
    }
    host.write("swapped/g", b"5");
    symlink("one", host.path("source")).expect("a link");
    thread::sleep(Duration::from_millis(600));
    let (process, _) = watch(&router, &[]);
    let changes = |path: &str, object: &str, content: &str| {
        host.write(path, content.as_bytes());
        process.wait_for_published(object);
        router.weir(&["get", object, "-o", "copy"]).success();
        assert_eq!(fs::read_to_string(host.path("copy")).expect("the copy"), content);
    };
    changes("one/f", "/folder/f", "6");

    symlink("two", host.path("next")).expect("a link");
    fs::rename(host.path("next"), host.path("source")).expect("turned");
    process.wait_for_published("/folder/f");
    changes("two/f", "/folder/f", "7");
    changes("two/in/g", "/folder/in/g", "8");

    fs::rename(host.path("two/in"), host.path("away")).expect("renamed");
    fs::rename(host.path("swapped"), host.path("two/in")).expect("renamed");
    process.wait_for_published("/folder/in/g");
    changes("two/in/g", "/folder/in/g", "9");
    process.stop();
}

/// Eight channels as in live HLS: each has a playlist that is replaced repeatedly, and segments
/// that are added and removed. Fetches 40 playlists.
fn get_while_replaced(every: Duration, replace_list: impl Fn(&Host, &str, &[u8]) + Sync) {
    let host = Host::new();
    let router = Router::without_store(&host);
    let channels = 8;
    let replace = |channel: u32, number: u32| {
        let folder = format!("source/c{channel}");
        host.write(&format!("{folder}/{number}.ts"), &[number as u8; 30_000]);
        if let Some(old) = number.checked_sub(3) {
            let _ = fs::remove_file(host.path(&format!("{folder}/{old}.ts")));
        }
        let content = format!("{number}\n").repeat(5000);
        replace_list(&host, &format!("{folder}/list.m3u8"), content.as_bytes());
    };
    (0..channels).for_each(|channel| replace(channel, 0));
    thread::sleep(Duration::from_millis(600));
    let (process, _) = watch(&router, &[]);
    let is_over = AtomicBool::new(false);
    let failures = thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                (0..channels).for_each(|channel| replace(channel, number));
                thread::sleep(every);
            }
        });
        let mut failures = Vec::new();
        for get in 0..40 {
            let object = format!("/folder/c{}/list.m3u8", get % channels);
            let words = ["get", &object, "-o", "copy", "--retries", "2"];
            let finished = router.weir(&words);
            if !finished.status.success() {
                failures.push(finished.log);
                continue;
            }
            let copy = fs::read_to_string(host.path("copy")).expect("the copy");
            // A file may be empty while it is overwritten.
            if copy.lines().any(|line| Some(line) != copy.lines().next()) {
                failures.push(format!("{object} mixes several versions"));
            }
        }
        is_over.store(true, Ordering::Relaxed);
        failures
    });
    assert!(failures.is_empty(), "{failures:?}");
    process.stop();
}

#[test]
fn replaced_files_stay_available() {
    get_while_replaced(Duration::from_millis(200), |host, list, content| {
        host.write(&format!("{list}.new"), content);
        fs::rename(host.path(&format!("{list}.new")), host.path(list)).expect("renamed");
    });
}

/// A replaced or removed version is still served by its versioned name for a while, but it is not
/// the latest version.
#[test]
fn old_versions_linger_for_the_given_time() {
    let host = Host::new();
    let router = Router::without_store(&host);
    host.write("source/file", b"zero");
    host.write("source/other", b"other");
    thread::sleep(Duration::from_millis(600));
    for (linger, lingers) in [("60", true), ("0", false)] {
        let (process, ready) = watch(&router, &["--linger", linger]);
        let replace = |content: &str| {
            host.write("new", content.as_bytes());
            fs::rename(host.path("new"), host.path("source/file")).expect("renamed");
            format!("/folder/file/v={}", process.wait_for_published("/folder/file"))
        };
        let get = |name: &str| {
            let finished = router.weir(&["get", name, "-o", "copy", "--retries", "1"]);
            let copy = || fs::read_to_string(host.path("copy")).expect("the copy");
            finished.status.success().then(copy)
        };
        let expected = |content: &str| lingers.then(|| content.to_owned());
        // The first version, overwritten before it is read.
        let zero = ready["name"].as_str().expect("a name").to_owned();
        let zero = zero.replace("/32=ls/", "/file/");
        host.write("source/file", b"overwritten");
        process.wait_for_published("/folder/file");
        assert_eq!(get(&zero), expected("zero"));
        let first = replace("first");
        let second = replace("second");
        assert_eq!(get(&first), expected("first"));
        assert_eq!(get("/folder/file").as_deref(), Some("second"));
        fs::remove_file(host.path("source/file")).expect("removed");
        process.wait_for_withdrawn("/folder/file");
        assert_eq!(get(&second), expected("second"));
        assert_eq!(get("/folder/file"), None);
        host.write("source/file", b"zero");
        process.wait_for_published("/folder/file");
        process.stop();
    }
}

/// Small files are copied to memory, so they can be overwritten.
#[test]
fn overwritten_files_stay_available() {
    let overwrite = |host: &Host, list: &str, content: &[u8]| drop(host.write(list, content));
    get_while_replaced(Duration::from_millis(200), overwrite);
}

/// A change of a file is found through a link in another folder.
#[test]
fn link_follows_its_target() {
    let host = Host::new();
    let router = Router::without_store(&host);
    host.write("source/a/file", b"one");
    fs::create_dir(host.path("source/b")).expect("a folder");
    symlink("../a/file", host.path("source/b/link")).expect("a link");
    thread::sleep(Duration::from_millis(600));
    let (process, _) = watch(&router, &[]);
    let sum = random_file(&host.path("source/a/file"), 20_000, 1);
    process.wait_for_published("/folder/b/link");
    assert_eq!(get_sum(&router, "/folder/b/link"), sum);
    // Change it through a hard link outside of the watched directory.
    fs::hard_link(host.path("source/a/file"), host.path("outside")).expect("a link");
    thread::sleep(Duration::from_millis(600));
    let sum = random_file(&host.path("outside"), 20_000, 2);
    host.write("source/other", b"something that is reported");
    process.wait_for_published("/folder/a/file");
    assert_eq!(get_sum(&router, "/folder/a/file"), sum);
    process.stop();
}

/// Routers drop names of more than 64 components, and packets of more than 8,800 bytes.
#[test]
fn skips_names_that_are_too_long() {
    let host = Host::new();
    let router = Router::without_store(&host);
    let deep = format!("source/{}", vec!["d"; 62].join("/"));
    let long = format!("source/{}", vec!["l".repeat(225); 3].join("/"));
    // Together with the components of the folder and the metadata, the name has 64.
    let fits = format!("{}/fits", vec!["d"; 59].join("/"));
    for file in ["source/file", &format!("source/{fits}"), &format!("{deep}/deep")] {
        host.write(file, b"content");
    }
    host.write(&format!("{long}/long"), b"content");
    let words = ["put", "source", "/folder", "--json"];
    let mut process = router.spawn(&words);
    assert_eq!(process.json_line()["skipped"], 2);
    assert_eq!(listed(&router), ["d", "file", "l".repeat(225).as_str()]);
    assert!(host.path("all").join(&fits).exists(), "the deepest that can be fetched");
    process.signal(Signal::SIGTERM);
    let message = process.finish().failure();
    for expected in ["/deep: its packets", "/long: its name", "2 files or directories were"] {
        assert!(message.contains(expected), "{expected}: {message}");
    }

    let words = ["put", "source/file", &"/n".repeat(62)];
    let message = router.weir(&words).failure();
    assert!(message.contains("names of 65 components") && message.contains("fewer"), "{message}");

    // With --watch, names that are too long do not affect the other files.
    thread::sleep(Duration::from_millis(600));
    let (mut process, ready) = watch(&router, &[]);
    assert_eq!(ready["skipped"], 2);
    host.write(&format!("{deep}/new"), b"content");
    host.write("source/file", b"changed");
    process.wait_for_published("/folder/file");
    process.signal(Signal::SIGTERM);
    let message = process.finish().failure();
    assert!(message.contains("3 files or directories were not published"), "{message}");
}
