//! `weir put` and `weir get` of folders: resumption, skipped entries and errors.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use weir_tests::{Host, Process, Relay, Router, random_file, wait_until, weir_binary};

const MIB: usize = 1 << 20;

/// Starts `weir put` of a folder of the host, and waits until it serves.
fn put(router: &Router, folder: &str, arguments: &[&str]) -> (Process, Value) {
    router.put(&[&[folder, "/folder"], arguments].concat())
}

fn get_words(target: &Path) -> [&str; 4] {
    ["get", "/folder", "-o", target.to_str().expect("UTF-8")]
}

fn get(router: &Router, target: &str) -> Value {
    router.weir_json(&get_words(&router.host.path(target)))
}

/// Paths and contents of all files below a folder. Empty folders have a path with a slash.
fn tree(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let entries: Vec<_> = fs::read_dir(folder).expect("a folder").collect();
    for entry in &entries {
        let entry = entry.as_ref().expect("an entry");
        let name = entry.file_name().into_string().expect("UTF-8");
        if !entry.path().is_dir() {
            found.insert(name, fs::read(entry.path()).expect("a file"));
            continue;
        }
        let below = tree(&entry.path());
        if below.is_empty() {
            found.insert(format!("{name}/"), Vec::new());
        }
        found.extend(below.into_iter().map(|(path, octets)| (format!("{name}/{path}"), octets)));
    }
    found
}

/// Creates a folder with small files in subfolders, and a large file.
fn make_source(host: &Host) -> BTreeMap<String, Vec<u8>> {
    fs::create_dir_all(host.path("source/empty")).expect("a folder");
    for folder in 0..4 {
        fs::create_dir(host.path(&format!("source/d{folder}"))).expect("a folder");
        for file in 0..30 {
            let path = host.path(&format!("source/d{folder}/f{file}"));
            random_file(&path, 40 * file, (folder * 100 + file) as u64);
        }
    }
    random_file(&host.path("source/large"), 5 * MIB + 3, 7);
    tree(&host.path("source"))
}

#[test]
fn intact_files_are_not_fetched_again() {
    let host = Host::new();
    let router = Router::start(&host);
    let source = make_source(&host);
    let (producer, _) = put(&router, "source", &[]);
    let report = get(&router, "copy");
    assert_eq!((&report["files"], &report["files_there"]), (&121.into(), &0.into()));
    assert!(tree(&host.path("copy")) == source);

    // One file is missing, one is too short, one has other content.
    fs::remove_file(host.path("copy/d0/f1")).expect("removed");
    fs::write(host.path("copy/d1/f29"), b"short").expect("written");
    fs::write(host.path("copy/d2/f10"), [0; 400]).expect("written");
    let report = get(&router, "copy");
    assert_eq!((&report["files_there"], &report["segments"]), (&118.into(), &3.into()));
    assert!(tree(&host.path("copy")) == source);

    // Signed again, the files have a new version with the same content.
    drop(producer);
    let (_producer, _) = put(&router, "source", &[]);
    let report = get(&router, "copy");
    assert_eq!((&report["files_there"], &report["segments"]), (&121.into(), &0.into()));
}

#[test]
fn resumes_an_interrupted_folder() {
    let host = Host::new();
    let router = Router::start(&host);
    let source = make_source(&host);
    let (_producer, _) = put(&router, "source", &[]);
    let mut had_part = false;
    // Interrupt it first during the listing, then during the files.
    for limit in [500, 100_000, 3 * MIB as u64] {
        let relay = Relay::to(router.port(), limit);
        let target = host.path("copy");
        let _ = host.spawn(&relay.uri(), &get_words(&target)).finish().failure();
        let there = fs::exists(host.path("copy")).expect("looked for");
        let found = if there { tree(&host.path("copy")) } else { BTreeMap::new() };
        assert!(!there || !found.is_empty(), "an empty folder is left after {limit}");
        for (path, octets) in &found {
            let is_part = path.contains("/.") || path.starts_with('.');
            had_part |= path == ".large.weir-state";
            let is_right = is_part || source.get(path) == Some(octets);
            assert!(is_right, "{path} is wrong after {limit}");
        }
    }
    assert!(had_part, "the large file was interrupted");
    let report = get(&router, "copy");
    assert!(tree(&host.path("copy")) == source, "something temporary stays");
    assert!(report["resumed_segments"].as_u64() > report["files_there"].as_u64(), "{report}");
}

