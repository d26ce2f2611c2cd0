//! Requests about the store from other threads of the process, and their replies.

use weir_base::FaceId;
use weir_forward::MissReports;
use weir_store::{
    Holding, HoldingChanges, HoldingsConfig, HoldingsCursor, ObjectList, ObjectQuery, Rules,
    RulesError,
};
use weir_wire::Name;

/// A page of holdings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentsPage {
    /// At most one for each object and tier. Holdings of one object may be spread over several
    /// pages.
    pub holdings: Vec<Holding>,
    /// Where the next page starts; `None` on the last page.
    pub next: Option<ContentsCursor>,
    /// Whether more may be held than is listed: the index is still being built or is full, or a
    /// thread did not answer in time.
    pub is_partial: bool,
}

/// The position where a listing continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentsCursor {
    /// One cursor for each shard; `None` for a shard that is finished.
    pub(crate) shards: Vec<Option<HoldingsCursor>>,
}

/// A miss: an Interest for a segment of a watched large object that the store does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miss {
    pub ingress: FaceId,
    /// Whether the Interest came from a local application.
    pub is_local: bool,
    /// The name without the segment number.
    pub object: Name,
}

/// Why a request has no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentsError {
    /// No index exists: [`Contents::track`](crate::Contents::track) starts one.
    #[error("the router has no index of its store's holdings")]
    NotTracked,
    /// Too many requests wait for replies.
    #[error("too many requests about the store are pending")]
    Busy,
    /// Not all worker threads answered in time.
    #[error("the router did not answer in time")]
    TimedOut,
    #[error("the router is stopping")]
    Stopped,
    /// The prefix has no pin.
    #[error("{0} is not pinned")]
    NotPinned(Name),
    /// The rules do not come into force.
    #[error(transparent)]
    Refused(#[from] RulesError),
}

/// A request to the control thread.
#[derive(Debug)]
pub(crate) enum ContentsRequest {
    Track(Option<HoldingsConfig>),
    List { prefix: Name, from: Option<ContentsCursor>, visits_max: u32 },
    ListOne { object: Name },
    Objects(ObjectQuery),
    EvictFirst { prefix: Name },
    Pin { prefix: Name, bytes_max: u64 },
    Unpin { prefix: Name },
    TakeChanges { blocks_max: usize },
    RestartChanges,
    StopChanges,
    SetRules(Rules),
    WatchMisses(MissReports),
}

#[derive(Debug)]
pub(crate) enum ContentsReply {
    Done,
    Page(ContentsPage),
    Objects(ObjectList),
    Count(u64),
    Changes(HoldingChanges),
}

/// Where a reply is sent.
pub(crate) type ReplySender = crossbeam_channel::Sender<Result<ContentsReply, ContentsError>>;
