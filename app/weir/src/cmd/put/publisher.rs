//! Signs what `weir put` serves.

use std::ffi::OsString;
use std::fs::{self, DirEntry};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use anyhow::bail;
use weir_socket::{
    Label, ObjectStore, PublishError, PublishOptions, Published, is_reserved_name, publish_file,
    publish_listing,
};
use weir_wire::Name;

use super::Signing;
use crate::table::{octets, printable};
use crate::transfer::{Interrupted, Silence, Stop, cannot_read, file_bar, octet_bar};

/// Folders within folders at most.
const DEPTH_MAX: usize = 64;
/// Files and folders at most: with links there may be more than on the disk.
const ENTRIES_MAX: usize = 1 << 22;
/// Files from this size on are signed one at a time, each by all threads.
const LARGE_BYTES: u64 = 1 << 20;

/// The name with its version, and how much there is below it.
pub(super) struct Root {
    pub(super) versioned: Name,
    pub(super) is_directory: bool,
}

/// An entry of a directory that is not served.
pub(super) struct LeftOut {
    pub(super) path: PathBuf,
    pub(super) reason: String,
}

/// Signs everything.
pub(super) struct Publisher<'a> {
    options: PublishOptions,
    version: u64,
    signing: &'a Signing,
    stop: &'a Stop,
    pub(super) store: ObjectStore,
    pub(super) left_out: Vec<LeftOut>,
}

impl<'a> Publisher<'a> {
    pub(super) fn new(
        options: PublishOptions,
        version: u64,
        signing: &'a Signing,
        stop: &'a Stop,
    ) -> Self {
        let (store, left_out) = (ObjectStore::new(), Vec::new());
        Self { options, version, signing, stop, store, left_out }
    }

    pub(super) fn file(&mut self, path: &Path, name: &Name) -> anyhow::Result<Root> {
        let size = fs::metadata(path).map_or(0, |metadata| metadata.len());
        let bar = octet_bar(format!("signing {}", printable(path.display())), Some(size));
        let (stop, mut silence) = (self.stop, Silence::new(bar.is_hidden()));
        let published = publish_file(path, self.label(name), &self.options, &mut |signed| {
            bar.set_position(signed);
            silence.end(|| {
                format!(
                    "signing {}: {} of {}",
                    printable(path.display()),
                    octets(signed),
                    octets(size)
                )
            });
            !stop.is_set()
        });
        bar.finish_and_clear();
        let published = published.map_err(explain)?;
        let versioned = published.versioned().clone();
        self.store.add(published);
        Ok(Root { versioned, is_directory: false })
    }

    /// Signs all that is in a directory and can be.
    pub(super) fn directory(
        &mut self,
        path: &Path,
        name: &Name,
        follow_links: bool,
    ) -> anyhow::Result<Root> {
        let cannot_read = |error| cannot_read(path, &error);
        let real = path.canonicalize().map_err(cannot_read)?;
        // Only what is in it may be left out.
        fs::read_dir(&real).map_err(cannot_read)?;
        let mut walk = Walk { root: real.clone(), follow_links, tree: Tree::default() };
        walk.folder(path, real, &mut Vec::new(), None)?;
        let mut tree = walk.tree;
        self.left_out.append(&mut tree.left_out);
        self.sign_files(name, &mut tree)?;
        self.sign_listings(name, &tree)
    }

    fn sign_files(&mut self, name: &Name, tree: &mut Tree) -> anyhow::Result<()> {
        let bar = file_bar("signing", tree.files.len() as u64);
        let files = std::mem::take(&mut tree.files);
        let (stop, large) = (self.stop, Mutex::new(()));
        let signer = Signs { version: self.version, signing: self.signing, options: &self.options };
        let sign = |file: &Entry| {
            let name = tree.name_of(name, file);
            let path = tree.path_of(file);
            let size = fs::metadata(&path).map_or(0, |metadata| metadata.len());
            let _alone = (size >= LARGE_BYTES).then(|| large.lock());
            let go_on = &mut |_| !stop.is_set();
            publish_file(&path, signer.label(&name), signer.options, go_on)
        };
        let (store, left_out) = (&mut self.store, &mut self.left_out);
        let mut failed: Vec<usize> = Vec::new();
        let mut silence = Silence::new(bar.is_hidden());
        let result = side_by_side(self.options.threads, &files, sign, |at, signed| {
            bar.inc(1);
            silence.end(|| format!("signing {name}: {} of {} files", bar.position(), files.len()));
            match signed {
                Ok(published) => store.add(published),
                Err(error @ (PublishError::Stopped | PublishError::Sign(_))) => {
                    return Err(explain(error));
                }
                Err(error @ PublishError::SegmentSize { .. }) => return Err(explain(error)),
                Err(error) => {
                    let path = tree.path_of(&files[at]);
                    left_out.push(LeftOut { path, reason: reason(&error) });
                    failed.push(at);
                }
            }
            Ok(())
        });
        bar.finish_and_clear();
        result?;
        failed.sort_unstable();
        let mut at = 0;
        tree.files = files;
        tree.files.retain(|_| {
            at += 1;
            failed.binary_search(&(at - 1)).is_err()
        });
        Ok(())
    }

