//! Signed packets on disk, to be served again without signing (`docs/repository.md`).
//!
//! A folder with a file for each object. A file is written beside its place and gets its name when
//! all of it is on disk, so that what has a name is whole.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::posix_fallocate;
use weir_base::{Packet, Pool};
use weir_disk::{LockHolder, Locked, checksum, lock};
use weir_security::sha256;
use weir_transport::SealedObject;
use weir_wire::tlv::{self, Writer};
use weir_wire::{DataView, Name, NameView};

use crate::kept::{
    DAMAGED, Header, Kept, Origin, SOUND, TRAILER_BYTES, Whole, object_number, seal_slot,
};
use crate::publish::{
    Label, PublishError, PublishOptions, listing_octets, publish_file, publish_listing,
    signature_info,
};
use crate::published::{Content, Fingerprint, Form, Published};

/// The file that makes a folder a repository, and that its process holds locked.
const MARK: &str = "repository";
/// What that says.
const MARK_TEXT: &str = "weir repository 1\n";
/// The folder of the files of objects.
const OBJECTS: &str = "objects";
/// The ending of files that are being written.
const NEW: &str = "new";
/// Of a file: that it may have changed since without its times showing it.
const UNKNOWN: Origin = [0; 32];
/// The times of a file system are no finer than this.
const TICK: Duration = Duration::from_millis(20);
/// Segments that are written at a time.
const BATCH_SEGMENTS: u64 = 64;

/// Why a repository cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// What of it.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It cannot be written. What was there is there.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// What of it.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The folder has other things in it.
    #[error("{} is no repository and not empty", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
    },
    /// Another version of this program made it.
    #[error("{} has a layout that is not known here", path.display())]
    Layout {
        /// The folder.
        path: PathBuf,
    },
    /// Another process uses it.
    #[error("{} is in use by {}", path.display(), who(holder.as_ref()))]
    InUse {
        /// The folder.
        path: PathBuf,
        /// Which process, if it can be known.
        holder: Option<LockHolder>,
    },
    /// An object cannot be made.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

fn who(holder: Option<&LockHolder>) -> String {
    holder.map_or_else(|| "another process".into(), ToString::to_string)
}

/// What was found in a repository besides objects that are whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Files that were being written when a process ended. They are gone.
    pub unfinished: u64,
    /// Files of which not all is what was written. The rest of them is served.
    pub damaged: u64,
    /// Files that cannot be read, or do not even say what they are. They are left alone.
    pub unreadable: Vec<PathBuf>,
}

/// Keeps signed objects in a folder.
#[derive(Debug)]
pub struct Repository {
    path: PathBuf,
    objects_path: PathBuf,
    /// Locked as long as the repository is used.
    _mark: File,
    /// The latest version of each object, by the value of the object's name.
    objects: BTreeMap<Vec<u8>, Kept>,
    /// Whole packets alone.
    loose: Vec<Kept>,
    findings: Findings,
}

/// An object that is written, and has no name of its own yet.
#[derive(Debug)]
pub struct Unsettled {
    kept: Kept,
    written: PathBuf,
    file: File,
    is_settled: bool,
}

impl Unsettled {
    /// Octets of the object.
    pub fn size_bytes(&self) -> u64 {
        self.kept.header.size_bytes
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        if !self.is_settled {
            let _ = fs::remove_file(&self.written);
        }
    }
}

/// What has become of something that was put.
#[derive(Debug)]
pub enum Put {
    /// It is ready: there as it was.
    Ready(Published),
    /// It has been signed and written, and is to be settled.
    New(Unsettled),
}

/// How objects are put into a repository.
#[derive(Copy, Clone, Debug)]
pub struct Putting<'a> {
    /// The name below which they are put.
    pub root: &'a Name,
    /// The version is the one that the label says, even where there is a later one.
    pub is_version_fixed: bool,
    /// How they are made.
    pub options: &'a PublishOptions,
}