#[test]
fn conflicts_of_files_and_folders_are_named() {
    let host = Host::new();
    let router = Router::start(&host);
    let mut source = make_source(&host);
    let (_producer, _) = put(&router, "source", &[]);
    fs::create_dir_all(host.path("copy/large")).expect("a folder");
    fs::write(host.path("copy/d3"), b"mine").expect("a file");
    let log = router.weir(&get_words(&host.path("copy"))).failure();
    let large = host.path("copy/large");
    let expected = format!("it is a file, but {} is a local directory", large.display());
    assert!(log.contains(&expected), "{log}");
    let expected =
        format!("it is a directory, but {} is a local file", host.path("copy/d3").display());
    assert!(log.contains(&expected), "{log}");
    assert!(log.contains("31 entries of /folder") && log.contains("command again"), "{log}");
    // All other files were fetched, and the conflicting local files are unchanged.
    source.retain(|path, _| path != "large" && !path.starts_with("d3/"));
    source.insert("large/".into(), Vec::new());
    source.insert("d3".into(), b"mine".into());
    assert!(tree(&host.path("copy")) == source);
}

/// A file name may contain control characters for a terminal.
#[test]
fn untrusted_names_are_shown_escaped() {
    const NAME: &str = "\u{1b}[2Jfile\u{7}";
    let host = Host::new();
    let router = Router::start(&host);
    fs::create_dir_all(host.path("copy").join(NAME)).expect("a folder");
    fs::create_dir(host.path("source")).expect("a folder");
    fs::write(host.path("source").join(NAME), b"content").expect("a file");
    symlink("nowhere", host.path("source").join(format!("{NAME}-link"))).expect("a link");
    let (producer, _) = put(&router, "source", &[]);
    let got = router.weir(&get_words(&host.path("copy"))).failure();
    for (log, expected) in [
        (producer.log(), r"/\u{1b}[2Jfile\u{7}-link: a broken link"),
        (got, r"/\u{1b}[2Jfile\u{7} is a local directory"),
    ] {
        assert!(log.contains(expected) && !log.contains(['\u{1b}', '\u{7}']), "{log:?}");
    }
}

#[test]
fn skipped_entries_are_named() {
    let host = Host::new();
    let router = Router::start(&host);
    fs::create_dir_all(host.path("source/in")).expect("a folder");
    fs::create_dir_all(host.path("outside/deep")).expect("a folder");
    for path in ["source/in/file", "source/in/.file.weir-part", "outside/deep/secret"] {
        host.write(path, path.as_bytes());
    }
    let pipe = host.path("source/pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o600)).expect("a pipe");
    for (target, link) in [
        ("in/file", "within"),
        ("../outside/deep/secret", "out"),
        ("../outside", "folder-out"),
        ("nowhere", "dangling"),
        (".", "circle"),
    ] {
        symlink(target, host.path("source").join(link)).expect("a link");
    }
    let names = |target: &str| tree(&host.path(target)).into_keys().collect::<Vec<_>>();

    let (producer, ready) = put(&router, "source", &[]);
    assert_eq!(ready["skipped"], 6);
    // The lines come over another pipe than the JSON, so they may arrive later.
    let lines = || producer.log().matches("skipped source/").count();
    wait_until("the skipped entries are logged", || lines() == 6);
    let log = producer.log();
    for (name, reason) in [
        ("in/.file.weir-part", "an unfinished download"),
        ("pipe", "neither a file nor a directory"),
        ("out", "a link out of the directory; follow it with --follow-links"),
        ("folder-out", "a link out of the directory; follow it with --follow-links"),
        ("dangling", "a broken link"),
        ("circle", "a link to a directory"),
    ] {
        let line = format!("skipped source/{name}: ");
        let line = log.lines().find(|found| found.starts_with(&line));
        assert!(line.is_some_and(|line| line.contains(reason)), "{name}:\n{log}");
    }
    get(&router, "copy");
    assert_eq!(names("copy"), ["in/file", "within"]);
    drop(producer);

    let (_producer, ready) = put(&router, "source", &["--follow-links"]);
    assert_eq!(ready["skipped"], 4);
    get(&router, "all");
    assert_eq!(names("all"), ["folder-out/deep/secret", "in/file", "out", "within"]);
}

/// Root can read everything, so `weir put` runs as another user.
#[test]
fn unreadable_files_are_named_and_skipped() {
    const OTHER_UID: u32 = 65534;
    let host = Host::new();
    let router = Router::start(&host);
    let mut source = make_source(&host);
    let closed = ["source/d1/f2", "source/d2"].map(|name| host.path(name));
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
    };
    closed.iter().for_each(|path| set_mode(path, 0o000));
    let (home, program) = (host.path("stranger"), host.path("weir"));
    fs::create_dir(&home).expect("a folder");
    fs::copy(weir_binary(), &program).expect("a copy of weir");
    for (path, mode) in [(&home, 0o777), (&program, 0o755), (&host.path("."), 0o755)] {
        set_mode(path, mode);
    }
    let mut command = host.command(&program);
    command.args(["put", "source", "/folder", "--json"]);
    command.env("HOME", &home).env("WEIR_HOME", &home).env("NDN_CLIENT_TRANSPORT", router.tcp());
    if nix::unistd::geteuid().is_root() {
        command.uid(OTHER_UID).gid(OTHER_UID);
    }
    let producer = Process::start("weir put as another user", command);
    assert_eq!(producer.json_line()["skipped"], 2);
    for name in ["source/d1/f2", "source/d2"] {
        producer.wait_for_output(&format!("skipped {name}: Permission denied"));
    }
    get(&router, "copy");
    closed.iter().for_each(|path| set_mode(path, 0o755));
    source.retain(|path, _| path != "d1/f2" && !path.starts_with("d2/"));
    assert!(tree(&host.path("copy")) == source);
}

