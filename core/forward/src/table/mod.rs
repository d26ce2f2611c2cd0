//! The tables of a shard.

pub(crate) mod announcements;
pub(crate) mod closed_faces;
pub(crate) mod dead_nonces;
pub(crate) mod faces;
pub(crate) mod fib;
pub(crate) mod measurements;
pub(crate) mod path_model;
pub(crate) mod pit;
pub(crate) mod prefix_hops;
pub(crate) mod prefixes;
pub(crate) mod queue_estimator;
pub(crate) mod records;
pub(crate) mod refusals;
pub(crate) mod slot_set;
pub(crate) mod watches;