impl Repository {
    /// Opens the repository in a folder, and makes it if the folder is empty or missing. Reads the
    /// beginning of each file, and removes those that were not finished.
    ///
    /// # Errors
    /// [`RepositoryError`].
    pub fn open(path: &Path) -> Result<Self, RepositoryError> {
        let mark = open_mark(path)?;
        let objects_path = path.join(OBJECTS);
        fs::create_dir_all(&objects_path).map_err(write_error(&objects_path))?;
        let mut repository = Self {
            path: path.to_owned(),
            objects_path,
            _mark: mark,
            objects: BTreeMap::new(),
            loose: Vec::new(),
            findings: Findings::default(),
        };
        repository.load()?;
        Ok(repository)
    }

    fn load(&mut self) -> Result<(), RepositoryError> {
        let folder = self.objects_path.clone();
        let entries = fs::read_dir(&folder).map_err(read_error(&folder))?;
        let mut paths = Vec::new();
        for entry in entries {
            let path = entry.map_err(read_error(&folder))?.path();
            match path.extension().and_then(|ending| ending.to_str()) {
                Some(NEW) => {
                    fs::remove_file(&path).map_err(write_error(&path))?;
                    self.findings.unfinished += 1;
                }
                Some(SOUND | DAMAGED) => paths.push(path),
                _ => {}
            }
        }
        for (path, found) in open_all(&paths) {
            match found {
                Ok(Some(kept)) => self.insert(kept)?,
                // The others are good all the same.
                Ok(None) | Err(_) => self.findings.unreadable.push(path.clone()),
            }
        }
        self.findings.unreadable.sort_unstable();
        let all = self.objects.values().chain(&self.loose);
        self.findings.damaged = all.filter(|kept| kept.is_damaged).count() as u64;
        Ok(())
    }

    /// Of two versions of an object the later one stays.
    fn insert(&mut self, mut kept: Kept) -> Result<(), RepositoryError> {
        if kept.is_damaged && kept.path.extension().is_some_and(|ending| ending == SOUND) {
            let path = kept.path.clone();
            kept.mark_damaged().map_err(write_error(&path))?;
        }
        if kept.header.segments == 0 {
            self.loose.push(kept);
            return Ok(());
        }
        let name = kept.object().to_vec();
        if let Some(other) = self.objects.remove(&name) {
            let rank = |kept: &Kept| (version(kept), !kept.is_damaged);
            let (later, earlier) = match rank(&kept) < rank(&other) {
                true => (other, kept),
                false => (kept, other),
            };
            remove_file(&earlier.path)?;
            kept = later;
        }
        self.objects.insert(name, kept);
        Ok(())
    }

