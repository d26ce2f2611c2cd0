//! Walks a directory and collects the files and folders to publish.

use std::collections::BTreeSet;
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

/// Maximum depth of nested folders.
const DEPTH_MAX: usize = 64;
/// Maximum number of files and folders. Links can reach the same files many times.
const ENTRIES_MAX: usize = 1 << 22;

/// The file or directory to publish, and its name.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) path: &'a Path,
    pub(super) name: &'a Name,
    pub(super) is_directory: bool,
}

/// A file or folder. `parent` is the index of its folder in [`Tree::folders`].
pub(super) struct Entry {
    pub(super) parent: Option<usize>,
    pub(super) name: OsString,
}

/// A folder of the tree.
pub(super) struct Folder {
    pub(super) entry: Entry,
    pub(super) name: Name,
    pub(super) id: FolderId,
    pub(super) is_empty: bool,
    /// Whether its entries were read. Otherwise only its name and ID are known.
    pub(super) is_read: bool,
    /// Whether its name is short enough for the names of its entries.
    pub(super) is_served: bool,
}

impl Folder {
    fn read(entry: Entry, name: Name, id: FolderId, is_empty: bool) -> Self {
        Self { entry, name, id, is_empty, is_read: true, is_served: true }
    }

    /// Whether its listing can be published.
    pub(super) fn is_listed(&self) -> bool {
        self.is_read && self.is_served
    }
}

/// An entry that is not published.
pub(super) struct Skipped {
    pub(super) entry: Entry,
    pub(super) reason: String,
    pub(super) cause: SkipCause,
}

/// Why an entry is not published.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SkipCause {
    /// Entries of this type are never published.
    Rule,
    /// It is nested too deep.
    Limit,
    /// It could not be examined. It may be a file that is already published.
    Unknown,
}

/// The files and folders of a directory.
#[derive(Default)]
pub(super) struct Tree {
    /// The entry name of a folder without a parent is its path. This is the root, which comes
    /// first, or a folder that was scanned alone.
    pub(super) folders: Vec<Folder>,
    pub(super) files: Vec<Entry>,
    pub(super) skipped: Vec<Skipped>,
    /// Folders with links to files. Such a file changes without an event in the folder.
    pub(super) linked: BTreeSet<usize>,
}

impl Tree {
    /// Walks a whole directory. Fails if the directory itself cannot be read; unreadable entries
    /// are skipped.
    pub(super) fn of(path: &Path, name: &Name, follow_links: bool) -> anyhow::Result<Self> {
        let real = path.canonicalize().map_err(|error| cannot_read(path, &error))?;
        let mut walk = Walk { root: real.clone(), follow_links, tree: Self::default() };
        let root = Entry { parent: None, name: path.as_os_str().to_owned() };
        walk.folder(path, real, &mut Vec::new(), root, name.clone())?
            .map_err(|(error, _)| cannot_read(path, &error))?;
        Ok(walk.tree)
    }

    /// Reads some folders of a directory, without their subfolders. `root` is the path of the
    /// directory without links.
    pub(super) fn of_folders<'a>(
        root: &Path,
        folders: impl Iterator<Item = (&'a Path, Name)>,
    ) -> std::io::Result<Self> {
        let mut walk = Walk { root: root.to_owned(), follow_links: false, tree: Self::default() };
        for (path, name) in folders {
            walk.folder_alone(path, name)?;
        }
        Ok(walk.tree)
    }

    /// The entry and its ancestors, starting with the root.
    fn ancestry<'b>(&'b self, entry: &'b Entry) -> Vec<&'b Entry> {
        let parent = |entry: &&'b Entry| entry.parent.map(|parent| &self.folders[parent].entry);
        let mut line: Vec<&Entry> = std::iter::successors(Some(entry), parent).collect();
        line.reverse();
        line
    }

    pub(super) fn path_of(&self, entry: &Entry) -> PathBuf {
        self.ancestry(entry).iter().map(|entry| &entry.name).collect()
    }

    /// The name of an entry that has a parent.
    pub(super) fn name_of(&self, entry: &Entry) -> Name {
        let parent = entry.parent.expect("it lies in a folder");
        name_in(&self.folders[parent].name, entry)
    }
}

fn name_in(folder: &Name, entry: &Entry) -> Name {
    folder.clone().append_generic(entry.name.as_bytes()).clone()
}

/// The state of a walk.
struct Walk {
    /// The path of the directory without links.
    root: PathBuf,
    follow_links: bool,
    tree: Tree,
}

enum EntryKind {
    File {
        is_link: bool,
    },
    /// A folder, with its path without links.
    Folder(PathBuf),
}

/// The message and the cause of a skipped entry.
type Reason = (String, SkipCause);

