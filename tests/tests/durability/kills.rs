//! Kills at random moments, and concurrent processes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};
use weir_base::Rng;
use weir_tests::{Host, wait_until};

use super::{Fixture, versions};

/// Files that are replaced but never removed. The last one has several segments.
const KEPT_FILES: [&str; 4] = ["s0", "s1", "s2", "large"];
/// Files that are created and removed.
const REMOVED_FILES: [&str; 2] = ["t0", "t1"];

/// Digests of all contents that each file ever had.
type History = Mutex<HashMap<String, HashSet<Vec<u8>>>>;

/// Replaces a file atomically, by a rename.
fn replace(host: &Host, file: &str, rng: &mut Rng, history: &History) {
    let size = if file == "large" { 600_000 } else { 20_000 };
    let mut content = vec![0; rng.below(size) as usize];
    rng.fill(&mut content);
    let sum = Sha256::digest(&content).to_vec();
    history.lock().expect("history").entry(file.to_owned()).or_default().insert(sum);
    let draft = host.path("draft");
    fs::write(&draft, content).expect("written");
    fs::rename(draft, host.path("source").join(file)).expect("renamed");
}

/// Changes files until `is_over`. With `has_log`, also appends to a log.
fn keep_writing(host: &Host, seed: u64, has_log: bool, history: &History, is_over: &AtomicBool) {
    let mut rng = Rng::from_seed(seed);
    let mut log = OpenOptions::new();
    let log = log.create(true).append(true).open(host.path("source/log")).expect("a log");
    let mut log = has_log.then_some(log);
    while !is_over.load(Ordering::Relaxed) {
        match rng.below(8) {
            0 => replace(host, KEPT_FILES[rng.below(4) as usize], &mut rng, history),
            1 => replace(host, REMOVED_FILES[rng.below(2) as usize], &mut rng, history),
            2 => {
                let file = host.path("source").join(REMOVED_FILES[rng.below(2) as usize]);
                let _ = fs::remove_file(file);
            }
            _ => {}
        }
        if let Some(log) = &mut log {
            log.write_all(&[7; 100]).expect("appended");
        }
        thread::sleep(Duration::from_millis(rng.below(30).into()));
    }
}

/// Collects what a process acknowledged before it was killed.
fn take_acknowledged(output: &str, acknowledged: &mut BTreeMap<String, u64>) {
    for line in output.lines() {
        // The last line may be incomplete.
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        acknowledged.extend(versions(&line));
        for name in line["withdrawn"].as_array().into_iter().flatten() {
            acknowledged.remove(name.as_str().expect("a name"));
        }
    }
}

fn check(fixture: &Fixture, acknowledged: &BTreeMap<String, u64>, history: &History) {
    let stored = fixture.stored();
    for (name, &version) in acknowledged {
        let is_fleeting = REMOVED_FILES.iter().any(|file| name.ends_with(file));
        match stored.get(name) {
            Some(stored) => assert!(stored.version >= version, "{name}: {}", stored.version),
            None => assert!(is_fleeting, "{name} was acknowledged in version {version}"),
        }
    }
    let history = history.lock().expect("history");
    for (name, stored) in &stored {
        let Some(file) = name.strip_prefix("/folder/") else { continue };
        if file == "log" {
            let log = fs::read(fixture.source("log")).expect("the log");
            assert!(log.starts_with(&stored.content), "the log has other content");
        } else if file != "32=ls" {
            let sum = Sha256::digest(&stored.content).to_vec();
            assert!(history[file].contains(&sum), "{name} has content that never existed");
        }
    }
}

