use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn versioned(version: u64) -> Metadata {
    let mut name: Name = "/some/object".parse().unwrap();
    name.append_version(version);
    Metadata::new(name)
}

fn open(output: &mut PartFile, version: u64) -> Result<SegmentSet, OutputError> {
    match output.open(&versioned(version))? {
        Opened::File { have, .. } => Ok(have),
        _ => panic!("it is a file"),
    }
}

fn interrupted(target: &Path) -> SegmentSet {
    let mut output = PartFile::new(target);
    assert!(open(&mut output, 1).unwrap().is_empty());
    let sink = output.sink(4).unwrap();
    sink.store(&[(0, b"0000"), (2, b"22")]).unwrap();
    let mut have = SegmentSet::new();
    have.insert(0);
    have.insert(2);
    output.save(&have).unwrap();
    have
}

#[test]
fn resumes_interrupted_download() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("file");
    let have = interrupted(&target);
    assert!(!target.exists());
    let mut output = PartFile::new(&target);
    assert_eq!(open(&mut output, 1).unwrap(), have);
    assert_eq!(output.segment_size, Some(4));
    output.sink(4).unwrap().store(&[(1, b"1111")]).unwrap();
    output.finish(false).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"0000111122");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "something is left over");
}

/// Segments that no signature covers never become those of a verified download.
#[test]
fn verified_download_resumes_no_unverified_one() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("file");
    let unverified = || PartFile::new(&target).accept_unverified();
    let have = interrupted(&target);
    let mut output = unverified();
    assert_eq!(open(&mut output, 1).unwrap(), have, "verified segments are good enough");
    output.sink(4).unwrap().store(&[(1, b"1111")]).unwrap();
    let mut all = have;
    all.insert(1);
    output.save(&all).unwrap();
    drop(output);
    assert_eq!(open(&mut unverified(), 1).unwrap(), all);
    assert!(open(&mut PartFile::new(&target), 1).unwrap().is_empty());
    assert_eq!(fs::metadata(dir.path().join(".file.weir-part")).unwrap().len(), 0);
}

/// Keys that this download does not accept may have signed anything.
#[test]
fn resumes_only_what_accepted_keys_verified() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("file");
    let open = |keys: &[[u8; 32]]| {
        let mut output = PartFile::new(&target);
        output.set_keys(keys.to_vec());
        match output.open(&versioned(1)).unwrap() {
            Opened::File { have, unconfirmed_keys, .. } => (output, have, unconfirmed_keys),
            _ => panic!("it is a file"),
        }
    };
    let mut have = SegmentSet::new();
    have.insert(0);
    let interrupt = |keys: &[[u8; 32]]| {
        let (mut output, ..) = open(keys);
        output.sink(4).unwrap().store(&[(0, b"0000")]).unwrap();
        output.save(&have).unwrap();
    };
    interrupt(&[[1; 32]]);
    assert_eq!(open(&[[2; 32], [1; 32]]).1, have);
    // Without an accepted key, the download decides later. Until then the keys are kept.
    let (mut output, found, unconfirmed) = open(&[]);
    assert_eq!((found, unconfirmed), (have.clone(), vec![[1; 32]]));
    output.sink(4).unwrap();
    output.set_keys(vec![[2; 32]]);
    output.save(&have).unwrap();
    drop(output);
    assert_eq!(open(&[[1; 32], [2; 32]]).2, [[0; 32]; 0]);
    let (_, found, unconfirmed) = open(&[[2; 32]]);
    assert_eq!((found, unconfirmed), (have.clone(), vec![[1; 32]]), "one of two is accepted");
    assert!(open(&[[3; 32]]).1.is_empty());
    assert_eq!(fs::metadata(dir.path().join(".file.weir-part")).unwrap().len(), 0);

    // The keys of damaged segments are not kept.
    interrupt(&[[1; 32]]);
    fs::write(dir.path().join(".file.weir-part"), b"9999").unwrap();
    let (mut output, found, unconfirmed) = open(&[]);
    assert!(found.is_empty() && unconfirmed.is_empty());
    output.sink(4).unwrap().store(&[(0, b"0000")]).unwrap();
    output.set_keys(vec![[2; 32]]);
    output.save(&have).unwrap();
    drop(output);
    assert!(open(&[[1; 32]]).1.is_empty());

    // A trust that does not report keys.
    interrupt(&[]);
    let (output, found, unconfirmed) = open(&[]);
    assert_eq!((found, unconfirmed), (have.clone(), vec![NO_KEY]));
    drop(output);
    assert!(open(&[[1; 32]]).1.is_empty());
}

