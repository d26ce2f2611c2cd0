use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use weir_security::{DigestSigner, SignError, SignatureType, Signer};
use weir_wire::KeyLocator;

use super::layout::{MARK, MARK_TEXT, OBJECTS};
use super::*;
use crate::object::stored::ReadError;

/// A digest signer that counts signatures.
#[derive(Default)]
struct CountingSigner(AtomicU64);

impl CountingSigner {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Signer for CountingSigner {
    fn signature_type(&self) -> SignatureType {
        DigestSigner.signature_type()
    }

    fn key_locator(&self) -> Option<KeyLocator> {
        DigestSigner.key_locator()
    }

    fn sign(&self, signed: &[&[u8]]) -> Result<Vec<u8>, SignError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        DigestSigner.sign(signed)
    }
}

struct Fixture {
    folder: TempDir,
    signer: CountingSigner,
    options: PublishOptions,
    root: Name,
}

impl Fixture {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            signer: CountingSigner::default(),
            options: PublishOptions { segment_size: 1000, ..PublishOptions::default() },
            root: "/r".parse().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("repo")
    }

    fn open(&self) -> Repository {
        Repository::open(&self.path()).unwrap()
    }

    /// A file of this size with an old modification time.
    fn file(&self, name: &str, len: usize) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, vec![len as u8; len]).unwrap();
        std::thread::sleep(2 * FILE_TIME_TICK);
        path
    }

    fn put(&self, repository: &Repository, path: &Path, version: u64) -> PutResult {
        let mut name = self.root.clone();
        name.append_generic(path.file_name().unwrap().as_encoded_bytes());
        let label = Label { name: &name, version, signer: &self.signer, certificate: None };
        let putting =
            PutOptions { root: &self.root, is_version_fixed: false, options: &self.options };
        repository.put_file(path, label, putting, &mut |_| true).unwrap()
    }

    /// Puts a file and commits it.
    fn add(&self, repository: &mut Repository, path: &Path, version: u64) -> Published {
        let PutResult::Written(unsettled) = self.put(repository, path, version) else {
            panic!("it was there");
        };
        let published = repository.commit(vec![unsettled]).unwrap().pop().unwrap();
        repository.adopt(std::slice::from_ref(&published), &[]).unwrap();
        published
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path().join(OBJECTS)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// All packets of an object, segments first.
fn packets(published: &Published) -> Vec<Result<Packet, ReadError>> {
    let ObjectForm::Stored(stored) = &published.0 else { panic!("it is kept") };
    let (open, mut pool) = (stored.location.open().unwrap(), Pool::new(0));
    let mut read = |number| stored.read(number, &mut pool, |range, out| open.read(range, out));
    (0..stored.packets()).map(&mut read).collect()
}

fn intact_packets(published: &Published) -> Vec<Packet> {
    packets(published).into_iter().map(Result::unwrap).collect()
}

#[test]
fn does_not_sign_stored_objects_again() {
    let fixture = Fixture::new();
    let path = fixture.file("x", 5500);
    let mut repository = fixture.open();
    let published = fixture.add(&mut repository, &path, 7);
    let first = intact_packets(&published);
    // Six segments, a manifest part, metadata.
    assert_eq!((first.len(), fixture.signer.count()), (8, 8));
    for (number, packet) in first.iter().enumerate().take(6) {
        let data = DataView::decode(packet).unwrap();
        assert_eq!(data.name.last().unwrap().as_segment(), Some(number as u64));
        assert_eq!(data.content.len(), if number < 5 { 1000 } else { 500 });
    }
    drop(repository);
    let repository = fixture.open();
    assert_eq!(repository.load_report(), &LoadReport::default());
    let again: Vec<_> = repository.objects().collect();
    assert_eq!(again.len(), 1);
    assert!(intact_packets(&again[0]) == first);
    assert_eq!((again[0].segments(), again[0].size_bytes()), (6, 5500));
    assert_eq!(again[0].packet_bytes(), published.packet_bytes());
    assert_eq!(repository.roots(), std::slice::from_ref(&fixture.root));
    let PutResult::Unchanged(stored) = fixture.put(&repository, &path, 8) else {
        panic!("signed again")
    };
    assert!(intact_packets(&stored) == first);
    assert_eq!(fixture.signer.count(), 8);
}

#[test]
fn changed_file_gets_a_later_version() {
    let fixture = Fixture::new();
    let path = fixture.file("x", 2500);
    let mut repository = fixture.open();
    fixture.add(&mut repository, &path, 100);
    fixture.file("x", 2501);
    let published = fixture.add(&mut repository, &path, 50);
    let last = published.versioned().as_view().last().unwrap();
    assert_eq!(last.as_version(), Some(101));
    assert_eq!(fixture.files().len(), 1, "the old version stays");
    drop(repository);
    let repository = fixture.open();
    let again: Vec<_> = repository.objects().collect();
    assert_eq!(again[0].versioned(), published.versioned());
}

/// Another key, segment size or signing mode makes other packets from the same file.
#[test]
fn changed_options_sign_again() {
    let mut fixture = Fixture::new();
    let path = fixture.file("x", 2500);
    let mut repository = fixture.open();
    fixture.add(&mut repository, &path, 1);
    fixture.options.segment_size = 800;
    fixture.add(&mut repository, &path, 2);
    fixture.options.freshness_ms += 1;
    fixture.add(&mut repository, &path, 3);
    assert!(matches!(fixture.put(&repository, &path, 4), PutResult::Unchanged(_)));
}

#[test]
fn unfinished_objects_are_dropped() {
    let fixture = Fixture::new();
    let (x, y) = (fixture.file("x", 2500), fixture.file("y", 2500));
    let mut repository = fixture.open();
    fixture.add(&mut repository, &x, 1);
    let PutResult::Written(mut unsettled) = fixture.put(&repository, &y, 1) else {
        panic!("it was there")
    };
    // As if the process had been killed here.
    let Draft::File(draft) = &mut unsettled.draft else { panic!("it is a file") };
    draft.forget();
    drop((unsettled, repository));
    assert_eq!(fixture.files().len(), 2);
    let repository = fixture.open();
    assert_eq!(repository.load_report().unfinished, 1);
    assert_eq!(repository.objects().count(), 1);
    assert_eq!(fixture.files().len(), 1);
    // A dropped object leaves nothing either.
    drop(fixture.put(&repository, &y, 1));
    assert_eq!(fixture.files().len(), 1);
}

/// The process was killed between naming the new version and removing the old one.
#[test]
fn serves_later_of_two_versions() {
    let fixture = Fixture::new();
    let path = fixture.file("x", 2500);
    let mut repository = fixture.open();
    fixture.add(&mut repository, &path, 5);
    fixture.file("x", 2600);
    let PutResult::Written(unsettled) = fixture.put(&repository, &path, 6) else {
        panic!("it was there")
    };
    let later = repository.commit(vec![unsettled]).unwrap();
    drop(repository);
    assert_eq!(fixture.files().len(), 2);
    let repository = fixture.open();
    let found: Vec<_> = repository.objects().collect();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].versioned(), later[0].versioned());
    assert_eq!(fixture.files().len(), 1);
}

