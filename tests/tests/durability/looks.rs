//! Scans of a directory with recent, replaced and temporarily unreachable files, and jumping
//! clocks.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use weir_tests::Process;

use super::Fixture;

/// Longer than the time for which a changed file counts as recent.
const OLD: Duration = Duration::from_millis(600);

/// A script creates files, publishes them and notifies readers when `weir put` is ready.
#[test]
fn ready_follows_recent_files() {
    for repo in [false, true] {
        let fixture = Fixture::new();
        for file in 0..20 {
            fs::write(fixture.source(&format!("f{file}")), [file; 100]).expect("written");
        }
        let process = if repo {
            fixture.start_watch()
        } else {
            let words = ["put", "source", "/folder", "--watch", "--json"];
            fixture.router.spawn(&words)
        };
        let ready = process.json_line();
        assert_eq!(ready["objects"], 21, "{ready}");
        fixture.assert_got_equals_source();
        process.stop();
    }
}

/// A file that is always being written is published as it is, with a warning.
#[test]
fn start_waits_for_writers_up_to_a_limit() {
    let fixture = Fixture::new();
    fixture.write_old("whole", b"whole");
    let log = File::create(fixture.source("log")).expect("a log");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut at = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                log.write_all_at(b"more\n", at).expect("appended");
                at += 5;
                thread::sleep(Duration::from_millis(20));
            }
        });
        let (process, ready) = fixture.watch();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        // If it kept changing, it is skipped and published later. Both are reported.
        let is_there = ready["objects"] == 3;
        assert_eq!(ready["skipped"], u64::from(!is_there), "{ready}");
        let files = fixture.fetched_files();
        assert!(files.contains(&"whole".to_owned()) && files.len() == 1 + usize::from(is_there));
        process.stop();
    });
}

/// The directory is a mount point whose file system is unmounted and mounted.
#[test]
fn empty_mount_point_withdraws_nothing() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.source("sub")).expect("a folder");
    for file in ["a", "b", "sub/c"] {
        fixture.write_old(file, file.as_bytes());
    }
    let _ = fixture.put_once();
    let all = ["a", "b", "sub/c"];
    let [source, away] = ["source", "away"].map(|name| fixture.host.path(name));

    // At the start, the directory is missing, then empty.
    fs::rename(&source, &away).expect("renamed");
    let message = fixture.start(&["source", "/folder", "--watch"]).finish().failure();
    assert!(message.contains("cannot read source"), "{message}");
    assert_eq!(fixture.stored_files(), all);
    fs::create_dir(&source).expect("a folder");
    for words in [&["source", "/folder"][..], &["source", "/folder", "--watch"]] {
        let process = fixture.start(words);
        let ready = process.json_line();
        assert_eq!(ready["objects"], 5, "{ready}");
        process.wait_for_output("source: it is empty");
        assert_eq!(fixture.fetched_files(), ["a", "b", "sub"]);
        process.stop();
        assert_eq!(fixture.stored_files(), all);
    }

    // While the process watches, the file system is mounted and unmounted.
    let process = fixture.start_watch();
    let _ = process.json_line();
    fs::remove_dir(&source).expect("removed");
    fs::rename(&away, &source).expect("renamed");
    fixture.write_old("d", b"d");
    process.wait_for_published("/folder/d");
    process.stop();
    let (process, _) = fixture.watch();
    fs::rename(&source, &away).expect("renamed");
    fs::create_dir(&source).expect("a folder");
    process.wait_for_output("source: it is empty");
    assert_eq!(fixture.fetched_files(), ["a", "b", "d", "sub"]);
    assert_eq!(fixture.stored_files(), ["a", "b", "d", "sub/c"]);
    fs::remove_dir(&source).expect("removed");
    fs::rename(&away, &source).expect("renamed");
    // Files missing in a folder that this process has scanned before are withdrawn.
    fs::remove_file(fixture.source("sub/c")).expect("removed");
    fs::remove_file(fixture.source("a")).expect("removed");
    process.wait_for_withdrawn("/folder/a");
    assert_eq!(fixture.stored_files(), ["b", "d"]);
    // The restored directory is watched.
    fs::write(fixture.source("e"), b"e").expect("written");
    process.wait_for_published("/folder/e");
    process.stop();
    assert_eq!(fixture.stored_files(), ["b", "d", "e"]);
}

