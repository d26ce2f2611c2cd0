//! Looks at objects without writing them, for `weir ls`, `weir stat` and `weir cs fetch`.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use weir_base::{NS_PER_S, Packet};
use weir_client::Client;
use weir_crypto::UserTrust;
use weir_security::trust::{Trust, TrustedSigner};
use weir_socket::{
    DiscardOutput, DownloadError, DownloadHost, DownloadId, DownloadOptions, Found, MemoryOutput,
    Opened, Output, OutputError, Summary, download,
};
use weir_transport::{ConsumerConfig, ConsumerError, LISTING_KEYWORD, Metadata, Target};
use weir_wire::{Name, format_timestamp};

use super::failure::{exit_of, explain_missing_object};
use super::trust::{FetchTrust, explain_to_get};
use super::{
    Interrupted, KeyArgs, RouterArgs, Stop, parse_name, prepare_downloads,
    refuse_ndn_names_over_hicn,
};
use crate::exit::Exit;
use crate::quantity::positive_milliseconds;
use crate::table::{count, errln};

/// Memory for the listing of one directory, in bytes.
const LISTING_BYTES_MAX: u64 = 64 << 20;
/// Directories that a walk goes down at most.
pub(crate) const DEPTH_MAX: usize = 64;
/// Maximum number of directory entries of one command. It also limits the objects that are
/// visited: the object of the command and its entries.
const ENTRIES_MAX: usize = 1_000_000;
/// Segments of one object that may wait for earlier ones.
const READER_SEGMENTS_MAX: u32 = 4096;

/// The options of commands that read objects but write no files.
#[derive(clap::Args, Clone)]
pub(crate) struct ReadArgs {
    /// Accept only data signed by the owner of this certificate, or by a key that it certified. May
    /// be repeated [default: your own keys, your trust anchors and known signers]
    #[arg(long, value_name = "FILE")]
    trust_anchor: Vec<PathBuf>,
    /// Accept unsigned data. Its digest detects errors, but not forgery
    #[arg(long)]
    allow_unsigned: bool,
    /// Accept data whose signature cannot be verified, and unsigned data
    #[arg(long, conflicts_with = "trust_anchor")]
    accept_unverified: bool,
    /// Lifetime of an Interest
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = positive_milliseconds)]
    lifetime: u32,
    /// Retransmissions of an Interest before giving up
    #[arg(long, value_name = "N", default_value_t = 2)]
    retries: u32,
    #[command(flatten)]
    keys: KeyArgs,
}

/// The arguments of commands that look at one object.
#[derive(clap::Args)]
pub(crate) struct LookArgs {
    /// The name, such as /data/file, with or without a version
    #[arg(value_parser = parse_name)]
    pub(crate) name: Name,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) router: RouterArgs,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
}

/// Connects to the router, for objects with such names.
pub(crate) fn connect(router: &RouterArgs, name: &Name) -> anyhow::Result<Client> {
    let mut client = router.connect()?;
    refuse_ndn_names_over_hicn(&client, Default::default(), name)?;
    prepare_downloads(&mut client);
    Ok(client)
}

impl ReadArgs {
    /// Which signers the user trusts for this name.
    pub(crate) fn user_trust(&self, name: &Name) -> anyhow::Result<UserTrust> {
        // Without a home directory there are no keys, and only digests can be verified.
        let chain = self.keys.key_chain().ok();
        let mut trust = UserTrust::new(name.clone(), chain, &self.trust_anchor)?;
        if self.allow_unsigned {
            trust.policy().allow_unsigned();
        }
        if self.accept_unverified {
            trust.policy().accept_unverified();
        }
        Ok(trust)
    }

    /// The same options, but any data is accepted.
    pub(crate) fn accepting_unverified(&self) -> Self {
        Self { trust_anchor: Vec::new(), accept_unverified: true, ..self.clone() }
    }

    fn options(&self, part: Part) -> DownloadOptions {
        DownloadOptions {
            fetch: ConsumerConfig {
                lifetime_ms: u64::from(self.lifetime),
                retries_max: self.retries,
                reader_segments_max: READER_SEGMENTS_MAX,
                // A look at the first segment must not fetch a manifest of the others.
                look_for_manifest: part == Part::All,
                use_manifest: part == Part::All,
                ..ConsumerConfig::default()
            },
            ..DownloadOptions::default()
        }
    }
}

/// Latest version of an object, or the version that the name contains.
fn target(name: Name) -> Target {
    if has_version(&name) {
        Target::Version { versioned: name }
    } else {
        Target::Latest { object: name, allow_stored: true }
    }
}

