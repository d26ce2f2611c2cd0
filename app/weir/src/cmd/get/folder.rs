//! Local directories of a download, and the listings that say what goes into them.

use std::cell::{Cell, OnceCell};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use weir_socket::{Directory, MemoryOutput, is_reserved_name};
use weir_wire::Name;

use super::{is_file_name, write_error_advice};
use crate::table::printable;

/// A local directory. It is created with its first file, and removed on drop if it stayed empty.
///
/// The directory stays open. Files are created relative to the open directory, so another user who
/// replaces its path by a link cannot redirect them. In the path of the command line, symbolic
/// links are followed except in the last component. Below that path, links are not followed. With
/// `--follow-links` all links are followed.
pub(super) struct Folder {
    path: PathBuf,
    parent: Option<Rc<Folder>>,
    follow_links: bool,
    open: OnceCell<Arc<Directory>>,
    /// It was created by this command and is removed if it is empty.
    is_removable: Cell<bool>,
}

impl Folder {
    /// The directory at a path. Missing parents are created with it.
    pub(super) fn at(path: &Path, follow_links: bool) -> Rc<Self> {
        // Existing parents are not tracked, because they are never removed.
        let above = path.parent().filter(|above| *above != Path::new("") && !above.exists());
        let above = above.map(|above| Self::at(above, follow_links));
        Self::new(path.to_owned(), above, follow_links)
    }

    pub(super) fn within(self: &Rc<Self>, name: &[u8]) -> Rc<Self> {
        let path = self.path.join(OsStr::from_bytes(name));
        Self::new(path, Some(self.clone()), self.follow_links)
    }

    fn new(path: PathBuf, parent: Option<Rc<Self>>, follow_links: bool) -> Rc<Self> {
        let (open, may_go) = (OnceCell::new(), Cell::new(false));
        Rc::new(Self { path, parent, follow_links, open, is_removable: may_go })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// Creates the directory if it is missing, and opens it.
    pub(super) fn make(&self) -> Result<Arc<Directory>, String> {
        if let Some(open) = self.open.get() {
            return Ok(open.clone());
        }
        let above = self.parent.as_ref().map(|parent| parent.make()).transpose()?;
        // Use the open parent: its path may have been replaced by a link.
        let created = match &above {
            Some(above) => above.make_in(self.name()),
            None => std::fs::create_dir(&self.path),
        };
        match created {
            Ok(()) => self.is_removable.set(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(format!("cannot create {}: {error}", printable(self.path.display())));
            }
        }
        let opened = match above {
            Some(above) if !self.follow_links => above.open_in(self.name()),
            _ => Directory::open(&self.path, self.follow_links),
        };
        let open = opened.map_err(|error| self.explain(&error))?;
        Ok(self.open.get_or_init(|| open).clone())
    }

    /// The message if the path exists but cannot be used as the directory.
    fn explain(&self, error: &std::io::Error) -> String {
        let path = printable(self.path.display());
        match std::fs::symlink_metadata(&self.path).map(|found| found.file_type()) {
            Ok(found) if found.is_symlink() && self.path.is_dir() => format!(
                "{path} is a symbolic link to a directory; write it as {path}/ to follow it, or \
                 use --follow-links"
            ),
            Ok(found) if found.is_symlink() => {
                format!("{path} is a symbolic link; move it away, or choose another path with -o")
            }
            Ok(found) if found.is_file() => format!(
                "it is a directory, but {path} is a local file; move that away, or choose another \
                 path with -o"
            ),
            Ok(found) if !found.is_dir() => format!(
                "it is a directory, but {path} is a device, a pipe or a socket; choose a local \
                 directory with -o"
            ),
            _ => format!("cannot open {path}: {error}{}", write_error_advice(error)),
        }
    }

    /// Returns an error if the path exists and is not a usable directory.
    pub(super) fn check(&self) -> Result<(), String> {
        if !self.path.exists() && !self.path.is_symlink() {
            return Ok(());
        }
        let opened = Directory::open(&self.path, self.follow_links);
        opened.map(drop).map_err(|error| self.explain(&error))
    }

    /// Creates a directory that is empty at the producer and must stay.
    pub(super) fn make_empty(&self) -> Result<(), String> {
        self.make()?;
        self.is_removable.set(false);
        Ok(())
    }

    /// Syncs the file system, so that created directories are as durable as the files.
    pub(super) fn sync(&self) -> Result<(), String> {
        let Some(open) = self.open.get() else { return Ok(()) };
        open.sync_file_system().map_err(|error| {
            format!("cannot sync {} to disk: {error}", printable(self.path.display()))
        })
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_removable.get() {
            // Fails if the directory is not empty, and then it stays.
            let _ = match self.parent.as_ref().and_then(|parent| parent.open.get()) {
                Some(above) => above.remove_empty(self.name()),
                None => std::fs::remove_dir(&self.path),
            };
        }
    }
}

/// The entries of a directory, returned one by one.
pub(super) struct Listing {
    pub(super) name: Name,
    pub(super) folder: Rc<Folder>,
    /// Number of directories above its entries.
    pub(super) depth: usize,
    octets: Vec<u8>,
    at: usize,
    /// Keeps the bytes charged to the memory budget.
    _budget: MemoryOutput,
}

impl Listing {
    /// Parses a listing: names, each followed by NUL; the name of a directory ends with a slash.
    /// Rejects names such as `..` or `a/b`, which would lead out of the directory.
    pub(super) fn new(
        name: Name,
        folder: Rc<Folder>,
        depth: usize,
        output: MemoryOutput,
    ) -> Result<Self, String> {
        let octets = output.take();
        entries(&octets).try_for_each(check)?;
        Ok(Self { name, folder, depth, octets, at: 0, _budget: output })
    }

