//! Where an object of a repository lies: a file, or an object in a bucket.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::libc;

use crate::bucket::{Bucket, BucketError};

/// The ending of objects that are whole.
pub(crate) const OBJECT_SUFFIX: &str = "obj";
/// The ending of files of which some is not what was written; in a bucket, of a note beside.
pub(crate) const DAMAGED_SUFFIX: &str = "damaged";

/// Opens a file to be read. Should it have become a pipe, this does not wait for a writer.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Where the packets of an object are kept.
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
    /// What tells it from others of the name.
    pub(crate) tag: Option<String>,
}

/// What is open while it is read.
pub(crate) enum OpenObject<'a> {
    File(File),
    Bucket(&'a BucketLocation),
}

impl ObjectLocation {
    /// Opens it for reads that wait.
    pub(crate) fn open(&self) -> io::Result<OpenObject<'_>> {
        Ok(match self {
            Self::File(path) => OpenObject::File(open_to_read(path)?),
            Self::Bucket(place) => OpenObject::Bucket(place),
        })
    }

    /// The file, if it is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Bucket(_) => None,
        }
    }

    /// What to call it in errors.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Bucket(place) => place.to_string().into(),
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

    /// Has its name, or a note beside it in a bucket, say that not all of it is what was written.
    /// A note is made in the background.
    pub(crate) fn mark_damaged(&mut self) -> io::Result<()> {
        match self {
            Self::File(path) => {
                let marked = path.with_extension(DAMAGED_SUFFIX);
                std::fs::rename(&path, &marked)?;
                *path = marked;
            }
            Self::Bucket(place) => place.bucket.note(place.damage_marker_name()),
        }
        Ok(())
    }
}

impl BucketLocation {
    /// The name of the note that it is damaged.
    pub(crate) fn damage_marker_name(&self) -> String {
        let stem = self.name.strip_suffix(OBJECT_SUFFIX).unwrap_or(&self.name);
        format!("{stem}{DAMAGED_SUFFIX}")
    }
}

impl OpenObject<'_> {
    /// Reads all of that range; an end before it is told as such.
    pub(crate) fn read(&self, range: Range<u64>, octets: &mut [u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.read_exact_at(octets, range.start),
            Self::Bucket(place) => {
                let piece = place.bucket.read(&place.name, range, place.tag.as_deref());
                let piece = piece.map_err(bucket_error)?;
                let whole = piece.octets.get(..octets.len());
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
            Self::Bucket(place) => place.fmt(f),
        }
    }
}

impl fmt::Display for BucketLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bucket.location(), self.name)
    }
}

/// As what the system says of files.
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
