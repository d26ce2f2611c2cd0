//! Tests the manager with encoded packets, as NFD's tools send them.

mod access;
mod commands;
mod datasets;
mod harness;
mod hicn;
mod learning;
mod readvertise;
mod robustness;
