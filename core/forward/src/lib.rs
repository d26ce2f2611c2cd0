#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod announced;
mod batch;
mod command;
mod config;
mod content;
mod driver;
mod egress;
mod endpoints;
mod eviction;
mod incoming;
mod input;
mod inspect;
mod io;
mod path;
mod router;
mod scope;
pub mod shard;
mod stats;
mod store_commands;
pub mod strategy;
mod table;
mod tables;

pub use announced::AnnouncedPacket;
pub use config::RouterConfig;
pub use content::busy::{BusyPolicy, Bypass, Labels, Mark};
pub use content::decision::ForwardingAction;
pub use driver::{Driver, Extension, QueuedInterest, Turn};
pub use input::{Command, Input, MissReports};
pub use io::{
    DataSource, Event, FaceAttributes, FaceScope, LinkType, NextHop, OutPacket, Outbox, PitTokens,
    UnsolicitedPolicy,
};
pub use path::InterestStep;
pub use router::Router;
pub use shard::ShardMessage;
pub use stats::{BusyStats, DropReason, LatencyHistogram, RouterStats};
pub use store_commands::{StoreCommand, StoreEvent};
pub use table::prefixes::PREFIX_COMPONENTS_MAX;
pub use weir_wire::NAME_COMPONENTS_MAX;

#[cfg(test)]
mod tests;
