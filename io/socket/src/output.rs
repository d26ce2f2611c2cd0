//! What becomes of a download: a file that appears when it is whole, a stream, or memory.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::libc;
use weir_security::sha256;
use weir_transport::{ContentDigest, Delivery, Metadata, SegmentSet};
use weir_wire::{Name, NameView, PACKET_SIZE_MAX};

use crate::notifier::Notifier;
use crate::sink::{Checksums, FileSink, checksum};

/// Where the segments of one object are to go.
pub trait Output: Send {
    /// Whether all of this takes so little time that the network thread may do it.
    fn is_quick(&self) -> bool {
        false
    }

    /// Called once, when it is known what is to be fetched, from another thread than the rest
    /// unless it [is quick](Output::is_quick).
    ///
    /// # Errors
    /// [`OutputError`].
    fn open(&mut self, metadata: &Metadata) -> Result<Opened, OutputError>;

    /// What takes the segments of a file, once their size is known.
    ///
    /// # Errors
    /// [`OutputError`].
    fn sink(&mut self, segment_size: u64) -> Result<Arc<FileSink>, OutputError> {
        let _ = segment_size;
        unreachable!("a stream takes no segments")
    }

    /// Makes what is there last; `have` are the segments stored so far. Called now and then and
    /// when the download ends early, perhaps from another thread than the rest.
    ///
    /// # Errors
    /// What the system says.
    fn save(&mut self, have: &SegmentSet) -> io::Result<()> {
        let _ = have;
        Ok(())
    }

    /// The last [`Output::save`] of a download that ends early: nothing more will be stored, so
    /// that something of it may be given up to note the rest.
    ///
    /// # Errors
    /// What the system says.
    fn save_last(&mut self, have: &SegmentSet) -> io::Result<()> {
        self.save(have)
    }

    /// Nothing was stored and nothing will be: leaves no trace.
    fn abandon(&mut self) {}

    /// The file that has to be written out before [`Output::finish`].
    fn file(&self) -> Option<&FileSink> {
        None
    }

    /// The object is whole. `is_synced`: its [`Output::file`] has been written out since.
    ///
    /// # Errors
    /// [`OutputError`].
    fn finish(&mut self, is_synced: bool) -> Result<(), OutputError> {
        let _ = is_synced;
        Ok(())
    }
}

/// Takes packets and never waits: whoever reads them has a thread of its own.
pub trait PacketReader: Send {
    /// Takes packets, after all that were given before.
    fn take(&mut self, packets: &mut Vec<Delivery>);

    /// Gives it what it notifies when [`PacketReader::done`] has something to say. Called first,
    /// once.
    fn attach(&mut self, notifier: Notifier);

    /// How many packets it is done with since the last call; `None` if nobody reads any more.
    fn done(&mut self) -> Option<u32>;
}

/// What an output takes.
pub enum Opened {
    /// Segments in any order, each in its place.
    File {
        /// Segments that are there already.
        have: SegmentSet,
        /// Octets of Content in each segment but the last, as far as known from before.
        segment_size: Option<u64>,
    },
    /// Octets in their order.
    Stream(Box<dyn Write + Send>),
    /// Packets in their order, a part of the object perhaps.
    Reader {
        /// Takes them.
        reader: Box<dyn PacketReader>,
        /// The segments that are wanted.
        segments: Range<u64>,
        /// Packets at most that wait with the reader; more wait with the consumer.
        packets_max: u32,
    },
    /// Nothing: all of it is there, and right.
    There,
}

/// Why an output cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process writes the same file.
    #[error("{} is being written by another process", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The object does not fit into memory set aside for it.
    #[error("the object is larger than {max_bytes} octets")]
    TooLarge {
        /// The bound.
        max_bytes: u64,
    },
    /// The name is that of a file which a download of another name keeps.
    #[error("{} is a name that downloads use while they go on; choose another", path.display())]
    Reserved {
        /// The file.
        path: PathBuf,
    },
}

