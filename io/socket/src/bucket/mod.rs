//! A place in S3-compatible storage, `s3://BUCKET/PREFIX`, for code without HTTP or an async
//! runtime.
//!
//! `Bucket`: `list`, `read`, `read_each` and `delete` block. `fetch` reads in the background and
//! calls a function. `upload` takes bytes in order and buffers only a few. `Upload::finish` starts
//! the commit, and `PendingUpload::wait` waits for it.
//!
//! It is the crate `object_store` with limits on concurrent requests, memory, and the time of each
//! call. Endpoint, region and credentials come from the AWS environment variables. HTTP without TLS
//! is refused except on this host, unless allowed. Without the feature `s3` there is no client, and
//! every bucket is refused. Tests: `tests/tests/bucket.rs` against an S3 server.

#[cfg(not(feature = "s3"))]
mod disabled;
mod location;
#[cfg(feature = "s3")]
mod s3;

use bytes::Bytes;

#[cfg(not(feature = "s3"))]
pub use disabled::Bucket;
#[cfg(not(feature = "s3"))]
pub(crate) use disabled::{PendingUpload, Upload};
pub use location::Location;
#[cfg(feature = "s3")]
pub use s3::{Bucket, open_object_store};
#[cfg(feature = "s3")]
pub(crate) use s3::{PendingUpload, Upload};

/// Why an operation on a bucket failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    /// The object or the bucket does not exist.
    #[error("it does not exist ({0}); check the address")]
    Missing(String),
    #[error("it was replaced by another object")]
    Replaced,
    /// The server denies access with these credentials.
    #[error("the server denies it ({0}); check the credentials and the bucket's policy")]
    Denied(String),
    /// The server did not answer in time, or failed.
    #[error("out of reach: {0}")]
    Unreachable(String),
    #[error("{0}")]
    Other(String),
    #[error("this program was built without S3; build it with the feature `s3`")]
    NotBuilt,
}

/// An object in a listing of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketObject {
    /// Its name below the prefix.
    pub(crate) name: String,
    pub(crate) bytes: u64,
}

/// Some bytes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketRead {
    /// From the requested offset on; fewer than requested at the end of the object.
    pub(crate) octets: Bytes,
    /// Bytes of the whole object.
    pub(crate) bytes: u64,
    /// Distinguishes this content from others of the same name (ETag), if the server sends it.
    pub(crate) tag: Option<String>,
}
