//! What a controller reports and refuses.

use alloc::string::String;
use alloc::vec::Vec;

use weir_wire::Name;

use crate::limits::LimitKind;
use crate::message::UpdateNumber;
use crate::plan::Plan;

/// What has come to pass, for a journal and for a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A router has told of itself for the first time, or again after it was gone.
    RouterFound { router: String },
    /// A router has said nothing for too long.
    RouterLost { router: String },
    /// A plan is in force, in place of the one with the number of its parent.
    Planned(Plan),
    /// Two routers report by one name: what one of them tells does not count. There is one event a
    /// minute at most.
    DuplicateName {
        router: String,
        /// Under which others reach the one that does not count.
        uris: Vec<String>,
    },
    /// A router has gained nothing for a minute and lacks segments that it was to fetch and keep.
    /// Others get its part, and it gets no other for ten minutes.
    PartNotKept { router: String, object: Name, segments: u64 },
    /// Something that a router says or asks does not count. Of each kind and router there is one
    /// event a minute at most.
    LimitExceeded {
        router: String,
        /// What it is too much for.
        bound: LimitKind,
        /// How much does not count, since the last such event: segments, objects or questions.
        count: u64,
    },
}

/// What is new of a file that a producer tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileStatus {
    /// It is known as it is.
    Unchanged,
    /// It was registered without its manifest.
    AddsManifest,
    /// It is not known.
    New,
}

/// Why something is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The router has not reported, or not for long.
    #[error("router {0} is not known here; it must report first")]
    UnknownRouter(String),
    /// An update does not follow the one before.
    #[error(
        "update {number} of generation {generation} is expected, or number 1 of another generation",
        number = expected.number,
        generation = expected.generation
    )]
    OutOfOrder { expected: UpdateNumber },
    /// There are too many of something.
    #[error("there are {max} {what} already, which is the most")]
    TooMany { what: &'static str, max: usize },
    /// Another router has this name, and was there first.
    #[error(
        "another router reports as {0}, and was here first: give this one a name and a token of \
         its own"
    )]
    NameTaken(String),
    /// No controller has ever given a number as high.
    #[error("no configuration has number {0}; start the router's agent anew without one")]
    UnknownGeneration(u64),
    /// A file without segments, without a name, or larger than can be.
    #[error(
        "a file has a name of 2,000 octets at most, 1 to 2^48 segments, packets of 1 to 8,800 \
         octets, and a manifest of 4 lists at most, below its name and no longer than itself"
    )]
    InvalidFile,
    /// A file was registered before with another size, or with another manifest.
    #[error(
        "{0} is registered with another size or manifest; a changed file has a new version in its \
         name"
    )]
    FileConflict(Name),
}