    fn sign_listings(&mut self, name: &Name, tree: &Tree) -> anyhow::Result<Root> {
        let mut listings: Vec<Vec<(Vec<u8>, bool)>> = vec![Vec::new(); tree.folders.len()];
        let folders = tree.folders.iter().map(|folder| (folder, true));
        for (entry, is_folder) in folders.chain(tree.files.iter().map(|file| (file, false))) {
            if let Some(parent) = entry.parent {
                listings[parent].push((entry.name.as_bytes().to_vec(), is_folder));
            }
        }
        listings.iter_mut().for_each(|listing| listing.sort());
        let signer = Signs { version: self.version, signing: self.signing, options: &self.options };
        let numbers: Vec<usize> = (0..listings.len()).collect();
        let sign = |&at: &usize| {
            let name = tree.name_of(name, &tree.folders[at]);
            publish_listing(&listings[at], signer.label(&name), signer.options)
        };
        let (store, stop, mut root) = (&mut self.store, self.stop, None);
        side_by_side(self.options.threads, &numbers, sign, |at, signed: Result<Published, _>| {
            let published = signed.map_err(explain)?;
            if at == 0 {
                root = Some(published.versioned().clone());
            }
            store.add(published);
            match stop.is_set() {
                true => Err(explain(PublishError::Stopped)),
                false => Ok(()),
            }
        })?;
        let versioned = root.expect("the first is the root");
        Ok(Root { versioned, is_directory: true })
    }

    fn label<'b>(&'b self, name: &'b Name) -> Label<'b> {
        Signs { version: self.version, signing: self.signing, options: &self.options }.label(name)
    }
}

/// How everything is signed.
#[derive(Clone, Copy)]
struct Signs<'a> {
    version: u64,
    signing: &'a Signing,
    options: &'a PublishOptions,
}

impl<'a> Signs<'a> {
    fn label(self, name: &'a Name) -> Label<'a> {
        Label {
            name,
            version: self.version,
            signer: &*self.signing.signer,
            certificate: self.signing.certificate.as_deref(),
        }
    }
}

/// Works on all items with several threads and hands out what comes of them with their numbers, in
/// no order. An error ends it.
fn side_by_side<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
    mut take: impl FnMut(usize, R) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let (results, taken) = sync_channel(1024);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            let (results, next, work) = (results.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    if results.send((at, work(item))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(results);
        // Who breaks off drops the receiver, which ends the threads.
        taken.into_iter().try_for_each(|(at, result)| take(at, result))
    })
}

/// A file or folder, by its parent's number.
struct Entry {
    parent: Option<usize>,
    name: OsString,
}

/// What there is to sign.
#[derive(Default)]
struct Tree {
    /// The first is the root, whose name is its path.
    folders: Vec<Entry>,
    files: Vec<Entry>,
    left_out: Vec<LeftOut>,
}

impl Tree {
    /// The entry and what it lies in, from the root on.
    fn line<'b>(&'b self, entry: &'b Entry) -> Vec<&'b Entry> {
        let parent = |entry: &&'b Entry| entry.parent.map(|parent| &self.folders[parent]);
        let mut line: Vec<&Entry> = std::iter::successors(Some(entry), parent).collect();
        line.reverse();
        line
    }

    fn path_of(&self, entry: &Entry) -> PathBuf {
        self.line(entry).iter().map(|entry| &entry.name).collect()
    }

