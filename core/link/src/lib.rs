#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod config;
mod counters;
mod egress;
mod link;
mod marking;
mod reassembly;
mod receive;
mod send;

#[cfg(test)]
mod tests;

pub use config::{FRAGMENT_COUNT_MAX, LinkConfig, MTU_MIN, REASSEMBLY_TIMEOUT_NS};
pub use counters::{DropCounters, LinkCounters, LinkDrop};
pub use egress::{FRAME_PREFIX_MAX, Frame};
pub use link::{Link, Received};
