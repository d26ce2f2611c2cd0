//! Signs what `weir put` serves.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, DirEntry, Metadata};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use anyhow::bail;
use weir_socket::{
    Label, Location, PublishError, PublishOptions, Published, Put, Putting, Repository,
    RepositoryError, Unsettled, is_reserved_name, publish_file, publish_listing,
};
use weir_transport::LISTING_KEYWORD;
use weir_wire::Name;

use super::Signing;
use crate::limits;
use crate::table::{octets, printable};
use crate::transfer::{Interrupted, Silence, Stop, cannot_read, file_bar, octet_bar};

/// Folders within folders at most.
const DEPTH_MAX: usize = 64;
/// Files and folders at most: with links there may be more than on the disk.
const ENTRIES_MAX: usize = 1 << 22;
/// Files from this size on are signed one at a time, each by all threads.
const LARGE_BYTES: u64 = 1 << 20;
/// Objects that are written to a repository before their disk is waited for.
const UNSETTLED_MAX: usize = 256;
/// Octets of these.
const UNSETTLED_BYTES_MAX: u64 = 256 << 20;

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
    options: &'a PublishOptions,
    version: Version,
    signing: &'a Signing,
    stop: &'a Stop,
    before: Before<'a>,
    shelf: Shelf<'a>,
    pub(super) left_out: Vec<LeftOut>,
    /// What there is of the directory.
    pub(super) seen: Seen,
    /// Something of it is being written.
    pub(super) is_unsettled: bool,
}

/// What a directory had when it was looked through.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) files: HashMap<Name, Stamp>,
    /// By the names of the folders.
    pub(super) listings: HashMap<Name, Vec<(Vec<u8>, bool)>>,
}

/// What tells that a file is as it was.
pub(super) type Stamp = [i64; 7];

/// What is known of a directory that is looked through again.
#[derive(Clone, Copy)]
pub(super) struct Before<'a> {
    pub(super) seen: &'a Seen,
    /// Whether nobody writes to a file.
    pub(super) is_settled: &'a (dyn Fn(&Path, &Metadata) -> bool + Sync),
}

/// What is to be done about a file or listing.
enum Made {
    Put(Box<Put>),
    /// Nothing: it is as it was.
    Same,
    /// Nothing yet: it is being written.
    Unsettled,
}

/// The number of the version.
#[derive(Copy, Clone)]
pub(super) struct Version {
    pub(super) number: u64,
    /// It is so even where a repository has a later one.
    pub(super) is_fixed: bool,
}

impl<'a> Publisher<'a> {
    pub(super) fn new(
        options: &'a PublishOptions,
        version: Version,
        signing: &'a Signing,
        repository: Option<&'a Repository>,
        before: Before<'a>,
        stop: &'a Stop,
    ) -> Self {
        let (shelf, left_out) = (Shelf::new(repository), Vec::new());
        let (seen, is_unsettled) = (Seen::default(), false);
        Self { options, version, signing, stop, before, shelf, left_out, seen, is_unsettled }
    }

    /// What has been signed, or is there from before. All of it is settled.
    pub(super) fn take_published(&mut self) -> Vec<Published> {
        std::mem::take(&mut self.shelf.published)
    }

    /// How many objects did not need to be signed.
    pub(super) fn was_there(&self) -> usize {
        self.shelf.was_there
    }

