//! Metrics from the events of a run.
//!
//! A metric is a measure at some nodes. Every measure is one of three kinds: samples (queue
//! lengths, round-trip times), a rate of amounts (octets, packets), or a ratio of two amounts (hits
//! of look-ups). That makes it a number over the measured part of a run, a series over time in
//! bins, or a number for every node.

mod collect;
mod histogram;
mod settle;
mod shares;
#[cfg(test)]
mod tests;
mod trial;

pub(crate) use collect::{Collector, Measured};
pub(crate) use histogram::Histogram;
