//! Repositories: signed packets in storage, served again later without signing
//! (`docs/repository.md`).
//!
//! A repository is a folder with one file per object, or a bucket with one object each. A file or
//! object with its final name is complete.

mod bucket;
mod folder;
mod layout;
mod second_writer;
mod storage;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_base::{Packet, Pool};
use weir_disk::{LockHolder, checksum};
use weir_security::sha256;
use weir_transport::{ContentDigest, SealedObject};
use weir_wire::tlv::{self, Writer};
use weir_wire::{DataView, Name, NameView};

use self::folder::Folder;
use self::second_writer::SecondWriter;
use self::storage::{Draft, Storage};
use crate::bucket::Bucket;
use crate::object::location::{OBJECT_SUFFIX, ObjectLocation, open_to_read};
use crate::object::published::{Content, Fingerprint, ObjectForm, Published, signed_digest};
use crate::object::stored::{
    Header, NamedPacket, Origin, StoredObject, TRAILER_BYTES, object_number, seal_slot,
};
use crate::publish::PublishError;
use crate::publish::sign::{
    Label, PublishOptions, listing_octets, publish_file, publish_listing, signature_info,
};

pub use self::second_writer::{AdoptedObjects, HandOver};

/// The origin of a file that may have changed without a change of its times.
const UNKNOWN_ORIGIN: Origin = [0; 32];
/// The resolution of a file system's times is no finer than this.
const FILE_TIME_TICK: Duration = Duration::from_millis(20);
/// Segments written at a time.
const BATCH_SEGMENTS: u64 = 64;

/// Why a repository cannot be used. For a bucket, paths are addresses.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{} is no repository and not empty", path.display())]
    NotARepository { path: PathBuf },
    /// The stored object has the highest possible version.
    #[error("{object} is stored in version 2^64-1, the highest; remove it first")]
    VersionExhausted { object: Name },
    /// Another version of this program made it.
    #[error("{} has a layout of another version of this program", path.display())]
    UnknownLayout { path: PathBuf },
    #[error("{} is in use by {}", path.display(), describe_holder(holder.as_ref()))]
    InUse {
        path: PathBuf,
        /// The process, if known.
        holder: Option<LockHolder>,
    },
    /// An object cannot be made.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

fn describe_holder(holder: Option<&LockHolder>) -> String {
    holder.map_or_else(|| "another process".into(), ToString::to_string)
}

/// What opening a repository found besides intact objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Files that were being written when a process ended. They have been removed.
    pub unfinished: u64,
    /// Damaged files. Their intact packets are served.
    pub damaged: u64,
    /// Files that cannot be read or identified. They are left alone.
    pub unreadable: Vec<PathBuf>,
}

/// Packets of a repository that belong to no object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandalonePackets {
    /// Each with the prefix under which it was put.
    pub intact: Vec<(Name, Packet)>,
    /// The locations of damaged or unreadable ones, and why.
    pub unreadable: Vec<(PathBuf, String)>,
}

/// Stores signed objects in a folder or a bucket.
#[derive(Debug)]
pub struct Repository {
    storage: Storage,
    path: PathBuf,
    /// The latest version of each object, by the TLV-VALUE of its name.
    objects: BTreeMap<Vec<u8>, StoredObject>,
    /// Packets that belong to no object.
    standalone_packets: Vec<StoredObject>,
    /// Earlier versions, removed with the next removal.
    to_remove: Vec<ObjectLocation>,
    findings: LoadReport,
    second_writer: Option<SecondWriter>,
}

/// A written object that is not durable yet.
#[derive(Debug)]
pub struct UncommittedObject {
    object: Box<StoredObject>,
    draft: Draft,
}

impl UncommittedObject {
    pub fn size_bytes(&self) -> u64 {
        self.object.header.size_bytes
    }
}

/// The result of putting an object.
#[derive(Debug)]
pub enum PutResult {
    /// It was stored already and is ready.
    Unchanged(Published),
    /// It was signed and written, and must be committed.
    Written(UncommittedObject),
}

