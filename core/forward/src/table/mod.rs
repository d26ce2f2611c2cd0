//! The tables of a shard.

pub(crate) mod dead_nonces;
pub(crate) mod faces;
pub(crate) mod fib;
pub(crate) mod live;
pub(crate) mod measurements;
pub(crate) mod orphans;
pub(crate) mod path_model;
pub(crate) mod pit;
pub(crate) mod prefixes;
pub(crate) mod records;
pub(crate) mod refusals;
pub(crate) mod station;
pub(crate) mod watches;