/// A link leads to another disk, which is unavailable for a while.
#[test]
fn unreadable_files_stay_published() {
    let fixture = Fixture::new();
    fixture.write_old("a", b"a");
    fs::create_dir(fixture.host.path("disk")).expect("a folder");
    fs::write(fixture.host.path("disk/c"), b"c").expect("written");
    for (to, link) in [("../disk", "linked"), ("../disk/c", "c")] {
        std::os::unix::fs::symlink(to, fixture.source(link)).expect("a link");
    }
    thread::sleep(OLD);
    let words = ["source", "/folder", "--watch", "--follow-links"];
    let process = fixture.start(&words);
    assert_eq!(process.json_line()["objects"], 5);
    let all = ["a", "c", "linked/c"];
    assert_eq!(fixture.stored_files(), all);
    let [disk, away] = ["disk", "away"].map(|name| fixture.host.path(name));
    fs::rename(&disk, &away).expect("renamed");
    fixture.write_old("b", b"b");
    process.wait_for_published("/folder/b");
    assert_eq!(fixture.fetched_files(), ["a", "b", "c", "linked"]);
    process.wait_for_output("source/linked: a broken link");
    process.stop();
    // A restart does not remove it either.
    let process = fixture.start(&words);
    assert_eq!(process.json_line()["objects"], 6);
    assert_eq!(fixture.fetched_files(), ["a", "b", "c", "linked"]);
    process.stop();
    assert_eq!(fixture.stored_files(), ["a", "b", "c", "linked/c"]);
    fs::rename(&away, &disk).expect("renamed");
    let process = fixture.start(&words);
    assert_eq!(process.json_line()["not_signed_again"], 6);
    process.stop();
}

fn content(fixture: &Fixture, name: &str) -> Vec<u8> {
    fixture.stored()[name].content.clone()
}

/// Each way to replace a file, with the expected content in the repository.
#[test]
fn follows_every_way_to_replace_a_file() {
    let fixture = Fixture::new();
    let path = fixture.source("f");
    fixture.write_old("stays", b"stays");
    fixture.write_old("f", b"first");
    let (process, _) = fixture.watch();
    let is_now = |text: &[u8]| {
        process.wait_for_published("/folder/f");
        assert_eq!(content(&fixture, "/folder/f"), text);
    };

    let draft = fixture.host.write("draft", b"renamed over");
    fs::rename(&draft, &path).expect("renamed");
    is_now(b"renamed over");
    fs::write(&path, b"cut and written").expect("written");
    is_now(b"cut and written");
    let file = File::options().write(true).open(&path).expect("a file");
    file.write_all_at(b"CUT", 0).expect("written");
    drop(file);
    is_now(b"CUT and written");
    let modified = || fs::metadata(&path).expect("a file").modified().expect("a time");
    let before = modified();
    if map_and_write(&path, "MAP") && modified() != before {
        is_now(b"MAP and written");
    }
    let other = fixture.host.write("other", b"a hard link");
    fs::remove_file(&path).expect("removed");
    fs::hard_link(&other, &path).expect("linked");
    is_now(b"a hard link");
    fs::remove_file(&path).expect("removed");
    std::os::unix::fs::symlink("stays", &path).expect("linked");
    is_now(b"stays");

    // The file becomes a folder, and a file again.
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("a folder");
    fs::write(path.join("inner"), b"inner").expect("written");
    process.wait_for_published("/folder/f/inner");
    assert_eq!(fixture.stored_files(), ["f/inner", "stays"]);
    assert_eq!(fixture.fetched_files(), ["f", "stays"]);
    fs::rename(&path, fixture.host.path("old")).expect("renamed");
    fs::write(&path, b"a file again").expect("written");
    is_now(b"a file again");
    assert_eq!(fixture.fetched_files(), ["f", "stays"]);

    // Other types than files are skipped without waiting.
    fs::remove_file(&path).expect("removed");
    let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
    assert!(made.success());
    process.wait_for_withdrawn("/folder/f");
    fixture.write_old("last", b"last");
    process.wait_for_published("/folder/last");
    process.wait_for_output("it is neither a file nor a directory");
    process.stop();
    assert_eq!(fixture.stored_files(), ["last", "stays"]);
    fixture.serve_and_compare();
}

/// Changes the start of a file through a memory mapping.
fn map_and_write(path: &Path, text: &str) -> bool {
    let script = "import mmap, sys\n\
                  with open(sys.argv[1], 'r+b') as file:\n\
                  \x20   with mmap.mmap(file.fileno(), 0) as octets:\n\
                  \x20       octets[:len(sys.argv[2])] = sys.argv[2].encode()\n";
    let ran = Command::new("python3").args(["-c", script]).arg(path).arg(text).status();
    let is_done = ran.is_ok_and(|status| status.success());
    if !is_done {
        eprintln!("python3 does not run: NOT tested with a file that is written by mmap");
    }
    // Some file systems, such as tmpfs, do not update the modification time for this.
    is_done
}

