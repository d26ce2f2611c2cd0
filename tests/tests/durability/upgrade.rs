//! The present program reads what each release left on disk. `tests/upgrade/record.sh` records it
//! when a release is made.

use std::fs;
use std::path::Path;
use std::process::Command;

use weir_tests::{DiskStore, Host, Process, Router, weir_binary};

/// A host with what the release left, in the folder `old` and in the key folder of the host.
fn host_of(version: &str) -> Host {
    let host = Host::new();
    let old = host.path("old");
    fs::create_dir(&old).expect("a folder");
    let archive = format!("{}/upgrade/{version}.tar.gz", env!("CARGO_MANIFEST_DIR"));
    let tar = Command::new("tar").arg("-C").arg(&old).arg("-xzf").arg(&archive).status();
    assert!(tar.expect("tar starts").success(), "{archive}");
    fs::rename(old.join("home"), host.path("home/weir")).expect("moved");
    host
}

/// The numbers from 1 to 60,000, a line each.
fn file() -> Vec<u8> {
    (1..=60_000).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

fn assert_file(path: &Path) {
    assert!(fs::read(path).expect("the file") == file(), "{} has other bytes", path.display());
}

fn router_with_old_disk(host: &Host) -> Router {
    let disk = DiskStore { folder: Some(host.path("old")), ..DiskStore::new("router") };
    fs::rename(host.path("old/disk"), disk.file(host, 0)).expect("moved");
    disk.start(host)
}

fn disk_is_served(version: &str) {
    let host = host_of(version);
    let router = router_with_old_disk(&host);
    router.wait_for_idle_disks();
    // No producer runs, so the Data comes from the disk.
    router.weir(&["get", "/upgrade/file", "-o", "copy"]).success();
    assert_file(&host.path("copy"));
}

fn repository_is_served_and_download_resumes(version: &str) {
    let host = host_of(version);
    let router = Router::without_store(&host);
    let repository = host.path("old/repo");
    let (_put, ready) = router.put(&["--repo", repository.to_str().expect("UTF-8")]);
    assert_eq!(ready["names"], serde_json::json!(["/upgrade/file", "/upgrade/large"]));
    router.weir(&["get", "/upgrade/file", "-o", "copy"]).success();
    assert_file(&host.path("copy"));
    let large = host.path("old/large");
    let resumed = router.weir_json(&["get", "/upgrade/large", "-o", "old/large"]);
    let fetched = resumed["segments"].as_u64().expect("a number");
    assert!(fetched < 10_000, "the stored part was not used: {resumed}");
    let expected: Vec<u8> = b"weir\n".iter().copied().cycle().take(20_000_000).collect();
    assert!(fs::read(large).expect("the file") == expected, "other bytes than before");
}

fn database_lists_files(version: &str) {
    let host = host_of(version);
    let url = format!("127.0.0.1:{}", host.free_port());
    let controller = |words: &[&str]| {
        let mut command = host.command(weir_binary());
        command.current_dir(host.path("old")).arg("controller").args(words);
        Process::start(&format!("weir controller {}", words.join(" ")), command)
    };
    let server = controller(&["--database", "controller.db", "--listen", &url, "--json"]);
    assert_eq!(server.json_line()["ready"], true);
    let at = format!("http://{url}");
    let list = ["file", "list", "--controller", &at, "--controller-token-file", "me.token"];
    let files = controller(&list).finish().success();
    assert!(files.output.contains("/upgrade/registered/v="), "{files:?}");
}

#[test]
fn disk_of_0_1_0_is_served() {
    disk_is_served("0.1.0");
}

#[test]
fn repository_and_part_of_0_1_0_are_used() {
    repository_is_served_and_download_resumes("0.1.0");
}

#[test]
fn database_of_0_1_0_lists_files() {
    database_lists_files("0.1.0");
}