/// A state of an earlier format, which did not list keys.
#[test]
fn old_state_starts_over() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("file");
    interrupted(&target);
    let path = dir.path().join(".file.weir-state");
    let mut octets = fs::read(&path).unwrap();
    octets.truncate(octets.len() - 32);
    octets[..8].copy_from_slice(b"weirpt03");
    octets.drain(8..16);
    let digest = sha256(&[&octets]);
    octets.extend_from_slice(&digest);
    fs::write(&path, octets).unwrap();
    assert!(open(&mut PartFile::new(&target), 1).unwrap().is_empty());
}

/// A producer that was started again gives an unchanged file a new version.
#[test]
fn resumes_with_same_content_digest() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("file");
    let of = |version, digest| Metadata { content_digest: Some(digest), ..versioned(version) };
    let have_of = |metadata: &Metadata| match PartFile::new(&target).open(metadata).unwrap() {
        Opened::File { have, .. } => have,
        _ => panic!("it is a file"),
    };
    let mut output = PartFile::new(&target);
    output.open(&of(1, [1; 32])).unwrap();
    output.sink(4).unwrap().store(&[(0, b"0000")]).unwrap();
    let mut have = SegmentSet::new();
    have.insert(0);
    output.save(&have).unwrap();
    drop(output);
    assert_eq!(have_of(&of(2, [1; 32])), have);
    assert!(have_of(&of(1, [2; 32])).is_empty(), "the same version with other content");
}

#[test]
fn restarts_on_other_version_or_damage() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("file");
    interrupted(&target);
    assert!(open(&mut PartFile::new(&target), 2).unwrap().is_empty());

    interrupted(&target);
    let state = dir.path().join(".file.weir-state");
    let mut octets = fs::read(&state).unwrap();
    octets[20] ^= 1;
    fs::write(&state, octets).unwrap();
    assert!(open(&mut PartFile::new(&target), 1).unwrap().is_empty());

    interrupted(&target);
    fs::write(dir.path().join(".file.weir-part"), b"").unwrap();
    assert!(open(&mut PartFile::new(&target), 1).unwrap().is_empty());
}

#[test]
fn rejects_concurrent_download() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("file");
    let mut one = PartFile::new(&target);
    one.open(&versioned(1)).unwrap();
    let error = open(&mut PartFile::new(&target), 1).unwrap_err();
    assert!(matches!(error, OutputError::InUse { .. }), "{error}");
}

#[test]
fn follows_no_planted_links() {
    let dir = tempfile::tempdir().unwrap();
    let (target, mine) = (dir.path().join("file"), dir.path().join("mine"));
    let planted = |suffix| dir.path().join(companion_name(OsStr::new("file"), suffix));
    fs::write(&mine, "precious").unwrap();

    symlink(&mine, planted(PART_SUFFIX)).unwrap();
    let error = open(&mut PartFile::new(&target), 1).unwrap_err();
    assert!(matches!(error, OutputError::SymbolicLink { .. }), "{error}");
    fs::remove_file(planted(PART_SUFFIX)).unwrap();
    // A hard link is removed; the other name of its file stays.
    fs::hard_link(&mine, planted(PART_SUFFIX)).unwrap();
    symlink(&mine, planted(NEW_STATE_SUFFIX)).unwrap();
    interrupted(&target);
    assert_eq!(fs::read(&mine).unwrap(), b"precious");
    assert!(!fs::symlink_metadata(planted(STATE_SUFFIX)).unwrap().is_symlink());

    // A state file with a second link is not trusted.
    fs::rename(planted(STATE_SUFFIX), dir.path().join("state")).unwrap();
    symlink(dir.path().join("state"), planted(STATE_SUFFIX)).unwrap();
    assert!(open(&mut PartFile::new(&target), 1).unwrap().is_empty());
}

