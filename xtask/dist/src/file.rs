//! The files of a package, and archives that depend on nothing but them.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use flate2::{Compression, GzBuilder};

/// What package managers do with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    /// The administrator's changes survive an upgrade.
    Config,
    Doc,
    Folder,
}

/// A file of a package.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// Absolute, such as `/usr/bin/weir`.
    pub(crate) path: String,
    pub(crate) mode: u32,
    /// User and group.
    pub(crate) owner: u32,
    pub(crate) kind: Kind,
    pub(crate) data: Vec<u8>,
}

impl File {
    pub(crate) fn plain(path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        let (mode, owner, kind) = (0o644, 0, Kind::Plain);
        Self { path: path.into(), mode, owner, kind, data: data.into() }
    }

    pub(crate) fn folder(path: impl Into<String>, mode: u32, owner: u32) -> Self {
        Self { mode, owner, kind: Kind::Folder, ..Self::plain(path, "") }
    }

    pub(crate) fn program(path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        Self { mode: 0o755, ..Self::plain(path, data) }
    }

    pub(crate) fn config(path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        Self { kind: Kind::Config, ..Self::plain(path, data) }
    }

    pub(crate) fn doc(path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        Self { kind: Kind::Doc, ..Self::plain(path, data) }
    }
}

/// A tar archive of files and the folders above them, sorted, all of one age.
pub(crate) fn tar(files: &[File], epoch: u64) -> anyhow::Result<Vec<u8>> {
    let mut sorted: Vec<&File> = files.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let mut archive = tar::Builder::new(Vec::new());
    let mut folders = BTreeSet::new();
    let mut append = |file: &File| {
        let is_folder = file.kind == Kind::Folder;
        let end = if is_folder { "/" } else { "" };
        let path = format!("{}{end}", file.path.trim_start_matches('/'));
        let failed = || format!("cannot put {path} into an archive");
        let mut header = header(file, epoch);
        archive.append_data(&mut header, &path, &file.data[..]).with_context(failed)
    };
    for file in sorted {
        for folder in folders_above(&file.path) {
            if folders.insert(folder.clone()) {
                append(&File::folder(folder, 0o755, 0))?;
            }
        }
        folders.insert(file.path.clone());
        append(file)?;
    }
    Ok(archive.into_inner()?)
}

/// The folders above a path, from the top.
fn folders_above(path: &str) -> Vec<String> {
    let above = Path::new(path).ancestors().skip(1);
    let mut folders: Vec<String> = above.map(|folder| folder.display().to_string()).collect();
    folders.retain(|folder| !folder.is_empty() && folder != "/");
    folders.reverse();
    folders
}

fn header(file: &File, epoch: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(match file.kind {
        Kind::Folder => tar::EntryType::Directory,
        Kind::Plain | Kind::Config | Kind::Doc => tar::EntryType::Regular,
    });
    header.set_mode(file.mode);
    header.set_uid(file.owner.into());
    header.set_gid(file.owner.into());
    header.set_size(file.data.len() as u64);
    header.set_mtime(epoch);
    header
}

/// Compresses, with no time and no name in the header.
pub(crate) fn gzip(data: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut writer = GzBuilder::new().write(Vec::new(), Compression::best());
    writer.write_all(data)?;
    Ok(writer.finish()?)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn archives_are_sorted_and_hold_folders() {
        let files = [File::plain("/usr/b", "two"), File::program("/usr/a/c", "one")];
        let once = tar(&files, 7).expect("archive");
        let reversed = [files[1].clone(), files[0].clone()];
        assert_eq!(once, tar(&reversed, 7).expect("archive"));
        let mut archive = tar::Archive::new(&once[..]);
        let entries: Vec<_> = archive
            .entries()
            .expect("entries")
            .map(|entry| {
                let entry = entry.expect("entry");
                let header = entry.header();
                assert_eq!((header.mtime().expect("time"), header.uid().expect("user")), (7, 0));
                let path = entry.path().expect("path").display().to_string();
                (path, header.mode().expect("mode"))
            })
            .collect();
        let expected = [("usr/", 0o755), ("usr/a/", 0o755), ("usr/a/c", 0o755), ("usr/b", 0o644)];
        assert_eq!(entries, expected.map(|(path, mode)| (path.to_owned(), mode)));
    }

    #[test]
    fn paths_over_100_bytes_are_kept() {
        let path = format!("/usr/{}/file", "long".repeat(40));
        let archive = tar(&[File::plain(path.clone(), "")], 0).expect("archive");
        let mut archive = tar::Archive::new(&archive[..]);
        let last = archive.entries().expect("entries").last().expect("one").expect("entry");
        assert_eq!(format!("/{}", last.path().expect("path").display()), path);
    }

    #[test]
    fn gzip_has_no_time() {
        let packed = gzip(b"text").expect("packed");
        assert_eq!(packed[4..8], [0; 4]);
        let mut text = String::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).expect("text");
        assert_eq!(text, "text");
    }
}
