//! Files that stay open between reads: their content can be read even if their names are removed or
//! reused.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{MemfdFlags, memfd_create};

/// Files up to this size are copied, because they might be overwritten.
pub(crate) const COPY_BYTES_MAX: u64 = 64 << 10;

/// A limited number of files that stay open between reads.
#[derive(Clone, Debug)]
pub struct OpenFiles {
    free_slots: Arc<AtomicUsize>,
    max: usize,
}

impl OpenFiles {
    /// Room for `max` files.
    pub fn new(max: usize) -> Self {
        Self { free_slots: Arc::new(AtomicUsize::new(max)), max }
    }

    /// Whether to keep the first version of a file of this size. Most files are never replaced, so
    /// first versions are kept only as copies, and use at most half of the room.
    pub fn may_hold_first_version(&self, bytes: u64) -> bool {
        bytes <= COPY_BYTES_MAX && self.free_slots.load(Ordering::Relaxed) > self.max / 2
    }

    /// Keeps a file open, if there is room.
    pub(crate) fn hold_open(&self, file: Arc<File>) -> Option<HeldFile> {
        let take = |left: usize| left.checked_sub(1);
        self.free_slots.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(HeldFile { file, is_copy: false, _room: Arc::new(OpenSlot(self.free_slots.clone())) })
    }

    /// Keeps a copy of some content in memory, if there is room.
    pub(crate) fn hold_copy(&self, content: &[u8]) -> Option<HeldFile> {
        let mut copy = File::from(memfd_create("weir", MemfdFlags::CLOEXEC).ok()?);
        copy.write_all(content).ok()?;
        self.hold_open(Arc::new(copy)).map(|held| HeldFile { is_copy: true, ..held })
    }
}

/// The room of one file, released on drop.
#[derive(Debug)]
struct OpenSlot(Arc<AtomicUsize>);

impl Drop for OpenSlot {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A file that is kept open, even if its name is removed or reused.
#[derive(Clone, Debug)]
pub(crate) struct HeldFile {
    pub(crate) file: Arc<File>,
    /// It is a copy, which no one else can change.
    pub(crate) is_copy: bool,
    _room: Arc<OpenSlot>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_open_files() {
        let files = OpenFiles::new(1);
        let file = Arc::new(tempfile::tempfile().unwrap());
        let held = files.hold_open(file.clone()).unwrap();
        assert!(files.hold_open(file.clone()).is_none());
        let copy = held.clone();
        drop(held);
        assert!(files.hold_open(file.clone()).is_none());
        drop(copy);
        assert!(files.hold_open(file).is_some());
    }
}
