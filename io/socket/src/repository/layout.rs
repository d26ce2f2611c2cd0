//! Common to folders and buckets.

use std::path::PathBuf;

use crate::object::stored::StoredObject;

/// The object that makes a place a repository.
pub(super) const MARK: &str = "repository";
/// Its content.
pub(super) const MARK_TEXT: &str = "weir repository 1\n";
pub(super) const OBJECTS: &str = "objects";

/// The objects found at the start.
#[derive(Debug, Default)]
pub(super) struct LoadedObjects {
    pub(super) intact: Vec<StoredObject>,
    pub(super) unfinished: u64,
    pub(super) unreadable: Vec<PathBuf>,
}