/// A file that is written under another name, `.<name>.weir-part` beside it, until it is whole.
/// What has been verified is noted in `.<name>.weir-state`, so that a later download of the same
/// version goes on from there. A digest stands for names too long for that.
///
/// Others may write to the same directory: links are not followed, and what is not this user's own
/// file is never gone on with.
#[derive(Debug)]
pub struct PartFile {
    target: PathBuf,
    part: PathBuf,
    state: PathBuf,
    new_state: PathBuf,
    versioned: Name,
    segment_size: Option<u64>,
    open: Option<Arc<FileSink>>,
    file: Option<File>,
    /// Of the segments that are there from before.
    checksums: Checksums,
    /// A file that is what the object is need not be fetched.
    may_be_there: bool,
}

/// What a state file tells of a version.
struct State {
    segment_size: u64,
    have: SegmentSet,
    checksums: Checksums,
}

const STATE_MAGIC: &[u8; 8] = b"weirpt02";
const DIGEST_LEN: usize = 32;
/// Largest state file read: segments of a petabyte.
const STATE_BYTES_MAX: u64 = 16 << 30;
/// Room that a file system may need for a new file beside its octets.
const SPARE_BYTES: u64 = 64 << 10;
/// Octets of a file's name at most (Linux, NAME_MAX).
const FILE_NAME_MAX: usize = 255;
const PART_SUFFIX: &str = ".weir-part";
const STATE_SUFFIX: &str = ".weir-state";
const NEW_STATE_SUFFIX: &str = ".weir-new";

/// Whether a file of that name would be taken for what a download keeps of another.
pub fn is_reserved_name(name: &[u8]) -> bool {
    let suffixes = [PART_SUFFIX, STATE_SUFFIX, NEW_STATE_SUFFIX];
    name.starts_with(b".") && suffixes.iter().any(|suffix| name.ends_with(suffix.as_bytes()))
}

/// The name of a file that belongs to a download of `name`.
fn side_name(name: &OsStr, suffix: &str) -> OsString {
    let mut octets = vec![b'.'];
    // As if every suffix had the length of the longest, so that all are made in one way.
    if 1 + name.len() + STATE_SUFFIX.len() <= FILE_NAME_MAX {
        octets.extend_from_slice(name.as_bytes());
    } else {
        let digest = sha256(&[name.as_bytes()]);
        octets.extend(digest.iter().flat_map(|octet| format!("{octet:02x}").into_bytes()));
    }
    octets.extend_from_slice(suffix.as_bytes());
    OsString::from_vec(octets)
}

/// Whether it is a file of this user, under one name: no other user has put it there.
fn is_own(file: &File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    let is_ours = metadata.uid() == nix::unistd::geteuid().as_raw();
    Ok(metadata.is_file() && metadata.nlink() == 1 && is_ours)
}

/// Options that follow no link and do not wait at a pipe.
fn wary(options: &mut fs::OpenOptions) -> &mut fs::OpenOptions {
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
}

impl PartFile {
    /// An output that becomes `target`. Nothing is touched yet.
    pub fn new(target: impl Into<PathBuf>) -> Self {
        let target = target.into();
        let name = target.file_name().unwrap_or_default();
        let beside = |suffix| target.with_file_name(side_name(name, suffix));
        Self {
            part: beside(PART_SUFFIX),
            state: beside(STATE_SUFFIX),
            new_state: beside(NEW_STATE_SUFFIX),
            target,
            versioned: Name::new(),
            segment_size: None,
            open: None,
            file: None,
            checksums: Checksums::new(),
            may_be_there: false,
        }
    }

    /// Nothing is to be fetched if the target is there and has the digest that metadata states.
    #[must_use]
    pub fn unless_there(mut self) -> Self {
        self.may_be_there = true;
        self
    }

