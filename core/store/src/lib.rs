#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod config;
pub mod disk;
mod entry;
mod ordered;
mod policy;
mod store;
mod tree;

pub use config::{Compare, EvictionPolicy, IndexKind, StoreConfig, StoreStats};
pub use store::{
    COMPONENTS_MAX, Hit, Lookup, NameHashes, PartAnswer, Query, Store, UNKNOWN_SOURCE,
};
