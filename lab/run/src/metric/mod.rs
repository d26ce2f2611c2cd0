//! Computes metrics from the events of a run.
//!
//! A metric is a measure at some nodes. There are three kinds of measures: samples (queue lengths,
//! round-trip times), rates of amounts (bytes, packets), and ratios of two amounts (hits of
//! lookups). A metric can be one number for the measured part of a run, a series of bins over time,
//! or a number for every node.

mod collect;
mod histogram;
mod settle;
mod shares;
#[cfg(test)]
mod tests;
mod trial;

pub(crate) use collect::{Collector, Measured};
pub(crate) use histogram::Histogram;