    pub(super) fn file(&mut self, path: &Path, name: &Name) -> anyhow::Result<Root> {
        let size = fs::metadata(path).map_or(0, |metadata| metadata.len());
        let bar = octet_bar(format!("signing {}", printable(path.display())), Some(size));
        let (stop, mut silence) = (self.stop, Silence::new(bar.is_hidden()));
        let put = self.how(name).file(path, name, &mut |signed| {
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
        put.and_then(|put| self.shelf.take(put)).map_err(explain)?;
        self.shelf.settle().map_err(explain)?;
        let versioned = self.shelf.published[0].versioned().clone();
        Ok(Root { versioned, is_directory: false })
    }

    /// Signs all that is in a directory and can be.
    pub(super) fn directory(
        &mut self,
        path: &Path,
        name: &Name,
        follow_links: bool,
    ) -> anyhow::Result<()> {
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

    fn sign_files(&mut self, root: &Name, tree: &mut Tree) -> anyhow::Result<()> {
        let bar = file_bar("signing", tree.files.len() as u64);
        let files = std::mem::take(&mut tree.files);
        let (stop, large) = (self.stop, Mutex::new(()));
        let how = self.how(root);
        let before = self.before;
        let sign = |file: &Entry| {
            let name = tree.name_of(root, file);
            let path = tree.path_of(file);
            let metadata = fs::metadata(&path);
            let _alone = metadata
                .as_ref()
                .is_ok_and(|metadata| metadata.len() >= LARGE_BYTES)
                .then(|| large.lock());
            let stamp = metadata.as_ref().map_or([-1; 7], stamp);
            if before.seen.files.get(&name) == Some(&stamp) {
                return Ok((Made::Same, stamp));
            }
            if metadata.is_ok_and(|metadata| !(before.is_settled)(&path, &metadata)) {
                return Ok((Made::Unsettled, stamp));
            }
            how.file(&path, &name, &mut |_| !stop.is_set())
                .map(|put| (Made::Put(Box::new(put)), stamp))
        };
        let (shelf, left_out) = (&mut self.shelf, &mut self.left_out);
        let (seen, is_unsettled) = (&mut self.seen, &mut self.is_unsettled);
        let mut failed: Vec<usize> = Vec::new();
        let mut silence = Silence::new(bar.is_hidden());
        let result = side_by_side(how.options.threads, &files, sign, |at, made| {
            bar.inc(1);
            silence.end(|| format!("signing {root}: {} of {} files", bar.position(), files.len()));
            let name = tree.name_of(root, &files[at]);
            match made {
                Ok((Made::Put(put), stamp)) => {
                    shelf.take(*put).map_err(explain)?;
                    seen.files.insert(name, stamp);
                }
                Ok((Made::Same, stamp)) => drop(seen.files.insert(name, stamp)),
                Ok((Made::Unsettled, _)) => {
                    *is_unsettled = true;
                    match before.seen.files.get(&name) {
                        Some(&stamp) => drop(seen.files.insert(name, stamp)),
                        None => failed.push(at),
                    }
                }
                Err(RepositoryError::Publish(error)) if concerns_a_file(&error) => {
                    *is_unsettled |= matches!(error, PublishError::Changed { .. });
                    let path = tree.path_of(&files[at]);
                    left_out.push(LeftOut { path, reason: reason(&error) });
                    failed.push(at);
                }
                Err(error) => return Err(explain(error)),
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

    fn sign_listings(&mut self, root: &Name, tree: &Tree) -> anyhow::Result<()> {
        let mut listings: Vec<Vec<(Vec<u8>, bool)>> = vec![Vec::new(); tree.folders.len()];
        let folders = tree.folders.iter().map(|folder| (folder, true));
        for (entry, is_folder) in folders.chain(tree.files.iter().map(|file| (file, false))) {
            if let Some(parent) = entry.parent {
                listings[parent].push((entry.name.as_bytes().to_vec(), is_folder));
            }
        }
        listings.iter_mut().for_each(|listing| listing.sort());
        let (how, before) = (self.how(root), self.before);
        let numbers: Vec<usize> = (0..listings.len()).collect();
        let sign = |&at: &usize| {
            let name = tree.name_of(root, &tree.folders[at]);
            if before.seen.listings.get(&name) == Some(&listings[at]) {
                return Ok(Made::Same);
            }
            how.listing(&listings[at], &name).map(|put| Made::Put(Box::new(put)))
        };
        let (shelf, stop) = (&mut self.shelf, self.stop);
        side_by_side(how.options.threads, &numbers, sign, |_, made| {
            if let Made::Put(put) = made.map_err(explain)? {
                shelf.take(*put).map_err(explain)?;
            }
            match stop.is_set() {
                true => Err(explain(PublishError::Stopped.into())),
                false => Ok(()),
            }
        })?;
        let names = tree.folders.iter().map(|folder| tree.name_of(root, folder));
        self.seen.listings.extend(names.zip(listings));
        self.shelf.settle().map_err(explain)
    }

    /// The directory that has just been signed.
    pub(super) fn root(&self, name: &Name) -> Root {
        let listing = listing_name(name);
        let is_root = |object: &&Published| object.object() == listing.as_view();
        let root = self.shelf.published.iter().find(is_root);
        let versioned = root.expect("it was signed").versioned().clone();
        Root { versioned, is_directory: true }
    }

    fn how<'b>(&self, root: &'b Name) -> How<'b>
    where
        'a: 'b,
    {
        let Self { options, version, signing, .. } = *self;
        How { root, options, version, signing, repository: self.shelf.repository }
    }
}

/// The name of the object that is the listing of a folder.
pub(super) fn listing_name(folder: &Name) -> Name {
    folder.clone().append_keyword(LISTING_KEYWORD).clone()
}

fn stamp(metadata: &Metadata) -> Stamp {
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

/// What is signed, and waits to be served.
struct Shelf<'a> {
    repository: Option<&'a Repository>,
    published: Vec<Published>,
    was_there: usize,
    unsettled: Vec<Unsettled>,
    unsettled_bytes: u64,
}

impl<'a> Shelf<'a> {
    fn new(repository: Option<&'a Repository>) -> Self {
        let (published, unsettled) = (Vec::new(), Vec::new());
        Self { repository, published, was_there: 0, unsettled, unsettled_bytes: 0 }
    }

    fn take(&mut self, put: Put) -> Result<(), RepositoryError> {
        match put {
            Put::Ready(published) => {
                self.was_there += usize::from(self.repository.is_some());
                self.published.push(published);
            }
            Put::New(unsettled) => {
                self.unsettled_bytes += unsettled.size_bytes();
                self.unsettled.push(unsettled);
                let is_much = self.unsettled_bytes >= UNSETTLED_BYTES_MAX;
                if is_much || self.unsettled.len() >= UNSETTLED_MAX {
                    self.settle()?;
                }
            }
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), RepositoryError> {
        if let Some(repository) = self.repository {
            self.unsettled_bytes = 0;
            self.published.extend(repository.settle(std::mem::take(&mut self.unsettled))?);
        }
        Ok(())
    }
}

/// How everything is signed, and where it is kept.
#[derive(Clone, Copy)]
struct How<'a> {
    root: &'a Name,
    version: Version,
    signing: &'a Signing,
    options: &'a PublishOptions,
    repository: Option<&'a Repository>,
}

impl<'a> How<'a> {
    fn file(
        self,
        path: &Path,
        name: &Name,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Put, RepositoryError> {
        let label = self.label(name);
        match self.repository {
            Some(repository) => repository.put_file(path, label, self.putting(), progress),
            None => Ok(Put::Ready(publish_file(path, label, self.options, progress)?)),
        }
    }

    fn listing(self, entries: &[(Vec<u8>, bool)], name: &Name) -> Result<Put, RepositoryError> {
        let label = self.label(name);
        match self.repository {
            Some(repository) => repository.put_listing(entries, label, self.putting()),
            None => Ok(Put::Ready(publish_listing(entries, label, self.options)?)),
        }
    }

    fn putting(self) -> Putting<'a> {
        let Self { root, options, version, .. } = self;
        Putting { root, is_version_fixed: version.is_fixed, options }
    }

    fn label<'b>(self, name: &'b Name) -> Label<'b>
    where
        'a: 'b,
    {
        Label {
            name,
            version: self.version.number,
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
    // Each result may hold a file open.
    let (results, taken) = sync_channel(threads);
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

/// Whether that is no reason to give up the others.
fn concerns_a_file(error: &PublishError) -> bool {
    !matches!(
        error,
        PublishError::Stopped | PublishError::Sign(_) | PublishError::SegmentSize { .. }
    )
}

/// What to do about what cannot be signed or kept.
pub(super) fn explain(error: RepositoryError) -> anyhow::Error {
    let is_bucket = matches!(
        &error,
        RepositoryError::Read { path, .. } if path.to_str().is_some_and(Location::is_meant)
    );
    let next = match &error {
        RepositoryError::Publish(_) => return explain_publish(error),
        RepositoryError::Write { source, .. } if limits::next_step(source).is_some() => {
            "; the file size limit of this process is reached: raise it (ulimit -f), and run the \
             command again. The repository still has what it had"
        }
        RepositoryError::Write { .. } => {
            "; what the repository had it has, and what was signed before: run the command again \
             when there is room and leave to write"
        }
        RepositoryError::Foreign { .. } => "; name an empty directory, or one that does not exist",
        RepositoryError::InUse { .. } => {
            "; one process at a time can use a repository: stop that one, or name another directory"
        }
        RepositoryError::Layout { .. } => "; use the version of weir that made it",
        RepositoryError::LastVersion { .. } => {
            "; take it out with --remove, or put it with a --version of your choice"
        }
        RepositoryError::Read { source, .. } => match source.kind() {
            ErrorKind::PermissionDenied if is_bucket => {
                "; give credentials that may read it in AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public bucket"
            }
            ErrorKind::HostUnreachable if std::env::var_os("AWS_ACCESS_KEY_ID").is_none() => {
                "; AWS_ACCESS_KEY_ID is not set, so that this machine's role was asked for \
                 credentials: set it and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a \
                 public bucket"
            }
            ErrorKind::HostUnreachable => {
                "; name the bucket's server with --s3-endpoint or AWS_ENDPOINT_URL, and its region \
                 with AWS_REGION"
            }
            _ => "",
        },
    };
    anyhow::anyhow!("{error}{next}")
}

fn explain_publish(error: RepositoryError) -> anyhow::Error {
    let RepositoryError::Publish(error) = error else { return error.into() };
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
