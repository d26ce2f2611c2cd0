#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod claims;
mod events;
mod figures;
mod jobs;
mod metric;
mod record;
mod report;
mod runner;
mod session;
mod stats;

pub use claims::{ClaimResult, Reproduction};
pub use events::EventFormat;
pub use jobs::{Cluster, JobDivision, job_file};
pub use record::RecordError;
pub use report::{claim_table, with_interval};
pub use runner::{Progress, RunError, RunOptions, Task};
pub use session::{
    Outcome, PaperOptions, PaperSession, Program, Session, SessionError, SessionOptions,
    machine_description, merge,
};
