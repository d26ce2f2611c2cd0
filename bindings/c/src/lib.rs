#![doc = include_str!("../README.md")]

mod answers;
mod bell;
mod consumer;
mod edge;
mod errors;
mod library;
mod memory;
mod names;
mod options;
mod producer;
mod shape;
mod socket;
