#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod batch;
mod command;
mod config;
mod content;
mod contents;
mod direct;
mod driver;
mod egress;
mod endpoints;
mod eviction;
mod input;
mod io;
mod pass;
mod path;
mod router;
mod scope;
pub mod shard;
mod stats;
pub mod strategy;
mod table;
mod tables;

pub use config::RouterConfig;
pub use content::busy::{BusyPolicy, Bypass, Labels, Mark};
pub use content::decision::ForwardingAction;
pub use contents::{StoreCommand, StoreEvent};
pub use driver::{Driver, Extension, QueuedInterest, Turn};
pub use input::{Command, Input, MissWatch};
pub use io::{
    DataSource, Event, FaceAttributes, FaceScope, LinkType, NextHop, OutPacket, Outbox, PitTokens,
    UnsolicitedPolicy,
};
pub use path::InterestStep;
pub use router::Router;
pub use shard::ShardMessage;
pub use stats::{BusyStats, DropReason, LatencyHistogram, RouterStats};
pub use table::prefixes::PREFIX_COMPONENTS_MAX;
pub use weir_wire::NAME_COMPONENTS_MAX;

#[cfg(test)]
mod tests;