/// How objects are put into a repository.
#[derive(Copy, Clone, Debug)]
pub struct PutOptions<'a> {
    /// The prefix under which they are put.
    pub root: &'a Name,
    /// Use the version in the label, even if there is a later one.
    pub is_version_fixed: bool,
    pub options: &'a PublishOptions,
}

impl Repository {
    /// Opens the repository in a folder. Creates it if the folder is empty or missing. Reads the
    /// beginning of each file, and removes unfinished ones.
    pub fn open(path: &Path) -> Result<Self, RepositoryError> {
        Self::load(Storage::Folder(Folder::open(path)?), path.to_owned())
    }

    /// Opens the repository in a bucket. Reads the beginning of each object. Writes nothing until
    /// something is put.
    pub fn in_bucket(bucket: Arc<Bucket>) -> Result<Self, RepositoryError> {
        let path = bucket.location().to_string().into();
        Self::load(Storage::bucket(bucket)?, path)
    }

    fn load(storage: Storage, path: PathBuf) -> Result<Self, RepositoryError> {
        let loaded = storage.load()?;
        let mut repository = Self {
            storage,
            path,
            objects: BTreeMap::new(),
            standalone_packets: Vec::new(),
            to_remove: Vec::new(),
            findings: LoadReport::default(),
            second_writer: None,
        };
        let mut damaged = 0;
        for stored in loaded.intact {
            damaged += repository.insert_loaded(stored);
        }
        if repository.storage.is_exclusive() {
            // If a removal fails now, the next put repeats it and reports errors.
            let _ = repository.remove_pending();
        }
        let all = repository.objects.values().chain(&repository.standalone_packets);
        damaged += all.filter(|stored| stored.is_damaged).count() as u64;
        let (unfinished, mut unreadable) = (loaded.unfinished, loaded.unreadable);
        unreadable.sort_unstable();
        repository.findings = LoadReport { unfinished, damaged, unreadable };
        Ok(repository)
    }

    /// Adds an object found at the start. The later of two versions wins, unless only that one is
    /// damaged. Returns how many damaged versions are not served.
    fn insert_loaded(&mut self, mut stored: StoredObject) -> u64 {
        if let (true, ObjectLocation::File(path)) = (stored.is_damaged, &stored.location)
            && self.storage.is_exclusive()
            && path.extension().is_some_and(|ending| ending == OBJECT_SUFFIX)
        {
            // If the mark fails, the next start finds the damage again.
            let _ = stored.mark_damaged();
        }
        if stored.header.segments == 0 {
            self.standalone_packets.push(stored);
            return 0;
        }
        let name = stored.object().to_vec();
        let Some(other) = self.objects.remove(&name) else {
            self.objects.insert(name, stored);
            return 0;
        };
        let rank = |stored: &StoredObject| (version(stored), !stored.is_damaged);
        let (later, earlier) = match rank(&stored) < rank(&other) {
            true => (other, stored),
            false => (stored, other),
        };
        // Two versions mean that a process ended before it removed the earlier one. After a power
        // failure the content of the later one may be lost, even if the disk reported it as
        // written. So the later one is read completely before the earlier one is removed.
        let is_preferable = self.storage.is_exclusive()
            && version(&earlier) != version(&later)
            && (later.is_damaged || !later.is_intact())
            && !earlier.is_damaged
            && earlier.is_intact();
        if is_preferable {
            // The damaged later version stays on the disk, too: only an intact one replaces it.
            self.objects.insert(name, earlier);
            return 1;
        }
        self.to_remove.push(earlier.location);
        self.objects.insert(name, later);
        0
    }

