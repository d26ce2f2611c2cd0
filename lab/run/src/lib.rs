#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod claims;
mod engine;
mod events;
mod figures;
mod metric;
mod record;
mod report;
mod runner;
mod session;
mod stats;
mod sweep;

pub use claims::{ClaimResult, Reproduction};
pub use engine::{Cluster, EngineError, EngineKind, JobFile, ShareFailure};
pub use events::EventFormat;
pub use record::RecordError;
pub use report::{claim_table, with_interval};
pub use runner::{Progress, RunError, RunOptions, Task};
pub use session::{
    Outcome, PaperOptions, PaperSession, Program, Session, SessionError, SessionOptions,
    machine_description, merge,
};
pub use sweep::SweepOptions;