#[test]
fn changed_files_are_named_and_skipped() {
    let host = Host::new();
    let router = Router::start(&host);
    let mut source = make_source(&host);
    let (mut producer, _) = put(&router, "source", &[]);
    fs::remove_file(host.path("source/d0/f3")).expect("removed");
    host.write("source/large", b"something else");
    let log = router.weir(&get_words(&host.path("copy"))).failure();
    for name in ["/folder/d0/f3", "/folder/large"] {
        assert!(log.contains(&format!("cannot get {name}: ")), "{name} is not named:\n{log}");
    }
    assert!(log.contains("2 entries of /folder"), "{log}");
    source.retain(|path, _| path != "d0/f3" && path != "large");
    assert!(tree(&host.path("copy")) == source);
    producer.wait_for_output("source/d0/f3 cannot be read any more");
    producer.wait_for_output("source/large has changed since it was signed");
    assert!(producer.is_running());
}

#[test]
fn put_ends_when_its_file_changes() {
    let router = Router::on_new_host();
    let path = router.host.write("source", b"as it was");
    let words = ["put", path.to_str().expect("UTF-8"), "/folder", "--json"];
    let producer = router.spawn(&words);
    let _ = producer.json_line();
    fs::write(&path, b"as it is now").expect("written");
    // The result of this fetch does not matter.
    let _ = router.weir(&get_words(&router.host.path("copy")));
    let message = producer.finish().failure();
    assert!(message.contains("has changed") && message.contains("run the command"), "{message}");
}

/// `--preserve` restores execute permissions and times, but never set-user-ID.
#[test]
fn preserve_restores_modes_and_times() {
    let host = Host::new();
    let router = Router::start(&host);
    let changed = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_000_000);
    for (path, mode) in [("source/script", 0o4755), ("source/data", 0o600), ("source/own", 0o700)] {
        let path = host.write(path, path.as_bytes());
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mode");
        let file = fs::File::options().write(true).open(&path).expect("a file");
        file.set_modified(changed).expect("a time");
    }
    let (_producer, _) = put(&router, "source", &[]);
    let found = |path: &str| {
        let metadata = fs::metadata(host.path(path)).expect("a file");
        let is_old = metadata.modified().expect("a time") == changed;
        (metadata.permissions().mode() & 0o7111, is_old)
    };
    get(&router, "copy");
    assert_eq!(found("copy/script"), (0, false));
    // Files that are already complete get them too.
    for target in ["copy", "kept"] {
        let path = host.path(target);
        let words = [&get_words(&path)[..], &["--preserve"]].concat();
        router.weir(&words).success();
        assert_eq!(found(&format!("{target}/script")), (0o111, true));
        assert_eq!(found(&format!("{target}/data")), (0, true));
        assert_eq!(found(&format!("{target}/own")), (0o100, true));
    }
}

