//! What downloads ask of their owner.

use std::collections::BTreeMap;

use weir_base::{FaceId, Instant};
use weir_client::ClientError;
use weir_face::FaceUri;
use weir_security::trust::Trust;
use weir_transport::{
    ConsumerConfig, ConsumerError, ConsumerStats, Metadata, PathId, PathStats, Target,
};
use weir_wire::Name;

use super::output::{Output, OutputError};

/// The owner's number of a download.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DownloadId(pub u64);

/// What downloads ask of their owner.
pub trait DownloadHost {
    /// The next thing to fetch beside what is under way, `None` if there is none now. Asked when
    /// there is room for one, and again when another has ended.
    fn next(&mut self) -> Option<(DownloadId, Target)>;

    /// How to fetch, if it is other than as the options say.
    fn config(&self, id: DownloadId) -> Option<ConsumerConfig> {
        let _ = id;
        None
    }

    /// Where an object is to go. Called once for each, before any segment is fetched.
    ///
    /// # Errors
    /// Ends the download.
    fn output(&mut self, id: DownloadId, found: &Found) -> Result<Box<dyn Output>, String>;

    /// A download has ended, and is under its name if it has ended well.
    ///
    /// # Errors
    /// Ends all others.
    fn on_ended(
        &mut self,
        id: DownloadId,
        result: Result<Summary, DownloadError>,
    ) -> Result<(), DownloadError>;

    /// Who decides whether the signers of a download's packets are believed.
    fn trust(&mut self, id: DownloadId) -> &mut dyn Trust;

    /// Of several routers one is gone, for this reason, or is back.
    fn on_path_changed(&mut self, router: &FaceUri, error: Option<&ClientError>) {
        let _ = (router, error);
    }

    /// Told now and then how many octets of Content have been verified and stored, of all objects
    /// together. Returns false to break off.
    fn progress(&mut self, octets: u64) -> bool;

    /// Whether a download may go on; asked now and then.
    ///
    /// # Errors
    /// Ends that download.
    fn check_allowed(&self, id: DownloadId) -> Result<(), DownloadError> {
        let _ = id;
        Ok(())
    }

    /// When [`Host::next`] is asked again although nothing has ended, in the time of
    /// [`monotonic_now`](weir_client::monotonic_now).
    fn next_retry_at(&self) -> Option<Instant> {
        None
    }

    /// Whether there may be something to fetch later although there is nothing now.
    fn may_get_more(&self) -> bool {
        false
    }
}

/// What is known of an object before its segments come; not verified.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its metadata, or no more than its name.
    pub metadata: Metadata,
    /// The metadata came from a store, and the producer did not answer: there may be a later
    /// version.
    pub is_stored: bool,
}

/// What a finished download was like.
#[derive(Clone, Debug)]
pub struct Summary {
    pub versioned: Name,
    /// The metadata, if there was any; else no more than the name.
    pub metadata: Metadata,
    /// The metadata came from a store, and the producer did not answer.
    pub is_stored: bool,
    /// Octets of Content fetched, those of an earlier attempt not included.
    pub octets: u64,
    pub segments: u64,
    /// Segments that were there from an earlier attempt.
    pub segments_resumed: u64,
    /// The file was there, whole and right: nothing of it was fetched.
    pub was_complete: bool,
    /// Time from the start until the last segment was stored, in nanoseconds.
    pub took_ns: u64,
    /// Whether segments were verified by a digest manifest.
    pub has_manifest: bool,
    /// Packets by the path that they came by and the face that the router had them from, as far as
    /// it tells.
    pub by_face: BTreeMap<(PathId, Option<FaceId>), u64>,
    pub by_path: BTreeMap<PathId, PathSummary>,
    /// Counters and measures of the fetch.
    pub stats: ConsumerStats,
}

#[derive(Copy, Clone, Debug, Default)]
pub struct PathSummary {
    /// Packets that were wanted: segments, manifest parts and metadata.
    pub packets: u64,
    /// Octets of their Content.
    pub octets: u64,
    pub stats: PathStats,
}

impl PathSummary {
    /// Adds what came by the path for another object.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.octets += other.octets;
        self.stats.add(&other.stats);
    }
}

/// Why a download failed. What was verified stays for another attempt.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    #[error(transparent)]
    Fetch(#[from] ConsumerError),
    /// The router is gone.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The output cannot be made.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The owner does not want it.
    #[error("{0}")]
    Refused(String),
    /// Segments differ in size, so that their places in a file are not known.
    #[error("segment {segment} has {len} octets, unlike others: it has no place in a file")]
    Size {
        segment: u64,
        /// Octets of its Content.
        len: usize,
    },
    /// A segment cannot be stored.
    #[error("cannot be written: {0}")]
    Store(std::io::Error),
    /// The owner broke it off.
    #[error("interrupted")]
    Stopped,
}
