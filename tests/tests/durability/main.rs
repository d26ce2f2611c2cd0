//! What a repository promises (`docs/durability/repository.md`): what was acknowledged is there
//! after kills, full and read-only disks, clocks that jump and files that are replaced.

mod disks;
mod kills;
mod looks;
mod reader;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use serde_json::Value;
use weir_tests::{Finished, Process, Router, RouterOptions, Site, sha256_hex};

use self::reader::{Stored, read_repository};

/// A folder `source` that is published as `/folder`, and a router that stores nothing.
struct Fixture {
    router: Router,
    site: Site,
}

impl Fixture {
    fn new() -> Self {
        let site = Site::new();
        let arguments = vec!["--store".into(), "0".into()];
        let router =
            Router::start_with(&site, &RouterOptions { arguments, ..RouterOptions::default() });
        fs::create_dir(site.path("source")).expect("a folder");
        Self { router, site }
    }

    fn source(&self, file: &str) -> PathBuf {
        self.site.path("source").join(file)
    }

    /// Writes a file whose times say that it was written long ago.
    fn write_old(&self, file: &str, content: &[u8]) {
        fs::write(self.source(file), content).expect("written");
        self.age(file);
    }

    fn age(&self, file: &str) {
        let file = File::options().write(true).open(self.source(file)).expect("a file");
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).expect("a time");
    }

    fn start(&self, words: &[&str]) -> Process {
        self.site.weir(&self.router.unix(), &[&["put", "--repo", "repo", "--json"], words].concat())
    }

    fn start_watch(&self) -> Process {
        self.start(&["source", "/folder", "--watch"])
    }

    /// Watches the folder; returns what it says when it is ready.
    fn watch(&self) -> (Process, Value) {
        let process = self.start_watch();
        let ready = process.json_line();
        (process, ready)
    }

    /// Publishes the folder as it is, and ends.
    fn put_once(&self) -> String {
        let process = self.start(&["source", "/folder"]);
        let _ = process.json_line();
        stop(process)
    }

    fn stored(&self) -> BTreeMap<String, Stored> {
        read_repository(&self.site.path("repo"))
    }

    /// The files of the folder that are stored, by their names in it.
    fn stored_files(&self) -> Vec<String> {
        let stored = self.stored();
        let files = stored.keys().filter(|name| !name.ends_with("/32=ls"));
        files.filter_map(|name| name.strip_prefix("/folder/").map(str::to_owned)).collect()
    }

    /// Gets the folder; the files that are in it then.
    fn got(&self) -> Vec<String> {
        let _ = fs::remove_dir_all(self.site.path("got"));
        let _ = self.router.weir(&self.site, &["get", "/folder", "-o", "got"]).success();
        self.site.list("got")
    }

    /// Has a fresh process serve the repository, and compares what consumers get of these files
    /// with what is stored.
    fn serve_and_compare(&self) {
        let process = self.start(&[]);
        let _ = process.json_line();
        let stored = self.stored();
        for name in stored.keys().filter(|name| name.starts_with("/folder/")) {
            if name.ends_with("/32=ls") {
                continue;
            }
            let _ = fs::remove_file(self.site.path("copy"));
            let _ = self.router.weir(&self.site, &["get", name, "-o", "copy"]).success();
            let copy = fs::read(self.site.path("copy")).expect("a copy");
            assert!(copy == stored[name].content, "{name} differs");
        }
        stop(process);
    }

    fn assert_got_equals_source(&self) {
        let files = self.got();
        assert_eq!(files, self.site.list("source"));
        for file in files {
            let copy = self.site.path("got").join(&file);
            assert_eq!(sha256_hex(&self.source(&file)), sha256_hex(&copy), "{file}");
        }
    }
}

fn stop(mut process: Process) -> String {
    process.signal(Signal::SIGTERM);
    process.finish().success().log
}

fn kill(mut process: Process) -> Finished {
    process.signal(Signal::SIGKILL);
    process.finish()
}

/// Waits until a version of this object is published; which.
fn published(process: &Process, object: &str) -> u64 {
    loop {
        if let Some(&version) = versions(&process.json_line()).get(object) {
            return version;
        }
    }
}

fn withdrawn(process: &Process, object: &str) {
    let is_it =
        |line: &Value| line["withdrawn"].as_array().expect("names").contains(&object.into());
    while !is_it(&process.json_line()) {}
}

/// Objects and versions of a line that says what was published.
fn versions(line: &Value) -> BTreeMap<String, u64> {
    let names = line["published"].as_array().into_iter().flatten();
    let names = names.filter_map(|name| name.as_str()?.split_once("/v="));
    names.map(|(name, version)| (name.to_owned(), version.parse().expect("a version"))).collect()
}

/// Waits until something of this has been printed.
fn wait_for_log(process: &Process, text: &str) {
    let deadline = std::time::Instant::now() + weir_tests::PATIENCE;
    while !process.log().contains(text) {
        assert!(std::time::Instant::now() < deadline, "no `{text}`:\n{}", process.log());
        std::thread::sleep(Duration::from_millis(5));
    }
}
