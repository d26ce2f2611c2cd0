//! Events and errors of the controller.

use alloc::string::String;
use alloc::vec::Vec;

use weir_wire::Name;

use crate::limits::LimitKind;
use crate::message::UpdateNumber;
use crate::plan::Plan;

/// A change for the journal and the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A router has reported for the first time, or again after it was lost.
    RouterFound { router: String },
    /// A router has not reported for too long.
    RouterLost { router: String },
    /// A plan came into force and replaced the plan with its parent's number.
    Planned(Plan),
    /// Two routers report by one name, and one of them is refused. At most one event a minute.
    DuplicateName {
        router: String,
        /// The addresses of the refused router.
        uris: Vec<String>,
    },
    /// A router has gained no segment for a minute although its part lacks segments. Other routers
    /// get the part, and this router gets no part for ten minutes.
    PartNotKept { router: String, object: Name, segments: u64 },
    /// A report or a request of a router exceeds a limit, and the excess is ignored. At most one
    /// event a minute for each router and kind of limit.
    LimitExceeded {
        router: String,
        bound: LimitKind,
        /// The number of segments, objects or requests ignored since the last such event.
        count: u64,
    },
}

/// What the registration of a file would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileStatus {
    /// Nothing: the file is registered as it is.
    Unchanged,
    /// It adds the manifest to a file that was registered without one.
    AddsManifest,
    /// The file is not registered yet.
    New,
}

/// Why the controller refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The router has not reported, or not for too long.
    #[error("router {0} is unknown here; it must report first")]
    UnknownRouter(String),
    /// The update does not follow the one before.
    #[error(
        "the update is out of order: expected number {number} of generation {generation}, or \
         number 1 of a new generation",
        number = expected.number,
        generation = expected.generation
    )]
    OutOfOrder { expected: UpdateNumber },
    /// A limit on a number of things is reached.
    #[error("too many {what}: the limit is {max}")]
    TooMany { what: &'static str, max: usize },
    /// Another router had this name first.
    #[error(
        "another router already reports as {0}: give this router a name and a token of \
         its own"
    )]
    NameTaken(String),
    /// No controller has given a generation as high as this.
    #[error(
        "no controller has given configuration {0}; delete the agent's state file and restart it"
    )]
    UnknownGeneration(u64),
    /// The file has no segments or no name, or is too large.
    #[error(
        "the file is invalid: it needs a name of at most 2,000 bytes, 1 to 2^48 segments, and \
         packets of 1 to 8,800 bytes; its manifest may have at most 4 lists, whose names begin \
         with its name and which have no more packets than the file"
    )]
    InvalidFile,
    /// The file was registered before with another size or another manifest.
    #[error(
        "{0} is already registered with another size or manifest; put a new version into its \
         name"
    )]
    FileConflict(Name),
}
