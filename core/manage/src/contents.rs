//! Tasks about the objects in the content store, and their answers.

use alloc::string::String;

use weir_store::{ObjectList, ObjectQuery};
use weir_wire::{InterestView, Name};

use crate::parameters::{ControlParameters, ControlResponse};

/// What the driver must do with the contents of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentsTask {
    /// List objects; answer with [`ContentsAnswer::List`].
    List(ObjectQuery),
    /// Mark the Data below a prefix to be evicted first; answer with [`ContentsAnswer::Done`].
    EvictFirst { prefix: Name },
    /// Keep the Data below a prefix in memory, up to a number of bytes.
    Pin { prefix: Name, bytes_max: u64 },
    /// Keep the Data below a prefix no longer.
    Unpin { prefix: Name },
}

/// The result of a [`ContentsTask`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentsAnswer {
    List(ObjectList),
    /// Packets that were marked, bytes that are pinned, or bytes that were unpinned.
    Done(u64),
    Refused(String),
}

/// The object query of an Interest for cs/list.
pub(crate) fn object_query(interest: &InterestView<'_>) -> Option<ObjectQuery> {
    ObjectQuery::decode(interest.name.last()?.value)
}

/// cs/pin: the task for the driver. Count is the number of bytes.
pub(crate) fn pin(parameters: ControlParameters) -> ContentsTask {
    let prefix = parameters.name.unwrap_or_default();
    ContentsTask::Pin { prefix, bytes_max: parameters.count.unwrap_or_default() }
}

/// cs/unpin and cs/evict-first: the name is required.
pub(crate) fn prefix(parameters: ControlParameters) -> Name {
    parameters.name.unwrap_or_default()
}

/// The response to a command when the driver has finished.
pub(crate) fn response(task: ContentsTask, answer: ContentsAnswer) -> ControlResponse {
    let name = match task {
        ContentsTask::List(query) => query.prefix,
        ContentsTask::EvictFirst { prefix }
        | ContentsTask::Pin { prefix, .. }
        | ContentsTask::Unpin { prefix } => prefix,
    };
    match answer {
        ContentsAnswer::Done(count) => ControlResponse::ok(ControlParameters {
            name: Some(name),
            count: Some(count),
            ..ControlParameters::default()
        }),
        ContentsAnswer::Refused(reason) => ControlResponse::new(409, reason),
        ContentsAnswer::List(_) => ControlResponse::new(500, "unexpected answer of the driver"),
    }
}
