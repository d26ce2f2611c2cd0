//! The location of a repository's object: a file, or an object in a bucket.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::libc;

use crate::bucket::{Bucket, BucketError};

/// The suffix of complete objects.
pub(crate) const OBJECT_SUFFIX: &str = "obj";
/// The suffix of damaged files; in a bucket, of a marker next to the object.
pub(crate) const DAMAGED_SUFFIX: &str = "damaged";

/// Opens a file for reading. Does not block if it has become a pipe.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Where the packets of an object are stored.
#[derive(Clone, Debug)]
pub(crate) enum ObjectLocation {
    File(PathBuf),
    Bucket(BucketLocation),
}

#[derive(Clone, Debug)]
pub(crate) struct BucketLocation {
    pub(crate) bucket: Arc<Bucket>,
    /// Below the prefix of the bucket.
    pub(crate) name: String,
    /// Distinguishes this content from others of the name.
    pub(crate) tag: Option<String>,
}

pub(crate) enum OpenObject<'a> {
    File(File),
    Bucket(&'a BucketLocation),
}

impl ObjectLocation {
    /// Opens it for blocking reads.
    pub(crate) fn open(&self) -> io::Result<OpenObject<'_>> {
        Ok(match self {
            Self::File(path) => OpenObject::File(open_to_read(path)?),
            Self::Bucket(location) => OpenObject::Bucket(location),
        })
    }

    /// The file, if it is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Bucket(_) => None,
        }
    }

    /// Its name in errors.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Bucket(location) => location.to_string().into(),
        }
    }

    /// Whether both have the same name.
    pub(crate) fn is_same_object(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(one), Self::File(other)) => one == other,
            (Self::Bucket(one), Self::Bucket(other)) => one.name == other.name,
            _ => false,
        }
    }

    /// Marks it as damaged: renames the file, or creates a marker in the bucket, in the background.
    pub(crate) fn mark_damaged(&mut self) -> io::Result<()> {
        match self {
            Self::File(path) => {
                let marked = path.with_extension(DAMAGED_SUFFIX);
                std::fs::rename(&path, &marked)?;
                *path = marked;
            }
            Self::Bucket(location) => location.bucket.create_marker(location.damage_marker_name()),
        }
        Ok(())
    }
}

impl BucketLocation {
    /// The name of the marker for a damaged object.
    pub(crate) fn damage_marker_name(&self) -> String {
        let stem = self.name.strip_suffix(OBJECT_SUFFIX).unwrap_or(&self.name);
        format!("{stem}{DAMAGED_SUFFIX}")
    }
}

impl OpenObject<'_> {
    /// Reads the whole range. An earlier end is an error.
    pub(crate) fn read(&self, range: Range<u64>, octets: &mut [u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.read_exact_at(octets, range.start),
            Self::Bucket(location) => {
                let read = location.bucket.read(&location.name, range, location.tag.as_deref());
                let read = read.map_err(bucket_error)?;
                let whole = read.octets.get(..octets.len());
                octets.copy_from_slice(whole.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }
}

impl fmt::Display for ObjectLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Bucket(location) => location.fmt(f),
        }
    }
}

impl fmt::Display for BucketLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bucket.location(), self.name)
    }
}

/// As an error of the file system.
pub(crate) fn bucket_error(error: BucketError) -> io::Error {
    let kind = match &error {
        BucketError::Missing(_) => io::ErrorKind::NotFound,
        BucketError::Replaced => io::ErrorKind::StaleNetworkFileHandle,
        BucketError::Denied(_) => io::ErrorKind::PermissionDenied,
        BucketError::Unreachable(_) => io::ErrorKind::HostUnreachable,
        BucketError::NotBuilt => io::ErrorKind::Unsupported,
        BucketError::Other(_) => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
