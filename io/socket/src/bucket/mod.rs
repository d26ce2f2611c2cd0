//! A place in S3-compatible storage, `s3://BUCKET/PREFIX`, for code that knows neither HTTP nor a
//! runtime.
//!
//! `Bucket`: `list`, `read`, `read_each` and `delete` block; `fetch` reads in the background and
//! calls a function; `upload` takes octets in order, few of which are in memory at a time, and
//! `Upload::finish` begins the commit, for which `Pending::wait` waits.
//!
//! It is the crate `object_store` with bounds: on concurrent requests, on octets in memory, on the
//! time that any call takes. Endpoint, region and credentials come from the variables of AWS.
//! HTTP without TLS is refused beyond this machine unless it was allowed. Without the feature `s3`
//! there is no client, and every bucket is refused. Tests: `tests/tests/bucket.rs` against a
//! server of S3.

mod location;
#[cfg(not(feature = "s3"))]
mod none;
#[cfg(feature = "s3")]
mod s3;

use bytes::Bytes;

pub use location::Location;
#[cfg(not(feature = "s3"))]
pub use none::Bucket;
#[cfg(not(feature = "s3"))]
pub(crate) use none::{Pending, Upload};
#[cfg(feature = "s3")]
pub use s3::Bucket;
#[cfg(feature = "s3")]
pub(crate) use s3::{Pending, Upload};

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
    Unreachable(String),
    #[error("{0}")]
    Other(String),
    /// The program was built without S3.
    #[error("this program was built without S3")]
    NotBuilt,
}

/// An object of a bucket, as a list has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its name below the prefix.
    pub(crate) name: String,
    pub(crate) bytes: u64,
}

/// Some octets of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// From the place that was asked for on; fewer than asked for where it ends.
    pub(crate) octets: Bytes,
    /// Octets of the whole object.
    pub(crate) bytes: u64,
    /// What tells this content from any other of the same name (ETag), if the server says it.
    pub(crate) tag: Option<String>,
}