    /// What the state file says about this version, if anything.
    fn load(&self) -> Option<State> {
        let mut octets = Vec::new();
        let file = wary(File::options().read(true)).open(&self.state).ok()?;
        if !is_own(&file).ok()? {
            return None;
        }
        file.take(STATE_BYTES_MAX).read_to_end(&mut octets).ok()?;
        let (name, state) = decode_state(&octets)?;
        (name == self.versioned.as_view()).then_some(state)
    }

    /// Opens the part file, for this download alone.
    fn open_part(&self) -> Result<File, OutputError> {
        let file = wary(File::options().read(true).write(true).create(true).truncate(false))
            .open(&self.part)
            .map_err(|source| self.error(source))?;
        self.lock(&file)?;
        if is_own(&file).map_err(|source| self.error(source))? {
            return Ok(file);
        }
        // Somebody else's, and nothing to go on with.
        fs::remove_file(&self.part).map_err(|source| self.error(source))?;
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&self.part)
            .map_err(|source| self.error(source))?;
        self.lock(&file)?;
        Ok(file)
    }

    fn lock(&self, file: &File) -> Result<(), OutputError> {
        match file.try_lock() {
            // Some file systems have no locks.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
            Err(TryLockError::WouldBlock) => Err(OutputError::Busy { path: self.target.clone() }),
        }
    }

    fn error(&self, source: io::Error) -> OutputError {
        OutputError::Io { path: self.part.clone(), source }
    }

    fn write_state(&self, state: &[u8]) -> io::Result<()> {
        remove_if_there(&self.new_state)?;
        let mut new = File::options().write(true).create_new(true).open(&self.new_state)?;
        let written = new.write_all(state).and_then(|()| fs::rename(&self.new_state, &self.state));
        if written.is_err() {
            // Half of it is of no use to anybody.
            let _ = fs::remove_file(&self.new_state);
        }
        written
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Output for PartFile {
    fn open(&mut self, metadata: &Metadata) -> Result<Opened, OutputError> {
        self.versioned = metadata.versioned.clone();
        if is_reserved_name(self.target.file_name().unwrap_or_default().as_bytes()) {
            return Err(OutputError::Reserved { path: self.target.clone() });
        }
        if self.may_be_there && is_there(&self.target, metadata) {
            return Ok(Opened::There);
        }
        let file = self.open_part()?;
        let have = match self.load() {
            Some(state) => {
                let have = intact(&file, &state).map_err(|source| self.error(source))?;
                self.segment_size = Some(state.segment_size);
                self.checksums = state.checksums;
                have
            }
            None => {
                file.set_len(0).map_err(|source| self.error(source))?;
                SegmentSet::new()
            }
        };
        self.file = Some(file);
        Ok(Opened::File { have, segment_size: self.segment_size })
    }

    fn sink(&mut self, segment_size: u64) -> Result<Arc<FileSink>, OutputError> {
        self.segment_size = Some(segment_size);
        let file = self.file.take().expect("opened before");
        let checksums = std::mem::take(&mut self.checksums);
        let sink = Arc::new(FileSink::new(file, segment_size, checksums));
        self.open = Some(sink.clone());
        Ok(sink)
    }

    fn save(&mut self, have: &SegmentSet) -> io::Result<()> {
        let (Some(sink), Some(segment_size)) = (&self.open, self.segment_size) else {
            return Ok(());
        };
        // First what the state speaks of, then the state.
        sink.file().sync_data()?;
        let state = encode_state(segment_size, &self.versioned, have, &sink.checksums());
        self.write_state(&state)
    }

    fn save_last(&mut self, have: &SegmentSet) -> io::Result<()> {
        match self.save(have) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
            result => return result,
        }
        let (Some(sink), Some(segment_size)) = (&self.open, self.segment_size) else {
            return Ok(());
        };
        // The end of the part file makes room for word of the rest.
        let state = encode_state(segment_size, &self.versioned, have, &sink.checksums());
        let len = sink.file().metadata()?.len();
        let len = len.saturating_sub(state.len() as u64 + SPARE_BYTES);
        sink.file().set_len(len)?;
        let mut kept = SegmentSet::new();
        for segment in have.iter().filter(|segment| (segment + 1) * segment_size <= len) {
            kept.insert(segment);
        }
        let state = encode_state(segment_size, &self.versioned, &kept, &sink.checksums());
        self.write_state(&state)
    }

    fn abandon(&mut self) {
        // What cannot be removed is empty and taken over by the next attempt.
        let _ = fs::remove_file(&self.part);
        let _ = fs::remove_file(&self.state);
    }

    fn file(&self) -> Option<&FileSink> {
        self.open.as_deref()
    }

    fn finish(&mut self, is_synced: bool) -> Result<(), OutputError> {
        let error = |source| OutputError::Io { path: self.part.clone(), source };
        if let Some(sink) = self.open.as_ref().filter(|_| !is_synced) {
            sink.file().sync_data().map_err(error)?;
        }
        fs::rename(&self.part, &self.target)
            .map_err(|source| OutputError::Io { path: self.target.clone(), source })?;
        remove_if_there(&self.state)
            .map_err(|source| OutputError::Io { path: self.state.clone(), source })
    }
}