    /// What was found when it was opened.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// All objects.
    pub fn objects(&self) -> impl Iterator<Item = Published> + '_ {
        self.objects.values().map(|kept| Published(Form::Kept(Box::new(kept.clone()))))
    }

    /// Packets that belong to no object, such as certificates, and the names below which they were
    /// put. Those that are damaged are not among them.
    pub fn packets(&self) -> Vec<(Name, Packet)> {
        let mut pool = Pool::new(0);
        let mut read = |kept: &Kept| {
            let file = File::open(&kept.path).ok()?;
            let count = kept.header.whole.len() as u64;
            let packets = (0..count).filter_map(|number| kept.read(&file, number, &mut pool).ok());
            let root = &kept.header.root;
            Some(packets.map(|packet| (root.clone(), packet)).collect::<Vec<_>>())
        };
        self.loose.iter().filter_map(&mut read).flatten().collect()
    }

    /// The names below which objects were put, none of them below another.
    pub fn roots(&self) -> Vec<Name> {
        let roots: BTreeSet<&[u8]> =
            self.objects.values().map(|kept| kept.header.root.value()).collect();
        let mut top: Vec<Name> = Vec::new();
        for root in roots {
            let root = NameView::from_value(root).expect("it is a name's");
            // In this order a prefix comes before what is below it, and nothing else between.
            if top.last().is_none_or(|last| !last.as_view().is_prefix_of(root)) {
                top.push(root.to_name());
            }
        }
        top
    }

    /// Signs a file and writes it down, unless it is there as it would be made.
    ///
    /// # Errors
    /// [`RepositoryError`].
    pub fn put_file(
        &self,
        path: &Path,
        label: Label<'_>,
        putting: Putting<'_>,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Put, RepositoryError> {
        let read_error = |source| PublishError::Read { path: path.to_owned(), source };
        let metadata = fs::metadata(path).map_err(read_error)?;
        let origin = origin_of_file(&metadata, label, putting.options);
        if let Some(there) = self.find(label.name, label.version, putting, origin) {
            return Ok(Put::Ready(there));
        }
        let label = self.later(label, label.name, putting);
        let published = publish_file(path, label, putting.options, progress)?;
        Ok(Put::New(self.keep(&published, putting.root, origin)?))
    }

    /// Signs the listing of a directory and writes it down, unless it is there as it would be made.
    ///
    /// # Errors
    /// [`RepositoryError`].
    pub fn put_listing(
        &self,
        entries: &[(Vec<u8>, bool)],
        label: Label<'_>,
        putting: Putting<'_>,
    ) -> Result<Put, RepositoryError> {
        let origin = origin(b"listing", &listing_octets(entries), label, putting.options);
        let mut listing = label.name.clone();
        listing.append_keyword(weir_transport::LISTING_KEYWORD);
        if let Some(there) = self.find(&listing, label.version, putting, origin) {
            return Ok(Put::Ready(there));
        }
        let label = self.later(label, &listing, putting);
        let published = publish_listing(entries, label, putting.options)?;
        Ok(Put::New(self.keep(&published, putting.root, origin)?))
    }

    /// Writes down a packet that is to be served below `root`, such as a certificate, unless it is
    /// there.
    ///
    /// # Errors
    /// [`RepositoryError`].
    ///
    /// # Panics
    /// When it is no Data.
    pub fn put_packet(&mut self, packet: &[u8], root: &Name) -> Result<(), RepositoryError> {
        let name = DataView::decode(packet).expect("it is Data").name.to_name();
        let origin = sha256(&[packet]);
        if self.loose.iter().any(|kept| kept.header.origin == origin && !kept.is_damaged) {
            return Ok(());
        }
        let header = Header {
            versioned: name,
            root: root.clone(),
            origin,
            segments: 0,
            slot_bytes: 0,
            size_bytes: 0,
            packet_bytes: 0,
            whole: Vec::new(),
        };
        let unsettled = self.write(header, [packet.into()].as_slice(), |_, _| Ok(()))?;
        for published in self.settle(vec![unsettled])? {
            if let Form::Kept(kept) = published.0 {
                self.loose.retain(|other| other.header.versioned != kept.header.versioned);
                self.loose.push(*kept);
            }
        }
        Ok(())
    }

    /// The object of that name if it was made of the same in the same way.
    fn find(
        &self,
        name: &Name,
        version_wanted: u64,
        putting: Putting<'_>,
        origin: Origin,
    ) -> Option<Published> {
        let kept = self.objects.get(name.value())?;
        let is_it = kept.header.origin == origin
            && origin != UNKNOWN
            && kept.header.root == *putting.root
            && !kept.is_damaged
            && (!putting.is_version_fixed || version(kept) == Some(version_wanted));
        is_it.then(|| Published(Form::Kept(Box::new(kept.clone()))))
    }

    /// With a version that is later than the one there is.
    fn later<'a>(&self, label: Label<'a>, object: &Name, putting: Putting<'_>) -> Label<'a> {
        let there = self.objects.get(object.value()).and_then(version);
        let least =
            there.filter(|_| !putting.is_version_fixed).map_or(0, |there| there.saturating_add(1));
        Label { version: label.version.max(least), ..label }
    }

    fn keep(
        &self,
        published: &Published,
        root: &Name,
        origin: Origin,
    ) -> Result<Unsettled, RepositoryError> {
        let Form::Sealed(object, content) = &published.0 else { unreachable!("it was just made") };
        let header = Header {
            versioned: object.versioned.clone(),
            root: root.clone(),
            origin,
            segments: object.segments(),
            slot_bytes: object.packet_bytes_max() + TRAILER_BYTES as u64,
            size_bytes: object.size_bytes,
            packet_bytes: published.packet_bytes(),
            whole: Vec::new(),
        };
        let slot_bytes = header.slot_bytes;
        self.write(header, &object.packets, |file, body_at| {
            copy_segments(object, content, (file, body_at, slot_bytes))
        })
    }

    /// Writes a file beside its place: the header, what `segments` writes from an offset on, and
    /// `packets`.
    fn write(
        &self,
        mut header: Header,
        packets: &[Packet],
        segments: impl FnOnce(&File, u64) -> Result<(), Failure>,
    ) -> Result<Unsettled, RepositoryError> {
        let mut offset = 0;
        for packet in packets {
            let name = DataView::decode(packet).expect("it was made as Data").name.to_name();
            let len = packet.len() as u32;
            header.whole.push(Whole { name, offset, len, checksum: checksum(packet) });
            offset += u64::from(len);
        }
        let digest = sha256(&[header.versioned.value()]);
        let stem: String = digest[..16].iter().map(|octet| format!("{octet:02x}")).collect();
        let place = self.objects_path.join(stem);
        let (written, path) = (place.with_extension(NEW), place.with_extension(SOUND));
        let octets = header.encode();
        let (body_at, slots) = (octets.len() as u64, header.segments * header.slot_bytes);
        let mut how = File::options();
        how.read(true).write(true).create(true).truncate(true);
        let file = how.open(&written).map_err(write_error(&written))?;
        let kept = Kept::new(path, header, octets.len());
        let unsettled = Unsettled { kept, written, file, is_settled: false };
        let file = &unsettled.file;
        let write = || -> Result<(), Failure> {
            reserve(file, body_at + slots + offset)?;
            file.write_all_at(&octets, 0)?;
            segments(file, body_at)?;
            file.write_all_at(
                &packets.iter().map(|packet| &packet[..]).collect::<Vec<_>>().concat(),
                body_at + slots,
            )?;
            Ok(())
        };
        match write() {
            Ok(()) => Ok(unsettled),
            Err(Failure::Write(source)) => {
                Err(RepositoryError::Write { path: unsettled.written.clone(), source })
            }
            Err(Failure::Publish(error)) => Err(error.into()),
        }
    }

    /// Gives objects that are written their names, once they are on disk: whatever happens after,
    /// they are there at the next start.
    ///
    /// # Errors
    /// [`RepositoryError::Write`]. Some of them may have their names.
    pub fn settle(&self, all: Vec<Unsettled>) -> Result<Vec<Published>, RepositoryError> {
        match &all[..] {
            [] => return Ok(Vec::new()),
            [one] => one.file.sync_data().map_err(write_error(&one.written))?,
            // One flush for all.
            [first, ..] => nix::unistd::syncfs(&first.file)
                .map_err(|errno| write_error(&self.objects_path)(errno.into()))?,
        }
        let mut published = Vec::with_capacity(all.len());
        for mut unsettled in all {
            let path = &unsettled.kept.path;
            fs::rename(&unsettled.written, path).map_err(write_error(path))?;
            unsettled.is_settled = true;
            published.push(Published(Form::Kept(Box::new(unsettled.kept.clone()))));
        }
        let folder = File::open(&self.objects_path).and_then(|folder| folder.sync_all());
        folder.map_err(write_error(&self.objects_path))?;
        Ok(published)
    }

    /// Takes in what has been put below `root`, all of it, and removes what else was put there and
    /// what these are later versions of.
    ///
    /// # Errors
    /// [`RepositoryError::Write`].
    pub fn replace<'a>(
        &mut self,
        root: &Name,
        put: impl IntoIterator<Item = &'a Published>,
    ) -> Result<(), RepositoryError> {
        let mut there = HashSet::new();
        for published in put {
            let Form::Kept(kept) = &published.0 else { continue };
            self.take_place(kept)?;
            there.insert(kept.object().to_vec());
        }
        self.remove_if(|name, kept| kept.header.root == *root && !there.contains(name))?;
        Ok(())
    }

    /// Takes in what has been put, and removes what these are later versions of, and objects of
    /// these names.
    ///
    /// # Errors
    /// [`RepositoryError::Write`].
    pub fn take_in(
        &mut self,
        put: &[Published],
        withdrawn: &[Name],
    ) -> Result<(), RepositoryError> {
        for published in put {
            if let Form::Kept(kept) = &published.0 {
                self.take_place(kept)?;
            }
        }
        for name in withdrawn {
            if let Some(kept) = self.objects.remove(name.value()) {
                remove_file(&kept.path)?;
            }
        }
        Ok(())
    }

    /// Takes in an object in the place of another of its name.
    fn take_place(&mut self, kept: &Kept) -> Result<(), RepositoryError> {
        let name = kept.object().to_vec();
        let old = self.objects.insert(name, kept.clone());
        match old {
            Some(old) if old.path != kept.path => remove_file(&old.path),
            _ => Ok(()),
        }
    }

    /// Removes all objects whose name is `name` or below it. How many.
    ///
    /// # Errors
    /// [`RepositoryError::Write`].
    pub fn remove(&mut self, name: &Name) -> Result<u64, RepositoryError> {
        let prefix = name.as_view();
        self.remove_if(|object, _| {
            NameView::from_value(object).is_ok_and(|object| prefix.is_prefix_of(object))
        })
    }

    fn remove_if(
        &mut self,
        is_to_go: impl Fn(&Vec<u8>, &Kept) -> bool,
    ) -> Result<u64, RepositoryError> {
        let mut removed = 0;
        for (_, kept) in self.objects.extract_if(.., |name, kept| is_to_go(name, kept)) {
            remove_file(&kept.path)?;
            removed += 1;
        }
        Ok(removed)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Opens the file that makes a folder a repository, and locks it.
fn open_mark(path: &Path) -> Result<File, RepositoryError> {
    fs::create_dir_all(path).map_err(write_error(path))?;
    let mark = path.join(MARK);
    let is_new = !mark.try_exists().map_err(read_error(&mark))?;
    if is_new && fs::read_dir(path).map_err(read_error(path))?.next().is_some() {
        return Err(RepositoryError::Foreign { path: path.to_owned() });
    }
    let options = File::options().read(true).write(true).create(true).truncate(false).open(&mark);
    let mut file = options.map_err(write_error(&mark))?;
    if let Locked::No(holder) = lock(&file).map_err(write_error(&mark))? {
        return Err(RepositoryError::InUse { path: path.to_owned(), holder });
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(read_error(&mark))?;
    match text.as_str() {
        MARK_TEXT => {}
        // Whoever made it got no further.
        "" => file.write_all(MARK_TEXT.as_bytes()).map_err(write_error(&mark))?,
        _ => return Err(RepositoryError::Layout { path: path.to_owned() }),
    }
    Ok(file)
}

/// Reads the headers of all files, several at a time.
fn open_all(paths: &[PathBuf]) -> Vec<(&PathBuf, io::Result<Option<Kept>>)> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(paths.len())));
    std::thread::scope(|scope| {
        for _ in 0..threads.min(paths.len().div_ceil(64)) {
            scope.spawn(|| {
                let mut mine = Vec::new();
                while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                    mine.push((path, Kept::open(path)));
                }
                all.lock().expect("nobody panics with it").extend(mine);
            });
        }
    });
    all.into_inner().expect("nobody panics with it")
}

