//! Opening disks with every kind of content.

use crate::common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{LONG, MIB, config, data, record, start, write};
use weir_disk::{DiskFileConfig, DiskSet, Engine, OpenError, OpenWarning, open};
use weir_store::disk::superblock::{COPY_OFFSET_V1, Superblock};
use weir_store::disk::{DiskFailure, DiskOpKind, DiskOutcome};

fn open_one(config: &DiskFileConfig) -> Result<DiskSet, OpenError> {
    open(std::slice::from_ref(config), 1)
}

/// Writes a record at the start of region 0 of disk 0. Returns its offset and length.
fn put(set: DiskSet) -> (u64, u32) {
    let geometry = set.geometry(0, 0);
    let (monitor, mut shards) = start(set, 4, 1);
    let chunk = record(data(5000, 1));
    let len = chunk.size(geometry.block_bytes) as u32;
    let kind = write(geometry.data_offset, 3, vec![chunk], geometry.block_bytes);
    assert!(matches!(shards[0].one(0, kind), DiskOutcome::Written));
    assert!(shards.remove(0).ports.close(LONG));
    drop(monitor);
    (geometry.data_offset, len)
}

fn is_there(set: DiskSet, (offset, len): (u64, u32)) -> bool {
    let (_monitor, mut shards) = start(set, 4, 1);
    let outcome = shards[0].one(0, DiskOpKind::ReadRecord { offset, len, sequence: 3 });
    matches!(outcome, DiskOutcome::Record { packet, .. } if packet == data(5000, 1))
}

#[test]
fn a_new_file_is_reserved_secret_and_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let set = open_one(&config(&path, 8)).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), 8 * MIB);
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    let (id, key) = (set.store_id(), set.hash_key().hash(b"name"));
    assert_eq!(set.geometry(0, 0).regions, 7);
    let location = put(set);
    // Size and region size are remembered.
    let set = open_one(&DiskFileConfig::new(&path, None)).unwrap();
    assert_eq!((set.store_id(), set.hash_key().hash(b"name")), (id, key));
    assert_eq!((set.geometry(0, 0).regions, set.geometry(0, 0).region_bytes), (7, MIB));
    assert!(set.warnings().iter().all(|w| matches!(w, OpenWarning::Buffered { .. })));
    assert!(is_there(set, location));
    let other = open_one(&config(&folder.path().join("other"), 8)).unwrap();
    assert_ne!(other.store_id(), id, "stores are drawn at random");
}

#[test]
fn regions_are_chosen_from_the_size() {
    let folder = tempfile::tempdir().unwrap();
    let region_bytes = |mib: u64| {
        let path = folder.path().join(mib.to_string());
        let config = DiskFileConfig::new(path, Some(mib * MIB));
        let set = open_one(&config).unwrap();
        set.geometry(0, 0).region_bytes
    };
    assert_eq!(region_bytes(8), MIB);
    assert_eq!(region_bytes(256), 4 * MIB);
}

#[test]
fn what_is_not_ours_is_never_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("thesis.tex");
    for content in [&b"x"[..], &[7; 20_000], &[0; 20_000]] {
        fs::write(&path, content).unwrap();
        let error = open_one(&config(&path, 8)).unwrap_err();
        assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains("nothing was written"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), content);
    }
    // Data in the middle of a file counts.
    let file = File::create(&path).unwrap();
    file.write_all_at(b"data", 5 * MIB).unwrap();
    assert!(matches!(open_one(&config(&path, 8)), Err(OpenError::Foreign { .. })));
    // A hole counts as empty.
    File::create(&path).unwrap().set_len(3 * MIB).unwrap();
    open_one(&config(&path, 8)).unwrap();
}

