//! Computes metrics from the events of a run.
//!
//! A metric is a measure at some nodes. Every measure is of one of three kinds: samples (queue
//! lengths, round-trip times), a rate of amounts (bytes, packets), or a ratio of two amounts (hits
//! of lookups). A metric can be one number for the measured part of a run, a series of bins over
//! time, or a number for every node.

mod collect;
mod histogram;
mod settle;
mod shares;
#[cfg(test)]
mod tests;
mod trial;

pub(crate) use collect::{Collector, Measured};
pub(crate) use histogram::Histogram;