/// Why a file of a repository is not written.
enum Failure {
    Write(io::Error),
    Publish(PublishError),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

/// Has the file system set room aside, so that a lack of it shows before anything is written.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let bytes = i64::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    match posix_fallocate(file, 0, bytes) {
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) | Ok(()) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Writes all segments, each into its slot.
fn copy_segments(
    object: &SealedObject,
    content: &Content,
    (out, body_at, slot_bytes): (&File, u64, u64),
) -> Result<(), Failure> {
    let source = match content {
        Content::File { path, fingerprint } => Some((path, fingerprint, open_source(path)?)),
        _ => None,
    };
    let number = object_number(&object.versioned);
    let (segments, slot) = (object.segments(), slot_bytes as usize);
    let mut batch = vec![0; slot * segments.min(BATCH_SEGMENTS) as usize];
    for first in (0..segments).step_by(BATCH_SEGMENTS as usize) {
        let count = (segments - first).min(BATCH_SEGMENTS) as usize;
        let slots = batch[..slot * count].chunks_exact_mut(slot);
        for (segment, place) in (first..).zip(slots) {
            let (frame, offset) = object.write(segment, place);
            let room = &mut place[frame.content];
            match (&source, content) {
                (Some((path, _, file)), _) => {
                    file.read_exact_at(room, offset).map_err(|error| unread(path, error))?;
                }
                (None, Content::Memory(octets)) => {
                    room.copy_from_slice(&octets[offset as usize..][..room.len()]);
                }
                (None, _) => unreachable!("what was just signed is there"),
            }
            seal_slot(place, number, segment, frame.len);
        }
        out.write_all_at(&batch[..slot * count], body_at + first * slot_bytes)?;
    }
    if let Some((path, fingerprint, file)) = source
        && Fingerprint::of(&file).map_err(|error| unread(path, error))? != *fingerprint
    {
        return Err(Failure::Publish(PublishError::Changed { path: path.clone() }));
    }
    Ok(())
}

