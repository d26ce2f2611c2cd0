//! The state of a published directory: what the last scan found, and what is published.
//!
//! A file is withdrawn only after a scan found that it does not exist. If a scan could not examine
//! a file, its published version stays.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weir_transport::LISTING_KEYWORD;
use weir_wire::{Name, NameView};

/// Device, inode, size and times of a file. Equal stamps mean that the file has not changed.
pub(super) type Stamp = [i64; 7];
/// The names of the entries of a folder, each with a flag for folders.
pub(super) type Listing = Vec<(Vec<u8>, bool)>;
/// Device and inode of a folder.
pub(super) type FolderId = [u64; 2];

/// The published files and folders of a directory, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct DirectorySnapshot {
    /// `None` means that the file is in the repository, but this process has not examined it yet.
    pub(super) files: HashMap<Name, Option<Stamp>>,
    /// By the name of the folder. `None` has the same meaning as in `files`.
    pub(super) listings: HashMap<Name, Option<Listing>>,
    /// The folders that this process has examined.
    pub(super) folders: HashMap<Name, FolderId>,
}

impl DirectorySnapshot {
    /// The files and folders in a repository.
    pub(super) fn from_repository(objects: impl Iterator<Item = Name>) -> Self {
        let mut seen = Self::default();
        for mut object in objects {
            let is_listing =
                object.as_view().last().is_some_and(|last| last.is_keyword(LISTING_KEYWORD));
            if is_listing {
                object.pop();
                seen.listings.insert(object, None);
            } else {
                seen.files.insert(object, None);
            }
        }
        seen
    }

    /// The part of the snapshot about some folders and their entries. `None` if this process has
    /// not examined all of them.
    pub(super) fn subset<'a>(&self, folders: impl Iterator<Item = &'a Name>) -> Option<Self> {
        let mut part = Self::default();
        for folder in folders {
            part.add_folder_of(self, folder)?;
            for (entry, is_folder) in self.listings.get(folder)?.as_ref()? {
                let name = folder.clone().append_generic(entry).clone();
                if *is_folder {
                    part.add_folder_of(self, &name)?;
                } else {
                    let stamp = *self.files.get(&name)?;
                    part.files.insert(name, stamp);
                }
            }
        }
        Some(part)
    }

    fn add_folder_of(&mut self, all: &Self, folder: &Name) -> Option<()> {
        self.listings.insert(folder.clone(), all.listings.get(folder)?.clone());
        self.folders.insert(folder.clone(), *all.folders.get(folder)?);
        Some(())
    }

    /// Replaces a part of the snapshot by `now`.
    pub(super) fn replace(&mut self, part: &Self, now: Self) {
        for name in part.files.keys() {
            self.files.remove(name);
        }
        for name in part.listings.keys() {
            self.listings.remove(name);
            self.folders.remove(name);
        }
        self.files.extend(now.files);
        self.listings.extend(now.listings);
        self.folders.extend(now.folders);
    }

    /// Whether a file or folder of this name was published.
    pub(super) fn has(&self, name: &Name) -> bool {
        self.files.contains_key(name) || self.listings.contains_key(name)
    }

    /// All names that have a published file or folder below them.
    pub(super) fn parents(&self) -> HashSet<&[u8]> {
        let mut parents = HashSet::new();
        for name in self.files.keys().chain(self.listings.keys()) {
            let mut parent = name.as_view().parent();
            while parents.insert(parent.value()) && !parent.is_empty() {
                parent = parent.parent();
            }
        }
        parents
    }

    /// Copies the entries at or below the names in `unknown` from `before`. Returns whether there
    /// were any.
    pub(super) fn carry_over(&mut self, before: &Self, unknown: &HashSet<Name>) -> bool {
        if unknown.is_empty() {
            return false;
        }
        let unknown: HashSet<&[u8]> = unknown.iter().map(Name::value).collect();
        let is_unknown = |name: &Name| is_within(name.as_view(), &unknown);
        let mut has_any = false;
        for (name, stamp) in before.files.iter().filter(|(name, _)| is_unknown(name)) {
            self.files.entry(name.clone()).or_insert(*stamp);
            has_any = true;
        }
        for (name, listing) in before.listings.iter().filter(|(name, _)| is_unknown(name)) {
            self.listings.entry(name.clone()).or_insert_with(|| listing.clone());
            has_any = true;
        }
        for (name, id) in before.folders.iter().filter(|(name, _)| is_unknown(name)) {
            self.folders.entry(name.clone()).or_insert(*id);
        }
        has_any
    }

    /// Files and folders that are missing in `now`.
    fn missing<'a>(&'a self, now: &'a Self) -> impl Iterator<Item = &'a Name> {
        let files = self.files.keys().filter(|name| !now.files.contains_key(*name));
        files.chain(self.listings.keys().filter(|name| !now.listings.contains_key(*name)))
    }

    /// Names that are missing in `now` although their files exist: `readdir` may not list a file
    /// that is renamed meanwhile. Paths in `skipped` are never published and do not count.
    pub(super) fn overlooked(
        &self,
        now: &Self,
        root: &Path,
        root_name: &Name,
        skipped: &HashSet<&Path>,
    ) -> HashSet<Name> {
        let is_there = |name: &&Name| {
            let path = path_of(root, root_name, name);
            if path.ancestors().any(|path| skipped.contains(path)) {
                return false;
            }
            // A file that was replaced by a folder of the same name is not overlooked.
            match fs::symlink_metadata(&path) {
                Ok(found) if found.is_dir() => !now.listings.contains_key(*name),
                Ok(_) => !now.files.contains_key(*name),
                Err(error) => {
                    !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
                }
            }
        };
        self.missing(now).filter(is_there).cloned().collect()
    }

    /// The names of the objects that are missing in `now` and must be withdrawn.
    pub(super) fn withdrawn_since(&self, now: &Self) -> Vec<Name> {
        let files = self.files.keys().filter(|name| !now.files.contains_key(*name)).cloned();
        let folders = self.listings.keys().filter(|name| !now.listings.contains_key(*name));
        files.chain(folders.map(listing_name)).collect()
    }
}

