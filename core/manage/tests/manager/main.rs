//! The manager driven with octets, as tools made for NFD send them.

mod access;
mod commands;
mod datasets;
mod harness;
mod robustness;