fn has_version(name: &Name) -> bool {
    name.as_view().last().is_some_and(|last| last.as_version().is_some())
}

/// What is fetched of objects that are no directories.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Metadata alone, and all segments of directories.
    Listings,
    /// Metadata and the first segment (the newest one of an object that grows).
    First,
    /// Everything.
    All,
}

/// How far a walk goes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    /// What is fetched of the object itself, and of all entries that are visited.
    pub(crate) part: Part,
    /// Directories with fewer than this number of directories above them are listed.
    pub(crate) list_depth: usize,
    /// Whether files in these directories are visited, too. Otherwise only their names are known.
    pub(crate) visits_files: bool,
}

/// An object that was looked at.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The name without a version.
    pub(crate) name: Name,
    /// Path below the object of the command; empty for that object.
    pub(crate) path: Vec<u8>,
    pub(crate) depth: usize,
    pub(crate) metadata: Metadata,
    pub(crate) is_stored: bool,
    /// The first segment, if it was fetched.
    pub(crate) first: Option<Packet>,
    /// Entries of a directory, if it was fetched. Names of directories end with a slash.
    pub(crate) entries: Option<Vec<Vec<u8>>>,
    /// Bytes and segments that were fetched.
    pub(crate) bytes: u64,
    pub(crate) segments: u64,
}

impl Seen {
    pub(crate) fn is_directory(&self) -> bool {
        is_directory(&self.metadata)
    }
}

/// Whether the metadata are those of a directory listing.
pub(crate) fn is_directory(metadata: &Metadata) -> bool {
    let versioned = metadata.versioned.as_view();
    metadata.is_directory() || versioned.components().any(|part| part.is_keyword(LISTING_KEYWORD))
}

/// What an object is, as its metadata say.
pub(crate) fn kind_of(metadata: &Metadata) -> &'static str {
    if is_directory(metadata) {
        "directory"
    } else if metadata.next_segment.is_some() {
        "stream"
    } else {
        "file"
    }
}

pub(crate) fn version_of(metadata: &Metadata) -> Option<u64> {
    metadata.versioned.as_view().last()?.as_version()
}

/// A time in nanoseconds since the Unix epoch, such as 2026-11-23 08:01:59 (UTC).
pub(crate) fn date_text(unix_ns: u64) -> String {
    let compact = format_timestamp((unix_ns / NS_PER_S) as i64);
    let [year, month, day, hour, minute, second] =
        [0..4, 4..6, 6..8, 9..11, 11..13, 13..15].map(|digits| compact[digits].escape_ascii());
    format!("{year}-{month}-{day} {hour}:{minute}:{second}")
}

/// The name of the directory of a listing: the part before the keyword component.
fn directory_of(metadata: &Metadata, asked: &Name) -> Name {
    let view = metadata.versioned.as_view();
    let keyword = view.components().position(|part| part.is_keyword(LISTING_KEYWORD));
    keyword.map_or_else(|| asked.clone(), |count| view.prefix(count).to_name())
}

/// What a walk has found.
pub(crate) struct Survey {
    pub(crate) seen: Vec<Seen>,
    /// Objects that could not be fetched, with the reason.
    pub(crate) failed: Vec<(Name, DownloadError)>,
    pub(crate) signers: Vec<TrustedSigner>,
}

/// Looks at an object, and at the entries below it as far as `walk` says. `progress` is called
/// regularly with the bytes fetched so far.
///
/// # Errors
/// The object of the command cannot be fetched. Failures of entries are in the result.
pub(crate) fn survey(
    client: &mut Client,
    args: &ReadArgs,
    name: &Name,
    walk: Walk,
    stop: &Stop,
    progress: &mut dyn FnMut(u64, &Name),
) -> anyhow::Result<Survey> {
    let mut walker = Walker {
        walk,
        stop,
        trust: FetchTrust::new(args.user_trust(name)?, explain_to_get),
        progress,
        pending: VecDeque::from([Visit { name: name.clone(), path: Vec::new(), depth: 0 }]),
        active: BTreeMap::new(),
        next_id: 0,
        entries_left: ENTRIES_MAX,
        seen: Vec::new(),
        failed: Vec::new(),
    };
    let result = download(client, args.options(walk.part), &mut walker);
    let Walker { seen, failed, trust: FetchTrust { inner: mut trust, .. }, .. } = walker;
    match result {
        Ok(()) => {
            // A signer that cannot be recorded is a matter of `weir get`.
            let _ = trust.remember();
            let signers = std::mem::take(&mut trust.policy().signers);
            Ok(Survey { seen, failed, signers })
        }
        Err(DownloadError::Stopped) => Err(Interrupted("").into()),
        Err(error) => Err(explain(error)),
    }
}

