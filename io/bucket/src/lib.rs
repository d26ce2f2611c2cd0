#![doc = include_str!("../README.md")]

mod location;
#[cfg(not(feature = "s3"))]
mod none;
#[cfg(feature = "s3")]
mod s3;

use bytes::Bytes;

pub use location::{Location, LocationError};
#[cfg(not(feature = "s3"))]
pub use none::{Bucket, Pending, Upload};
#[cfg(feature = "s3")]
pub use s3::{Bucket, Pending, Upload};

/// Why something cannot be done with a bucket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    /// There is no object of that name, or no such bucket.
    #[error("it is not there ({0})")]
    Missing(String),
    /// The object is not the one that it was.
    #[error("another has taken its place")]
    Replaced,
    /// The server refuses it to these credentials.
    #[error("the server denies it ({0})")]
    Denied(String),
    /// Nobody answered in time, or the server could not.
    #[error("out of reach: {0}")]
    Away(String),
    /// Something else.
    #[error("{0}")]
    Other(String),
    /// The program was built without S3.
    #[error("this program was built without S3")]
    NotBuilt,
}

/// An object of a bucket, as a list has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name below the prefix.
    pub name: String,
    /// Its octets.
    pub bytes: u64,
}

/// Some octets of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// From the place that was asked for on; fewer than asked for where it ends.
    pub octets: Bytes,
    /// Octets of the whole object.
    pub bytes: u64,
    /// What tells this content from any other of the same name (ETag), if the server says it.
    pub tag: Option<String>,
}