/// Whether the file has the octets that the metadata, which has been verified, says the object has.
fn is_there(target: &Path, metadata: &Metadata) -> bool {
    let stated = (metadata.size_bytes, metadata.segment_size, metadata.content_digest);
    let (Some(size_bytes), Some(segment_size), Some(digest)) = stated else { return false };
    let Ok(file) = wary(File::options().read(true)).open(target) else { return false };
    let has_size = file.metadata().is_ok_and(|found| found.is_file() && found.len() == size_bytes);
    if !has_size || !(1..=PACKET_SIZE_MAX as u64).contains(&segment_size) {
        return false;
    }
    let mut content = vec![0; segment_size.min(size_bytes) as usize];
    let mut digests = ContentDigest::default();
    for segment in 0..size_bytes.div_ceil(segment_size).max(1) {
        let at = segment * segment_size;
        let content = &mut content[..(size_bytes - at).min(segment_size) as usize];
        if file.read_exact_at(content, at).is_err() {
            return false;
        }
        digests.add(content);
    }
    digests.finish() == digest
}

/// Those segments of a part file that are as they were stored: what was verified once may have been
/// damaged since, and it is not verified again.
fn intact(file: &File, state: &State) -> io::Result<SegmentSet> {
    let len = file.metadata()?.len();
    let mut have = SegmentSet::new();
    let mut content = vec![0; state.segment_size.min(PACKET_SIZE_MAX as u64) as usize];
    for segment in state.have.iter() {
        let Some(at) = segment.checked_mul(state.segment_size).filter(|&at| at <= len) else {
            continue;
        };
        let content = &mut content[..(len - at).min(state.segment_size) as usize];
        file.read_exact_at(content, at)?;
        if state.checksums.get(segment as usize) == Some(&checksum(content)) {
            have.insert(segment);
        }
    }
    Ok(have)
}

fn encode_state(
    segment_size: u64,
    versioned: &Name,
    have: &SegmentSet,
    checksums: &[u32],
) -> Vec<u8> {
    let name = versioned.value();
    let mut octets = STATE_MAGIC.to_vec();
    octets.extend_from_slice(&segment_size.to_le_bytes());
    octets.extend_from_slice(&(name.len() as u64).to_le_bytes());
    octets.extend_from_slice(name);
    octets.extend_from_slice(&(have.words().len() as u64).to_le_bytes());
    for word in have.words() {
        octets.extend_from_slice(&word.to_le_bytes());
    }
    for segment in have.iter() {
        let checksum = checksums.get(segment as usize).copied().unwrap_or(0);
        octets.extend_from_slice(&checksum.to_le_bytes());
    }
    let digest = sha256(&[&octets]);
    octets.extend_from_slice(&digest);
    octets
}

