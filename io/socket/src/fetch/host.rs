//! What downloads require from their owner.

use std::collections::BTreeMap;

use weir_base::{FaceId, Instant};
use weir_client::ClientError;
use weir_face::FaceUri;
use weir_security::trust::Trust;
use weir_transport::{
    ConsumerConfig, ConsumerError, ConsumerStats, LabelStats, Metadata, PathId, PathStats, Target,
};
use weir_wire::Name;

use super::output::{Output, OutputError};

/// The owner's number of a download.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DownloadId(pub u64);

/// What downloads require from their owner.
pub trait DownloadHost {
    /// The next object to fetch; `None` if there is none at present. Called when there is room for
    /// another download, and again when a download has ended.
    fn next(&mut self) -> Option<(DownloadId, Target)>;

    /// The configuration of a download, if it differs from the options.
    fn config(&self, id: DownloadId) -> Option<ConsumerConfig> {
        let _ = id;
        None
    }

    /// The destination of an object. Called once per object, before any segment is fetched.
    ///
    /// # Errors
    /// Ends the download.
    fn output(&mut self, id: DownloadId, found: &Found) -> Result<Box<dyn Output>, String>;

    /// A download has ended. If it succeeded, its file has its final name.
    ///
    /// # Errors
    /// Ends all other downloads.
    fn on_ended(
        &mut self,
        id: DownloadId,
        result: Result<Summary, DownloadError>,
    ) -> Result<(), DownloadError>;

    /// Decides which signers of a download's packets are trusted.
    fn trust(&mut self, id: DownloadId) -> &mut dyn Trust;

    /// One of several routers became unreachable, for this reason, or returned.
    fn on_path_changed(&mut self, router: &FaceUri, error: Option<&ClientError>) {
        let _ = (router, error);
    }

    /// Reports regularly how many bytes of Content have been verified and stored, over all objects.
    /// Returns false to stop.
    fn progress(&mut self, octets: u64) -> bool;

    /// Whether a download may continue. Called regularly.
    ///
    /// # Errors
    /// Ends that download.
    fn check_allowed(&self, id: DownloadId) -> Result<(), DownloadError> {
        let _ = id;
        Ok(())
    }

    /// When to call [`DownloadHost::next`] again although nothing has ended, on the clock of
    /// [`monotonic_now`](weir_client::monotonic_now).
    fn next_retry_at(&self) -> Option<Instant> {
        None
    }

    /// Whether there may be more to fetch later.
    fn may_get_more(&self) -> bool {
        false
    }
}

/// What is known about an object before its segments arrive. It is not verified.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its metadata, or only its name.
    pub metadata: Metadata,
    /// The metadata came from a store, so there may be a newer version. The reason why the producer
    /// could not be reached.
    pub stored: Option<ConsumerError>,
    /// All packets so far came from the store of the router that this program is connected to.
    pub is_from_local_store: bool,
}

/// The result of a finished download.
#[derive(Clone, Debug)]
pub struct Summary {
    pub versioned: Name,
    /// The metadata, if there were any; otherwise only the name.
    pub metadata: Metadata,
    /// The metadata came from a store, and the producer did not answer.
    pub is_stored: bool,
    /// Bytes of Content fetched, without those of earlier attempts.
    pub octets: u64,
    pub segments: u64,
    /// Segments from an earlier attempt.
    pub segments_resumed: u64,
    /// The file existed and was complete and right: nothing was fetched.
    pub was_complete: bool,
    /// Nanoseconds from the start until the last segment was stored.
    pub took_ns: u64,
    /// Whether a digest manifest verified the segments.
    pub has_manifest: bool,
    /// Packets by path and by the router's incoming face, if the router reports it.
    pub by_face: BTreeMap<(PathId, Option<FaceId>), u64>,
    pub by_path: BTreeMap<PathId, PathSummary>,
    /// Counters of the fetch.
    pub stats: ConsumerStats,
}

#[derive(Clone, Debug, Default)]
pub struct PathSummary {
    /// Packets received and wanted: segments, manifest parts and metadata.
    pub packets: u64,
    /// Bytes of their Content.
    pub octets: u64,
    pub stats: PathStats,
    /// Measurements for each path label of hICN, of the latest object.
    pub labels: Vec<LabelStats>,
}

impl PathSummary {
    /// Adds the counters of another object on this path.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.octets += other.octets;
        self.stats.add(&other.stats);
        if !other.labels.is_empty() {
            self.labels.clone_from(&other.labels);
        }
    }
}

/// Why a download failed. Verified segments remain for another attempt.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    #[error(transparent)]
    Fetch(#[from] ConsumerError),
    /// The router is unreachable.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The output cannot be created.
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error("{0}")]
    Refused(String),
    /// Segments differ in size, so their offsets in a file are unknown.
    #[error(
        "segment {segment} has {len} bytes, unlike the others, so it cannot be put into a file"
    )]
    Size {
        segment: u64,
        /// Bytes of its Content.
        len: usize,
    },
    /// Segments that an earlier attempt has stored are signed by keys that this one has not
    /// accepted.
    #[error(
        "the part that an earlier attempt has stored was verified with another key; it has been \
         discarded, so start the download again"
    )]
    OtherSigner,
    #[error("cannot be written: {0}")]
    Store(std::io::Error),
    #[error("interrupted")]
    Stopped,
}