/// `weir put` warns if another producer already serves the name.
#[test]
fn second_producer_of_a_name_is_reported() {
    let router = Router::on_new_host();
    router.host.write("source/file", b"one");
    router.host.write("other", b"two");
    let (first, _) = put(&router, "source", &[]);
    assert!(!first.log().contains("another producer"), "{}", first.log());
    let (below, _) = put(&router, "source", &[]);
    below.wait_for_output("another producer already serves /folder (/folder/");
    let words = ["put", "other", "/folder/other", "--json"];
    let unlike = router.spawn(&words);
    let _ = unlike.json_line();
    assert!(!unlike.log().contains("another producer"), "{}", unlike.log());
}

/// If nothing was fetched, only the errors are printed.
#[test]
fn failed_folder_has_no_summary() {
    let host = Host::new();
    let router = Router::start(&host);
    let file = host.write("source/file", b"content");
    let (_producer, _) = put(&router, "source", &[]);
    fs::remove_file(file).expect("removed");
    let log = router.weir(&get_words(&host.path("copy"))).failure();
    assert!(log.contains("cannot get /folder/file") && !log.contains("0 files"), "{log}");
}

/// The rows of `weir ls --json`: path, kind and size.
fn rows(listed: &Value) -> BTreeMap<String, (String, Option<u64>)> {
    let entries = listed["entries"].as_array().expect("entries");
    let text = |entry: &Value, key: &str| entry[key].as_str().expect("text").to_owned();
    entries
        .iter()
        .map(|entry| (text(entry, "path"), (text(entry, "kind"), entry["size_bytes"].as_u64())))
        .collect()
}

/// `weir ls` and `weir stat` fetch metadata, listings and one segment, but no contents.
#[test]
fn lists_and_describes_without_contents() {
    let router = Router::on_new_host();
    let host = &router.host;
    fs::create_dir_all(host.path("source/sub")).expect("a folder");
    random_file(&host.path("source/large"), 2 * MIB + 3, 7);
    random_file(&host.path("source/sub/small"), 100, 8);
    let (producer, _) = put(&router, "source", &[]);

    assert_eq!(router.weir(&["ls", "/folder"]).success().output, "large\nsub/");
    let all = router.weir(&["ls", "-R", "/folder"]).success().output;
    assert_eq!(all, "large\nsub/\nsub/small");
    let long = rows(&router.weir_json(&["ls", "-lR", "/folder"]));
    assert_eq!(long["large"], ("file".to_owned(), Some((2 * MIB + 3) as u64)));
    assert_eq!(long["sub/small"], ("file".to_owned(), Some(100)));
    assert_eq!(long["sub"].0, "directory");

    let facts = router.weir_json(&["stat", "/folder/large"]);
    assert_eq!(facts["size_bytes"], (2 * MIB + 3) as u64);
    assert_eq!(facts["segments"], (2 * MIB + 3).div_ceil(8000) as u64);
    assert_eq!((&facts["kind"], &facts["verified"]), (&"file".into(), &true.into()));
    assert!(facts["key"].is_string(), "{facts}");
    let text = router.weir(&["stat", "/folder"]).success().output;
    assert!(text.contains("kind       directory"), "{text}");
    // The store has what was forwarded: one segment of the large file.
    let large = facts["versioned"].as_str().expect("a name");
    let listed = router.weir_json(&["cs", "list", large]);
    assert_eq!(listed["objects"][0]["packets_held"], 1, "{listed}");

    let error = router.weir(&["stat", "/folder/missing"]).failure();
    assert!(error.contains("missing"), "{error}");
    drop(producer);
    let error = router.weir(&["ls", "/nowhere"]).failure();
    assert!(error.contains("the router has no route to /nowhere"), "{error}");
}

/// `weir stat` describes unsigned data, but fails.
#[test]
fn stat_shows_what_does_not_verify() {
    let router = Router::on_new_host();
    random_file(&router.host.path("file"), 100, 1);
    let (_producer, _) = router.put(&["file", "/file", "--sign", "digest"]);
    let finished = router.weir(&["stat", "/file"]);
    assert!(finished.output.contains("verified   no: "), "{}", finished.output);
    assert!(finished.output.contains("100 bytes"), "{}", finished.output);
    let _ = finished.failure();
    let facts = router.weir_json(&["stat", "/file", "--allow-unsigned"]);
    assert_eq!((&facts["verified"], &facts["size_bytes"]), (&false.into(), &100.into()));
}