fn decode_state(octets: &[u8]) -> Option<(NameView<'_>, State)> {
    let (octets, digest) = octets.split_at_checked(octets.len().checked_sub(DIGEST_LEN)?)?;
    let rest = octets.strip_prefix(STATE_MAGIC)?;
    if sha256(&[octets]) != digest {
        return None;
    }
    let (segment_size, rest) = rest.split_first_chunk::<8>()?;
    let segment_size = u64::from_le_bytes(*segment_size);
    if segment_size > PACKET_SIZE_MAX as u64 {
        return None;
    }
    let (name_len, rest) = rest.split_first_chunk::<8>()?;
    let name_len = usize::try_from(u64::from_le_bytes(*name_len)).ok()?;
    let (name, rest) = rest.split_at_checked(name_len)?;
    let (word_count, rest) = rest.split_first_chunk::<8>()?;
    let word_octets = u64::from_le_bytes(*word_count).checked_mul(8)?;
    let (words, rest) = rest.split_at_checked(usize::try_from(word_octets).ok()?)?;
    let words = words.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let have = SegmentSet::from_words(words);
    let (stored, left) = rest.as_chunks::<4>();
    if !left.is_empty() || stored.len() as u64 != have.len() {
        return None;
    }
    let mut checksums = vec![0; have.words().len() * 64];
    for (segment, checksum) in have.iter().zip(stored) {
        checksums[segment as usize] = u32::from_le_bytes(*checksum);
    }
    Some((NameView::from_value(name).ok()?, State { segment_size, have, checksums }))
}

/// A stream, written in order.
pub struct StreamOutput {
    out: Option<Box<dyn Write + Send>>,
}

impl StreamOutput {
    /// An output that writes to `out`.
    pub fn new(out: impl Write + Send + 'static) -> Self {
        Self { out: Some(Box::new(out)) }
    }
}

impl Output for StreamOutput {
    fn open(&mut self, _metadata: &Metadata) -> Result<Opened, OutputError> {
        Ok(Opened::Stream(self.out.take().expect("opened once")))
    }
}

/// Memory, for objects of bounded size. Clones share it.
#[derive(Clone, Debug)]
pub struct MemoryOutput(Arc<Memory>);

#[derive(Debug)]
struct Memory {
    octets: Mutex<Vec<u8>>,
    /// Octets taken of the room, given back at the end.
    taken: AtomicU64,
    room: Arc<AtomicU64>,
    max_bytes: u64,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.room.fetch_add(*self.taken.get_mut(), Ordering::Relaxed);
    }
}

impl MemoryOutput {
    /// An output of at most `max_bytes` octets.
    pub fn new(max_bytes: u64) -> Self {
        Self::within(max_bytes, Arc::new(AtomicU64::new(max_bytes)))
    }

    /// An output that shares its room with this one: together they hold what fits into it.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self::within(self.0.max_bytes, self.0.room.clone())
    }

    fn within(max_bytes: u64, room: Arc<AtomicU64>) -> Self {
        let (octets, taken) = (Mutex::default(), AtomicU64::new(0));
        Self(Arc::new(Memory { octets, taken, room, max_bytes }))
    }

    /// Takes the octets written so far. Their room is given back with the last clone.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.octets.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct MemoryWriter(MemoryOutput);