/// A power failure: the disk lost the later version's content after reporting it as written.
#[test]
fn torn_version_replaces_none() {
    let fixture = Fixture::new();
    let path = fixture.file("x", 2500);
    let mut repository = fixture.open();
    let earlier = fixture.add(&mut repository, &path, 5);
    fixture.file("x", 2600);
    let PutResult::Written(unsettled) = fixture.put(&repository, &path, 6) else {
        panic!("it was there")
    };
    let later = repository.commit(vec![unsettled]).unwrap().pop().unwrap();
    drop(repository);
    let file = File::options().write(true).open(later.path().unwrap()).unwrap();
    let len = file.metadata().unwrap().len();
    file.write_all_at(&vec![0; len as usize - 1000], 1000).unwrap();
    for _ in 0..2 {
        let mut repository = fixture.open();
        assert_eq!(repository.load_report().damaged, 1);
        let found: Vec<_> = repository.objects().collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].versioned(), earlier.versioned());
        assert_eq!(intact_packets(&found[0]).len(), 3 + 2);
        repository.adopt(&[], &[]).unwrap();
    }
    // Put again, it is signed again with a version later than both, which are then removed.
    let mut repository = fixture.open();
    fixture.add(&mut repository, &path, 7);
    let repository = fixture.open_again(repository);
    assert_eq!(repository.load_report(), &LoadReport::default());
    assert_eq!(fixture.files().len(), 1);
}

