#![doc = include_str!("../README.md")]

mod answer_queue;
mod constants;
mod consumer;
mod errors;
mod exports;
mod library;
mod memory;
mod names;
mod options;
mod producer;
mod readiness;
mod socket;
