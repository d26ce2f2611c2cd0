//! What other threads of the process ask about the store, and what they are answered.

use weir_base::FaceId;
use weir_forward::MissReports;
use weir_store::{Holding, HoldingChanges, HoldingsConfig, HoldingsCursor, Rules, RulesError};
use weir_wire::Name;

/// What is held of some objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentsPage {
    /// At most one for an object and tier. What is held of one object may be spread over several
    /// pages.
    pub holdings: Vec<Holding>,
    /// Where to go on; none behind the last.
    pub next: Option<ContentsCursor>,
    /// Whether more may be held than is listed: the index is still being built or has no room, or
    /// a thread did not answer in time.
    pub is_partial: bool,
}

/// Where a listing goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentsCursor {
    /// Of each shard; none of one that has told all.
    pub(crate) shards: Vec<Option<HoldingsCursor>>,
}

/// An Interest for a segment of a large object that the store lacks, of those that are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miss {
    pub ingress: FaceId,
    /// Whether that is an application of this machine.
    pub is_local: bool,
    /// The name without the segment number.
    pub object: Name,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentsError {
    /// No index is kept: [`Contents::track`](crate::Contents::track) begins one.
    #[error("the router keeps no index of what its store holds")]
    NotTracked,
    /// Too many questions wait for their answers.
    #[error("too many questions about the store wait already")]
    Busy,
    /// The packet threads did not all answer in time.
    #[error("the router did not answer in time")]
    TimedOut,
    #[error("the router is ending")]
    Stopped,
    /// The rules do not come into force.
    #[error(transparent)]
    Refused(#[from] RulesError),
}

/// What the control thread is asked.
#[derive(Debug)]
pub(crate) enum ContentsRequest {
    Track(Option<HoldingsConfig>),
    List { prefix: Name, from: Option<ContentsCursor>, visits_max: u32 },
    ListOne { object: Name },
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
    Changes(HoldingChanges),
}

/// Where an answer is waited for.
pub(crate) type ReplySender = crossbeam_channel::Sender<Result<ContentsReply, ContentsError>>;