/// A program that has mapped a file changes it without a trace in its times.
#[test]
fn rejects_file_changed_while_copying() {
    let fixture = Fixture::new();
    let path = fixture.file("x", 5500);
    let repository = fixture.open();
    let name = fixture.root.clone().append_generic(b"x").clone();
    let label = Label { name: &name, version: 1, signer: &fixture.signer, certificate: None };
    let published = publish_file(&path, label, &fixture.options, &mut |_| true).unwrap();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"other", 2000).unwrap();
    file.set_modified(modified).unwrap();
    let error = repository.write_object(&published, &fixture.root, UNKNOWN_ORIGIN).unwrap_err();
    let is_changed = matches!(error, RepositoryError::Publish(PublishError::Changed { .. }));
    assert!(is_changed, "{error}");
    assert_eq!(fixture.files(), [""; 0]);
}

/// Opening a pipe waits for its writer.
#[test]
fn file_replaced_by_a_pipe_is_refused() {
    let fixture = Fixture::new();
    let path = fixture.folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let label =
        Label { name: &fixture.root, version: 1, signer: &fixture.signer, certificate: None };
    let error = publish_file(&path, label, &fixture.options, &mut |_| true).unwrap_err();
    assert!(matches!(error, PublishError::NoFile { .. }), "{error}");
}

/// The process was killed, or the disk was full, while it created the repository.
#[test]
fn completes_truncated_mark() {
    for len in 0..MARK_TEXT.len() {
        let fixture = Fixture::new();
        fs::create_dir(fixture.path()).unwrap();
        fs::write(fixture.path().join(MARK), &MARK_TEXT[..len]).unwrap();
        drop(fixture.open());
        assert_eq!(fs::read_to_string(fixture.path().join(MARK)).unwrap(), MARK_TEXT);
    }
}

/// A failed removal is repeated. The replacing object exists nevertheless.
#[test]
fn failed_removal_does_not_block() {
    let fixture = Fixture::new();
    let (x, y) = (fixture.file("x", 100), fixture.file("y", 100));
    let mut repository = fixture.open();
    let [old, _] = [&x, &y].map(|path| fixture.add(&mut repository, path, 1));
    // A folder has the file's name, so that it cannot be removed as a file.
    let place = old.path().unwrap();
    fs::remove_file(place).unwrap();
    fs::create_dir(place).unwrap();
    fixture.file("x", 101);
    fixture.file("y", 101);
    let new = [&x, &y].map(|path| match fixture.put(&repository, path, 2) {
        PutResult::Written(unsettled) => unsettled,
        PutResult::Unchanged(_) => panic!("it was there"),
    });
    let new = repository.commit(new.into()).unwrap();
    let error = repository.adopt(&new, &[]).unwrap_err();
    assert!(matches!(error, RepositoryError::Write { .. }), "{error}");
    assert!(repository.has_pending_removals());
    let stored: Vec<_> = repository.objects().collect();
    assert!(stored.iter().all(|object| object.size_bytes() == 101), "{stored:?}");
    assert_eq!(fixture.files().len(), 3);
    fs::remove_dir(place).unwrap();
    repository.adopt(&[], &[]).unwrap();
    assert!(!repository.has_pending_removals());
}

#[test]
fn damaged_object_is_signed_again() {
    let fixture = Fixture::new();
    let path = fixture.file("x", 5500);
    let mut repository = fixture.open();
    let published = fixture.add(&mut repository, &path, 1);
    let file = published.path().unwrap().to_owned();
    let mut octets = fs::read(&file).unwrap();
    let at = octets.len() - 20;
    octets[at] ^= 1;
    fs::write(&file, &octets).unwrap();
    let found = packets(&published);
    let damaged = found.iter().filter(|packet| matches!(packet, Err(ReadError::Damaged)));
    assert_eq!((found.len(), damaged.count()), (8, 1));
    drop(repository);
    // No packet has been read, so the damage is unknown.
    assert_eq!(fixture.open().load_report().damaged, 0);
    let ObjectForm::Stored(mut stored) = published.0 else { panic!("it is kept") };
    stored.mark_damaged().unwrap();
    let mut repository = fixture.open();
    assert_eq!(repository.load_report().damaged, 1);
    let republished = fixture.add(&mut repository, &path, 2);
    assert_eq!(intact_packets(&republished).len(), 8);
    assert_eq!(fixture.files().len(), 1, "the damaged one stays");
    assert_eq!(fixture.open_again(repository).load_report(), &LoadReport::default());
}

