#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod app;
mod check;
mod draws;
mod error;
pub mod event;
mod hash;
mod network;
mod peek;
pub mod plan;
pub mod workload;

pub use draws::filler_prefix;
pub use error::{PlanError, Violation, ViolationKind};
pub use event::{DiskSample, Event, EventKind, Observer};
pub use network::{Network, Summary};
pub use plan::Plan;
