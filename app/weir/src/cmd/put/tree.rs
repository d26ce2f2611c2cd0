//! Looks through a directory for what there is to publish.

use std::ffi::OsString;
use std::fs::{self, DirEntry, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::bail;
use weir_socket::is_reserved_name;
use weir_wire::Name;

use super::seen::FolderId;
use crate::table::printable;
use crate::transfer::cannot_read;

/// Folders within folders at most.
const DEPTH_MAX: usize = 64;
/// Files and folders at most: with links there may be more than on the disk.
const ENTRIES_MAX: usize = 1 << 22;

/// A file or folder, by its parent's number.
pub(super) struct Entry {
    pub(super) parent: Option<usize>,
    pub(super) name: OsString,
}

/// A folder that has been read.
pub(super) struct Folder {
    pub(super) entry: Entry,
    pub(super) id: FolderId,
    pub(super) is_empty: bool,
}

/// Something that is not published.
pub(super) struct Skipped {
    pub(super) entry: Entry,
    pub(super) reason: String,
    /// It could not be examined: it may be a file that was published.
    pub(super) is_unknown: bool,
}

/// What there is to sign.
#[derive(Default)]
pub(super) struct Tree {
    /// The first is the root, whose name is its path.
    pub(super) folders: Vec<Folder>,
    pub(super) files: Vec<Entry>,
    pub(super) skipped: Vec<Skipped>,
}

impl Tree {
    /// Looks through a directory. Only what is in it may be skipped.
    pub(super) fn of(path: &Path, follow_links: bool) -> anyhow::Result<Self> {
        let real = path.canonicalize().map_err(|error| cannot_read(path, &error))?;
        let mut walk = Walk { root: real.clone(), follow_links, tree: Self::default() };
        let root = Entry { parent: None, name: path.as_os_str().to_owned() };
        walk.folder(path, real, &mut Vec::new(), root)?
            .map_err(|(error, _)| cannot_read(path, &error))?;
        Ok(walk.tree)
    }

    /// The entry and what it lies in, from the root on.
    fn line<'b>(&'b self, entry: &'b Entry) -> Vec<&'b Entry> {
        let parent = |entry: &&'b Entry| entry.parent.map(|parent| &self.folders[parent].entry);
        let mut line: Vec<&Entry> = std::iter::successors(Some(entry), parent).collect();
        line.reverse();
        line
    }

    pub(super) fn path_of(&self, entry: &Entry) -> PathBuf {
        self.line(entry).iter().map(|entry| &entry.name).collect()
    }

    pub(super) fn name_of(&self, root: &Name, entry: &Entry) -> Name {
        let mut name = root.clone();
        for entry in &self.line(entry)[1..] {
            name.append_generic(entry.name.as_bytes());
        }
        name
    }
}

/// Looks through a directory.
struct Walk {
    /// With no links in it.
    root: PathBuf,
    follow_links: bool,
    tree: Tree,
}

enum Kind {
    File,
    /// A folder, with its path that has no links in it.
    Folder(PathBuf),
}

/// Why an entry is skipped, and whether it could not be examined.
type Reason = (String, bool);

impl Walk {
    /// Adds a folder and what is in it. `above` are the folders that it lies in, links followed.
    /// If it cannot be read, returns why.
    fn folder(
        &mut self,
        path: &Path,
        real: PathBuf,
        above: &mut Vec<PathBuf>,
        entry: Entry,
    ) -> anyhow::Result<Result<(), (std::io::Error, Entry)>> {
        let (id, entries) = match read_folder(path) {
            Ok(read) => read,
            Err(error) => return Ok(Err((error, entry))),
        };
        let number = self.tree.folders.len();
        self.tree.folders.push(Folder { entry, id, is_empty: entries.is_empty() });
        if self.tree.folders.len() + self.tree.files.len() + entries.len() > ENTRIES_MAX {
            bail!(
                "there are more than {ENTRIES_MAX} files and directories in {}; put parts of it \
                 under names of their own",
                printable(self.root.display())
            );
        }
        above.push(real);
        for entry in entries {
            let here = Entry { parent: Some(number), name: entry.file_name() };
            match self.kind(&entry, above) {
                Ok(Kind::File) => self.tree.files.push(here),
                Ok(Kind::Folder(_)) if above.len() >= DEPTH_MAX => {
                    let reason = format!("it lies more than {DEPTH_MAX} directories deep");
                    self.skip(here, (reason, false));
                }
                Ok(Kind::Folder(real)) => {
                    if let Err((error, here)) = self.folder(&entry.path(), real, above, here)? {
                        self.skip(here, (error.to_string(), true));
                    }
                }
                Err(reason) => self.skip(here, reason),
            }
        }
        above.pop();
        Ok(Ok(()))
    }

    fn skip(&mut self, entry: Entry, (reason, is_unknown): Reason) {
        self.tree.skipped.push(Skipped { entry, reason, is_unknown });
    }

    /// What an entry is, or why it is skipped.
    fn kind(&self, entry: &DirEntry, above: &[PathBuf]) -> Result<Kind, Reason> {
        let unknown = |error: std::io::Error| (error.to_string(), true);
        let known = |reason: &str| (reason.to_owned(), false);
        if is_reserved_name(&entry.file_name().into_vec()) {
            return Err(known("it belongs to a download that has not ended"));
        }
        let kind = entry.file_type().map_err(unknown)?;
        if kind.is_file() {
            return Ok(Kind::File);
        }
        let path = entry.path();
        if kind.is_dir() {
            return Ok(Kind::Folder(path.canonicalize().map_err(unknown)?));
        }
        if !kind.is_symlink() {
            return Err(known("it is neither a file nor a directory"));
        }
        let real = path
            .canonicalize()
            .map_err(|error| (format!("a link that leads nowhere: {error}"), true))?;
        if !self.follow_links && !real.starts_with(&self.root) {
            return Err(known("a link that leads out of the directory; --follow-links serves it"));
        }
        let found = fs::metadata(&real).map_err(unknown)?;
        match (found.is_file(), found.is_dir()) {
            (true, _) => Ok(Kind::File),
            (_, true) if !self.follow_links => {
                Err(known("a link to a directory; --follow-links serves it"))
            }
            (_, true) if above.iter().any(|above| above.starts_with(&real)) => {
                Err(known("a link that leads in a circle"))
            }
            (_, true) => Ok(Kind::Folder(real)),
            _ => Err(known("it is neither a file nor a directory")),
        }
    }
}

/// The entries of a folder, and which one it is.
fn read_folder(path: &Path) -> std::io::Result<(FolderId, Vec<DirEntry>)> {
    let id = |metadata: Metadata| [metadata.dev(), metadata.ino()];
    loop {
        let before = id(fs::metadata(path)?);
        let entries = fs::read_dir(path)?.collect::<std::io::Result<_>>()?;
        // A file system may be mounted here, or unmounted, in between.
        if id(fs::metadata(path)?) == before {
            return Ok((before, entries));
        }
    }
}