#[test]
fn part_file_names_are_unique() {
    let dir = tempfile::tempdir().unwrap();
    let long = [b'n'; FILE_NAME_MAX];
    let mut other = long;
    other[0] = b'o';
    let names = [&b"\xff"[..], b"\xfe", "\u{fffd}".as_bytes(), &long, &other];
    let mut outputs = Vec::new();
    for name in names {
        let mut output = PartFile::new(dir.path().join(OsStr::from_bytes(name)));
        open(&mut output, 1).unwrap();
        output.sink(4).unwrap().store(&[(0, &name[..1])]).unwrap();
        let mut have = SegmentSet::new();
        have.insert(0);
        output.save(&have).unwrap();
        outputs.push(output);
    }
    for (name, mut output) in names.into_iter().zip(outputs) {
        output.finish(false).unwrap();
        let path = dir.path().join(OsStr::from_bytes(name));
        assert_eq!(fs::read(path).unwrap(), &name[..1]);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), names.len());
}

#[test]
fn rejects_reserved_names() {
    let dir = tempfile::tempdir().unwrap();
    for name in [".file.weir-part", ".file.weir-state", ".file.weir-new"] {
        let error = open(&mut PartFile::new(dir.path().join(name)), 1).unwrap_err();
        assert!(matches!(error, OutputError::Reserved { .. }), "{error}");
    }
    assert!(!is_reserved_name(b"file.weir-part") && !is_reserved_name(b".weir"));
}

const CONTENT: &[u8] = b"0000111122";

/// Stores all segments of [`CONTENT`].
fn store(output: &mut PartFile) {
    let sink = output.sink(4).unwrap();
    sink.store(&[(0, b"0000"), (1, b"1111"), (2, b"22")]).unwrap();
}

fn fetch(mut output: PartFile, version: u64) -> Result<(), OutputError> {
    open(&mut output, version)?;
    store(&mut output);
    output.finish(false)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn names(folder: &Path) -> Vec<OsString> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn finished_file_is_no_part_file() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("file");
    let (mut first, mut second) = (PartFile::new(&target), PartFile::new(&target));
    open(&mut first, 1).unwrap();
    store(&mut first);
    // The second has opened the part file and not locked it yet when the first one finishes.
    second.directory = Some(Directory::open(dir.path(), true).unwrap());
    let opened = second.directory().open_file(&second.part_name, OFlags::RDWR, 0).unwrap();
    first.finish(false).unwrap();
    drop(first);
    assert!(!second.lock_existing(&opened).unwrap());
    drop(opened);
    assert!(open(&mut second, 2).unwrap().is_empty());
    assert_eq!(fs::read(&target).unwrap(), CONTENT);
}

#[test]
fn concurrent_downloads_never_truncate() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("file");
    fetch(PartFile::new(&target), 1).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for version in 0..100 {
                        match fetch(PartFile::new(&target), version) {
                            Ok(()) | Err(OutputError::InUse { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(fs::read(&target).unwrap(), CONTENT);
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|result| result.unwrap());
    });
}

#[test]
fn replacement_keeps_permissions() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("file");
    fs::write(&target, "old").unwrap();
    for wanted in [0o600, 0o664, 0o755, 0o400] {
        fs::set_permissions(&target, fs::Permissions::from_mode(wanted)).unwrap();
        let mut output = PartFile::new(&target);
        open(&mut output, 1).unwrap();
        assert_eq!(mode(&dir.path().join(".file.weir-part")), wanted | 0o600);
        store(&mut output);
        output.finish(false).unwrap();
        assert_eq!((mode(&target), fs::read(&target).unwrap()), (wanted, CONTENT.to_vec()));
    }
    // Bits that would lend the owner's rights to the new content are not kept.
    fs::set_permissions(&target, fs::Permissions::from_mode(0o4755)).unwrap();
    fetch(PartFile::new(&target), 1).unwrap();
    assert_eq!(mode(&target), 0o755);
}

#[test]
fn replaces_only_own_results() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("file");
    let keeping = || PartFile::new(&target).keep_user_files();
    let is_refused = |output| {
        let error = fetch(output, 2).unwrap_err();
        assert!(matches!(error, OutputError::Exists { .. }), "{error}");
        assert_eq!(names(dir.path()), ["file"], "a refused download leaves nothing");
    };
    fs::write(&target, "mine").unwrap();
    is_refused(keeping());
    assert_eq!(fs::read(&target).unwrap(), b"mine");

    fetch(PartFile::new(&target), 1).unwrap();
    let mut value = [0; 100];
    if rustix::fs::getxattr(&target, "user.weir.fetched", &mut value[..]).is_err() {
        eprintln!("{}: no extended attributes, the rest is NOT tested", dir.path().display());
        return;
    }
    // Another version of the same object, and the file is as it was left.
    fetch(keeping(), 2).unwrap();
    // Another object.
    let mut other = keeping();
    let error = other.open(&Metadata::new("/other/object/54=%01".parse().unwrap())).err();
    assert!(matches!(error, Some(OutputError::Exists { .. })), "{error:?}");
    // Edited, to the same length, and longer.
    fs::write(&target, b"0000111123").unwrap();
    is_refused(keeping());
    assert_eq!(fs::read(&target).unwrap(), b"0000111123");
    fs::write(&target, b"00001111220").unwrap();
    is_refused(keeping());
    fs::write(&target, CONTENT).unwrap();
    fetch(keeping(), 3).unwrap();
}

