#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod blocking;
mod command;
mod content;
mod contents;
mod direct;
mod egress;
mod input;
mod io;
mod packet;
mod path;
mod router;
mod scope;
pub mod shard;
mod stats;
pub mod strategy;
mod table;

pub use blocking::BlockingStore;
pub use content::busy::{BusyPolicy, Bypass, Labels, Mark, StoreIo};
pub use content::decision::StoreDecision;
pub use contents::{StoreCommand, StoreEvent};
pub use input::{Command, Input, MissWatch};
pub use io::{
    DataSource, Event, FaceAttributes, FaceScope, LinkType, NextHop, OutPacket, Outbox, PitTokens,
    UnsolicitedPolicy,
};
pub use path::InterestStep;
pub use router::{Router, RouterConfig};
pub use shard::ShardMessage;
pub use stats::{BusyStats, DropReason, LatencyHistogram, RouterStats};
pub use table::prefixes::PREFIX_COMPONENTS_MAX;
pub use weir_wire::NAME_COMPONENTS_MAX;

#[cfg(test)]
mod tests;