/// Whether the set contains the name or a prefix of it.
fn is_within(name: NameView<'_>, names: &HashSet<&[u8]>) -> bool {
    let mut at = name;
    loop {
        if names.contains(at.value()) {
            return true;
        }
        if at.is_empty() {
            return false;
        }
        at = at.parent();
    }
}

/// The path of the file with this name.
pub(super) fn path_of(root: &Path, root_name: &Name, name: &Name) -> PathBuf {
    let below = name.as_view().suffix(root_name.as_view().component_count());
    let mut path = root.to_owned();
    path.extend(below.components().map(|component| OsStr::from_bytes(component.value)));
    path
}

/// The name of the folder with this path.
pub(super) fn folder_name(root: &Path, root_name: &Name, folder: &Path) -> Option<Name> {
    let mut name = root_name.clone();
    for part in folder.strip_prefix(root).ok()? {
        name.append_generic(part.as_bytes());
    }
    Some(name)
}

/// The name of the listing of a folder.
pub(super) fn listing_name(folder: &Name) -> Name {
    folder.clone().append_keyword(LISTING_KEYWORD).clone()
}

pub(super) fn stamp(metadata: &Metadata) -> Stamp {
    [
        metadata.dev() as i64,
        metadata.ino() as i64,
        metadata.len() as i64,
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(uri: &str) -> Name {
        uri.parse().unwrap()
    }

    fn names(uris: &[&str]) -> HashSet<Name> {
        uris.iter().map(|uri| name(uri)).collect()
    }

    fn kept(uris: &[&str]) -> DirectorySnapshot {
        DirectorySnapshot::from_repository(uris.iter().map(|uri| name(uri)))
    }

    #[test]
    fn repository_names_become_files_and_folders() {
        let seen = kept(&["/r/a", "/r/b/c", "/r/32=ls", "/r/b/32=ls"]);
        assert!(seen.has(&name("/r/a")) && seen.has(&name("/r/b")) && !seen.has(&name("/r/c")));
        assert_eq!((seen.files.len(), seen.listings.len()), (2, 2));
        let parents = seen.parents();
        assert!(parents.contains(name("/r/b").value()) && !parents.contains(name("/r/a").value()));
        let mut gone = seen.withdrawn_since(&kept(&["/r/32=ls", "/r/a"]));
        gone.sort_by_key(Name::to_string);
        assert_eq!(gone, [name("/r/b/32=ls"), name("/r/b/c")]);
    }

    #[test]
    fn unread_folder_keeps_its_entries() {
        let before = kept(&["/r/a", "/r/b/c", "/r/b/d/e", "/r/bb", "/r/32=ls", "/r/b/32=ls"]);
        let mut now = kept(&["/r/32=ls"]);
        assert!(!now.carry_over(&before, &names(&["/r/none"])));
        assert!(now.carry_over(&before, &names(&["/r/b"])));
        let mut gone = before.withdrawn_since(&now);
        gone.sort_by_key(Name::to_string);
        assert_eq!(gone, [name("/r/a"), name("/r/bb")]);
    }

    #[test]
    fn finds_entries_missing_from_a_listing() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("folder")).unwrap();
        fs::write(root.join("folder/file"), b"x").unwrap();
        fs::create_dir(root.join("swapped")).unwrap();
        fs::write(root.join("skipped"), b"x").unwrap();
        let all = [
            "/r/folder/32=ls",
            "/r/folder/file",
            "/r/folder/gone",
            "/r/gone/32=ls",
            "/r/swapped",
            "/r/skipped",
        ];
        let now = kept(&["/r/32=ls", "/r/swapped/32=ls"]);
        let skipped = root.join("skipped");
        let skipped = HashSet::from([&*skipped]);
        let found = kept(&all).overlooked(&now, root, &name("/r"), &skipped);
        assert_eq!(found, names(&["/r/folder", "/r/folder/file"]));
    }
}
