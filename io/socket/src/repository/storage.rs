//! The storage of a repository: files of a folder, or objects in a bucket.

use std::path::PathBuf;
use std::sync::Arc;

use super::RepositoryError;
use super::bucket::{self, BucketDraft, BucketStorage};
use super::folder::{FileDraft, Folder};
use super::layout::LoadedObjects;
use crate::bucket::Bucket;
use crate::object::location::ObjectLocation;
use crate::object::stored::StoredObject;

#[derive(Debug)]
pub(super) enum Storage {
    Folder(Folder),
    Bucket(BucketStorage),
}

/// An object being written. Until it is committed, it has no name or is in flight.
#[derive(Debug)]
pub(super) enum Draft {
    File(FileDraft),
    Bucket(Box<BucketDraft>),
}

impl Storage {
    pub(super) fn bucket(bucket: Arc<Bucket>) -> Result<Self, RepositoryError> {
        Ok(Self::Bucket(BucketStorage::open(bucket)?))
    }

    pub(super) fn load(&self) -> Result<LoadedObjects, RepositoryError> {
        match self {
            Self::Folder(folder) => folder.load(),
            Self::Bucket(objects) => objects.load(),
        }
    }

    /// Whether no other process uses the storage, so that leftovers may be removed at the start.
    pub(super) fn is_exclusive(&self) -> bool {
        matches!(self, Self::Folder(folder) if folder.has_lock())
    }

    /// An object that another process has put into a folder.
    pub(super) fn find(&self, name: &str) -> Result<Option<StoredObject>, RepositoryError> {
        match self {
            Self::Folder(folder) => folder.find(name),
            Self::Bucket(_) => Ok(None),
        }
    }

    /// Starts an object of this size.
    pub(super) fn begin(&self, stem: &str, bytes: u64) -> Result<Draft, RepositoryError> {
        Ok(match self {
            Self::Folder(folder) => Draft::File(folder.begin(stem, bytes)?),
            Self::Bucket(objects) => Draft::Bucket(Box::new(objects.begin(stem, bytes)?)),
        })
    }

    /// Makes all of them durable. Returns their locations.
    pub(super) fn commit(
        &self,
        drafts: Vec<Draft>,
    ) -> Result<Vec<ObjectLocation>, RepositoryError> {
        match self {
            Self::Folder(folder) => {
                let files = drafts.into_iter().map(|draft| match draft {
                    Draft::File(file) => file,
                    Draft::Bucket(_) => unreachable!("begun by this storage"),
                });
                folder.commit(files.collect())
            }
            Self::Bucket(_) => {
                let objects = drafts.into_iter().map(|draft| match draft {
                    Draft::Bucket(object) => *object,
                    Draft::File(_) => unreachable!("begun by this storage"),
                });
                bucket::commit(objects.collect())
            }
        }
    }

    pub(super) fn remove(&self, location: &ObjectLocation) -> Result<(), RepositoryError> {
        match location {
            ObjectLocation::File(path) => super::folder::remove_file(path),
            ObjectLocation::Bucket(location) => bucket::remove(location),
        }
    }

    /// An object has replaced one of the same name, which may have been marked as damaged.
    pub(super) fn on_overwritten(&self, location: &ObjectLocation) -> Result<(), RepositoryError> {
        match location {
            ObjectLocation::File(_) => Ok(()),
            ObjectLocation::Bucket(location) => bucket::remove_damage_marker(location),
        }
    }
}

impl Draft {
    pub(super) fn append(&mut self, octets: &[u8]) -> std::io::Result<()> {
        match self {
            Self::File(file) => file.append(octets),
            Self::Bucket(object) => object.append(octets),
        }
    }

    /// Ends the object's content.
    pub(super) fn end(&mut self) -> std::io::Result<()> {
        match self {
            Self::File(_) => Ok(()),
            Self::Bucket(object) => object.end(),
        }
    }

    /// Its name in errors.
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::File(file) => file.written.clone(),
            Self::Bucket(object) => object.location.to_string().into(),
        }
    }

    pub(super) fn location(&self) -> ObjectLocation {
        match self {
            Self::File(file) => ObjectLocation::File(file.path.clone()),
            Self::Bucket(object) => ObjectLocation::Bucket(object.location.clone()),
        }
    }
}
