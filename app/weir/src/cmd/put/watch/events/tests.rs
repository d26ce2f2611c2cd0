use notify::event::{CreateKind, DataChange, Flag, RemoveKind};

use super::*;

const CREATE: EventKind = EventKind::Create(CreateKind::File);
const OPEN: EventKind = EventKind::Access(AccessKind::Open(AccessMode::Any));
const WRITE: EventKind = EventKind::Modify(ModifyKind::Data(DataChange::Any));
const CLOSE: EventKind = EventKind::Access(AccessKind::Close(AccessMode::Write));
const FROM: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::From));
const TO: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::To));
const REMOVE: EventKind = EventKind::Remove(RemoveKind::File);

/// Applies events to one file. The flag of each event states whether it must require a scan.
/// Returns whether the file is settled afterwards: changed just now, and changed long ago.
fn after(events: &[(EventKind, bool)]) -> [bool; 2] {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    std::fs::write(&path, b"x").unwrap();
    let mut writing = WriterTracker::default();
    for &(kind, looks) in events {
        let event = Event::new(kind).add_path(path.clone());
        assert_eq!(writing.on_event(&event).is_some(), looks, "{kind:?}");
    }
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    [Duration::ZERO, 10 * SETTLED_AGE].map(|age| {
        file.set_modified(SystemTime::now() - age).unwrap();
        writing.is_settled(&path, &file.metadata().unwrap())
    })
}

#[test]
fn file_is_settled_once_its_writer_closed() {
    assert_eq!(after(&[]), [false, true]);
    assert_eq!(after(&[(CREATE, true), (OPEN, false)]), [false, false]);
    assert_eq!(after(&[(CREATE, true), (OPEN, false), (WRITE, false)]), [false, false]);
    assert_eq!(after(&[(WRITE, false), (CLOSE, true)]), [true, true]);
    assert_eq!(after(&[(WRITE, false), (CLOSE, true), (WRITE, false)]), [false, false]);
}

#[test]
fn renamed_files_and_links_count_as_settled() {
    assert_eq!(after(&[(TO, true)]), [true, true]);
    assert_eq!(after(&[(WRITE, false), (FROM, true)]), [false, true]);
    // A new link: no writer opens it.
    assert_eq!(after(&[(CREATE, true)]), [false, true]);
    // A reader opens an existing file.
    assert_eq!(after(&[(OPEN, false)]), [false, true]);
    assert_eq!(after(&[(WRITE, false), (REMOVE, true)]), [false, true]);
}

#[test]
fn missed_events_reset_open_files() {
    let rescan = Event::new(EventKind::Other).set_flag(Flag::Rescan);
    let mut writing = WriterTracker::default();
    assert_eq!(writing.on_event(&Event::new(WRITE).add_path("/a".into())), None);
    assert_eq!(writing.open.len(), 1);
    assert_eq!(writing.on_event(&rescan), Some(ScanScope::All));
    assert!(writing.open.is_empty());
}

#[test]
fn renamed_directory_forgets_its_open_files() {
    let mut writing = WriterTracker::default();
    for (kind, path) in [(WRITE, "/a/b/c"), (WRITE, "/a/bc"), (FROM, "/a/b")] {
        let scope = writing.on_event(&Event::new(kind).add_path(path.into()));
        let folder = Path::new(path).parent().unwrap().to_owned();
        let expected = (kind != WRITE).then(|| ScanScope::Folders(BTreeSet::from([folder])));
        assert_eq!(scope, expected);
    }
    assert_eq!(writing.open, HashSet::from([PathBuf::from("/a/bc")]));
}

#[test]
fn too_many_folders_cause_a_full_scan() {
    let folders = |range: std::ops::Range<usize>| {
        ScanScope::Folders(range.map(|at| PathBuf::from(format!("/{at}"))).collect())
    };
    assert_eq!(folders(0..2).merge(folders(1..FOLDERS_MAX)), folders(0..FOLDERS_MAX));
    assert_eq!(folders(0..2).merge(folders(1..FOLDERS_MAX + 1)), ScanScope::All);
    assert_eq!(ScanScope::All.merge(folders(0..2)), ScanScope::All);
}