/// Kills a watching process at random moments while files change, and compares the repository with
/// the acknowledged changes.
fn kill_at_random_moments(rounds: u64) {
    let fixture = Fixture::new();
    let history = History::default();
    let mut rng = Rng::from_seed(rounds);
    for file in KEPT_FILES {
        replace(&fixture.host, file, &mut rng, &history);
    }
    fixture.write_old("log", b"begin\n");
    let ready = fixture.put_once();
    assert!(ready.contains("\"objects\":6"), "{ready}");
    let stored = fixture.stored().into_iter();
    let mut acknowledged: BTreeMap<String, u64> = stored
        .filter(|(name, _)| name.starts_with("/folder"))
        .map(|(name, stored)| (name, stored.version))
        .collect();
    assert_eq!(acknowledged.len(), 6);
    for round in 0..rounds {
        // A file that is always being written makes the start wait.
        let has_log = round % 3 == 1;
        let is_over = AtomicBool::new(false);
        let finished = thread::scope(|scope| {
            scope.spawn(|| keep_writing(&fixture.host, round, has_log, &history, &is_over));
            let process = fixture.start_watch();
            if !has_log {
                let _ = process.json_line();
            }
            let wait_ms = rng.below(if has_log { 4000 } else { 1000 });
            thread::sleep(Duration::from_millis(wait_ms.into()));
            let finished = process.kill();
            is_over.store(true, Ordering::Relaxed);
            finished
        });
        take_acknowledged(&finished.output, &mut acknowledged);
        check(&fixture, &acknowledged, &history);
    }
    fixture.serve_and_compare();
    let (process, _) = fixture.watch();
    fixture.assert_got_equals_source();
    process.stop();
}

#[test]
fn kills_lose_nothing_acknowledged() {
    kill_at_random_moments(10);
}

#[test]
#[ignore = "200 kills take minutes"]
fn many_kills_lose_nothing_acknowledged() {
    kill_at_random_moments(200);
}

/// The log is being written when the process starts, so it may be incomplete.
#[test]
fn start_keeps_files_being_written() {
    let fixture = Fixture::new();
    for file in ["a", "b", "c", "log"] {
        fixture.write_old(file, file.as_bytes());
    }
    let _ = fixture.put_once();
    let before = fixture.stored();
    for round in 0..3 {
        let mut log = OpenOptions::new().append(true).open(fixture.source("log")).expect("a log");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    log.write_all(b"more\n").expect("appended");
                    thread::sleep(Duration::from_millis(20));
                }
            });
            let process = fixture.start_watch();
            if round == 0 {
                let _ = process.json_line();
                assert_eq!(fixture.fetched_files(), ["a", "b", "c", "log"]);
                // A writer that pauses for half a second counts as finished.
                if fixture.stored()["/folder/log"].content == b"log" {
                    process.wait_for_output("source/log: it is being written");
                }
            } else {
                thread::sleep(Duration::from_millis(300 * round));
            }
            let _ = process.kill();
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(fixture.stored_files(), ["a", "b", "c", "log"]);
        let log = fs::read(fixture.source("log")).expect("the log");
        assert!(log.starts_with(&fixture.stored()["/folder/log"].content));
        for name in ["/folder/a", "/folder/b", "/folder/c"] {
            assert_eq!(fixture.stored()[name].content, before[name].content, "{name}");
        }
    }
    fixture.serve_and_compare();
}

/// Both start at the same time with a new repository folder.
#[test]
fn one_of_two_processes_gets_repository() {
    let fixture = Fixture::new();
    fixture.write_old("a", b"a");
    for round in 0..5 {
        let repo = format!("repo{round}");
        let words = ["put", "--repo", &repo, "source", "/folder", "--watch", "--json"];
        let two = [(); 2].map(|()| fixture.router.spawn(&words));
        let is_refused = |log: &str| log.contains("one process at a time can use a repository");
        wait_until("one of the two is refused", || {
            two.iter().any(|process| is_refused(&process.log()))
        });
        let (refused, serving): (Vec<_>, Vec<_>) =
            two.into_iter().partition(|process| is_refused(&process.log()));
        assert_eq!((refused.len(), serving.len()), (1, 1));
        for process in refused {
            let message = process.finish().failure();
            assert!(message.contains("is in use by"), "{message}");
        }
        for process in serving {
            let _ = process.json_line();
            let remove = ["put", "--repo", &repo, "--remove", "/folder"];
            let message = fixture.router.weir(&remove).failure();
            assert!(message.contains("is in use by"), "{message}");
            let _ = process.kill();
        }
        let stored = super::read_repository(&fixture.host.path(&repo));
        assert_eq!(stored["/folder/a"].content, b"a");
    }
}
