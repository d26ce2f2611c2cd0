//! What there is without the feature `s3`: no bucket.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;

use crate::{BucketError, Found, Location, Piece};

/// There is none.
#[derive(Debug)]
pub struct Bucket(Infallible);

/// There is none.
#[derive(Debug)]
pub struct Upload(Infallible);

/// There is none.
#[derive(Debug)]
pub struct Pending(Infallible);

#[expect(missing_docs, reason = "as with the feature")]
impl Bucket {
    pub fn open(_: &Location, _: Option<&str>) -> Result<Self, BucketError> {
        Err(BucketError::NotBuilt)
    }

    pub fn location(&self) -> &Location {
        match self.0 {}
    }

    pub fn list(&self, _: &str, _: usize) -> Result<Vec<Found>, BucketError> {
        match self.0 {}
    }

    pub fn read(&self, _: &str, _: Range<u64>, _: Option<&str>) -> Result<Piece, BucketError> {
        match self.0 {}
    }

    pub fn read_each(
        &self,
        _: &[String],
        _: u64,
        _: impl FnMut(usize, Result<Piece, BucketError>),
    ) {
        match self.0 {}
    }

    pub fn fetch(
        &self,
        _: String,
        _: Range<u64>,
        _: Option<String>,
        _: impl FnOnce(Result<Piece, BucketError>) + Send + 'static,
    ) {
        match self.0 {}
    }

    pub fn upload(self: &Arc<Self>, _: &str, _: u64) -> Result<Upload, BucketError> {
        match self.0 {}
    }

    pub fn note(&self, _: String) {
        match self.0 {}
    }

    pub fn delete(&self, _: &str) -> Result<(), BucketError> {
        match self.0 {}
    }
}

#[expect(missing_docs, reason = "as with the feature")]
impl Upload {
    pub fn append(&mut self, _: &[u8]) -> Result<(), BucketError> {
        match self.0 {}
    }

    pub fn finish(self) -> Result<Pending, BucketError> {
        match self.0 {}
    }
}

#[expect(missing_docs, reason = "as with the feature")]
impl Pending {
    pub fn wait(self) -> Result<Option<String>, BucketError> {
        match self.0 {}
    }
}