/// Files are replaced during the signing of a large file.
#[test]
fn file_replaced_while_signed_stays_whole() {
    const SIZE: usize = 2_000_000;
    let fixture = Fixture::new();
    fixture.write_old("f", &vec![0; SIZE]);
    let (process, _) = fixture.watch();
    for octet in 1..40 {
        let draft = fixture.host.write("draft", &vec![octet; SIZE]);
        fs::rename(draft, fixture.source("f")).expect("renamed");
        thread::sleep(Duration::from_millis(50));
        let stored = content(&fixture, "/folder/f");
        assert!(stored.len() == SIZE && stored.iter().all(|&other| other == stored[0]));
    }
    while content(&fixture, "/folder/f")[0] != 39 {
        process.wait_for_published("/folder/f");
    }
    fixture.assert_got_equals_source();
    process.stop();
}

/// The clock of the producer was centuries ahead at the first publication.
#[test]
fn versions_grow_when_the_clock_jumps() {
    const AHEAD: u64 = 1 << 44;
    let fixture = Fixture::new();
    fixture.write_old("f", b"first");
    let process = fixture.start(&["source", "/folder", "--version", &AHEAD.to_string()]);
    let _ = process.json_line();
    process.stop();
    let (process, _) = fixture.watch();
    fs::write(fixture.source("f"), b"second").expect("written");
    assert!(process.wait_for_published("/folder/f") > AHEAD);
    fixture.assert_got_equals_source();
    process.stop();
    assert_eq!(content(&fixture, "/folder/f"), b"second");
    let (process, ready) = fixture.watch();
    assert_eq!(ready["not_signed_again"], 2, "{ready}");
    process.stop();
    fixture.serve_and_compare();
}

/// Files with modification times far in the past and in the future.
#[test]
fn jumping_file_times_remove_nothing() {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    let fixture = Fixture::new();
    let now = SystemTime::now();
    let times = [now + 50 * YEAR, now + Duration::from_millis(300), SystemTime::UNIX_EPOCH, now];
    for at in 0..4 {
        fixture.write_old(&format!("f{at}"), &[at]);
    }
    let _ = fixture.put_once();
    for round in 0..4 {
        let (process, ready) = fixture.watch();
        assert_eq!(ready["objects"], 5, "{ready}");
        for at in 0..4 {
            let path = fixture.source(&format!("f{at}"));
            fs::write(&path, [at as u8 + 10, round as u8]).expect("written");
            let file = File::options().write(true).open(&path).expect("a file");
            file.set_modified(times[(at + round) % 4]).expect("a time");
        }
        assert_eq!(fixture.stored_files(), ["f0", "f1", "f2", "f3"]);
        process.stop();
        assert_eq!(fixture.stored_files(), ["f0", "f1", "f2", "f3"]);
    }
    let (process, _) = fixture.watch();
    fixture.assert_got_equals_source();
    process.stop();
}

/// A process with another clock. Needs `faketime`.
#[test]
fn jumping_clock_hides_nothing() {
    let is_there = Command::new("faketime").args(["-f", "+1d", "true"]).status();
    if !is_there.is_ok_and(|status| status.success()) {
        eprintln!("faketime is not installed: NOT tested with another clock");
        return;
    }
    let fixture = Fixture::new();
    fixture.write_old("f", b"0");
    for (round, time) in ["+1y", "-1y", "+2d", "-10y"].into_iter().enumerate() {
        let text = round.to_string();
        fixture.write_old("f", text.as_bytes());
        let mut command = fixture.host.command(Path::new("faketime"));
        command.args(["-f", time]).arg(weir_tests::weir_binary());
        command.args(["put", "source", "/folder", "--watch", "--repo", "repo", "--json"]);
        command.args(["--sign", "digest"]).env("NDN_CLIENT_TRANSPORT", fixture.router.unix());
        let process = Process::start("weir put at another time", command);
        let _ = process.json_line();
        assert_eq!(content(&fixture, "/folder/f"), text.as_bytes());
        let _ = process.kill();
        assert_eq!(fixture.stored_files(), ["f"]);
    }
    let (process, _) = fixture.watch();
    fixture.assert_got_equals_source();
    process.stop();
}

/// A failed scan is repeated without an event.
#[test]
fn missing_directory_stays_published() {
    let fixture = Fixture::new();
    fixture.write_old("a", b"a");
    let (process, _) = fixture.watch();
    let [source, away] = ["source", "away"].map(|name| fixture.host.path(name));
    fs::rename(&source, &away).expect("renamed");
    process.wait_for_output("cannot read");
    assert_eq!(fixture.stored_files(), ["a"]);
    assert_eq!(fixture.fetched_files(), ["a"]);
    fs::rename(&away, &source).expect("renamed");
    fs::write(fixture.source("b"), b"b").expect("written");
    process.wait_for_published("/folder/b");
    process.stop();
    assert_eq!(fixture.stored_files(), ["a", "b"]);
}
