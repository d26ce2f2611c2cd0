//! Replaces `s3.rs` without the feature `s3`: there are no buckets.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;

use super::{BucketError, BucketObject, BucketRead, Location};

#[derive(Debug)]
pub struct Bucket(Infallible);

#[derive(Debug)]
pub(crate) struct Upload(Infallible);

#[derive(Debug)]
pub(crate) struct PendingUpload(Infallible);

impl Bucket {
    pub fn open(_: &Location, _: Option<&str>) -> Result<Self, BucketError> {
        Err(BucketError::NotBuilt)
    }

    pub(crate) fn location(&self) -> &Location {
        match self.0 {}
    }

    pub(crate) fn list(&self, _: &str, _: usize) -> Result<Vec<BucketObject>, BucketError> {
        match self.0 {}
    }

    pub(crate) fn read(
        &self,
        _: &str,
        _: Range<u64>,
        _: Option<&str>,
    ) -> Result<BucketRead, BucketError> {
        match self.0 {}
    }

    pub(crate) fn read_each(
        &self,
        _: &[String],
        _: u64,
        _: impl FnMut(usize, Result<BucketRead, BucketError>),
    ) {
        match self.0 {}
    }

    pub(crate) fn fetch(
        &self,
        _: String,
        _: Range<u64>,
        _: Option<String>,
        _: impl FnOnce(Result<BucketRead, BucketError>) + Send + 'static,
    ) {
        match self.0 {}
    }

    pub(crate) fn upload(self: &Arc<Self>, _: &str, _: u64) -> Result<Upload, BucketError> {
        match self.0 {}
    }

    pub(crate) fn create_marker(&self, _: String) {
        match self.0 {}
    }

    pub(crate) fn delete(&self, _: &str) -> Result<(), BucketError> {
        match self.0 {}
    }
}

impl Upload {
    pub(crate) fn append(&mut self, _: &[u8]) -> Result<(), BucketError> {
        match self.0 {}
    }

    pub(crate) fn finish(self) -> Result<PendingUpload, BucketError> {
        match self.0 {}
    }
}

impl PendingUpload {
    pub(crate) fn wait(self) -> Result<Option<String>, BucketError> {
        match self.0 {}
    }
}