#[test]
fn paths_that_are_no_disks_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |path: &Path| open_one(&config(path, 8)).unwrap_err();
    assert!(matches!(refused(folder.path()), OpenError::NotADisk { kind: "a folder", .. }));
    assert!(matches!(refused(Path::new("/dev/null")), OpenError::NotADisk { .. }));
    let deep = folder.path().join("no/such/folder");
    assert!(matches!(refused(&deep), OpenError::NoFolder { .. }));
    let path = folder.path().join("disk");
    let error = open_one(&DiskFileConfig::new(&path, None)).unwrap_err();
    assert!(matches!(error, OpenError::SizeNeeded { .. }), "{error}");
    let error = open_one(&config(&path, 2)).unwrap_err();
    assert!(
        matches!(error, OpenError::TooSmall { bytes_min, .. } if bytes_min == 2 * MIB + 12_288)
    );
    assert!(!path.exists(), "nothing is left behind");
    let error = open_one(&config(&path, 900 << 20)).unwrap_err();
    assert!(
        matches!(error, OpenError::FileSizeLimit { .. } | OpenError::NoSpace { .. }),
        "{error}"
    );
    // The configured size and the free space, in human-readable form.
    let text = error.to_string();
    assert!(text.contains("900 TiB") && text.matches("iB").count() == 2, "{text}");
    assert!(!path.exists(), "nothing is left behind");
    assert!(matches!(open(&[], 1), Err(OpenError::DiskCount(0))));
    assert!(matches!(open(&[config(&path, 8)], 0), Err(OpenError::Shards(0))));
    let odd = DiskFileConfig { region_bytes: Some(MIB + 512), ..config(&path, 8) };
    assert!(matches!(open_one(&odd), Err(OpenError::RegionBytes { .. })));
    let odd = DiskFileConfig { engine: Engine::Threads(0), ..config(&path, 8) };
    assert!(matches!(open_one(&odd), Err(OpenError::Config { .. })));
}

#[test]
fn one_file_is_one_disk_by_whatever_name() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("disk"), b"").unwrap();
    fs::hard_link(at("disk"), at("hard")).unwrap();
    std::os::unix::fs::symlink(at("disk"), at("soft")).unwrap();
    for name in ["disk", "hard", "soft"] {
        let configs = [config(&at("new"), 8), config(&at("disk"), 8), config(&at(name), 8)];
        let error = open(&configs, 1).unwrap_err();
        assert!(matches!(error, OpenError::Duplicate { first: 1, second: 2, .. }), "{error}");
        assert!(!at("new").exists(), "nothing is left behind");
    }
    assert_eq!(fs::metadata(at("disk")).unwrap().len(), 0);
    std::os::unix::fs::symlink(at("nothing"), at("lost")).unwrap();
    let error = open_one(&config(&at("lost"), 8)).unwrap_err();
    assert!(matches!(error, OpenError::DanglingLink { .. }), "{error}");
    assert!(error.to_string().contains("nothing") && !at("nothing").exists(), "{error}");
}

#[test]
fn two_routers_never_share_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let set = open_one(&config(&path, 8)).unwrap();
    let error = open_one(&config(&path, 8)).unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    let (monitor, shards) = start(set, 4, 1);
    assert!(matches!(open_one(&config(&path, 8)), Err(OpenError::Locked { .. })));
    drop(monitor);
    drop(shards);
    open_one(&config(&path, 8)).unwrap();
}

#[test]
fn another_process_that_holds_the_lock_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    open_one(&config(&path, 8)).unwrap();
    let held = Command::new("flock")
        .arg(&path)
        .args(["sh", "-c", "echo held; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut held) = held else {
        eprintln!("no flock(1) here: NOT tested");
        return;
    };
    let mut line = [0; 5];
    std::io::Read::read_exact(held.stdout.as_mut().unwrap(), &mut line).unwrap();
    let error = open_one(&config(&path, 8)).unwrap_err();
    match &error {
        OpenError::Locked { holder: Some(holder), .. } => {
            assert_eq!(holder.pid, held.id());
            assert!(error.to_string().contains("(flock)"), "{error}");
        }
        OpenError::Locked { holder: None, .. } => eprintln!("the holder is not known here"),
        other => panic!("{other}"),
    }
    held.stdin.take().unwrap().write_all(b"\n").unwrap();
    held.wait().unwrap();
    open_one(&config(&path, 8)).unwrap();
}