    /// Removes replaced and withdrawn objects. Failed removals are repeated the next time.
    fn remove_pending(&mut self) -> Result<(), RepositoryError> {
        let mut result = Ok(());
        if self.second_writer.is_some() {
            // Only the owner of the repository removes objects.
            return result;
        }
        for location in std::mem::take(&mut self.to_remove) {
            if let Err(error) = self.storage.remove(&location) {
                self.to_remove.push(location);
                result = result.and(Err(error));
            }
        }
        result
    }

    pub fn has_pending_removals(&self) -> bool {
        !self.to_remove.is_empty()
    }

    /// What opening it found.
    pub fn load_report(&self) -> &LoadReport {
        &self.findings
    }

    pub fn objects(&self) -> impl Iterator<Item = Published> + '_ {
        self.objects.values().map(|stored| Published(ObjectForm::Stored(Box::new(stored.clone()))))
    }

    /// Names of the objects that were put under exactly this prefix.
    pub fn names_put_below(&self, root: &Name) -> impl Iterator<Item = Name> {
        let is_below = move |stored: &&StoredObject| stored.header.root == *root;
        self.objects
            .values()
            .filter(is_below)
            .map(|stored| stored.header.versioned.as_view().parent().to_name())
    }

    /// The stored version of an object.
    pub fn version_of(&self, object: &Name) -> Option<Name> {
        self.objects.get(object.value()).map(|stored| stored.header.versioned.clone())
    }

    /// Reads the packets that belong to no object, such as certificates.
    pub fn packets(&mut self) -> StandalonePackets {
        let (mut pool, mut packets) = (Pool::new(0), StandalonePackets::default());
        for stored in &mut self.standalone_packets {
            let read = |stored: &StoredObject, number| match stored.location.open() {
                Ok(open) => stored.read(number, &mut pool, |range, out| open.read(range, out)),
                Err(error) => Err(error.into()),
            };
            let all: Result<Vec<Packet>, _> = (0..stored.packets())
                .scan(read, |read, number| Some(read(stored, number)))
                .collect();
            let root = &stored.header.root;
            match all {
                Ok(all) => packets.intact.extend(all.into_iter().map(|one| (root.clone(), one))),
                Err(error) => {
                    packets.unreadable.push((stored.location.path(), error.to_string()));
                    // So that `put_packet` writes the packet again.
                    stored.is_damaged = true;
                }
            }
        }
        packets
    }

    /// The prefixes under which objects were put; none of them below another.
    pub fn roots(&self) -> Vec<Name> {
        let roots: BTreeSet<&[u8]> =
            self.objects.values().map(|stored| stored.header.root.value()).collect();
        let mut top: Vec<Name> = Vec::new();
        for root in roots {
            let root = NameView::from_value(root).expect("it is a name's");
            // In this order, all names below a prefix directly follow it.
            if top.last().is_none_or(|last| !last.as_view().is_prefix_of(root)) {
                top.push(root.to_name());
            }
        }
        top
    }

    /// Signs and writes a file, unless an equal object is stored.
    pub fn put_file(
        &self,
        path: &Path,
        label: Label<'_>,
        putting: PutOptions<'_>,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<PutResult, RepositoryError> {
        let read_error = |source| PublishError::Read { path: path.to_owned(), source };
        let metadata = fs::metadata(path).map_err(read_error)?;
        let origin = origin_of_file(&metadata, label, putting.options);
        if let Some(existing) = self.find(label.name, label.version, putting, origin) {
            return Ok(PutResult::Unchanged(existing));
        }
        let label = self.with_later_version(label, label.name, putting)?;
        let published = publish_file(path, label, putting.options, progress)?;
        Ok(PutResult::Written(self.write_object(&published, putting.root, origin)?))
    }

    /// Signs and writes the listing of a directory, unless an equal object is stored.
    pub fn put_listing(
        &self,
        entries: &[(Vec<u8>, bool)],
        label: Label<'_>,
        putting: PutOptions<'_>,
    ) -> Result<PutResult, RepositoryError> {
        let origin = origin(b"listing", &listing_octets(entries), label, putting.options);
        let mut listing = label.name.clone();
        listing.append_keyword(weir_transport::LISTING_KEYWORD);
        if let Some(existing) = self.find(&listing, label.version, putting, origin) {
            return Ok(PutResult::Unchanged(existing));
        }
        let label = self.with_later_version(label, &listing, putting)?;
        let published = publish_listing(entries, label, putting.options)?;
        Ok(PutResult::Written(self.write_object(&published, putting.root, origin)?))
    }

    /// Writes a packet to be served below `root`, such as a certificate, unless it is stored.
    ///
    /// # Panics
    /// It is not Data.
    pub fn put_packet(&mut self, packet: &[u8], root: &Name) -> Result<(), RepositoryError> {
        let name = DataView::decode(packet).expect("it is Data").name.to_name();
        let origin = sha256(&[packet]);
        let is_it = |stored: &&StoredObject| stored.header.origin == origin && !stored.is_damaged;
        if self.standalone_packets.iter().find(is_it).is_some_and(|stored| stored.is_intact()) {
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
            named_packets: Vec::new(),
        };
        let unsettled = self.write(header, [packet.into()].as_slice(), |_| Ok(()))?;
        for published in self.commit(vec![unsettled])? {
            if let ObjectForm::Stored(stored) = published.0 {
                // The new file may have replaced the old one under the same name; then only its
                // mark of damage is left to remove.
                let is_old =
                    |other: &mut StoredObject| other.header.versioned == stored.header.versioned;
                let old: Vec<ObjectLocation> = self
                    .standalone_packets
                    .extract_if(.., is_old)
                    .map(|old| old.location)
                    .collect();
                let location = stored.location.clone();
                self.standalone_packets.push(*stored);
                for old in old {
                    match old.is_same_object(&location) {
                        true => self.storage.on_overwritten(&old)?,
                        false => self.to_remove.push(old),
                    }
                }
                self.remove_pending()?;
            }
        }
        Ok(())
    }

    /// The object of that name, if it was made from the same content in the same way.
    fn find(
        &self,
        name: &Name,
        version_wanted: u64,
        putting: PutOptions<'_>,
        origin: Origin,
    ) -> Option<Published> {
        let stored = self.objects.get(name.value())?;
        let is_it = stored.header.origin == origin
            && origin != UNKNOWN_ORIGIN
            && stored.header.root == *putting.root
            && !stored.is_damaged
            && (!putting.is_version_fixed || version(stored) == Some(version_wanted));
        is_it.then(|| Published(ObjectForm::Stored(Box::new(stored.clone()))))
    }

    /// A label with a version later than the stored one.
    fn with_later_version<'a>(
        &self,
        label: Label<'a>,
        object: &Name,
        putting: PutOptions<'_>,
    ) -> Result<Label<'a>, RepositoryError> {
        let existing = self.objects.get(object.value()).and_then(version);
        let least = match existing.filter(|_| !putting.is_version_fixed) {
            None => 0,
            Some(existing) => existing
                .checked_add(1)
                .ok_or_else(|| RepositoryError::VersionExhausted { object: object.clone() })?,
        };
        Ok(Label { version: label.version.max(least), ..label })
    }

    fn write_object(
        &self,
        published: &Published,
        root: &Name,
        origin: Origin,
    ) -> Result<UncommittedObject, RepositoryError> {
        let ObjectForm::Sealed(object, content) = &published.0 else {
            unreachable!("the object was just signed")
        };
        let header = Header {
            versioned: object.versioned.clone(),
            root: root.clone(),
            origin,
            segments: object.segments(),
            slot_bytes: object.packet_bytes_max() + TRAILER_BYTES as u64,
            size_bytes: object.size_bytes,
            packet_bytes: published.packet_bytes(),
            named_packets: Vec::new(),
        };
        let slot_bytes = header.slot_bytes;
        self.write(header, &object.packets, |draft| {
            copy_segments(object, content, slot_bytes, draft)
        })
    }

    /// Writes the header, then calls `segments`, then writes `packets`.
    fn write(
        &self,
        mut header: Header,
        packets: &[Packet],
        segments: impl FnOnce(&mut Draft) -> Result<(), WriteFailure>,
    ) -> Result<UncommittedObject, RepositoryError> {
        let mut offset = 0;
        for packet in packets {
            let name = DataView::decode(packet).expect("built as Data").name.to_name();
            let len = packet.len() as u32;
            header.named_packets.push(NamedPacket {
                name,
                offset,
                len,
                checksum: checksum(packet),
            });
            offset += u64::from(len);
        }
        // The file name follows from the version's name, so a version written again replaces its
        // file.
        let digest = sha256(&[header.versioned.value()]);
        let stem: String = digest[..16].iter().map(|octet| format!("{octet:02x}")).collect();
        let octets = header.encode();
        // The file's size is known before the first write, so its space can be reserved.
        let slots = header.segments * header.slot_bytes;
        let mut draft = self.storage.begin(&stem, octets.len() as u64 + slots + offset)?;
        let write = || -> Result<(), WriteFailure> {
            draft.append(&octets)?;
            segments(&mut draft)?;
            draft.append(&packets.iter().map(|packet| &packet[..]).collect::<Vec<_>>().concat())?;
            Ok(draft.end()?)
        };
        match write() {
            Ok(()) => {
                let stored = Box::new(StoredObject::new(draft.location(), header, octets.len()));
                Ok(UncommittedObject { object: stored, draft })
            }
            Err(WriteFailure::Write(source)) => {
                Err(RepositoryError::Write { path: draft.path(), source })
            }
            Err(WriteFailure::Publish(error)) => Err(error.into()),
        }
    }

    /// Makes written objects durable: the next start will find them.
    ///
    /// # Errors
    /// [`RepositoryError::Write`]. Some of them may be durable.
    pub fn commit(&self, all: Vec<UncommittedObject>) -> Result<Vec<Published>, RepositoryError> {
        let (stored, drafts): (Vec<Box<StoredObject>>, Vec<Draft>) =
            all.into_iter().map(|uncommitted| (uncommitted.object, uncommitted.draft)).unzip();
        let locations = self.storage.commit(drafts)?;
        let published = stored.into_iter().zip(locations).map(|(stored, location)| {
            Published(ObjectForm::Stored(Box::new(stored.with_location(location))))
        });
        Ok(published.collect())
    }

    /// Adopts the objects in `put`. Then removes the versions that they replace, and the objects
    /// named in `withdrawn`.
    ///
    /// # Errors
    /// [`RepositoryError::Write`]: something could not be removed. All objects are adopted.
    pub fn adopt(&mut self, put: &[Published], withdrawn: &[Name]) -> Result<(), RepositoryError> {
        let mut result = Ok(());
        for published in put {
            if let ObjectForm::Stored(stored) = &published.0 {
                result = result.and(self.replace_version(stored));
            }
        }
        for name in withdrawn {
            let removed = self.objects.remove(name.value());
            self.to_remove.extend(removed.map(|stored| stored.location));
        }
        if let Some(guest) = &mut self.second_writer {
            guest.withdrawn.extend_from_slice(withdrawn);
        }
        let removed = self.remove_pending();
        result.and(removed)
    }

    /// Replaces an object by another of its name.
    fn replace_version(&mut self, stored: &StoredObject) -> Result<(), RepositoryError> {
        // With a version number chosen by the user, the new object may have the location of one
        // that could not be removed.
        self.to_remove.retain(|location| !location.is_same_object(&stored.location));
        let name = stored.object().to_vec();
        let Some(old) = self.objects.insert(name, stored.clone()) else { return Ok(()) };
        if old.location.is_same_object(&stored.location) {
            return self.storage.on_overwritten(&old.location);
        }
        self.to_remove.push(old.location);
        Ok(())
    }

    /// Removes all objects whose name is `name` or below it. Returns how many.
    ///
    /// # Errors
    /// [`RepositoryError::Write`].
    pub fn remove(&mut self, name: &Name) -> Result<u64, RepositoryError> {
        let prefix = name.as_view();
        let is_below = |object: &Vec<u8>, _: &mut StoredObject| {
            NameView::from_value(object).is_ok_and(|object| prefix.is_prefix_of(object))
        };
        let removed: Vec<ObjectLocation> =
            self.objects.extract_if(.., is_below).map(|(_, stored)| stored.location).collect();
        let count = removed.len() as u64;
        self.to_remove.extend(removed);
        self.remove_pending()?;
        Ok(count)
    }

    /// The folder, or the address in a bucket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Why a file of a repository was not written.
