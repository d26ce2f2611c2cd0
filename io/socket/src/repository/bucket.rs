//! A repository in a bucket. An object exists completely or not at all, so nothing is written to a
//! temporary name.
//!
//! There is no lock. A lock object would outlive a killed process, and a process that only serves
//! may lack write permission. Several processes may safely put objects at once, because versions
//! have their own names. A process removes only objects that it has seen or made.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::layout::{LoadedObjects, MARK, MARK_TEXT, OBJECTS};
use super::{RepositoryError, read_error, write_error};
use crate::bucket::{Bucket, BucketError, BucketObject, BucketRead, PendingUpload, Upload};
use crate::object::location::{
    BucketLocation, DAMAGED_SUFFIX, OBJECT_SUFFIX, ObjectLocation, OpenObject, bucket_error,
};
use crate::object::stored::{FIRST_READ_BYTES, StoredObject, needs_more_header};

#[derive(Debug)]
pub(super) struct BucketStorage {
    bucket: Arc<Bucket>,
    /// The first write makes it a repository.
    is_new: AtomicBool,
}

/// An object being written.
#[derive(Debug)]
pub(super) struct BucketDraft {
    pub(super) location: BucketLocation,
    upload: Option<Upload>,
    pending: Option<PendingUpload>,
}

impl BucketDraft {
    pub(super) fn append(&mut self, octets: &[u8]) -> io::Result<()> {
        let upload = self.upload.as_mut().expect("not ended yet");
        upload.append(octets).map_err(bucket_error)
    }

    pub(super) fn end(&mut self) -> io::Result<()> {
        let upload = self.upload.take().expect("not ended yet");
        self.pending = Some(upload.finish().map_err(bucket_error)?);
        Ok(())
    }
}

fn address(bucket: &Bucket, name: &str) -> PathBuf {
    format!("{}/{name}", bucket.location()).into()
}

impl BucketStorage {
    pub(super) fn open(bucket: Arc<Bucket>) -> Result<Self, RepositoryError> {
        let location = || PathBuf::from(bucket.location().to_string());
        let read = |error| read_error(&location())(bucket_error(error));
        let is_new = match bucket.read(MARK, 0..MARK_TEXT.len() as u64 + 1, None) {
            Ok(read) if read.octets == MARK_TEXT.as_bytes() => false,
            Ok(_) => return Err(RepositoryError::UnknownLayout { path: location() }),
            Err(BucketError::Missing(_)) => true,
            Err(error) => return Err(read(error)),
        };
        if is_new && !bucket.list("", 1).map_err(read)?.is_empty() {
            return Err(RepositoryError::NotARepository { path: location() });
        }
        Ok(Self { bucket, is_new: is_new.into() })
    }