#[test]
fn sets_keep_their_disks_and_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| config(&folder.path().join(name), 8);
    let id = open(&[at("a"), at("b"), at("c")], 2).unwrap().store_id();
    assert_eq!(open(&[at("a"), at("b"), at("c")], 2).unwrap().store_id(), id);
    let error = open(&[at("b"), at("a"), at("c")], 2).unwrap_err();
    assert!(matches!(error, OpenError::WrongOrder { disk: 1, position: 0, .. }), "{error}");
    let error = open(&[at("a"), at("b")], 2).unwrap_err();
    assert!(matches!(error, OpenError::Missing { disk: 2, disks: 3, path: None }), "{error}");
    open(&[at("x"), at("y")], 2).unwrap();
    let error = open(&[at("a"), at("y"), at("c")], 2).unwrap_err();
    assert!(matches!(error, OpenError::SetMismatch { .. }), "{error}");
    // A missing file may be a disk that is not mounted. Nothing is left where it should be mounted.
    fs::remove_file(folder.path().join("b")).unwrap();
    let error = open(&[at("a"), at("b"), at("c")], 2).unwrap_err();
    assert!(matches!(error, OpenError::Missing { disk: 1, path: Some(_), .. }), "{error}");
    assert!(!folder.path().join("b").exists());
    // An empty file replaces it, and another one behind it joins the set.
    File::create(folder.path().join("b")).unwrap();
    let set = open(&[at("a"), at("b"), at("c"), at("d")], 2).unwrap();
    assert_eq!((set.store_id(), set.disks()), (id, 4));
    let is_new = |w: &&OpenWarning| matches!(w, OpenWarning::NewDisk { .. });
    assert_eq!(set.warnings().iter().filter(is_new).count(), 2, "{:?}", set.warnings());
    drop(set);
    assert!(matches!(open(&[at("a"), at("b")], 2), Err(OpenError::Missing { .. })));
}

#[test]
fn resizing_keeps_remaining_regions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let location = put(open_one(&config(&path, 8)).unwrap());
    let set = open_one(&config(&path, 16)).unwrap();
    assert_eq!(set.geometry(0, 0).regions, 15);
    assert!(set.warnings().iter().any(|w| matches!(w, OpenWarning::Grown { .. })));
    assert_eq!(fs::metadata(&path).unwrap().len(), 16 * MIB);
    assert!(is_there(set, location));
    let set = open_one(&config(&path, 4)).unwrap();
    assert_eq!(set.geometry(0, 0).regions, 3);
    assert!(set.warnings().iter().any(|w| matches!(w, OpenWarning::Shrunk { .. })));
    assert_eq!(fs::metadata(&path).unwrap().len(), 4 * MIB);
    assert!(is_there(set, location));
}

/// The process dies after each step of a change of the size: the file has its new length, and then
/// the second copy of the superblock is new.
#[test]
fn resize_survives_a_crash_at_any_step() {
    for bytes_mib in [4, 16] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let location = put(open_one(&config(&path, 8)).unwrap());
        let original = fs::read(&path).unwrap();
        drop(open_one(&config(&path, bytes_mib)).unwrap());
        let resized = fs::read(&path).unwrap();
        let cut = |mut octets: Vec<u8>| {
            octets.resize(resized.len(), 0);
            octets
        };
        let has_length = cut(original.clone());
        let mut has_copy = resized.clone();
        has_copy[..4096].copy_from_slice(&original[..4096]);
        for crashed in [has_length, has_copy] {
            for wanted_mib in [bytes_mib, 8] {
                fs::write(&path, &crashed).unwrap();
                let set = open_one(&config(&path, wanted_mib)).unwrap();
                assert_eq!(u64::from(set.geometry(0, 0).regions), wanted_mib - 1);
                assert!(is_there(set, location), "{bytes_mib} MiB, then {wanted_mib} MiB");
            }
        }
    }
}

