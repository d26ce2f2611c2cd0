#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod event;
pub mod plan;
pub mod workload;