    /// Reads the beginning of each object.
    pub(super) fn load(&self) -> Result<LoadedObjects, RepositoryError> {
        let bucket = &self.bucket;
        let error = |source| read_error(&address(bucket, OBJECTS))(source);
        let found = bucket.list(OBJECTS, usize::MAX).map_err(bucket_error).map_err(error)?;
        let of_ending = |ending: &str| {
            let stem = |BucketObject { name, .. }: &BucketObject| {
                Some(name.strip_suffix(ending)?.strip_suffix('.')?.to_owned())
            };
            found.iter().filter_map(stem).collect::<Vec<String>>()
        };
        let damaged: HashSet<String> = of_ending(DAMAGED_SUFFIX).into_iter().collect();
        let stems = of_ending(OBJECT_SUFFIX);
        let names: Vec<String> =
            stems.iter().map(|stem| format!("{stem}.{OBJECT_SUFFIX}")).collect();
        let location_of = |at: usize, read: &BucketRead| {
            let (name, tag) = (names[at].clone(), read.tag.clone());
            BucketLocation { bucket: bucket.clone(), name, tag }
        };
        let (mut loaded, mut unreachable, mut long) = (LoadedObjects::default(), None, Vec::new());
        let take = |loaded: &mut LoadedObjects,
                    unreachable: &mut Option<io::Error>,
                    at: usize,
                    read: BucketRead| {
            let location = location_of(at, &read);
            let octets = read.octets.to_vec();
            let found = StoredObject::from_first_bytes(
                ObjectLocation::Bucket(location.clone()),
                octets,
                read.bytes,
                &OpenObject::Bucket(&location),
            );
            match found {
                Ok(Some(mut stored)) => {
                    stored.is_damaged |= damaged.contains(&stems[at]);
                    loaded.intact.push(stored);
                }
                Err(error) if error.kind() == io::ErrorKind::HostUnreachable => {
                    *unreachable = Some(error)
                }
                Ok(None) | Err(_) => loaded.unreadable.push(address(bucket, &names[at])),
            }
        };
        bucket.read_each(&names, FIRST_READ_BYTES, |at, read| match read {
            // `read_each` blocks this thread in the runtime, so another read must wait until it
            // returns.
            Ok(read) if needs_more_header(&read.octets) => long.push((at, read)),
            Ok(read) => take(&mut loaded, &mut unreachable, at, read),
            // Another process has removed the object since it was listed.
            Err(BucketError::Missing(_)) => {}
            Err(error @ BucketError::Unreachable(_)) => unreachable = Some(bucket_error(error)),
            Err(_) => loaded.unreadable.push(address(bucket, &names[at])),
        });
        for (at, read) in long {
            if unreachable.is_none() {
                take(&mut loaded, &mut unreachable, at, read);
            }
        }
        // Without some objects, callers would take the rest for the whole repository.
        unreachable.map_or(Ok(loaded), |unreachable| Err(error(unreachable)))
    }

    pub(super) fn begin(&self, stem: &str, bytes: u64) -> Result<BucketDraft, RepositoryError> {
        self.create_mark()?;
        let (bucket, name) = (self.bucket.clone(), format!("{OBJECTS}/{stem}.{OBJECT_SUFFIX}"));
        let error = |error| write_error(&address(&bucket, &name))(bucket_error(error));
        let upload = bucket.upload(&name, bytes).map_err(error)?;
        let location = BucketLocation { bucket, name, tag: None };
        Ok(BucketDraft { location, upload: Some(upload), pending: None })
    }

    fn create_mark(&self) -> Result<(), RepositoryError> {
        if !self.is_new.load(Ordering::Relaxed) {
            return Ok(());
        }
        let write = || {
            let mut upload = self.bucket.upload(MARK, MARK_TEXT.len() as u64)?;
            upload.append(MARK_TEXT.as_bytes())?;
            upload.finish()?.wait()
        };
        let error = |error| write_error(&address(&self.bucket, MARK))(bucket_error(error));
        write().map_err(error)?;
        self.is_new.store(false, Ordering::Relaxed);
        Ok(())
    }
}

/// Waits until all of them exist.
pub(super) fn commit(drafts: Vec<BucketDraft>) -> Result<Vec<ObjectLocation>, RepositoryError> {
    let settle = |draft: BucketDraft| {
        let BucketDraft { mut location, pending, .. } = draft;
        let path = PathBuf::from(location.to_string());
        let arrived = pending.expect("it has ended").wait();
        location.tag = arrived.map_err(|error| write_error(&path)(bucket_error(error)))?;
        Ok(ObjectLocation::Bucket(location))
    };
    drafts.into_iter().map(settle).collect()
}

/// Removes an object, and the marker for damage.
pub(super) fn remove(location: &BucketLocation) -> Result<(), RepositoryError> {
    delete_object(location, &location.name)?;
    remove_damage_marker(location)
}

pub(super) fn remove_damage_marker(location: &BucketLocation) -> Result<(), RepositoryError> {
    delete_object(location, &location.damage_marker_name())
}

fn delete_object(location: &BucketLocation, name: &str) -> Result<(), RepositoryError> {
    let error = |error| write_error(&address(&location.bucket, name))(bucket_error(error));
    location.bucket.delete(name).map_err(error)
}
