//! Repositories on file systems that become full or read-only.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use nix::sched::{CloneFlags, unshare};

use super::Fixture;

/// Moves this thread and its children to a private mount namespace. Returns whether it can mount.
fn has_own_mounts() -> bool {
    let is_private = unshare(CloneFlags::CLONE_NEWNS).is_ok() && mount(&["--make-rprivate", "/"]);
    if !is_private {
        eprintln!("no file system can be mounted here: NOT tested with a full or read-only disk");
    }
    is_private
}

fn mount(arguments: &[&str]) -> bool {
    Command::new("mount").args(arguments).output().is_ok_and(|output| output.status.success())
}

/// A mounted file system, unmounted on drop.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// A repository on a file system of this size.
fn small_disk(size: &str) -> (Fixture, Mounted) {
    let fixture = Fixture::new();
    let repo = fixture.host.path("repo");
    fs::create_dir(&repo).expect("a folder");
    let size = format!("size={size}");
    let is_mounted = mount(&["-t", "tmpfs", "-o", &size, "tmpfs", &repo.to_string_lossy()]);
    assert!(is_mounted, "no tmpfs");
    (fixture, Mounted(repo))
}

#[test]
fn full_disk_loses_nothing_and_recovers() {
    if !has_own_mounts() {
        return;
    }
    let (fixture, _mounted) = small_disk("1m");
    fixture.write_old("small", &[1; 100_000]);
    let _ = fixture.put_once();

    // At the start, the command fails with the reason.
    fixture.write_old("large", &[2; 3_000_000]);
    fixture.write_old("small", &[3; 100_000]);
    let message = fixture.start(&["source", "/folder"]).finish().failure();
    assert!(message.contains("No space left on device"), "{message}");
    assert!(message.contains("the repository keeps its earlier objects"), "{message}");
    assert!(fixture.stored_files().contains(&"small".to_owned()));

    // While watching, it serves the earlier objects and retries.
    fs::remove_file(fixture.source("large")).expect("removed");
    let (process, _) = fixture.watch();
    fixture.assert_got_equals_source();
    let draft = fixture.host.write("draft", &[4; 3_000_000]);
    fs::rename(draft, fixture.source("large")).expect("renamed");
    process.wait_for_output("No space left on device");
    assert_eq!(fixture.fetched_files(), ["small"]);
    assert_eq!(fixture.stored()["/folder/small"].content, [3; 100_000]);
    let repo = fixture.host.path("repo");
    assert!(mount(&["-o", "remount,size=20m", &repo.to_string_lossy()]), "no more room");
    process.wait_for_published("/folder/large");
    let _ = process.kill();
    assert_eq!(fixture.stored()["/folder/large"].content, [4; 3_000_000]);
    fixture.serve_and_compare();
}

#[test]
fn read_only_disk_is_served_then_written() {
    if !has_own_mounts() {
        return;
    }
    let (fixture, _mounted) = small_disk("20m");
    fixture.write_old("a", &[1; 50_000]);
    let (process, _) = fixture.watch();
    let repo = fixture.host.path("repo").to_string_lossy().into_owned();
    let turn_read_only = || {
        assert!(mount(&["--bind", &repo, &repo]) && mount(&["-o", "remount,ro,bind", &repo]));
    };
    let turn_back = || {
        let output = Command::new("umount").arg("-l").arg(&repo).output().expect("umount runs");
        assert!(output.status.success());
    };
    turn_read_only();
    let draft = fixture.host.write("draft", &[2; 50_000]);
    fs::rename(draft, fixture.source("a")).expect("renamed");
    process.wait_for_output("Read-only file system");
    assert_eq!(fixture.stored()["/folder/a"].content, [1; 50_000]);
    assert_eq!(fixture.fetched_files(), ["a"]);
    turn_back();
    process.wait_for_published("/folder/a");
    assert_eq!(fixture.stored()["/folder/a"].content, [2; 50_000]);
    let _ = process.kill();

    // A read-only repository can be served, but nothing can be added.
    turn_read_only();
    fixture.serve_and_compare();
    fixture.write_old("a", &[3; 50_000]);
    let message = fixture.start(&["source", "/folder"]).finish().failure();
    assert!(message.contains("Read-only file system"), "{message}");
    turn_back();
    let (process, _) = fixture.watch();
    fixture.assert_got_equals_source();
    process.stop();
}