impl Fixture {
    fn open_again(&self, repository: Repository) -> Repository {
        drop(repository);
        self.open()
    }
}

#[test]
fn truncated_files_count_as_damaged() {
    let fixture = Fixture::new();
    let path = fixture.file("x", 5500);
    let mut repository = fixture.open();
    let file = fixture.add(&mut repository, &path, 1).path().unwrap().to_owned();
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let odd = fixture.path().join(OBJECTS).join("odd.obj");
    fs::write(&odd, b"weirobj\x01 what is this?").unwrap();
    let repository = fixture.open_again(repository);
    let findings = repository.load_report().clone();
    let expected = LoadReport { unfinished: 0, damaged: 1, unreadable: vec![odd.clone()] };
    assert_eq!(findings, expected);
    let found: Vec<_> = repository.objects().collect();
    let read = packets(&found[0]);
    assert_eq!(read.iter().filter(|packet| packet.is_err()).count(), 1);
    assert!(odd.exists());
    assert_eq!(fixture.open_again(repository).load_report(), &expected);
}

#[test]
fn removes_objects_of_removed_files() {
    let fixture = Fixture::new();
    let (x, y) = (fixture.file("x", 100), fixture.file("y", 100));
    let mut repository = fixture.open();
    let [_, stored] = [&x, &y].map(|path| fixture.add(&mut repository, path, 1));
    repository.put_packet(&certificate(), &"/key".parse().unwrap()).unwrap();
    repository.put_packet(&certificate(), &"/key".parse().unwrap()).unwrap();
    let names = |repository: &Repository, root: &str| -> Vec<String> {
        let root = root.parse().unwrap();
        repository.names_put_below(&root).map(|name| name.to_string()).collect()
    };
    assert_eq!(names(&repository, "/other"), [""; 0]);
    assert_eq!(names(&repository, "/r"), ["/r/x", "/r/y"]);
    assert_eq!(repository.version_of(&"/r/y".parse().unwrap()).as_ref(), Some(stored.versioned()));
    repository.adopt(&[], &["/r/x".parse().unwrap(), "/r/none".parse().unwrap()]).unwrap();
    assert!(!repository.has_pending_removals());
    let mut repository = fixture.open_again(repository);
    let left: Vec<_> = repository.objects().collect();
    assert_eq!(left.iter().map(Published::versioned).collect::<Vec<_>>(), [stored.versioned()]);
    assert_eq!(repository.remove(&"/r/x".parse().unwrap()).unwrap(), 0);
    assert_eq!(repository.remove(&"/r/y".parse().unwrap()).unwrap(), 1);
    let packets = repository.packets();
    assert_eq!((packets.intact.len(), &packets.unreadable[..]), (1, &[][..]));
    assert_eq!(packets.intact[0].1[..], certificate()[..]);
    assert_eq!(fixture.files().len(), 1);
}

fn certificate() -> Vec<u8> {
    weir_wire::Data::new("/key/KEY/1/self/54=%01".parse().unwrap()).encode_with_digest()
}

#[test]
fn repository_is_exclusive() {
    let fixture = Fixture::new();
    let repository = fixture.open();
    let error = Repository::open(&fixture.path()).unwrap_err();
    assert!(matches!(error, RepositoryError::InUse { .. }), "{error}");
    drop(repository);
    fixture.open();
    let folder = fixture.folder.path();
    fs::write(folder.join("something"), b"of mine").unwrap();
    let error = Repository::open(folder).unwrap_err();
    assert!(matches!(error, RepositoryError::NotARepository { .. }), "{error}");
    fs::write(fixture.path().join(MARK), b"weir repository 9\n").unwrap();
    let error = Repository::open(&fixture.path()).unwrap_err();
    assert!(matches!(error, RepositoryError::UnknownLayout { .. }), "{error}");
}

#[test]
fn roots_omit_nested_prefixes() {
    let fixture = Fixture::new();
    let path = fixture.file("x", 100);
    let mut repository = fixture.open();
    let mut fixture = fixture;
    for root in ["/r/a", "/r", "/q", "/r/a/b", "/ra"] {
        fixture.root = root.parse().unwrap();
        fixture.add(&mut repository, &path, 1);
    }
    let roots: Vec<String> = repository.roots().iter().map(ToString::to_string).collect();
    assert_eq!(roots, ["/q", "/r", "/ra"]);
}
