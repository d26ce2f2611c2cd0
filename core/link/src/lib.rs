#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod codec;
mod config;
mod counters;
mod egress;
mod frame;
mod ingress;
mod link;
mod order;
mod runs;

#[cfg(test)]
mod tests;

pub use codec::{AnnouncedData, CodecConfig, HicnConfig, MTU_MIN, PacketFormat, Received};
pub use config::LinkConfig;
pub use counters::{DropCounters, LinkCounters, LinkDrop};
pub use egress::{ChoiceError, ExternalChoice, ExternalKind, read_options};
pub use egress::{CoDelOptions, Marker, MarkerKind, MarkerOptions, QueueArrival};
pub use egress::{Discipline, DisciplineConfig, DisciplineKind, DisciplineOptions};
pub use egress::{EgressConfig, Load, MarkingConfig, MarkingPolicy, Outgoing, Outlet};
pub use egress::{PacketKind, Sojourn};
pub use frame::Frame;
pub use ingress::{FispConfig, ShapingConfig, ShapingError};
pub use link::Link;
pub use order::OptionOrderError;
pub use runs::RunsConfig;