#[test]
fn keeps_file_created_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("file");
    let mut output = PartFile::new(&target).keep_user_files();
    open(&mut output, 1).unwrap();
    store(&mut output);
    fs::write(&target, "mine").unwrap();
    let error = output.finish(false).unwrap_err();
    assert!(matches!(error, OutputError::Exists { .. }), "{error}");
    assert_eq!(fs::read(&target).unwrap(), b"mine");
    drop(output);
    // Nothing has to be fetched again.
    let mut output = PartFile::new(&target);
    assert_eq!(open(&mut output, 1).unwrap().len(), 3);
    output.sink(4).unwrap();
    output.finish(false).unwrap();
    assert_eq!(fs::read(&target).unwrap(), CONTENT);
    assert_eq!(names(dir.path()), ["file"]);
}

#[test]
fn replaces_only_regular_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("secret"), "precious").unwrap();
    fs::create_dir(path("directory")).unwrap();
    nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    symlink("secret", path("link")).unwrap();
    symlink("nowhere", path("dangling")).unwrap();
    let before = names(dir.path());
    for name in ["link", "dangling", "directory", "pipe"] {
        let error = fetch(PartFile::new(path(name)), 1).unwrap_err();
        let is_named = match name {
            "directory" => matches!(error, OutputError::Directory { .. }),
            "pipe" => matches!(error, OutputError::Special { .. }),
            _ => matches!(error, OutputError::SymbolicLink { .. }),
        };
        assert!(is_named, "{name}: {error}");
    }
    // Also if it is created during the download.
    let mut output = PartFile::new(path("file"));
    open(&mut output, 1).unwrap();
    store(&mut output);
    symlink("secret", path("file")).unwrap();
    let error = output.finish(false).unwrap_err();
    assert!(matches!(error, OutputError::SymbolicLink { .. }), "{error}");
    fs::remove_file(path("file")).unwrap();
    output.abandon();
    assert_eq!(fs::read(path("secret")).unwrap(), b"precious");
    assert_eq!(names(dir.path()), before);
}

#[test]
fn detects_swapped_part_file() {
    let dir = tempfile::tempdir().unwrap();
    let (target, part) = (dir.path().join("file"), dir.path().join(".file.weir-part"));
    for swap in [true, false] {
        let mut output = PartFile::new(&target);
        open(&mut output, 1).unwrap();
        store(&mut output);
        fs::remove_file(&part).unwrap();
        if swap {
            fs::write(&part, "forged").unwrap();
        }
        let error = output.finish(false).unwrap_err();
        assert!(matches!(error, OutputError::Replaced { .. }), "{error}");
        assert!(!target.exists());
        // What is not this download's is not removed.
        output.abandon();
        assert_eq!(part.exists(), swap);
    }
}

#[test]
fn removes_pipe_named_as_part_file() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("file");
    for suffix in [PART_SUFFIX, STATE_SUFFIX] {
        let pipe = dir.path().join(companion_name(OsStr::new("file"), suffix));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    }
    fetch(PartFile::new(&target), 1).unwrap();
    assert_eq!(names(dir.path()), ["file"]);
    assert_eq!(fs::read(&target).unwrap(), CONTENT);
}

#[test]
fn download_survives_moved_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("there")).unwrap();
    let mut output = PartFile::new(path("there/file"));
    open(&mut output, 1).unwrap();
    store(&mut output);
    fs::rename(path("there"), path("moved")).unwrap();
    symlink(dir.path(), path("there")).unwrap();
    output.finish(false).unwrap();
    assert_eq!(fs::read(path("moved/file")).unwrap(), CONTENT);
    assert_eq!(names(dir.path()), ["moved", "there"]);
}
