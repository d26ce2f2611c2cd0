#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod claims;
pub mod events;
mod figures;
pub mod jobs;
pub mod metric;
pub mod record;
pub mod report;
pub mod runner;
pub mod session;
mod stats;