#[test]
fn truncated_file_is_extended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let location = put(open_one(&config(&path, 8)).unwrap());
    File::options().write(true).open(&path).unwrap().set_len(3 * MIB).unwrap();
    let set = open_one(&config(&path, 8)).unwrap();
    let is_told = |w: &OpenWarning| matches!(w, OpenWarning::Truncated { .. });
    assert!(set.warnings().iter().any(is_told), "{:?}", set.warnings());
    assert_eq!((fs::metadata(&path).unwrap().len(), set.geometry(0, 0).regions), (8 * MIB, 7));
    assert!(is_there(set, location));
}

#[test]
fn rejects_changed_layout() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let original = config(&path, 8);
    let location = put(open_one(&original).unwrap());
    let before = fs::read(&path).unwrap();
    let error = open(std::slice::from_ref(&original), 2).unwrap_err();
    assert!(matches!(error, OpenError::ThreadsMismatch { existing: 1, wanted: 2, .. }), "{error}");
    assert!(error.to_string().contains("set `threads = 1` again"), "{error}");
    let other = DiskFileConfig { region_bytes: Some(MIB / 2), ..original.clone() };
    let error = open_one(&other).unwrap_err();
    assert!(matches!(error, OpenError::RegionsMismatch { .. }), "{error}");
    assert!(error.to_string().contains("region_size = 1048576"), "{error}");
    // If a new disk is next to it, that one is not created either.
    let new = folder.path().join("new");
    assert!(open(&[original.clone(), config(&new, 8)], 2).is_err() && !new.exists());
    assert!(fs::read(&path).unwrap() == before, "written to");
    assert!(is_there(open_one(&original).unwrap(), location));
    // Blocks that are smaller than direct I/O requires here.
    let small = DiskFileConfig { direct: false, ..config(&new, 8) };
    let location = put(open_one(&small).unwrap());
    match open_one(&config(&new, 8)) {
        Ok(set) => assert_eq!(set.geometry(0, 0).block_bytes, 512),
        Err(error) => {
            assert!(matches!(error, OpenError::BlocksMismatch { existing: 512, .. }), "{error}");
            assert!(error.to_string().contains("direct = false"), "{error}");
        }
    }
    assert!(is_there(open_one(&small).unwrap(), location));
}

#[test]
fn repairs_one_damaged_superblock() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let id = open_one(&config(&path, 8)).unwrap().store_id();
    let break_copy = |at: u64| {
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[0xff; 100], at + 40).unwrap();
    };
    let last = fs::metadata(&path).unwrap().len() - 4096;
    for at in [0, last] {
        break_copy(at);
        let set = open_one(&config(&path, 8)).unwrap();
        assert_eq!(set.store_id(), id);
        assert!(set.warnings().iter().any(|w| matches!(w, OpenWarning::Repaired { .. })));
        drop(set);
        let set = open_one(&config(&path, 8)).unwrap();
        assert!(!set.warnings().iter().any(|w| matches!(w, OpenWarning::Repaired { .. })));
    }
    // One MiB at either end may be lost.
    for at in [0, last + 4096 - (1 << 20)] {
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&vec![0; 1 << 20], at).unwrap();
        assert_eq!(open_one(&config(&path, 8)).unwrap().store_id(), id);
    }
    break_copy(0);
    break_copy(last);
    assert!(matches!(open_one(&config(&path, 8)), Err(OpenError::Damaged { .. })));
    let version = File::options().write(true).open(&path).unwrap();
    version.write_all_at(&9_u32.to_le_bytes(), 8).unwrap();
    let error = open_one(&config(&path, 8)).unwrap_err();
    assert!(matches!(error, OpenError::Version { version: 9, .. }), "{error}");
}

