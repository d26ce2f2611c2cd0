#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod catalog;
pub mod congestion;
mod fetcher;
mod histogram;
mod interest;
mod metadata;
mod pipeline;
mod request;
mod segment_set;
mod stats;
mod template;

pub use catalog::{Answer, Catalog, ObjectId};
pub use congestion::{CongestionControl, Controller};
pub use fetcher::{
    Delivery, FetchConfig, FetchError, FetchEvent, FetchInput, FetchOutbox, Fetcher, Part, Target,
};
pub use histogram::Histogram;
pub use interest::InterestBatch;
pub use metadata::{LISTING_KEYWORD, METADATA_KEYWORD, Metadata, MetadataError};
pub use segment_set::SegmentSet;
pub use stats::FetchStats;
pub use template::{Frame, Seal, SegmentTemplate};

#[cfg(test)]
mod tests;
