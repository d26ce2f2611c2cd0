//! What folders and buckets have in common.

use std::path::PathBuf;

use crate::object::stored::StoredObject;

/// The object that makes a place a repository.
pub(super) const MARK: &str = "repository";
/// What that says.
pub(super) const MARK_TEXT: &str = "weir repository 1\n";
pub(super) const OBJECTS: &str = "objects";

/// What is found at first.
#[derive(Debug, Default)]
pub(super) struct LoadedObjects {
    pub(super) intact: Vec<StoredObject>,
    pub(super) unfinished: u64,
    pub(super) unreadable: Vec<PathBuf>,
}
