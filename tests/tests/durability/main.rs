//! The guarantees of a repository (`docs/durability/repository.md`): acknowledged objects survive
//! kills, full and read-only disks, jumping clocks and replaced files.

mod disks;
mod kills;
mod looks;
mod reader;
mod upgrade;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use weir_tests::{Host, Process, Router, sha256_hex};

use self::reader::{Stored, read_repository};

/// A folder `source` published as `/folder`, and a router without store.
struct Fixture {
    router: Router,
    host: Host,
}

impl Fixture {
    fn new() -> Self {
        let host = Host::new();
        let router = Router::without_store(&host);
        fs::create_dir(host.path("source")).expect("a folder");
        Self { router, host }
    }

    fn source(&self, file: &str) -> PathBuf {
        self.host.path("source").join(file)
    }

    /// Writes a file with an old modification time.
    fn write_old(&self, file: &str, content: &[u8]) {
        fs::write(self.source(file), content).expect("written");
        self.age(file);
    }

    fn age(&self, file: &str) {
        let file = File::options().write(true).open(self.source(file)).expect("a file");
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).expect("a time");
    }

    fn start(&self, words: &[&str]) -> Process {
        self.router.spawn(&[&["put", "--repo", "repo", "--json"], words].concat())
    }

    fn start_watch(&self) -> Process {
        self.start(&["source", "/folder", "--watch"])
    }

    /// Starts to watch the folder, and returns the process and its ready line.
    fn watch(&self) -> (Process, Value) {
        let process = self.start_watch();
        let ready = process.json_line();
        (process, ready)
    }

    /// Publishes the folder once.
    fn put_once(&self) -> String {
        let process = self.start(&["source", "/folder"]);
        let _ = process.json_line();
        process.stop()
    }

    fn stored(&self) -> BTreeMap<String, Stored> {
        read_repository(&self.host.path("repo"))
    }

    /// The names of the files in the repository.
    fn stored_files(&self) -> Vec<String> {
        let stored = self.stored();
        let files = stored.keys().filter(|name| !name.ends_with("/32=ls"));
        files.filter_map(|name| name.strip_prefix("/folder/").map(str::to_owned)).collect()
    }

    /// Fetches the folder, and returns the names of its files.
    fn fetched_files(&self) -> Vec<String> {
        let _ = fs::remove_dir_all(self.host.path("got"));
        self.router.weir(&["get", "/folder", "-o", "got"]).success();
        self.host.list("got")
    }

    /// Serves the repository with a new process, and compares fetched files with the stored ones.
    fn serve_and_compare(&self) {
        let process = self.start(&[]);
        let _ = process.json_line();
        let stored = self.stored();
        for name in stored.keys().filter(|name| name.starts_with("/folder/")) {
            if name.ends_with("/32=ls") {
                continue;
            }
            let _ = fs::remove_file(self.host.path("copy"));
            self.router.weir(&["get", name, "-o", "copy"]).success();
            let copy = fs::read(self.host.path("copy")).expect("a copy");
            assert!(copy == stored[name].content, "{name} differs");
        }
        process.stop();
    }

    fn assert_got_equals_source(&self) {
        let files = self.fetched_files();
        assert_eq!(files, self.host.list("source"));
        for file in files {
            let copy = self.host.path("got").join(&file);
            assert_eq!(sha256_hex(&self.source(&file)), sha256_hex(&copy), "{file}");
        }
    }
}

/// Objects and versions in a line of `weir put --watch --json`.
fn versions(line: &Value) -> BTreeMap<String, u64> {
    let names = line["published"].as_array().into_iter().flatten();
    let names = names.filter_map(|name| name.as_str()?.split_once("/v="));
    names.map(|(name, version)| (name.to_owned(), version.parse().expect("a version"))).collect()
}
