#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod adaptive;
mod blocking;
mod busy;
mod bypass;
mod command;
mod data;
mod dead_nonce;
mod direct;
mod disk;
mod interest;
mod io;
mod nack;
mod neighbours;
mod pit;
mod prefix_table;
mod reads;
mod router;
pub mod shard;
mod stats;
pub mod strategy;

pub use busy::{BusyPolicy, Bypass, Mark, StoreIo};
pub use interest::InterestStage;
pub use io::{
    Availability, Command, Event, FaceScope, Input, LinkType, NextHop, OutPacket, Outbox,
    PacketKind, UnsolicitedPolicy,
};
pub use prefix_table::PREFIX_COMPONENTS_MAX;
pub use router::{Router, RouterConfig};
pub use stats::{BusyStats, DropReason, LatencyHistogram, RouterStats};

#[cfg(test)]
mod tests;