impl Walk {
    /// Adds a folder and everything below it. `above` contains the paths of its ancestors without
    /// links, to detect circles. The inner error means that the folder cannot be read.
    fn folder(
        &mut self,
        path: &Path,
        real: PathBuf,
        above: &mut Vec<PathBuf>,
        entry: Entry,
        name: Name,
    ) -> anyhow::Result<Result<(), (std::io::Error, Entry)>> {
        let (id, entries) = match read_folder(path) {
            Ok(read) => read,
            Err(error) => return Ok(Err((error, entry))),
        };
        let number = self.tree.folders.len();
        let is_empty = entries.is_empty();
        self.tree.folders.push(Folder::read(entry, name.clone(), id, is_empty));
        // Check before walking further, so that the tree never exceeds the limit by much.
        if self.tree.folders.len() + self.tree.files.len() + entries.len() > ENTRIES_MAX {
            bail!(
                "{} has more than {ENTRIES_MAX} files and directories; put its subdirectories \
                 under separate names",
                printable(self.root.display())
            );
        }
        above.push(real);
        for entry in entries {
            let here = Entry { parent: Some(number), name: entry.file_name() };
            match self.classify(&entry, above) {
                Ok(EntryKind::File { is_link }) => self.file(here, number, is_link),
                Ok(EntryKind::Folder(_)) if above.len() >= DEPTH_MAX => {
                    let reason = format!("it is nested more than {DEPTH_MAX} directories deep");
                    self.skip(here, (reason, SkipCause::Limit));
                }
                Ok(EntryKind::Folder(real)) => {
                    let name = name_in(&name, &here);
                    let folder = self.folder(&entry.path(), real, above, here, name)?;
                    if let Err((error, here)) = folder {
                        self.skip(here, (error.to_string(), SkipCause::Unknown));
                    }
                }
                Err(reason) => self.skip(here, reason),
            }
        }
        above.pop();
        Ok(Ok(()))
    }

    /// Adds a folder with its files, and its subfolders without their entries.
    fn folder_alone(&mut self, path: &Path, name: Name) -> std::io::Result<()> {
        let (id, entries) = read_folder(path)?;
        let number = self.tree.folders.len();
        let (entry, is_empty) =
            (Entry { parent: None, name: path.as_os_str().to_owned() }, entries.is_empty());
        self.tree.folders.push(Folder::read(entry, name.clone(), id, is_empty));
        for entry in entries {
            let here = Entry { parent: Some(number), name: entry.file_name() };
            match self.classify(&entry, &[]) {
                Ok(EntryKind::File { is_link }) => self.file(here, number, is_link),
                Ok(EntryKind::Folder(real)) => {
                    let (id, name) = (folder_id(&fs::metadata(real)?), name_in(&name, &here));
                    let folder = Folder::read(here, name, id, false);
                    self.tree.folders.push(Folder { is_read: false, ..folder });
                }
                Err(reason) => self.skip(here, reason),
            }
        }
        Ok(())
    }

    fn file(&mut self, entry: Entry, folder: usize, is_link: bool) {
        if is_link {
            self.tree.linked.insert(folder);
        }
        self.tree.files.push(entry);
    }

    fn skip(&mut self, entry: Entry, (reason, cause): Reason) {
        self.tree.skipped.push(Skipped { entry, reason, cause });
    }

    /// Returns the type of an entry, or why it is skipped.
    fn classify(&self, entry: &DirEntry, above: &[PathBuf]) -> Result<EntryKind, Reason> {
        let unknown = |error: std::io::Error| (error.to_string(), SkipCause::Unknown);
        let known = |reason: &str| (reason.to_owned(), SkipCause::Rule);
        if is_reserved_name(&entry.file_name().into_vec()) {
            return Err(known("it belongs to an unfinished download"));
        }
        let kind = entry.file_type().map_err(unknown)?;
        if kind.is_file() {
            return Ok(EntryKind::File { is_link: false });
        }
        let path = entry.path();
        if kind.is_dir() {
            return Ok(EntryKind::Folder(path.canonicalize().map_err(unknown)?));
        }
        if !kind.is_symlink() {
            return Err(known("it is neither a file nor a directory"));
        }
        // The target may be missing only for a moment, so keep what is published.
        let real = path
            .canonicalize()
            .map_err(|error| (format!("a broken link: {error}"), SkipCause::Unknown))?;
        if !self.follow_links && !real.starts_with(&self.root) {
            return Err(known("a link out of the directory; follow it with --follow-links"));
        }
        let found = fs::metadata(&real).map_err(unknown)?;
        match (found.is_file(), found.is_dir()) {
            (true, _) => Ok(EntryKind::File { is_link: true }),
            (_, true) if !self.follow_links => {
                Err(known("a link to a directory; follow it with --follow-links"))
            }
            // The linked folder contains the link, so the walk would never end.
            (_, true) if above.iter().any(|above| above.starts_with(&real)) => {
                Err(known("a link to one of its parent directories"))
            }
            (_, true) => Ok(EntryKind::Folder(real)),
            _ => Err(known("it is neither a file nor a directory")),
        }
    }
}

/// Reads the ID and the entries of a folder.
fn read_folder(path: &Path) -> std::io::Result<(FolderId, Vec<DirEntry>)> {
    loop {
        let before = folder_id(&fs::metadata(path)?);
        let entries = fs::read_dir(path)?.collect::<std::io::Result<_>>()?;
        // Repeat if a file system was mounted or unmounted in between.
        if folder_id(&fs::metadata(path)?) == before {
            return Ok((before, entries));
        }
    }
}

fn folder_id(metadata: &Metadata) -> FolderId {
    [metadata.dev(), metadata.ino()]
}
