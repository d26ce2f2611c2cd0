//! Directories on their way: what they list, and where they go.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use weir_socket::{MemoryOutput, is_reserved_name};
use weir_wire::Name;

use super::is_file_name;
use crate::table::printable;

/// A directory of this machine that is made when the first file is put into it, and taken away
/// again at the end if nothing was.
pub(super) struct Folder {
    path: PathBuf,
    parent: Option<Rc<Folder>>,
    /// It is there.
    is_there: Cell<bool>,
    /// It was made here and goes if it is empty.
    may_go: Cell<bool>,
}

impl Folder {
    /// One that lies in no other that is to be made.
    pub(super) fn at(path: &Path) -> Rc<Self> {
        let above = path.parent().filter(|above| *above != Path::new("") && !above.exists());
        Self::new(path.to_owned(), above.map(Self::at))
    }

    pub(super) fn within(self: &Rc<Self>, name: &[u8]) -> Rc<Self> {
        Self::new(self.path.join(OsStr::from_bytes(name)), Some(self.clone()))
    }

    fn new(path: PathBuf, parent: Option<Rc<Self>>) -> Rc<Self> {
        Rc::new(Self { path, parent, is_there: Cell::new(false), may_go: Cell::new(false) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it, unless it is there.
    pub(super) fn make(&self) -> Result<(), String> {
        if self.is_there.get() {
            return Ok(());
        }
        if let Some(parent) = &self.parent {
            parent.make()?;
        }
        let path = printable(self.path.display());
        match std::fs::create_dir(&self.path) {
            Ok(()) => self.may_go.set(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if !self.path.is_dir() {
                    return Err(format!(
                        "{path} is a file here and a directory there; move it away, or name \
                         another place with -o"
                    ));
                }
            }
            Err(error) => return Err(format!("cannot make {path}: {error}")),
        }
        self.is_there.set(true);
        Ok(())
    }

    /// Makes one that is meant to be empty.
    pub(super) fn make_empty(&self) -> Result<(), String> {
        self.make()?;
        self.may_go.set(false);
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.may_go.get() {
            // One that holds something stays.
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

/// What a directory lists, handed out one by one.
pub(super) struct Listing {
    pub(super) name: Name,
    pub(super) folder: Rc<Folder>,
    /// Directories that it lies in.
    pub(super) depth: usize,
    octets: Vec<u8>,
    at: usize,
    /// Holds the room that the octets take.
    _room: MemoryOutput,
}

impl Listing {
    /// Takes names, each ended by a NUL, those of directories with a slash before it. One that
    /// would lead elsewhere is refused.
    pub(super) fn new(
        name: Name,
        folder: Rc<Folder>,
        depth: usize,
        output: MemoryOutput,
    ) -> Result<Self, String> {
        let octets = output.take();
        entries(&octets).try_for_each(check)?;
        Ok(Self { name, folder, depth, octets, at: 0, _room: output })
    }

    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        entries(&self.octets).count()
    }

    /// The name of the next entry.
    pub(super) fn next_entry(&mut self) -> Option<Vec<u8>> {
        let rest = &self.octets[self.at..];
        let entry = entries(rest).next()?;
        // Both are slices of one allocation, and a NUL or the end follows.
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
        return Err(format!("the directory lists {:?}, which is no file name", shown()));
    }
    if is_reserved_name(name) {
        return Err(format!(
            "the directory lists {:?}, a name that downloads use while they go on; get it alone, \
             under another name, with -o",
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
        Listing::new(Name::new(), Folder::at(Path::new("here")), 0, output)
    }

    #[test]
    fn listings_cannot_lead_elsewhere() {
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
    fn only_folders_that_hold_something_stay() {
        let site = tempfile::tempdir().unwrap();
        let root = Folder::at(&site.path().join("above/root"));
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
        let folder = Folder::at(&site.path().join("above/root")).within(b"in");
        folder.make().unwrap();
        assert!(folder.path().exists());
        drop(folder);
        assert_eq!(std::fs::read_dir(site.path()).unwrap().count(), 0);

        std::fs::write(site.path().join("file"), "").unwrap();
        let error = Folder::at(&site.path().join("file")).make().unwrap_err();
        assert!(error.contains("is a file here"), "{error}");
    }
}