impl Write for MemoryWriter {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let memory = &self.0.0;
        let (len, relaxed) = (octets.len() as u64, Ordering::Relaxed);
        let left = memory.room.fetch_update(relaxed, relaxed, |room| room.checked_sub(len));
        if left.is_err() {
            let error = OutputError::TooLarge { max_bytes: memory.max_bytes };
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
        }
        memory.taken.fetch_add(len, relaxed);
        let mut all = memory.octets.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend_from_slice(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for MemoryOutput {
    fn open(&mut self, _metadata: &Metadata) -> Result<Opened, OutputError> {
        Ok(Opened::Stream(Box::new(MemoryWriter(self.clone()))))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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

    fn broken_off(target: &Path) -> SegmentSet {
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
    fn a_broken_download_goes_on_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("file");
        let have = broken_off(&target);
        assert!(!target.exists());
        let mut output = PartFile::new(&target);
        assert_eq!(open(&mut output, 1).unwrap(), have);
        assert_eq!(output.segment_size, Some(4));
        output.sink(4).unwrap().store(&[(1, b"1111")]).unwrap();
        output.finish(false).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"0000111122");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "something is left over");
    }

    #[test]
    fn another_version_or_a_damaged_state_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("file");
        broken_off(&target);
        assert!(open(&mut PartFile::new(&target), 2).unwrap().is_empty());

        broken_off(&target);
        let state = dir.path().join(".file.weir-state");
        let mut octets = fs::read(&state).unwrap();
        octets[20] ^= 1;
        fs::write(&state, octets).unwrap();
        assert!(open(&mut PartFile::new(&target), 1).unwrap().is_empty());

        broken_off(&target);
        fs::write(dir.path().join(".file.weir-part"), b"").unwrap();
        assert!(open(&mut PartFile::new(&target), 1).unwrap().is_empty());
    }

    #[test]
    fn two_downloads_into_one_file_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("file");
        let mut one = PartFile::new(&target);
        one.open(&versioned(1)).unwrap();
        let error = open(&mut PartFile::new(&target), 1).unwrap_err();
        assert!(matches!(error, OutputError::Busy { .. }), "{error}");
    }

    #[test]
    fn links_that_others_planted_are_not_followed() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let (target, mine) = (dir.path().join("file"), dir.path().join("mine"));
        let planted = |suffix| dir.path().join(side_name(OsStr::new("file"), suffix));
        fs::write(&mine, "precious").unwrap();

        symlink(&mine, planted(PART_SUFFIX)).unwrap();
        let error = open(&mut PartFile::new(&target), 1).unwrap_err();
        assert!(matches!(error, OutputError::Io { .. }), "{error}");
        fs::remove_file(planted(PART_SUFFIX)).unwrap();
        // A hard link is taken away, the file that it leads to left alone.
        fs::hard_link(&mine, planted(PART_SUFFIX)).unwrap();
        symlink(&mine, planted(NEW_STATE_SUFFIX)).unwrap();
        broken_off(&target);
        assert_eq!(fs::read(&mine).unwrap(), b"precious");
        assert!(!fs::symlink_metadata(planted(STATE_SUFFIX)).unwrap().is_symlink());

        // A state that somebody links to says nothing.
        fs::rename(planted(STATE_SUFFIX), dir.path().join("state")).unwrap();
        symlink(dir.path().join("state"), planted(STATE_SUFFIX)).unwrap();
        assert!(open(&mut PartFile::new(&target), 1).unwrap().is_empty());
    }

    #[test]
    fn every_name_has_a_part_file_of_its_own() {
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
    fn names_of_part_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for name in [".file.weir-part", ".file.weir-state", ".file.weir-new"] {
            let error = open(&mut PartFile::new(dir.path().join(name)), 1).unwrap_err();
            assert!(matches!(error, OutputError::Reserved { .. }), "{error}");
        }
        assert!(!is_reserved_name(b"file.weir-part") && !is_reserved_name(b".weir"));
    }

    #[test]
    fn memory_has_a_bound() {
        let mut output = MemoryOutput::new(10);
        let Opened::Stream(mut out) = output.open(&versioned(1)).unwrap() else {
            panic!("it is a stream")
        };
        out.write_all(b"00001111").unwrap();
        assert_eq!(out.write_all(b"2222").unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        let mut beside = output.beside();
        let Opened::Stream(mut other) = beside.open(&versioned(1)).unwrap() else {
            panic!("it is a stream")
        };
        assert_eq!(other.write_all(b"222").unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(output.take(), b"00001111");
        drop((out, output));
        other.write_all(b"0000222222").unwrap();
        assert_eq!(beside.take(), b"0000222222");
    }
}
