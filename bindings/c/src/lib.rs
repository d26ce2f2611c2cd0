#![doc = include_str!("../README.md")]

mod answer_queue;
mod consumer;
mod edge;
mod errors;
mod library;
mod memory;
mod names;
mod options;
mod producer;
mod readiness;
mod shape;
mod socket;