/// Its second copy follows the first, and its regions may extend to the end.
#[test]
fn a_disk_of_format_1_is_used_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let set = open_one(&config(&path, 8)).unwrap();
    let (id, regions) = (set.store_id(), set.geometry(0, 0).regions);
    drop(set);
    let octets = fs::read(&path).unwrap();
    let now = Superblock::decode(&octets[..4096], weir_disk::checksum).unwrap();
    let bytes = now.data_offset + u64::from(regions) * now.region_bytes;
    let before = Superblock { bytes, copy_offset: COPY_OFFSET_V1, ..now };
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(bytes).unwrap();
    let first = before.encode(weir_disk::checksum);
    assert_eq!(first[8], 1);
    for at in [0, COPY_OFFSET_V1] {
        file.write_all_at(&first[..], at).unwrap();
    }
    let pattern = [7; 4096];
    file.write_all_at(&pattern, bytes - 4096).unwrap();
    for broken in [None, Some(0), Some(COPY_OFFSET_V1)] {
        if let Some(at) = broken {
            file.write_all_at(&[0xff; 100], at + 40).unwrap();
        }
        let config = DiskFileConfig { bytes: None, ..config(&path, 8) };
        let set = open_one(&config).unwrap();
        assert_eq!((set.store_id(), set.geometry(0, 0).regions), (id, regions));
        let is_repaired = set.warnings().iter().any(|w| matches!(w, OpenWarning::Repaired { .. }));
        assert_eq!(is_repaired, broken.is_some());
    }
    assert!(fs::read(&path).unwrap().ends_with(&pattern), "a record was overwritten");
}

#[test]
fn recovers_from_crash_between_superblocks() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| config(&folder.path().join(name), 8);
    open(&[at("a"), at("b")], 1).unwrap();
    let superblock = |name: &str| {
        let octets = fs::read(folder.path().join(name)).unwrap();
        Superblock::decode(&octets[..4096], weir_disk::checksum).unwrap()
    };
    // As if the process had died while it emptied the store, between two disks.
    let mut changed = superblock("b");
    changed.store_id ^= 1;
    changed.generation += 1;
    let file = File::options().write(true).open(folder.path().join("b")).unwrap();
    file.write_all_at(&changed.encode(weir_disk::checksum)[..], 0).unwrap();
    let set = open(&[at("a"), at("b")], 1).unwrap();
    assert!(set.warnings().iter().any(|w| matches!(w, OpenWarning::Emptied { .. })));
    assert_eq!(superblock("a").store_id, set.store_id());
    assert_eq!(superblock("b").store_id, set.store_id());
}

#[test]
fn warns_about_readable_keys() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    open_one(&config(&path, 8)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let set = open_one(&config(&path, 8)).unwrap();
    let is_told = |w: &OpenWarning| matches!(w, OpenWarning::Mode { mode: 0o644, .. });
    assert!(set.warnings().iter().any(is_told), "{:?}", set.warnings());
}

/// A mount that ends with the test. `None` without the right to mount.
struct Mount(std::path::PathBuf);