/// The error of a failed download, with its exit code and advice.
pub(crate) fn explain(error: DownloadError) -> anyhow::Error {
    let text = match &error {
        DownloadError::Fetch(ConsumerError::Unanswered(name)) => Some(format!(
            "no answer for {name}. Check the name, and that its producer runs. Only objects with \
             metadata, as `weir put` makes them, can be listed"
        )),
        error => explain_missing_object(error),
    };
    exit_of(&error).error(text.unwrap_or_else(|| error.to_string()))
}

/// Prints the entries that could not be fetched, and returns an error with their common exit code.
/// `verb` is what the command does, such as "list".
pub(crate) fn report_failed(
    verb: &str,
    name: &Name,
    failed: Vec<(Name, DownloadError)>,
) -> anyhow::Result<()> {
    if failed.is_empty() {
        return Ok(());
    }
    let entries = count(failed.len() as u64, "entry", "entries");
    let mut exits = Vec::new();
    for (entry, error) in failed {
        exits.push(exit_of(&error));
        errln!("weir: cannot {verb} {entry}: {:#}", explain(error));
    }
    Err(Exit::common(exits).error(format!("cannot {verb} {entries} of {name}")))
}

/// An object to look at.
struct Visit {
    name: Name,
    path: Vec<u8>,
    depth: usize,
}

struct Active {
    visit: Visit,
    is_stored: bool,
    listing: Option<MemoryOutput>,
    /// Takes the segments of an object that is not listed.
    discard: Option<DiscardOutput>,
}

struct Walker<'a> {
    walk: Walk,
    stop: &'a Stop,
    trust: FetchTrust,
    progress: &'a mut dyn FnMut(u64, &Name),
    pending: VecDeque<Visit>,
    active: BTreeMap<DownloadId, Active>,
    next_id: u64,
    /// How many more entries may be listed.
    entries_left: usize,
    seen: Vec<Seen>,
    failed: Vec<(Name, DownloadError)>,
}

impl Walker<'_> {
    /// Records an object, and schedules the entries of a directory.
    fn on_seen(&mut self, active: Active, summary: &Summary) -> Result<(), ListingError> {
        let Active { visit, listing, discard, is_stored } = active;
        let metadata = summary.metadata.clone();
        let listing = listing.map(|listing| entries(&listing.take(), self.entries_left));
        let entries = listing.transpose()?;
        if let Some(entries) = &entries {
            self.entries_left -= entries.len();
            let directory = directory_of(&metadata, &visit.name);
            let lists_more = visit.depth + 1 < self.walk.list_depth;
            for entry in entries {
                let is_listing = lists_more && entry.ends_with(b"/");
                if !(self.walk.visits_files || is_listing) {
                    continue;
                }
                let path = join_path(&visit.path, entry);
                let mut name = directory.clone();
                name.append_generic(entry.strip_suffix(b"/").unwrap_or(entry));
                self.pending.push_back(Visit { name, path, depth: visit.depth + 1 });
            }
        }
        self.seen.push(Seen {
            name: visit.name,
            path: visit.path,
            depth: visit.depth,
            metadata,
            is_stored,
            first: discard.and_then(|output| output.take_first()),
            entries,
            bytes: summary.octets,
            segments: summary.segments,
        });
        Ok(())
    }
}

/// The path of an entry of a directory, without the slash of a directory.
pub(crate) fn join_path(directory: &[u8], entry: &[u8]) -> Vec<u8> {
    let entry = entry.strip_suffix(b"/").unwrap_or(entry);
    if directory.is_empty() { entry.to_vec() } else { [directory, entry].join(&b'/') }
}

/// Why a listing is not used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum ListingError {
    #[error("the directory lists \"{}\", which is not a valid file name", .0.escape_ascii())]
    BadName(Vec<u8>),
    #[error("there are more than {ENTRIES_MAX} entries; name a part of them")]
    TooMany,
}