enum WriteFailure {
    Write(io::Error),
    Publish(PublishError),
}

impl From<io::Error> for WriteFailure {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

/// Writes all segments, each into its slot.
fn copy_segments(
    object: &SealedObject,
    content: &Content,
    slot_bytes: u64,
    out: &mut Draft,
) -> Result<(), WriteFailure> {
    let source = match content {
        Content::File { path, fingerprint, .. } => Some((path, fingerprint, open_source(path)?)),
        _ => None,
    };
    let number = object_number(&object.versioned);
    let mut copied = ContentDigest::default();
    let (segments, slot) = (object.segments(), slot_bytes as usize);
    let mut batch = vec![0; slot * segments.min(BATCH_SEGMENTS) as usize];
    for first in (0..segments).step_by(BATCH_SEGMENTS as usize) {
        let count = (segments - first).min(BATCH_SEGMENTS) as usize;
        let slots = batch[..slot * count].chunks_exact_mut(slot);
        for (segment, packet) in (first..).zip(slots) {
            let (frame, offset) = object.write(segment, packet);
            let payload = &mut packet[frame.content];
            match (&source, content) {
                (Some((path, _, file)), _) => {
                    file.read_exact_at(payload, offset)
                        .map_err(|error| read_failure(path, error))?;
                }
                (None, Content::Memory(octets)) => {
                    payload.copy_from_slice(&octets[offset as usize..][..payload.len()]);
                }
                (None, _) => unreachable!("the content was just signed"),
            }
            copied.add(payload);
            seal_slot(packet, number, segment, frame.len);
        }
        out.append(&batch[..slot * count])?;
    }
    if let Some((path, fingerprint, file)) = source {
        let now = Fingerprint::of(&file).map_err(|error| read_failure(path, error))?;
        // A program that has mapped the file can change its content without changing its times. So
        // the digest is compared too: packets with other content would never verify.
        if now != *fingerprint || Some(copied.finish()) != signed_digest(object) {
            return Err(WriteFailure::Publish(PublishError::Changed { path: path.clone() }));
        }
    }
    Ok(())
}

fn open_source(path: &Path) -> Result<File, WriteFailure> {
    open_to_read(path).map_err(|error| read_failure(path, error))
}

fn read_failure(path: &Path, source: io::Error) -> WriteFailure {
    let path = path.to_owned();
    WriteFailure::Publish(match source.kind() {
        io::ErrorKind::UnexpectedEof => PublishError::Changed { path },
        _ => PublishError::Read { path, source },
    })
}

/// A digest that shows whether a file is unchanged and would be signed the same way. It covers more
/// than [`Fingerprint`], because it must be valid for as long as files exist; device numbers are
/// valid only while the system runs.
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
    if SystemTime::now().duration_since(changed).is_ok_and(|age| age < FILE_TIME_TICK) {
        return UNKNOWN_ORIGIN;
    }
    let octets: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    origin(b"file", &octets, label, options)
}

/// A digest of what an object is made from, and how; without the version.
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

fn version(stored: &StoredObject) -> Option<u64> {
    stored.header.versioned.as_view().last()?.as_version()
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