    /// The number of all entries.
    pub(super) fn len(&self) -> usize {
        entries(&self.octets).count()
    }

    /// The name of the next entry.
    pub(super) fn next_entry(&mut self) -> Option<Vec<u8>> {
        let rest = &self.octets[self.at..];
        let entry = entries(rest).next()?;
        // `entry` is a slice of `rest`, so the difference is the number of skipped NULs before it.
        let skipped = entry.as_ptr() as usize - rest.as_ptr() as usize;
        self.at += (skipped + entry.len() + 1).min(rest.len());
        Some(entry.strip_suffix(b"/").unwrap_or(entry).to_vec())
    }
}

fn entries(octets: &[u8]) -> impl Iterator<Item = &[u8]> {
    octets.split(|&octet| octet == 0).filter(|entry| !entry.is_empty())
}

fn check(entry: &[u8]) -> Result<(), String> {
    let name = entry.strip_suffix(b"/").unwrap_or(entry);
    let shown = || name.escape_ascii().to_string();
    if !is_file_name(name) {
        return Err(format!("the directory lists {:?}, which is not a valid file name", shown()));
    }
    if is_reserved_name(name) {
        return Err(format!(
            "the directory lists {:?}, a name reserved for part files; fetch it alone with -o and \
             another name",
            shown()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use weir_socket::{Opened, Output as _};
    use weir_transport::Metadata;

    use super::*;

    fn listing(octets: &[u8]) -> Result<Listing, String> {
        let mut output = MemoryOutput::new(1000);
        let metadata = Metadata::new("/a/54=%01".parse().unwrap());
        let Opened::Stream(mut out) = output.open(&metadata).unwrap() else {
            panic!("it is a stream")
        };
        out.write_all(octets).unwrap();
        Listing::new(Name::new(), Folder::at(Path::new("here"), false), 0, output)
    }

    #[test]
    fn rejects_unsafe_listing_entries() {
        let names = |octets: &[u8]| {
            let mut listing = listing(octets)?;
            let count = listing.len();
            let names: Vec<_> = std::iter::from_fn(|| listing.next_entry()).collect();
            assert_eq!(names.len(), count);
            Ok::<_, String>(names)
        };
        assert_eq!(names(b"a\0dir/\0b\0").unwrap(), [&b"a"[..], b"dir", b"b"]);
        assert_eq!(names(b"\0\0a\0\0b").unwrap(), [b"a", b"b"]);
        assert_eq!(names(b"").unwrap(), Vec::<Vec<u8>>::new());
        for octets in [&b"../a\0"[..], b"..\0", b"a/b\0", b"/etc\0", b".\0", b"/\0"] {
            assert!(names(octets).is_err(), "{octets:?}");
        }
        for octets in [&b"x\0.x.weir-state\0"[..], b".x.weir-part\0", b".x.weir-part/\0"] {
            assert!(names(octets).is_err(), "{octets:?}");
        }
    }

    #[test]
    fn removes_created_folders_left_empty() {
        let site = tempfile::tempdir().unwrap();
        let root = Folder::at(&site.path().join("above/root"), false);
        let (used, unused, empty) = (root.within(b"used"), root.within(b"no"), root.within(b"e"));
        for folder in [&used, &unused] {
            folder.make().unwrap();
        }
        std::fs::write(used.path().join("file"), "").unwrap();
        empty.make_empty().unwrap();
        drop((used, unused, empty, root));
        let root = site.path().join("above/root");
        assert!(root.join("used/file").exists() && root.join("e").exists());
        assert!(!root.join("no").exists());

        std::fs::remove_dir_all(site.path().join("above")).unwrap();
        let folder = Folder::at(&site.path().join("above/root"), false).within(b"in");
        folder.make().unwrap();
        assert!(folder.path().exists());
        drop(folder);
        assert_eq!(std::fs::read_dir(site.path()).unwrap().count(), 0);

        std::fs::write(site.path().join("file"), "").unwrap();
        let error = Folder::at(&site.path().join("file"), false).make().unwrap_err();
        assert!(error.contains("is a local file"), "{error}");
    }
}