    fn name_of(&self, root: &Name, entry: &Entry) -> Name {
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

impl Walk {
    /// Adds a folder and what is in it. `above` are the folders that it lies in, links followed.
    fn folder(
        &mut self,
        path: &Path,
        real: PathBuf,
        above: &mut Vec<PathBuf>,
        parent: Option<usize>,
    ) -> anyhow::Result<()> {
        if above.len() >= DEPTH_MAX {
            self.leave_out(path, format!("it lies more than {DEPTH_MAX} directories deep"));
            return Ok(());
        }
        let entries: Vec<DirEntry> = match fs::read_dir(path).and_then(Iterator::collect) {
            Ok(entries) => entries,
            Err(error) => {
                self.leave_out(path, error.to_string());
                return Ok(());
            }
        };
        let number = self.tree.folders.len();
        let name =
            if parent.is_none() { path.as_os_str() } else { path.file_name().unwrap_or_default() };
        self.tree.folders.push(Entry { parent, name: name.to_owned() });
        if self.tree.folders.len() + self.tree.files.len() + entries.len() > ENTRIES_MAX {
            bail!(
                "there are more than {ENTRIES_MAX} files and directories in {}; put parts of it \
                 under names of their own",
                printable(self.root.display())
            );
        }
        above.push(real);
        for entry in entries {
            let name = entry.file_name();
            match self.kind(&entry, above) {
                Ok(Kind::File) => self.tree.files.push(Entry { parent: Some(number), name }),
                Ok(Kind::Folder(real)) => self.folder(&entry.path(), real, above, Some(number))?,
                Err(reason) => self.leave_out(&entry.path(), reason),
            }
        }
        above.pop();
        Ok(())
    }

    fn leave_out(&mut self, path: &Path, reason: String) {
        self.tree.left_out.push(LeftOut { path: path.to_owned(), reason });
    }

    /// What an entry is, or why it is left out.
    fn kind(&self, entry: &DirEntry, above: &[PathBuf]) -> Result<Kind, String> {
        if is_reserved_name(&entry.file_name().into_vec()) {
            return Err("it belongs to a download that has not ended".into());
        }
        let kind = entry.file_type().map_err(|error| error.to_string())?;
        if kind.is_file() {
            return Ok(Kind::File);
        }
        let path = entry.path();
        let real = || path.canonicalize().map_err(|error| error.to_string());
        if kind.is_dir() {
            return Ok(Kind::Folder(real()?));
        }
        if !kind.is_symlink() {
            return Err("it is neither a file nor a directory".into());
        }
        let real = real().map_err(|error| format!("a link that leads nowhere: {error}"))?;
        if !self.follow_links && !real.starts_with(&self.root) {
            return Err("a link that leads out of the directory; --follow-links serves it".into());
        }
        let found = fs::metadata(&real).map_err(|error| error.to_string())?;
        match (found.is_file(), found.is_dir()) {
            (true, _) => Ok(Kind::File),
            (_, true) if !self.follow_links => {
                Err("a link to a directory; --follow-links serves it".into())
            }
            (_, true) if above.iter().any(|above| above.starts_with(&real)) => {
                Err("a link that leads in a circle".into())
            }
            (_, true) => Ok(Kind::Folder(real)),
            _ => Err("it is neither a file nor a directory".into()),
        }
    }
}

/// Why a file of a directory is left out.
fn reason(error: &PublishError) -> String {
    match error {
        PublishError::Read { source, .. } => source.to_string(),
        PublishError::Changed { .. } => "it changed while it was being signed".into(),
        PublishError::NoFile { .. } => "it is no file any more".into(),
        other => other.to_string(),
    }
}

/// What to do about what cannot be signed.
fn explain(error: PublishError) -> anyhow::Error {
    match &error {
        PublishError::Stopped => Interrupted("").into(),
        PublishError::Read { path, source } => cannot_read(path, source),
        PublishError::Changed { path } => anyhow::anyhow!(
            "{} changed while it was being signed; run the command again when nobody writes to it",
            printable(path.display())
        ),
        PublishError::SegmentSize { max: 0, .. } => {
            anyhow::anyhow!("the name is too long to leave room for content; choose a shorter one")
        }
        PublishError::SegmentSize { .. } => {
            anyhow::anyhow!("{error}; give a smaller --segment-size")
        }
        _ => error.into(),
    }
}
