#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
// Derived schemas use its items.
#[cfg(feature = "openapi")]
#[macro_use]
extern crate std;

mod controller;
mod data_map;
mod demand;
mod file;
mod graph;
mod limits;
pub mod message;
mod network;
mod objects;
mod placement;
mod plan;
mod router_config;
mod segments;

pub use controller::{ControlError, Controller, ControllerConfig, Event, FileStatus};
pub use file::{File, List};
pub use limits::LimitKind;
pub use network::Link;
pub use placement::Placement;
pub use plan::{Part, Plan, Share};
pub use segments::Segments;