impl Mount {
    fn tmpfs(path: &Path, options: &str) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "none"])
            .arg(path)
            .stderr(Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(path.to_owned()));
        }
        eprintln!("may not mount here: NOT tested");
        None
    }

    fn remount(&self, options: &str) {
        // Busy until the kernel has released what was just closed.
        for _ in 0..100 {
            let mut mount = Command::new("mount");
            mount.args(["-o", options]).arg(&self.0).stderr(Stdio::null());
            if mount.status().unwrap().success() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("cannot remount");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_read_only_disk_serves_and_stores_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::tmpfs(folder.path(), "size=32m") else { return };
    let path = folder.path().join("disk");
    let location = put(open_one(&config(&path, 8)).unwrap());
    File::create(folder.path().join("empty")).unwrap();
    mount.remount("remount,ro");
    let error = open_one(&config(&folder.path().join("empty"), 8)).unwrap_err();
    assert!(matches!(error, OpenError::ReadOnlyEmpty { .. }), "{error}");
    // The configured size is ignored.
    let set = open_one(&config(&path, 16)).unwrap();
    assert!(set.warnings().iter().any(|w| matches!(w, OpenWarning::ReadOnly { .. })));
    let geometry = set.geometry(0, 0);
    assert_eq!((geometry.is_writable, geometry.regions), (false, 7));
    let (monitor, mut shards) = start(set, 4, 1);
    let kind = write(geometry.data_offset, 1, vec![record(data(10, 1))], geometry.block_bytes);
    let outcome = shards[0].one(0, kind);
    assert!(matches!(outcome, DiskOutcome::Failed(DiskFailure::ReadOnly)), "{outcome:?}");
    assert!(shards.remove(0).ports.close(LONG));
    drop(monitor);
    assert!(is_there(open_one(&config(&path, 8)).unwrap(), location));
}

#[test]
fn a_full_file_system_says_how_much_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_mount) = Mount::tmpfs(folder.path(), "size=8m") else { return };
    let path = folder.path().join("disk");
    match open_one(&config(&path, 12)).unwrap_err() {
        OpenError::NoSpace { missing_bytes, .. } => assert_eq!(missing_bytes, 4 * MIB),
        other => panic!("{other}"),
    }
    assert!(!path.exists(), "nothing is left behind");
    open_one(&config(&path, 6)).unwrap();
    match open_one(&config(&path, 12)).unwrap_err() {
        OpenError::NoSpace { missing_bytes, .. } => assert_eq!(missing_bytes, 4 * MIB),
        other => panic!("{other}"),
    }
    let set = open_one(&config(&path, 6)).unwrap();
    assert_eq!(set.geometry(0, 0).regions, 5);
}

fn fill_up(path: &Path) {
    let mut hog = File::create(path).unwrap();
    while hog.write(&[1; 4096]).is_ok() {}
}

/// Each case has its own file system. The kernel releases the files of a ring some time after the
/// ring was closed. So the space of a removed file may come back at any moment.
#[test]
fn full_disk_fails_writes_and_still_reads() {
    for direct in [true, false] {
        for engine in [Engine::Auto, Engine::Threads(2)] {
            let folder = tempfile::tempdir().unwrap();
            let Some(_mount) = Mount::tmpfs(folder.path(), "size=8m") else { return };
            let path = folder.path().join("disk");
            let config = DiskFileConfig { direct, engine, ..config(&path, 4) };
            let location = put(open_one(&config).unwrap());
            // As if the file were sparse: its end is released, and another file uses the space.
            File::options().write(true).open(&path).unwrap().set_len(2 * MIB).unwrap();
            File::options().write(true).open(&path).unwrap().set_len(4 * MIB).unwrap();
            fill_up(&folder.path().join("hog"));
            let set = open_one(&config).unwrap();
            let geometry = set.geometry(0, 0);
            let (monitor, mut shards) = start(set, 4, 1);
            let chunks = (0..100).map(|seed| record(data(8000, seed))).collect();
            let kind = write(3 * MIB, 9, chunks, geometry.block_bytes);
            let outcome = shards[0].one(0, kind);
            assert!(matches!(outcome, DiskOutcome::Failed(DiskFailure::NoSpace)), "{outcome:?}");
            assert!(shards.remove(0).ports.close(LONG));
            drop(monitor);
            assert!(is_there(open_one(&config).unwrap(), location));
        }
    }
}

/// The folder never contains the file, which otherwise works like any other.
#[test]
fn unnamed_file_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let names = || fs::read_dir(&folder).unwrap().count();
    for (engine, direct) in common::variants() {
        let config = DiskFileConfig { unnamed: true, engine, direct, ..config(&path, 8) };
        // Two unnamed files are independent.
        let (set, other) = (open_one(&config).unwrap(), open_one(&config).unwrap());
        assert_eq!((names(), set.geometry(0, 0).regions), (0, 7));
        assert_ne!(set.store_id(), other.store_id());
        put(set);
        assert_eq!(names(), 0);
    }
    let large = DiskFileConfig { unnamed: true, ..config(&path, 1 << 30) };
    assert!(open_one(&large).is_err());
    assert_eq!(names(), 0);
}