fn open_source(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|error| unread(path, error))
}

fn unread(path: &Path, source: io::Error) -> Failure {
    let path = path.to_owned();
    Failure::Publish(match source.kind() {
        io::ErrorKind::UnexpectedEof => PublishError::Changed { path },
        _ => PublishError::Read { path, source },
    })
}

/// What tells whether a file is as it was, and would be signed as it was. More than
/// [`Fingerprint`] has, because it is for as long as there are files; the number of a device is for
/// as long as the system runs.
fn origin_of_file(metadata: &fs::Metadata, label: Label<'_>, options: &PublishOptions) -> Origin {
    let numbers = [
        metadata.ino(),
        metadata.len(),
        u64::from(metadata.mode()),
        metadata.mtime() as u64,
        metadata.mtime_nsec() as u64,
        metadata.ctime() as u64,
        metadata.ctime_nsec() as u64,
    ];
    let changed = UNIX_EPOCH + Duration::from_secs(metadata.ctime().max(0) as u64);
    let changed = changed + Duration::from_nanos(metadata.ctime_nsec() as u64);
    if SystemTime::now().duration_since(changed).is_ok_and(|age| age < TICK) {
        return UNKNOWN;
    }
    let octets: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    origin(b"file", &octets, label, options)
}

/// A digest of what an object is made of and how. Not of the version.
fn origin(kind: &[u8], source: &[u8], label: Label<'_>, options: &PublishOptions) -> Origin {
    let mut writer = Writer::new();
    let sizes = [
        options.segment_size as u64,
        options.freshness_ms,
        options.metadata_freshness_ms,
        options.signs as u64,
    ];
    for size in sizes {
        writer.nni(tlv::CONTENT, size);
    }
    signature_info(label.signer).write(tlv::SIGNATURE_INFO, &mut writer);
    writer.tlv(tlv::CONTENT, label.certificate.unwrap_or_default());
    writer.tlv(tlv::CONTENT, kind);
    writer.tlv(tlv::CONTENT, source);
    sha256(&[writer.as_slice()])
}

fn version(kept: &Kept) -> Option<u64> {
    kept.header.versioned.as_view().last()?.as_version()
}

fn remove_file(path: &Path) -> Result<(), RepositoryError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(write_error(path)(error)),
        _ => Ok(()),
    }
}

fn read_error(path: &Path) -> impl FnOnce(io::Error) -> RepositoryError {
    let path = path.to_owned();
    move |source| RepositoryError::Read { path, source }
}

fn write_error(path: &Path) -> impl FnOnce(io::Error) -> RepositoryError {
    let path = path.to_owned();
    move |source| RepositoryError::Write { path, source }
}

#[cfg(test)]
mod tests;
