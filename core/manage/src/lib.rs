#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod announcement;
mod answers;
mod authorize;
pub mod commands;
mod config;
mod contents;
mod controller;
mod dataset;
mod element;
mod error;
mod events;
mod face_uri;
mod faces;
mod fib;
mod hicn;
mod io;
mod learning;
mod manager;
mod numbers;
mod parameters;
mod publisher;
mod rate_limit;
mod readvertise;
mod record;
mod request;
mod rib;
mod routing;
mod status;
mod store;
mod store_disk;
mod strategy;
#[cfg(test)]
mod tests;
mod transactions;

pub use config::{AnchorLookup, ManagerConfig};
pub use contents::{ContentsAnswer, ContentsTask};
pub use controller::ControllerStatus;
pub use dataset::{DatasetError, DatasetFetch};
pub use element::{Element, Writer};
pub use error::DecodeError;
pub use fib::Fib;
pub use io::{
    Action, FaceChanges, FaceError, FaceRequest, HicnAnswer, LearningInput, ManagerInput,
    ManagerOutbox, OutData, Sender, Snapshot, SnapshotKind, StoreSettings,
};
pub use manager::{Manager, ManagerStats};
pub use numbers::{
    FaceEventKind, FacePersistency, FaceScope, LinkType, face_flags, route_flags, route_origin,
    store_flags, types,
};
pub use parameters::{ControlParameters, ControlResponse};
pub use rib::{Rib, Route};
pub use status::{
    ChannelStatus, CsDevice, CsInfo, FaceCounters, FaceCrowding, FaceEventNotification, FaceInfo,
    FaceQueryFilter, FaceStatus, FibEntry, GeneralStatus, NextHopRecord, RibEntry, RouteStatus,
    StrategyChoice,
};
pub use store_disk::CsDiskInfo;
pub use strategy::{StrategyInfo, check_strategy};

/// Maximum number of components of FIB, RIB and strategy prefixes (NFD).
pub const PREFIX_COMPONENTS_MAX: usize = 32;

/// The protocol counts the capacity of the content store in packets, this router in bytes. One
/// packet counts as this many bytes, so NFD's default of 65536 packets is 512 MiB.
pub const STORE_PACKET_BYTES: u64 = 8192;

/// The MTU in a command that requests the default; NFD's clients send it for `mtu auto`.
pub const MTU_AUTO: u64 = u64::MAX;

/// Maximum number of Data packets that one cs/erase command erases (NFD).
pub(crate) const ERASE_LIMIT: u64 = 256;