/// Parses a listing of at most `entries_max` names, each followed by NUL. The name of a directory
/// ends with a slash. The limit applies while parsing, because the entries of a listing with short
/// names need twenty times its size.
fn entries(octets: &[u8], entries_max: usize) -> Result<Vec<Vec<u8>>, ListingError> {
    let mut entries = Vec::new();
    for entry in octets.split(|&octet| octet == 0).filter(|entry| !entry.is_empty()) {
        if entries.len() == entries_max {
            return Err(ListingError::TooMany);
        }
        let name = entry.strip_suffix(b"/").unwrap_or(entry);
        if name.is_empty() || name.contains(&b'/') || name == b"." || name == b".." {
            return Err(ListingError::BadName(name.to_vec()));
        }
        entries.push(entry.to_vec());
    }
    Ok(entries)
}

impl DownloadHost for Walker<'_> {
    fn next(&mut self) -> Option<(DownloadId, Target)> {
        let visit = self.pending.pop_front()?;
        let id = DownloadId(self.next_id);
        self.next_id += 1;
        let target = target(visit.name.clone());
        let active = Active { visit, is_stored: false, listing: None, discard: None };
        self.active.insert(id, active);
        Some((id, target))
    }

    fn output(&mut self, id: DownloadId, found: &Found) -> Result<Box<dyn Output>, String> {
        let active = self.active.get_mut(&id).expect("it is under way");
        active.is_stored = found.stored.is_some();
        if is_directory(&found.metadata) && active.visit.depth < self.walk.list_depth {
            let listing = MemoryOutput::new(LISTING_BYTES_MAX);
            active.listing = Some(listing.clone());
            return Ok(Box::new(listing));
        }
        let segments = match self.walk.part {
            Part::Listings if !has_version(&active.visit.name) => return Ok(Box::new(NoOutput)),
            // No metadata are fetched for a given version, so only its segment shows that it
            // exists.
            Part::Listings | Part::First => {
                let newest = found.metadata.next_segment.and(found.metadata.newest_segment());
                let segment = newest.unwrap_or(0);
                segment..segment.saturating_add(1)
            }
            Part::All => {
                // Of an object that grows, what exists now.
                let newest = found.metadata.newest_segment();
                0..newest.map_or(u64::MAX, |newest| newest.saturating_add(1))
            }
        };
        let discard = DiscardOutput::new(segments, READER_SEGMENTS_MAX);
        active.discard = Some(discard.clone());
        Ok(Box::new(discard))
    }

    fn on_ended(
        &mut self,
        id: DownloadId,
        result: Result<Summary, DownloadError>,
    ) -> Result<(), DownloadError> {
        let active = self.active.remove(&id).expect("it was under way");
        let (name, is_root) = (active.visit.name.clone(), active.visit.depth == 0);
        let mut is_over_limit = false;
        let ended = result.and_then(|summary| {
            self.on_seen(active, &summary).map_err(|error| {
                is_over_limit = error == ListingError::TooMany;
                DownloadError::Refused(error.to_string())
            })
        });
        match ended {
            Ok(()) => Ok(()),
            Err(_) if self.stop.is_set() => Err(DownloadError::Stopped),
            Err(error @ DownloadError::Client(_)) => Err(error),
            Err(error) if is_root || is_over_limit => Err(error),
            Err(error) => {
                self.failed.push((name, error));
                Ok(())
            }
        }
    }

    fn trust(&mut self, _id: DownloadId) -> &mut dyn Trust {
        &mut self.trust
    }

    fn progress(&mut self, bytes: u64) -> bool {
        if let Some(active) = self.active.values().next() {
            (self.progress)(bytes, &active.visit.name);
        }
        !self.stop.is_set()
    }
}

/// Nothing is fetched after the metadata.
struct NoOutput;

impl Output for NoOutput {
    fn is_quick(&self) -> bool {
        true
    }

    fn open(&mut self, _: &Metadata) -> Result<Opened, OutputError> {
        Ok(Opened::Complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_readable() {
        assert_eq!(date_text(1_700_000_000 * NS_PER_S), "2023-11-14 22:13:20");
    }

    #[test]
    fn parses_and_checks_directory_entries() {
        let parse = |octets: &[u8]| entries(octets, 2);
        assert_eq!(parse(b"a\0dir/\0").unwrap(), [b"a".to_vec(), b"dir/".to_vec()]);
        assert!(parse(b"").unwrap().is_empty());
        for octets in [&b"../a\0"[..], b"..\0", b"a/b\0", b"/\0", b".\0"] {
            assert!(matches!(parse(octets), Err(ListingError::BadName(_))), "{octets:?}");
        }
        assert_eq!(parse(b"a\0b\0c\0").unwrap_err(), ListingError::TooMany);
    }
}
